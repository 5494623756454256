//! Resolves the subjects of a call before it runs: its paths, commands and URLs.
//!
//! The grants are checked here, too, so that a denial names its rule, and the tool gets an absolute
//! path in a granted directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use toolhold_contract::text::{cut, neutral_line, shell_word, toml};
use toolhold_contract::{CancellationToken, Category, Failure, Subject, SubjectKind};
use toolhold_engine::{Capability, Origin, Plugin};
use toolhold_policy::ResolvedSubject;
use toolhold_policy::egress::Target;
use toolhold_policy::files::without_dots;
use toolhold_system::files::{FileError, FileView, LastLink, real_or_given};

use crate::catalogue::Tool;
use crate::git_aliases;

/// Maximum length of a path in bytes: the kernel's limit.
const MAX_PATH: usize = 4096;

/// Maximum length of a path in a message, in bytes. A longer path is cut.
const MAX_SHOWN_PATH: usize = 1024;

/// Maximum number of subjects in one argument. A call with more subjects is refused.
const MAX_SUBJECTS: usize = 1000;

/// Maximum number of parallel look-ups that wait for a file system. Further look-ups wait. A
/// look-up keeps a thread until the file system answers, even after the end of the call.
const MAX_WAITING: usize = 64;

/// Returns the command lines in the arguments of a call. An argument is a command line or a list of
/// command lines.
pub fn commands<'a>(tool: &'a Tool, arguments: &'a Value) -> impl Iterator<Item = &'a str> {
    let subjects =
        tool.definition.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command);
    let command_arguments = subjects.filter_map(|subject| arguments.pointer(&subject.pointer));
    command_arguments.flat_map(values).filter_map(Value::as_str)
}

/// Resolves the subjects of calls.
#[derive(Debug)]
pub struct Lookups {
    /// The directory that replaces `~`.
    home: Option<PathBuf>,
    /// The slots for look-ups that wait for a file system.
    permits: Arc<Semaphore>,
}

impl Lookups {
    /// Creates a resolver. `home` replaces `~` in paths.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self { home, permits: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Checks the paths of a call, and makes them absolute in `arguments`. URLs are normalised. All
    /// subjects are added to `acted_on`, with real paths. A slow file system doesn't block other
    /// calls.
    ///
    /// # Errors
    ///
    /// Returns the first refusal. The refused subject is then the last subject of `acted_on`, as
    /// written in the call. Other errors are `timeout` and `cancelled`.
    pub async fn resolve(
        &self,
        tool: &Arc<Tool>,
        arguments: &mut Arc<Value>,
        acted_on: &mut Vec<ResolvedSubject>,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let earlier_subjects = acted_on.len();
        let own_arguments = Arc::make_mut(arguments);
        let cache_only = true;
        let home = self.home.as_deref();
        let result = resolve_subjects(tool, home, own_arguments, acted_on, cache_only);
        let (path, time) = match result {
            Ok(()) => return Ok(()),
            Err(SubjectError::Failed(failure)) => return Err(*failure),
            Err(SubjectError::Uncached { path, time }) => (path, time),
        };

        // The kernel's cache lacks a path, so all subjects are resolved again on another thread.
        let cache_only = false;
        acted_on.truncate(earlier_subjects);
        let tool = Arc::clone(tool);
        let home = self.home.clone();
        let mut arguments_copy = Arc::clone(arguments);
        let lookup = async {
            let permit = Arc::clone(&self.permits).acquire_owned().await;
            tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let mut subjects = Vec::new();
                let result = resolve_subjects(
                    &tool,
                    home.as_deref(),
                    Arc::make_mut(&mut arguments_copy),
                    &mut subjects,
                    cache_only,
                );
                (result.map_err(SubjectError::into_failure), arguments_copy, subjects)
            })
            .await
        };
        match tokio::time::timeout(time, cancel.run_until_cancelled(lookup)).await {
            Ok(Some(Ok((result, resolved_arguments, subjects)))) => {
                *arguments = resolved_arguments;
                acted_on.extend(subjects);
                result
            }
            Ok(Some(Err(error))) => Err(Failure::new(
                Category::PermanentFailure,
                format!("resolving a path of the call failed: {error}"),
            )),
            Ok(None) => {
                Err(Failure::new(Category::Cancelled, "the call was cancelled before the tool ran"))
            }
            Err(_) => Err(SubjectError::Uncached { path, time }.into_failure()),
        }
    }

    /// Like [`resolve`](Self::resolve), but on the current thread. Blocks.
    ///
    /// # Errors
    ///
    /// Returns the first refusal.
    pub fn resolve_blocking(
        &self,
        tool: &Tool,
        arguments: &mut Arc<Value>,
        acted_on: &mut Vec<ResolvedSubject>,
    ) -> Result<(), Failure> {
        let own_arguments = Arc::make_mut(arguments);
        let cache_only = false;
        resolve_subjects(tool, self.home.as_deref(), own_arguments, acted_on, cache_only)
            .map_err(SubjectError::into_failure)
    }
}

enum SubjectError {
    /// A path outside of the kernel's cache, for which the file system must be accessed. `time` is
    /// the time limit of the call.
    Uncached { path: PathBuf, time: Duration },
    /// The call can't run.
    Failed(Box<Failure>),
}

impl SubjectError {
    fn into_failure(self) -> Failure {
        match self {
            Self::Failed(failure) => *failure,
            Self::Uncached { path, time } => {
                let message = format!(
                    "the file system of {} did not answer within {} s",
                    path.display(),
                    time.as_secs()
                );
                let suggestion =
                    "Use another path, or ask the user to check the mounted file system.";
                Failure::new(Category::Timeout, message).with_suggestion(suggestion)
            }
        }
    }
}

impl From<Failure> for SubjectError {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

fn values(argument: &Value) -> &[Value] {
    match argument {
        Value::Array(items) => items,
        value => std::slice::from_ref(value),
    }
}

/// Checks the paths of a call, and makes them absolute in `arguments`. URLs are normalised. A
/// missing path argument means the working directory. All subjects are added to `acted_on`, with
/// real paths.
///
/// # Errors
///
/// Returns the first refusal. The refused subject is then the last subject of `acted_on`. With
/// `cache_only`, a path outside of the kernel's cache is also an error.
fn resolve_subjects(
    tool: &Tool,
    home: Option<&Path>,
    arguments: &mut Value,
    acted_on: &mut Vec<ResolvedSubject>,
    cache_only: bool,
) -> Result<(), SubjectError> {
    let read_only = tool.annotations_with(arguments).read_only;
    let call = ResolvingCall { tool, home, read_only, cache_only };
    for subject in &tool.definition.subjects {
        match arguments.pointer_mut(&subject.pointer) {
            Some(Value::String(text)) => call.resolve(subject, text, acted_on)?,
            Some(Value::Array(items)) if items.len() > MAX_SUBJECTS => {
                let message = format!(
                    "{}: the list has {} items; the limit is {MAX_SUBJECTS}",
                    subject.pointer,
                    items.len()
                );
                return Err(Failure::new(Category::InvalidParameters, message).into());
            }
            Some(Value::Array(items)) => {
                for item in items {
                    if let Value::String(item_text) = item {
                        call.resolve(subject, item_text, acted_on)?;
                    }
                }
            }
            None | Some(Value::Null) => {
                let Some(plugin) = call.plugin_of(subject) else { continue };
                if let Some(directory) = plugin.policy().directory().and_then(Path::to_str) {
                    acted_on.push(resolved_subject(subject, directory.to_owned()));
                }
            }
            Some(_) => {}
        }
    }
    Ok(())
}

struct ResolvingCall<'a> {
    tool: &'a Tool,
    home: Option<&'a Path>,
    read_only: bool,
    cache_only: bool,
}

impl<'a> ResolvingCall<'a> {
    /// Returns the plugin whose grants apply to a path. Other sources check paths themselves.
    fn plugin_of(&self, subject: &Subject) -> Option<&'a Plugin> {
        if !subject.kind.is_path() {
            return None;
        }
        self.tool.plugin.as_ref()
    }

    /// Resolves one string of an argument, and adds its subjects to `acted_on`. If the string is a
    /// path, replaces it with the path that the tool gets.
    fn resolve(
        &self,
        subject: &Subject,
        text: &mut String,
        acted_on: &mut Vec<ResolvedSubject>,
    ) -> Result<(), SubjectError> {
        if let Some(plugin) = self.plugin_of(subject) {
            return self.resolve_path(plugin, subject, text, acted_on);
        }
        match subject.kind {
            SubjectKind::Url => {
                let url = normalize_url(self.tool, text)?;
                acted_on.push(resolved_subject(subject, url));
            }
            SubjectKind::Command => {
                let expanded = expand_aliases(self.tool, self.home, text, self.cache_only)?;
                acted_on.push(resolved_subject(subject, text.clone()));
                for command in expanded {
                    acted_on.push(resolved_subject(subject, command));
                }
            }
            _ => acted_on.push(resolved_subject(subject, text.clone())),
        }
        Ok(())
    }

    /// Resolves a path in an argument. Replaces `text` with the path that the tool gets, and adds
    /// the real path to `acted_on`. If the path is refused, adds its absolute path instead.
    fn resolve_path(
        &self,
        plugin: &Plugin,
        subject: &Subject,
        text: &mut String,
        acted_on: &mut Vec<ResolvedSubject>,
    ) -> Result<(), SubjectError> {
        let Self { home, read_only, cache_only, .. } = *self;
        match locate(plugin, home, subject, text, read_only, cache_only) {
            Ok(located) => {
                *text = located.given;
                acted_on.push(resolved_subject(subject, located.real));
                Ok(())
            }
            Err(uncached @ SubjectError::Uncached { .. }) => Err(uncached),
            Err(failure) => {
                // The audit log needs the subject of a refused call, too.
                let directory = plugin.policy().directory().unwrap_or(Path::new(""));
                let refused_path = to_absolute(text, directory, home);
                acted_on.push(resolved_subject(subject, to_text(&refused_path)));
                Err(failure)
            }
        }
    }
}

fn resolved_subject(subject: &Subject, text: String) -> ResolvedSubject {
    ResolvedSubject { kind: subject.kind, access: subject.access, text }
}

/// Returns the commands that git aliases in a command run. Only commands of plugins are expanded.
///
/// # Errors
///
/// With `cache_only`, a command with possible aliases is an error, because git's configuration
/// files must be read.
fn expand_aliases(
    tool: &Tool,
    home: Option<&Path>,
    command: &str,
    cache_only: bool,
) -> Result<Vec<String>, SubjectError> {
    let Some(plugin) = tool.plugin.as_ref() else { return Ok(Vec::new()) };
    let policy = plugin.policy();
    let Some(directory) = &policy.working_directory else { return Ok(Vec::new()) };
    if !git_aliases::may_be_used(command) {
        return Ok(Vec::new());
    }
    if cache_only {
        let path = directory.clone();
        let time = policy.limits.call;
        return Err(SubjectError::Uncached { path, time });
    }
    Ok(git_aliases::expand(directory, home, command))
}

/// Normalises a URL to the form that rules match. A built-in tool gets the same form, so it
/// requests exactly the checked URL.
///
/// # Errors
///
/// Returns an error if a built-in tool can't request the URL.
fn normalize_url(tool: &Tool, text: &mut String) -> Result<String, Failure> {
    let is_built_in_plugin = tool.plugin.is_some() && tool.is_built_in();
    match Target::with_url(text) {
        Ok((_target, url)) => {
            if is_built_in_plugin {
                text.clone_from(&url);
            }
            Ok(url)
        }
        Err(error) if is_built_in_plugin => {
            Err(Failure::new(Category::InvalidParameters, error.to_string()))
        }
        // Otherwise, let the rules match the text itself. The tool checks the URL.
        Err(_) => Ok(text.clone()),
    }
}

struct LocatedPath {
    /// The path for the tool.
    given: String,
    real: String,
}

/// Finds the real path of `path`, and checks that the plugin may use it.
///
/// # Errors
///
/// Returns an error if the path is too long or not granted. With `cache_only`, a path outside of
/// the kernel's cache is also an error.
fn locate(
    plugin: &Plugin,
    home: Option<&Path>,
    subject: &Subject,
    path: &str,
    read_only: bool,
    cache_only: bool,
) -> Result<LocatedPath, SubjectError> {
    if path.len() > MAX_PATH {
        let message = format!("the path is {} bytes; the limit is {MAX_PATH}", path.len());
        return Err(Failure::new(Category::InvalidParameters, message).into());
    }
    let policy = plugin.policy();
    let (Some(grants), Some(directory)) = (&policy.files, policy.directory()) else {
        return Err(no_directory(plugin, home, path).into());
    };
    let path = to_absolute(path, directory, home);
    let mut view = FileView::new(Arc::clone(grants), read_only);
    if policy.read_only && !read_only {
        view = view.of_reading_plugin();
    }
    if cache_only {
        view = view.cache_only();
    }
    let last = if subject.kind == SubjectKind::Name { LastLink::Meant } else { LastLink::Followed };
    match view.locate(&path, subject.access, last) {
        Ok(located) => {
            Ok(LocatedPath { given: to_text(&located.given), real: to_text(&located.real) })
        }
        Err(FileError::Denied(denial)) => Err(Failure::denied(*denial).into()),
        Err(_) if cache_only => Err(SubjectError::Uncached { path, time: policy.limits.call }),
        // The absolute path is longer than the kernel's limit.
        Err(FileError::Errno(_)) => {
            Ok(LocatedPath { given: to_text(&path), real: to_text(&real_or_given(&path)) })
        }
    }
}

fn to_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns the absolute path. `home` replaces `~` in `~` and `~/…`. Other relative paths start at
/// `directory`.
fn to_absolute(path: &str, directory: &Path, home: Option<&Path>) -> PathBuf {
    if let Some(home) = home {
        if path == "~" {
            return home.to_owned();
        }
        if let Some(path_in_home) = path.strip_prefix("~/") {
            return home.join(path_in_home.trim_start_matches('/'));
        }
    }
    directory.join(path)
}

/// Creates the failure of a call with a path, if the plugin has no granted directory.
fn no_directory(plugin: &Plugin, home: Option<&Path>, path: &str) -> Failure {
    Failure::denied(toolhold_contract::Denial {
        capability: "files".into(),
        action: format!("use {}", neutral_line(cut(path, MAX_SHOWN_PATH))),
        rule: "directories need a grant".into(),
        place: "built in".into(),
        remedy: remedy_without_directory(plugin, home, path),
    })
}

fn remedy_without_directory(plugin: &Plugin, home: Option<&Path>, path: &str) -> String {
    let info = plugin.info();
    let policy = plugin.policy();
    let table = &policy.table;
    if info.origin == Origin::BuiltIn {
        return format!("To allow it, set `allowed_paths` in {table}.");
    }
    let without_request = "The plugin's author has to ask for `files` in its manifest.";
    let Some(request) = info.manifest.asks_for(Capability::Files) else {
        return without_request.to_owned();
    };
    let (Some(option), Some(line)) = (request.grant_option(), request.grant_line()) else {
        return without_request.to_owned();
    };
    let directory = policy.working_directory.as_deref().unwrap_or(Path::new(""));
    let Some(folder) = folder_to_grant(&to_absolute(path, directory, home), directory, home) else {
        return "To allow it if it is a directory, grant it in `allowed_paths`. If it is a file, move it into a directory of its own and grant that.".to_owned();
    };
    // `option` and `line` are examples that grant `.`, the working directory.
    let option = option.trim_end_matches('.');
    let lines = table.lines(&line.replace("\".\"", &toml(&folder)));
    if policy.only_this_run {
        return format!("To allow it (the path has to be an existing directory), {lines}");
    }
    let name = &info.manifest.name;
    let shown_folder = neutral_line(&shell_word(&folder));
    format!("To allow it, run `toolhold plugin grant {name} {option}{shown_folder}`, or {lines}")
}

/// Returns the directory of a refused path as a person grants it: `.` for the working directory
/// `directory`. Returns `None` for the root and for directories around the home.
fn folder_to_grant(path: &Path, directory: &Path, home: Option<&Path>) -> Option<String> {
    let path_without_dots = without_dots(path);
    let folder = path_without_dots.parent()?;
    if folder == directory || path_without_dots == directory {
        return Some(".".to_owned());
    }
    let is_root = folder.parent().is_none();
    let contains_home = home.is_some_and(|home| home.starts_with(folder));
    if is_root || contains_home { None } else { Some(to_text(folder)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_start_at_working_directory_and_tilde_at_home() {
        for (path, expected) in [
            ("a/b", "/work/a/b"),
            ("/etc/x", "/etc/x"),
            ("~", "/home/u"),
            ("~/x", "/home/u/x"),
            ("~other/x", "/work/~other/x"),
            ("../x", "/work/../x"),
        ] {
            let absolute = to_absolute(path, Path::new("/work"), Some(Path::new("/home/u")));
            assert_eq!(absolute, PathBuf::from(expected), "{path}");
        }
    }

    #[test]
    fn remedy_names_the_directory_of_the_refused_path() {
        for (path, expected) in [
            ("/work/a.txt", Some(".")),
            ("/work", Some(".")),
            ("/work/sub/a.txt", Some("/work/sub")),
            ("/work/../docs/./a.txt", Some("/docs")),
            ("/home/u/notes/a.txt", Some("/home/u/notes")),
            ("/home/u/.profile", None),
            ("/home/u", None),
            ("/a.txt", None),
            ("/", None),
        ] {
            let home = Some(Path::new("/home/u"));
            let folder = folder_to_grant(Path::new(path), Path::new("/work"), home);
            assert_eq!(folder.as_deref(), expected, "{path}");
        }
    }
}
