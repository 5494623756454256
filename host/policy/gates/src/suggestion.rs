//! The pattern of a rule that allows a call and similar calls.

use toolhold_contract::SubjectKind;
use toolhold_shell_commands::command_family;

use crate::action::Action;

/// Returns the pattern of a rule that allows a call and similar calls. The pattern is `*` for a
/// tool of a plugin or server that isn't trusted to name its subjects. For a command, the pattern
/// is the family of the command, such as `git status *`. Returns `None` if a rule should allow only
/// this call, such as a call of a tool that may destroy something.
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
