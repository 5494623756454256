//! Stores the approved definitions of an upstream server, and finds the differences to the present
//! ones.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolhold_core::HostError;
use toolhold_core::config::{Folders, McpServer};
use toolhold_core::state;

use crate::MAX_DEFINITIONS;

/// The approved definitions of one server. They are in Toolhold's data folder, which no tool
/// reaches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pins {
    /// The digest of how it is started: command, arguments, environment and grants, or its URL and
    /// headers; and the names and sources of its secrets. Empty: nothing was approved.
    pub start: String,
    /// The number of the approval, so that each one is a change for running hosts.
    pub approval: u64,
    /// The revision of the protocol that it speaks.
    pub protocol: String,
    /// Its own name.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// The digest of its instructions, which Toolhold doesn't pass on.
    pub instructions: String,
    /// The lock of the packages that its runner would fetch: each with its version and the digest
    /// of its archive. Empty: it fetches no packages that are pinned.
    pub lock: String,
    /// Its tools.
    pub tools: Vec<PinnedTool>,
    /// Its prompts and resources.
    #[serde(flatten)]
    pub offers: PinnedOffers,
}

/// A tool, or a prompt or resource, as it was approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinnedTool {
    /// Its name at the server; of a resource, the address.
    pub name: String,
    /// SHA-256 of the definition.
    pub digest: String,
    /// The whole definition as the server sent it, as JSON text: a start reads the definitions of
    /// all servers, and needs few parts of them.
    pub definition: String,
}

impl PinnedTool {
    /// Pins a definition: the name, title, description, schemas and annotations, and everything
    /// else that the server says about the tool.
    pub(crate) fn new(tool: &Tool) -> Self {
        Self::pin(&tool.name, tool)
    }

    /// Pins a definition that the server lists under a name.
    pub(crate) fn pin(name: &str, listed: &impl Serialize) -> Self {
        let definition = serde_json::to_value(listed).unwrap_or_default().to_string();
        Self { name: name.to_owned(), digest: digest(&definition), definition }
    }

    /// Checks the size of the definition, and of all definitions of a list with these `others`.
    ///
    /// # Errors
    ///
    /// The definition, or the list with it, is too large.
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

/// The approved prompts and resources of a server, each part as it was sent.
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

    /// Checks whether the server has resources or templates for their addresses.
    pub(crate) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.templates.is_empty()
    }
}

/// How a tool, prompt or resource differs from its pinned definition.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolDifference {
    /// The definition is new.
    New(PinnedTool),
    /// The definition isn't there any more.
    Missing(String),
    /// The definition changed: each changed part before and after.
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

    /// Stores these pins for the server `name`, as a new approval. Blocks.
    ///
    /// # Errors
    ///
    /// The pins can't be written.
    pub fn store(&self, folders: &Folders, name: &str) -> Result<(), HostError> {
        state::update(&folders.servers(), &file_name(name), |pins: &mut Self| {
            let approval = pins.approval.wrapping_add(1);
            *pins = Self { approval, ..self.clone() };
            Ok(())
        })
    }

    /// Returns the differences of `now` from these pins: first of the tools, then of each other
    /// list, in the order of the names. Each difference has the word for its kind of entry.
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
