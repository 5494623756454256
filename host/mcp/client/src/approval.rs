//! Lists what a person approves of an upstream server, and the state of each configured server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use toolhold_core::config::{
    Config, Folders, HostGrant, McpServer, Method, WrittenPathPattern, working_directory,
};
use toolhold_core::{HostError, ToolSourceState, provider_states};

use crate::START_TIMEOUT;
use crate::connection::{Connection, Era, ServerInfo};
use crate::definitions::{offered_tools, pin_tools, unmatched_patterns};
use crate::launch::{Launch, LaunchError, Surroundings};
use crate::listed_tools::ListedTools;
use crate::listing::Listing;
use crate::naming::provider_name;
use crate::oauth::TokenFile;
use crate::offers;
use crate::packages::{self, RunnerLine};
use crate::pins::{PinnedOffers, PinnedTool, Pins, ToolDifference, digest, start_digest};
use crate::proposals::{ProposalContext, line_for_unseen_directories};
use crate::reason::Reason;
use crate::server::join_version;

/// The state of a configured server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerState {
    /// The name of the server's configuration table.
    pub name: String,
    /// `approved`, `changed`, `unapproved` or `disabled`.
    pub state: &'static str,
    /// The command line. Empty if the server is at a URL.
    pub command: Vec<String>,
    /// The URL. Empty if the server is a program.
    pub url: String,
    /// The hosts that the server's program reaches. Empty if it has the whole network, or none.
    pub reaches: Vec<String>,
    /// The organisation's file with the approval. `None` if the approval is the user's.
    pub organisation: Option<PathBuf>,
    /// The number of pinned packages of the server's runner.
    pub packages: usize,
    /// The reason why the packages of the server's runner aren't pinned.
    pub unpinned: Option<String>,
    /// The server's own name and version, as approved.
    pub version: String,
    /// The names of the approved tools.
    pub tools: Vec<String>,
    /// Approved tools that aren't offered, and the reasons.
    pub left_out: Vec<(String, String)>,
    /// Entries of `tools` in the server's table that match no approved tool.
    pub unmatched: Vec<String>,
    /// The line that grants the directories in the server's arguments, if they aren't granted.
    pub unseen: Option<String>,
    /// Whether the server's login no longer exists.
    pub logged_out: bool,
    /// The states in running hosts.
    pub hosts: Vec<HostState>,
}

/// The state of a server in a running host.
#[derive(Clone, Debug, Serialize)]
pub struct HostState {
    /// The host's process ID.
    pub pid: u32,
    /// The state of the server's program.
    #[serde(flatten)]
    pub program: ToolSourceState,
}

/// Returns the configured servers, with their states in running hosts. Starts no server. Blocks.
///
/// # Errors
///
/// Returns an error if the approvals can't be read or the hosts can't be asked.
pub fn states(config: &Config, folders: &Folders) -> Result<Vec<ServerState>, HostError> {
    let mcp = &config.values.mcp;
    let hosts = provider_states(folders)?;
    let directory = working_directory()?;
    let variables = ProposalContext::environment();
    let context = ProposalContext { folders, directory: &directory, variables: &variables };
    let mut states = Vec::new();
    for (name, server) in &mcp.servers {
        let pins = Pins::load(config, folders, name, server)?;
        let organisation = Pins::of_organisation(config, name, server)?.map(|(path, _)| path);
        let state = if !mcp.enabled || !server.enabled {
            "disabled"
        } else if pins.start.is_empty() {
            "unapproved"
        } else if pins.start != start_digest(server) {
            "changed"
        } else {
            "approved"
        };
        let (tools, left_out) = offered_tools(name, &pins, server);
        let mut command = Vec::new();
        if server.url.is_empty() {
            command.push(server.command.clone());
            command.extend_from_slice(&server.args);
        }
        // A server with configured secrets needs no login.
        let can_login = !server.url.is_empty() && server.secrets.is_empty();
        states.push(ServerState {
            name: name.clone(),
            state,
            command,
            url: server.url.clone(),
            reaches: server.hosts.iter().map(describe_host).collect(),
            organisation,
            packages: packages::packages(&pins.lock).len(),
            unpinned: unpinned(server),
            version: join_version(&pins.name, &pins.version),
            tools: tools.iter().map(|tool| tool.definition.name.clone()).collect(),
            left_out,
            unmatched: unmatched_patterns(&pins, server).into_iter().map(str::to_owned).collect(),
            unseen: line_for_unseen_directories(server, &context),
            logged_out: can_login && TokenFile::new(folders, name, &server.url).is_logged_out(),
            hosts: host_states(name, &hosts),
        });
    }
    Ok(states)
}

/// Describes an entry of `hosts`.
fn describe_host(host: &HostGrant) -> String {
    let methods = host.methods.iter().map(Method::as_str);
    let limits: Vec<&str> =
        methods.chain(host.paths.iter().map(WrittenPathPattern::as_str)).collect();
    if limits.is_empty() {
        return host.to_string();
    }
    format!("{host} ({})", limits.join(", "))
}

/// Returns the state of the server `name` in each running host. `hosts` contains the process ID of
/// each host and the states of its tool sources.
fn host_states(name: &str, hosts: &[(u32, Vec<ToolSourceState>)]) -> Vec<HostState> {
    let provider = provider_name(name);
    let mut host_states = Vec::new();
    for (pid, source_states) in hosts {
        let program_state = source_states.iter().find(|state| state.provider == provider);
        if let Some(program) = program_state {
            host_states.push(HostState { pid: *pid, program: program.clone() });
        }
    }
    host_states
}

/// Checks whether a server is enabled and its table is approved.
pub fn is_approved(config: &Config, folders: &Folders, name: &str, server: &McpServer) -> bool {
    let Ok(pins) = Pins::load(config, folders, name, server) else { return false };
    server.enabled && !pins.start.is_empty() && pins.start == start_digest(server)
}

/// Returns the reason why the packages of a server's package runner can't be pinned. Returns `None`
/// if they can be pinned, or if the server uses no package runner.
pub fn unpinned(server: &McpServer) -> Option<String> {
    if server.command.is_empty() {
        return None;
    }
    match RunnerLine::parse(&server.command, &server.args) {
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// What a server offers at present.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The pins to store if a person approves the server.
    pub pins: Pins,
    /// The packages that differ from the approved packages.
    pub packages: Vec<PackageDifference>,
    /// The tools, prompts and resources that differ from the approved ones, with the word for their
    /// kind.
    pub differences: Vec<(&'static str, ToolDifference)>,
    /// The number of offered tools.
    pub offered: usize,
    /// The names of entries that aren't offered, and the reasons.
    pub left_out: Vec<(String, String)>,
    /// Entries of `tools` in the server's table that match no tool.
    pub unmatched: Vec<String>,
}

/// A package with its approved and its present version. `None` means that the package is missing.
pub type PackageDifference = (String, Option<String>, Option<String>);

/// Returns the packages whose versions differ between two lock files. Each package has its old and
/// its new version.
fn package_differences(old_lock: &str, new_lock: &str) -> Vec<PackageDifference> {
    let old_versions = packages::packages(old_lock);
    let new_versions = packages::packages(new_lock);
    let names: BTreeSet<&String> = old_versions.keys().chain(new_versions.keys()).collect();
    let mut differences = Vec::new();
    for name in names {
        let old_version = old_versions.get(name);
        let new_version = new_versions.get(name);
        if old_version != new_version {
            differences.push((name.clone(), old_version.cloned(), new_version.cloned()));
        }
    }
    differences
}

/// Starts the server `name` and lists its offers. A person must have approved the command line.
///
/// # Errors
///
/// Returns [`HostError::Config`] if the server isn't configured, doesn't start, or doesn't list its
/// tools.
pub async fn inspect(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    name: &str,
) -> Result<Inspection, HostError> {
    let servers = &config.values.mcp.servers;
    let server = servers.get(name).ok_or_else(|| failure(name, LaunchError::NotConfigured))?;
    let known = Pins::load(config, folders, name, server)?;
    let surroundings = Arc::new(Surroundings::new(config, folders, directory, "toolhold mcp"));
    let launch = Launch::new(&surroundings, name, server, String::new());
    let resolved = tokio::task::spawn_blocking(move || launch.resolved())
        .await
        .unwrap_or_else(|error| Err(error.into()))
        .map_err(|error| failure(name, error))?;
    let launch = Arc::new(resolved);
    let listed = match tokio::time::timeout(START_TIMEOUT, list_all(&launch)).await {
        Ok(listed) => listed,
        Err(_) => Err(Reason::new(format!(
            "the server didn't list its tools within {} s",
            START_TIMEOUT.as_secs()
        ))),
    };
    let AllListed { about, tools, offers, mut left_out } =
        listed.map_err(|reason| failure(name, reason.for_person()))?;

    let pins = Pins {
        start: start_digest(server),
        approval: known.approval,
        protocol: about.protocol,
        name: about.name,
        version: about.version,
        instructions: digest(&about.instructions),
        lock: launch.lock().to_owned(),
        tools,
        offers,
    };
    let (offered, not_offered) = offered_tools(name, &pins, server);
    left_out.extend(not_offered);
    let unmatched = unmatched_patterns(&pins, server).into_iter().map(str::to_owned).collect();
    let differences = known.differences(&pins);
    let packages = package_differences(&known.lock, &pins.lock);
    Ok(Inspection { pins, packages, differences, offered: offered.len(), left_out, unmatched })
}

/// The lists of a server.
struct AllListed {
    about: ServerInfo,
    tools: Vec<PinnedTool>,
    offers: PinnedOffers,
    /// The names of entries that can't be pinned, and the reasons.
    left_out: Vec<(String, String)>,
}

/// Starts a server, lists everything that the server offers, and ends the server.
async fn list_all(launch: &Arc<Launch>) -> Result<AllListed, Reason> {
    let connection = match Connection::open(Arc::clone(launch), Era::Unknown).await {
        Ok(connection) => connection,
        // Some servers end at the first request of a newer protocol revision. The older revisions
        // begin with a handshake.
        Err(error) if error.era_may_be_wrong => {
            Connection::open(Arc::clone(launch), Era::Handshake).await?
        }
        Err(error) => return Err(error.reason),
    };
    let listed_tools = connection.tools().await;
    let listing = match &listed_tools {
        Ok(_) => connection.listing().await,
        // The error of the tools is returned below, so the other lists aren't needed.
        Err(_) => Ok(Listing::default()),
    };
    let about = connection.about();
    // The server must also end after an error, so errors are returned after this line.
    connection.end();

    let ListedTools { tools: offered_tools, unreadable } = listed_tools?;
    let (tools, mut left_out) = pin_tools(&offered_tools);
    left_out.extend(unreadable);
    let (offers, unpinned_offers) = offers::pin(&listing?);
    left_out.extend(unpinned_offers);
    Ok(AllListed { about, tools, offers, left_out })
}

fn failure(name: &str, reason: impl std::fmt::Display) -> HostError {
    HostError::Config(format!("the server `{name}`: {reason}"))
}
