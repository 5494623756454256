//! The interface that decides on the commands that a plugin chooses, like calls of `bash`.

use std::fmt;
use std::sync::Arc;

use crate::{Failure, PathRules};

/// Decides on the commands that a plugin chooses during its call, like calls of `bash`.
pub trait CommandApprover: fmt::Debug + Send + Sync + 'static {
    /// Decides on a command line. Blocks while a model judges the command or a person is asked
    /// about it.
    ///
    /// # Errors
    ///
    /// Returns the denial if the command must not be started.
    fn judge(&self, line: &str) -> Result<JudgedCommand, Failure>;
}

/// Access of an allowed command.
#[derive(Clone, Debug)]
pub struct JudgedCommand {
    /// Whether the command may use the network.
    pub network: bool,
    /// The rules about calls of `bash`, which apply to the paths that the command reaches. With
    /// `None`, only the grants apply.
    pub path_rules: Option<Arc<dyn PathRules>>,
}
