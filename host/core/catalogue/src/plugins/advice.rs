//! Gives advice after a command failed in its sandbox, with the configuration line to change.
//!
//! A model may have invented the command's output, so advice must not reveal whether a hidden path
//! exists or a variable is set. There is one exception: advice names the repository around the
//! granted directory, because git can't work without it.

use std::path::{Component, Path, PathBuf};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Access, PathRules};
use toolhold_engine::capability::process::FailedCommand;
use toolhold_policy::egress::HostPattern;
use toolhold_policy::files::{Grant, Kind};
use toolhold_system::confine::TreeAccess;

use toolhold_config::{AllowedPath, NetworkGrant, PathAccess, ProcessContext, ProcessKind, inline};

/// Maximum number of notices about one failed command.
const MAX_NOTICES: usize = 3;

/// Number of bytes that are read from the end of an output.
const MAX_OUTPUT: usize = 16 * 1024;

const MIB: u64 = 1024 * 1024;

/// Maximum length of a path in a notice, in bytes.
const MAX_PATH: usize = 200;

/// Gives advice about failed commands of one plugin, and about failures of one upstream server.
#[derive(Clone, Debug)]
pub struct SandboxAdvisor {
    pub(super) context: ProcessContext,
}

/// Messages about a host that can't be reached.
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

/// Strings before the name of a host that can't be resolved.
const BEFORE_HOST: [&str; 5] =
    ["eai_again ", "enotfound ", "could not resolve host: ", "dial tcp: lookup ", "host='"];

/// Messages about a connection that no server accepts.
const CONNECTION_REFUSED: [&str; 2] = ["connection refused", "econnrefused"];

const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// Messages about a write access that the sandbox blocks.
const READ_ONLY: [&str; 2] = ["read-only", "erofs"];

/// Minimum length of the name of an environment variable in a message. Shorter words have other
/// meanings.
const MIN_VARIABLE: usize = 3;

/// Messages about a file that can't be used.
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

/// Messages of programs without their settings, and the presets that grant the settings.
const MISSING_SETTINGS: [(&str, &str); 7] = [
    ("please tell me who you are", "git"),
    ("unable to auto-detect email address", "git"),
    ("rustup could not choose a version of", "rustup"),
    ("no override and no default toolchain set", "rustup"),
    ("no default toolchain configured", "rustup"),
    ("is not installed. set with `nvm", "node"),
    ("n/a: version \"", "node"),
];

/// Messages of git about a missing signing key.
const UNSIGNED: [&str; 4] = [
    "failed to sign the data",
    "couldn't load public key",
    "unable to sign the tag",
    "no private key found for public key",
];

/// Message of a sanitizer that can't trace its program, and the advice.
const NO_LEAK_CHECK: &str = "leaksanitizer has encountered a fatal error";
const NO_LEAKS: &str = "The sandbox blocks tracing, so leaks can't be detected. To run the program without leak detection: `ASAN_OPTIONS=detect_leaks=0` and `LSAN_OPTIONS=detect_leaks=0`.";

/// Messages about a limit: the message, the limit, and additional strings. A line with the message
/// must also contain one of the additional strings, if there are any.
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

/// The exit code of a shell after a signal is 128 plus the signal's number. SIGXFSZ (25) ends a
/// program that writes a file beyond the limit. SIGXCPU (24) ends a program that uses too much CPU
/// time.
const FILE_LIMIT_CODE: i32 = 128 + 25;
const PROCESSOR_LIMIT_CODE: i32 = 128 + 24;

/// Directories that are private to each command, in addition to its home.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// System directories. Grants don't change what commands see there.
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
    /// Returns advice on a server's error message. `reaches_hosts` says whether hosts are granted
    /// to the server.
    pub fn advise_on_words(&self, message: &str, reaches_hosts: bool) -> Vec<String> {
        self.advise(&FailedCommand {
            code: None,
            stdout: "",
            stderr: message,
            network: reaches_hosts || self.context.network == NetworkGrant::Allow,
            path_rules: None,
        })
    }

    /// Returns advice about a failed command, at most [`MAX_NOTICES`] notices of one line.
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
                add_notice(&mut notices, self.advise_on_network(&lines));
            }
            for (line, lower_line) in &lines {
                self.advise_on_line(&mut notices, line, lower_line, failed.path_rules);
            }
        }
        for (line, _) in &lines {
            if let Some(name) = unset_variable(line) {
                add_notice(&mut notices, self.advise_variable(name));
            }
        }
        if self.context.sandboxed {
            self.advise_on_limits(&mut notices, &lines, failed.code);
        }
        notices
    }

    /// Adds advice about limits that the output or the exit code suggests.
    fn advise_on_limits(
        &self,
        notices: &mut Vec<String>,
        lines: &[(&str, String)],
        code: Option<i32>,
    ) {
        for (line, lower_line) in lines {
            let limit = self.find_limit(line, lower_line);
            add_notice(notices, limit.map(|kind| self.advise_limit(kind)));
        }
        let exceeded = match code {
            Some(FILE_LIMIT_CODE) => Some(LimitKind::File),
            Some(PROCESSOR_LIMIT_CODE) => Some(LimitKind::Processor),
            _ => None,
        };
        add_notice(notices, exceeded.map(|kind| self.advise_limit(kind)));
    }

    /// Returns advice if a command without network access failed to reach a host. `lines` has each
    /// line of the output, and the same line in lower case.
    fn advise_on_network(&self, lines: &[(&str, String)]) -> Option<String> {
        let actor = self.actor();
        if lines.iter().any(|(_, lower_line)| contains_any(lower_line, &UNREACHABLE)) {
            let host = lines.iter().find_map(|(_, lower_line)| named_host(lower_line));
            let no_network = format!("{actor} had no network.");
            return Some(match self.context.kind {
                ProcessKind::Shell => self.advise_network(&no_network),
                ProcessKind::Server => self.advise_hosts(&no_network, host),
                // The plugin may have other hosts.
                ProcessKind::Plugin => {
                    self.advise_hosts(&format!("{actor} couldn't reach a host."), host)
                }
            });
        }
        for (_, lower_line) in lines {
            if contains_any(lower_line, &CONNECTION_REFUSED) && contains_any(lower_line, &LOOPBACK)
            {
                return Some(self.advise_network(&format!(
                    "{actor} had no network: its `localhost` is private and has no other servers."
                )));
            }
        }
        None
    }

    /// Adds the advice for one output line. `call_rules` are the path rules of the call.
    fn advise_on_line(
        &self,
        notices: &mut Vec<String>,
        line: &str,
        lower_line: &str,
        call_rules: Option<&dyn PathRules>,
    ) {
        let settings = MISSING_SETTINGS.iter().find(|(message, _)| lower_line.contains(message));
        if let Some((_message, preset)) = settings {
            add_notice(notices, self.advise_preset(preset));
        }
        if lower_line.contains("not a git repository") {
            add_notice(notices, self.advise_repository(line));
        }
        if lower_line.contains(NO_LEAK_CHECK) {
            add_notice(notices, Some(NO_LEAKS.to_owned()));
        }
        if contains_any(lower_line, &UNSIGNED) {
            add_notice(notices, Some(self.advise_signing(line)));
        } else if contains_any(lower_line, &UNUSABLE) {
            add_notice(notices, self.advise_paths(line, lower_line, call_rules));
        }
    }

    /// The failed process, as the subject of a sentence.
    fn actor(&self) -> &'static str {
        match self.context.kind {
            ProcessKind::Shell | ProcessKind::Plugin => "The command",
            ProcessKind::Server => "The server",
        }
    }

    /// All processes with the same grants, as the subject of a sentence.
    fn actors(&self) -> &'static str {
        match self.context.kind {
            ProcessKind::Shell | ProcessKind::Plugin => "Commands",
            ProcessKind::Server => "Servers",
        }
    }

    /// Returns the sentence `failure`, and a sentence about the way to get the network.
    fn advise_network(&self, failure: &str) -> String {
        let table = &self.context.table;
        let advice = match (self.context.kind, self.context.network) {
            (ProcessKind::Server, _) => {
                format!("To grant the network: `network = true` in {table}.")
            }
            (ProcessKind::Plugin, _) => format!(
                "To give the network to the programs of this plugin: `network = true` in {table}."
            ),
            (ProcessKind::Shell, NetworkGrant::Ask) => format!(
                "To grant a host to every command: `hosts = [\"HOST\"]` in {table}. To request the \
                 whole network for one: `network: true`; a person has to approve the call."
            ),
            (ProcessKind::Shell, NetworkGrant::Deny) => format!(
                "To allow requests for the network: `network = \"ask\"` in {table}, where \
                 `network` is \"deny\" now."
            ),
            (ProcessKind::Shell, NetworkGrant::Allow) => {
                "Request the network with `network: true`; the request needs no approval."
                    .to_owned()
            }
        };
        format!("{failure} {advice}")
    }

    /// Returns the sentence `failure`, and sentences about the grants of the network for a server or
    /// the programs of a plugin. `host` is the host that they couldn't reach.
    fn advise_hosts(&self, failure: &str, host: Option<&str>) -> String {
        let host = host.unwrap_or("HOST");
        format!(
            "{failure} To grant a host: `hosts = [\"{host}\"]` in {}. To grant the whole network: \
             `network = true` there.",
            self.context.table
        )
    }

    /// Returns advice to use the preset `name`. Returns `None` if the preset is already used.
    fn advise_preset(&self, name: &'static str) -> Option<String> {
        let is_unused = self.context.other_presets.iter().any(|(unused, _)| *unused == name);
        if !is_unused {
            return None;
        }
        let mut presets = String::new();
        for used in &self.context.used_presets {
            presets.push_str(&format!("\"{used}\", "));
        }
        presets.push_str(&format!("\"{name}\""));
        let table = match self.context.kind {
            ProcessKind::Server => self.context.table.to_string(),
            ProcessKind::Shell | ProcessKind::Plugin => {
                format!("[tools.shell] of {}", self.context.table.place.file)
            }
        };
        Some(format!(
            "The files of `{name}` in your home aren't granted. To grant these files: `presets = \
             [{presets}]` in {table}."
        ))
    }

    /// Returns the first advice about a path in a line.
    fn advise_paths(
        &self,
        line: &str,
        lower_line: &str,
        call_rules: Option<&dyn PathRules>,
    ) -> Option<String> {
        let is_about_git_files = contains_any(lower_line, &[".git/config", ".git/hooks"]);
        if is_about_git_files && contains_any(lower_line, &["busy", "read-only"]) {
            return self.advise_git_files(line);
        }
        // Log lines of a server start with words that look like relative paths, such as a date.
        let skips_relative_paths =
            self.context.kind == ProcessKind::Server && paths(line).any(is_absolute);
        for path in paths(line) {
            if skips_relative_paths && !is_absolute(path) {
                continue;
            }
            let advice = self.advise_path(path, lower_line, call_rules);
            if advice.is_some() {
                return advice;
            }
        }
        None
    }

    /// Returns advice about git's hooks and configuration, which commands can't change.
    fn advise_git_files(&self, line: &str) -> Option<String> {
        // A server chooses its messages, and must not provoke a grant with which it can run
        // programs outside the sandbox.
        if self.context.kind == ProcessKind::Server {
            return None;
        }
        let git_folder = self.repository(line)?;
        let allowed_paths = self.allowed_with(&git_folder, PathAccess::ReadWrite);
        Some(format!(
            "Commands can't change git's hooks and configuration, because git runs programs \
             from these files outside the sandbox. To allow such changes: `allowed_paths = \
             {allowed_paths}` in {}.",
            self.context.table
        ))
    }

    /// Returns advice to grant the repository around a directory, which is a subfolder, a linked
    /// working tree or a submodule.
    fn advise_repository(&self, line: &str) -> Option<String> {
        let (_, named_paths) = line.split_once("not a git repository: ").unwrap_or_default();
        let named_repository = paths(named_paths).find_map(|path| {
            let path = self.resolve(path)?;
            owning_repository(&path).map(Path::to_owned)
        });
        let folder = named_repository.or_else(|| self.repository_around())?;
        let grants = self.context.rules.grants();
        if grants.iter().any(|grant| folder.starts_with(&grant.path)) {
            return None;
        }
        // A grant of the whole home or file system is never suggested.
        if self.context.home.as_ref().is_some_and(|home| home.starts_with(&folder)) {
            return None;
        }
        let shown = self.below_home(&folder)?;
        if shown.len() > MAX_PATH {
            return None;
        }
        let allowed_paths = self.allowed_with(&shown, PathAccess::ReadWrite);
        Some(format!(
            "git needs {}, which isn't granted. To grant the directory: `allowed_paths = \
             {allowed_paths}` in {}.",
            neutral_line(&shown),
            self.context.table
        ))
    }

    /// Returns the nearest repository that contains the working directory or a granted directory.
    fn repository_around(&self) -> Option<PathBuf> {
        let grants = self.context.rules.grants().iter().map(|grant| grant.path.as_path());
        for granted in std::iter::once(self.context.directory.as_path()).chain(grants) {
            // The first ancestor is the directory itself.
            for parent in granted.ancestors().skip(1) {
                if parent.join(".git").exists() {
                    return Some(parent.to_owned());
                }
            }
        }
        None
    }

    /// Returns advice for a commit that can't be signed. `line` may contain the path of the key.
    fn advise_signing(&self, line: &str) -> String {
        let mut advice = format!(
            "{} have no key to sign with. To commit without a signature: `git -c \
             commit.gpgsign=false commit`.",
            self.actors()
        );
        // A server chooses its messages, and must not provoke a grant of keys.
        if self.context.kind == ProcessKind::Server {
            return advice;
        }
        let mut absolute_paths = paths(line).filter(|path| is_absolute(path));
        let folder =
            absolute_paths.find_map(|path| self.resolve(path)?.parent().map(Path::to_owned));
        if let Some(folder) = folder
            && let Some(shown) = self.below_home(&folder)
            && shown.len() <= MAX_PATH
        {
            let allowed_paths = self.allowed_with(&shown, PathAccess::Read);
            advice.push_str(&format!(
                " To give commands the keys in {}: `allowed_paths = {allowed_paths}` in {}.",
                neutral_line(&shown),
                self.context.table
            ));
        }
        advice
    }

    /// Returns the `.git` path that a line names, or else the one in the working directory. The
    /// path has the form that a grant needs. Returns `None` if the path is already granted.
    fn repository(&self, line: &str) -> Option<String> {
        let named_path = paths(line).find_map(|path| {
            let end = path.find(".git/")? + ".git".len();
            self.resolve(&path[..end])
        });
        let path = named_path.unwrap_or_else(|| self.context.directory.join(".git"));
        let is_granted = self.context.rules.grants().iter().any(|grant| grant.path == path);
        if is_granted {
            return None;
        }
        match path.strip_prefix(&self.context.directory) {
            Ok(relative_path) => relative_path.to_str().map(str::to_owned),
            Err(_) => self.below_home(&path),
        }
    }

    /// Returns advice about the path `written` in an output line.
    fn advise_path(
        &self,
        written: &str,
        lower_line: &str,
        call_rules: Option<&dyn PathRules>,
    ) -> Option<String> {
        let context = &self.context;
        let path = self.resolve(written)?;
        let shown = neutral_line(cut(written, MAX_PATH));

        let grants = context.rules.grants().iter();
        let grants_of_path = grants.filter(|grant| path.starts_with(&grant.path));
        if let Some(grant) = grants_of_path.max_by_key(|grant| grant.path.as_os_str().len()) {
            return self.advise_granted(grant, &path, &shown, lower_line, call_rules);
        }
        let trees: Vec<_> =
            context.also.iter().filter(|tree| path.starts_with(&tree.path)).collect();
        if !trees.is_empty() {
            let is_read_only = trees.iter().any(|tree| tree.access == TreeAccess::Read);
            if is_read_only && contains_any(lower_line, &READ_ONLY) {
                return Some(format!(
                    "{shown} is granted read-only by a preset, because programs outside the \
                     sandbox run files in this directory."
                ));
            }
            return None;
        }
        if context.credentials.iter().any(|credential| path.starts_with(credential)) {
            return Some(format!("{shown} may hold credentials, so no preset grants it."));
        }
        for (name, place) in &context.other_presets {
            if path.starts_with(place) {
                return self.advise_preset(name);
            }
        }
        self.advise_outside(&path, &shown, lower_line)
    }

    /// Returns advice about a path in a granted directory, or `None` if no rule denies the access.
    /// `call_rules` are the path rules of the call.
    fn advise_granted(
        &self,
        grant: &Grant,
        path: &Path,
        shown: &str,
        lower_line: &str,
        call_rules: Option<&dyn PathRules>,
    ) -> Option<String> {
        let is_write = contains_any(lower_line, &["read-only", "erofs", "busy"]);
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
                    let Some(call_rules) = call_rules else { continue };
                    let Err(refusal) = call_rules.decide(path, access) else { continue };
                    call_rules.explain(refusal, path, access)
                }
            };
            let rule = neutral_line(&denial.rule);
            let place = neutral_line(&denial.place);
            return Some(format!("{} can't use {shown}: {rule} ({place}).", self.actors()));
        }
        None
    }

    /// Returns advice about a path outside of all grants, without revealing whether the path
    /// exists.
    fn advise_outside(&self, path: &Path, shown: &str, lower_line: &str) -> Option<String> {
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
        // A path below a missing directory is a mistake in the command, so a grant doesn't help.
        if !in_home && !Path::new("/").join(below.first()?).is_dir() {
            return None;
        }
        let folder = match below.len() {
            0 => return None,
            // This is probably a file and not a directory, but only directories can be granted.
            1 if path.extension().is_some() || path.file_name()?.to_str()?.starts_with('.') => {
                return None;
            }
            1 => path,
            _ => path.parent()?,
        };
        if self.context.home.as_ref().is_some_and(|home| home.starts_with(folder)) {
            return None;
        }
        let access = if contains_any(lower_line, &READ_ONLY) {
            PathAccess::ReadWrite
        } else {
            PathAccess::Read
        };
        let allowed_paths = self.allowed_with(&self.below_home(folder)?, access);
        let seen_by = match self.context.kind {
            ProcessKind::Server => "the server sees",
            _ => "commands see",
        };
        Some(format!(
            "{shown} is outside the directories that {seen_by}. If the directory exists, grant the \
             directory: `allowed_paths = {allowed_paths}` in {}.",
            self.context.table
        ))
    }

    /// Returns the value of `allowed_paths` with one more path.
    fn allowed_with(&self, path: &str, access: PathAccess) -> String {
        let new_path = AllowedPath { path: path.to_owned(), access };
        let mut all: Vec<&AllowedPath> = self.context.allowed.iter().collect();
        all.push(&new_path);
        inline(&serde_json::to_value(all).unwrap_or_default())
    }

    fn below_home(&self, path: &Path) -> Option<String> {
        let rest = self.context.home.as_ref().and_then(|home| path.strip_prefix(home).ok());
        match rest {
            Some(rest) => Some(format!("~/{}", rest.to_str()?)),
            None => path.to_str().map(str::to_owned),
        }
    }

    /// Returns the absolute path for a path in an output, without accessing the file system.
    /// Returns `None` for a path in an unknown home.
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
                _ => resolved.push(part),
            }
        }
        Some(resolved)
    }

    /// Returns advice to pass on a variable, unless the command already gets it.
    fn advise_variable(&self, name: &str) -> Option<String> {
        let is_inherited = self.context.variables.iter().any(|known| known == name);
        let is_configured = self.context.env.iter().any(|known| known == name);
        if is_inherited || is_configured {
            return None;
        }
        let mut env = String::new();
        for configured in &self.context.env {
            env.push_str(&format!("\"{configured}\", "));
        }
        env.push_str(&format!("\"{name}\""));
        Some(format!(
            "{} don't get the variable `{name}`. If the variable is set, pass it on: `env = \
             [{env}]` in {}.",
            self.actors(),
            self.context.table
        ))
    }

    /// Returns the limit that an output line reports as reached, or `None`.
    fn find_limit(&self, line: &str, lower_line: &str) -> Option<LimitKind> {
        for (message, kind, additional_words) in &LIMITS {
            let has_additional_word =
                additional_words.is_empty() || contains_any(lower_line, additional_words);
            if lower_line.contains(message) && has_additional_word {
                return Some(*kind);
            }
        }
        let is_full = contains_any(lower_line, &["no space left on device", "enospc"]);
        // The kernel also reports this error for too many file watches.
        let is_about_watches = lower_line.contains("watch");
        if is_full && !is_about_watches && paths(line).any(|path| self.is_in_scratch(path)) {
            return Some(LimitKind::Scratch);
        }
        None
    }

    /// Checks whether a path is in a command's private `/tmp` or home, and isn't granted.
    fn is_in_scratch(&self, path: &str) -> bool {
        if !is_absolute(path) {
            return false;
        }
        let Some(resolved) = self.resolve(path) else { return false };
        let in_home = self.context.home.as_ref().is_some_and(|home| resolved.starts_with(home));
        let in_scratch = SCRATCH.iter().any(|folder| resolved.starts_with(folder));
        let mut grants = self.context.rules.grants().iter();
        let in_grant = grants.any(|grant| resolved.starts_with(&grant.path));
        let in_preset = self.context.also.iter().any(|tree| resolved.starts_with(&tree.path));
        let is_granted = in_grant || in_preset;
        (in_home || in_scratch) && !is_granted
    }

    /// Returns advice to double a limit.
    fn advise_limit(&self, kind: LimitKind) -> String {
        let (limit, key, value) = match kind {
            LimitKind::Processes => {
                ("processes and threads", "processes", self.context.limits.processes)
            }
            LimitKind::File => {
                ("the size of a file", "file_mib", self.context.limits.file_size / MIB)
            }
            LimitKind::OpenFiles => ("open files", "open_files", self.context.limits.open_files),
            LimitKind::Scratch => (
                "the command's private `/tmp` and home",
                "scratch_mib",
                self.context.limits.scratch / MIB,
            ),
            LimitKind::Processor => ("CPU time", "cpu_secs", self.context.limits.cpu),
        };
        let doubled = value.saturating_mul(2);
        format!(
            "The command seems to have reached the limit for {limit}: `{key} = {value}`. To raise it: `{key} = {doubled}` in [tools.shell.limits] of {}.",
            self.context.table.place.file
        )
    }
}

/// Adds a notice, unless there are too many notices or the notice was already added.
fn add_notice(notices: &mut Vec<String>, notice: Option<String>) {
    let Some(notice) = notice else { return };
    if notices.len() < MAX_NOTICES && !notices.contains(&notice) {
        notices.push(notice);
    }
}

/// Returns the host that a line in lower case names as unresolved.
fn named_host(lower_line: &str) -> Option<&str> {
    for before in BEFORE_HOST {
        let Some((_, rest)) = lower_line.split_once(before) else { continue };
        let end = rest.find(|letter| !is_in_host(letter)).unwrap_or(rest.len());
        let host = rest[..end].trim_end_matches('.');
        if host.contains('.') && host.len() <= MAX_PATH && HostPattern::new(host).is_ok() {
            return Some(host);
        }
    }
    None
}

fn is_in_host(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-')
}

fn contains_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(MAX_OUTPUT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Returns the words of a line that may be paths: words with `/` or a dot.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| c.is_whitespace() || "'\"`()[]<>,;=‘’“”".contains(c));
    words.filter_map(|untrimmed| {
        let word = untrimmed.trim_end_matches(['.', ':', '!']);
        let is_url = word.contains("://");
        if is_url {
            return None;
        }
        let path = word.split(':').find(|part| !part.is_empty())?;
        let may_be_path =
            if path.starts_with('~') { path.starts_with("~/") } else { path.contains(['/', '.']) };
        if may_be_path { Some(path) } else { None }
    })
}

fn is_absolute(path: &str) -> bool {
    path.starts_with(['/', '~'])
}

/// Returns the repository of a linked working tree or a submodule, or `None` for other paths. Git
/// stores their data in the folders `worktrees` and `modules` of the repository.
fn owning_repository(path: &Path) -> Option<&Path> {
    for folder in path.ancestors() {
        let Ok(below) = path.strip_prefix(folder) else { continue };
        if below.starts_with("worktrees") || below.starts_with("modules") {
            return if folder.ends_with(".git") { folder.parent() } else { Some(folder) };
        }
    }
    None
}

/// Returns the variable that a line reports as unset, or `None`.
fn unset_variable(line: &str) -> Option<&str> {
    const MESSAGES: [&str; 8] = [
        ": unbound variable",
        " is not set",
        " not set",
        " must be set",
        ": parameter null or not set",
        "environment variable not found",
        "missing environment variable",
        "KeyError: '",
    ];
    let (before, after) = MESSAGES.iter().find_map(|message| line.split_once(message))?;
    let neighbours = [words(before).last(), words(after).next()];
    neighbours.into_iter().flatten().find(|word| is_variable_name(word))
}

/// Checks whether a word of an error message looks like the name of an environment variable.
fn is_variable_name(word: &str) -> bool {
    const LOG_LEVELS: [&str; 6] = ["ERROR", "WARNING", "FATAL", "NOTE", "WARN", "INFO"];
    // git prints this name in folders without a repository.
    if word == "GIT_DISCOVERY_ACROSS_FILESYSTEM" || LOG_LEVELS.contains(&word) {
        return false;
    }
    let has_letter = word.contains(|c: char| c.is_ascii_uppercase());
    let starts_with_digit = word.starts_with(|c: char| c.is_ascii_digit());
    let has_only_name_chars =
        word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    word.len() >= MIN_VARIABLE && has_letter && !starts_with_digit && has_only_name_chars
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
#[path = "tests/advice.rs"]
mod tests;
