//! Gives advice after a command failed in its sandbox, with the line of the configuration to
//! change.
//!
//! The advisor only reads the command's output, and a model may have invented that output. So
//! advice reveals nothing except the output and the rules for commands. It doesn't reveal whether a
//! hidden path exists or a variable is set. There is one exception: the advice names the directory
//! around a granted directory that is a repository, because git can't work without it.

use std::path::{Component, Path, PathBuf};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Access, PathRules};
use toolhold_engine::capability::process::FailedCommand;
use toolhold_policy::files::{Grant, Kind};
use toolhold_system::confine::TreeAccess;

use toolhold_config::{AllowedPath, NetworkGrant, PathAccess, ProcessContext, ProcessKind, inline};

/// Maximum number of notices for one command.
const MAX_NOTICES: usize = 3;

/// Bytes at the end of an output that are read.
const MAX_OUTPUT: usize = 16 * 1024;

/// Most bytes of a path in a notice.
const MAX_PATH: usize = 200;

/// Advises on failed commands of one plugin, and on failures of one upstream server.
#[derive(Clone, Debug)]
pub struct SandboxAdvisor {
    pub(super) context: ProcessContext,
}

/// Texts that mean that a name or an address can't be reached.
const UNREACHABLE: [&str; 21] = [
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
    "unknownhostexception",
    "unknown host ",
    "due to a connection issue",
    "all connection attempts failed",
    "fetch failed",
];

/// Texts that mean that no server listens at an address.
const REFUSED: [&str; 2] = ["connection refused", "econnrefused"];
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// Texts that mean that a file can't be used.
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

/// Messages of tools that lack their settings, with the preset that grants the settings.
const MISSING_SETTINGS: [(&str, &str); 7] = [
    ("please tell me who you are", "git"),
    ("unable to auto-detect email address", "git"),
    ("rustup could not choose a version of", "rustup"),
    ("no override and no default toolchain set", "rustup"),
    ("no default toolchain configured", "rustup"),
    ("is not installed. set with `nvm", "node"),
    ("n/a: version \"", "node"),
];

/// Messages of git if it can't sign a commit or a tag.
const UNSIGNED: [&str; 4] = [
    "failed to sign the data",
    "couldn't load public key",
    "unable to sign the tag",
    "no private key found for public key",
];

/// Message of a sanitizer that can't trace its program, and the advice.
const NO_LEAK_CHECK: &str = "leaksanitizer has encountered a fatal error";
const NO_LEAKS: &str = "The sandbox blocks tracing, so leaks can't be detected. To run the program without leak detection: `ASAN_OPTIONS=detect_leaks=0` and `LSAN_OPTIONS=detect_leaks=0`.";

/// Messages that mean that a limit was reached. Each entry has the message, the limit, and further
/// strings. If there are further strings, the line must contain one of them.
const LIMITS: [(&str, LimitKind, &[&str]); 9] = [
    (
        "resource temporarily unavailable",
        LimitKind::Processes,
        &["fork", "thread", "clone", "spawn", "exec"],
    ),
    ("can't start new thread", LimitKind::Processes, &[]),
    ("cannot fork", LimitKind::Processes, &[]),
    ("pthread_create failed", LimitKind::Processes, &[]),
    ("unable to create native thread", LimitKind::Processes, &[]),
    ("file too large", LimitKind::File, &[]),
    ("file size limit exceeded", LimitKind::File, &[]),
    ("too many open files", LimitKind::OpenFiles, &[]),
    ("emfile", LimitKind::OpenFiles, &[]),
];

/// Private directories of each command, in addition to its home.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// System directories. Grants don't change which files commands see there.
const SYSTEM: [&str; 14] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/proc", "/sys", "/dev",
    "/run", "/var", "/nix",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitKind {
    Processes,
    File,
    OpenFiles,
    Scratch,
    Processor,
}

impl SandboxAdvisor {
    /// Advice on the words with which a server said that it, or a call, has failed.
    pub fn advise_on_words(&self, words: &str) -> Vec<String> {
        self.advise(&FailedCommand {
            code: None,
            stdout: "",
            stderr: words,
            network: self.context.network == NetworkGrant::Allow,
            path_rules: None,
        })
    }

    /// Returns the advice about a failed command: at most three notices, one line each.
    pub(super) fn advise(&self, failed: &FailedCommand<'_>) -> Vec<String> {
        if failed.code == Some(0) {
            return Vec::new();
        }
        let mut lines: Vec<(&str, String)> = Vec::new();
        for output in [failed.stderr, failed.stdout] {
            lines.extend(tail(output).lines().map(|line| (line, line.to_lowercase())));
        }

        let mut notices = Vec::new();
        if self.context.sandboxed {
            if !failed.network {
                add(&mut notices, self.advise_on_network(&lines));
            }
            for (line, low) in &lines {
                self.advise_on_line(&mut notices, line, low, failed.path_rules);
            }
        }
        for (line, _) in &lines {
            if let Some(name) = unset_variable(line) {
                add(&mut notices, self.advise_variable(name));
            }
        }
        if self.context.sandboxed {
            for (line, low) in &lines {
                add(&mut notices, self.find_limit(line, low).map(|kind| self.advise_limit(kind)));
            }
            // A shell reports a signal as 128 plus its number: SIGXFSZ is 25, SIGXCPU is 24.
            let exceeded = match failed.code {
                Some(153) => Some(LimitKind::File),
                Some(152) => Some(LimitKind::Processor),
                _ => None,
            };
            add(&mut notices, exceeded.map(|kind| self.advise_limit(kind)));
        }
        notices
    }

    /// Returns advice for a command without the network if its output says that a host can't be
    /// reached.
    fn advise_on_network(&self, lines: &[(&str, String)]) -> Option<String> {
        if lines.iter().any(|(_, low)| contains(low, &UNREACHABLE)) {
            return Some(self.advise_network(&format!("{} had no network.", self.actor())));
        }
        if lines.iter().any(|(_, low)| contains(low, &REFUSED) && contains(low, &LOOPBACK)) {
            return Some(self.advise_network(&format!(
                "{} had no network: it has its own `localhost`, without other servers.",
                self.actor()
            )));
        }
        None
    }

    /// Adds the advice for one output line of a sandboxed command. `low` is the line in lower case.
    fn advise_on_line(
        &self,
        notices: &mut Vec<String>,
        line: &str,
        low: &str,
        call: Option<&dyn PathRules>,
    ) {
        if let Some((_, preset)) = MISSING_SETTINGS.iter().find(|(words, _)| low.contains(words)) {
            add(notices, self.advise_preset(preset));
        }
        if low.contains("not a git repository") {
            add(notices, self.advise_repository(line));
        }
        if low.contains(NO_LEAK_CHECK) {
            add(notices, Some(NO_LEAKS.to_owned()));
        }
        if contains(low, &UNSIGNED) {
            add(notices, Some(self.advise_signing(line)));
        } else if contains(low, &UNUSABLE) {
            add(notices, self.advise_paths(line, low, call));
        }
    }

    /// The process of the advice, as the subject of a sentence.
    fn actor(&self) -> &'static str {
        match self.context.kind {
            ProcessKind::Shell | ProcessKind::Plugin => "The command",
            ProcessKind::Server => "The server",
        }
    }

    /// All processes of the table, as the subject of a sentence.
    fn actors(&self) -> &'static str {
        match self.context.kind {
            ProcessKind::Shell | ProcessKind::Plugin => "Commands",
            ProcessKind::Server => "Servers",
        }
    }

    fn advise_network(&self, what: &str) -> String {
        match (self.context.kind, self.context.network) {
            (ProcessKind::Server, _) => {
                format!("{what} To grant it: `network = true` in {}.", self.context.table)
            }
            (ProcessKind::Plugin, _) => format!(
                "{what} To give the network to the programs of this plugin: `network = true` in {}.",
                self.context.table
            ),
            (ProcessKind::Shell, NetworkGrant::Ask) => {
                format!(
                    "{what} Request it with `network: true`; a person has to approve it. To grant it to every command: `network = \"allow\"` in {}.",
                    self.context.table
                )
            }
            (ProcessKind::Shell, NetworkGrant::Deny) => {
                format!(
                    "{what} To allow requests for it: `network = \"ask\"` in {}, where it is \"deny\" now.",
                    self.context.table
                )
            }
            (ProcessKind::Shell, NetworkGrant::Allow) => {
                format!("{what} Request it with `network: true`; it is granted.")
            }
        }
    }

    /// Suggests the present list of presets with one more preset.
    fn advise_preset(&self, name: &'static str) -> Option<String> {
        if !self.context.other_presets.iter().any(|(known, _)| *known == name) {
            return None;
        }
        let all: Vec<String> = self
            .context
            .used_presets
            .iter()
            .chain([&name])
            .map(|name| format!("\"{name}\""))
            .collect();
        let table = match self.context.kind {
            ProcessKind::Server => self.context.table.to_string(),
            _ => format!("[tools.shell] of {}", self.context.table.place.file),
        };
        Some(format!(
            "The files of `{name}` in your home aren't granted. To grant them: `presets = [{}]` in \
             {table}.",
            all.join(", "),
        ))
    }

    fn advise_paths(&self, line: &str, low: &str, call: Option<&dyn PathRules>) -> Option<String> {
        if (low.contains(".git/config") || low.contains(".git/hooks"))
            && (low.contains("busy") || low.contains("read-only"))
        {
            let written = self.allowed_with(&self.repository(line)?, PathAccess::ReadWrite);
            return Some(format!(
                "Commands can't change git's hooks and configuration, since these run programs outside the sandbox. To let commands change \
                 them: `allowed_paths = {written}` in {}.",
                self.context.table
            ));
        }
        paths(line).find_map(|written| self.advise_path(written, low, call))
    }

    /// Returns advice for a directory whose repository isn't granted: a subfolder, a linked working
    /// tree or a submodule.
    fn advise_repository(&self, line: &str) -> Option<String> {
        let (_, named) = line.split_once("not a git repository: ").unwrap_or_default();
        let owner = paths(named)
            .filter_map(|path| self.resolve(path))
            .find_map(|path| owning_repository(&path).map(Path::to_owned));
        let folder = owner.or_else(|| self.repository_around())?;
        let grants = self.context.rules.grants();
        if grants.iter().any(|grant| folder.starts_with(&grant.path)) {
            return None;
        }
        // A grant of the whole home or file system isn't proposed.
        if self.context.home.as_ref().is_some_and(|home| home.starts_with(&folder)) {
            return None;
        }
        let shown = self.below_home(&folder)?;
        if shown.len() > MAX_PATH {
            return None;
        }
        let written = self.allowed_with(&shown, PathAccess::ReadWrite);
        Some(format!(
            "git needs {}, which isn't granted. To grant it: `allowed_paths = {written}` in {}.",
            neutral_line(&shown),
            self.context.table
        ))
    }

    /// Returns the nearest parent of the granted directories that is a repository.
    fn repository_around(&self) -> Option<PathBuf> {
        let grants = self.context.rules.grants().iter().map(|grant| grant.path.as_path());
        for granted in std::iter::once(self.context.directory.as_path()).chain(grants) {
            let mut above = granted.ancestors().skip(1);
            if let Some(repository) = above.find(|folder| folder.join(".git").exists()) {
                return Some(repository.to_owned());
            }
        }
        None
    }

    /// Returns advice for a commit that can't be signed. `line` may contain the name of the key.
    fn advise_signing(&self, line: &str) -> String {
        let mut advice = "Commands have no key to sign with. To commit without a signature: `git -c commit.gpgsign=false commit`.".to_owned();
        let folder = paths(line)
            .filter(|path| path.starts_with(['/', '~']))
            .find_map(|path| self.resolve(path)?.parent().map(Path::to_owned));
        if let Some(folder) = folder
            && let Some(shown) = self.below_home(&folder)
            && shown.len() <= MAX_PATH
        {
            let written = self.allowed_with(&shown, PathAccess::Read);
            advice.push_str(&format!(
                " To give commands the keys in {}: `allowed_paths = {written}` in {}.",
                neutral_line(&shown),
                self.context.table
            ));
        }
        advice
    }

    /// Returns the `.git` path in a line, in the form that a grant uses. Returns `None` if the path
    /// is granted.
    fn repository(&self, line: &str) -> Option<String> {
        let named = paths(line).find_map(|path| {
            let end = path.find(".git/")? + ".git".len();
            self.resolve(&path[..end])
        });
        let path = named.unwrap_or_else(|| self.context.directory.join(".git"));
        if self.context.rules.grants().iter().any(|grant| grant.path == path) {
            return None;
        }
        match path.strip_prefix(&self.context.directory) {
            Ok(below) => below.to_str().map(str::to_owned),
            Err(_) => self.below_home(&path),
        }
    }

    /// Returns advice about a path in the output of a failed command. `written` is the path in the
    /// line, and `low` is the line in lower case.
    fn advise_path(
        &self,
        written: &str,
        low: &str,
        call: Option<&dyn PathRules>,
    ) -> Option<String> {
        let path = self.resolve(written)?;
        let shown = neutral_line(cut(written, MAX_PATH));
        let granted = self
            .context
            .rules
            .grants()
            .iter()
            .filter(|grant| path.starts_with(&grant.path))
            .max_by_key(|grant| grant.path.as_os_str().len());
        if let Some(grant) = granted {
            return self.advise_granted(grant, &path, &shown, low, call);
        }
        let mut trees = self.context.also.iter().filter(|tree| path.starts_with(&tree.path));
        if let Some(first) = trees.next() {
            let is_read_only = first.access == TreeAccess::Read
                || trees.any(|tree| tree.access == TreeAccess::Read);
            if !is_read_only || !contains(low, &["read-only", "erofs"]) {
                return None;
            }
            return Some(format!(
                "{shown} is granted read-only by a preset, since programs outside the sandbox run files in it."
            ));
        }
        if self.context.credentials.iter().any(|credential| path.starts_with(credential)) {
            return Some(format!("{shown} may hold credentials, so no preset grants it."));
        }
        if let Some((name, _)) =
            self.context.other_presets.iter().find(|(_, place)| path.starts_with(place))
        {
            return self.advise_preset(name);
        }
        self.advise_outside(&path, &shown, low)
    }

    /// Returns advice about a path below a grant, or `None` if no rule denies the access.
    fn advise_granted(
        &self,
        grant: &Grant,
        path: &Path,
        shown: &str,
        low: &str,
        call: Option<&dyn PathRules>,
    ) -> Option<String> {
        let is_write = contains(low, &["read-only", "erofs", "busy"]);
        let accesses: &[Access] =
            if is_write { &[Access::Read, Access::Write] } else { &[Access::Read] };
        for &access in accesses {
            let denial = match self.context.rules.decide(path, Kind::Other, access) {
                Err(_) if access == Access::Write && grant.access == Access::Read => {
                    let place = neutral_line(&grant.place.text);
                    return Some(format!("{shown} is granted read-only by {place}."));
                }
                Err(refusal) => self.context.rules.explain(refusal, path, access),
                Ok(()) => {
                    let Some(call) = call else { continue };
                    let Err(refusal) = call.decide(path, access) else { continue };
                    call.explain(refusal, path, access)
                }
            };
            let rule = neutral_line(&denial.rule);
            let place = neutral_line(&denial.place);
            return Some(format!("{} can't use {shown}: {rule} ({place}).", self.actors()));
        }
        None
    }

    /// Returns advice about a path outside the sandbox, without revealing whether the path exists.
    fn advise_outside(&self, path: &Path, shown: &str, low: &str) -> Option<String> {
        // A notice with a very long path isn't readable.
        if path.as_os_str().len() > MAX_PATH {
            return None;
        }
        let in_home = self.context.home.as_ref().is_some_and(|home| path.starts_with(home));
        let in_scratch = SCRATCH.iter().any(|folder| path.starts_with(folder));
        let in_system = SYSTEM.iter().any(|folder| path.starts_with(folder));
        if !in_home && (in_scratch || in_system) {
            return None;
        }
        let base = if in_home { self.context.home.as_deref()? } else { Path::new("/") };
        let below: Vec<Component<'_>> = path.strip_prefix(base).ok()?.components().collect();
        // If the first component isn't a directory of this machine, the command has a mistake.
        if !in_home && !Path::new("/").join(below.first()?).is_dir() {
            return None;
        }
        let folder = match below.len() {
            0 => return None,
            // A file directly in the home can't be granted, since grants are for directories.
            1 if path.extension().is_some() || path.file_name()?.to_str()?.starts_with('.') => {
                return None;
            }
            1 => path,
            _ => path.parent()?,
        };
        // A grant that includes the whole home isn't proposed.
        if self.context.home.as_ref().is_some_and(|home| home.starts_with(folder)) {
            return None;
        }
        let access = if contains(low, &["read-only", "erofs"]) {
            PathAccess::ReadWrite
        } else {
            PathAccess::Read
        };
        let written = self.allowed_with(&self.below_home(folder)?, access);
        let seen_by = match self.context.kind {
            ProcessKind::Server => "the server sees",
            _ => "commands see",
        };
        Some(format!(
            "{shown} is outside the directories that {seen_by}. If the directory exists, grant it: `allowed_paths = {written}` in {}.",
            self.context.table
        ))
    }

    /// Returns the granted directories and one more directory, as TOML.
    fn allowed_with(&self, path: &str, access: PathAccess) -> String {
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

    /// Resolves a path from an output, without reading any file.
    fn resolve(&self, written: &str) -> Option<PathBuf> {
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

    fn advise_variable(&self, name: &str) -> Option<String> {
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
            "{} don't get the variable `{name}`. If it is set, pass it on: `env = [{}]` in {}.",
            self.actors(),
            all.join(", "),
            self.context.table
        ))
    }

    fn find_limit(&self, line: &str, low: &str) -> Option<LimitKind> {
        for (words, kind, more) in &LIMITS {
            if low.contains(words) && (more.is_empty() || contains(low, more)) {
                return Some(*kind);
            }
        }
        // The limit of file watches has the same error text.
        let is_full =
            contains(low, &["no space left on device", "enospc"]) && !low.contains("watch");
        if is_full && paths(line).any(|path| self.is_in_scratch(path)) {
            return Some(LimitKind::Scratch);
        }
        None
    }

    /// Checks whether a path is in the private `/tmp` or home of a command.
    fn is_in_scratch(&self, path: &str) -> bool {
        if !path.starts_with(['/', '~']) {
            return false;
        }
        let Some(path) = self.resolve(path) else { return false };
        let in_home = self.context.home.as_ref().is_some_and(|home| path.starts_with(home));
        let in_scratch = SCRATCH.iter().any(|folder| path.starts_with(folder));
        let mut grants = self.context.rules.grants().iter();
        let in_grant = grants.any(|grant| path.starts_with(&grant.path));
        let in_preset = self.context.also.iter().any(|tree| path.starts_with(&tree.path));
        (in_home || in_scratch) && !in_grant && !in_preset
    }

    fn advise_limit(&self, kind: LimitKind) -> String {
        let (limit, key, now) = match kind {
            LimitKind::Processes => {
                ("processes and threads", "processes", self.context.limits.processes)
            }
            LimitKind::File => {
                ("the size of a file", "file_mib", self.context.limits.file_size >> 20)
            }
            LimitKind::OpenFiles => ("open files", "open_files", self.context.limits.open_files),
            LimitKind::Scratch => {
                ("its private `/tmp` and home", "scratch_mib", self.context.limits.scratch >> 20)
            }
            LimitKind::Processor => ("processor time", "cpu_secs", self.context.limits.cpu),
        };
        format!(
            "The command seems to have reached the limit for {limit}: `{key} = {now}`. To raise it: `{key} = {}` in [tools.shell.limits] of {}.",
            now.saturating_mul(2),
            self.context.table.place.file
        )
    }
}

fn add(notices: &mut Vec<String>, notice: Option<String>) {
    if let Some(notice) = notice
        && notices.len() < MAX_NOTICES
        && !notices.contains(&notice)
    {
        notices.push(notice);
    }
}

fn contains(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Returns the end of a text.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(MAX_OUTPUT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Returns the words of a line that may be paths. These words contain `/` or begin with a dot.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split(|c: char| c.is_whitespace() || "'\"`()[]<>,;=‘’“”".contains(c));
    let words = parts.map(|word| {
        // The word is a path in `/a/b:12: …`, but not in `https://…`.
        let word = word.trim_end_matches(['.', ':', '!']);
        if word.contains("://") {
            ""
        } else {
            word.split(':').find(|part| !part.is_empty()).unwrap_or_default()
        }
    });
    words.filter(|word| {
        if word.starts_with('~') { word.starts_with("~/") } else { word.contains(['/', '.']) }
    })
}

/// Returns the repository of a linked working tree or a submodule. Git stores these below
/// `worktrees` or `modules` in the repository's folder.
fn owning_repository(path: &Path) -> Option<&Path> {
    let folder = path.ancestors().find(|above| {
        let below = path.strip_prefix(above).ok();
        let part = below.and_then(|below| below.iter().next());
        part.is_some_and(|part| part == "worktrees" || part == "modules")
    })?;
    if folder.ends_with(".git") { folder.parent() } else { Some(folder) }
}

/// Returns the variable that a line reports as not set.
fn unset_variable(line: &str) -> Option<&str> {
    const TEXTS: [&str; 8] = [
        ": unbound variable",
        " is not set",
        " not set",
        " must be set",
        ": parameter null or not set",
        "environment variable not found",
        "missing environment variable",
        "KeyError: '",
    ];
    let (before, after) = TEXTS.iter().find_map(|text| line.split_once(text))?;
    // The message is directly after the name, or directly before it.
    if let Some(word) = words(before).last()
        && is_variable_name(word)
    {
        return Some(word);
    }
    words(after).next().filter(|word| is_variable_name(word))
}

fn is_variable_name(word: &str) -> bool {
    const OTHER: [&str; 6] = ["ERROR", "WARNING", "FATAL", "NOTE", "WARN", "INFO"];
    word.len() > 2
        // git prints this name if there is no repository.
        && word != "GIT_DISCOVERY_ACROSS_FILESYSTEM"
        && word.contains(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        && !word.starts_with(|c: char| c.is_ascii_digit())
        && (word.contains('_') || !OTHER.contains(&word))
}

/// Returns the words of letters, digits and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
#[path = "tests/advice.rs"]
mod tests;
