//! The parts of one command's sandbox, as a helper gets them.

use std::sync::Arc;

use toolhold_data_dir::PinnedDirectory;

use super::network::SharedNetwork;
use crate::confine::{Preparation, TreeState};
use crate::mounts::Mounts;

/// The sandbox of a command.
pub(super) struct CommandSandbox {
    /// The parts that a helper can set up before the command is known.
    pub(super) preparation: Preparation,
    /// The mounts for which this holds.
    pub(super) mounts: Arc<Mounts>,
    /// The network that it shares with other commands.
    pub(super) network: Option<Arc<SharedNetwork>>,
    /// The state that has to be the same when the command starts.
    pub(super) state: TreeState,
    /// Directories that must be held until the command ends.
    pub(super) held: Vec<PinnedDirectory>,
}
