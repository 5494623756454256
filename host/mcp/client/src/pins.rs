//! Stores the approved definitions of an upstream server, and compares them with the current
//! definitions.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolhold_core::HostError;
use toolhold_core::config::{Folders, McpServer};
use toolhold_core::state;

use crate::MAX_DEFINITIONS;

/// The approved definitions of one server. They are in Toolhold's data folder, and tools have no
/// access to this folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pins {
    /// The digest of the start settings: command, arguments, environment and grants, or URL and
    /// headers. The digest includes the names and sources of the server's secrets. Empty if nothing
    /// was approved.
    pub start: String,
    /// The number of the approval. Running hosts detect a new approval by this number.
    pub approval: u64,
    /// The protocol revision of the server.
    pub protocol: String,
    /// The server's own name.
    pub name: String,
    /// The server's own version.
    pub version: String,
    /// The digest of the server's instructions. Toolhold doesn't pass on the instructions.
    pub instructions: String,
    /// The lock of the packages that the server's runner would fetch, each with its version and the
    /// digest of its archive. Empty if the server fetches no pinned packages.
    pub lock: String,
    /// The tools of the server.
    pub tools: Vec<PinnedTool>,
    /// The prompts and resources of the server.
    #[serde(flatten)]
    pub offers: PinnedOffers,
}

/// An approved tool, prompt or resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinnedTool {
    /// The name at the server. For a resource, the address.
    pub name: String,
    /// SHA-256 of the definition.
    pub digest: String,
    /// The whole definition that the server sent, as JSON text. A start reads the definitions of
    /// all servers but needs only few of their parts, so the text isn't parsed.
    pub definition: String,
}

impl PinnedTool {
    /// Pins a definition: the name, title, description, schemas and annotations, and all other data
    /// of the server about the tool.
    pub(crate) fn new(tool: &Tool) -> Self {
        Self::pin(&tool.name, tool)
    }

    /// Pins a definition that the server lists under a name.
    pub(crate) fn pin(name: &str, listed: &impl Serialize) -> Self {
        let definition = serde_json::to_value(listed).unwrap_or_default().to_string();
        Self { name: name.to_owned(), digest: digest(&definition), definition }
    }

    /// Checks the size of the definition. Also checks the size of a list with this definition and
    /// `others`.
    ///
    /// # Errors
    ///
    /// Returns an error if the definition or the list is too large.
    pub(crate) fn check_size(&self, others: &[Self], limit: usize) -> Result<(), SizeError> {
        let size = self.definition.len();
        if size > limit {
            return Err(SizeError::Definition { size, limit });
        }
        let list_size = size + others.iter().map(|other| other.definition.len()).sum::<usize>();
        if list_size > MAX_DEFINITIONS { Err(SizeError::List) } else { Ok(()) }
    }
}

/// A limit that a definition exceeds.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SizeError {
    #[error("its definition is {size} bytes; the limit is {limit}")]
    Definition { size: usize, limit: usize },
    #[error("all definitions are more than {MAX_DEFINITIONS} bytes, the limit")]
    List,
}

/// The approved prompts and resources of a server, in the form in which the server sent them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinnedOffers {
    /// The prompts.
    pub prompts: Vec<PinnedTool>,
    /// The resources.
    pub resources: Vec<PinnedTool>,
    /// The templates for the addresses of resources.
    pub templates: Vec<PinnedTool>,
}

impl PinnedOffers {
    /// Returns the lists, each with the word for its entries.
    pub(crate) fn lists(&self) -> [(&'static str, &[PinnedTool]); 3] {
        let Self { prompts, resources, templates } = self;
        [("prompt", prompts), ("resource", resources), ("template", templates)]
    }

    /// Checks whether the server has resources or templates for the addresses of resources.
    pub(crate) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.templates.is_empty()
    }
}

/// The difference between a tool, prompt or resource and its pinned definition.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolDifference {
    /// The definition is new.
    New(PinnedTool),
    /// The definition no longer exists.
    Missing(String),
    /// The definition changed. Contains each changed part with its old and new value.
    Changed(String, Vec<(String, Value, Value)>),
}

impl Pins {
    /// Reads the pins of the server `name`. Blocks.
    ///
    /// # Errors
    ///
    /// The pins can't be read, or the file is damaged.
    pub fn load(folders: &Folders, name: &str) -> Result<Self, HostError> {
        state::read(&folders.servers(), &file_name(name))
    }

    /// Stores these pins for the server `name` as a new approval. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the pins can't be written.
    pub fn store(&self, folders: &Folders, name: &str) -> Result<(), HostError> {
        state::update(&folders.servers(), &file_name(name), |pins: &mut Self| {
            let approval = pins.approval.wrapping_add(1);
            *pins = Self { approval, ..self.clone() };
            Ok(())
        })
    }

    /// Returns the differences between `now` and these pins. Differences of tools come first, then
    /// the differences of each other list, in the order of their names. Each difference has the
    /// word for its kind of entry.
    pub fn differences(&self, now: &Self) -> Vec<(&'static str, ToolDifference)> {
        let mut differences = Vec::new();
        for ((word, before), (_, after)) in self.lists().into_iter().zip(now.lists()) {
            for difference in compare_lists(before, after) {
                differences.push((word, difference));
            }
        }
        differences
    }

    /// Returns all lists, each with the word for its entries.
    fn lists(&self) -> [(&'static str, &[PinnedTool]); 4] {
        let [prompts, resources, templates] = self.offers.lists();
        [("tool", &self.tools), prompts, resources, templates]
    }
}

fn compare_lists(before: &[PinnedTool], after: &[PinnedTool]) -> Vec<ToolDifference> {
    let old_pins = by_name(before);
    let new_pins = by_name(after);
    let mut differences = Vec::new();
    for (name, new) in &new_pins {
        match old_pins.get(name) {
            None => differences.push(ToolDifference::New((*new).clone())),
            Some(old) if old.digest == new.digest => {}
            Some(old) => {
                let parts = changed_parts(&old.definition, &new.definition);
                differences.push(ToolDifference::Changed((*name).to_owned(), parts));
            }
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

/// Returns the parts of a definition that differ, each before and after.
fn changed_parts(before: &str, after: &str) -> Vec<(String, Value, Value)> {
    let old: Value = serde_json::from_str(before).unwrap_or_default();
    let new: Value = serde_json::from_str(after).unwrap_or_default();
    let objects = [&old, &new].into_iter().filter_map(Value::as_object);
    let keys: BTreeSet<&String> = objects.flat_map(|fields| fields.keys()).collect();
    let mut parts = Vec::new();
    for key in keys {
        if old.get(key) != new.get(key) {
            parts.push((key.clone(), old[key].clone(), new[key].clone()));
        }
    }
    parts
}

/// Returns the digest of how a server is started. A change of the digest needs a new approval.
pub(crate) fn start_digest(server: &McpServer) -> String {
    let McpServer { command, args, allowed_paths, network, presets, env, variables, .. } = server;
    let McpServer { url, headers, secrets, .. } = server;
    let parts = serde_json::json!([
        command,
        args,
        allowed_paths,
        network,
        presets,
        env,
        variables,
        url,
        headers,
        secrets
    ]);
    digest(&parts.to_string())
}

/// Returns the SHA-256 of a text in hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

fn file_name(name: &str) -> String {
    format!("{name}.json")
}

#[cfg(test)]
mod tests {
    use toolhold_core::config::ServerSecret;

    use super::*;
    use serde_json::json;

    fn tool(name: &str, description: &str) -> PinnedTool {
        let tool: Tool = serde_json::from_value(
            json!({ "name": name, "description": description, "inputSchema": { "type": "object" } }),
        )
        .expect("a tool");
        PinnedTool::new(&tool)
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
        let slower = McpServer { trust_annotations: true, ..base.clone() };
        assert_eq!(start_digest(&slower), start_digest(&base));
    }
}
