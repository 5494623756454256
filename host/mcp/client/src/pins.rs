//! Stores the approved definitions of an upstream server, and compares them with the present ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolhold_core::HostError;
use toolhold_core::config::{Config, Folders, McpServer, Problems};
use toolhold_core::state;

use crate::MAX_LIST_BYTES;

/// The approved definitions of a server. They are in Toolhold's data folder, which tools can't
/// access.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pins {
    /// The digest of the start settings: command, arguments, environment and grants, or URL and
    /// headers, and the names and sources of secrets. Empty without an approval.
    pub start: String,
    /// The number of the approval. A new number tells running hosts to read the pins again.
    pub approval: u64,
    /// The protocol revision.
    pub protocol: String,
    /// The server's name for itself.
    pub name: String,
    /// The server's version.
    pub version: String,
    /// The digest of the server's instructions, which clients don't get.
    pub instructions: String,
    /// The lock of the packages of the server's runner: versions and digests of archives. Empty
    /// without pinned packages.
    pub lock: String,
    /// The tools.
    pub tools: Vec<PinnedTool>,
    /// The prompts and resources.
    #[serde(flatten)]
    pub offers: PinnedOffers,
}

/// An approved tool, prompt or resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinnedTool {
    /// The name at the server, or the address of a resource.
    pub name: String,
    /// SHA-256 of the definition.
    pub digest: String,
    /// The definition as JSON text. It isn't parsed here, because a start reads all definitions and
    /// needs few of them.
    pub definition: String,
}

impl PinnedTool {
    /// Pins the complete definition of a tool.
    pub(crate) fn new(tool: &Tool) -> Self {
        Self::pin(&tool.name, tool)
    }

    pub(crate) fn pin(name: &str, listed: &impl Serialize) -> Self {
        let definition = serde_json::to_value(listed).unwrap_or_default().to_string();
        Self { name: name.to_owned(), digest: digest(&definition), definition }
    }

    /// Checks that the definition has at most `limit` bytes, and that a list with this definition
    /// and `others` has at most [`MAX_LIST_BYTES`].
    pub(crate) fn check_size(&self, others: &[Self], limit: usize) -> Result<(), SizeError> {
        let size = self.definition.len();
        if size > limit {
            return Err(SizeError::Definition { size, limit });
        }
        let mut list_size = size;
        for other in others {
            list_size += other.definition.len();
        }
        if list_size > MAX_LIST_BYTES { Err(SizeError::List) } else { Ok(()) }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SizeError {
    #[error("the definition is {size} bytes; the limit is {limit}")]
    Definition { size: usize, limit: usize },
    #[error("all definitions together are more than {MAX_LIST_BYTES} bytes, the limit")]
    List,
}

/// The approved prompts and resources of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinnedOffers {
    /// The prompts.
    pub prompts: Vec<PinnedTool>,
    /// The resources.
    pub resources: Vec<PinnedTool>,
    /// The templates of addresses.
    pub templates: Vec<PinnedTool>,
}

impl PinnedOffers {
    /// Returns the lists with the word for their entries.
    pub(crate) fn lists(&self) -> [(&'static str, &[PinnedTool]); 3] {
        let Self { prompts, resources, templates } = self;
        [("prompt", prompts), ("resource", resources), ("template", templates)]
    }

    pub(crate) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.templates.is_empty()
    }
}

/// The difference between a pinned and a present tool, prompt or resource.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolDifference {
    /// It is new.
    New(PinnedTool),
    /// It no longer exists.
    Missing(String),
    /// It changed. Contains each changed part with its old and new value.
    Changed(String, Vec<(String, Value, Value)>),
}

impl Pins {
    /// Reads the pins of the server `name`: those of the organisation if it approved these start
    /// settings, or else the user's. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if a file can't be read or is damaged.
    pub(crate) fn load(
        config: &Config,
        folders: &Folders,
        name: &str,
        server: &McpServer,
    ) -> Result<Self, HostError> {
        match Self::of_organisation(config, name, server)? {
            Some((_, pins)) => Ok(pins),
            None => state::read(&folders.server_pins(), &file_name(name)),
        }
    }

    /// Reads the organisation's pins of the server `name`, with their file. Returns `None` if the
    /// organisation approved no server of this name, or approved it with other start settings.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be trusted, can't be read or is damaged.
    pub fn of_organisation(
        config: &Config,
        name: &str,
        server: &McpServer,
    ) -> Result<Option<(PathBuf, Self)>, HostError> {
        let Some((path, text)) = config.organisation_approval(name).map_err(Problems::from)? else {
            return Ok(None);
        };
        let pins: Self = serde_json::from_str(&text)
            .map_err(|error| HostError::io(path.display().to_string())(error.into()))?;
        Ok(if pins.start == start_digest(server) { Some((path, pins)) } else { None })
    }

    /// Returns the file with the user's pins of the server `name`.
    pub fn path(folders: &Folders, name: &str) -> PathBuf {
        folders.server_pins().join(file_name(name))
    }

    /// Stores the pins as a new approval of the server `name`. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the pins can't be written.
    pub fn store(&self, folders: &Folders, name: &str) -> Result<(), HostError> {
        state::update(&folders.server_pins(), &file_name(name), |pins: &mut Self| {
            let approval = pins.approval.wrapping_add(1);
            *pins = Self { approval, ..self.clone() };
            Ok(())
        })
    }

    /// Returns the differences between these pins and the newer pins `now`. Each string names
    /// the kind of the entry. Tools come first, and each list is sorted by name.
    pub fn differences(&self, now: &Self) -> Vec<(&'static str, ToolDifference)> {
        let mut differences = Vec::new();
        for (list_before, list_after) in self.lists().into_iter().zip(now.lists()) {
            let (kind, pins_before) = list_before;
            let (_kind, pins_after) = list_after;
            for difference in compare_lists(pins_before, pins_after) {
                differences.push((kind, difference));
            }
        }
        differences
    }

    fn lists(&self) -> [(&'static str, &[PinnedTool]); 4] {
        let [prompts, resources, templates] = self.offers.lists();
        [("tool", &self.tools), prompts, resources, templates]
    }
}

/// Returns the new and the changed entries, sorted by name, and then the missing entries.
fn compare_lists(before: &[PinnedTool], after: &[PinnedTool]) -> Vec<ToolDifference> {
    let old_pins = by_name(before);
    let new_pins = by_name(after);
    let mut differences = Vec::new();
    for (name, new_pin) in &new_pins {
        let Some(old_pin) = old_pins.get(name) else {
            differences.push(ToolDifference::New((*new_pin).clone()));
            continue;
        };
        if old_pin.digest != new_pin.digest {
            let parts = changed_parts(&old_pin.definition, &new_pin.definition);
            differences.push(ToolDifference::Changed((*name).to_owned(), parts));
        }
    }
    for name in old_pins.keys() {
        if !new_pins.contains_key(name) {
            differences.push(ToolDifference::Missing((*name).to_owned()));
        }
    }
    differences
}

fn by_name(tools: &[PinnedTool]) -> BTreeMap<&str, &PinnedTool> {
    tools.iter().map(|tool| (tool.name.as_str(), tool)).collect()
}

/// Returns the parts of a definition that differ: the key, the old value and the new value. A
/// missing value is null.
fn changed_parts(before: &str, after: &str) -> Vec<(String, Value, Value)> {
    // Toolhold wrote both definitions, so their parsing fails only after a change by hand.
    let old: Value = serde_json::from_str(before).unwrap_or_default();
    let new: Value = serde_json::from_str(after).unwrap_or_default();
    let mut keys = BTreeSet::new();
    for definition in [&old, &new] {
        if let Value::Object(fields) = definition {
            keys.extend(fields.keys());
        }
    }
    let mut parts = Vec::new();
    for key in keys {
        if old.get(key) != new.get(key) {
            parts.push((key.clone(), old[key].clone(), new[key].clone()));
        }
    }
    parts
}

/// Returns the digest of the settings with which a server is started. A server with another digest
/// needs a new approval.
pub(crate) fn start_digest(server: &McpServer) -> String {
    let settings = serde_json::json!([
        server.command,
        server.args,
        server.allowed_paths,
        server.network,
        server.hosts,
        server.presets,
        server.env,
        server.variables,
        server.url,
        server.headers,
        server.secrets
    ]);
    digest(&settings.to_string())
}

pub(crate) fn digest(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

fn file_name(name: &str) -> String {
    format!("{name}.json")
}

#[cfg(test)]
mod tests {
    use toolhold_core::config::{HostGrant, ServerSecret};

    use super::*;
    use serde_json::json;

    fn tool(name: &str, description: &str) -> PinnedTool {
        let tool: Tool = serde_json::from_value(
            json!({ "name": name, "description": description, "inputSchema": { "type": "object" } }),
        )
        .expect("a tool");
        PinnedTool::new(&tool)
    }

    fn hosts(list: Value) -> Vec<HostGrant> {
        serde_json::from_value(list).expect("hosts")
    }

    #[test]
    fn differences_name_each_changed_part() {
        let pins = Pins { tools: vec![tool("a", "x"), tool("b", "x")], ..Pins::default() };
        assert_eq!(pins.differences(&pins), []);
        let now = [tool("b", "steal"), tool("c", "x")];
        let offers = PinnedOffers { prompts: vec![tool("p", "x")], ..PinnedOffers::default() };
        let after = Pins { tools: now.to_vec(), offers, ..Pins::default() };
        let differences = pins.differences(&after);
        let changed = vec![("description".to_owned(), json!("x"), json!("steal"))];
        assert_eq!(
            differences,
            [
                ("tool", ToolDifference::Changed("b".to_owned(), changed)),
                ("tool", ToolDifference::New(now[1].clone())),
                ("tool", ToolDifference::Missing("a".to_owned())),
                ("prompt", ToolDifference::New(tool("p", "x"))),
            ]
        );
    }

    #[test]
    fn every_part_of_the_start_needs_approval() {
        let base = McpServer { command: "a".to_owned(), ..McpServer::default() };
        let changed = [
            McpServer { command: "b".to_owned(), ..base.clone() },
            McpServer { args: vec!["x".to_owned()], ..base.clone() },
            McpServer { network: true, ..base.clone() },
            McpServer { hosts: hosts(json!(["a.example"])), ..base.clone() },
            McpServer { url: "https://a.example".to_owned(), ..base.clone() },
            McpServer {
                headers: [("A".to_owned(), "b".to_owned())].into_iter().collect(),
                ..base.clone()
            },
            McpServer {
                secrets: [("A".to_owned(), ServerSecret::default())].into_iter().collect(),
                ..base.clone()
            },
            McpServer {
                variables: [("A".to_owned(), "b".to_owned())].into_iter().collect(),
                ..base.clone()
            },
        ];
        for changed in changed {
            assert_ne!(start_digest(&changed), start_digest(&base), "{changed:?}");
        }
        let fewer = McpServer { hosts: hosts(json!(["a.example"])), ..base.clone() };
        let more = McpServer { hosts: hosts(json!(["a.example", "b.example"])), ..base.clone() };
        let other_port = McpServer { hosts: hosts(json!(["a.example:22"])), ..base.clone() };
        assert_ne!(start_digest(&fewer), start_digest(&more));
        assert_ne!(start_digest(&fewer), start_digest(&other_port));
        let slower = McpServer { trust_annotations: true, ..base.clone() };
        assert_eq!(start_digest(&slower), start_digest(&base));
    }
}
