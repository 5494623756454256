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
use toolhold_core::{CancellationToken, HostError, ServerPlaces, door, own_helper, server_places};
use toolhold_net::requests::{Credential, OutboundClient, OutboundError, check_url};
use toolhold_net::{SecretValue, read};
use toolhold_system::confine::{Tree, TreeAccess};
use toolhold_system::process::{Child, Command, CommandResult, StartError};

use crate::START;
use crate::gate::ConnectionEnd;
use crate::http::ServerAddress;
use crate::oauth::{OAuthError, TokenFile, Tokens};
use crate::packages::{self, Line, PackageError};
use crate::program_end::Missing;
use crate::proposals::{ProposalContext, changed_keys, proposals, with_proposals};

/// The time limit of a server's process. No server runs this long.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The obstacle to starting a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("the configuration doesn't have it")]
    NotConfigured,
    #[error("it has neither `command` nor `url`; write one")]
    NoCommand,
    #[error(transparent)]
    Places(#[from] HostError),
    #[error(transparent)]
    Packages(#[from] PackageError),
    #[error("its secret `{name}`: {why}")]
    Secret { name: String, why: String },
    #[error(transparent)]
    Program(#[from] StartError),
    #[error("it has neither a program nor a URL")]
    NoProgram,
    #[error("its pipes are missing")]
    NoPipes,
    #[error(transparent)]
    Pipes(#[from] io::Error),
    #[error(transparent)]
    Url(#[from] OutboundError),
    #[error("its header `{name}` can't be used: {error}")]
    HeaderName { name: String, error: InvalidHeaderName },
    #[error("its header `{name}` can't be used: {error}")]
    HeaderValue { name: String, error: InvalidHeaderValue },
    #[error("its header `{0}` can't be used: Toolhold sets it")]
    OwnHeader(String),
    #[error(transparent)]
    Tokens(#[from] OAuthError),
    #[error(transparent)]
    Task(#[from] JoinError),
}

/// The data that all servers of a host have in common.
#[derive(Debug)]
pub(crate) struct Surroundings {
    config: Config,
    folders: Folders,
    /// The working directory of the host.
    directory: PathBuf,
    /// The folders that no server can access.
    own: Vec<OwnFolder>,
    /// The front end that uses the door. Used in audit records.
    front_end: &'static str,
    /// The way to servers at a URL.
    door: OnceLock<OutboundClient>,
}

impl Surroundings {
    /// Makes the surroundings of a host with this configuration.
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
            own: config.own(folders, directory),
            front_end,
            door: OnceLock::new(),
        }
    }

    fn door(&self) -> OutboundClient {
        self.door.get_or_init(|| door(&self.config, &self.folders, self.front_end)).clone()
    }
}

impl PartialEq for Surroundings {
    /// Compares the parts that determine the permissions of a server and the data that it sees.
    fn eq(&self, other: &Self) -> bool {
        let config = &self.config.values;
        let others = &other.config.values;
        self.directory == other.directory
            && self.own == other.own
            && config.tools.shell == others.tools.shell
            && config.tools.file == others.tools.file
            // A server at a URL keeps the door, and the door records the server's requests.
            && config.network == others.network
            && config.audit == others.audit
    }
}

/// The settings for the start of one server.
#[derive(Debug, PartialEq)]
pub(crate) struct Launch {
    /// The name of the server's configuration table.
    name: String,
    /// The keys of the server's configuration table.
    pub(crate) server: McpServer,
    around: Arc<Surroundings>,
    /// The lock of the packages that the server's runner would fetch. Empty if the server fetches
    /// no pinned packages.
    lock: String,
}

impl Launch {
    /// Makes the start of the server of this name.
    pub(crate) fn new(
        around: &Arc<Surroundings>,
        name: &str,
        server: &McpServer,
        lock: String,
    ) -> Self {
        Self { name: name.to_owned(), server: server.clone(), around: Arc::clone(around), lock }
    }

    /// Resolves and fetches the packages that the server's package runner would fetch now, and sets
    /// their lock. Blocks, in some cases for minutes.
    ///
    /// # Errors
    ///
    /// Returns an error if the packages can't be resolved.
    pub(crate) fn resolved(self) -> Result<Self, LaunchError> {
        let Some(line) = self.line() else { return Ok(self) };
        let lock = packages::resolve(&line, self.places()?, &self.folder())?;
        packages::fetch(&line, &lock, || self.places(), &self.folder())?;
        Ok(Self { lock, ..self })
    }

    /// Returns the name of the server's table.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the lock of the server's packages.
    pub(crate) fn lock(&self) -> &str {
        &self.lock
    }

    /// Parses the command line of the server's package runner. Returns `None` if the server has no
    /// runner, or if Toolhold doesn't pin its packages.
    fn line(&self) -> Option<Line> {
        Line::parse(&self.server.command, &self.server.args).unwrap_or(None)
    }

    /// Returns the folder of the server's packages.
    fn folder(&self) -> PathBuf {
        self.around.folders.server_packages(&self.name)
    }

    fn places(&self) -> Result<ServerPlaces, LaunchError> {
        let Surroundings { config, folders, directory, .. } = &*self.around;
        let places = server_places(config, folders, directory, own_helper(), &self.name)?;
        places.ok_or(LaunchError::NotConfigured)
    }

    /// Returns the folder in which the server starts. This is the working directory if the server
    /// has access to it.
    fn directory(&self, places: &ServerPlaces) -> PathBuf {
        let directory = &self.around.directory;
        let grants = places.places.grants.rules().grants();
        let is_seen = grants.iter().any(|grant| directory.starts_with(&grant.path));
        if is_seen { directory.clone() } else { Path::new("/").to_owned() }
    }

    /// Reads the secrets for the server. Blocks, because a secret may be the output of a program.
    ///
    /// # Errors
    ///
    /// Returns an error if a secret can't be read.
    pub(crate) fn secrets(&self) -> Result<Secrets, LaunchError> {
        let table = format!("mcp.servers.{}.secrets", self.name);
        let mut secrets = Secrets::default();
        for (name, secret) in &self.server.secrets {
            let value = self.read_secret(&table, name, secret)?;
            secrets.0.push((name.clone(), value));
        }
        Ok(secrets)
    }

    /// Reads the secret of the configured `oauth.client_id`. Blocks, because a secret may be the
    /// output of a program.
    ///
    /// # Errors
    ///
    /// Returns an error if the secret can't be read.
    pub(crate) fn client_secret(&self) -> Result<Option<Arc<SecretValue>>, LaunchError> {
        let table = format!("mcp.servers.{}.oauth.secrets", self.name);
        let Some((name, secret)) = self.server.oauth.secrets.iter().next() else { return Ok(None) };
        self.read_secret(&table, name, secret).map(Some)
    }

    /// Reads the value of a secret in a table of the server.
    fn read_secret(
        &self,
        table: &str,
        name: &str,
        secret: &ServerSecret,
    ) -> Result<Arc<SecretValue>, LaunchError> {
        let Surroundings { config, folders, directory, .. } = &*self.around;
        let key = format!("{table}.{}", dotted_name(name));
        let value = read(&config.source_of(&key, secret, folders, directory));
        value.map_err(|why| LaunchError::Secret { name: name.to_owned(), why: why.to_string() })
    }

    /// Starts the process. Blocks until the program runs. The grants are resolved only in this
    /// function because this takes about a millisecond.
    ///
    /// # Errors
    ///
    /// Returns an error if a grant isn't an existing directory, if the packages can't be fetched,
    /// or if the program doesn't start.
    pub(crate) fn start(&self, secrets: &Secrets) -> Result<Child, LaunchError> {
        let mut places = self.places()?;
        let mut arguments = Vec::new();
        let own_arguments = match self.line() {
            Some(line) => {
                let fetched = packages::fetch(&line, &self.lock, || self.places(), &self.folder())?;
                let path = fetched.folder.display().to_string();
                places.places.also.push(Tree { path, access: TreeAccess::Read });
                arguments.push(fetched.program.display().to_string());
                line.arguments
            }
            None => {
                arguments.push(self.program());
                self.server.args.clone()
            }
        };
        arguments.extend(own_arguments.iter().map(|argument| secrets.fill_in(argument)));
        let mut environment = places.environment.clone();
        for (name, value) in &secrets.0 {
            environment.retain(|(known, _)| known != name);
            environment.push((name.clone(), value.expose().to_owned()));
        }
        let command = Command {
            arguments,
            environment,
            directory: self.directory(&places),
            network: places.network,
            path_rules: None,
            changes: None,
            shared_network: None,
            output: None,
            shell: None,
        };
        let end = Instant::now() + FOREVER;
        Ok(Child::start(&places.places, &command, 0, end, &CancellationToken::new())?)
    }

    /// Returns the server's program, with the home folder in place of `~`.
    fn program(&self) -> String {
        let command = &self.server.command;
        if let Some(home) = &self.around.folders.home
            && let Some(below_home) = command.strip_prefix("~/")
            && let Ok(path) = home.join(below_home).into_os_string().into_string()
        {
            return path;
        }
        command.clone()
    }

    /// Returns advice about a program that ended with this result and these last words: the
    /// program, or another one that it needs, wasn't found, or a grant may be missing. Blocks.
    pub(crate) fn hint(&self, result: &CommandResult, complaint: &str) -> Option<String> {
        let places = self.places().ok()?;
        let path = places.environment.iter().find(|(name, _)| name == "PATH");
        let missing = Missing {
            server: &self.name,
            program: &self.program(),
            directory: &self.directory(&places),
            path: path.map(|(_, value)| value.as_str()),
        };
        if let Some(hint) = missing.hint(result, complaint) {
            return Some(hint);
        }
        let advice = self.advise(complaint)?;
        Some(format!("a grant may be missing. {advice}"))
    }

    /// Returns advice about the words with which the server said that it, or a call, has failed, if
    /// a missing grant may be the cause. Blocks.
    pub(crate) fn advise(&self, words: &str) -> Option<String> {
        if self.server.command.is_empty() {
            return None;
        }
        let places = self.places().ok()?;
        let mut advice = Vec::new();
        // Nothing can be written where the packages are, so no grant of that place is proposed.
        if !words.contains(&self.folder().display().to_string()) {
            advice = places.advisor.advise_on_words(words);
        }
        if advice.is_empty() {
            advice.push(self.advise_on_needs()?);
        }
        advice.push(format!("Then run `toolhold mcp approve {}`.", self.name));
        Some(advice.join(" "))
    }

    /// Returns advice about the grants that the server seems to need in any case.
    fn advise_on_needs(&self) -> Option<String> {
        let Surroundings { config, folders, directory, .. } = &*self.around;
        let variables = ProposalContext::environment();
        let context = ProposalContext { folders, directory, variables: &variables };
        let proposals = proposals(&self.name, &self.server, &context);
        let reasons: Vec<&str> =
            proposals.iter().map(|proposal| proposal.reason.as_str()).collect();
        let granted = with_proposals(&self.server, &proposals).ok()?;
        let changed = changed_keys(&self.server, &granted);
        if changed.is_empty() {
            return None;
        }
        let lines: Vec<String> =
            changed.iter().map(|(key, value)| format!("`{key} = {value}`")).collect();
        let table = config.own_table(&format!("mcp.servers.{}", self.name));
        let reasons = neutral_line(&reasons.join(", "));
        Some(format!(
            "The server lacks grants that it seems to need: {reasons}. To grant them: {} in {table}.",
            lines.join(" and ")
        ))
    }

    /// Returns the address of a server at a URL. Returns `None` if the server is a program.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL or a header can't be used, or if the table has neither a URL nor
    /// a command.
    pub(crate) fn address(&self, secrets: &Secrets) -> Result<Option<ServerAddress>, LaunchError> {
        if self.server.url.is_empty() && self.server.command.is_empty() {
            return Err(LaunchError::NoCommand);
        }
        if self.server.url.is_empty() {
            return Ok(None);
        }
        let url = check_url(&self.server.url)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &self.server.headers {
            let (name, value) = parse_header(name, value)?;
            headers.insert(name, value);
        }
        for (secret_name, value) in &secrets.0 {
            if let Some(secret) = self.server.secrets.get(secret_name) {
                let (name, prefix) = secret.placement();
                let text = format!("{prefix}{}", value.expose());
                let (name, mut value) = parse_header(&name, &text)?;
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        let credential = headers.remove(AUTHORIZATION).map(|value| Credential::new(&url, value));
        let time = Duration::from_secs(self.server.timeout_secs.get()).max(START);
        let remedy = if self.server.secrets.is_empty() {
            format!("run `toolhold mcp login {}`", self.name)
        } else {
            format!("look at [mcp.servers.{}.secrets]", self.name)
        };
        Ok(Some(ServerAddress {
            door: self.around.door(),
            url,
            headers,
            credential,
            tokens: None,
            time,
            remedy,
        }))
    }

    /// Returns the way to the server's URL.
    pub(crate) fn door(&self) -> OutboundClient {
        self.around.door()
    }

    /// Loads the tokens of a login. Returns `None` if there was no login.
    ///
    /// # Errors
    ///
    /// Returns an error if the tokens can't be used.
    pub(crate) async fn tokens(self: &Arc<Self>) -> Result<Option<Tokens>, LaunchError> {
        let file = TokenFile::new(&self.around.folders, &self.name, &self.server.url);
        if !file.may_be() || !self.server.secrets.is_empty() {
            return Ok(None);
        }
        let launch = Arc::clone(self);
        let secret = tokio::task::spawn_blocking(move || launch.client_secret()).await??;
        Ok(Tokens::load(self.door(), &self.name, &self.server, file, secret).await?)
    }
}

/// Parses a header of the configuration.
fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), LaunchError> {
    let key = HeaderName::try_from(name)
        .map_err(|error| LaunchError::HeaderName { name: name.to_owned(), error })?;
    if is_own(&key) {
        return Err(LaunchError::OwnHeader(name.to_owned()));
    }
    let value = HeaderValue::from_str(value)
        .map_err(|error| LaunchError::HeaderValue { name: name.to_owned(), error })?;
    Ok((key, value))
}

/// Checks whether Toolhold itself sets a header.
fn is_own(name: &HeaderName) -> bool {
    const OWN: [&str; 9] = [
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
    OWN.contains(&name.as_str()) || name.as_str().starts_with("mcp-")
}

/// The secrets of a server, by name.
#[derive(Default)]
pub(crate) struct Secrets(Vec<(String, Arc<SecretValue>)>);

impl Secrets {
    /// Replaces the references to secrets in an argument.
    fn fill_in(&self, argument: &str) -> String {
        let values: Vec<(&str, &str)> =
            self.0.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        fill_in_secrets(argument, &values)
    }

    /// Makes the state of a connection to a server that gets these secrets.
    pub(crate) fn connection_end(&self) -> ConnectionEnd {
        let ended = ConnectionEnd::default();
        for (name, value) in &self.0 {
            ended.add_secret(name, value);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_core::config::{Inputs, load};

    #[test]
    fn server_goes_on_only_if_nothing_that_it_was_started_with_has_changed() {
        let folder = tempfile::tempdir().expect("a folder is made");
        let at = |name: &str| folder.path().join(name);
        let folders = Folders {
            config: at("config"),
            data: at("data"),
            cache: at("cache"),
            home: Some(at("home")),
        };
        let around = |setting: &str| {
            let inputs = Inputs { settings: vec![setting.to_owned()], ..Inputs::default() };
            let config = load(&folders, &inputs).expect("it is valid");
            Surroundings::new(&config, &folders, folder.path(), "toolhold test")
        };
        let before = around("tools.call=60");
        assert!(before == around("tools.permissions.read=[{pattern='*',action='deny'}]"));
        for changed in [
            "tools.shell.limits.processes=9",
            "tools.file.deny_read=['x']",
            "network.proxy='http://127.0.0.1:3128'",
            "audit.enabled=false",
        ] {
            assert!(before != around(changed), "{changed}");
        }
    }
}
