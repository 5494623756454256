//! The interface by which the commands that a plugin chooses are decided on like calls of `bash`.

use std::fmt;
use std::sync::Arc;

use crate::{Failure, PathRules};

/// Decides on the commands that a plugin chooses during its call, as on calls of `bash`.
pub trait CommandApprover: fmt::Debug + Send + Sync + 'static {
    /// Decides on a command line. Blocks while a model judges it or a person is asked about it.
    ///
    /// # Errors
    ///
    /// The refusal. The command must not be started.
    fn judge(&self, line: &str) -> Result<JudgedCommand, Failure>;
}

/// Access of an allowed command.
#[derive(Clone, Debug)]
pub struct JudgedCommand {
    /// Whether the command may reach the network.
    pub network: bool,
    /// The rules about calls of `bash` for the paths that it reaches. `None`: only the grants
    /// apply.
    pub path_rules: Option<Arc<dyn PathRules>>,
}
