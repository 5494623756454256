//! Proposes grants for an upstream server: what its arguments name, and what a recipe says that it
//! needs. A person decides on them; nothing is granted here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolhold_core::config::presets::{PRESETS, Roots, with_all};
use toolhold_core::config::{AllowedPath, Folders, HostGrant, McpServer, PathAccess, inline};
use toolhold_system::files::real_or_given;

use crate::packages::RunnerLine;
use crate::recipes::{DataFile, Recipe, recipe};

/// The endings of files that are databases.
const DATABASES: [&str; 5] = ["db", "duckdb", "kuzu", "sqlite", "sqlite3"];

/// Folders of the system, which are never proposed.
const SYSTEM: [&str; 11] =
    ["/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr"];

/// The programs that run a script, without the digits of their versions.
const INTERPRETERS: [&str; 7] = ["bash", "bun", "deno", "node", "nodejs", "python", "sh"];

/// Most proposals for one server.
const MAX_PROPOSALS: usize = 16;

/// The keys of a server's table that proposals and `toolhold mcp add` write, in their order.
const KEYS: [&str; 10] = [
    "command",
    "args",
    "url",
    "allowed_paths",
    "network",
    "hosts",
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
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
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
        folder: String,
        variable: String,
        file: String,
    },
    Network,
    Host(HostGrant),
    Preset(&'static str),
    Value {
        name: String,
        value: String,
    },
    Variable(String),
    Secret(String),
}

impl GrantProposal {
    fn new(grant: Grant, reason: impl Into<String>) -> Self {
        Self { grant, reason: reason.into() }
    }

    /// Returns the folder that must be made before the proposed grant works. Returns `None` if the
    /// proposed grant needs no new folder.
    pub fn new_folder(&self) -> Option<&Path> {
        match &self.grant {
            Grant::Data { folder, .. } => Some(Path::new(folder)),
            _ => None,
        }
    }

    fn is_relative(&self) -> bool {
        matches!(&self.grant, Grant::Directory { path, .. } if path == ".")
    }

    /// Returns the keys of the server's table that contain the proposed grant, with their values.
    fn keys(&self) -> Value {
        match &self.grant {
            Grant::Directory { path, access } => {
                json!({ "allowed_paths": [AllowedPath { path: path.clone(), access: *access }] })
            }
            Grant::Data { folder, variable, file } => json!({
                "allowed_paths": [folder],
                "variables": { variable: format!("{folder}/{file}") },
            }),
            Grant::Network => json!({ "network": true }),
            Grant::Host(host) => json!({ "hosts": [host] }),
            Grant::Preset(name) => json!({ "presets": [name] }),
            Grant::Value { name, value } => json!({ "variables": { name: value } }),
            Grant::Variable(name) => json!({ "env": [name] }),
            Grant::Secret(name) => json!({ "secrets": { name: { "env": name } } }),
        }
    }
}

/// Proposes grants that a server's program doesn't have yet. A server at a URL gets no proposals.
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

/// Returns the line of the configuration that grants a program the directories in its arguments.
/// Returns `None` if the program has access to all of them. Relative paths are left out, because
/// their meaning depends on the working directory.
pub(crate) fn line_for_unseen_directories(
    server: &McpServer,
    context: &ProposalContext<'_>,
) -> Option<String> {
    let mut proposals = argument_proposals(server, context);
    proposals.retain(|proposal| !proposal.is_relative());
    let granted = with_proposals(server, &proposals).ok()?;
    let (key, value) = changed_keys(server, &granted).into_iter().next()?;
    Some(format!("{key} = {value}"))
}

/// Proposes the directories in a program's arguments to which the program has no access yet, and
/// the folder of the script that it runs.
fn argument_proposals(server: &McpServer, context: &ProposalContext<'_>) -> Vec<GrantProposal> {
    let mut proposals = Vec::new();
    for argument in own_arguments(server) {
        propose_directory(&argument, context, &mut proposals);
    }
    proposals.retain(|proposal| !is_granted(server, proposal, context));
    proposals.truncate(MAX_PROPOSALS);
    if let Some(proposal) = script_proposal(server, context) {
        // A directory in the arguments may contain the script. Directories make no table invalid.
        let granted = with_proposals(server, &proposals).unwrap_or_else(|_| server.clone());
        if !is_granted(&granted, &proposal, context) {
            proposals.push(proposal);
        }
    }
    proposals
}

/// Proposes to let an interpreter read the folder of its script.
fn script_proposal(server: &McpServer, context: &ProposalContext<'_>) -> Option<GrantProposal> {
    let script = script_argument(server)?;
    let named = context.resolve(script)?;
    if !named.is_file() {
        return None;
    }
    // Only folders can be granted, so nothing is proposed for a script in the home folder itself.
    let folder = script_folder(&named)?;
    if is_in_preset(server, &folder, context) {
        return None;
    }
    let is_relative = !script.starts_with(['/', '~']);
    let path = if !is_relative {
        context.grantable(&folder)?
    } else if folder.starts_with(real_or_given(context.directory)) {
        // The server finds a relative path only if it starts in the working directory.
        context.grantable_directory()?
    } else {
        return None;
    };
    let grant = Grant::Directory { path, access: PathAccess::Read };
    Some(GrantProposal::new(grant, format!("the server runs {script}")))
}

/// Returns the argument that names an interpreter's script, which is the first that isn't an
/// option.
fn script_argument(server: &McpServer) -> Option<&str> {
    let program = Path::new(&server.command).file_name()?.to_str()?;
    let name = program.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    if !INTERPRETERS.contains(&name) {
        return None;
    }
    let mut words = server.args.iter().filter(|argument| !argument.starts_with('-'));
    let first_word = words.next()?;
    let has_subcommand = matches!(program, "bun" | "deno") && first_word == "run";
    let script = if has_subcommand { words.next()? } else { first_word };
    Some(script)
}

/// Returns the real folder that a script needs. For a script of an installed package, this is the
/// outermost `node_modules`, because the packages that it depends on are there.
fn script_folder(script: &Path) -> Option<PathBuf> {
    let folder = script.parent()?.canonicalize().ok()?;
    let packages = folder.ancestors().filter(|above| above.ends_with("node_modules")).last();
    Some(packages.unwrap_or(&folder).to_owned())
}

/// Returns whether a preset of the server grants a folder.
fn is_in_preset(server: &McpServer, folder: &Path, context: &ProposalContext<'_>) -> bool {
    let Some(home) = &context.folders.home else { return false };
    let home = real_or_given(home);
    let roots = Roots { home: &home, variables: context.variables };
    let presets = server.presets.iter().filter_map(|known| known.preset());
    let mut places = presets.flat_map(with_all).flat_map(|preset| preset.places());
    places.any(|(place, _access)| {
        let granted = roots.find(place);
        granted.is_some_and(|granted| folder.starts_with(real_or_given(&granted)))
    })
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
/// Returns an error if a proposal contains an invalid name, which no table can have.
pub fn with_proposals(
    server: &McpServer,
    proposals: &[GrantProposal],
) -> Result<McpServer, serde_json::Error> {
    let mut table = serde_json::to_value(server)?;
    for proposal in proposals {
        merge(&mut table, proposal.keys());
    }
    serde_json::from_value(table)
}

/// Merges `added` into `value`. The entries of tables and lists are added, and other values are
/// replaced.
fn merge(value: &mut Value, added: Value) {
    match (value, added) {
        (Value::Object(table), Value::Object(added_table)) => {
            for (key, added_value) in added_table {
                if let Some(old_value) = table.get_mut(&key) {
                    merge(old_value, added_value);
                } else {
                    table.insert(key, added_value);
                }
            }
        }
        (Value::Array(list), Value::Array(added_list)) => {
            for item in added_list {
                if !list.contains(&item) {
                    list.push(item);
                }
            }
        }
        (old_value, new_value) => *old_value = new_value,
    }
}

/// Returns the keys that differ in two versions of a server's table. Each key has its new value in
/// TOML.
pub fn changed_keys(before: &McpServer, after: &McpServer) -> Vec<(&'static str, String)> {
    // A table can always be converted to JSON.
    let old_table = serde_json::to_value(before).unwrap_or_default();
    let new_table = serde_json::to_value(after).unwrap_or_default();
    let mut changed = Vec::new();
    for key in KEYS {
        if old_table[key] != new_table[key] {
            changed.push((key, inline(&new_table[key])));
        }
    }
    changed
}

/// Returns the arguments of the server itself, without those of its package runner.
fn own_arguments(server: &McpServer) -> Vec<String> {
    match RunnerLine::parse(&server.command, &server.args) {
        Ok(Some(line)) => line.arguments,
        _ => server.args.clone(),
    }
}

/// Proposes the preset for a program in the home folder. A server of `uvx` gets the preset for the
/// Pythons of uv.
fn propose_preset(
    server: &McpServer,
    context: &ProposalContext<'_>,
    proposals: &mut Vec<GrantProposal>,
) {
    let Some(home) = &context.folders.home else { return };
    let home = real_or_given(home);
    let roots = Roots { home: &home, variables: context.variables };
    let pythons = roots.find("$XDG_DATA_HOME/uv");
    if Path::new(&server.command).ends_with("uvx") && pythons.is_some_and(|path| path.exists()) {
        proposals.push(GrantProposal::new(Grant::Preset("uv"), "uv keeps Pythons in your home"));
        return;
    }
    let Some(program) = context.find_program(&server.command) else { return };
    if let Some(preset) = preset_of_program(&program, &home, &roots) {
        let grant = Grant::Preset(preset);
        proposals.push(GrantProposal::new(grant, "the server's program is in your home"));
    }
}

/// Returns the first preset that grants a folder below `home` with the program.
fn preset_of_program(program: &Path, home: &Path, roots: &Roots<'_>) -> Option<&'static str> {
    let real_program = real_or_given(program);
    for preset in &PRESETS {
        for (place, _access) in preset.places() {
            let Some(folder) = roots.find(place) else { continue };
            let has_program = program.starts_with(&folder) || real_program.starts_with(&folder);
            if folder.starts_with(home) && has_program {
                return Some(preset.name);
            }
        }
    }
    None
}

/// Proposes the directory that an argument names, or the directory of a database.
fn propose_directory(
    argument: &str,
    context: &ProposalContext<'_>,
    proposals: &mut Vec<GrantProposal>,
) {
    // An option may contain the path, as in `--directory=/srv/data`.
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
    let is_relative = !value.starts_with(['/', '~']);
    let path = if !is_relative {
        context.grantable(&folder)
    } else if real_or_given(&folder).starts_with(real_or_given(context.directory)) {
        // The server finds a relative path only if it starts in the working directory.
        context.grantable_directory()
    } else {
        None
    };
    if let Some(path) = path {
        let grant = Grant::Directory { path, access: PathAccess::ReadWrite };
        proposals.push(GrantProposal::new(grant, format!("the server's arguments name {value}")));
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
        && let Some(path) = context.grantable_directory()
    {
        let grant = Grant::Directory { path, access };
        proposals.push(GrantProposal::new(grant, "the server works on the working directory"));
    }
    if let Some(data) = &recipe.data
        && let Some(home) = context.folders.home.as_ref().and_then(|home| home.to_str())
    {
        let folder = format!("{home}/.local/share/mcp-servers/{name}");
        let DataFile { variable, file } = data.clone();
        let reason = format!("the server writes {file}");
        proposals.push(GrantProposal::new(Grant::Data { folder, variable, file }, reason));
    }
    if let Some(reached) = &recipe.network {
        proposals.push(GrantProposal::new(Grant::Network, format!("the server reaches {reached}")));
    }
    for host in &recipe.hosts {
        let reason = format!("the server reaches {host}");
        proposals.push(GrantProposal::new(Grant::Host(host.clone()), reason));
    }
    for place in &recipe.read {
        if let Some(path) = context.resolve(place)
            && path.is_dir()
            && let Some(path) = context.grantable(&path)
        {
            let grant = Grant::Directory { path, access: PathAccess::Read };
            proposals.push(GrantProposal::new(grant, format!("the server reads {place}")));
        }
    }
    for (name, value) in recipe.values.clone() {
        let reason = format!("the server fails in the sandbox without {name}");
        proposals.push(GrantProposal::new(Grant::Value { name, value }, reason));
    }
    propose_variables(&recipe.variables, Grant::Variable, context, proposals);
    propose_variables(&recipe.secrets, Grant::Secret, context, proposals);
    propose_variables(&recipe.optional_secrets, Grant::Secret, context, proposals);
}

/// Proposes a grant for each of the variables that the environment has. `grant` makes the grant
/// from the variable's name.
fn propose_variables(
    names: &[String],
    grant: fn(String) -> Grant,
    context: &ProposalContext<'_>,
    proposals: &mut Vec<GrantProposal>,
) {
    for name in names {
        if context.variables.contains_key(name) {
            let reason = format!("the server reads {name}, which your environment has");
            proposals.push(GrantProposal::new(grant(name.clone()), reason));
        }
    }
}

impl ProposalContext<'_> {
    /// Returns the path that an argument names, whether or not the path exists. Returns `None` for
    /// the home folder of another user, or if the home folder isn't known.
    fn resolve(&self, written: &str) -> Option<PathBuf> {
        let Some(after_tilde) = written.strip_prefix('~') else {
            return Some(self.directory.join(written));
        };
        let below_home = after_tilde.strip_prefix('/')?;
        let home = self.folders.home.as_ref()?;
        Some(home.join(below_home))
    }

    /// Finds the program that a command line starts.
    fn find_program(&self, command: &str) -> Option<PathBuf> {
        if command.contains('/') {
            return self.resolve(command);
        }
        for folder in std::env::split_paths(self.variables.get("PATH")?) {
            let file = folder.join(command);
            if file.is_file() {
                return Some(file);
            }
        }
        None
    }

    /// Returns the working directory as a grant. Returns `None` if it must not be granted.
    fn grantable_directory(&self) -> Option<String> {
        self.grantable(self.directory)?;
        Some(".".to_owned())
    }

    /// Returns the real path of a directory that a grant may name. Returns `None` for a directory
    /// that must not be granted: the root of the file system, parts of the system, the home folder
    /// and the folders above, Toolhold's own folders, and folders with credentials.
    fn grantable(&self, folder: &Path) -> Option<String> {
        let folder = folder.canonicalize().ok()?;
        let is_root = folder.parent().is_none();
        if is_root || SYSTEM.iter().any(|system| folder.starts_with(system)) {
            return None;
        }
        if let Some(home) = &self.folders.home {
            let home = real_or_given(home);
            if home.starts_with(&folder) {
                return None;
            }
            let roots = Roots { home: &home, variables: self.variables };
            for credentials in roots.credentials() {
                if folder.starts_with(&credentials) || credentials.starts_with(&folder) {
                    return None;
                }
            }
        }
        for own in self.folders.own_folders() {
            let own_folder = real_or_given(&own.path);
            if folder.starts_with(&own_folder) || own_folder.starts_with(&folder) {
                return None;
            }
        }
        folder.into_os_string().into_string().ok()
    }
}

/// Returns whether a server's table already contains the grant of a proposal.
fn is_granted(server: &McpServer, proposal: &GrantProposal, context: &ProposalContext<'_>) -> bool {
    match &proposal.grant {
        Grant::Directory { path, access } => has_path(server, path, *access, context),
        // If the user has named hosts, the whole network isn't proposed any more.
        Grant::Network => server.network || !server.hosts.is_empty(),
        Grant::Host(host) => server.network || covers_host(server, host),
        Grant::Preset(name) => {
            let presets = server.presets.iter().filter_map(|known| known.preset());
            // A preset may include other presets.
            presets.flat_map(with_all).any(|preset| preset.name == *name)
        }
        Grant::Data { variable: name, .. }
        | Grant::Value { name, .. }
        | Grant::Variable(name)
        | Grant::Secret(name) => has_variable(server, name),
    }
}

/// Returns whether a server's table grants a host.
fn covers_host(server: &McpServer, host: &HostGrant) -> bool {
    let wanted = json!(host);
    server.hosts.iter().any(|granted| HostGrant::covers_written(&json!(granted), &wanted))
}

/// Returns whether a server's table grants the access to a directory, or to a directory above.
fn has_path(
    server: &McpServer,
    path: &str,
    access: PathAccess,
    context: &ProposalContext<'_>,
) -> bool {
    let Some(directory) = context.resolve(path) else { return false };
    let real_directory = real_or_given(&directory);
    for allowed in &server.allowed_paths {
        let includes_access = allowed.access == access || allowed.access == PathAccess::ReadWrite;
        let Some(granted) = context.resolve(&allowed.path) else { continue };
        if includes_access && real_directory.starts_with(real_or_given(&granted)) {
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
        /// The working directory, below the root.
        directory: &'static str,
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
            Self { root, folders, directory: "work", variables: BTreeMap::new() }
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
            merge(&mut table, more.clone());
            let server: McpServer = serde_json::from_value(table).expect("a server");
            let directory = PathBuf::from(self.path(self.directory));
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
            ("x ../elsewhere", &[]),
            ("x %/nowhere", &[]),
            ("x %/elsewhere/new.txt", &[]),
            ("x postgres:/%/elsewhere", &[]),
        ] {
            assert_eq!(machine.lines(command, &json!({})), expected, "{command}");
        }
    }

    #[test]
    fn script_of_an_interpreter_is_proposed_for_reading() {
        let machine = Machine::new();
        let package = "elsewhere/node_modules/@x/server";
        for script in [
            format!("{package}/dist/index.js"),
            format!("{package}/node_modules/y/run.js"),
            "user/books/server.py".to_owned(),
            "user/server.py".to_owned(),
            "work/sub/server.js".to_owned(),
            "user/.nvm/versions/node/lib/node_modules/z/index.js".to_owned(),
        ] {
            let path = PathBuf::from(machine.path(&script));
            fs::create_dir_all(path.parent().expect("it is in a folder"))
                .expect("folders are made");
            fs::write(path, "").expect("a file is written");
        }
        let read = |path: &str| format!("{{ path = \"{path}\", access = \"read\" }}");
        let modules = read("%/elsewhere/node_modules");
        let books = read("%/user/books");
        let here = read(".");
        for (command, expected) in [
            (format!("node %/{package}/dist/index.js"), Some(modules.clone())),
            (format!("/opt/bin/node --inspect %/{package}/dist/index.js"), Some(modules.clone())),
            (format!("node %/{package}/node_modules/y/run.js"), Some(modules.clone())),
            (format!("deno run -A %/{package}/dist/index.js"), Some(modules.clone())),
            (
                format!("node %/{package}/dist/index.js %/work"),
                Some(format!("\"%/work\", {modules}")),
            ),
            ("python3.12 ~/books/server.py".to_owned(), Some(books)),
            ("node sub/server.js".to_owned(), Some(here)),
            ("node sub/server.js .".to_owned(), Some("\".\"".to_owned())),
            ("node %/work/sub/server.js %/work".to_owned(), Some("\"%/work\"".to_owned())),
            ("python3 ~/server.py".to_owned(), None),
            ("python3 -m server %/user/books/server.py".to_owned(), None),
            ("node %/nowhere/server.js".to_owned(), None),
            ("x %/user/books/server.py".to_owned(), None),
        ] {
            let lines: Vec<String> =
                expected.iter().map(|paths| format!("allowed_paths = [{paths}]")).collect();
            assert_eq!(machine.lines(&command, &json!({})), lines, "{command}");
        }
        let granted = json!({ "allowed_paths": [machine.path("elsewhere")] });
        let command = format!("node %/{package}/dist/index.js");
        assert_eq!(machine.lines(&command, &granted), Vec::<String>::new());
        let global = "node ~/.nvm/versions/node/lib/node_modules/z/index.js";
        assert_eq!(machine.lines(global, &json!({})).len(), 1);
        assert_eq!(machine.lines(global, &json!({ "presets": ["node"] })), Vec::<String>::new());
    }

    #[test]
    fn no_program_is_offered_credentials_the_home_or_the_machine() {
        let mut machine = Machine::new();
        for named in [
            "/",
            "/usr/bin",
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
        for directory in ["user", "user/own", ""] {
            machine.directory = directory;
            for command in ["x .", "x x.db", "uvx mcp-server-git"] {
                let lines = machine.lines(command, &json!({}));
                assert_eq!(lines, Vec::<String>::new(), "{command} in {directory}");
            }
        }
    }

    #[test]
    fn preset_of_a_program_in_the_home_is_proposed() {
        let mut machine = Machine::new();
        let none = Vec::<String>::new();
        let folder = machine.path("user/.nvm/versions/node/bin");
        fs::create_dir_all(&folder).expect("a folder is made");
        fs::write(Path::new(&folder).join("npx"), "").expect("a file is written");
        let node = ["presets = [\"node\"]"];
        assert_eq!(machine.lines("npx x", &json!({})), none, "another `npx` may be in use");
        assert_eq!(machine.lines(&format!("{folder}/npx x"), &json!({})), node);
        machine.variables.insert("PATH".to_owned(), format!("/nowhere:{folder}"));
        assert_eq!(machine.lines("npx x", &json!({})), node);
        assert_eq!(machine.lines("npx x", &json!({ "presets": ["npm"] })), none);
        assert_eq!(machine.lines("uvx x", &json!({})), none);
        fs::create_dir_all(machine.path("user/.local/share/uv")).expect("a folder is made");
        assert_eq!(machine.lines("uvx x", &json!({})), ["presets = [\"uv\"]"]);
    }

    #[test]
    fn needs_of_a_known_server_are_proposed_once() {
        let mut machine = Machine::new();
        let none = Vec::<String>::new();
        let fetch = "uvx mcp-server-fetch";
        let node = "variables = { NODE_OPTIONS = \"--no-node\" }";
        assert_eq!(machine.lines(fetch, &json!({})), ["network = true", node]);
        let own = json!({ "network": true, "variables": { "NODE_OPTIONS": "--own" } });
        assert_eq!(machine.lines(fetch, &own), none);
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
        let hosts = "hosts = [\"api.github.com\"]";
        assert_eq!(machine.lines(github, &json!({})), [hosts]);
        for own in [json!({ "network": true }), json!({ "hosts": ["*.github.com"] })] {
            assert_eq!(machine.lines(github, &own), none, "{own}");
        }
        let other = json!({ "hosts": ["other.example"] });
        let both = "hosts = [\"other.example\", \"api.github.com\"]";
        assert_eq!(machine.lines(github, &other), [both]);
        assert_eq!(machine.lines(fetch, &other), [node], "hosts are in place of the network");
        let token = "GITHUB_PERSONAL_ACCESS_TOKEN";
        machine.variables.insert(token.to_owned(), "x".to_owned());
        let secret = format!("secrets = {{ {token} = {{ env = \"{token}\" }} }}");
        assert_eq!(machine.lines(github, &json!({})), [hosts.to_owned(), secret]);
        let known = json!({ "network": true, "secrets": { token: { "file": "~/token" } } });
        assert_eq!(machine.lines(github, &known), none);
        for name in ["JIRA_URL", "JIRA_API_TOKEN"] {
            machine.variables.insert(name.to_owned(), "x".to_owned());
        }
        assert_eq!(
            machine.lines("uvx mcp-atlassian", &json!({})),
            [
                "network = true",
                "env = [\"JIRA_URL\"]",
                "secrets = { JIRA_API_TOKEN = { env = \"JIRA_API_TOKEN\" } }"
            ]
        );
    }
}
