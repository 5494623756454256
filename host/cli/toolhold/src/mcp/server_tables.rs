//! Adds and removes tables of `[mcp.servers]` in the text of a `toolhold.toml`.

use std::io::Write;
use std::path::Path;

use thiserror::Error;
use toml_edit::{Document, DocumentMut, Item, Table, TomlError, Value};
use toolhold_core::config::McpServer;
use toolhold_core::text::neutral;
use toolhold_mcp_client::changed_keys;
use toolhold_mcp_client::client_files::{ClientFileError, new_table_prefix, without_tables};
use toolhold_terminal::changed_file;
use toolhold_terminal::error::CommandError;

/// The most bytes of a server's name.
const MAX_NAME: usize = 24;

#[derive(Debug, Error)]
pub(crate) enum ServerTableError {
    #[error(
        "[mcp.servers.{0}] already exists; change this table in toolhold.toml, or run `toolhold mcp \
         remove {0}` and add the server again"
    )]
    Exists(String),
    #[error("there is no [mcp.servers.{0}]")]
    Missing(String),
    #[error("`mcp.servers` isn't a table")]
    NotATable,
    #[error(transparent)]
    NotToml(#[from] TomlError),
    #[error(transparent)]
    NotRemovable(#[from] ClientFileError),
}

pub(crate) fn add(text: &str, name: &str, server: &McpServer) -> Result<String, ServerTableError> {
    let mut table = Table::new();
    set_keys(&mut table, &McpServer::default(), server)?;
    add_tables(text, [(name, &table)])
}

/// Sets the keys that differ between `before` and `after`.
pub(crate) fn set_keys(
    table: &mut Table,
    before: &McpServer,
    after: &McpServer,
) -> Result<(), ServerTableError> {
    for (key, text) in changed_keys(before, after) {
        table.insert(key, Item::Value(text.parse::<Value>()?));
    }
    Ok(())
}

/// Adds the tables of new servers to `text`, a `toolhold.toml`. If the text has no servers yet, the
/// tables go to its end.
pub(crate) fn add_tables<'t>(
    text: &str,
    tables: impl IntoIterator<Item = (&'t str, &'t Table)>,
) -> Result<String, ServerTableError> {
    let mut document: DocumentMut = text.parse()?;
    let has_mcp = document.contains_key("mcp");
    // The comments at the end of the file come before the first new table.
    let mut prefix = if has_mcp { None } else { Some(new_table_prefix(&document)) };
    let servers = servers(&mut document)?;
    for (name, table) in tables {
        if servers.contains_key(name) {
            return Err(ServerTableError::Exists(name.to_owned()));
        }
        let mut new_table = table.clone();
        if let Some(prefix) = prefix.take() {
            new_table.decor_mut().set_prefix(prefix);
        }
        servers.insert(name, Item::Table(new_table));
    }
    let is_prefix_used = !has_mcp && prefix.is_none();
    if is_prefix_used {
        // The comments are now before the table, and must not be written twice.
        document.set_trailing("");
    }
    Ok(document.to_string())
}

pub(crate) fn shown(name: &str, table: &Table) -> String {
    add_tables("", [(name, table)]).unwrap_or_default()
}

pub(crate) fn remove(text: &str, name: &str) -> Result<String, ServerTableError> {
    let mut document: DocumentMut = text.parse()?;
    if !servers(&mut document)?.contains_key(name) {
        return Err(ServerTableError::Missing(name.to_owned()));
    }
    Ok(without_tables(text, &["mcp", "servers"], &[name.to_owned()])?)
}

/// Returns the files of a server's secrets that `text`, a `toolhold.toml`, names. If the text isn't
/// TOML, there are no files.
pub(crate) fn secret_files(text: &str, name: &str) -> Vec<String> {
    let Ok(document) = text.parse::<DocumentMut>() else { return Vec::new() };
    let tables: [&[&str]; 2] =
        [&["mcp", "servers", name, "secrets"], &["mcp", "servers", name, "oauth", "secrets"]];
    let mut files = Vec::new();
    for keys in tables {
        let mut item = Some(document.as_item());
        for key in keys {
            item = item.and_then(|item| item.get(key));
        }
        let Some(secrets) = item.and_then(Item::as_table_like) else { continue };
        for (_, secret) in secrets.iter() {
            if let Some(file) = secret.get("file").and_then(Item::as_str) {
                files.push(file.to_owned());
            }
        }
    }
    files
}

/// Returns the permission rules for tools of the server `name` in `text`, a `toolhold.toml`. Each
/// rule is the name or glob of its tool, with the number of its line. If the text isn't TOML, there
/// are no rules.
pub(crate) fn tool_rules(text: &str, name: &str) -> Vec<(String, usize)> {
    let Ok(document) = Document::parse(text) else { return Vec::new() };
    let tools = document.as_table().get("tools");
    let permissions = tools.and_then(|tools| tools.get("permissions"));
    let Some(permissions) = permissions.and_then(Item::as_table_like) else { return Vec::new() };
    let prefix = format!("{name}__");
    let mut rules = Vec::new();
    for (tool, item) in permissions.iter() {
        if !tool.starts_with(&prefix) {
            continue;
        }
        let spans: Vec<_> = match item {
            Item::ArrayOfTables(tables) => tables.iter().map(Table::span).collect(),
            other => vec![other.span()],
        };
        for span in spans {
            let start = span.map_or(0, |span| span.start);
            rules.push((tool.to_owned(), line_of(text, start)));
        }
    }
    rules.sort_by_key(|(_, line)| *line);
    rules
}

/// Returns the number of the line with a byte of `text`. The first line is 1.
fn line_of(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().iter().take(byte);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the table `[mcp.servers]`, which is created if it is missing.
fn servers(document: &mut DocumentMut) -> Result<&mut dyn toml_edit::TableLike, ServerTableError> {
    let mcp = document.entry("mcp").or_insert_with(implicit_table);
    let Some(mcp_table) = mcp.as_table_like_mut() else { return Err(ServerTableError::NotATable) };
    let item = mcp_table.entry("servers").or_insert_with(implicit_table);
    item.as_table_like_mut().ok_or(ServerTableError::NotATable)
}

fn implicit_table() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

/// Changes the user's file, and prints the diff. `edit` makes the new content from the current
/// content.
pub(crate) fn change(
    file: &Path,
    edit: impl FnOnce(&str) -> Result<String, ServerTableError>,
) -> Result<(), CommandError> {
    let in_project = false;
    if let Some(diff) = changed_file::change(file, in_project, edit)? {
        write!(std::io::stdout().lock(), "{}", neutral(&diff))?;
    }
    Ok(())
}

/// Checks that a server may have the name `name`.
pub(crate) fn check_name(name: &str) -> Result<(), CommandError> {
    let has_first_letter = name.starts_with(|first: char| first.is_ascii_lowercase());
    let has_valid_letters =
        name.chars().all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '-'));
    if name.len() > MAX_NAME || !has_first_letter || !has_valid_letters {
        return Err(CommandError::Usage(
            "the name must be 1 to 24 of a-z, 0-9 and `-`, starting with a letter".to_owned(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(words: &[&str]) -> McpServer {
        let (command, args) = words.split_first().expect("it has a program");
        let args = args.iter().map(|word| (*word).to_owned()).collect();
        McpServer { command: (*command).to_owned(), args, ..McpServer::default() }
    }

    #[test]
    fn rest_of_the_file_stays() {
        let before = "# mine\n[tools]\nautonomy = \"ask\" # careful\n";
        let after = add(before, "time", &program(&["uvx", "a\"b"])).expect("it is added");
        assert!(after.starts_with(before), "{after}");
        let table = "[mcp.servers.time]\ncommand = \"uvx\"\nargs = [\"a\\\"b\"]\n";
        assert!(after.ends_with(table), "{after}");
        assert!(!after.contains("[mcp]") && !after.contains("[mcp.servers]"), "{after}");
        assert!(add(&after, "time", &program(&["x"])).is_err(), "it is there");
        let two = add(&after, "git", &program(&["uvx"])).expect("it is added");
        assert_eq!(remove(&two, "git").expect("it is removed"), after);
        assert!(remove(&after, "git").is_err());
        let header =
            "# Read the guide first.\n\n# the clock\n[mcp.servers.time]\ncommand = \"x\"\n";
        assert_eq!(remove(header, "time").unwrap(), "# Read the guide first.\n");
        assert!(add("mcp = 1", "a", &program(&["x"])).is_err());
        let url = "https://a.example/mcp".to_owned();
        let at = add("", "a", &McpServer { url, ..McpServer::default() }).expect("it is added");
        assert_eq!(at, "[mcp.servers.a]\nurl = \"https://a.example/mcp\"\n");
        assert!(add("[", "a", &program(&["x"])).is_err());
    }

    #[test]
    fn rules_of_a_servers_tools_are_found_with_their_lines() {
        let text = "[[tools.permissions.git__log]]\npattern = \"a\"\naction = \"deny\"\n\n\
                    [[tools.permissions.\"git__*\"]]\npattern = \"*\"\naction = \"allow\"\n\n\
                    [[tools.permissions.github__log]]\npattern = \"*\"\naction = \"allow\"\n\n\
                    [[tools.permissions.git__log]]\npattern = \"*\"\naction = \"allow\"\n";
        let rule = |tool: &str, line: usize| (tool.to_owned(), line);
        let expected = [rule("git__log", 1), rule("git__*", 5), rule("git__log", 13)];
        assert_eq!(tool_rules(text, "git"), expected);
        let inline = "[tools]\npermissions.git__log = [{ pattern = \"*\", action = \"allow\" }]\n";
        assert_eq!(tool_rules(inline, "git"), [rule("git__log", 2)]);
        assert!(tool_rules(inline, "gi").is_empty());
        assert!(tool_rules("[tools]\npermissions = 3\n", "git").is_empty());
        assert!(tool_rules("[", "git").is_empty());
    }

    #[test]
    fn comments_at_the_end_stay_above_new_servers() {
        let before = "[tools.file]\nallowed_paths = [\".\"]\n# deny_read = [\"~/.ssh\"]\n";
        let after = add(before, "time", &program(&["uvx"])).expect("it is added");
        assert_eq!(after, format!("{before}\n[mcp.servers.time]\ncommand = \"uvx\"\n"));
        assert_eq!(remove(&after, "time").expect("it is removed"), before);
    }
}
