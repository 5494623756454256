//! Rules about what may stand where: which crate knows what, and which file alone may do something.

use super::tree::{File, Tree};
use super::{Violation, at};

/// The crates from the bottom up, each with those that it depends on.
const EDGES: &[(&str, &[&str])] = &[
    ("berth-contract", &[]),
    ("berth-commands", &["berth-contract"]),
    ("berth-redaction", &["berth-contract"]),
    ("berth-policy", &["berth-commands", "berth-contract"]),
    ("berth-egress", &["berth-contract", "berth-policy", "berth-redaction"]),
    ("berth-system", &["berth-contract", "berth-policy"]),
    ("berth-search", &["berth-contract", "berth-policy", "berth-system"]),
    (
        "berth-config",
        &["berth-contract", "berth-redaction", "berth-policy", "berth-egress", "berth-system"],
    ),
    (
        "berth-runtime",
        &[
            "berth-contract",
            "berth-redaction",
            "berth-policy",
            "berth-egress",
            "berth-system",
            "berth-search",
        ],
    ),
    (
        "berth-catalogue",
        &[
            "berth-contract",
            "berth-policy",
            "berth-egress",
            "berth-system",
            "berth-config",
            "berth-runtime",
        ],
    ),
    (
        "berth-answers",
        &[
            "berth-contract",
            "berth-redaction",
            "berth-policy",
            "berth-system",
            "berth-config",
            "berth-catalogue",
        ],
    ),
    (
        "berth-audit",
        &["berth-contract", "berth-redaction", "berth-policy", "berth-system", "berth-config"],
    ),
    (
        "berth-core",
        &[
            "berth-contract",
            "berth-policy",
            "berth-egress",
            "berth-system",
            "berth-config",
            "berth-runtime",
            "berth-catalogue",
            "berth-answers",
            "berth-audit",
        ],
    ),
    ("berth-mcp", &["berth-core"]),
    ("berth-cli", &["berth-core", "berth-mcp"]),
];

/// What the crates without I/O may depend on: crates that were looked at and do none either.
const PURE: [&str; 16] = [
    "berth-commands",
    "berth-contract",
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

const WITHOUT_IO: [&str; 4] =
    ["host/commands/", "host/contract/", "host/policy/", "host/redaction/"];

/// Paths that lead to the outside.
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

/// Methods of `Path` that ask the file system.
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

/// The files that open by handle what a guest named: one decides on a single path, the other enters
/// the folders of a search.
const OPEN_BENEATH: [&str; 6] = [
    "host/system/src/confine/view.rs", // the root directory of a program, and what is put there
    "host/system/src/files/kernel.rs",
    "host/system/src/files/open.rs",
    "host/system/src/process/pinned.rs", // what stands in a granted directory while a command runs
    "host/system/src/process/sockets.rs", // the granted directories, in which sockets are looked for
    "host/search/src/directory.rs",
];

/// The files that open paths of their own, and whose those are. A front end's paths are its user's.
const OPEN_OWN: [&str; 19] = [
    "host/cli/",                            // what the user names on the command line
    "host/core/src/approvals/outdated.rs", // the file of a question, for the person who looks at it
    "host/config/",                        // the configuration, and the folders that it names
    "host/core/src/builder.rs",            // the working directory
    "host/core/src/doctor/folders.rs",     // Berth's own folders behind links
    "host/catalogue/src/plugins/folder.rs", // components that the operator names
    "host/mcp/src/http/connections.rs",    // the socket that the operator names
    "host/mcp/src/http/keys.rs",           // the keys that the operator names
    "host/runtime/src/load.rs",            // components that the operator names
    "host/egress/src/secrets.rs",          // the files of secrets that the operator names
    "host/system/src/confine/",            // /proc, and the trees that a program gets
    "host/system/src/files/grants.rs",     // the granted directories, once
    "host/system/src/files/kernel.rs",     // /proc
    "host/system/src/mounts.rs",           // the table of mounts
    "host/system/src/machine/", // /proc and /sys, and Berth's own folders, which are looked at
    "host/system/src/processes.rs", // /proc
    "host/system/src/process/", // /proc, and what lies in the granted directories and is denied
    "host/system/src/private.rs", // the folders of the cache and of what is kept
    "host/search/src/directory.rs", // /proc
];

/// How a path is opened, looked at or changed without a handle to begin from.
const OWN: [&str; 21] = [
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
pub(super) const STARTS_PROCESSES: [&str; 4] = [
    "host/cli/build.rs", // compiles the built-in plugins, while Berth is built
    "host/system/src/confine/run.rs", // becomes the program, once it is confined
    "host/egress/src/program.rs", // the operator's own, which prints a secret: it has the operator's rights
    "host/system/src/process/helper.rs", // the helpers: one compiles, the other becomes a program
];

/// The files that reach for the network.
const CONNECTS: [&str; 3] = [
    "host/mcp/src/http/keys.rs", // asks for the keys that the operator names
    "host/system/src/confine/raw.rs", // a socket that goes nowhere: the loopback interface is switched on through it
    "host/egress/src/connect.rs",     // the way out: looks at every address before it connects
];

/// Crates of the engine.
const ENGINE: [&str; 3] = ["wasmtime", "cranelift", "pulley"];

/// The files that may contain `unsafe`.
pub(super) const UNSAFE_FILES: [&str; 5] = [
    "host/system/src/confine/raw.rs", // splits a process with one thread, and asks the kernel for what no crate does
    "host/runtime/src/compiled.rs",   // maps compiled code
    "host/cli/src/builtins.rs",       // promises that the built-in code is the compiler's
    "plugins/hostile-http/src/lib.rs", // looks through all of its memory
    "plugins/hostile/src/words.rs",   // attacks the host with text that isn't UTF-8
];

pub(crate) fn dependencies_point_one_way(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in tree.manifests(&["host/"]) {
        let name = manifest.string("package", "name").unwrap_or_default();
        let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
            found.push(at(file, 1, format!("`{name}` has no place among the crates: give it one in xtask/src/tidy/places.rs")));
            continue;
        };
        let dependencies = manifest.dependencies();
        for dependency in
            dependencies.iter().filter(|dependency| dependency.name.starts_with("berth-"))
        {
            if !allowed.contains(&&*dependency.name) {
                let advice = "the table in xtask/src/tidy/places.rs has the edges between crates";
                found.push(at(
                    file,
                    dependency.line,
                    format!("`{name}` may not depend on `{}`: {advice}", dependency.name),
                ));
            }
        }
        for edge in allowed
            .iter()
            .filter(|edge| dependencies.iter().all(|dependency| dependency.name != **edge))
        {
            let advice = "take the edge out of the table in xtask/src/tidy/places.rs";
            found.push(at(
                file,
                1,
                format!("`{name}` doesn't depend on `{edge}` any more: {advice}"),
            ));
        }
    }
    found
}

pub(crate) fn only_the_runtime_names_the_engine(tree: &Tree) -> Vec<Violation> {
    let outside = |file: &File| !file.path.starts_with("host/runtime/");
    let advice =
        "only host/runtime knows the engine: offer what is needed as a type of berth-runtime";
    let mut found = Vec::new();
    for (file, manifest) in
        tree.manifests(&["host/", "tests/", "plugins/", "xtask/"]).filter(|(file, _)| outside(file))
    {
        for dependency in manifest.dependencies() {
            if ENGINE.iter().any(|engine| dependency.name.starts_with(engine)) {
                found.push(at(
                    file,
                    dependency.line,
                    format!("depends on `{}`; {advice}", dependency.name),
                ));
            }
        }
    }
    for (file, source) in
        tree.rust(&["host/", "tests/", "plugins/", "xtask/"]).filter(|(file, _)| outside(file))
    {
        for (line, path) in source.paths() {
            let first = path.split("::").next().unwrap_or_default();
            if ENGINE.iter().any(|engine| {
                first == *engine
                    || first.strip_prefix(engine).is_some_and(|rest| rest.starts_with('_'))
            }) {
                found.push(at(file, line, format!("names `{path}`; {advice}")));
            }
        }
    }
    found
}

pub(crate) fn contract_and_policy_do_no_io(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in tree.manifests(&WITHOUT_IO) {
        for dependency in manifest
            .dependencies()
            .iter()
            .filter(|dependency| !dependency.dev && !PURE.contains(&&*dependency.name))
        {
            let advice = "is not known to do no I/O: look at it, then add it to PURE in xtask/src/tidy/places.rs";
            found.push(at(file, dependency.line, format!("`{}` {advice}", dependency.name)));
        }
    }
    for (file, source) in tree.rust(&WITHOUT_IO) {
        let advice = "this crate does no I/O: take what was found out as a parameter";
        for (line, path) in source.paths().into_iter().filter(|(line, _)| !file.is_test(*line)) {
            if IO_PATHS.iter().any(|io| {
                path == *io || path.strip_prefix(io).is_some_and(|rest| rest.starts_with("::"))
            }) {
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

pub(crate) fn one_place_creates_stores(tree: &Tree) -> Vec<Violation> {
    only_one_file(tree, &["Store::new(", "Store::<"], "host/runtime/", "creates a store")
}

pub(crate) fn one_place_starts_processes(tree: &Tree) -> Vec<Violation> {
    let advice = "go through host/system/src/process, which confines what it starts";
    only_in(tree, &["Command::new("], &STARTS_PROCESSES, advice)
}

pub(crate) fn one_place_reaches_for_the_network(tree: &Tree) -> Vec<Violation> {
    let advice = "go through host/egress, which looks at every address";
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

pub(crate) fn granted_paths_are_opened_in_the_path_layer(tree: &Tree) -> Vec<Violation> {
    let advice =
        "what a guest names is opened by the path layer: use a function of berth-system's `files`";
    only_in(tree, &["openat(", "openat2("], &OPEN_BENEATH, advice)
}

pub(crate) fn other_paths_are_opened_where_it_is_known_whose_they_are(
    tree: &Tree,
) -> Vec<Violation> {
    let advice = "take a handle; or, if the path is Berth's or the operator's own, add the file to OPEN_OWN in xtask/src/tidy/places.rs";
    only_in(tree, &OWN, &OPEN_OWN, advice)
}

pub(crate) fn unsafe_stands_only_where_compiled_code_is_mapped(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in tree.rust(&["host/", "tests/", "plugins/", "xtask/"]) {
        if UNSAFE_FILES.contains(&&*file.path) {
            continue;
        }
        for (line, text) in source.code.lines().enumerate() {
            // `#[unsafe(link_section = …)]` is how a guest names a section: an attribute that needs
            // no proof.
            if has_word(&text.replace("#[unsafe(", ""), "unsafe") {
                let message =
                    format!("`unsafe` may not stand here: do without, or call {}", UNSAFE_FILES[0]);
                found.push(at(file, line + 1, message));
            }
        }
    }
    found
}

pub(crate) fn chores_have_no_dependencies(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in tree.manifests(&["xtask/"]) {
        for dependency in manifest.dependencies() {
            let advice = "makes the first `cargo xtask` of a fresh clone wait: do without";
            found.push(at(file, dependency.line, format!("`{}` {advice}", dependency.name)));
        }
    }
    found
}

/// Something that a single file below `home` may do, wherever in it. Tests may do it too, and what
/// runs when Berth is built.
fn only_one_file(tree: &Tree, patterns: &[&'static str], home: &str, what: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut the_one = None;
    for (file, source) in
        tree.rust(&["host/"]).filter(|(file, _)| !file.path.ends_with("/build.rs"))
    {
        for (line, pattern) in lines_with(file, &source.code, patterns) {
            let one = *the_one.get_or_insert(&file.path);
            if !file.path.starts_with(home) {
                found.push(at(
                    file,
                    line,
                    format!("`{pattern}` {what}: only one file, below {home}, may"),
                ));
            } else if one != &file.path {
                found.push(at(
                    file,
                    line,
                    format!("`{pattern}` {what}, and {one} does already: go through that"),
                ));
            }
        }
    }
    found
}

/// Something that only the listed files and folders of the host may do. Tests may do it too.
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

/// The lines outside tests that contain one of the patterns, each beginning where a word begins.
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
