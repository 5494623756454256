//! The approval of a server: what a person has to see, and what is pinned then.

use std::path::Path;
use std::sync::Arc;

use berth_core::HostError;
use berth_core::config::{Folders, Loaded};
use serde::Serialize;

use crate::connection::{Connection, Era};
use crate::definitions::{checked, offered};
use crate::listing::Listing;
use crate::offers;
use crate::pins::{Pins, ToolDifference, digest, start_digest};
use crate::server::{START, launch};

/// The state of one server of the configuration.
#[derive(Clone, Debug, Serialize)]
pub struct ServerState {
    /// The name of its table.
    pub name: String,
    /// `approved`, `changed`, `unapproved` or `disabled`.
    pub state: &'static str,
    /// Its command line.
    pub command: Vec<String>,
    /// Its own name and version, as they were approved.
    pub version: String,
    /// The names of its approved tools.
    pub tools: Vec<String>,
    /// Approved tools that aren't offered, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// The servers of the configuration. Starts none. Blocks.
///
/// # Errors
///
/// The approvals can't be read.
pub fn states(config: &Loaded, folders: &Folders) -> Result<Vec<ServerState>, HostError> {
    let mcp = &config.config.mcp;
    let state = |(name, server): (&String, &berth_core::config::McpServer)| {
        let pins = Pins::load(folders, name)?;
        let state = match () {
            () if !mcp.enabled || !server.enabled => "disabled",
            () if pins.start.is_empty() => "unapproved",
            () if pins.start != start_digest(server) => "changed",
            () => "approved",
        };
        let (tools, left_out) = offered(name, &pins, server.trust_annotations);
        Ok(ServerState {
            name: name.clone(),
            state,
            command: std::iter::once(&server.command).chain(&server.args).cloned().collect(),
            version: [&*pins.name, &*pins.version].join(" ").trim().to_owned(),
            tools: tools.iter().map(|tool| tool.definition.name.clone()).collect(),
            left_out,
        })
    };
    mcp.servers.iter().map(state).collect()
}

/// What a server offers now.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// What is pinned if a person approves it.
    pub pins: Pins,
    /// How its tools, prompts and resources differ from what was approved, each with the word for
    /// it.
    pub differences: Vec<(&'static str, ToolDifference)>,
    /// What isn't offered, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// Starts the server `name`, whose command line a person has approved, and looks at what it offers.
///
/// # Errors
///
/// [`HostError::Config`]: there is no such server, it doesn't start, or it doesn't list its tools.
pub async fn inspect(
    config: &Loaded,
    folders: &Folders,
    directory: &Path,
    name: &str,
) -> Result<Inspection, HostError> {
    let fail = |reason: String| HostError::Config(format!("the server `{name}`: {reason}"));
    let launch = launch(config, folders, directory, name)?
        .ok_or_else(|| fail("the configuration doesn't have it".to_owned()))?;
    let known = Pins::load(folders, name)?;
    let start = start_digest(&launch.server);
    let trust_annotations = launch.server.trust_annotations;
    let launch = Arc::new(launch);
    let look = async {
        let connection = match Connection::open(Arc::clone(&launch), Era::Unknown).await {
            Ok(connection) => connection,
            // Perhaps the question of the newer revisions ended it.
            Err(_) => Connection::open(Arc::clone(&launch), Era::Handshake).await?,
        };
        let tools = connection.tools().await;
        let listing = match &tools {
            Ok(_) => connection.listing().await,
            Err(_) => Ok(Listing::default()),
        };
        let [protocol, own_name, version, instructions] = connection.about();
        connection.end();
        let (tools, listing) = (tools?, listing?);
        let (tools, mut left_out) = checked(&tools);
        let (offers, left_out_too) = offers::pin(&listing);
        left_out.extend(left_out_too);
        let instructions = digest(&instructions);
        let pins = Pins { start, protocol, name: own_name, version, instructions, tools, offers };
        Ok((pins, left_out))
    };
    let looked = tokio::time::timeout(START, look)
        .await
        .unwrap_or_else(|_| Err(format!("it didn't list its tools within {} s", START.as_secs())));
    let (pins, mut left_out) = looked.map_err(fail)?;
    left_out.extend(offered(name, &pins, trust_annotations).1);
    let differences = known.differences(&pins);
    Ok(Inspection { pins, differences, left_out })
}
