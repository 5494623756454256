//! Computes the change that a call would make in a file, before anyone is asked.

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

/// Largest size, in bytes, of a file before and after the change.
pub(crate) const MAX_COMPARED: usize = 1024 * 1024;

/// Maximum length in bytes of a diff that a person would read. For a longer diff, the arguments are
/// shown instead if they are shorter.
const MAX_DIFF: usize = 48 * 1024;

/// Time limit for finding the shortest diff. After that, the diff is still correct, but may be
/// longer.
const TIME: Duration = Duration::from_millis(200);

/// The change that a call would make in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// The file's real path.
    pub file: String,
    /// The SHA-256 of the file's content in hexadecimal digits. If the file doesn't exist, the
    /// digest is that of an empty content.
    pub sha256: String,
    /// A unified diff, which may contain any characters.
    pub diff: String,
    /// The names of the arguments that the diff shows in full. They don't have to be shown again.
    pub shows: Vec<String>,
}

/// A preview with the state of the file that it shows. If the file changes, the same arguments may
/// cause another change.
pub(crate) struct PreviewedChange {
    pub(crate) preview: Preview,
    /// The SHA-256 of the file before the change.
    pub(crate) before: [u8; 32],
    /// The SHA-256 of the file after the change. `None` if a repeated call could change the file
    /// again.
    pub(crate) settled: Option<[u8; 32]>,
}

/// Computes the preview of a call. Returns `None` unless a built-in tool declares its change and
/// the file may be read.
///
/// # Errors
///
/// Returns the tool's own failure if the text to replace isn't in the file.
pub(crate) async fn preview(context: &CallContext) -> Result<Option<PreviewedChange>, Failure> {
    let Some(job) = preview_job(context) else { return Ok(None) };
    // Reading may wait for a disk or a network.
    tokio::task::spawn_blocking(job).await.unwrap_or(Ok(None))
}

/// Computes the preview like [`preview`], and blocks.
pub(crate) fn preview_blocking(context: &CallContext) -> Result<Option<PreviewedChange>, Failure> {
    match preview_job(context) {
        Some(job) => job(),
        None => Ok(None),
    }
}

/// Returns a function that computes the preview and doesn't borrow the call.
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
    // The real path is stored, so that checking the question later follows no link.
    let real = context.subjects.first().map(|subject| subject.text.clone());
    Some(move || compute(&declared, grants, &arguments, real))
}

/// Computes the preview of a declared change. `real` is the real path of the file.
fn compute(
    declared: &PreviewArguments,
    grants: Arc<Grants>,
    arguments: &Value,
    real: Option<String>,
) -> Result<Option<PreviewedChange>, Failure> {
    let PreviewArguments { file, change } = declared;
    let Some(file) = text(arguments, file) else { return Ok(None) };
    let Some(before) = read(grants, Path::new(file)) else { return Ok(None) };
    let Some(after) = apply(change, file, &before, arguments)? else { return Ok(None) };
    let Some(diff_text) = diff(&before, &after) else { return Ok(None) };

    let (shows, settled) = match change {
        ChangeArguments::Whole(content) => {
            (vec![content.clone()], Some(Sha256::digest(&after).into()))
        }
        ChangeArguments::Part { old, new, .. } => (vec![old.clone(), new.clone()], None),
    };
    let digest = Sha256::digest(&before);
    let preview = Preview {
        file: real.unwrap_or_else(|| file.to_owned()),
        sha256: format!("{digest:x}"),
        diff: diff_text,
        shows,
    };
    Ok(Some(PreviewedChange { preview, before: digest.into(), settled }))
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
            return Ok(text(arguments, content).map(str::to_owned));
        }
        ChangeArguments::Part { old, new, all } => (old, new, all),
    };
    let Some(from) = text(arguments, old) else { return Ok(None) };
    let Some(to) = text(arguments, new) else { return Ok(None) };
    if from.is_empty() {
        return Ok(None);
    }
    if !before.contains(from) {
        // A text without carriage returns also matches lines that end with one.
        if before.replace("\r\n", "\n").contains(from) {
            return Ok(None);
        }
        return Err(no_match(old, file, before));
    }

    let everywhere = match all {
        Some(all) => arguments.get(all).and_then(Value::as_bool) == Some(true),
        None => false,
    };
    let count = if everywhere { usize::MAX } else { 1 };
    Ok(Some(before.replacen(from, to, count)))
}

fn text<'a>(arguments: &'a Value, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str)
}

/// Makes the failure of a tool that doesn't find the text to replace.
fn no_match(old: &str, file: &str, before: &str) -> Failure {
    let why = if before.is_empty() { ": the file is empty, or not there" } else { "" };
    let failure = Failure::new(
        Category::PermanentFailure,
        format!("{old} is not in {file}{why}; no approval was asked for"),
    );
    failure
        .with_code("no-match")
        .with_suggestion("Copy the text exactly as read shows it, without the numbers.")
}

/// Reads the text of a file. A missing file has an empty text. Returns `None` if the text may not
/// be read, is too long, or isn't valid text.
fn read(grants: Arc<Grants>, path: &Path) -> Option<String> {
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let opened = match FileView::new(grants, true).open(path, options) {
        Ok(opened) if opened.kind == FileType::RegularFile => opened,
        Err(FileError::Errno(Errno::NOENT)) => return Some(String::new()),
        _ => return None,
    };
    let mut bytes = Vec::new();
    File::from(opened.handle).take(MAX_COMPARED as u64 + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() > MAX_COMPARED {
        return None;
    }
    String::from_utf8(bytes).ok()
}

/// Returns the unified diff of two texts, or `None` if it is too long for a person to read.
fn diff(before: &str, after: &str) -> Option<String> {
    if after.len() > MAX_COMPARED {
        return None;
    }
    let lines = TextDiff::configure().timeout(TIME).diff_lines(before, after);
    let text = lines.unified_diff().context_radius(3).to_string();
    if text.len() > MAX_DIFF {
        return None;
    }
    Some(text)
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
