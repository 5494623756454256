//! Whether a command needs the network.

use super::expand::Program;
use super::options::subcommand;
use super::risk::takes;
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
];

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
    (&["docker", "podman"], &["pull", "push", "login", "build"]),
    (&["helm", "kubectl"], &["apply", "get", "install", "pull", "repo", "delete", "exec", "logs"]),
    (&["terraform", "tofu"], &["init", "apply", "destroy"]),
    (&["mvn", "mvnw", "gradle", "gradlew"], &["deploy", "publish", "dependency:go-offline"]),
];

/// Whether a program with its arguments is known to need the network.
pub(super) fn needs_network(program: &Program) -> bool {
    let Program { name, arguments, .. } = program;
    let has = |word: &str| arguments.iter().any(|argument| argument.text == word);
    let remote = |word: &Word| {
        word.text.contains("://")
            || word
                .text
                .split_once(':')
                .is_some_and(|(host, _)| !host.is_empty() && !host.contains('/'))
    };
    let command = subcommand(name, arguments).map(|at| arguments[at].text.as_str());
    // Its own options come before the program that it runs.
    let own = arguments.iter().take_while(|word| word.text.starts_with('-'));
    NETWORK.contains(&name.as_str())
        || NETWORK_FOR.iter().any(|(programs, commands)| {
            programs.contains(&name.as_str()) && command.is_some_and(|it| commands.contains(&it))
        })
        || name == "npx"
            && own
                .into_iter()
                .any(|word| ["-y", "--yes", "-p", "--package"].contains(&word.text.as_str()))
        || NETWORK_WITH
            .iter()
            .any(|(programs, words)| programs.contains(&name.as_str()) && takes(arguments, words))
        || name == "yarn" && arguments.is_empty()
        || name == "rsync"
            && arguments.iter().any(|word| !word.text.starts_with('-') && remote(word))
        || name == "git"
            && (has("submodule") && (has("update") || has("add")) || has("remote") && has("update"))
        || name == "go" && has("mod") && (has("download") || has("tidy"))
        || name.starts_with("python")
            && has("-m")
            && has("pip")
            && (has("install") || has("download"))
        || arguments.iter().any(|word| is_socket(&word.text))
}

/// Whether a shell opens a network connection for this path.
pub(super) fn is_socket(path: &str) -> bool {
    path.contains("/dev/tcp/") || path.contains("/dev/udp/")
}
