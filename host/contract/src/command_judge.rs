//! The interface that decides on commands that a plugin chooses.

use std::fmt;
use std::sync::Arc;

use crate::{Failure, PathRules};

/// Decides on commands that a plugin chooses during its call. The rules for `bash` apply.
pub trait CommandApprover: fmt::Debug + Send + Sync + 'static {
    /// Decides on a command line. Blocks while a model judges the command or a person is asked.
    ///
    /// # Errors
    ///
    /// Returns the denial if the command must not be started.
    fn judge(&self, line: &str) -> Result<JudgedCommand, Failure>;
}

/// The access of an allowed command.
#[derive(Clone, Debug)]
pub struct JudgedCommand {
    /// Whether the command may use the network.
    pub network: bool,
    /// The rules for `bash`, applied to each path that the command reaches. With `None`, only the
    /// grants apply.
    pub path_rules: Option<Arc<dyn PathRules>>,
}
