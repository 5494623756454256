//! What a call acts on, decided before it runs.
//!
//! A path subject goes through the path layer, so that a refusal names its rule and the tool gets
//! the path in the one form that it can use: absolute, below its grant.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_contract::{CancellationToken, Category, Failure, Subject, SubjectKind};
use berth_policy::ResolvedSubject;
use berth_policy::egress::Target;
use berth_runtime::Plugin;
use berth_system::files::{FileError, FileView, LastLink, real_or_given};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::catalogue::Tool;

/// Bytes of a path: the kernel's bound. Deciding on a longer one would take long before it fails.
const MAX_PATH: usize = 4096;

/// Subjects in one argument.
const MAX_SUBJECTS: usize = 1000;

/// Look-ups that wait for a file system at a time: each takes a thread until it answers, also when
/// nobody waits for that any more.
const MAX_WAITING: usize = 64;

/// The commands that a call would run.
pub fn commands<'a>(tool: &'a Tool, arguments: &'a Value) -> impl Iterator<Item = &'a str> {
    let subjects =
        tool.definition.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command);
    subjects
        .filter_map(|subject| arguments.pointer(&subject.pointer))
        .flat_map(values)
        .filter_map(Value::as_str)
}

/// Looks up what calls act on.
#[derive(Debug)]
pub struct Lookups {
    /// What `~` stands for.
    home: Option<PathBuf>,
    /// Those that wait for a file system.
    places: Arc<Semaphore>,
}

impl Lookups {
    /// `home`: what `~` stands for.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self { home, places: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Decides on the paths among the subjects of a call, and makes them absolute in the arguments;
    /// URLs come into one form. Adds everything that the call acts on to `acted_on`: paths as they
    /// really are. A file system that takes its time or doesn't answer keeps no other call waiting.
    ///
    /// # Errors
    ///
    /// The first refusal. What was refused is then the last of `acted_on`, as it was named.
    /// `timeout` after the time of a call, `cancelled`.
    pub async fn decide(
        &self,
        tool: &Arc<Tool>,
        arguments: &mut Arc<Value>,
        acted_on: &mut Vec<ResolvedSubject>,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let before = acted_on.len();
        let (path, time) = match resolve_subjects(
            tool,
            self.home.as_deref(),
            Arc::make_mut(arguments),
            acted_on,
            true,
        ) {
            Ok(()) => return Ok(()),
            Err(SubjectError::Failed(failure)) => return Err(*failure),
            Err(SubjectError::Uncached { path, time }) => (path, time),
        };
        acted_on.truncate(before);
        let (tool, home, mut given) = (Arc::clone(tool), self.home.clone(), Arc::clone(arguments));
        let look = async {
            let place = Arc::clone(&self.places).acquire_owned().await;
            let look = move || {
                let (_place, mut found) = (place, Vec::new());
                let decided = resolve_subjects(
                    &tool,
                    home.as_deref(),
                    Arc::make_mut(&mut given),
                    &mut found,
                    false,
                );
                (decided.map_err(SubjectError::into_failure), given, found)
            };
            tokio::task::spawn_blocking(look).await
        };
        match tokio::time::timeout(time, cancel.run_until_cancelled(look)).await {
            Ok(Some(Ok((decided, given, found)))) => {
                *arguments = given;
                acted_on.extend(found);
                decided
            }
            Ok(Some(Err(broke_down))) => Err(Failure::new(
                Category::PermanentFailure,
                format!("looking at its path broke down: {broke_down}"),
            )),
            Ok(None) => {
                Err(Failure::new(Category::Cancelled, "the call was cancelled before it ran"))
            }
            Err(_) => Err(SubjectError::Uncached { path, time }.into_failure()),
        }
    }

    /// As [`decide`](Self::decide), on this thread, which may wait for a file system.
    ///
    /// # Errors
    ///
    /// The first refusal.
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

/// Why it is not decided what a call acts on.
enum SubjectError {
    /// A file system has to be asked where this path leads. A call of the tool has so much time.
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

/// The values of an argument that may be a list.
fn values(argument: &Value) -> &[Value] {
    match argument {
        Value::Array(items) => items,
        value => std::slice::from_ref(value),
    }
}

/// Decides on the paths among the subjects of a call, and makes them absolute in the arguments;
/// URLs come into one form. Adds everything that the call acts on to `acted_on`: paths as they
/// really are. A path that is left out is the working directory.
///
/// # Errors
///
/// The first refusal. What was refused is then the last of `acted_on`, as it was named. With
/// `cached`, also what the kernel doesn't have in its cache.
fn resolve_subjects(
    tool: &Tool,
    home: Option<&Path>,
    arguments: &mut Value,
    acted_on: &mut Vec<ResolvedSubject>,
    cached: bool,
) -> Result<(), SubjectError> {
    let read_only = tool.annotations_with(arguments).read_only;
    for subject in &tool.definition.subjects {
        // Only plugins have directories; other providers' paths are on their own side.
        let plugin = tool.plugin.as_ref().filter(|_| subject.kind.is_path());
        let mut add = |text: String| {
            acted_on.push(ResolvedSubject { kind: subject.kind, access: subject.access, text });
        };
        let mut take = |text: &mut String| {
            match plugin {
                Some(plugin) => {
                    let located = match located(plugin, home, subject, text, read_only, cached) {
                        Ok(located) => located,
                        Err(uncached @ SubjectError::Uncached { .. }) => return Err(uncached),
                        Err(failure) => {
                            let directory = plugin.policy().directory().unwrap_or(Path::new(""));
                            add(absolute(text, directory, home).to_string_lossy().into_owned());
                            return Err(failure);
                        }
                    };
                    *text = located.given;
                    add(located.real);
                }
                None if subject.kind == SubjectKind::Url => add(url(tool, text)?),
                None => add(text.clone()),
            }
            Ok::<(), SubjectError>(())
        };
        match arguments.pointer_mut(&subject.pointer) {
            Some(Value::String(text)) => take(text)?,
            Some(Value::Array(items)) if items.len() > MAX_SUBJECTS => {
                let message = format!(
                    "{} of them at once are too many; at most {MAX_SUBJECTS} are taken",
                    items.len()
                );
                return Err(Failure::new(
                    Category::InvalidParameters,
                    format!("{}: {message}", subject.pointer),
                )
                .into());
            }
            Some(Value::Array(items)) => {
                for item in items {
                    if let Value::String(text) = item {
                        take(text)?;
                    }
                }
            }
            None | Some(Value::Null) => {
                if let Some(directory) =
                    plugin.and_then(|plugin| plugin.policy().directory()).and_then(Path::to_str)
                {
                    add(directory.to_owned());
                }
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// A URL in the form that rules look at. Berth's own tools get it in that form, so that what is
/// decided on is what is asked for.
///
/// # Errors
///
/// Where one of Berth's own tools can't request it.
fn url(tool: &Tool, text: &mut String) -> Result<String, Failure> {
    let ours = tool.plugin.is_some() && tool.is_built_in();
    match Target::with_url(text) {
        Ok((_, url)) => {
            if ours {
                text.clone_from(&url);
            }
            Ok(url)
        }
        Err(why) if ours => Err(Failure::new(Category::InvalidParameters, why)),
        Err(_) => Ok(text.clone()),
    }
}

/// A path that a tool may have.
struct LocatedPath {
    /// As the tool gets it.
    given: String,
    /// Where it really leads.
    real: String,
}

fn located(
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
    let absolute = absolute(path, directory, home);
    let view = FileView::new(Arc::clone(grants), policy.read_only || read_only);
    let view = if cached { view.cached() } else { view };
    let last = if subject.kind == SubjectKind::Name { LastLink::Meant } else { LastLink::Followed };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    match view.locate(&absolute, subject.access, last) {
        // Refused on loading where it could be otherwise: every directory's name is UTF-8, and so
        // is what was joined to it.
        Ok(located) => Ok(LocatedPath { given: text(&located.given), real: text(&located.real) }),
        Err(FileError::Denied(denial)) => Err(Failure::denied(*denial).into()),
        Err(_) if cached => {
            Err(SubjectError::Uncached { path: absolute, time: policy.limits.call })
        }
        // Too long for the kernel, once it was made absolute.
        Err(FileError::Errno(_)) => {
            Ok(LocatedPath { given: text(&absolute), real: text(&real_or_given(&absolute)) })
        }
    }
}

fn absolute(path: &str, directory: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => directory.join(path),
    }
}

fn no_directory(plugin: &Plugin, path: &str) -> Failure {
    let name = &plugin.info().manifest.name;
    Failure::denied(berth_contract::Denial {
        capability: "files".into(),
        action: format!(
            "use {}",
            berth_contract::text::neutral_line(berth_contract::text::cut(path, 1024))
        ),
        rule: "the rule that a plugin has no directory without a grant".into(),
        place: "built in".into(),
        remedy: format!(
            "To allow it, set `allowed_paths` in [plugins.{name}] of berth.toml; the plugin's manifest has to ask for `files`."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_start_where_a_person_expects() {
        let absolute = |path| absolute(path, Path::new("/work"), Some(Path::new("/home/u")));
        for (path, expected) in [
            ("a/b", "/work/a/b"),
            ("/etc/x", "/etc/x"),
            ("~", "/home/u"),
            ("~/x", "/home/u/x"),
            ("~other/x", "/work/~other/x"),
            ("../x", "/work/../x"),
        ] {
            assert_eq!(absolute(path), PathBuf::from(expected), "{path}");
        }
    }
}
