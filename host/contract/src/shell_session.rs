//! The interface that passes a command's directory and variables on to the session's next command.

use std::fmt;

/// The shell state of a session: the directory and variables at the start of its next command.
pub trait ShellSession: fmt::Debug + Send + Sync + 'static {
    /// Returns the directory in which the last command ended. `None` means the usual directory.
    fn directory(&self) -> Option<&str>;

    /// Forgets the directory because it can't be used. The next command starts in the usual
    /// directory.
    fn forget_directory(&self, reason: &str);

    /// Returns the variables that earlier commands exported.
    fn variables(&self) -> Vec<(String, String)>;

    /// Stores the state after a command has exited.
    ///
    /// `directory` and `environment` are the state at the start of the command. `record` is the
    /// state at its end, or empty. The command itself wrote `record`, so its content is untrusted.
    fn finish(&self, directory: &str, environment: &[(String, String)], record: &[u8]);
}
