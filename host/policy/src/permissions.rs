//! `[tools.permissions.TOOL]`: what each tool may do without asking, only with a yes, or not at all.

use crate::action::Action;

/// Bytes of a subject that stands whole in a remedy. A longer one would hide the rule that it is part of.
const MAX_SHOWN: usize = 256;

/// The line of the configuration that would allow exactly this call, and no other.
pub(crate) fn to_allow(action: &Action<'_>) -> String {
    let tool = action.tool;
    let rules: Vec<String> = action
        .subjects
        .iter()
        .filter(|subject| subject.text.len() <= MAX_SHOWN && !subject.text.contains(char::is_control))
        .map(|subject| format!("{{ pattern = {:?}, action = \"allow\" }}", literal(&subject.text)))
        .collect();
    if rules.is_empty() || rules.len() < action.subjects.len() {
        return format!("To allow it without asking, give the tool a permission that matches it: [[tools.permissions.{tool}]].");
    }
    format!("To allow it without asking: tools.permissions.{tool} = [{}]", rules.join(", "))
}

/// `text` as a pattern that matches nothing else.
pub fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
