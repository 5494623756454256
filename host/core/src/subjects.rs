//! What a call acts on, decided before it runs.
//!
//! A path subject goes through the path layer, so that a refusal names its rule and the tool gets the path in the one form that it can
//! use: absolute, below its grant.

use std::path::{Path, PathBuf};

use berth_contract::{Category, Failure, Subject, SubjectKind};
use berth_policy::ActedOn;
use berth_runtime::Plugin;
use berth_system::files::{FileError, FileView, LastLink};
use serde_json::Value;

use crate::catalogue::Tool;

/// Bytes of a path: the kernel's bound. Deciding on a longer one would take long before it fails.
const MAX_PATH: usize = 4096;

/// Subjects in one argument.
const MAX_SUBJECTS: usize = 1000;

/// Decides on the paths among the subjects of a call, and makes them absolute in the arguments. Returns everything that the call acts on.
pub(crate) fn decided(tool: &Tool, home: Option<&Path>, arguments: &mut Value) -> Result<Vec<ActedOn>, Failure> {
    let mut acted_on = Vec::new();
    for subject in &tool.definition.subjects {
        let texts: Vec<&mut String> = match arguments.pointer_mut(&subject.pointer) {
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(items)) if items.len() > MAX_SUBJECTS => {
                let message = format!("{} of them at once are too many; at most {MAX_SUBJECTS} are taken", items.len());
                return Err(Failure::new(Category::InvalidParameters, format!("{}: {message}", subject.pointer)));
            }
            Some(Value::Array(items)) => {
                items.iter_mut().filter_map(|item| if let Value::String(text) = item { Some(text) } else { None }).collect()
            }
            _ => Vec::new(),
        };
        for text in texts {
            // Only plugins have directories; other providers' paths are on their own side.
            if let Some(plugin) = tool.plugin.as_ref().filter(|_| subject.kind.is_path()) {
                *text = located(tool, plugin, home, subject, text)?;
            }
            acted_on.push(ActedOn { kind: subject.kind, access: subject.access, text: text.clone() });
        }
    }
    Ok(acted_on)
}

fn located(tool: &Tool, plugin: &Plugin, home: Option<&Path>, subject: &Subject, path: &str) -> Result<String, Failure> {
    if path.len() > MAX_PATH {
        let message = format!("a path of {} bytes is none; at most {MAX_PATH} are taken", path.len());
        return Err(Failure::new(Category::InvalidParameters, message));
    }
    let policy = plugin.policy();
    let (Some(grants), Some(directory)) = (&policy.files, policy.directory()) else {
        return Err(no_directory(plugin, path));
    };
    let absolute = absolute(path, directory, home);
    let read_only = policy.read_only || tool.definition.annotations.read_only;
    let view = FileView::new(std::sync::Arc::clone(grants), read_only);
    let last = if subject.kind == SubjectKind::Name { LastLink::Meant } else { LastLink::Followed };
    match view.locate(&absolute, subject.access, last) {
        // Refused on loading where it could be otherwise: every directory's name is UTF-8, and so is what was joined to it.
        Ok(path) => Ok(path.to_string_lossy().into_owned()),
        Err(FileError::Denied(denial)) => Err(Failure::denied(*denial)),
        Err(FileError::Errno(_)) => Ok(absolute.to_string_lossy().into_owned()),
    }
}

fn absolute(path: &str, directory: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => directory.join(path),
    }
}

fn no_directory(plugin: &Plugin, path: &str) -> Failure {
    let name = &plugin.info().manifest.name;
    Failure::denied(berth_contract::Denial {
        capability: "files".into(),
        action: format!("use {}", berth_contract::text::neutral_line(berth_contract::text::cut(path, 1024))),
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
