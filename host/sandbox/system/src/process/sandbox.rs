//! The parts of one command's sandbox, in the form that a helper gets.

use std::sync::Arc;

use toolhold_data_dir::PinnedDirectory;

use super::network::SharedNetwork;
use crate::confine::{Preparation, TreeState};
use crate::mounts::Mounts;

pub(super) struct CommandSandbox {
    /// The part that a helper can set up before the command is known.
    pub(super) preparation: Preparation,
    pub(super) mounts: Arc<Mounts>,
    pub(super) network: Option<Arc<SharedNetwork>>,
    pub(super) state: TreeState,
    /// Directories that reserve paths until the command ends.
    pub(super) held: Vec<PinnedDirectory>,
}
