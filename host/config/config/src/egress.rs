//! Builds the rules for requests from the configuration: hosts, proxy, certificate authorities and
//! secrets.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolhold_contract::{BuiltInGrant, BuiltInPlugin, HostError, SubjectKind};
use toolhold_net::{
    Limits, Network, Proxy, Secret as ResolvedSecret, SecretSource, SecretValue, Settings,
};
use toolhold_policy::egress::{
    Grant, HostPattern, HostPatternError, PathPattern, PathPatternError, PrivateHosts, Reach,
    Scheme, Target,
};
use toolhold_policy::{Action, Placed, Verdict};

use serde_json::Value;

use super::program_hosts::HOSTS;
use super::{
    Ceiling, Config, Folders, HostGrant, NetworkGrant, OtherDomains, Problem, Problems,
    SandboxMode, Secret, ServerSecret, Source, UrlScheme, Web, WithoutProxy, WrittenHost,
    WrittenPrivateHosts,
};

/// Most bytes of a request's body. A longer body is refused.
const REQUEST_BODY: u64 = 10 << 20;

/// Most bytes of the headers of a request or a response. Longer headers are refused.
const HEADERS: usize = 64 << 10;

/// Seconds without data from the server after which a request fails.
const IDLE_SECS: u64 = 15;

/// Bytes of a KiB.
const KIB: u64 = 1 << 10;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// The list of hosts of the web tools.
const WEB_HOSTS: &str = "tools.web.allowed_domains";

/// The keys about requests of one table.
struct RequestTable<'s> {
    /// The name of the table: `tools.web` or `plugins.NAME`.
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

/// Returns the keys about connections of programs. `name` is their table, and `grants` are its
/// hosts.
fn table_of_programs(name: String, grants: &[HostGrant]) -> RequestTable<'_> {
    RequestTable { name, key: "hosts", grants, private: &[], https_only: true, credentials_to: &[] }
}

impl Config {
    /// Builds the settings for the requests of the built-in web tools.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if a value can't be used.
    pub fn egress_of_web(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Settings, HostError> {
        let web = &self.values.tools.web;
        let limits = self.values.tools.limits;
        let secs = limits.request_secs.get().min(web.timeout.get());
        let body_bytes = (limits.response_mib.get() * MIB).min(web.max_body_kib.get() * KIB);
        let request_limits = request_limits(limits, secs, body_bytes);
        let time_key = if web.timeout <= limits.request_secs {
            format!("`timeout` in {}", self.own_table("tools.web"))
        } else {
            self.time_key("tools.limits")
        };
        let table = self.web_table();
        let mut settings =
            self.egress(&table, request_limits, &time_key, folders, working_directory)?;
        // Only the web tools may reach hosts that no key names.
        settings.reach = self.web_reach()?;
        settings.asks = web.other_domains == OtherDomains::Ask;
        Ok(settings)
    }

    /// Builds the rules for calls of the web tools.
    pub fn web(&self) -> Result<toolhold_policy::Web, HostError> {
        let verdict = match self.values.tools.web.other_domains {
            OtherDomains::Deny => Verdict::Deny,
            OtherDomains::Ask => Verdict::Ask,
            OtherDomains::Allow => Verdict::Allow,
        };
        let others = Placed { value: verdict, place: self.origin("tools.web.other_domains") };
        Ok(toolhold_policy::Web { reach: Arc::new(self.web_reach()?), others })
    }

    /// Returns the hosts that the web tools may reach.
    fn web_reach(&self) -> Result<Reach, HostError> {
        let mut reach = self.reach(&self.web_table())?;
        reach.ceilings = self.lists_of_ceilings(WEB_HOSTS, Self::web_reach)?;
        if self.values.tools.web.other_domains == OtherDomains::Allow {
            let place = self.origin("tools.web.other_domains");
            // `allow` is the same as a grant for every host.
            let hosts =
                HostPattern::new("*").map_err(|error| HostError::Config(error.to_string()))?;
            let value =
                Grant { hosts, scheme: None, port: None, methods: Vec::new(), paths: Vec::new() };
            reach.grants.push(Placed { value, place });
        }
        Ok(reach)
    }

    /// Returns the keys of `[tools.web]` about requests.
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

    /// Builds the settings for the requests of the plugin `name`. Returns `None` if no host is
    /// granted to the plugin.
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
        let body_bytes = limits.response_mib.get() * MIB;
        let request_limits = request_limits(limits, limits.request_secs.get(), body_bytes);
        let time_key = match plugin.limits.request_secs {
            Some(_) => self.time_key(&format!("plugins.{}.limits", super::dotted_name(name))),
            None => self.time_key("tools.limits"),
        };
        self.egress(&table, request_limits, &time_key, folders, working_directory).map(Some)
    }

    /// Builds the settings for the connections of commands. Returns `None` if they can reach no
    /// hosts, or reach the whole network.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::egress_of_web`].
    pub fn egress_of_shell(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Option<Settings>, HostError> {
        let shell = &self.values.tools.shell;
        if shell.network != NetworkGrant::Ask
            || (!reaches_hosts(&shell.hosts) && !self.asks_about_hosts())
        {
            return Ok(None);
        }
        let table = self.shell_table();
        let mut settings = self.egress_of_programs(&table, folders, working_directory)?;
        settings.reach.ceilings = self.lists_of_ceilings(HOSTS, Self::shell_reach)?;
        settings.asks = self.asks_about_hosts();
        for (name, secret) in &shell.secrets {
            let key = secret_key(&table.name, name);
            let rule = secret.rule(name).map_err(|error| {
                Problems::from(Problem::new(self.source_below(&key), error.to_string()))
            })?;
            let source = self.source_of(&key, &secret.into(), folders, working_directory);
            settings.secrets.push(ResolvedSecret { rule, source });
        }
        Ok(Some(settings))
    }

    /// Builds the settings for the connections of the server `name` of `[mcp.servers]`. Returns
    /// `None` if the server reaches no hosts, or the whole network.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::egress_of_web`].
    pub fn egress_of_server(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Option<Settings>, HostError> {
        let Some(server) = self.values.mcp.servers.get(name) else { return Ok(None) };
        if server.hosts.is_empty() || server.network {
            return Ok(None);
        }
        let table = table_of_programs(format!("mcp.servers.{name}"), &server.hosts);
        self.egress_of_programs(&table, folders, working_directory).map(Some)
    }

    /// Builds the settings for the connections of the programs of a table.
    fn egress_of_programs(
        &self,
        table: &RequestTable<'_>,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Settings, HostError> {
        let limits = self.values.tools.limits;
        let request_limits =
            request_limits(limits, limits.request_secs.get(), limits.response_mib.get() * MIB);
        let time_key = self.time_key("tools.limits");
        let mut settings =
            self.egress(table, request_limits, &time_key, folders, working_directory)?;
        settings.reach = self.reach_of_programs(table)?;
        Ok(settings)
    }

    /// Returns the hosts that commands may reach.
    pub(super) fn shell_reach(&self) -> Result<Reach, HostError> {
        let mut reach = self.reach_of_programs(&self.shell_table())?;
        reach.ceilings = self.lists_of_ceilings(HOSTS, Self::shell_reach)?;
        Ok(reach)
    }

    /// Returns the hosts of the list `key` in each ceiling that sets it. `reach` returns the hosts
    /// in the contents of a ceiling.
    fn lists_of_ceilings(
        &self,
        key: &str,
        reach: impl Fn(&Self) -> Result<Reach, HostError>,
    ) -> Result<Vec<Reach>, HostError> {
        let mut lists = Vec::new();
        for Ceiling { contents, .. } in &self.ceilings {
            let source = contents.source_below(key);
            if source != Source::Default {
                lists.push(Reach { place: self.origin_of(&source, key), ..reach(contents)? });
            }
        }
        Ok(lists)
    }

    fn reach_of_programs(&self, table: &RequestTable<'_>) -> Result<Reach, HostError> {
        let mut reach = self.reach(table)?;
        for entry in std::mem::take(&mut reach.grants) {
            reach.add_entry(entry);
        }
        Ok(reach)
    }

    /// Returns the keys of `[tools.shell]` about connections.
    fn shell_table(&self) -> RequestTable<'_> {
        table_of_programs("tools.shell".to_owned(), &self.values.tools.shell.hosts)
    }

    /// Returns the access of commands to the network, with the place that decides on it.
    pub(crate) fn network_of_commands(&self) -> Placed<toolhold_policy::Network> {
        let shell = &self.values.tools.shell;
        // Without a sandbox, commands connect to the network directly, so the list can't limit
        // them.
        let has_hosts = reaches_hosts(&shell.hosts) && shell.sandbox != SandboxMode::Off;
        let network = match shell.network.into() {
            toolhold_policy::Network::Ask => {
                if let Some(place) = self.ceiling_on_hosts() {
                    return Placed { value: toolhold_policy::Network::OnlyHosts, place };
                }
                if has_hosts || self.asks_about_hosts() {
                    toolhold_policy::Network::Hosts
                } else {
                    toolhold_policy::Network::Ask
                }
            }
            network => network,
        };
        Placed { value: network, place: self.origin_of_network() }
    }

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
            // The arguments of a plugin's tool don't show the method of its requests, so any method
            // may send the secret.
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

    /// Returns the hosts that the requests of a table may reach.
    fn reach(&self, table: &RequestTable<'_>) -> Result<Reach, HostError> {
        let grants_key = table.path_of(table.key);
        let mut grants = self.parse_each(&grants_key, table.grants, parse_grant)?;
        let names_jobs = grants.iter().any(|grant| grant.value.is_job());
        grants.retain(|grant| !grant.value.is_job());
        if names_jobs && !["tools.web", "tools.shell"].contains(&table.name.as_str()) {
            let message = "`job`: only commands and web tools reach the jobs of their session; \
                           remove the entry";
            return Err(Problems::from(Problem::new(self.source(&grants_key), message)).into());
        }
        // `denied_domains` applies to plugins, too.
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
            // Only the web tools need this. Commands already share the loopback interface with the
            // jobs of their session.
            job_servers: names_jobs && table.name == "tools.web",
            https_only,
            place: self.origin(&grants_key),
            ceilings: Vec::new(),
        })
    }

    /// Builds the settings for the requests of a table, without approvals. `time_key` names the
    /// key of the time limit of requests.
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
                secrets.push(self.resolve_secret(
                    &owner,
                    name,
                    secret,
                    folders,
                    working_directory,
                )?);
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

    /// Parses the elements of a list, and adds to each element its file and line.
    fn parse_each<Written, T, E: fmt::Display>(
        &self,
        key: &str,
        list: &[Written],
        parse: impl Fn(&Written) -> Result<T, E>,
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

    /// Returns the rule and the source of a secret in `table`.
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

    /// Returns the source of a secret. `key` is the key of the secret's table.
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
            // A program with a `/` is a path. Any other program is searched in `PATH`.
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

    /// Returns the proxy and the trusted authorities for requests.
    pub fn network(&self, folders: &Folders, working_directory: &Path) -> Network {
        Network {
            proxy: self.proxy(),
            authorities: self.authorities(folders, working_directory),
            ..Network::default()
        }
    }

    /// Returns the proxy of the configuration, or else the proxy of the environment.
    fn proxy(&self) -> Option<Proxy> {
        let network = &self.values.network;
        let written = match &network.proxy {
            Some(written) => written.as_str().to_owned(),
            None => {
                let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
                let (_, address) = self.variable_of(&names)?;
                address
            }
        };
        if written.is_empty() {
            return None;
        }
        // Like most programs, Toolhold accepts a proxy address without a scheme.
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

    /// Returns the files with certificates of trusted authorities.
    pub fn authorities(&self, folders: &Folders, working_directory: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for (index, path) in self.values.network.authorities.iter().enumerate() {
            let key = format!("network.authorities.{index}");
            files.push(self.beside_its_source(&key, path, folders, working_directory));
        }
        files
    }

    /// Returns the working directory for which the configuration was read, or else the current
    /// working directory. Returns `/` if the current working directory was removed.
    pub fn directory(&self) -> PathBuf {
        if let Some(principal) = &self.principal {
            return principal.directory.clone();
        }
        if let Some((_, inputs)) = &self.read_from
            && let Some(directory) = &inputs.working_directory
        {
            return directory.clone();
        }
        super::working_directory().unwrap_or_else(|_| PathBuf::from("/"))
    }

    /// Returns the value of an environment variable at the time when the configuration was read. A
    /// variable that is empty or isn't UTF-8 is treated as missing.
    pub fn variable(&self, name: &str) -> Option<String> {
        let (_, inputs) = self.read_from.as_ref()?;
        // A later value of a variable replaces an earlier value.
        let (_, value) = inputs.variables.iter().rfind(|(known, _)| known == name)?;
        let text = value.to_str()?;
        if text.is_empty() { None } else { Some(text.to_owned()) }
    }

    /// Returns the name and the value of the first variable that has a value.
    pub fn variable_of<'n>(&self, names: &[&'n str]) -> Option<(&'n str, String)> {
        names.iter().find_map(|name| Some((*name, self.variable(name)?)))
    }
}

/// Builds the limits of requests. `secs` is the time limit of a request, and `body` is the most
/// bytes of a response's body.
fn request_limits(limits: super::Limits, secs: u64, body: u64) -> Limits {
    Limits {
        time: Duration::from_secs(secs),
        idle: Duration::from_secs(secs.min(IDLE_SECS)),
        body,
        request_body: REQUEST_BODY,
        headers: HEADERS,
        // A number that doesn't fit into the type can't be reached, so the largest number is the
        // same limit.
        concurrent: usize::try_from(limits.concurrent_requests.get()).unwrap_or(usize::MAX),
        requests: u32::try_from(limits.requests.get()).unwrap_or(u32::MAX),
    }
}

/// Checks whether a list has a host. The entry `job` stands for the jobs of the session, so it
/// doesn't count.
fn reaches_hosts(grants: &[HostGrant]) -> bool {
    grants.iter().any(|grant| !grant.is_job())
}

/// The reason why an entry for hosts can't be used.
#[derive(Debug, thiserror::Error)]
enum GrantError {
    #[error(transparent)]
    Host(#[from] HostPatternError),
    #[error(transparent)]
    Path(#[from] PathPatternError),
}

/// Returns the key of the table that names the source of a secret. For commands, this is the table
/// `from` of the secret.
pub fn secret_key(table: &str, name: &str) -> String {
    let key = format!("{table}.secrets.{}", super::dotted_name(name));
    if table == "tools.shell" { key + ".from" } else { key }
}

fn parse_grant(grant: &HostGrant) -> Result<Grant, GrantError> {
    let scheme = grant.scheme.map(|scheme| match scheme {
        UrlScheme::Https => Scheme::Https,
        UrlScheme::Http => Scheme::Http,
    });
    let paths = grant.paths.iter().map(|path| PathPattern::new(path.as_str()));
    Ok(Grant {
        hosts: HostPattern::new(grant.host.as_str())?,
        scheme,
        port: grant.port,
        methods: grant.methods.iter().map(|method| method.as_str().to_owned()).collect(),
        paths: paths.collect::<Result<_, _>>()?,
    })
}
