//! Decides the risk of a command, and whether its effects can be undone.

use super::code;
use super::expand::Program;
use super::grammar::{Redirect, is_harmless};
use super::options::subcommand;
use super::programs::Typescript;
use super::word::Word;

/// The risk of a command. Later variants are riskier.
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

/// Clients of databases and clusters. A deletion is high risk, because the data is usually on
/// another machine, and this machine has no copy.
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

/// Programs that are medium risk if any argument is one of these words.
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

const GIT_CHANGES: &[&str] = &[
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

/// Commands of `GIT_CHANGES` that only read with these arguments, or without arguments.
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

fn git_command(arguments: &[Word]) -> Option<(&str, &[Word])> {
    let at = subcommand("git", arguments)?;
    Some((&arguments[at].text, &arguments[at + 1..]))
}

fn git_changes(arguments: &[Word]) -> bool {
    let Some((command, rest)) = git_command(arguments) else { return false };
    // With this option, `git log` and `git diff` write their output into a file.
    if has_option(rest, &[], &["--output"]) {
        return true;
    }
    if !GIT_CHANGES.contains(&command) {
        return false;
    }
    // If one of these words is the first argument, the command only reads.
    let Some((_, reading_words)) = GIT_READS.iter().find(|(name, _)| *name == command) else {
        return true;
    };
    match rest.first() {
        Some(first) => !reading_words.contains(&first.text.as_str()),
        // Without arguments, `git stash` moves the changes away. The other commands only list.
        None => command == "stash",
    }
}

/// Builtins that affect only the shell.
pub(super) const BUILT_IN: [&str; 33] = [
    ":", "[", "[[", "alias", "bg", "break", "cd", "continue", "declare", "dirs", "echo", "exit",
    "export", "false", "fg", "getopts", "jobs", "let", "local", "popd", "printf", "pushd", "pwd",
    "read", "readonly", "return", "set", "shift", "shopt", "test", "true", "unset", "wait",
];

pub(super) fn has_any_word(arguments: &[Word], words: &[&str]) -> bool {
    arguments.iter().any(|word| words.contains(&word.text.as_str()))
}

pub(super) fn has_word(arguments: &[Word], word: &str) -> bool {
    arguments.iter().any(|argument| argument.text == word)
}

/// Checks whether the arguments contain a short option of `letters`, alone or in a group, or an
/// option of `long_options`. A long option may have a value after `=`.
fn has_option(arguments: &[Word], letters: &[char], long_options: &[&str]) -> bool {
    arguments.iter().any(|word| match word.text.strip_prefix('-') {
        Some(rest) if rest.starts_with('-') => {
            let option = word.text.split('=').next().unwrap_or_default();
            long_options.contains(&option)
        }
        Some(rest) => rest.contains(letters),
        None => false,
    })
}

fn is_short(word: &Word, letter: char) -> bool {
    word.text
        .strip_prefix('-')
        .is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

/// Returns the risk of a program. `whole` is the text of the whole command.
pub(super) fn risk(program: &Program, whole: &str) -> Risk {
    if is_high_risk(program, whole) {
        Risk::High
    } else if is_medium_risk(program, whole) {
        Risk::Medium
    } else {
        Risk::Low
    }
}

/// Checks whether a program changes the machine, deletes data on another machine, or gets code that
/// deletes files. `whole` is the text of the whole command.
fn is_high_risk(program: &Program, whole: &str) -> bool {
    let name = program.name.as_str();
    if HIGH.contains(&name) || name == "mkfs" || name.starts_with("mkfs.") {
        return true;
    }
    let deletes_remote_data = REMOTE_CLIENTS.contains(&name) && destroys(program, whole).is_some();
    deletes_remote_data
        || changes_machine(name, &program.arguments)
        || code::deletes(name, &program.arguments)
}

/// Checks whether a program changes the settings, services or sessions of the machine.
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
                && !has_any_word(arguments, &["status", "--status-all", "--help", "--version"])
        }
        "date" if arguments.iter().any(|word| is_short(word, 's')) => true,
        "date" | "timedatectl" | "hostnamectl" | "localectl" => arguments
            .iter()
            .any(|word| word.text.starts_with("set-") || word.text.starts_with("--set")),
        "loginctl" => has_any_word(
            arguments,
            &["terminate-session", "terminate-user", "kill-session", "kill-user"],
        ),
        _ => false,
    }
}

fn is_medium_risk(program: &Program, whole: &str) -> bool {
    let name = program.name.as_str();
    let has_listed_argument = MEDIUM_WITH.iter().any(|(programs, words)| {
        programs.contains(&name) && has_any_word(&program.arguments, words)
    });
    MEDIUM.contains(&name)
        || has_listed_argument
        || changes_project(name, &program.arguments)
        || destroys(program, whole).is_some()
}

fn changes_project(name: &str, arguments: &[Word]) -> bool {
    match name {
        "git" => git_changes(arguments),
        "find" | "fd" => has_any_word(arguments, &["-delete", "-fprint", "-fprintf", "-fls"]),
        "sed" | "gsed" | "perl" => arguments.iter().any(edits_in_place),
        "sort" | "gcc" | "cc" | "clang" => has_any_word(arguments, &["-o", "--output"]),
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
        // `yarn` alone installs packages.
        "yarn" => arguments.is_empty(),
        _ if name.starts_with("python") => {
            has_word(arguments, "-m")
                && has_word(arguments, "pip")
                && has_any_word(arguments, &["install", "uninstall"])
        }
        _ => false,
    }
}

fn edits_in_place(option: &Word) -> bool {
    let text = option.text.as_str();
    let is_short_group = text.starts_with('-') && !text.starts_with("--") && text.len() < 5;
    text.starts_with("-i")
        || text.starts_with("--in-place")
        || (is_short_group && text.contains('i'))
}

/// Returns the risk in a sandbox in which changes to files can be undone. A program that only
/// changes files then has a medium risk.
pub(super) fn risk_if_undoable(program: &Program, whole: &str) -> Risk {
    let Program { name, arguments, .. } = program;
    let only_changes_files = match name.as_str() {
        "chmod" => true,
        "rm" => !arguments.iter().any(|word| is_whole_tree(&word.text)),
        // People rely on git's commits to restore earlier work, so losing commits stays a high
        // risk.
        "git" if git_loses_commits(arguments) => return Risk::High,
        _ => code::deletes(name, arguments),
    };
    if only_changes_files { Risk::Medium } else { risk(program, whole) }
}

/// Checks whether a path stands for all files, or for the history of a repository.
fn is_whole_tree(path: &str) -> bool {
    let trimmed = path.trim_end_matches('/');
    let plain = trimmed.strip_prefix("./").unwrap_or(trimmed);
    ["", ".", "..", "*", ".*", "~", "$HOME", "$PWD"].contains(&plain)
        || plain.split('/').any(|part| part == ".git" || part == "..")
}

fn git_loses_commits(arguments: &[Word]) -> bool {
    let Some((command, rest)) = git_command(arguments) else { return false };
    match command {
        "gc" | "prune" | "filter-branch" | "filter-repo" => true,
        "stash" => has_any_word(rest, &["drop", "clear"]),
        "reflog" => has_any_word(rest, &["expire", "delete"]),
        // With force, a branch or tag may lose its earlier commits.
        "branch" => has_option(rest, &['D', 'M', 'C', 'f'], &["--force"]),
        "checkout" => has_any_word(rest, &["-B"]),
        "switch" => has_any_word(rest, &["-C", "--force-create"]),
        "tag" => has_option(rest, &['d', 'f'], &["--delete", "--force"]),
        "update-ref" | "fast-import" => true,
        "worktree" => has_any_word(rest, &["remove", "prune"]),
        _ => false,
    }
}

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
        "rm" | "unlink" | "rmdir" => Some("deletes files"),
        "shred" | "wipefs" | "mkswap" | "fdisk" | "sfdisk" | "parted" | "mke2fs" | "mkntfs"
        | "mkdosfs" | "blkdiscard" | "sgdisk" | "gdisk" => Some("overwrites a disk or a file"),
        "dd" if arguments.iter().any(|word| word.text.starts_with("of=")) => {
            Some("overwrites a disk or a file")
        }
        "truncate" => Some("truncates files"),
        "find" | "fd" if has_any_word(arguments, &["-delete"]) => Some("deletes files"),
        "rsync"
            if arguments.iter().any(|word| {
                word.text.starts_with("--del") || word.text == "--remove-source-files"
            }) =>
        {
            Some("deletes files")
        }
        "chmod" | "chown" | "chgrp" if has_option(arguments, &['R'], &["--recursive"]) => {
            Some("changes permissions of all files in a folder")
        }
        "git" => git_destroys(arguments),
        "docker" | "podman" if has_any_word(arguments, &["prune", "rm", "rmi"]) => {
            Some("deletes containers, images or their data")
        }
        "kubectl" if has_any_word(arguments, &["delete"]) => Some("deletes resources of a cluster"),
        "terraform" | "tofu" | "pulumi" if has_any_word(arguments, &["destroy"]) => {
            Some("deletes deployed resources")
        }
        "cargo" | "npm" | "gem" if has_any_word(arguments, &["yank", "unpublish"]) => {
            Some("withdraws a published package")
        }
        name if name.starts_with("mkfs") => Some("overwrites a disk or a file"),
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
            deletes.then_some("deletes data in a database")
        }
        "redis-cli" | "valkey-cli" => {
            let commands =
                ["FLUSHALL", "FLUSHDB", "DEL", "UNLINK", "SHUTDOWN", "RESTORE", "SWAPDB"];
            let deletes = arguments.iter().any(|argument| {
                let upper = argument.text.to_uppercase();
                upper.split_whitespace().any(|word| commands.contains(&word))
            });
            deletes.then_some("deletes data in a database")
        }
        "etcdctl" if has_any_word(arguments, &["del"]) => Some("deletes data in a database"),
        "mysqladmin" if has_any_word(arguments, &["drop"]) => Some("deletes data in a database"),
        name if code::deletes(name, arguments) => Some("deletes files"),
        "dropdb" => Some("deletes data in a database"),
        _ => None,
    }
}

fn git_destroys(arguments: &[Word]) -> Option<&'static str> {
    let (command, rest) = git_command(arguments)?;
    let discards_changes = "discards uncommitted changes";
    match command {
        "push" => {
            let is_forced = has_option(
                rest,
                &['f', 'd'],
                &["--force", "--force-with-lease", "--delete", "--mirror", "--prune"],
            );
            // `+branch` forces the push of one branch, and `:branch` deletes it.
            let overwrites = rest.iter().any(|word| word.text.starts_with(['+', ':']));
            if !is_forced && !overwrites {
                return None;
            }
            Some("overwrites commits that others may have")
        }
        "reset" if has_any_word(rest, &["--hard", "--merge", "--keep"]) => Some(discards_changes),
        "clean" if !has_option(rest, &['n'], &["--dry-run"]) => Some("deletes untracked files"),
        "checkout" if has_any_word(rest, &["--", ".", "-f", "--force"]) => Some(discards_changes),
        "switch" if has_any_word(rest, &["-f", "--force", "--discard-changes"]) => {
            Some(discards_changes)
        }
        "restore"
            if !has_any_word(rest, &["--staged", "-S"])
                || has_any_word(rest, &["--worktree", "-W"]) =>
        {
            Some(discards_changes)
        }
        "stash" if has_any_word(rest, &["drop", "clear"]) => Some(discards_changes),
        "branch" if has_option(rest, &['D'], &["--delete"]) => Some("deletes a branch"),
        "rm" if !has_any_word(rest, &["--cached"]) => Some("deletes files"),
        "worktree" if has_any_word(rest, &["remove", "prune"]) => Some("deletes files"),
        "reflog" if has_any_word(rest, &["expire", "delete"]) => {
            Some("deletes commits that no branch contains")
        }
        "prune" => Some("deletes commits that no branch contains"),
        "gc" if rest.iter().any(|word| word.text.starts_with("--prune=")) => {
            Some("deletes commits that no branch contains")
        }
        "update-ref" if has_any_word(rest, &["-d"]) => Some("deletes a branch"),
        "tag" if has_option(rest, &['d'], &["--delete"]) => Some("deletes a tag"),
        "filter-branch" | "filter-repo" => Some("rewrites the history"),
        _ => None,
    }
}

pub(super) fn overwrites(redirect: &Redirect) -> Option<&'static str> {
    (redirect.writes && redirect.target.text.starts_with("/dev/"))
        .then_some("overwrites a disk or a file")
}
