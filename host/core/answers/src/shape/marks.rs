//! Refuses arguments that contain the mark of a redacted secret, because a tool could write the
//! mark to a file in place of the secret.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use serde_json::Value;
use toolhold_contract::{Body, Category, Failure};
use toolhold_redaction::first_mark;
use toolhold_system::files::{FileView, OpenOptions};

use toolhold_catalogue::CallContext;

/// Maximum number of files of a call that are searched for a mark.
const SEARCHED_FILES: usize = 8;

/// Maximum number of bytes of a file that are searched for a mark.
const MAX_FILE: u64 = 16 << 20;

/// Refuses a call whose arguments or attachments contain the mark of a redacted secret. A mark that
/// a file of the call already contains as ordinary text is accepted.
///
/// # Errors
///
/// [`Category::InvalidParameters`] if the call is refused.
pub(super) fn check(context: &CallContext) -> Result<(), Failure> {
    let mut attached_texts = context.attachments.iter().filter_map(|part| match &part.body {
        Body::Text(text) => Some(text),
        _ => None,
    });
    let in_arguments = find_mark(&context.arguments);
    let mark = in_arguments.or_else(|| attached_texts.find_map(|text| first_mark(text)));
    let Some(mark) = mark else { return Ok(()) };
    if is_in_file(context, mark) {
        return Ok(());
    }
    let message = format!(
        "the arguments contain {mark}, a mark that replaces a secret in an earlier answer; the \
         tool would get the mark instead of the secret"
    );
    let suggestion = "Leave that text unchanged and edit the text around it, or ask the user to make this change. To exempt a tool: `exempt` in [tools.redaction].";
    Err(Failure::new(Category::InvalidParameters, message)
        .with_code("redacted")
        .with_suggestion(suggestion))
}

/// Returns the first mark in a string or a key of the value.
fn find_mark(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => first_mark(text),
        Value::Array(items) => items.iter().find_map(find_mark),
        Value::Object(fields) => {
            fields.iter().find_map(|(key, value)| first_mark(key).or_else(|| find_mark(value)))
        }
        _ => None,
    }
}

/// Checks whether one of the call's files contains the mark. Only the first files are read.
fn is_in_file(context: &CallContext, mark: &str) -> bool {
    let Some(tool) = &context.tool else { return false };
    let Some(plugin) = &tool.plugin else { return false };
    let Some(grants) = &plugin.policy().files else { return false };
    let read_only = true;
    let view = FileView::new(Arc::clone(grants), read_only);
    let paths = context.subjects.iter().filter(|subject| subject.kind.is_path());
    for subject in paths.take(SEARCHED_FILES) {
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let Ok(opened) = view.open(subject.text.as_ref(), options) else { continue };
        let mut bytes = Vec::new();
        // Opening a directory succeeds, but reading fails.
        let result = File::from(opened.handle).take(MAX_FILE).read_to_end(&mut bytes);
        if result.is_ok() && String::from_utf8_lossy(&bytes).contains(mark) {
            return true;
        }
    }
    false
}
