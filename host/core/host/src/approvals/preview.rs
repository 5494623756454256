//! Computes the change that a call would make in a file, before a person is asked.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use similar::TextDiff;
use toolhold_catalogue::CallContext;
use toolhold_contract::{Category, ChangeArguments, Failure, PreviewArguments};
use toolhold_system::files::{FileError, FileView, Grants, OpenOptions};

/// Maximum length of a file in bytes, before and after the change. There is no preview of a longer
/// file.
pub(crate) const MAX_COMPARED: usize = 1024 * 1024;

/// Maximum length of a diff in bytes. With a longer diff, the person sees the arguments.
const MAX_DIFF: usize = 48 * 1024;

/// Time limit for finding the shortest diff. A diff after this time is correct, but may be longer.
const MAX_DIFF_TIME: Duration = Duration::from_millis(200);

/// The number of unchanged lines before and after a change in a diff.
const CONTEXT_LINES: usize = 3;

/// The change that a call would make in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// The file's real path.
    pub file: String,
    /// The SHA-256 of the file's content in hexadecimal digits. A missing file has the digest of
    /// empty content.
    pub sha256: String,
    /// A unified diff. It may contain any characters.
    pub diff: String,
    /// The names of the arguments that the diff shows in full.
    pub shows: Vec<String>,
}

/// A preview, and the state of the file. After a change of the file, the same arguments may cause
/// another change.
pub(crate) struct PreviewedChange {
    pub(crate) preview: Preview,
    /// The SHA-256 of the file before the change.
    pub(crate) before: [u8; 32],
    /// The SHA-256 of the file after the change, if a repeated call doesn't change the file again.
    pub(crate) final_digest: Option<[u8; 32]>,
}

/// Computes the preview of a call. Returns `None` unless a built-in tool declares its change and
/// the file may be read.
///
/// # Errors
///
/// Returns the failure of the tool if the text to replace isn't in the file.
pub(crate) async fn preview(context: &CallContext) -> Result<Option<PreviewedChange>, Failure> {
    let Some(job) = preview_job(context) else { return Ok(None) };
    // Reading may wait for a disk or a network.
    let result = tokio::task::spawn_blocking(job).await;
    // If the job has panicked, the person sees the arguments without a preview.
    result.unwrap_or(Ok(None))
}

pub(crate) fn preview_blocking(context: &CallContext) -> Result<Option<PreviewedChange>, Failure> {
    match preview_job(context) {
        Some(job) => job(),
        None => Ok(None),
    }
}

/// Returns a function that computes the preview. The function borrows nothing from the call.
fn preview_job(
    context: &CallContext,
) -> Option<impl FnOnce() -> Result<Option<PreviewedChange>, Failure> + Send + 'static> {
    let tool = context.tool.as_deref()?;
    if !tool.is_built_in() {
        return None;
    }
    let declared = tool.definition.preview.clone()?;
    let grants = Arc::clone(tool.plugin.as_ref()?.policy().files.as_ref()?);
    let arguments = Arc::clone(&context.arguments);
    // The preview has the real path, because a later check of the file must follow no link.
    let real_path = context.subjects.first().map(|subject| subject.text.clone());
    Some(move || compute(&declared, grants, &arguments, real_path))
}

/// Computes the preview. Returns `None` if the file can't be read, the change can't be computed, or
/// the diff is too long. `real_path` is the real path of the file, if the call's subjects have it.
fn compute(
    declared: &PreviewArguments,
    grants: Arc<Grants>,
    arguments: &Value,
    real_path: Option<String>,
) -> Result<Option<PreviewedChange>, Failure> {
    let PreviewArguments { file: file_argument, change } = declared;
    let Some(file) = text_argument(arguments, file_argument) else { return Ok(None) };
    let Some(before) = read(grants, Path::new(file)) else { return Ok(None) };
    let Some(after) = apply(change, file, &before, arguments)? else { return Ok(None) };
    let Some(diff_text) = diff(&before, &after) else { return Ok(None) };

    let (shows, final_digest) = match change {
        // A repeated call finds the file with this digest, and changes nothing.
        ChangeArguments::Whole(content) => {
            (vec![content.clone()], Some(Sha256::digest(&after).into()))
        }
        // A repeated call may change the file again, so no digest is final.
        ChangeArguments::Part { old, new, .. } => (vec![old.clone(), new.clone()], None),
    };
    let digest = Sha256::digest(&before);
    let preview = Preview {
        file: real_path.unwrap_or_else(|| file.to_owned()),
        sha256: format!("{digest:x}"),
        diff: diff_text,
        shows,
    };
    Ok(Some(PreviewedChange { preview, before: digest.into(), final_digest }))
}

/// Applies a change to the text of a file. Returns `None` if an argument is missing, or if only the
/// tool can find the text to replace.
///
/// # Errors
///
/// Returns an error if the text to replace isn't in the file.
fn apply(
    change: &ChangeArguments,
    file: &str,
    before: &str,
    arguments: &Value,
) -> Result<Option<String>, Failure> {
    let (old, new, all) = match change {
        ChangeArguments::Whole(content) => {
            return Ok(text_argument(arguments, content).map(str::to_owned));
        }
        ChangeArguments::Part { old, new, all } => (old, new, all),
    };
    let Some(from) = text_argument(arguments, old) else { return Ok(None) };
    let Some(to) = text_argument(arguments, new) else { return Ok(None) };
    if from.is_empty() {
        return Ok(None);
    }
    if !before.contains(from) {
        // The tool ignores carriage returns at line ends, so it may find the text nevertheless.
        if before.replace("\r\n", "\n").contains(from) {
            return Ok(None);
        }
        return Err(no_match(old, file, before));
    }

    let replaces_all = match all {
        Some(all) => arguments.get(all).and_then(Value::as_bool) == Some(true),
        None => false,
    };
    let after = if replaces_all { before.replace(from, to) } else { before.replacen(from, to, 1) };
    Ok(Some(after))
}

fn text_argument<'a>(arguments: &'a Value, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str)
}

/// Creates the failure of a call if the text to replace isn't in the file. `argument` is the name
/// of the argument with this text.
fn no_match(argument: &str, file: &str, content: &str) -> Failure {
    let why = if content.is_empty() { ": the file is empty or missing" } else { "" };
    let failure = Failure::new(
        Category::PermanentFailure,
        format!("{argument} is not in {file}{why}, so the call did not ask for approval"),
    );
    failure
        .with_code("no-match")
        .with_suggestion("Copy the text exactly as read shows it, without the numbers.")
}

/// Reads the text of a file. A missing file has an empty text. Returns `None` if the file may not
/// be read, is too long, or isn't UTF-8.
fn read(grants: Arc<Grants>, path: &Path) -> Option<String> {
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let read_only = true;
    let opened = match FileView::new(grants, read_only).open(path, options) {
        Ok(opened) if opened.kind == FileType::RegularFile => opened,
        Err(FileError::Errno(Errno::NOENT)) => return Some(String::new()),
        // The file may not be read, or isn't a regular file.
        _ => return None,
    };
    let mut bytes = Vec::new();
    // One more byte shows that the file is too long.
    let most_bytes = MAX_COMPARED as u64 + 1;
    File::from(opened.handle).take(most_bytes).read_to_end(&mut bytes).ok()?;
    if bytes.len() > MAX_COMPARED {
        return None;
    }
    String::from_utf8(bytes).ok()
}

/// Returns the unified diff of two texts. Returns `None` if `after` is too long to compare, or the
/// diff is too long to show.
fn diff(before: &str, after: &str) -> Option<String> {
    if after.len() > MAX_COMPARED {
        return None;
    }
    let changes = TextDiff::configure().timeout(MAX_DIFF_TIME).diff_lines(before, after);
    let diff = changes.unified_diff().context_radius(CONTEXT_LINES).to_string();
    if diff.len() > MAX_DIFF {
        return None;
    }
    Some(diff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_shows_changes_with_three_lines_around() {
        let before: String = (1..=20).map(|line| format!("line {line}\n")).collect();
        let after = before.replace("line 10\n", "line ten\n");
        let text = diff(&before, &after).expect("it is short");
        assert_eq!(
            text,
            "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n line 12\n line 13\n"
        );
        assert_eq!(diff("a", "a").as_deref(), Some(""));
        assert_eq!(diff("", "new\n").as_deref(), Some("@@ -0,0 +1 @@\n+new\n"));
    }

    #[test]
    fn overlong_diff_is_not_computed() {
        assert_eq!(diff("", &"x\n".repeat(MAX_DIFF)), None);
        assert_eq!(diff("", &"x".repeat(MAX_COMPARED + 1)), None);
    }
}
