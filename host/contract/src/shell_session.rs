//! The interface by which a command leaves its directory and variables to the next one of its
//! session.

use std::fmt;

/// The state that a command of a session starts with, and that it leaves for the next one.
pub trait ShellSession: fmt::Debug + Send + Sync + 'static {
    /// Returns the directory that an earlier command ended in. Returns `None` if the usual
    /// directory applies.
    fn directory(&self) -> Option<&str>;

    /// Forgets a directory that can't be used, for this reason. The next command starts in the
    /// usual directory.
    fn forget_directory(&self, reason: &str);

    /// Returns the variables that earlier commands exported.
    fn variables(&self) -> Vec<(String, String)>;

    /// Stores the state that an exited command leaves. The command started in this directory with
    /// this environment. The command wrote the record itself, so the record may contain anything.
    /// The record is empty if the command wrote none.
    fn finish(&self, directory: &str, environment: &[(String, String)], record: &[u8]);
}
