//! The interface by which a command leaves its directory and variables to the next one of its
//! session.

use std::fmt;

/// The state that a command of a session starts with, and that it leaves for the next one.
pub trait ShellSession: fmt::Debug + Send + Sync + 'static {
    /// The directory that an earlier command ended in. `None`: the usual one.
    fn directory(&self) -> Option<&str>;

    /// The directory can't be used, for this reason. The next command begins in the usual one.
    fn forget_directory(&self, reason: &str);

    /// The variables that earlier commands exported.
    fn variables(&self) -> Vec<(String, String)>;

    /// The command has exited. It began in this directory with this environment, and wrote this
    /// record itself, so it may hold anything. Empty: it wrote none.
    fn finish(&self, directory: &str, environment: &[(String, String)], record: &[u8]);
}
