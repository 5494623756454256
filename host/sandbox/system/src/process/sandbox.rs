//! The parts of one command's sandbox, in the form that a helper gets.

use std::sync::Arc;

use toolhold_data_dir::PinnedDirectory;

use super::network::SharedNetwork;
use crate::confine::{Preparation, TreeState};
use crate::mounts::Mounts;

/// The sandbox of a command.
pub(super) struct CommandSandbox {
    /// The parts that a helper can set up before the command is known.
    pub(super) preparation: Preparation,
    /// The mounts that this sandbox is based on.
    pub(super) mounts: Arc<Mounts>,
    /// The network that the command shares with other commands.
    pub(super) network: Option<Arc<SharedNetwork>>,
    /// The state that the trees must have when the command starts.
    pub(super) state: TreeState,
    /// Directories that must be held until the command ends.
    pub(super) held: Vec<PinnedDirectory>,
}
