//! Decides the risk of a command, and whether it can be undone.

use super::code;
use super::expand::Program;
use super::grammar::{Redirect, is_harmless};
use super::options::subcommand;
use super::programs::Typescript;
use super::word::Word;

/// The risk of a command, in increasing order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// No known risk.
    #[default]
    Low,
    /// A risk for the project: its files, its history or its dependencies.
    Medium,
    /// A risk for the machine, its users and permissions, or another system.
    High,
}

impl Risk {
    /// Returns the name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

const HIGH: &[&str] = &[
    "addgroup",
    "adduser",
    "blkdiscard",
    "cfdisk",
    "chattr",
    "chfn",
    "chgrp",
    "chmod",
    "chown",
    "chpasswd",
    "chsh",
    "crontab",
    "cryptsetup",
    "curl",
    "dd",
    "debugfs",
    "delgroup",
    "deluser",
    "doas",
    "e2fsck",
    "ebtables",
    "efibootmgr",
    "fdisk",
    "firewall-cmd",
    "fsck",
    "ftp",
    "gdisk",
    "gpasswd",
    "groupadd",
    "groupdel",
    "grub-install",
    "halt",
    "hdparm",
    "init",
    "initctl",
    "insmod",
    "ip6tables",
    "iptables",
    "iptables-restore",
    "kexec",
    "losetup",
    "lvremove",
    "mdadm",
    "mkdosfs",
    "mke2fs",
    "mkntfs",
    "mkswap",
    "modprobe",
    "mount",
    "nc",
    "ncat",
    "netcat",
    "newusers",
    "nft",
    "nvme",
    "parted",
    "passwd",
    "pivot_root",
    "pkexec",
    "poweroff",
    "pvremove",
    "rc-service",
    "rc-update",
    "reboot",
    "resize2fs",
    "rm",
    "rmmod",
    "rtcwake",
    "run0",
    "scp",
    "setcap",
    "setenforce",
    "setfacl",
    "setfattr",
    "sfdisk",
    "sftp",
    "sgdisk",
    "shred",
    "shutdown",
    "ssh",
    "su",
    "sudo",
    "swapoff",
    "swapon",
    "systemctl",
    "telinit",
    "telnet",
    "tune2fs",
    "ufw",
    "umount",
    "update-grub",
    "update-rc.d",
    "useradd",
    "userdel",
    "usermod",
    "vgremove",
    "vipw",
    "visudo",
    "wget",
    "wipefs",
    "xfs_repair",
    "zpool",
];

/// Clients of databases and clusters. A deletion with these clients is high risk, because the data
/// is usually on another machine and has no copy on this machine.
const REMOTE_CLIENTS: &[&str] = &[
    "clickhouse-client",
    "cockroach",
    "dropdb",
    "duckdb",
    "kubectl",
    "mariadb",
    "mongo",
    "mongosh",
    "mysql",
    "cqlsh",
    "etcdctl",
    "mysqladmin",
    "psql",
    "pulumi",
    "redis-cli",
    "sqlcmd",
    "sqlite3",
    "terraform",
    "tofu",
    "valkey-cli",
];

const MEDIUM: &[&str] = &[
    "cp", "install", "kill", "killall", "ln", "mkdir", "mkfifo", "mv", "patch", "pkill", "rename",
    "rmdir", "rsync", "touch", "truncate", "unlink",
];

/// Programs that are medium risk with certain arguments.
const MEDIUM_WITH: &[(&[&str], &[&str])] = &[
    (
        &["npm", "pnpm", "yarn", "bun"],
        &[
            "install",
            "i",
            "ci",
            "add",
            "remove",
            "rm",
            "uninstall",
            "update",
            "upgrade",
            "publish",
            "link",
            "exec",
            "dlx",
        ],
    ),
    (
        &["cargo"],
        &[
            "add",
            "remove",
            "rm",
            "install",
            "uninstall",
            "clean",
            "publish",
            "update",
            "fix",
            "yank",
        ],
    ),
    (
        &["pip", "pip3", "uv", "pipx", "poetry", "conda"],
        &["install", "uninstall", "download", "add", "remove", "sync", "publish", "update"],
    ),
    (&["go"], &["get", "install", "clean"]),
    (
        &["apt", "apt-get", "dnf", "yum", "apk", "brew", "pacman", "gem", "composer", "snap"],
        &["install", "add", "remove", "purge", "upgrade", "update", "uninstall", "require"],
    ),
    (&["sed", "gsed", "perl"], &["-i"]),
];

/// Git commands that change the project, its history or a remote.
const GIT: &[&str] = &[
    "am",
    "apply",
    "branch",
    "checkout",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "config",
    "filter-branch",
    "filter-repo",
    "gc",
    "init",
    "merge",
    "mv",
    "prune",
    "pull",
    "push",
    "rebase",
    "reflog",
    "reset",
    "restore",
    "revert",
    "rm",
    "stash",
    "submodule",
    "switch",
    "tag",
    "update-ref",
    "worktree",
];

/// Git commands of this list that only read with these arguments or without arguments.
const GIT_READS: &[(&str, &[&str])] = &[
    (
        "branch",
        &[
            "-a",
            "-r",
            "-v",
            "-vv",
            "--all",
            "--list",
            "-l",
            "--show-current",
            "--contains",
            "--merged",
            "--no-merged",
        ],
    ),
    ("config", &["--get", "--get-all", "--list", "-l", "--show-origin", "get", "list"]),
    ("reflog", &["show", "list", "exists"]),
    ("stash", &["list", "show"]),
    ("submodule", &["status", "summary", "foreach"]),
    ("tag", &["-l", "--list", "-n", "--contains", "--points-at"]),
    ("worktree", &["list"]),
];

/// Returns the git command in the arguments, and the arguments after the command.
fn git_command(arguments: &[Word]) -> Option<(&str, &[Word])> {
    let at = subcommand("git", arguments)?;
    Some((&arguments[at].text, &arguments[at + 1..]))
}

/// Checks whether git changes something.
fn git_changes(arguments: &[Word]) -> bool {
    let Some((command, rest)) = git_command(arguments) else { return false };
    if !GIT.contains(&command) {
        return false;
    }
    let Some((_, reading)) = GIT_READS.iter().find(|(name, _)| *name == command) else {
        return true;
    };
    match rest.first() {
        Some(first) => !reading.contains(&first.text.as_str()),
        None => command == "stash",
    }
}

/// Built-in commands of shells that only change the shell.
pub(super) const BUILT_IN: [&str; 33] = [
    ":", "[", "[[", "alias", "bg", "break", "cd", "continue", "declare", "dirs", "echo", "exit",
    "export", "false", "fg", "getopts", "jobs", "let", "local", "popd", "printf", "pushd", "pwd",
    "read", "readonly", "return", "set", "shift", "shopt", "test", "true", "unset", "wait",
];

/// Checks whether one of the arguments is one of these words.
pub(super) fn takes(arguments: &[Word], words: &[&str]) -> bool {
    // Anywhere among the arguments, because options can come first.
    arguments.iter().any(|word| words.contains(&word.text.as_str()))
}

pub(super) fn has_word(arguments: &[Word], word: &str) -> bool {
    arguments.iter().any(|argument| argument.text == word)
}

/// Checks whether the arguments contain one of these short options, alone or in a group, or one of
/// these long options.
fn has_option(arguments: &[Word], letters: &[char], long: &[&str]) -> bool {
    arguments.iter().any(|word| match word.text.strip_prefix('-') {
        Some(rest) if rest.starts_with('-') => {
            long.iter().any(|long| word.text == *long || word.text.starts_with(&format!("{long}=")))
        }
        Some(rest) => rest.contains(letters),
        None => false,
    })
}

/// Checks whether a word is a group of short options with this letter.
fn is_short(word: &Word, letter: char) -> bool {
    word.text
        .strip_prefix('-')
        .is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

/// Returns the risk of a program with its arguments.
pub(super) fn risk(program: &Program, whole: &str) -> Risk {
    if is_high_risk(program, whole) {
        Risk::High
    } else if is_medium_risk(program, whole) {
        Risk::Medium
    } else {
        Risk::Low
    }
}

fn is_high_risk(program: &Program, whole: &str) -> bool {
    let name = program.name.as_str();
    if HIGH.contains(&name) || name == "mkfs" || name.starts_with("mkfs.") {
        return true;
    }
    if REMOTE_CLIENTS.contains(&name) && destroys(program, whole).is_some() {
        return true;
    }
    changes_machine(name, &program.arguments) || code::deletes(name, &program.arguments)
}

/// Checks whether a program changes settings of the machine. With some arguments, these programs
/// only show settings.
fn changes_machine(name: &str, arguments: &[Word]) -> bool {
    match name {
        "sysctl" => arguments.iter().any(|word| {
            word.text.contains('=')
                || is_short(word, 'w')
                || is_short(word, 'p')
                || word.text == "--system"
        }),
        "service" => {
            !arguments.is_empty()
                && !takes(arguments, &["status", "--status-all", "--help", "--version"])
        }
        "date" if arguments.iter().any(|word| is_short(word, 's')) => true,
        "date" | "timedatectl" | "hostnamectl" | "localectl" => arguments
            .iter()
            .any(|word| word.text.starts_with("set-") || word.text.starts_with("--set")),
        "loginctl" => {
            takes(arguments, &["terminate-session", "terminate-user", "kill-session", "kill-user"])
        }
        _ => false,
    }
}

fn is_medium_risk(program: &Program, whole: &str) -> bool {
    let name = program.name.as_str();
    let has_listed_argument = MEDIUM_WITH
        .iter()
        .any(|(programs, words)| programs.contains(&name) && takes(&program.arguments, words));
    MEDIUM.contains(&name)
        || has_listed_argument
        || changes_project(name, &program.arguments)
        || destroys(program, whole).is_some()
}

/// Checks whether a program changes files or packages of the project. With some arguments, these
/// programs only read.
fn changes_project(name: &str, arguments: &[Word]) -> bool {
    match name {
        "git" => git_changes(arguments),
        "find" | "fd" => takes(arguments, &["-delete", "-fprint", "-fprintf", "-fls"]),
        "sed" | "gsed" | "perl" => arguments.iter().any(edits_in_place),
        "sort" | "gcc" | "cc" | "clang" => takes(arguments, &["-o", "--output"]),
        "tar" | "bsdtar" => {
            let mode = arguments.first().map(|word| word.text.trim_start_matches('-'));
            let only_lists = mode.is_some_and(|mode| mode.starts_with('t'));
            !only_lists
        }
        "tee" => {
            arguments.iter().any(|word| !word.text.starts_with('-') && !is_harmless(&word.text))
        }
        "script" => match Typescript::read(arguments) {
            Some(typescript) => typescript.files.iter().any(|file| !is_harmless(&file.text)),
            None => true,
        },
        "unzip" => !has_option(arguments, &['l', 't', 'p', 'Z'], &[]),
        "yarn" => arguments.is_empty(),
        _ if name.starts_with("python") => {
            has_word(arguments, "-m")
                && has_word(arguments, "pip")
                && takes(arguments, &["install", "uninstall"])
        }
        _ => false,
    }
}

/// Checks whether an option of `sed` or `perl` makes it change its files.
fn edits_in_place(option: &Word) -> bool {
    let text = option.text.as_str();
    let is_short_group = text.starts_with('-') && !text.starts_with("--") && text.len() < 5;
    text.starts_with("-i")
        || text.starts_with("--in-place")
        || (is_short_group && text.contains('i'))
}

/// Returns the risk of a program in a sandbox in which changes in files can be undone.
pub(super) fn risk_if_undoable(program: &Program, whole: &str) -> Risk {
    let Program { name, arguments, .. } = program;
    let only_files = match name.as_str() {
        "chmod" => true,
        "rm" => !arguments.iter().any(|word| is_whole_tree(&word.text)),
        // People rely on git's commits to restore earlier work.
        "git" if git_loses_commits(arguments) => return Risk::High,
        _ => code::deletes(name, arguments),
    };
    if only_files { Risk::Medium } else { risk(program, whole) }
}

/// Checks whether a path means all files, or the history of a repository.
fn is_whole_tree(path: &str) -> bool {
    let trimmed = path.trim_end_matches('/');
    let plain = trimmed.strip_prefix("./").unwrap_or(trimmed);
    ["", ".", "..", "*", ".*", "~", "$HOME", "$PWD"].contains(&plain)
        || plain.split('/').any(|part| part == ".git" || part == "..")
}

/// Checks whether git discards commits or stashed changes.
fn git_loses_commits(arguments: &[Word]) -> bool {
    let Some((command, rest)) = git_command(arguments) else { return false };
    match command {
        "gc" | "prune" | "filter-branch" | "filter-repo" => true,
        "stash" => takes(rest, &["drop", "clear"]),
        "reflog" => takes(rest, &["expire", "delete"]),
        // With force, a branch or a tag no longer refers to its earlier commits.
        "branch" => has_option(rest, &['D', 'M', 'C', 'f'], &["--force"]),
        "checkout" => takes(rest, &["-B"]),
        "switch" => takes(rest, &["-C", "--force-create"]),
        "tag" => has_option(rest, &['d', 'f'], &["--delete", "--force"]),
        "update-ref" | "fast-import" => true,
        "worktree" => takes(rest, &["remove", "prune"]),
        _ => false,
    }
}

/// Returns the risk of writing to a file.
pub(super) fn risk_of_writing(redirect: &Redirect) -> Risk {
    let target = redirect.target.text.as_str();
    if ["/dev/", "/proc/", "/sys/"].iter().any(|folder| target.starts_with(folder)) {
        return Risk::High;
    }
    if redirect.writes { Risk::Medium } else { Risk::Low }
}

/// Returns the effect of a program that can't be undone.
pub(super) fn destroys(program: &Program, whole: &str) -> Option<&'static str> {
    let Program { name, arguments, .. } = program;
    match name.as_str() {
        "rm" | "unlink" | "rmdir" => Some("it deletes files"),
        "shred" | "wipefs" | "mkswap" | "fdisk" | "sfdisk" | "parted" | "mke2fs" | "mkntfs"
        | "mkdosfs" | "blkdiscard" | "sgdisk" | "gdisk" => Some("it overwrites a disk or a file"),
        "dd" if arguments.iter().any(|word| word.text.starts_with("of=")) => {
            Some("it overwrites a disk or a file")
        }
        "truncate" => Some("it truncates files"),
        "find" | "fd" if takes(arguments, &["-delete"]) => Some("it deletes files"),
        "rsync"
            if arguments.iter().any(|word| {
                word.text.starts_with("--del") || word.text == "--remove-source-files"
            }) =>
        {
            Some("it deletes files")
        }
        "chmod" | "chown" | "chgrp" if has_option(arguments, &['R'], &["--recursive"]) => {
            Some("it changes permissions of all files in a folder")
        }
        "git" => git_destroys(arguments),
        "docker" | "podman" if takes(arguments, &["prune"]) || takes(arguments, &["rm", "rmi"]) => {
            Some("it deletes containers, images or their data")
        }
        "kubectl" if takes(arguments, &["delete"]) => Some("it deletes resources of a cluster"),
        "terraform" | "tofu" | "pulumi" if takes(arguments, &["destroy"]) => {
            Some("it deletes deployed resources")
        }
        "cargo" | "npm" | "gem" if takes(arguments, &["yank", "unpublish"]) => {
            Some("it withdraws a published package")
        }
        name if name.starts_with("mkfs") => Some("it overwrites a disk or a file"),
        "psql" | "mysql" | "mariadb" | "sqlite3" | "mongo" | "mongosh" | "duckdb" | "sqlcmd"
        | "clickhouse-client" | "cockroach" | "cqlsh" => {
            let lower = whole.to_lowercase();
            let words: Vec<&str> = lower
                .split_whitespace()
                .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
                .collect();
            let pairs = [
                ("drop", "table"),
                ("drop", "database"),
                ("drop", "schema"),
                ("truncate", "table"),
                ("delete", "from"),
            ];
            let deletes = words.windows(2).any(|pair| pairs.contains(&(pair[0], pair[1])))
                || words.contains(&"truncate")
                || lower.contains("dropdatabase");
            deletes.then_some("it deletes data in a database")
        }
        "redis-cli" | "valkey-cli" => {
            let commands =
                ["FLUSHALL", "FLUSHDB", "DEL", "UNLINK", "SHUTDOWN", "RESTORE", "SWAPDB"];
            let deletes = arguments.iter().any(|argument| {
                let upper = argument.text.to_uppercase();
                upper.split_whitespace().any(|word| commands.contains(&word))
            });
            deletes.then_some("it deletes data in a database")
        }
        "etcdctl" if takes(arguments, &["del"]) => Some("it deletes data in a database"),
        "mysqladmin" if takes(arguments, &["drop"]) => Some("it deletes data in a database"),
        name if code::deletes(name, arguments) => Some("it deletes files"),
        "dropdb" => Some("it deletes data in a database"),
        _ => None,
    }
}

fn git_destroys(arguments: &[Word]) -> Option<&'static str> {
    let (command, rest) = git_command(arguments)?;
    let drops = "it discards uncommitted changes";
    match command {
        "push" => {
            let is_forced = has_option(
                rest,
                &['f', 'd'],
                &["--force", "--force-with-lease", "--delete", "--mirror", "--prune"],
            );
            // `+branch` forces the push of one branch, and `:branch` deletes it.
            let overwrites = rest.iter().any(|word| word.text.starts_with(['+', ':']));
            (is_forced || overwrites).then_some("it overwrites commits that others may have")
        }
        "reset" if takes(rest, &["--hard", "--merge", "--keep"]) => Some(drops),
        "clean" if !has_option(rest, &['n'], &["--dry-run"]) => Some("it deletes untracked files"),
        "checkout" if takes(rest, &["--", ".", "-f", "--force"]) => Some(drops),
        "switch" if takes(rest, &["-f", "--force", "--discard-changes"]) => Some(drops),
        "restore" if !takes(rest, &["--staged", "-S"]) || takes(rest, &["--worktree", "-W"]) => {
            Some(drops)
        }
        "stash" if takes(rest, &["drop", "clear"]) => Some(drops),
        "branch" if has_option(rest, &['D'], &["--delete"]) => Some("it deletes a branch"),
        "rm" if !takes(rest, &["--cached"]) => Some("it deletes files"),
        "worktree" if takes(rest, &["remove", "prune"]) => Some("it deletes files"),
        "reflog" if takes(rest, &["expire", "delete"]) => {
            Some("it deletes commits that no branch contains")
        }
        "prune" => Some("it deletes commits that no branch contains"),
        "gc" if rest.iter().any(|word| word.text.starts_with("--prune=")) => {
            Some("it deletes commits that no branch contains")
        }
        "update-ref" if takes(rest, &["-d"]) => Some("it deletes a branch"),
        "tag" if has_option(rest, &['d'], &["--delete"]) => Some("it deletes a tag"),
        "filter-branch" | "filter-repo" => Some("it rewrites the history"),
        _ => None,
    }
}

/// Returns the effect of writing to a file that can't be undone.
pub(super) fn overwrites(redirect: &Redirect) -> Option<&'static str> {
    (redirect.writes && redirect.target.text.starts_with("/dev/"))
        .then_some("it overwrites a disk or a file")
}
