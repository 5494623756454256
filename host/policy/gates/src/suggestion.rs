//! The pattern that a person would write to allow a call and others like it.

use toolhold_contract::SubjectKind;
use toolhold_shell_commands::command_family;

use crate::action::Action;

/// Returns the pattern of a rule that allows a call and others like it: `*` for a tool of a plugin
/// or server whose arguments say nothing, `git status *` for a command with arguments. Returns `None` if a rule
/// should allow the call alone, as for a tool that may destroy something.
pub fn wide_pattern(action: &Action<'_>) -> Option<String> {
    if action.says_destructive {
        return None;
    }
    if !action.built_in && (action.subjects.is_empty() || !action.subjects_trusted) {
        return Some("*".to_owned());
    }
    match action.subjects {
        [subject] if subject.kind == SubjectKind::Command => {
            command_family(&subject.text).map(|family| format!("{family} *"))
        }
        _ => None,
    }
}
