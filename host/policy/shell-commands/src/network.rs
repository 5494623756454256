//! Decides whether a command needs the network.

use super::expand::Program;
use super::options::subcommand;
use super::risk::{has_word, takes};
use super::word::Word;

/// Programs that always need the network.
const NETWORK: &[&str] = &[
    "aria2c",
    "aws",
    "axel",
    "az",
    "curl",
    "dig",
    "ftp",
    "gcloud",
    "gh",
    "host",
    "http",
    "https",
    "httpie",
    "lftp",
    "lynx",
    "mosh",
    "mtr",
    "nc",
    "ncat",
    "netcat",
    "nmap",
    "nslookup",
    "ping",
    "ping6",
    "pnpx",
    "rclone",
    "scp",
    "sftp",
    "socat",
    "ssh",
    "ssh-copy-id",
    "telnet",
    "tracepath",
    "traceroute",
    "uvx",
    "wget",
    "whois",
    "xh",
    "yt-dlp",
];

/// Programs that need the network for certain commands of theirs: the first argument that isn't an
/// option. Later ones are names, such as that of a test.
const NETWORK_FOR: &[(&[&str], &[&str])] = &[
    (&["git"], &["clone", "fetch", "pull", "push", "ls-remote"]),
    (
        &["npm", "pnpm", "yarn", "bun"],
        &[
            "install", "i", "ci", "add", "update", "upgrade", "publish", "view", "info", "audit",
            "outdated", "login", "dlx", "create", "search",
        ],
    ),
    (
        &["cargo"],
        &["fetch", "install", "publish", "add", "update", "search", "login", "yank", "binstall"],
    ),
    (&["go"], &["get", "install"]),
    (&["pipx"], &["run"]),
    (&["docker", "podman", "nerdctl"], &["run", "create", "search"]),
    (&["docker-compose"], &["up", "run", "create"]),
];

/// Programs that start a package of a registry, with the commands that do so. Many of these
/// packages are installed in the project, so only those are known to be fetched that a person
/// wouldn't install, or that have a version.
const PACKAGE_RUNNERS: &[(&[&str], &[&str])] =
    &[(&["npx", "bunx"], &[]), (&["npm"], &["exec", "x"]), (&["bun"], &["x"])];

/// Programs that need the network with certain arguments.
const NETWORK_WITH: &[(&[&str], &[&str])] = &[
    (
        &["pip", "pip3", "pipx", "conda", "mamba", "gem", "bundle", "composer"],
        &["install", "download", "update", "upgrade", "search", "require"],
    ),
    (&["uv", "poetry", "pdm", "pipenv"], &["install", "add", "sync", "lock", "update", "publish"]),
    (&["rustup"], &["install", "update", "add"]),
    (
        &["apt", "apt-get", "dnf", "yum", "apk", "brew", "pacman", "snap", "zypper"],
        &[
            "install",
            "update",
            "upgrade",
            "add",
            "search",
            "dist-upgrade",
            "download",
            "-S",
            "-Sy",
            "-Syu",
        ],
    ),
    (&["docker", "podman", "nerdctl"], &["pull", "push", "login", "build"]),
    (&["docker-compose"], &["pull", "push", "build"]),
    (
        &["helm", "kubectl"],
        &[
            "apply",
            "create",
            "delete",
            "dependency",
            "describe",
            "exec",
            "get",
            "install",
            "logs",
            "pull",
            "push",
            "repo",
            "rollback",
            "rollout",
            "uninstall",
            "upgrade",
        ],
    ),
    (&["terraform", "tofu"], &["init", "apply", "destroy"]),
    (&["mvn", "mvnw", "gradle", "gradlew"], &["deploy", "publish", "dependency:go-offline"]),
];

/// Checks whether a program with its arguments is known to need the network.
pub(super) fn needs_network(program: &Program) -> bool {
    let Program { name, arguments, .. } = program;
    let command = subcommand(name, arguments).map(|at| arguments[at].text.as_str());
    NETWORK.contains(&name.as_str())
        || NETWORK_FOR.iter().any(|(programs, commands)| {
            programs.contains(&name.as_str()) && command.is_some_and(|it| commands.contains(&it))
        })
        || fetched_package(name, arguments)
        || ["docker", "podman", "nerdctl"].contains(&name.as_str())
            && command.is_some_and(|it| ["compose", "container"].contains(&it))
            && takes(arguments, &["up", "run", "create"])
        || NETWORK_WITH
            .iter()
            .any(|(programs, words)| programs.contains(&name.as_str()) && takes(arguments, words))
        || name == "yarn" && arguments.is_empty()
        || name == "rsync"
            && arguments.iter().any(|word| !word.text.starts_with('-') && is_remote(word))
        || name == "git"
            && (has_word(arguments, "submodule")
                && (has_word(arguments, "update") || has_word(arguments, "add"))
                || has_word(arguments, "remote") && has_word(arguments, "update"))
        || name == "go"
            && has_word(arguments, "mod")
            && (has_word(arguments, "download") || has_word(arguments, "tidy"))
        || name.starts_with("python")
            && has_word(arguments, "-m")
            && has_word(arguments, "pip")
            && (has_word(arguments, "install") || has_word(arguments, "download"))
        || arguments.iter().any(|word| is_socket(&word.text))
}

/// Checks whether a word is an address, or a path on another machine.
fn is_remote(word: &Word) -> bool {
    word.text.contains("://")
        || word
            .text
            .split_once(':')
            .is_some_and(|(host, _)| !host.is_empty() && !host.contains('/'))
}

/// Checks whether a program starts a package that it fetches: `npx create-app`, `npm exec --
/// tool@2`.
fn fetched_package(name: &str, arguments: &[Word]) -> bool {
    let Some((_, commands)) = PACKAGE_RUNNERS.iter().find(|(names, _)| names.contains(&name))
    else {
        return false;
    };
    let arguments = match subcommand(name, arguments).map(|at| (at, arguments[at].text.as_str())) {
        _ if commands.is_empty() => arguments,
        Some((at, command)) if commands.contains(&command) => &arguments[at + 1..],
        _ => return false,
    };
    // Its own options come before the package.
    let mut own = arguments
        .iter()
        .take_while(|word| word.text.starts_with('-'))
        .map(|word| word.text.as_str());
    let package = arguments.iter().find(|word| !word.text.starts_with('-'));
    own.any(|word| {
        let option = word.split_once('=').map_or(word, |(option, _)| option);
        ["-y", "--yes", "-p", "--package"].contains(&option)
    }) || package.is_some_and(|package| {
        // `@scope/name@version`
        let name = package.text.rsplit('/').next().unwrap_or_default();
        name.starts_with("create-") || name.contains('@') || package.text.contains(':')
    })
}

/// Checks whether a shell opens a network connection for this path.
pub(super) fn is_socket(path: &str) -> bool {
    path.contains("/dev/tcp/") || path.contains("/dev/udp/")
}
