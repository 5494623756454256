//! The needs of well-known servers, from the data file `recipes.toml`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;
use toolhold_core::config::{HostGrant, McpServer, PathAccess};

use crate::packages::RunnerLine;

/// The needs of a well-known server, in addition to its command line. `recipes.toml` describes the
/// keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    names: Vec<String>,
    pub(crate) network: Option<String>,
    #[serde(default)]
    pub(crate) hosts: Vec<HostGrant>,
    pub(crate) directory: Option<PathAccess>,
    pub(crate) data: Option<DataFile>,
    #[serde(default)]
    pub(crate) values: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) variables: Vec<String>,
    #[serde(default)]
    pub(crate) secrets: Vec<String>,
    #[serde(default)]
    pub(crate) optional_secrets: Vec<String>,
    #[serde(default)]
    pub(crate) read: Vec<String>,
}

/// A file of the server's own. The server gets its path in a variable.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataFile {
    pub(crate) variable: String,
    pub(crate) file: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipes {
    recipe: Vec<Recipe>,
}

/// The recipes. The file is part of the program, and a test parses it, so this can't fail.
static RECIPES: LazyLock<Recipes> =
    LazyLock::new(|| toml::from_str(include_str!("recipes.toml")).unwrap_or_default());

/// Returns the recipe of a well-known server, by the name of its package or program.
pub(crate) fn recipe(server: &McpServer) -> Option<&'static Recipe> {
    let name = match RunnerLine::parse(&server.command, &server.args) {
        Ok(Some(line)) => line.package()?,
        Ok(None) => format!("program:{}", Path::new(&server.command).file_name()?.to_str()?),
        Err(_) => return None,
    };
    RECIPES.recipe.iter().find(|recipe| recipe.names.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn find(command: &str, arguments: &[&str]) -> Option<&'static Recipe> {
        let args = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        recipe(&McpServer { command: command.to_owned(), args, ..McpServer::default() })
    }

    fn network(command: &str, arguments: &[&str]) -> Option<&'static str> {
        find(command, arguments)?.network.as_deref()
    }

    #[test]
    fn each_recipe_can_be_read_and_has_names_of_its_own() {
        let all: Recipes = toml::from_str(include_str!("recipes.toml")).expect("it is valid");
        assert!(all.recipe.len() >= 30, "{}", all.recipe.len());
        let mut names = BTreeSet::new();
        for name in all.recipe.iter().flat_map(|recipe| &recipe.names) {
            assert!(names.insert(name), "{name} is there twice");
            let (kind, _) = name.split_once(':').expect("a name has a kind");
            assert!(["npm", "pypi", "program"].contains(&kind), "{name}");
        }
        for recipe in &all.recipe {
            let has_both = recipe.network.is_some() && !recipe.hosts.is_empty();
            assert!(!has_both, "{:?} has hosts and the whole network", recipe.names);
        }
    }

    #[test]
    fn recipe_is_found_by_package_of_its_own_registry_or_by_program() {
        let pages = Some("the pages that it fetches");
        assert_eq!(network("uvx", &["mcp-server-fetch@2025.4.7"]), pages);
        assert_eq!(network("/usr/bin/uvx", &["--from", "mcp-server-fetch==1", "x"]), pages);
        assert_eq!(network("/opt/mcp-server-fetch", &[]), pages);
        assert_eq!(network("npx", &["-y", "mcp-server-fetch"]), None);
        let notion = find("npx", &["-y", "@notionhq/notion-mcp-server@latest"]).expect("a recipe");
        let hosts: Vec<String> = notion.hosts.iter().map(ToString::to_string).collect();
        assert_eq!((hosts, &notion.network), (vec!["api.notion.com".to_owned()], &None));
        assert_eq!(network("npx", &["-y", "./mcp-server-fetch"]), None);
        assert_eq!(network("", &[]), None);
    }
}
