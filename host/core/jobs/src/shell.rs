//! Passes the directory and exported variables of a command on to the session's next command.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolhold_contract::ShellSession;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_redaction::{self as redaction, Keys};
use toolhold_shell_commands::{CarriedChanges, CommandStart, ShellState};

/// Maximum length of a reason in a notice, in bytes. A longer reason is cut.
const MAX_REASON: usize = 1024;

/// The shell state of a session. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SessionShell(Arc<Mutex<ShellState>>);

impl SessionShell {
    /// Returns the shell state for a call. The rules decide on this state.
    pub fn begin(&self) -> CallShell {
        let began = self.state().clone();
        CallShell { session: self.clone(), began, notices: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ShellState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shell state at the start of the commands of one call.
#[derive(Debug)]
pub struct CallShell {
    session: SessionShell,
    began: ShellState,
    notices: Mutex<Vec<String>>,
}

impl CallShell {
    /// Returns the shell state at the start.
    pub fn began(&self) -> &ShellState {
        &self.began
    }

    /// Returns the shell state with secrets redacted, for people.
    pub fn shown(&self) -> ShellState {
        let mut shown = self.began.clone();
        for (name, value) in &mut shown.variables {
            *value = redaction::field(name, value, Keys::Text).into_owned();
        }
        shown
    }

    /// Takes the notices for the reader of the answer.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn notice(&self, notice: String) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
    }

    fn notice_lost_changes(&self, reason: &str) {
        self.notice(format!(
            "Later commands don't get the directory and the variables of this command: {reason}."
        ));
    }
}

impl ShellSession for CallShell {
    fn directory(&self) -> Option<&str> {
        self.began.directory.as_deref()
    }

    fn forget_directory(&self, reason: &str) {
        let mut state = self.session.state();
        // A command of another call may have changed the directory meanwhile.
        if state.directory == self.began.directory {
            state.directory = None;
        }
        let shown_reason = neutral_line(cut(reason, MAX_REASON));
        self.notice(format!(
            "The directory of the last command can't be used: {shown_reason}. This command started in the default directory."
        ));
    }

    fn variables(&self) -> Vec<(String, String)> {
        self.began.variables.clone().into_iter().collect()
    }

    fn finish(&self, directory: &str, environment: &[(String, String)], record: &[u8]) {
        let start = CommandStart { directory, environment, carried: &self.began };
        if record.is_empty() {
            self.notice_lost_changes(
                "the command left no record (because of `exec`, a trap on EXIT, or a signal)",
            );
            return;
        }
        let changes = match CarriedChanges::from_record(record, start) {
            Ok(changes) => changes,
            Err(error) => {
                self.notice_lost_changes(&format!("the command's record isn't valid: {error}"));
                return;
            }
        };
        let applied = self.session.state().apply(changes);
        if let Err(error) = applied {
            self.notice_lost_changes(&error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_keeps_what_it_began_with_and_says_what_is_not_carried() {
        let session = SessionShell::default();
        let (first, second) = (session.begin(), session.begin());
        first.finish("/work", &[], b"toolhold-state\0/work/sub\0A=1\0end\0");
        assert_eq!((second.directory(), second.variables()), (None, Vec::new()));
        let third = session.begin();
        assert_eq!(third.directory(), Some("/work/sub"));
        assert_eq!(third.began().in_front_of("make"), "export A='1'\nmake");
        third.finish("/work/sub", &third.variables(), b"");
        third.finish("/work/sub", &third.variables(), b"toolhold-state\0/\0");
        let notices = third.take_notices();
        assert!(notices[0].contains("left no record") && notices[1].contains("isn't valid"));
        assert_eq!(
            (session.begin().directory(), third.take_notices().len()),
            (Some("/work/sub"), 0)
        );
        third.forget_directory("it is gone\u{1b}[2J");
        assert!(!third.take_notices()[0].contains('\u{1b}'));
        assert_eq!(session.begin().directory(), None);
    }
}
