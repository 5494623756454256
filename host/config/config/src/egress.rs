//! Builds the rules for requests from the configuration: the hosts, the proxy, the certificate
//! authorities, and the secrets.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolhold_contract::{BuiltInGrant, BuiltInPlugin, HostError, SubjectKind};
use toolhold_net::{
    Limits, Network, Proxy, Secret as ResolvedSecret, SecretSource, SecretValue, Settings,
};
use toolhold_policy::egress::{
    Grant, HostPattern, HostPatternError, PrivateHosts, Reach, Scheme, Target,
};
use toolhold_policy::{Action, Placed, Verdict};

use serde_json::Value;

use super::{
    Config, Folders, HostGrant, OtherDomains, Problem, Problems, Secret, ServerSecret, UrlScheme,
    Web, WithoutProxy, WrittenHost, WrittenPrivateHosts,
};

/// Most bytes of a request's body.
const REQUEST_BODY: u64 = 10 << 20;

/// Most bytes of the headers of a response.
const HEADERS: usize = 64 << 10;

/// Seconds without any data from the other side.
const IDLE: u64 = 15;

/// The keys about requests in one table of the configuration.
struct RequestTable<'s> {
    /// `tools.web` or `plugins.NAME`.
    name: String,
    /// The key that grants hosts.
    key: &'static str,
    grants: &'s [HostGrant],
    private: &'s [WrittenPrivateHosts],
    https_only: bool,
    credentials_to: &'s [WrittenHost],
}

impl RequestTable<'_> {
    fn path_of(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }
}

impl Config {
    /// Builds the settings for the requests of the built-in web tools.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] with the place of a value that can't be used.
    pub fn egress_of_web(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Settings, HostError> {
        let web = &self.values.tools.web;
        let limits = self.values.tools.limits;
        let secs = limits.request_secs.get().min(web.timeout.get());
        let bytes = (limits.response_mib.get() << 20).min(web.max_body_kib.get() << 10);
        let request_limits = request_limits(limits, secs, bytes);
        let time_key = if web.timeout <= limits.request_secs {
            format!("`timeout` in {}", self.own_table("tools.web"))
        } else {
            self.time_key("tools.limits")
        };
        let table = self.web_table();
        let mut settings =
            self.egress(&table, request_limits, &time_key, folders, working_directory)?;
        settings.reach = self.web_reach()?;
        settings.asks = web.other_domains == OtherDomains::Ask;
        Ok(settings)
    }

    /// Builds the rules for the gate that decides on calls of the web tools.
    pub fn web(&self) -> Result<toolhold_policy::Web, HostError> {
        let verdict = match self.values.tools.web.other_domains {
            OtherDomains::Deny => Verdict::Deny,
            OtherDomains::Ask => Verdict::Ask,
            OtherDomains::Allow => Verdict::Allow,
        };
        let others = Placed { value: verdict, place: self.origin("tools.web.other_domains") };
        Ok(toolhold_policy::Web { reach: Arc::new(self.web_reach()?), others })
    }

    fn web_reach(&self) -> Result<Reach, HostError> {
        let mut reach = self.reach(&self.web_table())?;
        if self.values.tools.web.other_domains == OtherDomains::Allow {
            let place = self.origin("tools.web.other_domains");
            let hosts =
                HostPattern::new("*").map_err(|error| HostError::Config(error.to_string()))?;
            let value = Grant { hosts, scheme: None, port: None, methods: Vec::new() };
            reach.grants.push(Placed { value, place });
        }
        Ok(reach)
    }

    fn web_table(&self) -> RequestTable<'_> {
        let Web { allowed_domains, allowed_private_hosts, https_only, credentials_to, .. } =
            &self.values.tools.web;
        RequestTable {
            name: "tools.web".to_owned(),
            key: "allowed_domains",
            grants: allowed_domains,
            private: allowed_private_hosts,
            https_only: *https_only,
            credentials_to,
        }
    }

    /// Builds the settings for the requests of the plugin `name`. Returns `None` if the plugin has
    /// no granted host.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::egress_of_web`].
    pub fn egress_of_plugin(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Option<Settings>, HostError> {
        let Some(plugin) = self.values.plugins.get(name) else { return Ok(None) };
        if plugin.hosts.is_empty() && plugin.allowed_private_hosts.is_empty() {
            return Ok(None);
        }
        let table = RequestTable {
            name: format!("plugins.{name}"),
            key: "hosts",
            grants: &plugin.hosts,
            private: &plugin.allowed_private_hosts,
            https_only: plugin.https_only,
            credentials_to: &plugin.credentials_to,
        };
        let limits = self.plugin_limits(name);
        let request_limits =
            request_limits(limits, limits.request_secs.get(), limits.response_mib.get() << 20);
        let time_key = match plugin.limits.request_secs {
            Some(_) => self.time_key(&format!("plugins.{}.limits", super::dotted_name(name))),
            None => self.time_key("tools.limits"),
        };
        self.egress(&table, request_limits, &time_key, folders, working_directory).map(Some)
    }

    /// Names the key that bounds the time of a request.
    fn time_key(&self, table: &str) -> String {
        format!("`request_secs` in {}", self.own_table(table))
    }

    /// Returns the names of the secrets that a call sends to its URLs.
    pub fn secrets_for(&self, action: &Action<'_>) -> Vec<String> {
        let (table, hosts) = if action.built_in {
            if !BuiltInPlugin::has(action.provider, BuiltInGrant::Requests) {
                return Vec::new();
            }
            ("tools.web".to_owned(), &self.values.tools.web.allowed_private_hosts)
        } else {
            let Some(plugin) = self.values.plugins.get(action.provider) else {
                return Vec::new();
            };
            (format!("plugins.{}", action.provider), &plugin.allowed_private_hosts)
        };
        let private: Vec<PrivateHosts> =
            hosts.iter().filter_map(|hosts| PrivateHosts::new(hosts.as_str()).ok()).collect();
        let urls: Vec<(Target, String)> = action
            .subjects
            .iter()
            .filter(|subject| subject.kind == SubjectKind::Url)
            .filter_map(|subject| Target::with_url(&subject.text).ok())
            .collect();
        let written_method = action.arguments.get("method").and_then(Value::as_str);
        let method = written_method.unwrap_or("GET").to_ascii_uppercase();

        let mut names = Vec::new();
        for (_, name, secret) in self.request_secrets().filter(|(owner, ..)| *owner == table) {
            let Ok(mut rule) = secret.rule(name) else { continue };
            // The arguments of a plugin's tool don't show the method of its requests.
            if !action.built_in {
                rule.methods.clear();
            }
            let is_sent = urls.iter().any(|(target, url)| {
                let path = &url[target.origin().len()..];
                rule.applies_to(target, &method, path, &private)
            });
            if is_sent {
                names.push(name.to_owned());
            }
        }
        names
    }

    fn reach(&self, table: &RequestTable<'_>) -> Result<Reach, HostError> {
        let grants_key = table.path_of(table.key);
        let grants = self.parse_each(&grants_key, table.grants, parse_grant)?;
        // Hosts that the operator denies are denied for every table.
        let denied = self.parse_each(
            "tools.web.denied_domains",
            &self.values.tools.web.denied_domains,
            |host| HostPattern::new(host.as_str()),
        )?;
        let private_key = table.path_of("allowed_private_hosts");
        let private = self
            .parse_each(&private_key, table.private, |hosts| PrivateHosts::new(hosts.as_str()))?;
        let https_only =
            Placed { value: table.https_only, place: self.origin(&table.path_of("https_only")) };
        Ok(Reach {
            table: self.own_table(&table.name),
            grants,
            denied,
            private,
            // Third-party plugins have no servers to look at.
            job_servers: table.name == "tools.web" && self.values.tools.web.job_servers,
            https_only,
            place: self.origin(&grants_key),
        })
    }

    fn egress(
        &self,
        table: &RequestTable<'_>,
        limits: Limits,
        time_key: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Settings, HostError> {
        let credentials_to =
            self.parse_each(&table.path_of("credentials_to"), table.credentials_to, |host| {
                HostPattern::new(host.as_str())
            })?;
        let reach = self.reach(table)?;
        let mut secrets = Vec::new();
        for (owner, name, secret) in self.request_secrets() {
            if owner == table.name {
                let secret =
                    self.resolve_secret(&owner, name, secret, folders, working_directory)?;
                secrets.push(secret);
            }
        }
        Ok(Settings {
            reach,
            limits,
            time_key: time_key.to_owned(),
            asks: false,
            secrets,
            credentials_to: credentials_to.into_iter().map(|placed| placed.value).collect(),
            network: self.network(folders, working_directory),
        })
    }

    /// Parses the elements of a list. Each gets its place.
    fn parse_each<W, T, E: fmt::Display>(
        &self,
        key: &str,
        list: &[W],
        parse: impl Fn(&W) -> Result<T, E>,
    ) -> Result<Vec<Placed<T>>, HostError> {
        let mut elements = Vec::new();
        for (index, written) in list.iter().enumerate() {
            let element = format!("{key}.{index}");
            let value = parse(written).map_err(|error| {
                Problems::from(Problem::new(self.source(&element), error.to_string()))
            })?;
            elements.push(Placed { value, place: self.origin(&element) });
        }
        Ok(elements)
    }

    fn resolve_secret(
        &self,
        table: &str,
        name: &str,
        secret: &Secret,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<ResolvedSecret, HostError> {
        let key = format!("{table}.secrets.{}", super::dotted_name(name));
        let rule = secret.rule(name).map_err(|error| {
            Problems::from(Problem::new(self.source_below(&key), error.to_string()))
        })?;
        let source = self.source_of(&key, &secret.into(), folders, working_directory);
        Ok(ResolvedSecret { rule, source })
    }

    /// Returns the source of a secret. `key`: the key of the secret's table.
    pub fn source_of(
        &self,
        key: &str,
        secret: &ServerSecret,
        folders: &Folders,
        working_directory: &Path,
    ) -> SecretSource {
        if let Some(name) = &secret.env {
            let value = self.variable(name.as_str()).map(|value| Arc::new(SecretValue::new(value)));
            SecretSource::Variable { name: name.as_str().to_owned(), value }
        } else if !secret.file.is_empty() {
            let key = format!("{key}.file");
            let path = self.beside_its_source(&key, &secret.file, folders, working_directory);
            SecretSource::File(path)
        } else {
            let mut words = secret.command.clone();
            // A name with a `/` is a path. Any other program is looked for in `PATH`.
            if let Some(program) = words.first_mut()
                && program.contains('/')
            {
                let key = format!("{key}.command");
                let path = self.beside_its_source(&key, program, folders, working_directory);
                *program = path.to_string_lossy().into_owned();
            }
            SecretSource::Command(words)
        }
    }

    /// Returns the proxy and the trusted authorities of requests.
    pub fn network(&self, folders: &Folders, working_directory: &Path) -> Network {
        Network {
            proxy: self.proxy(),
            authorities: self.authorities(folders, working_directory),
            ..Network::default()
        }
    }

    fn proxy(&self) -> Option<Proxy> {
        let network = &self.values.network;
        let written = match &network.proxy {
            Some(written) => written.as_str().to_owned(),
            None => {
                let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
                self.variable_of(&names)?.1
            }
        };
        if written.is_empty() {
            return None;
        }
        // Like most programs, accept an address without a scheme.
        let url = if written.contains("://") { written } else { format!("http://{written}") };
        let except = match &network.no_proxy {
            Some(hosts) => hosts.iter().map(WithoutProxy::as_str).collect::<Vec<_>>().join(","),
            None => match self.variable_of(&["NO_PROXY", "no_proxy"]) {
                Some((_, hosts)) => hosts,
                None => String::new(),
            },
        };
        Some(Proxy { url, except, resolves: network.proxy_resolves })
    }

    /// Returns the files with certificates of authorities that are trusted.
    pub fn authorities(&self, folders: &Folders, working_directory: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for (index, path) in self.values.network.authorities.iter().enumerate() {
            let key = format!("network.authorities.{index}");
            files.push(self.beside_its_source(&key, path, folders, working_directory));
        }
        files
    }

    /// Returns the directory that the configuration was read for.
    pub fn directory(&self) -> PathBuf {
        if let Some((_, inputs)) = &self.read_from
            && let Some(directory) = &inputs.working_directory
        {
            return directory.clone();
        }
        super::working_directory().unwrap_or_else(|_| PathBuf::from("/"))
    }

    /// Returns an environment variable with which the configuration was read. A variable that is
    /// empty or isn't UTF-8 is treated as missing.
    pub fn variable(&self, name: &str) -> Option<String> {
        let (_, inputs) = self.read_from.as_ref()?;
        let (_, value) = inputs.variables.iter().rfind(|(known, _)| known == name)?;
        let text = value.to_str()?;
        if text.is_empty() { None } else { Some(text.to_owned()) }
    }

    /// Returns the name and the value of the first of these variables that has a value.
    pub fn variable_of<'n>(&self, names: &[&'n str]) -> Option<(&'n str, String)> {
        names.iter().find_map(|name| Some((*name, self.variable(name)?)))
    }
}

/// Returns the limits of requests. `secs`: the time limit. `body`: the most bytes of an answer.
fn request_limits(limits: super::Limits, secs: u64, body: u64) -> Limits {
    Limits {
        time: Duration::from_secs(secs),
        idle: Duration::from_secs(secs.min(IDLE)),
        body,
        request_body: REQUEST_BODY,
        headers: HEADERS,
        concurrent: usize::try_from(limits.concurrent_requests.get()).unwrap_or(usize::MAX),
        requests: u32::try_from(limits.requests.get()).unwrap_or(u32::MAX),
    }
}

fn parse_grant(grant: &HostGrant) -> Result<Grant, HostPatternError> {
    let scheme = grant.scheme.map(|scheme| match scheme {
        UrlScheme::Https => Scheme::Https,
        UrlScheme::Http => Scheme::Http,
    });
    Ok(Grant {
        hosts: HostPattern::new(grant.host.as_str())?,
        scheme,
        port: grant.port,
        methods: grant.methods.iter().map(|method| method.as_str().to_owned()).collect(),
    })
}
