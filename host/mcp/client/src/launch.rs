//! Starts an upstream server with its command, secrets, tokens and packages.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::header::{InvalidHeaderName, InvalidHeaderValue};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::task::JoinError;
use toolhold_core::config::{
    Config, Folders, McpServer, OwnFolder, ServerSecret, dotted_name, fill_in_secrets,
};
use toolhold_core::text::neutral_line;
use toolhold_core::{
    CancellationToken, Denial, HostError, ServerPlaces, outbound_client, own_helper, server_places,
};
use toolhold_net::requests::{Credential, OutboundClient, OutboundError, check_url};
use toolhold_net::{HostGate, Network, SecretValue, read};
use toolhold_system::confine::{Tree, TreeAccess};
use toolhold_system::process::{Child, Command, CommandResult, StartError};

use crate::START_TIMEOUT;
use crate::gate::ConnectionState;
use crate::hosts::relay_hosts;
use crate::http::ServerAddress;
use crate::oauth::{OAuthError, TokenFile, Tokens};
use crate::packages::{self, PackageError, RunnerLine};
use crate::program_end::MissingProgram;
use crate::proposals::{ProposalContext, changed_keys, proposals, with_proposals};

/// The time limit of a server's process, which the sandbox requires.
const TIME_LIMIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("the configuration has no such server")]
    NotConfigured,
    #[error("the server's table has neither `command` nor `url`; set one of these keys")]
    NoCommand,
    #[error(transparent)]
    Places(#[from] HostError),
    #[error(transparent)]
    Packages(#[from] PackageError),
    #[error("the secret `{name}`: {why}")]
    Secret { name: String, why: String },
    #[error(transparent)]
    Program(#[from] StartError),
    #[error("the server has neither a program nor a URL")]
    NoProgram,
    #[error("the pipes of the server's program are missing")]
    NoPipes,
    #[error(transparent)]
    Pipes(#[from] io::Error),
    #[error(transparent)]
    Url(#[from] OutboundError),
    #[error("the header `{name}` can't be used: {error}")]
    HeaderName { name: String, error: InvalidHeaderName },
    #[error("the header `{name}` can't be used: {error}")]
    HeaderValue { name: String, error: InvalidHeaderValue },
    #[error("the header `{0}` can't be used, because Toolhold sets this header")]
    OwnHeader(String),
    #[error(transparent)]
    Tokens(#[from] OAuthError),
    #[error(transparent)]
    Task(#[from] JoinError),
}

/// What all servers of a host share.
#[derive(Debug)]
pub(crate) struct Surroundings {
    config: Config,
    folders: Folders,
    directory: PathBuf,
    /// Folders that no server may access.
    own_folders: Vec<OwnFolder>,
    /// The name of the front end in the audit log.
    front_end: &'static str,
    /// Network settings that aren't in the configuration.
    network: Network,
    outbound_client: OnceLock<OutboundClient>,
}

impl Surroundings {
    pub(crate) fn new(
        config: &Config,
        folders: &Folders,
        directory: &Path,
        front_end: &'static str,
    ) -> Self {
        Self {
            config: config.clone(),
            folders: folders.clone(),
            directory: directory.to_owned(),
            own_folders: config.own_paths(folders, directory),
            front_end,
            network: Network::default(),
            outbound_client: OnceLock::new(),
        }
    }

    /// Sets the network settings that aren't in the configuration.
    pub(crate) fn with_network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    fn outbound_client(&self) -> OutboundClient {
        self.outbound_client
            .get_or_init(|| outbound_client(&self.config, &self.folders, self.front_end))
            .clone()
    }
}

impl PartialEq for Surroundings {
    /// Returns whether `self` and `other` give servers the same permissions and environment.
    fn eq(&self, other: &Self) -> bool {
        let config = &self.config.values;
        let other_config = &other.config.values;
        self.directory == other.directory
            && self.own_folders == other.own_folders
            && config.tools.shell == other_config.tools.shell
            && config.tools.file == other_config.tools.file
            && config.tools.web.denied_domains == other_config.tools.web.denied_domains
            // These settings are part of the client for servers at a URL, which is made only once.
            && config.network == other_config.network
            && config.audit == other_config.audit
    }
}

/// How a server is started.
#[derive(Debug, PartialEq)]
pub(crate) struct Launch {
    /// The name of the server's table.
    name: String,
    /// The server's table.
    pub(crate) server: McpServer,
    surroundings: Arc<Surroundings>,
    /// The lock of the packages of the server's runner. Empty without pinned packages.
    lock: String,
}

impl Launch {
    /// Makes the launch of the server in the table `server`. `lock_file` pins the packages of the
    /// server's runner, and is empty without pinned packages.
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        name: &str,
        server: &McpServer,
        lock_file: String,
    ) -> Self {
        let surroundings = Arc::clone(surroundings);
        Self { name: name.to_owned(), server: server.clone(), surroundings, lock: lock_file }
    }

    /// Resolves and fetches the current packages of the server's runner, and returns the launch
    /// with these packages pinned. Blocks, sometimes for minutes.
    pub(crate) fn resolved(self) -> Result<Self, LaunchError> {
        let Some(line) = self.line() else { return Ok(self) };
        let lock = packages::resolve(&line, self.places()?, &self.folder())?;
        packages::fetch(&line, &lock, || self.places(), &self.folder())?;
        Ok(Self { lock, ..self })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn lock(&self) -> &str {
        &self.lock
    }

    /// Parses the command line of a package runner. Returns `None` without a runner, or with a
    /// runner whose packages aren't pinned.
    fn line(&self) -> Option<RunnerLine> {
        RunnerLine::parse(&self.server.command, &self.server.args).unwrap_or(None)
    }

    fn folder(&self) -> PathBuf {
        self.surroundings.folders.server_packages(&self.name)
    }

    pub(crate) fn places(&self) -> Result<ServerPlaces, LaunchError> {
        let Surroundings { config, folders, directory, network, .. } = &*self.surroundings;
        let places = server_places(config, folders, directory, own_helper(), network, &self.name)?;
        places.ok_or(LaunchError::NotConfigured)
    }

    /// Returns the working directory of the server. A server without access to the host's directory
    /// starts in `/`.
    fn directory(&self, places: &ServerPlaces) -> PathBuf {
        let Surroundings { config, directory, .. } = &*self.surroundings;
        // Programs load code from their working directory. A caller's own code would get the
        // server's secrets.
        let directory = match &config.principal {
            Some(principal) => &principal.operator_directory,
            None => directory,
        };
        let grants = places.places.grants.rules().grants();
        let has_access = grants.iter().any(|grant| directory.starts_with(&grant.path));
        if has_access { directory.clone() } else { PathBuf::from("/") }
    }

    /// Reads the secrets. Blocks, because a secret may be the output of a program.
    pub(crate) fn secrets(&self) -> Result<Secrets, LaunchError> {
        let table = format!("mcp.servers.{}.secrets", self.name);
        let mut secrets = Secrets::default();
        for (name, secret) in &self.server.secrets {
            let value = self.read_secret(&table, name, secret)?;
            secrets.0.push((name.clone(), value));
        }
        Ok(secrets)
    }

    /// Reads the secret of `oauth.client_id`. Blocks, because a secret may be the output of a
    /// program.
    pub(crate) fn client_secret(&self) -> Result<Option<Arc<SecretValue>>, LaunchError> {
        let table = format!("mcp.servers.{}.oauth.secrets", self.name);
        let Some((name, secret)) = self.server.oauth.secrets.iter().next() else { return Ok(None) };
        self.read_secret(&table, name, secret).map(Some)
    }

    /// Reads a secret. `table` is the name of the configuration table with the server's secrets.
    fn read_secret(
        &self,
        table: &str,
        name: &str,
        secret: &ServerSecret,
    ) -> Result<Arc<SecretValue>, LaunchError> {
        let Surroundings { config, folders, directory, .. } = &*self.surroundings;
        let key = format!("{table}.{}", dotted_name(name));
        let value = read(&config.source_of(&key, secret, folders, directory));
        value.map_err(|why| LaunchError::Secret { name: name.to_owned(), why: why.to_string() })
    }

    /// Starts the program. Returns it with the gate of its connections, if hosts are granted. Blocks
    /// until the program runs.
    pub(crate) fn start(
        &self,
        secrets: &Secrets,
    ) -> Result<(Child, Option<Arc<HostGate>>), LaunchError> {
        let mut places = self.places()?;
        let (program, arguments_of_program) = match self.line() {
            Some(line) => {
                let fetched = packages::fetch(&line, &self.lock, || self.places(), &self.folder())?;
                let path = fetched.folder.display().to_string();
                // The sandbox also gets the folder with the packages.
                places.places.also.push(Tree { path, access: TreeAccess::Read });
                (fetched.program.display().to_string(), line.arguments)
            }
            None => (self.program(), self.server.args.clone()),
        };
        let mut arguments = vec![program];
        for argument in arguments_of_program {
            arguments.push(secrets.fill_in(&argument));
        }

        let mut environment = places.environment.clone();
        for (name, value) in &secrets.0 {
            // A secret replaces a variable with the same name.
            environment.retain(|(variable, _value)| variable != name);
            environment.push((name.clone(), value.expose().to_owned()));
        }

        let mut command = Command {
            arguments,
            environment,
            directory: self.directory(&places),
            network: places.network,
            path_rules: None,
            changes: None,
            shared_network: None,
            connections: None,
            authority: None,
            output: None,
            shell: None,
        };
        let audit = self.outbound_client().recorder();
        let gate = relay_hosts(&mut command, &places, &self.name, audit)?;
        // The connection reads the output, so the child stores none.
        let max_stored_output = 0;
        let end = Instant::now() + TIME_LIMIT;
        let never_cancelled = CancellationToken::new();
        let child =
            Child::start(&places.places, &command, max_stored_output, end, &never_cancelled)?;
        Ok((child, gate))
    }

    /// Returns the server's program. The home folder replaces a leading `~`.
    fn program(&self) -> String {
        let command = &self.server.command;
        if let Some(home) = &self.surroundings.folders.home
            && let Some(below_home) = command.strip_prefix("~/")
            && let Ok(path) = home.join(below_home).into_os_string().into_string()
        {
            return path;
        }
        command.clone()
    }

    /// Returns advice after the server's program has ended by itself. Returns `None` if neither a
    /// program nor a grant seems to be missing. `denial` is the newest denial of a connection. Blocks.
    pub(crate) fn hint(
        &self,
        result: &CommandResult,
        stderr: &str,
        denial: Option<&Denial>,
    ) -> Option<String> {
        let places = self.places().ok()?;
        let path_variable = places.environment.iter().find(|(name, _value)| name == "PATH");
        let missing = MissingProgram {
            server: &self.name,
            program: &self.program(),
            directory: &self.directory(&places),
            path: path_variable.map(|(_name, value)| value.as_str()),
        };
        if let Some(hint) = missing.hint(result, stderr) {
            return Some(hint);
        }
        let advice = self.advise(&[stderr], denial)?;
        Some(format!("a grant may be missing. {advice}"))
    }

    /// Returns advice after a failure. Without a `denial` of a connection, the server's `messages`
    /// about the failure have to suggest a missing grant. Only the first message that suggests a
    /// missing grant is used. Blocks.
    pub(crate) fn advise(&self, messages: &[&str], denial: Option<&Denial>) -> Option<String> {
        if self.server.command.is_empty() {
            return None;
        }
        let mut advice = match denial {
            Some(denial) => {
                let denied = neutral_line(&denial.to_string());
                vec![format!("A connection of the server was denied: {denied}")]
            }
            None => self.advise_on_messages(messages)?,
        };
        if advice.is_empty() {
            advice.push(self.advise_on_needs()?);
        }
        advice.push(format!("Then run `toolhold mcp approve {}`.", self.name));
        Some(advice.join(" "))
    }

    /// Returns advice on the first of the server's messages that suggests a missing grant.
    fn advise_on_messages(&self, messages: &[&str]) -> Option<Vec<String>> {
        let places = self.places().ok()?;
        let package_folder = self.folder().display().to_string();
        for message in messages {
            // Lines about the folder of the packages are left out, because no grant allows a server
            // to write there.
            let lines: Vec<&str> =
                message.lines().filter(|line| !line.contains(&package_folder)).collect();
            let words = lines.join("\n");
            let advice = places.advisor.advise_on_words(&words, places.hosts.is_some());
            if !advice.is_empty() {
                return Some(advice);
            }
        }
        Some(Vec::new())
    }

    /// Returns advice about missing grants that the server's command line needs. Returns `None` if
    /// no grant is missing.
    fn advise_on_needs(&self) -> Option<String> {
        let Surroundings { config, folders, directory, .. } = &*self.surroundings;
        let variables = ProposalContext::environment();
        let context = ProposalContext { folders, directory, variables: &variables };
        let proposals = proposals(&self.name, &self.server, &context);
        let granted_server = with_proposals(&self.server, &proposals).ok()?;
        let changed_keys = changed_keys(&self.server, &granted_server);
        if changed_keys.is_empty() {
            return None;
        }

        let mut lines = Vec::new();
        for (key, value) in &changed_keys {
            lines.push(format!("`{key} = {value}`"));
        }
        let table = config.own_table(&format!("mcp.servers.{}", self.name));
        let raw_reasons: Vec<&str> =
            proposals.iter().map(|proposal| proposal.reason.as_str()).collect();
        let reasons = neutral_line(&raw_reasons.join(", "));
        Some(format!(
            "The server seems to need more grants: {reasons}. To add these grants: {} in {table}.",
            lines.join(" and ")
        ))
    }

    /// Returns the address of a server at a URL. Returns `None` if the server is a program.
    pub(crate) fn address(&self, secrets: &Secrets) -> Result<Option<ServerAddress>, LaunchError> {
        if self.server.url.is_empty() && self.server.command.is_empty() {
            return Err(LaunchError::NoCommand);
        }
        if self.server.url.is_empty() {
            return Ok(None);
        }
        let url = check_url(&self.server.url)?;
        let mut headers = self.headers(secrets)?;
        let credential = headers.remove(AUTHORIZATION).map(|value| Credential::new(&url, value));
        // The time limit of calls may be too short for the start of the session.
        let time = Duration::from_secs(self.server.timeout_secs.get()).max(START_TIMEOUT);
        let remedy = if self.server.secrets.is_empty() {
            format!("run `toolhold mcp login {}`", self.name)
        } else {
            format!("check [mcp.servers.{}.secrets]", self.name)
        };
        Ok(Some(ServerAddress {
            outbound_client: self.surroundings.outbound_client(),
            url,
            headers,
            credential,
            tokens: None,
            time,
            remedy,
        }))
    }

    pub(crate) fn outbound_client(&self) -> OutboundClient {
        self.surroundings.outbound_client()
    }

    /// Returns the configured headers of requests, including the headers with secrets.
    fn headers(&self, secrets: &Secrets) -> Result<HeaderMap, LaunchError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.server.headers {
            let (name, value) = parse_header(name, value)?;
            headers.insert(name, value);
        }
        for (secret_name, secret_value) in &secrets.0 {
            if let Some(secret) = self.server.secrets.get(secret_name) {
                let (header_name, prefix) = secret.placement();
                let text = format!("{prefix}{}", secret_value.expose());
                let (name, mut value) = parse_header(&header_name, &text)?;
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Ok(headers)
    }

    /// Loads the tokens of a login, if there are any.
    pub(crate) async fn tokens(self: &Arc<Self>) -> Result<Option<Tokens>, LaunchError> {
        let file = TokenFile::new(&self.surroundings.folders, &self.name, &self.server.url);
        let has_secrets = !self.server.secrets.is_empty();
        // A server with configured secrets needs no login.
        if has_secrets || !file.is_present() {
            return Ok(None);
        }
        let launch = Arc::clone(self);
        let secret = tokio::task::spawn_blocking(move || launch.client_secret()).await??;
        Ok(Tokens::load(self.outbound_client(), &self.name, &self.server, file, secret).await?)
    }
}

/// Parses a header of a server's table. Headers that Toolhold sets itself are refused.
fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), LaunchError> {
    let header_name = HeaderName::try_from(name)
        .map_err(|error| LaunchError::HeaderName { name: name.to_owned(), error })?;
    if is_own_header(&header_name) {
        return Err(LaunchError::OwnHeader(name.to_owned()));
    }
    let header_value = HeaderValue::from_str(value)
        .map_err(|error| LaunchError::HeaderValue { name: name.to_owned(), error })?;
    Ok((header_name, header_value))
}

/// Returns whether Toolhold sets a header itself.
fn is_own_header(name: &HeaderName) -> bool {
    const OWN_HEADERS: [&str; 9] = [
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "transfer-encoding",
        "upgrade",
    ];
    OWN_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("mcp-")
}

#[derive(Default)]
pub(crate) struct Secrets(Vec<(String, Arc<SecretValue>)>);

impl Secrets {
    fn fill_in(&self, argument: &str) -> String {
        let values: Vec<(&str, &str)> =
            self.0.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        fill_in_secrets(argument, &values)
    }

    /// Makes the state of a new connection. The state redacts the secrets in the server's output.
    pub(crate) fn connection_state(&self) -> ConnectionState {
        let connection_state = ConnectionState::default();
        for (name, value) in &self.0 {
            connection_state.add_secret(name, value);
        }
        connection_state
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use toolhold_core::config::{Inputs, Who, load};

    fn folders_in(folder: &Path) -> Folders {
        Folders { home: Some(folder.join("home")), ..Folders::inside(folder) }
    }

    #[test]
    fn hosts_of_a_server_have_the_network_settings_of_the_process() {
        let folder = tempfile::tempdir().expect("a folder is made");
        let folders = folders_in(folder.path());
        let file = folder.path().join("toolhold.toml");
        let table = "[mcp.servers.s]\ncommand = \"x\"\nhosts = [\"10.1.2.3:8000\"]\n";
        std::fs::write(&file, table).expect("it is written");
        let inputs = Inputs { file: Some(file), ..Inputs::default() };
        let config = load(&folders, &inputs).expect("it is valid");
        let listening: SocketAddr = "10.1.2.3:8000".parse().expect("an address");
        let network = Network { listening: [listening].into(), ..Network::default() };
        let surroundings = Surroundings::new(&config, &folders, folder.path(), "toolhold test")
            .with_network(network.clone());
        let server = &config.values.mcp.servers["s"];
        let launch = Launch::new(&Arc::new(surroundings), "s", server, String::new());
        let hosts = launch.places().expect("it is configured").hosts.expect("a host is granted");
        assert_eq!(*hosts.network.listening, [listening]);
        // The authorities are read once for all servers.
        assert!(Arc::ptr_eq(&hosts.network.trust, &network.trust));
    }

    #[test]
    fn server_loads_no_code_of_a_caller() {
        let folder = tempfile::tempdir().expect("a folder is made");
        let root = folder.path().canonicalize().expect("it exists");
        let folders = folders_in(&root);
        let srv = root.join("srv");
        std::fs::create_dir(&srv).expect("a folder is made");
        let file = root.join("toolhold.toml");
        let text = "[tools.file]\nallowed_paths = [\"SRV\"]\n[mcp.servers.s]\ncommand = \"x\"\n\
                    allowed_paths = [\"SRV\"]\n[principals.all]\nissuer = [\"toolhold\"]\n\
                    tools.file.allowed_paths = [\"SRV/{sub}\"]\n\
                    mcp.servers.s.allowed_paths = [\"SRV/{sub}\"]\n";
        std::fs::write(&file, text.replace("SRV", &srv.display().to_string())).expect("written");
        let who = Who {
            issuer: "toolhold".to_owned(),
            subject: "anna".to_owned(),
            groups: Vec::new(),
            client: None,
            token: None,
        };
        let inputs = Inputs {
            file: Some(file),
            working_directory: Some(root.clone()),
            who: Some(who),
            ..Inputs::default()
        };
        let config = load(&folders, &inputs).expect("it is valid");
        let directory = config.directory();
        assert_eq!(directory, srv.join("anna"));
        let surroundings = Surroundings::new(&config, &folders, &directory, "toolhold test");
        let server = &config.values.mcp.servers["s"];
        let launch = Launch::new(&Arc::new(surroundings), "s", server, String::new());
        let places = launch.places().expect("it is configured");
        let grants = places.places.grants.rules().grants();
        assert!(grants.iter().any(|grant| grant.path == directory));
        assert_eq!(launch.directory(&places), Path::new("/"));
    }

    #[test]
    fn server_goes_on_only_if_nothing_that_it_was_started_with_has_changed() {
        let folder = tempfile::tempdir().expect("a folder is made");
        let folders = folders_in(folder.path());
        let surroundings = |setting: &str| {
            let inputs = Inputs { settings: vec![setting.to_owned()], ..Inputs::default() };
            let config = load(&folders, &inputs).expect("it is valid");
            Surroundings::new(&config, &folders, folder.path(), "toolhold test")
        };
        let before = surroundings("tools.call=60");
        assert!(before == surroundings("tools.permissions.read=[{pattern='*',action='deny'}]"));
        for changed in [
            "tools.shell.limits.processes=9",
            "tools.file.deny_read=['x']",
            "tools.web.denied_domains=['x.example']",
            "network.proxy='http://127.0.0.1:3128'",
            "audit.enabled=false",
        ] {
            assert!(before != surroundings(changed), "{changed}");
        }
    }
}
