//! Finds the subjects of a call before it runs: resolves its paths, commands and URLs, and refuses
//! invalid subjects.
//!
//! A path subject is resolved by the path layer. So a denial names its rule, and the tool gets an
//! absolute path below its grant.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use toolhold_contract::{CancellationToken, Category, Failure, Subject, SubjectKind};
use toolhold_engine::{Capability, Origin, Plugin};
use toolhold_policy::ResolvedSubject;
use toolhold_policy::egress::Target;
use toolhold_system::files::{FileError, FileView, LastLink, real_or_given};

use crate::catalogue::Tool;
use crate::git_aliases;

/// Maximum length of a path in bytes, which is the kernel's limit. Resolving a longer path would
/// take long before it fails.
const MAX_PATH: usize = 4096;

/// Maximum number of subjects in one argument.
const MAX_SUBJECTS: usize = 1000;

/// Most look-ups that wait for a file system at a time. Each takes a thread until the file system
/// answers, even if the call has ended.
const MAX_WAITING: usize = 64;

/// Returns the commands that a call would run.
pub fn commands<'a>(tool: &'a Tool, arguments: &'a Value) -> impl Iterator<Item = &'a str> {
    let subjects =
        tool.definition.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command);
    subjects
        .filter_map(|subject| arguments.pointer(&subject.pointer))
        .flat_map(values)
        .filter_map(Value::as_str)
}

/// Resolves the subjects of calls.
#[derive(Debug)]
pub struct Lookups {
    /// The directory for `~`.
    home: Option<PathBuf>,
    /// Limits the look-ups that wait for a file system.
    permits: Arc<Semaphore>,
}

impl Lookups {
    /// Creates a resolver. `home` is the directory that replaces `~`.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self { home, permits: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Checks the paths of a call's subjects, and makes them absolute in the arguments. Also
    /// normalises URLs.
    ///
    /// Adds all subjects of the call to `acted_on`, with the real paths of path subjects. A slow
    /// file system doesn't block other calls.
    ///
    /// # Errors
    ///
    /// Returns the first refusal. The last subject of `acted_on` is then the refused one, as the
    /// call named it. Other errors are `timeout` after the call's time limit, and `cancelled`.
    pub async fn decide(
        &self,
        tool: &Arc<Tool>,
        arguments: &mut Arc<Value>,
        acted_on: &mut Vec<ResolvedSubject>,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let earlier_subjects = acted_on.len();
        let cached =
            resolve_subjects(tool, self.home.as_deref(), Arc::make_mut(arguments), acted_on, true);
        let (path, time) = match cached {
            Ok(()) => return Ok(()),
            Err(SubjectError::Failed(failure)) => return Err(*failure),
            Err(SubjectError::Uncached { path, time }) => (path, time),
        };

        // The file system must be accessed, so all subjects are resolved again on another thread.
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
                    false,
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
                format!("resolving its path failed: {error}"),
            )),
            Ok(None) => {
                Err(Failure::new(Category::Cancelled, "the call was cancelled before it ran"))
            }
            Err(_) => Err(SubjectError::Uncached { path, time }.into_failure()),
        }
    }

    /// Does the same as [`decide`](Self::decide) on this thread, which may wait for a file system.
    ///
    /// # Errors
    ///
    /// Returns the first refusal.
    pub fn decide_here(
        &self,
        tool: &Tool,
        arguments: &mut Arc<Value>,
        acted_on: &mut Vec<ResolvedSubject>,
    ) -> Result<(), Failure> {
        resolve_subjects(tool, self.home.as_deref(), Arc::make_mut(arguments), acted_on, false)
            .map_err(SubjectError::into_failure)
    }
}

/// Why the subjects of a call aren't resolved.
enum SubjectError {
    /// The path isn't in the kernel's cache, so the file system must be accessed. `time` is the
    /// time limit of the call.
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
                    "Use another path, or ask the user to check what is mounted there.";
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

/// Returns the values of an argument, which may be a list.
fn values(argument: &Value) -> &[Value] {
    match argument {
        Value::Array(items) => items,
        value => std::slice::from_ref(value),
    }
}

/// Checks the paths of a call's subjects, and makes them absolute in the arguments. Also normalises
/// URLs.
///
/// Adds all subjects of the call to `acted_on`, with the real paths of path subjects. A missing
/// path means the working directory.
///
/// # Errors
///
/// Returns the first refusal. The last subject of `acted_on` is then the refused one, as the call
/// named it. With `cached`, also returns an error if a path isn't in the kernel's cache.
fn resolve_subjects(
    tool: &Tool,
    home: Option<&Path>,
    arguments: &mut Value,
    acted_on: &mut Vec<ResolvedSubject>,
    cached: bool,
) -> Result<(), SubjectError> {
    let read_only = tool.annotations_with(arguments).read_only;
    let call = ResolvingCall { tool, home, read_only, cached };
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

/// A call while its subjects are resolved.
struct ResolvingCall<'a> {
    tool: &'a Tool,
    home: Option<&'a Path>,
    read_only: bool,
    /// Whether only the kernel's cache is used.
    cached: bool,
}

impl<'a> ResolvingCall<'a> {
    /// Returns the plugin whose grants apply to a path. Only plugins have granted directories.
    /// Other providers handle their paths themselves.
    fn plugin_of(&self, subject: &Subject) -> Option<&'a Plugin> {
        if !subject.kind.is_path() {
            return None;
        }
        self.tool.plugin.as_ref()
    }

    /// Resolves one string of an argument, and replaces it with the form that the tool gets.
    fn resolve(
        &self,
        subject: &Subject,
        text: &mut String,
        acted_on: &mut Vec<ResolvedSubject>,
    ) -> Result<(), SubjectError> {
        let Self { tool, home, read_only, cached } = *self;
        match self.plugin_of(subject) {
            Some(plugin) => match locate(plugin, home, subject, text, read_only, cached) {
                Ok(located) => {
                    *text = located.given;
                    acted_on.push(resolved_subject(subject, located.real));
                }
                Err(uncached @ SubjectError::Uncached { .. }) => return Err(uncached),
                Err(failure) => {
                    let directory = plugin.policy().directory().unwrap_or(Path::new(""));
                    let refused_path = to_absolute(text, directory, home);
                    acted_on.push(resolved_subject(subject, to_text(&refused_path)));
                    return Err(failure);
                }
            },
            None if subject.kind == SubjectKind::Url => {
                let url = normalize_url(tool, text)?;
                acted_on.push(resolved_subject(subject, url));
            }
            None if subject.kind == SubjectKind::Command => {
                let expanded = expand_aliases(tool, home, text, cached)?;
                acted_on.push(resolved_subject(subject, text.clone()));
                for command in expanded {
                    acted_on.push(resolved_subject(subject, command));
                }
            }
            None => acted_on.push(resolved_subject(subject, text.clone())),
        }
        Ok(())
    }
}

fn resolved_subject(subject: &Subject, text: String) -> ResolvedSubject {
    ResolvedSubject { kind: subject.kind, access: subject.access, text }
}

/// Returns the commands that git aliases in a command run.
///
/// # Errors
///
/// With `cached`, returns an error if the command may use aliases, because git's configuration must
/// then be read.
fn expand_aliases(
    tool: &Tool,
    home: Option<&Path>,
    command: &str,
    cached: bool,
) -> Result<Vec<String>, SubjectError> {
    let Some(plugin) = tool.plugin.as_ref() else { return Ok(Vec::new()) };
    let policy = plugin.policy();
    let Some(directory) = &policy.working_directory else { return Ok(Vec::new()) };
    if !git_aliases::may_be_used(command) {
        return Ok(Vec::new());
    }
    if cached {
        let path = directory.clone();
        let time = policy.limits.call;
        return Err(SubjectError::Uncached { path, time });
    }
    Ok(git_aliases::expand(directory, home, command))
}

/// Normalises a URL to the form that rules match. Built-in tools get the same form, so they request
/// exactly the URL that was checked.
///
/// # Errors
///
/// Returns an error if a built-in tool can't request the URL.
fn normalize_url(tool: &Tool, text: &mut String) -> Result<String, Failure> {
    let is_built_in_plugin = tool.plugin.is_some() && tool.is_built_in();
    match Target::with_url(text) {
        Ok((_, url)) => {
            if is_built_in_plugin {
                text.clone_from(&url);
            }
            Ok(url)
        }
        Err(error) if is_built_in_plugin => {
            Err(Failure::new(Category::InvalidParameters, error.to_string()))
        }
        Err(_) => Ok(text.clone()),
    }
}

/// A path that a tool may use.
struct LocatedPath {
    /// The path that the tool gets.
    given: String,
    /// The real path.
    real: String,
}

/// Finds the real path of a path, and checks that the plugin may use it.
///
/// # Errors
///
/// Returns an error if the path is too long or not granted. With `cached`, also returns an error if
/// the path isn't in the kernel's cache.
fn locate(
    plugin: &Plugin,
    home: Option<&Path>,
    subject: &Subject,
    path: &str,
    read_only: bool,
    cached: bool,
) -> Result<LocatedPath, SubjectError> {
    if path.len() > MAX_PATH {
        let message = format!("path is {} bytes; the limit is {MAX_PATH}", path.len());
        return Err(Failure::new(Category::InvalidParameters, message).into());
    }
    let policy = plugin.policy();
    let (Some(grants), Some(directory)) = (&policy.files, policy.directory()) else {
        return Err(no_directory(plugin, path).into());
    };
    let path = to_absolute(path, directory, home);
    let mut view = FileView::new(Arc::clone(grants), policy.read_only || read_only);
    if cached {
        view = view.cache_only();
    }
    let last = if subject.kind == SubjectKind::Name { LastLink::Meant } else { LastLink::Followed };
    match view.locate(&path, subject.access, last) {
        // Both parts are UTF-8, because granted directories with other names are refused.
        Ok(located) => {
            Ok(LocatedPath { given: to_text(&located.given), real: to_text(&located.real) })
        }
        Err(FileError::Denied(denial)) => Err(Failure::denied(*denial).into()),
        Err(_) if cached => Err(SubjectError::Uncached { path, time: policy.limits.call }),
        // The absolute path is too long for the kernel.
        Err(FileError::Errno(_)) => {
            Ok(LocatedPath { given: to_text(&path), real: to_text(&real_or_given(&path)) })
        }
    }
}

fn to_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns the absolute path. A leading `~` is replaced with the home directory. Other relative
/// paths start at `directory`.
fn to_absolute(path: &str, directory: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(below_home), Some(home)) if below_home.starts_with('/') => {
            home.join(below_home.trim_start_matches('/'))
        }
        _ => directory.join(path),
    }
}

fn no_directory(plugin: &Plugin, path: &str) -> Failure {
    Failure::denied(toolhold_contract::Denial {
        capability: "files".into(),
        action: format!(
            "use {}",
            toolhold_contract::text::neutral_line(toolhold_contract::text::cut(path, 1024))
        ),
        rule: "directories need a grant".into(),
        place: "built in".into(),
        remedy: remedy_without_directory(plugin),
    })
}

fn remedy_without_directory(plugin: &Plugin) -> String {
    let info = plugin.info();
    let table = &plugin.policy().table;
    if info.origin == Origin::BuiltIn {
        return format!("To allow it, set `allowed_paths` in {table}.");
    }
    let request = info.manifest.asks_for(Capability::Files);
    let advice = request.and_then(|request| Some((request.grant_option()?, request.grant_line()?)));
    let Some((option, line)) = advice else {
        return "The plugin's author has to ask for `files` in its manifest.".to_owned();
    };
    let name = &info.manifest.name;
    format!("To allow it, run `toolhold plugin grant {name} {option}`, or {}", table.lines(line))
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
}
