//! The interface that passes a command's directory and variables on to the next command of its
//! session.

use std::fmt;

/// The shell state with which a command of a session starts, and which it passes on to the next
/// command.
pub trait ShellSession: fmt::Debug + Send + Sync + 'static {
    /// Returns the directory in which an earlier command ended, or `None` if the usual directory
    /// applies.
    fn directory(&self) -> Option<&str>;

    /// Forgets a directory that can't be used, for this reason. The next command starts in the
    /// usual directory.
    fn forget_directory(&self, reason: &str);

    /// Returns the variables that earlier commands exported.
    fn variables(&self) -> Vec<(String, String)>;

    /// Stores the state after a command has exited.
    ///
    /// `directory` and `environment` are the state in which the command started. The command wrote
    /// `record` itself, so it may contain anything. If the command wrote no record, `record` is
    /// empty.
    fn finish(&self, directory: &str, environment: &[(String, String)], record: &[u8]);
}
