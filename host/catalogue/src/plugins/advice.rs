//! What could help where a command has failed in its sandbox: the line of the configuration, if one
//! is to be changed.
//!
//! All that is looked at is what the command wrote, so a model may have made it say anything. An
//! advice therefore tells nothing that isn't in there or in what holds for commands: not whether a
//! path is there that they don't see, nor whether a variable is set.

use std::path::{Component, Path, PathBuf};

use berth_contract::text::{cut, neutral_line};
use berth_contract::{Access, PathRules};
use berth_policy::files::Kind;
use berth_runtime::FailedCommand;
use berth_system::confine::TreeAccess;

use berth_config::{AllowedPath, NetworkGrant, PathAccess, ProcessContext, inline};

/// Notices for one command.
const MOST: usize = 3;

/// Bytes of an output that are looked at, from its end.
const LOOKED_AT: usize = 16 * 1024;

/// Bytes of a path that is shown.
const MAX_PATH: usize = 200;

/// Knows what holds for the processes of one plugin.
#[derive(Clone, Debug)]
pub(super) struct SandboxAdvisor {
    pub(super) context: ProcessContext,
}

/// What says that there was no way to a name or an address.
const UNREACHABLE: [&str; 16] = [
    "could not resolve host",
    "couldn't resolve host",
    "failed to resolve",
    "failure in name resolution",
    "name or service not known",
    "network is unreachable",
    "network unreachable",
    "no address associated with hostname",
    "eai_again",
    "getaddrinfo enotfound",
    "code enotfound",
    "'enotfound'",
    "enetunreach",
    "unable to resolve host address",
    "dial tcp: lookup ",
    "failed to lookup address information",
];

/// What is said where nobody listens.
const REFUSED: [&str; 2] = ["connection refused", "econnrefused"];
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// What is said where a file can't be used.
const UNUSABLE: [&str; 10] = [
    "no such file or directory",
    "permission denied",
    "read-only file system",
    "device or resource busy",
    "operation not permitted",
    "not a directory",
    "enoent",
    "eacces",
    "erofs",
    "cannot find the path",
];

/// What tools say that miss their settings, and the preset that grants them.
const MISSES: [(&str, &str); 7] = [
    ("please tell me who you are", "git"),
    ("unable to auto-detect email address", "git"),
    ("rustup could not choose a version of", "rustup"),
    ("no override and no default toolchain set", "rustup"),
    ("no default toolchain configured", "rustup"),
    ("is not installed. set with `nvm", "node"),
    ("n/a: version \"", "node"),
];

/// What is said of a bound, the bound, and what else has to be in the line.
const BOUNDS: [(&str, Which, &[&str]); 15] = [
    (
        "resource temporarily unavailable",
        Which::Processes,
        &["fork", "thread", "clone", "spawn", "exec"],
    ),
    ("can't start new thread", Which::Processes, &[]),
    ("cannot fork", Which::Processes, &[]),
    ("pthread_create failed", Which::Processes, &[]),
    ("unable to create native thread", Which::Processes, &[]),
    ("cannot allocate memory", Which::Memory, &[]),
    ("virtual memory exhausted", Which::Memory, &[]),
    ("memoryerror", Which::Memory, &[]),
    ("std::bad_alloc", Which::Memory, &[]),
    ("memory allocation of ", Which::Memory, &[" failed"]),
    ("out of memory", Which::Memory, &["allocat", "fatal", "error"]),
    ("file too large", Which::File, &[]),
    ("file size limit exceeded", Which::File, &[]),
    ("too many open files", Which::OpenFiles, &[]),
    ("emfile", Which::OpenFiles, &[]),
];

/// Bounds that are another program's.
const NOT_OURS: [&str; 4] = ["javascript heap", "java heap space", "cuda", "oom-killer"];

/// Directories that are a command's own, beside its home.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// What of the system is never a matter of grants: commands see it as it is for them.
const SYSTEM: [&str; 14] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/proc", "/sys", "/dev",
    "/run", "/var", "/nix",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Processes,
    Memory,
    File,
    OpenFiles,
    Scratch,
    Processor,
}

impl SandboxAdvisor {
    /// What could help: at most three notices, one line each.
    pub(super) fn about(&self, ended: &FailedCommand<'_>) -> Vec<String> {
        if ended.code == Some(0) {
            return Vec::new();
        }
        let texts = [last(ended.stderr), last(ended.stdout)];
        let lines: Vec<(&str, String)> = texts
            .iter()
            .flat_map(|text| text.lines())
            .map(|line| (line, line.to_lowercase()))
            .collect();
        let mut notices = Vec::new();
        let mut add = |notice: Option<String>| {
            if let Some(notice) =
                notice.filter(|notice| notices.len() < MOST && !notices.contains(notice))
            {
                notices.push(notice);
            }
        };
        if self.context.sandboxed {
            let says = |words: &[&str]| {
                lines.iter().any(|(_, low)| words.iter().any(|word| low.contains(word)))
            };
            if !ended.network && says(&UNREACHABLE) {
                add(Some(self.without_network("It had no network.")));
            } else if !ended.network
                && lines.iter().any(|(_, low)| contains(low, &REFUSED) && contains(low, &LOOPBACK))
            {
                add(Some(self.without_network("Without the network, `localhost` is the command's own, where nothing else listens.")));
            }
            for (line, low) in &lines {
                let missed =
                    MISSES.iter().find(|(words, _)| low.contains(words)).map(|(_, preset)| *preset);
                add(missed.and_then(|preset| self.preset(preset)));
                if contains(low, &UNUSABLE) {
                    add(self.path(line, low, ended.path_rules));
                }
            }
        }
        for (line, _) in &lines {
            add(unset(line).and_then(|name| self.variable(name)));
        }
        if self.context.sandboxed {
            for (line, low) in &lines {
                add(self.bound_in(line, low).map(|which| self.bound(which)));
            }
            add(match ended.code {
                Some(153) => Some(self.bound(Which::File)),
                Some(152) => Some(self.bound(Which::Processor)),
                _ => None,
            });
        }
        notices
    }

    fn without_network(&self, what: &str) -> String {
        match (self.context.shell, self.context.network) {
            (false, _) => format!(
                "{what} To let what this plugin starts reach it: `network = true` in {}.",
                self.context.table
            ),
            (true, NetworkGrant::Ask) => {
                format!(
                    "{what} Ask for it with `network: true`; a person has to approve it. To grant it to every command: `network = \"allow\"` in {}.",
                    self.context.table
                )
            }
            (true, NetworkGrant::Deny) => {
                format!(
                    "{what} To have it asked for: `network = \"ask\"` in {}, where it is \"deny\" now.",
                    self.context.table
                )
            }
            (true, NetworkGrant::Allow) => {
                format!("{what} Ask for it with `network: true`; it is granted.")
            }
        }
    }

    /// The presets with one more.
    fn preset(&self, name: &'static str) -> Option<String> {
        if !self.context.presets.iter().any(|(known, _)| *known == name) {
            return None;
        }
        let all: Vec<String> =
            self.context.named.iter().chain([&name]).map(|name| format!("\"{name}\"")).collect();
        Some(format!(
            "What `{name}` keeps in your home is not granted. To grant it: `presets = [{}]` in [tools.shell].",
            all.join(", ")
        ))
    }

    fn path(&self, line: &str, low: &str, call: Option<&dyn PathRules>) -> Option<String> {
        if (low.contains(".git/config") || low.contains(".git/hooks"))
            && (low.contains("busy") || low.contains("read-only"))
        {
            let written = self.with(".git", PathAccess::ReadWrite);
            return Some(format!(
                "Git's hooks and its configuration stay as they are, since they run programs outside of the sandbox. To let commands change \
                 them: `allowed_paths = {written}` in {}.",
                self.context.table
            ));
        }
        paths(line).find_map(|written| self.about_path(written, low, call))
    }

    fn about_path(&self, written: &str, low: &str, call: Option<&dyn PathRules>) -> Option<String> {
        let path = self.resolved(written)?;
        let shown = neutral_line(cut(written, MAX_PATH));
        let granted = self
            .context
            .rules
            .grants()
            .iter()
            .filter(|grant| path.starts_with(&grant.path))
            .max_by_key(|grant| grant.path.as_os_str().len());
        if let Some(grant) = granted {
            let changes = contains(low, &["read-only", "erofs", "busy"]);
            for access in
                [Access::Read, Access::Write].into_iter().take(if changes { 2 } else { 1 })
            {
                let denial = match self.context.rules.decide(&path, Kind::Other, access) {
                    Err(_) if access == Access::Write && grant.access == Access::Read => {
                        return Some(format!(
                            "{shown} is granted for reading alone, by {}.",
                            neutral_line(&grant.place.text)
                        ));
                    }
                    Err(refusal) => self.context.rules.explain(refusal, &path, access),
                    Ok(()) => match call.and_then(|call| {
                        Some(call.explain(call.decide(&path, access).err()?, &path, access))
                    }) {
                        Some(denial) => denial,
                        None => continue,
                    },
                };
                let (rule, place) = (neutral_line(&denial.rule), neutral_line(&denial.place));
                return Some(format!("{shown} is kept from commands, by {rule} ({place})."));
            }
            return None;
        }
        if self.context.also.iter().any(|tree| path.starts_with(&tree.path)) {
            let read = self
                .context
                .also
                .iter()
                .any(|tree| path.starts_with(&tree.path) && tree.access == TreeAccess::Read);
            let writes = contains(low, &["read-only", "erofs"]);
            return (read && writes)
                .then(|| format!("{shown} is granted for reading alone, by a preset; programs outside run what lies there."));
        }
        if self.context.credentials.iter().any(|credential| path.starts_with(credential)) {
            return Some(format!("{shown} is where credentials are kept, which no preset grants."));
        }
        if let Some((name, _)) =
            self.context.presets.iter().find(|(_, place)| path.starts_with(place))
        {
            return self.preset(name);
        }
        self.outside(&path, &shown, low)
    }

    /// A path that is nowhere in what commands see. Whether it is there at all is not for them to
    /// know.
    fn outside(&self, path: &Path, shown: &str, low: &str) -> Option<String> {
        // A line that long helps nobody.
        if path.as_os_str().len() > MAX_PATH {
            return None;
        }
        let in_home = self.context.home.as_ref().is_some_and(|home| path.starts_with(home));
        let own = SCRATCH.iter().any(|own| path.starts_with(own));
        if !in_home && (own || SYSTEM.iter().any(|system| path.starts_with(system))) {
            return None;
        }
        let base = if in_home { self.context.home.as_deref()? } else { Path::new("/") };
        let below: Vec<Component<'_>> = path.strip_prefix(base).ok()?.components().collect();
        // What isn't even below a directory of this machine is a mistake of the command's.
        if !in_home && !Path::new("/").join(below.first()?).is_dir() {
            return None;
        }
        let folder = match below.len() {
            0 => return None,
            // A file of the home itself can't be granted, only a directory.
            1 if path.extension().is_some() || path.file_name()?.to_str()?.starts_with('.') => {
                return None;
            }
            1 => path,
            _ => path.parent()?,
        };
        // Nothing that would take the home along.
        if self.context.home.as_ref().is_some_and(|home| home.starts_with(folder)) {
            return None;
        }
        let access = if contains(low, &["read-only", "erofs"]) {
            PathAccess::ReadWrite
        } else {
            PathAccess::Read
        };
        let written = self.with(&self.below_home(folder)?, access);
        Some(format!(
            "{shown} lies outside of the directories that commands see. To grant one, where it is there: `allowed_paths = {written}` in {}.",
            self.context.table
        ))
    }

    /// The granted directories with one more, as TOML.
    fn with(&self, path: &str, access: PathAccess) -> String {
        let more = AllowedPath { path: path.to_owned(), access };
        let all: Vec<&AllowedPath> = self.context.allowed.iter().chain([&more]).collect();
        inline(&serde_json::to_value(all).unwrap_or_default())
    }

    fn below_home(&self, path: &Path) -> Option<String> {
        let rest = self.context.home.as_ref().and_then(|home| path.strip_prefix(home).ok());
        match rest {
            Some(rest) => Some(format!("~/{}", rest.to_str()?)),
            None => path.to_str().map(str::to_owned),
        }
    }

    /// Where a path leads that stands in an output, without looking at any file.
    fn resolved(&self, written: &str) -> Option<PathBuf> {
        let path = match (written.strip_prefix("~/"), &self.context.home) {
            (Some(rest), Some(home)) => home.join(rest),
            (Some(_), None) => return None,
            (None, _) => self.context.directory.join(written),
        };
        let mut resolved = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => drop(resolved.pop()),
                Component::CurDir => {}
                part => resolved.push(part),
            }
        }
        Some(resolved)
    }

    fn variable(&self, name: &str) -> Option<String> {
        if self.context.variables.iter().any(|known| known == name)
            || self.context.env.iter().any(|known| known == name)
        {
            return None;
        }
        let all: Vec<String> = self
            .context
            .env
            .iter()
            .map(String::as_str)
            .chain([name])
            .map(|name| format!("\"{name}\""))
            .collect();
        Some(format!(
            "Commands get no variable `{name}`. To pass yours on, where it is set: `env = [{}]` in {}.",
            all.join(", "),
            self.context.table
        ))
    }

    fn bound_in(&self, line: &str, low: &str) -> Option<Which> {
        if contains(low, &NOT_OURS) {
            return None;
        }
        let found = BOUNDS.iter().find(|(words, _, more)| {
            low.contains(words) && (more.is_empty() || contains(low, more))
        });
        let full = || {
            let full =
                contains(low, &["no space left on device", "enospc"]) && !low.contains("watch");
            let own = |path: PathBuf| {
                let home = self.context.home.as_ref().is_some_and(|home| path.starts_with(home));
                let granted =
                    self.context.rules.grants().iter().any(|grant| path.starts_with(&grant.path));
                let preset = self.context.also.iter().any(|tree| path.starts_with(&tree.path));
                (home || SCRATCH.iter().any(|own| path.starts_with(own))) && !granted && !preset
            };
            let named =
                |path: &str| path.starts_with(['/', '~']) && self.resolved(path).is_some_and(own);
            (full && paths(line).any(named)).then_some(Which::Scratch)
        };
        found.map(|(_, which, _)| *which).or_else(full)
    }

    fn bound(&self, which: Which) -> String {
        let mebibytes = |bytes: u64| bytes >> 20;
        let (what, key, now) = match which {
            Which::Processes => (
                "as many processes and threads as it may",
                "processes",
                self.context.limits.processes,
            ),
            Which::Memory => {
                ("as much memory as it may", "memory_mib", mebibytes(self.context.limits.memory))
            }
            Which::File => {
                ("a file as large as it may", "file_mib", mebibytes(self.context.limits.file_size))
            }
            Which::OpenFiles => {
                ("as many open files as it may", "open_files", self.context.limits.open_files)
            }
            Which::Scratch => (
                "its own `/tmp` and home full",
                "scratch_mib",
                mebibytes(self.context.limits.scratch),
            ),
            Which::Processor => {
                ("as much processor time as it may", "cpu_secs", self.context.limits.cpu)
            }
        };
        format!(
            "It seems to have {what}: `{key} = {now}`. For more: `{key} = {}` in [tools.shell.limits].",
            now.saturating_mul(2)
        )
    }
}

fn contains(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// The end of a text.
fn last(text: &str) -> &str {
    let mut from = text.len().saturating_sub(LOOKED_AT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// What in a line may be a path: words with a `/` in them, or that begin with a dot.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let breaks = |c: char| c.is_whitespace() || "'\"`()[]<>,;=‘’“”".contains(c);
    let words = line.split(breaks).map(|word| {
        // `/a/b:12: …`, but not `https://…`.
        let word = word.trim_end_matches(['.', ':', '!']);
        if word.contains("://") {
            ""
        } else {
            word.split(':').find(|part| !part.is_empty()).unwrap_or_default()
        }
    });
    words.filter(|word| {
        word.starts_with('/') && word.len() > 1
            || word.starts_with("~/")
            || !word.starts_with('~') && word.contains(['/', '.'])
    })
}

/// The variable of which a line says that it is not set.
fn unset(line: &str) -> Option<&str> {
    const SAYS: [&str; 8] = [
        ": unbound variable",
        " is not set",
        " not set",
        " must be set",
        ": parameter null or not set",
        "environment variable not found",
        "missing environment variable",
        "KeyError: '",
    ];
    let says = |words: &str| line.contains(words);
    let is_name = |word: &&str| {
        word.len() > 2
            // git names it where there is no repository.
            && *word != "GIT_DISCOVERY_ACROSS_FILESYSTEM"
            && word.contains(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            && !word.starts_with(|c: char| c.is_ascii_digit())
            && (word.contains('_') || !["ERROR", "WARNING", "FATAL", "NOTE", "WARN", "INFO"].contains(word))
    };
    let at = SAYS
        .iter()
        .filter(|words| says(words))
        .find_map(|words| line.find(words).map(|at| (at, words.len())))?;
    let word = |text: &'_ str| -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut start = None;
        for (index, c) in text.char_indices().chain([(text.len(), ' ')]) {
            match (c.is_ascii_alphanumeric() || c == '_', start) {
                (true, None) => start = Some(index),
                (false, Some(from)) => {
                    found.push((from, index));
                    start = None;
                }
                _ => {}
            }
        }
        found
    };
    let (before, after) = (&line[..at.0], &line[at.0 + at.1..]);
    // What is said of a name stands right behind it, or right before.
    let nearest =
        word(before).into_iter().next_back().map(|(from, to)| &before[from..to]).filter(is_name);
    nearest.or_else(|| {
        word(after).into_iter().next().map(|(from, to)| &after[from..to]).filter(is_name)
    })
}

#[cfg(test)]
#[path = "tests/advice.rs"]
mod tests;
