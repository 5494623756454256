//! Proposes grants for an upstream server: what its arguments name, and what a recipe says that it
//! needs. A person decides on them; nothing is granted here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolhold_core::config::presets::Roots;
use toolhold_core::config::{AllowedPath, Folders, McpServer, PathAccess, inline};
use toolhold_system::files::real_or_given;

use crate::packages::Line;
use crate::recipes::{Recipe, recipe};

/// The endings of files that are databases.
const DATABASES: [&str; 5] = ["db", "duckdb", "kuzu", "sqlite", "sqlite3"];

/// Most proposals for one server.
const MAX_PROPOSALS: usize = 16;

/// The keys of a server's table that proposals and `toolhold mcp add` write, in their order.
const KEYS: [&str; 9] = [
    "command",
    "args",
    "url",
    "allowed_paths",
    "network",
    "presets",
    "env",
    "variables",
    "secrets",
];

/// The machine on which a server runs, for proposals.
#[derive(Clone, Copy, Debug)]
pub struct ProposalContext<'a> {
    /// Toolhold's own folders, and the home.
    pub folders: &'a Folders,
    /// The working directory.
    pub directory: &'a Path,
    /// The environment.
    pub variables: &'a BTreeMap<String, String>,
}

impl ProposalContext<'_> {
    /// Returns the environment of this process, without variables that aren't UTF-8.
    pub fn environment() -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) {
                variables.insert(name, value);
            }
        }
        variables
    }
}

/// A grant that a server seems to need, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantProposal {
    grant: Grant,
    /// The reason, for people, as a phrase about the server.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Grant {
    Directory {
        path: String,
        access: PathAccess,
    },
    /// A folder of the server's own, which is made, and a variable with a path in it.
    Data {
        folder: PathBuf,
        variable: String,
        file: String,
    },
    Network,
    Preset(&'static str),
    Secret(String),
}

impl GrantProposal {
    fn new(grant: Grant, reason: impl Into<String>) -> Self {
        Self { grant, reason: reason.into() }
    }

    /// Returns the folder that has to exist before the grant is of use, if the proposal is about a
    /// new one.
    pub fn new_folder(&self) -> Option<&Path> {
        match &self.grant {
            Grant::Data { folder, .. } => Some(folder),
            _ => None,
        }
    }

    fn is_relative(&self) -> bool {
        matches!(&self.grant, Grant::Directory { path, .. } if path == ".")
    }

    /// Returns the keys of the server's table with what is proposed.
    fn keys(&self) -> Value {
        match &self.grant {
            Grant::Directory { path, access } => {
                json!({ "allowed_paths": [AllowedPath { path: path.clone(), access: *access }] })
            }
            Grant::Data { folder, variable, file } => json!({
                "allowed_paths": [folder],
                "variables": { variable: folder.join(file) },
            }),
            Grant::Network => json!({ "network": true }),
            Grant::Preset(name) => json!({ "presets": [name] }),
            Grant::Secret(name) => json!({ "secrets": { name: { "env": name } } }),
        }
    }
}

/// Proposes grants that a program doesn't have yet. A server at a URL gets no proposals.
pub fn proposals(
    name: &str,
    server: &McpServer,
    context: &ProposalContext<'_>,
) -> Vec<GrantProposal> {
    if server.command.is_empty() {
        return Vec::new();
    }
    let mut proposals = argument_proposals(server, context);
    propose_preset(server, context, &mut proposals);
    if let Some(recipe) = recipe(server) {
        propose_recipe(name, server, recipe, context, &mut proposals);
    }
    proposals.retain(|proposal| !is_granted(server, proposal, context));
    proposals
}

/// Returns the line that grants the directories that the arguments of a program name, if the
/// program doesn't see them. Relative paths are left out, since they mean another directory
/// elsewhere.
pub(crate) fn unseen_directories(
    server: &McpServer,
    context: &ProposalContext<'_>,
) -> Option<String> {
    let mut proposals = argument_proposals(server, context);
    proposals.retain(|proposal| !proposal.is_relative());
    let granted = with_proposals(server, &proposals).ok()?;
    let (key, value) = changed_keys(server, &granted).into_iter().next()?;
    Some(format!("{key} = {value}"))
}

/// Proposes the directories that the arguments of a program name and that it doesn't see yet.
fn argument_proposals(server: &McpServer, context: &ProposalContext<'_>) -> Vec<GrantProposal> {
    let mut proposals = Vec::new();
    for argument in own_arguments(server) {
        propose_directory(&argument, context, &mut proposals);
    }
    proposals.retain(|proposal| !is_granted(server, proposal, context));
    proposals.truncate(MAX_PROPOSALS);
    proposals
}

/// Returns the variables with credentials that a well-known server needs, and that neither the
/// configuration nor the environment has.
pub fn missing_secrets(server: &McpServer, context: &ProposalContext<'_>) -> Vec<&'static str> {
    let Some(recipe) = recipe(server) else { return Vec::new() };
    let mut missing = Vec::new();
    for name in &recipe.secrets {
        if !has_variable(server, name) && !context.variables.contains_key(name) {
            missing.push(name.as_str());
        }
    }
    missing
}

/// Adds proposals to a server's table.
///
/// # Errors
///
/// The table can't have these keys, since a name in it isn't valid.
pub fn with_proposals(
    server: &McpServer,
    proposals: &[GrantProposal],
) -> Result<McpServer, serde_json::Error> {
    let mut table = serde_json::to_value(server)?;
    for proposal in proposals {
        add(&mut table, proposal.keys());
    }
    serde_json::from_value(table)
}

/// Adds keys to a table: the entries of lists and tables, and other values in place of theirs.
fn add(table: &mut Value, more: Value) {
    match (table, more) {
        (Value::Object(table), Value::Object(more)) => {
            for (key, value) in more {
                match table.get_mut(&key) {
                    Some(known) => add(known, value),
                    None => drop(table.insert(key, value)),
                }
            }
        }
        (Value::Array(list), Value::Array(more)) => {
            for item in more {
                if !list.contains(&item) {
                    list.push(item);
                }
            }
        }
        (known, value) => *known = value,
    }
}

/// Returns the keys of a server's table that differ from those of another one, each with its value
/// in TOML.
pub fn changed_keys(before: &McpServer, after: &McpServer) -> Vec<(&'static str, String)> {
    let before = serde_json::to_value(before).unwrap_or_default();
    let after = serde_json::to_value(after).unwrap_or_default();
    let mut changed = Vec::new();
    for key in KEYS {
        if before[key] != after[key] {
            changed.push((key, inline(&after[key])));
        }
    }
    changed
}

/// Returns the arguments of the server itself, without those of its package runner.
fn own_arguments(server: &McpServer) -> Vec<String> {
    match Line::parse(&server.command, &server.args) {
        Ok(Some(line)) => line.arguments,
        _ => server.args.clone(),
    }
}

/// Proposes the preset of a package runner that is below the home.
fn propose_preset(
    server: &McpServer,
    context: &ProposalContext<'_>,
    proposals: &mut Vec<GrantProposal>,
) {
    let Some(home) = &context.folders.home else { return };
    let runner = Path::new(&server.command).file_name().and_then(|name| name.to_str());
    let (preset, places): (_, &[&str]) = match runner {
        Some("npx") => ("node", &[".nvm", ".volta", ".local/share/fnm"]),
        Some("uvx") => ("uv", &[".local/share/uv", ".local/bin/uv"]),
        _ => return,
    };
    if places.iter().any(|place| home.join(place).exists()) {
        let reason = format!("its runner `{}` is in your home", runner.unwrap_or_default());
        proposals.push(GrantProposal::new(Grant::Preset(preset), reason));
    }
}

/// Proposes the directory that an argument names, or the directory of a database.
fn propose_directory(
    argument: &str,
    context: &ProposalContext<'_>,
    proposals: &mut Vec<GrantProposal>,
) {
    // The value of `--directory=/srv/data`.
    let value = match argument.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ => argument,
    };
    if value.is_empty() || value.starts_with('-') || value.contains("://") {
        return;
    }
    let Some(named) = context.resolve(value) else { return };
    let extension = Path::new(value).extension().and_then(|extension| extension.to_str());
    let is_database = extension.is_some_and(|extension| DATABASES.contains(&extension));
    let folder = if named.is_dir() {
        named
    } else if is_database {
        match named.parent() {
            Some(parent) => parent.to_owned(),
            None => return,
        }
    } else {
        return;
    };
    let reason = format!("its arguments name {value}");
    let access = PathAccess::ReadWrite;
    let is_relative = !value.starts_with(['/', '~']);
    if is_relative && folder.starts_with(context.directory) {
        // The server finds a relative path only if it starts in the working directory.
        let path = ".".to_owned();
        proposals.push(GrantProposal::new(Grant::Directory { path, access }, reason));
        return;
    }
    if let Some(path) = context.grantable(&folder) {
        proposals.push(GrantProposal::new(Grant::Directory { path, access }, reason));
    }
}

/// Proposes the needs of a well-known server.
fn propose_recipe(
    name: &str,
    server: &McpServer,
    recipe: &Recipe,
    context: &ProposalContext<'_>,
    proposals: &mut Vec<GrantProposal>,
) {
    let has_directory =
        proposals.iter().any(|proposal| matches!(proposal.grant, Grant::Directory { .. }));
    if let Some(access) = recipe.directory
        && !has_directory
        && server.allowed_paths.is_empty()
    {
        let grant = Grant::Directory { path: ".".to_owned(), access };
        proposals.push(GrantProposal::new(grant, "it works on the working directory"));
    }
    if let Some(data) = &recipe.data
        && let Some(home) = &context.folders.home
        && !has_variable(server, &data.variable)
    {
        let folder = home.join(".local/share/mcp-servers").join(name);
        let reason = format!("it writes {}", data.file);
        let grant =
            Grant::Data { folder, variable: data.variable.clone(), file: data.file.clone() };
        proposals.push(GrantProposal::new(grant, reason));
    }
    if let Some(reached) = &recipe.network {
        proposals.push(GrantProposal::new(Grant::Network, format!("it reaches {reached}")));
    }
    for place in &recipe.read {
        if let Some(path) = context.resolve(place)
            && path.is_dir()
            && let Some(path) = context.grantable(&path)
        {
            let grant = Grant::Directory { path, access: PathAccess::Read };
            proposals.push(GrantProposal::new(grant, format!("it reads {place}")));
        }
    }
    for secret in &recipe.secrets {
        if !has_variable(server, secret) && context.variables.contains_key(secret) {
            let reason = format!("it needs {secret}, which your environment has");
            proposals.push(GrantProposal::new(Grant::Secret(secret.clone()), reason));
        }
    }
}

impl ProposalContext<'_> {
    /// Returns the path that an argument names. It need not exist.
    fn resolve(&self, written: &str) -> Option<PathBuf> {
        match written.strip_prefix('~') {
            None => Some(self.directory.join(written)),
            Some(rest) => {
                let below = rest.strip_prefix('/')?;
                Some(self.folders.home.as_ref()?.join(below))
            }
        }
    }

    /// Returns the real path of a directory as a grant. Returns `None` for a directory that no
    /// program is offered: the whole machine, parts of the system, the home and the folders above,
    /// Toolhold's own folders, and places of credentials.
    fn grantable(&self, folder: &Path) -> Option<String> {
        let real = folder.canonicalize().ok()?;
        let is_whole = real.parent().is_none();
        let system = ["/proc", "/sys", "/dev", "/etc", "/run", "/boot"];
        if is_whole || system.iter().any(|system| real.starts_with(system)) {
            return None;
        }
        if let Some(home) = &self.folders.home {
            let home = real_or_given(home);
            if home.starts_with(&real) {
                return None;
            }
            let roots = Roots { home: &home, variables: self.variables };
            let mut credentials = roots.credentials().into_iter();
            if credentials.any(|place| real.starts_with(&place) || place.starts_with(&real)) {
                return None;
            }
        }
        for own in self.folders.own() {
            let path = real_or_given(&own.path);
            if real.starts_with(&path) || path.starts_with(&real) {
                return None;
            }
        }
        real.into_os_string().into_string().ok()
    }
}

/// Checks whether a server's table grants what a proposal is about.
fn is_granted(server: &McpServer, proposal: &GrantProposal, context: &ProposalContext<'_>) -> bool {
    match &proposal.grant {
        Grant::Directory { path, access } => has_path(server, path, *access, context),
        Grant::Data { variable, .. } => has_variable(server, variable),
        Grant::Network => server.network,
        Grant::Preset(name) => server
            .presets
            .iter()
            .any(|known| known.preset().is_some_and(|preset| preset.name == *name)),
        Grant::Secret(name) => has_variable(server, name),
    }
}

/// Checks whether a directory is below a granted one.
fn has_path(
    server: &McpServer,
    path: &str,
    access: PathAccess,
    context: &ProposalContext<'_>,
) -> bool {
    let Some(named) = context.resolve(path) else { return false };
    let wanted = real_or_given(&named);
    for allowed in &server.allowed_paths {
        let is_enough = allowed.access == access || allowed.access == PathAccess::ReadWrite;
        if let Some(granted) = context.resolve(&allowed.path)
            && is_enough
            && wanted.starts_with(real_or_given(&granted))
        {
            return true;
        }
    }
    false
}

/// Checks whether a server gets a variable.
fn has_variable(server: &McpServer, name: &str) -> bool {
    server.secrets.contains_key(name)
        || server.variables.contains_key(name)
        || server.env.iter().any(|known| known.as_str() == name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Machine {
        root: tempfile::TempDir,
        folders: Folders,
        variables: BTreeMap<String, String>,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().expect("a folder is made");
            let real = root.path().canonicalize().expect("it is there");
            for folder in ["user/.ssh", "user/own/data", "user/books", "work/sub", "elsewhere"] {
                fs::create_dir_all(real.join(folder)).expect("folders are made");
            }
            let home = real.join("user");
            let folders =
                Folders { home: Some(home.clone()), ..Folders::inside(&home.join("own")) };
            Self { root, folders, variables: BTreeMap::new() }
        }

        fn path(&self, name: &str) -> String {
            let root = self.root.path().canonicalize().expect("it is there");
            root.join(name).display().to_string()
        }

        /// The proposed lines for a command line, without the root.
        fn lines(&self, command: &str, more: &Value) -> Vec<String> {
            let real = self.root.path().canonicalize().expect("it is there");
            let root = real.to_str().expect("a path is text");
            let command = command.replace('%', root);
            let mut words = command.split(' ').map(str::to_owned);
            let mut table = serde_json::to_value(McpServer::default()).expect("JSON");
            table["command"] = json!(words.next());
            table["args"] = json!(words.collect::<Vec<_>>());
            add(&mut table, more.clone());
            let server: McpServer = serde_json::from_value(table).expect("a server");
            let directory = PathBuf::from(self.path("work"));
            let context = ProposalContext {
                folders: &self.folders,
                directory: &directory,
                variables: &self.variables,
            };
            let proposals = proposals("s", &server, &context);
            let after = with_proposals(&server, &proposals).expect("they are valid");
            let changed = changed_keys(&server, &after).into_iter();
            changed.map(|(key, text)| format!("{key} = {}", text.replace(root, "%"))).collect()
        }
    }

    #[test]
    fn directories_of_arguments_are_proposed() {
        let machine = Machine::new();
        let elsewhere = &["allowed_paths = [\"%/elsewhere\"]"][..];
        let here = &["allowed_paths = [\".\"]"][..];
        for (command, expected) in [
            ("npx -y server-x %/elsewhere", elsewhere),
            ("x --root=%/elsewhere", elsewhere),
            ("x %/elsewhere %/elsewhere/", elsewhere),
            ("x ~/books", &["allowed_paths = [\"%/user/books\"]"]),
            ("x --db-path %/elsewhere/new.db", elsewhere),
            ("x test.sqlite", here),
            ("x sub .", here),
            ("x %/nowhere", &[]),
            ("x %/elsewhere/new.txt", &[]),
            ("x postgres:/%/elsewhere", &[]),
        ] {
            assert_eq!(machine.lines(command, &json!({})), expected, "{command}");
        }
    }

    #[test]
    fn no_program_is_offered_credentials_the_home_or_the_machine() {
        let machine = Machine::new();
        for named in [
            "/",
            "/etc",
            "/etc/x.db",
            "/proc/self",
            "~/",
            "~/.ssh",
            "~/.ssh/x.db",
            "~/x.db",
            "~/own",
            "~/own/data",
            "%/user",
            "%/user/books/..",
            "%",
        ] {
            let lines = machine.lines(&format!("x {named}"), &json!({}));
            assert_eq!(lines, Vec::<String>::new(), "{named}");
        }
    }

    #[test]
    fn needs_of_a_known_server_are_proposed_once() {
        let mut machine = Machine::new();
        let none = Vec::<String>::new();
        let fetch = "uvx mcp-server-fetch";
        assert_eq!(machine.lines(fetch, &json!({})), ["network = true"]);
        assert_eq!(machine.lines(fetch, &json!({ "network": true })), none);
        let granted = json!({ "allowed_paths": [machine.path("elsewhere")] });
        assert_eq!(machine.lines("x %/elsewhere", &granted), none);
        let read = json!({ "allowed_paths": [{ "path": machine.path("work"), "access": "read" }] });
        assert_eq!(machine.lines("x sub", &read).len(), 1, "it may only read there");
        assert_eq!(machine.lines("uvx mcp-server-git", &json!({})), ["allowed_paths = [\".\"]"]);
        let memory = machine.lines("npx -y @modelcontextprotocol/server-memory", &json!({}));
        assert_eq!(
            memory,
            [
                "allowed_paths = [\"%/user/.local/share/mcp-servers/s\"]",
                "variables = { MEMORY_FILE_PATH = \
                 \"%/user/.local/share/mcp-servers/s/memory.jsonl\" }"
            ]
        );
        let github = "npx -y @modelcontextprotocol/server-github";
        assert_eq!(machine.lines(github, &json!({})), ["network = true"]);
        let token = "GITHUB_PERSONAL_ACCESS_TOKEN";
        machine.variables.insert(token.to_owned(), "x".to_owned());
        let secret = format!("secrets = {{ {token} = {{ env = \"{token}\" }} }}");
        assert_eq!(machine.lines(github, &json!({})), ["network = true".to_owned(), secret]);
        let known = json!({ "network": true, "secrets": { token: { "file": "~/token" } } });
        assert_eq!(machine.lines(github, &known), none);
    }
}
