//! What a command may break.

use super::split::Word;

/// How much a command may break. The later, the more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Risk {
    /// Nothing that is known of.
    Low,
    /// Something in the project: its files, its history, what it depends on.
    Medium,
    /// The machine, who may do what on it, or something out there.
    High,
}

impl Risk {
    /// The name in messages.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

const HIGH: &[&str] = &[
    "rm",
    "dd",
    "shutdown",
    "reboot",
    "halt",
    "poweroff",
    "sudo",
    "su",
    "doas",
    "chown",
    "chmod",
    "useradd",
    "userdel",
    "usermod",
    "passwd",
    "mount",
    "umount",
    "iptables",
    "ufw",
    "firewall-cmd",
    "curl",
    "wget",
    "nc",
    "ncat",
    "netcat",
    "scp",
    "ssh",
    "ftp",
    "telnet",
    "shred",
    "fdisk",
    "wipefs",
];

const MEDIUM: &[&str] = &["touch", "mkdir", "mv", "cp", "ln"];

/// Programs whose first argument tells.
const MEDIUM_WITH: &[(&[&str], &[&str])] = &[
    (&["git"], &["commit", "push", "reset", "clean", "rebase", "merge", "cherry-pick", "revert", "branch", "checkout", "switch", "tag"]),
    (&["npm", "pnpm", "yarn"], &["install", "add", "remove", "uninstall", "update", "publish"]),
    (&["cargo"], &["add", "remove", "install", "clean", "publish"]),
];

/// The risk of one program with its arguments.
pub(super) fn risk(program: &str, arguments: &[Word]) -> Risk {
    if HIGH.contains(&program) || program == "mkfs" || program.starts_with("mkfs.") {
        return Risk::High;
    }
    // Anywhere among the arguments, since options may stand before it.
    let takes = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.text.as_str()));
    let medium = MEDIUM.contains(&program) || MEDIUM_WITH.iter().any(|(programs, words)| programs.contains(&program) && takes(words));
    if medium { Risk::Medium } else { Risk::Low }
}
