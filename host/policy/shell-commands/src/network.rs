//! Decides whether a command needs the network.

use super::expand::Program;
use super::options::subcommand;
use super::risk::{has_any_word, has_word};
use super::word::Word;

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

/// Programs that need the network for some subcommands. The subcommand is the first argument that
/// isn't an option, because a later argument may be another name, such as the name of a test.
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

/// Programs that start a package, and their subcommands for this. Many packages are already
/// installed in the project. A package is certainly fetched if it has a version, or if people don't
/// usually install it.
const PACKAGE_RUNNERS: &[(&[&str], &[&str])] =
    &[(&["npx", "bunx"], &[]), (&["npm"], &["exec", "x"]), (&["bun"], &["x"])];

/// Programs that need the network if any argument is one of these words.
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

pub(super) fn needs_network(program: &Program) -> bool {
    let name = program.name.as_str();
    let arguments = program.arguments.as_slice();
    let command = subcommand(name, arguments).map(|index| arguments[index].text.as_str());
    let has_listed_command = NETWORK_FOR.iter().any(|(programs, commands)| {
        programs.contains(&name) && command.is_some_and(|command| commands.contains(&command))
    });
    let has_listed_argument = NETWORK_WITH
        .iter()
        .any(|(programs, words)| programs.contains(&name) && has_any_word(arguments, words));
    if NETWORK.contains(&name) || has_listed_command || has_listed_argument {
        return true;
    }
    let has_socket = arguments.iter().any(|word| is_socket(&word.text));
    has_socket
        || fetches_package(name, arguments)
        || has_network_arguments(name, command, arguments)
}

/// Checks rules that the lists of programs and arguments can't express. `command` is the
/// subcommand.
fn has_network_arguments(name: &str, command: Option<&str>, arguments: &[Word]) -> bool {
    match name {
        "docker" | "podman" | "nerdctl" => {
            matches!(command, Some("compose" | "container"))
                && has_any_word(arguments, &["up", "run", "create"])
        }
        // `yarn` alone installs packages.
        "yarn" => arguments.is_empty(),
        "rsync" => arguments.iter().any(|word| !word.text.starts_with('-') && is_remote(word)),
        "git"
            if has_word(arguments, "submodule") && has_any_word(arguments, &["update", "add"]) =>
        {
            true
        }
        "git" => has_word(arguments, "remote") && has_word(arguments, "update"),
        "go" => has_word(arguments, "mod") && has_any_word(arguments, &["download", "tidy"]),
        _ if name.starts_with("python") => {
            has_word(arguments, "-m")
                && has_word(arguments, "pip")
                && has_any_word(arguments, &["install", "download"])
        }
        _ => false,
    }
}

/// Checks whether a word is a URL, or a path on another machine.
fn is_remote(word: &Word) -> bool {
    if word.text.contains("://") {
        return true;
    }
    let Some((host, _)) = word.text.split_once(':') else { return false };
    !host.is_empty() && !host.contains('/')
}

/// Returns the arguments after the subcommand that starts a package.
fn package_arguments<'w>(name: &str, arguments: &'w [Word]) -> Option<&'w [Word]> {
    let (_, commands) = PACKAGE_RUNNERS.iter().find(|(names, _)| names.contains(&name))?;
    // A program without listed subcommands always starts a package.
    if commands.is_empty() {
        return Some(arguments);
    }
    let command_index = subcommand(name, arguments)?;
    if !commands.contains(&arguments[command_index].text.as_str()) {
        return None;
    }
    Some(&arguments[command_index + 1..])
}

/// Checks whether a program starts a package that it fetches. Examples are `npx create-app` and
/// `npm exec -- tool@2`.
fn fetches_package(name: &str, arguments: &[Word]) -> bool {
    let Some(arguments) = package_arguments(name, arguments) else { return false };
    let mut options = arguments.iter().take_while(|word| word.text.starts_with('-'));
    let may_install = options.any(|word| {
        let option = word.text.split('=').next().unwrap_or_default();
        ["-y", "--yes", "-p", "--package"].contains(&option)
    });
    if may_install {
        return true;
    }
    let Some(package) = arguments.iter().find(|word| !word.text.starts_with('-')) else {
        return false;
    };
    // These packages are usually fetched: `create-app`, `@scope/name@version`, `github:owner/name`.
    let package_name = package.text.rsplit('/').next().unwrap_or_default();
    package_name.starts_with("create-") || package_name.contains('@') || package.text.contains(':')
}

pub(super) fn is_socket(path: &str) -> bool {
    path.contains("/dev/tcp/") || path.contains("/dev/udp/")
}
