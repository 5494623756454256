//! Stores the approved definitions of an upstream server, and finds the differences to the present
//! ones.

use std::collections::BTreeMap;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolhold_core::HostError;
use toolhold_core::config::{Folders, McpServer};
use toolhold_core::state;

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
    /// The lists with the words for their entries.
    pub(crate) fn lists(&self) -> [(&'static str, &[PinnedTool]); 3] {
        let Self { prompts, resources, templates } = self;
        [("prompt", prompts), ("resource", resources), ("template", templates)]
    }

    /// Whether the server has something to read.
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
    /// The pins of the server `name`. Blocks.
    ///
    /// # Errors
    ///
    /// The pins can't be read, or the file is damaged.
    pub fn load(folders: &Folders, name: &str) -> Result<Self, HostError> {
        state::read(&folders.servers(), &file(name))
    }

    /// Stores these pins for the server `name`, as another approval. Blocks.
    ///
    /// # Errors
    ///
    /// The pins can't be written.
    pub fn store(&self, folders: &Folders, name: &str) -> Result<(), HostError> {
        state::update(&folders.servers(), &file(name), |pins: &mut Self| {
            let approval = pins.approval.wrapping_add(1);
            *pins = Self { approval, ..self.clone() };
            Ok(())
        })
    }

    /// How `now` differs from these pins: first the tools, then each other list, in the order of
    /// the names. Each difference has the word for what differs.
    pub fn differences(&self, now: &Self) -> Vec<(&'static str, ToolDifference)> {
        let mut differences = Vec::new();
        for ((word, before), (_, after)) in self.lists().into_iter().zip(now.lists()) {
            let found = Self::differences_of(before, after);
            differences.extend(found.into_iter().map(|one| (word, one)));
        }
        differences
    }

    /// All lists with the words for their entries.
    fn lists(&self) -> [(&'static str, &[PinnedTool]); 4] {
        let [prompts, resources, templates] = self.offers.lists();
        [("tool", &self.tools), prompts, resources, templates]
    }

    fn differences_of(before: &[PinnedTool], now: &[PinnedTool]) -> Vec<ToolDifference> {
        let before = by_name(before);
        let after = by_name(now);
        let mut differences = Vec::new();
        for (name, tool) in &after {
            match before.get(name) {
                None => differences.push(ToolDifference::New(tool.clone())),
                Some(known) if known.digest == tool.digest => {}
                Some(known) => differences.push(ToolDifference::Changed(
                    name.clone(),
                    parts(&known.definition, &tool.definition),
                )),
            }
        }
        let missing = before.keys().filter(|name| !after.contains_key(*name));
        differences.extend(missing.cloned().map(ToolDifference::Missing));
        differences
    }
}

fn by_name(tools: &[PinnedTool]) -> BTreeMap<String, PinnedTool> {
    tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect()
}

/// The parts of a definition that differ.
fn parts(before: &str, after: &str) -> Vec<(String, Value, Value)> {
    let [before, after] =
        [before, after].map(|text| serde_json::from_str::<Value>(text).unwrap_or_default());
    let keys: std::collections::BTreeSet<&String> = [&before, &after]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(|map| map.keys())
        .collect();
    keys.into_iter()
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| (key.clone(), before[key].clone(), after[key].clone()))
        .collect()
}

/// The digest of how a server is started: whatever changes it needs a new approval.
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

/// SHA-256 in hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

fn file(name: &str) -> String {
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
