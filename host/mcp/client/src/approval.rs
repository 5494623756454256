//! Shows an upstream server to the person who approves it. Also shows the state of each configured
//! server.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use toolhold_core::config::{Config, Folders, McpServer, working_directory};
use toolhold_core::{HostError, ToolSourceState, provider_states};

use crate::START;
use crate::connection::{Connection, Era, ServerInfo};
use crate::definitions::{offered_tools, pin_tools, unmatched_patterns};
use crate::launch::{Launch, LaunchError, Surroundings};
use crate::listed_tools::ListedTools;
use crate::listing::Listing;
use crate::oauth::TokenFile;
use crate::offers;
use crate::packages::{self, Line};
use crate::pins::{PinnedOffers, PinnedTool, Pins, ToolDifference, digest, start_digest};
use crate::proposals::{ProposalContext, unseen_directories};
use crate::reason::Reason;
use crate::server::{join_version, provider_name};

/// The state of one server of the configuration.
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
    /// The number of pinned packages that the server's runner would fetch.
    pub packages: usize,
    /// The reason why the packages that the server's runner fetches aren't pinned.
    pub unpinned: Option<String>,
    /// The server's own name and version, as approved.
    pub version: String,
    /// The names of the approved tools.
    pub tools: Vec<String>,
    /// Approved tools that aren't offered, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// Entries of `tools` in its table that match no approved tool.
    pub unmatched: Vec<String>,
    /// The line that grants the directories that its arguments name, if it doesn't see them.
    pub unseen: Option<String>,
    /// Whether the server had a login that no longer exists.
    pub logged_out: bool,
    /// The states that running hosts report.
    pub hosts: Vec<HostState>,
}

/// The state of a server in one running host.
#[derive(Clone, Debug, Serialize)]
pub struct HostState {
    /// The host's process ID.
    pub pid: u32,
    /// The state of the server's program.
    #[serde(flatten)]
    pub program: ToolSourceState,
}

/// Returns the servers of the configuration, with the states that running hosts report. Starts no
/// server. Blocks.
///
/// # Errors
///
/// The approvals can't be read, or the hosts can't be asked.
pub fn states(config: &Config, folders: &Folders) -> Result<Vec<ServerState>, HostError> {
    let mcp = &config.values.mcp;
    let hosts = provider_states(folders)?;
    let directory = working_directory()?;
    let variables = ProposalContext::environment();
    let context = ProposalContext { folders, directory: &directory, variables: &variables };
    let mut states = Vec::new();
    for (name, server) in &mcp.servers {
        let pins = Pins::load(folders, name)?;
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
        // Only a server at a URL without secrets can have a login.
        let can_login = !server.url.is_empty() && server.secrets.is_empty();
        states.push(ServerState {
            name: name.clone(),
            state,
            command,
            url: server.url.clone(),
            packages: packages::packages(&pins.lock).len(),
            unpinned: unpinned(server),
            version: join_version(&pins.name, &pins.version),
            tools: tools.iter().map(|tool| tool.definition.name.clone()).collect(),
            left_out,
            unmatched: unmatched_patterns(&pins, server).into_iter().map(str::to_owned).collect(),
            unseen: unseen_directories(server, &context),
            logged_out: can_login && TokenFile::new(folders, name, &server.url).is_logged_out(),
            hosts: host_states(name, &hosts),
        });
    }
    Ok(states)
}

/// Returns the states that the hosts report of the server `name`.
fn host_states(name: &str, hosts: &[(u32, Vec<ToolSourceState>)]) -> Vec<HostState> {
    let provider = provider_name(name);
    let states = hosts.iter().filter_map(|(pid, states)| {
        let program = states.iter().find(|state| state.provider == provider)?.clone();
        Some(HostState { pid: *pid, program })
    });
    states.collect()
}

/// Checks whether a server is used: it is enabled, and a person has approved its table and its
/// tools.
pub fn is_approved(folders: &Folders, name: &str, server: &McpServer) -> bool {
    let Ok(pins) = Pins::load(folders, name) else { return false };
    server.enabled && !pins.start.is_empty() && pins.start == start_digest(server)
}

/// Returns the reason why the packages of a server's runner aren't pinned. Returns `None` if the
/// packages are pinned, or if the server fetches no packages.
pub fn unpinned(server: &McpServer) -> Option<String> {
    // A server at a URL fetches nothing.
    if server.command.is_empty() {
        return None;
    }
    let error = Line::parse(&server.command, &server.args).err()?;
    Some(error.to_string())
}

/// The present offer of a server.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The pins if a person approves the offer.
    pub pins: Pins,
    /// The packages that differ from the approved ones, each with its old and new version.
    pub packages: Vec<PackageDifference>,
    /// The tools, prompts and resources that differ from the approved ones, each with the word for
    /// its kind.
    pub differences: Vec<(&'static str, ToolDifference)>,
    /// The number of tools that are offered.
    pub offered: usize,
    /// The names of entries that aren't offered, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// Entries of `tools` in its table that match no tool.
    pub unmatched: Vec<String>,
}

/// A package with its old and new version. `None` means that the package wasn't there before, or is
/// no longer there.
pub type PackageDifference = (String, Option<String>, Option<String>);

fn package_differences(before: &str, now: &str) -> Vec<PackageDifference> {
    let old_versions = packages::packages(before);
    let new_versions = packages::packages(now);
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
/// [`HostError::Config`] if there is no such server, if it doesn't start, or if it doesn't list its
/// tools.
pub async fn inspect(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    name: &str,
) -> Result<Inspection, HostError> {
    let servers = &config.values.mcp.servers;
    let server = servers.get(name).ok_or_else(|| failure(name, LaunchError::NotConfigured))?;
    let known = Pins::load(folders, name)?;
    let around = Arc::new(Surroundings::new(config, folders, directory, "toolhold mcp"));
    let launch = Launch::new(&around, name, server, String::new());
    let resolved = tokio::task::spawn_blocking(move || launch.resolved())
        .await
        .unwrap_or_else(|error| Err(error.into()))
        .map_err(|error| failure(name, error))?;
    let launch = Arc::new(resolved);
    let listed = match tokio::time::timeout(START, list_all(&launch)).await {
        Ok(listed) => listed,
        Err(_) => {
            Err(Reason::new(format!("it didn't list its tools within {} s", START.as_secs())))
        }
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

/// Everything that a server lists.
struct AllListed {
    about: ServerInfo,
    tools: Vec<PinnedTool>,
    offers: PinnedOffers,
    /// The names of the entries that can't be pinned, each with the reason.
    left_out: Vec<(String, String)>,
}

/// Starts a server, lists its tools, prompts and resources, and ends the server.
async fn list_all(launch: &Arc<Launch>) -> Result<AllListed, Reason> {
    let connection = match Connection::open(Arc::clone(launch), Era::Unknown).await {
        Ok(connection) => connection,
        // Perhaps the question of the newer revisions ended the server.
        Err(error) if error.may_be_era => {
            Connection::open(Arc::clone(launch), Era::Handshake).await?
        }
        Err(error) => return Err(error.reason),
    };
    let listed_tools = connection.tools().await;
    let listing = match &listed_tools {
        Ok(_) => connection.listing().await,
        Err(_) => Ok(Listing::default()),
    };
    let about = connection.about();
    // The server must end in any case, so errors are handled afterwards.
    connection.end();

    let ListedTools { tools, unreadable } = listed_tools?;
    let (tools, mut left_out) = pin_tools(&tools);
    left_out.extend(unreadable);
    let (offers, unpinned_offers) = offers::pin(&listing?);
    left_out.extend(unpinned_offers);
    Ok(AllListed { about, tools, offers, left_out })
}

fn failure(name: &str, reason: impl std::fmt::Display) -> HostError {
    HostError::Config(format!("the server `{name}`: {reason}"))
}
