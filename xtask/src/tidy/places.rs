//! Rules about places: which crate may use which, and which files alone may do something.

use std::collections::{BTreeMap, BTreeSet};

use super::manifest::Dependency;
use super::tree::{File, Tree};
use super::{Violation, at};

/// Crates that never reach another one, by any path of dependencies. Cargo itself refuses circles.
const NEVER: [(&str, &str); 10] = [
    ("toolhold-agent", "toolhold-mcp-server"),
    ("toolhold-agent", "toolhold-terminal"),
    ("toolhold-config", "toolhold-engine"),
    ("toolhold-core", "toolhold-models"),
    ("toolhold-mcp-server", "toolhold-agent"),
    ("toolhold-mcp-server", "toolhold-mcp-client"),
    ("toolhold-engine", "toolhold-config"),
    ("toolhold-mcp-client", "toolhold-mcp-server"),
    ("toolhold-system", "toolhold-net"),
    ("toolhold-undo", "toolhold-config"),
];

/// The folders of crates below `host/`, from the lowest layer to the highest. A crate depends on
/// crates of its own layer and of lower ones.
const LAYERS: [&str; 11] = [
    "contract", "policy", "state", "sandbox", "packages", "runtime", "config", "core", "mcp",
    "agent", "cli",
];

/// Crates that the crates without I/O may depend on: they were checked, and do no I/O either.
const PURE: [&str; 16] = [
    "toolhold-shell-commands",
    "toolhold-contract",
    "base64",
    "globset",
    "ipnet",
    "regex",
    "schemars",
    "serde",
    "serde_json",
    "shlex",
    "strsim",
    "thiserror",
    "tokio-util",
    "tree-sitter",
    "tree-sitter-bash",
    "url",
];

const WITHOUT_IO: [&str; 5] = [
    "host/policy/shell-commands/",
    "host/contract/",
    "host/policy/gates/",
    "host/policy/redaction/",
    "host/agent/loop/src/selection/",
];

/// Paths of the standard library and tokio that do I/O.
const IO_PATHS: [&str; 15] = [
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os::fd",
    "std::os::unix::fs",
    "std::os::unix::net",
    "std::process",
    "std::thread",
    "tokio",
];

/// Handles of files. Crates without I/O may use these types, because passing a handle on is no I/O.
const HANDLES: [&str; 2] = ["std::os::fd::BorrowedFd", "std::os::fd::OwnedFd"];

/// Methods of `Path` that use the file system.
const IO_METHODS: [&str; 10] = [
    ".canonicalize()",
    ".exists()",
    ".is_dir()",
    ".is_file()",
    ".is_symlink()",
    ".metadata()",
    ".read_dir()",
    ".read_link()",
    ".symlink_metadata()",
    ".try_exists()",
];

/// The files that open the paths of guests, relative to a directory handle.
const OPEN_BENEATH: [&str; 10] = [
    "host/config/keys/src/presets/caches.rs", // the caches of presets, below what was decided on
    "host/sandbox/system/src/confine/view.rs", // the root directory of a program, and the mounts in it
    "host/sandbox/system/src/files/kernel.rs",
    "host/sandbox/system/src/files/open.rs",
    "host/sandbox/system/src/process/changes.rs", // what a command is about to change
    "host/state/undo/src/files.rs",               // what calls changed, by its real path
    "host/state/data-dir/src/pinned.rs", // keeps places in granted directories free for a while
    "host/sandbox/system/src/process/sockets.rs", // searches the granted directories for sockets
    "host/sandbox/search/src/directory.rs",
    "host/agent/skills/src/folder.rs", // the files of a skill
];

/// The files that open other paths, and what these are. A front end opens the paths of its user.
const OPEN_OWN: [&str; 44] = [
    "host/agent/loop/src/instructions.rs", // AGENTS.md in the working directory and above
    "host/agent/loop/src/record/store.rs", // Toolhold's own sessions
    "host/agent/models/src/choice/listeners.rs", // the listening programs, in /proc
    "host/mcp/client/src/proposals.rs",    // the paths in the command that the user wrote
    "host/mcp/client/src/packages/fetched.rs", // the packages of servers, in Toolhold's cache
    "host/mcp/client/src/program_end.rs",  // the commands that the operator names
    "host/agent/skills/",                  // the skills of the user and of a project
    "host/cli/authoring/", // the folders of authors, whose programs it runs with their rights
    "host/core/builtins/build.rs", // the components, while Toolhold is built
    "host/core/audit/src/origin.rs", // the names of users, in /etc/passwd
    "host/cli/toolhold/",  // the paths on the command line, and the files of MCP clients
    "host/cli/terminal/src/changed_file.rs", // files that the operator named
    "host/cli/terminal/src/interrupt.rs", // the signals that this process ignores
    "host/cli/terminal/src/new_file.rs", // the user's new configuration
    "host/cli/export/src/", // the file that the user exports to, and /proc
    "host/core/host/src/approvals/outdated.rs", // the file of a question, for the person who approves
    "host/config/config/",                      // the configuration, and the folders in it
    "host/config/keys/src/presets/",            // the places of presets in the home
    "host/core/host/src/builder.rs",            // the working directory
    "host/core/host/src/doctor/machine/folders.rs", // Toolhold's own folders behind links
    "host/state/schedule/src/tasks.rs",         // Toolhold's own tasks
    "host/core/catalogue/src/plugins/advice.rs", // whether git has a repository around the granted ones
    "host/core/catalogue/src/plugins/folder.rs", // components that the operator names
    "host/mcp/server/src/http/connections.rs",   // the socket that the operator names
    "host/mcp/server/src/http/keys.rs",          // the keys that the operator names
    "host/packages/component/src/file.rs",       // components that the operator names
    "host/sandbox/net/src/secret_sources.rs",    // the files of secrets that the operator names
    "host/sandbox/system/src/confine/",          // /proc, and the trees that a program gets
    "host/sandbox/system/src/files/grants.rs",   // the granted directories, which are opened once
    "host/sandbox/system/src/files/kernel.rs",   // /proc
    "host/sandbox/system/src/kernel.rs",         // /proc
    "host/state/undo/src/files.rs",              // what calls changed, by its real path
    "host/sandbox/system/src/mounts.rs",         // the table of mounts
    "host/sandbox/system/src/machine/",          // /proc and /sys
    "host/sandbox/system/src/processes.rs",      // /proc
    "host/sandbox/system/src/process/", // /proc, and the denied files in the granted directories
    "host/state/data-dir/src/",         // Toolhold's own folders, and the ways of paths
    "host/packages/registry/src/bounded.rs", // logins and signatures that the operator names
    "host/packages/registry/src/files.rs", // components that the operator names
    "host/core/jobs/src/servers.rs",    // /proc
    "host/sandbox/search/src/directory.rs", // /proc
    "host/packages/registry/src/bundle/files.rs", // bundles, and what goes into one, which the operator names
    "host/packages/signing/src/files.rs",         // components that their author signs
    "host/packages/signing/src/password.rs", // the terminal, and an open file that the user names
];

/// Functions that open, read or change a path without a directory handle.
const PATH_CALLS: [&str; 21] = [
    ".canonicalize()",
    ".exists()",
    ".read_dir()",
    ".read_link()",
    "DirBuilder::new(",
    "File::create(",
    "File::open(",
    "OpenOptions::new(",
    "ambient_authority(",
    "fs::canonicalize(",
    "fs::copy(",
    "fs::create_dir",
    "fs::metadata(",
    "fs::open(",
    "fs::read(",
    "fs::read_dir(",
    "fs::read_to_string(",
    "fs::remove_",
    "fs::rename(",
    "fs::symlink_metadata(",
    "fs::write(",
];

/// The files that start processes.
pub(super) const STARTS_PROCESSES: [&str; 6] = [
    "host/cli/authoring/src/tools.rs", // the tools of an author's language, with the author's rights
    "host/cli/toolhold/src/connect/mod.rs", // the command of an MCP client, which the user has seen
    "host/core/builtins/build.rs",     // compiles the built-in plugins, while Toolhold is built
    "host/sandbox/system/src/confine/run.rs", // becomes the program, once it is confined
    "host/sandbox/net/src/program.rs", // the operator's program that prints a secret, with the operator's rights
    "host/sandbox/system/src/process/helper.rs", // the helpers: one compiles, the other confines itself and starts a program
];

/// The files that use the network.
const CONNECTS: [&str; 4] = [
    "host/sandbox/net/src/programs/pair.rs", // both ends of a connection in this process
    "host/sandbox/net/src/requests/",        // checks every address before its client connects
    "host/sandbox/system/src/confine/raw.rs", // a socket without a connection, which enables the loopback interface
    "host/sandbox/net/src/connect.rs",        // checks every address before it connects
];

/// The files that read untrusted text: all others pass it on with its mark.
const READS_UNTRUSTED: [&str; 3] = [
    "host/contract/src/output.rs", // makes a marked part of an answer of it
    "host/contract/src/untrusted.rs", // its type
    "host/mcp/client/src/reason.rs", // shows a person what a server said
];

/// The client of Toolhold's own requests.
const CLIENT: &str = "reqwest";

/// Crates of the engine.
const ENGINE: [&str; 3] = ["wasmtime", "cranelift", "pulley"];

/// The files that may contain `unsafe`.
pub(super) const UNSAFE_FILES: [&str; 5] = [
    "host/sandbox/system/src/confine/raw.rs", // forks a process with one thread, and makes system calls that no crate offers
    "host/runtime/compiler/src/compiled.rs",  // maps compiled code
    "host/core/builtins/src/lib.rs", // promises that the built-in code comes from the compiler
    "tests/guests/hostile-http/src/lib.rs", // searches all of its memory for secrets
    "tests/guests/hostile/src/words.rs", // attacks the host with text that isn't UTF-8
];

pub(crate) fn some_crates_never_reach_others(tree: &Tree) -> Vec<Violation> {
    let crates: BTreeMap<String, (&File, Vec<Dependency>)> = tree
        .manifests(&["host/"])
        .map(|(file, manifest)| {
            let name = manifest.string("package", "name").unwrap_or_default();
            (name, (file, manifest.dependencies()))
        })
        .collect();
    let mut found = Vec::new();
    for (from, to) in NEVER {
        let Some((file, dependencies)) = crates.get(from) else { continue };
        for dependency in dependencies {
            if dependency.name == to || reaches(&crates, &dependency.name, to) {
                let message = format!("`{from}` must never reach `{to}` (NEVER in places.rs)");
                found.push(at(file, dependency.line, message));
            }
        }
    }
    found
}

/// Whether a crate depends on another one, directly or through others.
fn reaches(crates: &BTreeMap<String, (&File, Vec<Dependency>)>, from: &str, to: &str) -> bool {
    let mut open = vec![from];
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if !seen.insert(name) {
            continue;
        }
        let Some((_, dependencies)) = crates.get(name) else { continue };
        for dependency in dependencies.iter().filter(|dependency| !dependency.dev) {
            if dependency.name == to {
                return true;
            }
            open.push(&dependency.name);
        }
    }
    false
}

pub(crate) fn folders_of_crates_are_layers(tree: &Tree) -> Vec<Violation> {
    let layers: BTreeMap<String, usize> = tree
        .manifests(&["host/"])
        .filter_map(|(file, manifest)| Some((manifest.string("package", "name")?, layer(file)?)))
        .collect();
    let mut found = Vec::new();
    for (file, manifest) in tree.manifests(&["host/"]) {
        let Some(own) = layer(file) else { continue };
        for dependency in manifest.dependencies() {
            if let Some(other) = layers.get(&dependency.name).filter(|other| **other > own) {
                let message = format!(
                    "host/{} is below host/{}, so it can't depend on `{}` (LAYERS in places.rs)",
                    LAYERS[own], LAYERS[*other], dependency.name
                );
                found.push(at(file, dependency.line, message));
            }
        }
    }
    found
}

fn layer(file: &File) -> Option<usize> {
    let folder = file.path.strip_prefix("host/")?.split('/').next()?;
    LAYERS.iter().position(|layer| *layer == folder)
}

pub(crate) fn only_the_runtime_names_the_engine(tree: &Tree) -> Vec<Violation> {
    let advice = "only host/runtime may use the engine: add a type to toolhold-engine that offers what you need";
    let mut found = Vec::new();
    for (file, manifest) in tree
        .manifests(&["host/", "tests/", "plugins/", "xtask/"])
        .filter(|(file, _)| !file.path.starts_with("host/runtime/"))
    {
        for dependency in manifest.dependencies() {
            if ENGINE.iter().any(|engine| dependency.name.starts_with(engine)) {
                found.push(at(
                    file,
                    dependency.line,
                    format!("depends on `{}`: {advice}", dependency.name),
                ));
            }
        }
    }
    for (file, source) in tree
        .rust(&["host/", "tests/", "plugins/", "xtask/"])
        .filter(|(file, _)| !file.path.starts_with("host/runtime/"))
    {
        for (line, path) in source.paths() {
            let first = path.split("::").next().unwrap_or_default();
            if ENGINE.iter().any(|engine| {
                first == *engine
                    || first.strip_prefix(engine).is_some_and(|rest| rest.starts_with('_'))
            }) {
                found.push(at(file, line, format!("uses `{path}`: {advice}")));
            }
        }
    }
    found
}

pub(crate) fn only_requests_depends_on_the_client(tree: &Tree) -> Vec<Violation> {
    let advice = "only host/sandbox/net/src/requests may use this client: send requests by its `OutboundClient`";
    let mut found = Vec::new();
    for (file, manifest) in tree
        .manifests(&["host/", "tests/", "xtask/"])
        .filter(|(file, _)| !file.path.starts_with("host/sandbox/net/"))
    {
        for dependency in manifest.dependencies() {
            if dependency.name == CLIENT {
                let message = format!("depends on `{CLIENT}`: {advice}");
                found.push(at(file, dependency.line, message));
            }
        }
    }
    found
}

pub(crate) fn contract_and_policy_do_no_io(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in tree.manifests(&WITHOUT_IO) {
        for dependency in manifest.dependencies() {
            if dependency.dev || PURE.contains(&dependency.name.as_str()) {
                continue;
            }
            let advice = "may do I/O: check that it doesn't, then add it to PURE in xtask/src/tidy/places.rs";
            found.push(at(file, dependency.line, format!("`{}` {advice}", dependency.name)));
        }
    }
    for (file, source) in tree.rust(&WITHOUT_IO) {
        let advice = "this crate does no I/O: take the result as a parameter";
        for (line, path) in source.paths().into_iter().filter(|(line, _)| !file.is_test(*line)) {
            if !HANDLES.contains(&path.as_str()) && does_io(&path) {
                found.push(at(file, line, format!("`{path}`: {advice}")));
            }
        }
        found.extend(
            lines_with(file, &source.code, &IO_METHODS)
                .map(|(line, what)| at(file, line, format!("`{what}`: {advice}"))),
        );
    }
    found
}

/// Whether a path is one of [`IO_PATHS`], or an item in one of them.
fn does_io(path: &str) -> bool {
    IO_PATHS.iter().any(|io_path| {
        let rest = path.strip_prefix(io_path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

pub(crate) fn one_place_creates_stores(tree: &Tree) -> Vec<Violation> {
    only_one_file(tree, &["Store::new(", "Store::<"], "host/runtime/engine/", "creates a store")
}

pub(crate) fn one_place_starts_processes(tree: &Tree) -> Vec<Violation> {
    let advice = "use host/sandbox/system/src/process, which confines what it starts";
    only_in(tree, &["Command::new("], &STARTS_PROCESSES, advice)
}

pub(crate) fn one_place_connects_to_the_network(tree: &Tree) -> Vec<Violation> {
    let advice = "use host/sandbox/net for requests of plugins and host/sandbox/net/src/requests for Toolhold's own: they check every address";
    only_in(
        tree,
        &[
            "TcpStream::connect",
            "UdpSocket::bind(",
            "lookup_host(",
            "to_socket_addrs(",
            "reqwest::",
        ],
        &CONNECTS,
        advice,
    )
}

pub(crate) fn untrusted_text_is_read_in_listed_files(tree: &Tree) -> Vec<Violation> {
    let advice =
        "untrusted text gets into a message without a fence: pass it on as `Content::untrusted`";
    only_in(tree, &[".read_untrusted("], &READS_UNTRUSTED, advice)
}

pub(crate) fn granted_paths_are_opened_in_the_path_layer(tree: &Tree) -> Vec<Violation> {
    let advice =
        "only the path layer opens paths of guests: use a function of toolhold-system's `files`";
    only_in(tree, &["openat(", "openat2("], &OPEN_BENEATH, advice)
}

pub(crate) fn ungranted_paths_are_opened_in_listed_files(tree: &Tree) -> Vec<Violation> {
    let advice = "use a directory handle; if the path belongs to Toolhold or the operator, add the file to OPEN_OWN in xtask/src/tidy/places.rs";
    only_in(tree, &PATH_CALLS, &OPEN_OWN, advice)
}

pub(crate) fn unsafe_code_is_in_listed_files(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in tree.rust(&["host/", "tests/", "plugins/", "xtask/"]) {
        if UNSAFE_FILES.contains(&file.path.as_str()) {
            continue;
        }
        for (line, text) in source.code.lines().enumerate() {
            // Ignore the attribute `#[unsafe(link_section = …)]`, with which a guest names a
            // section, because it needs no proof.
            if has_word(&text.replace("#[unsafe(", ""), "unsafe") {
                let message = format!(
                    "`unsafe` is not allowed in this file: remove it, or call {}",
                    UNSAFE_FILES[0]
                );
                found.push(at(file, line + 1, message));
            }
        }
    }
    found
}

pub(crate) fn xtask_has_no_dependencies(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in tree.manifests(&["xtask/Cargo.toml"]) {
        for dependency in manifest.dependencies() {
            let advice = "delays the first `cargo xtask` of a fresh clone: remove it";
            found.push(at(file, dependency.line, format!("`{}` {advice}", dependency.name)));
        }
    }
    found
}

/// Checks that only one file below `home` does something. Tests and build scripts may do it too.
fn only_one_file(tree: &Tree, patterns: &[&'static str], home: &str, what: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut owner = None;
    for (file, source) in
        tree.rust(&["host/"]).filter(|(file, _)| !file.path.ends_with("/build.rs"))
    {
        // This file is allowed, because parts have an engine of their own, without capabilities.
        if file.path == "host/runtime/compiler/src/parts/run.rs" {
            continue;
        }
        for (line, pattern) in lines_with(file, &source.code, patterns) {
            let first_file = *owner.get_or_insert(&file.path);
            if !file.path.starts_with(home) {
                found.push(at(
                    file,
                    line,
                    format!("`{pattern}` {what}: only one file, below {home}, may do that"),
                ));
            } else if first_file != &file.path {
                found.push(at(
                    file,
                    line,
                    format!("`{pattern}` {what}, and {first_file} already does: use that"),
                ));
            }
        }
    }
    found
}

/// Checks that only the listed files and folders of the host do something. Tests may do it too.
fn only_in(
    tree: &Tree,
    patterns: &[&'static str],
    places: &[&str],
    advice: &str,
) -> Vec<Violation> {
    let elsewhere = tree
        .rust(&["host/"])
        .filter(|(file, _)| !places.iter().any(|place| file.path.starts_with(place)));
    elsewhere
        .flat_map(|(file, source)| {
            lines_with(file, &source.code, patterns)
                .map(move |(line, pattern)| at(file, line, format!("`{pattern}…`: {advice}")))
        })
        .collect()
}

/// The lines outside tests that contain one of the patterns at the start of a word.
fn lines_with<'a>(
    file: &'a File,
    code: &'a str,
    patterns: &'a [&'static str],
) -> impl Iterator<Item = (usize, &'static str)> {
    let lines = code.lines().enumerate().map(|(number, text)| (number + 1, text));
    lines.filter(|(line, _)| !file.is_test(*line)).flat_map(move |(line, text)| {
        patterns
            .iter()
            .filter(move |pattern| starts_a_word(text, pattern))
            .map(move |pattern| (line, *pattern))
    })
}

fn starts_a_word(text: &str, pattern: &str) -> bool {
    text.match_indices(pattern)
        .any(|(at, _)| pattern.starts_with('.') || !text[..at].ends_with(is_word))
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
