use std::path::PathBuf;

use berth_contract::Access;
use berth_policy::files::FileRules;
use cap_std::fs::Dir;

/// The directories of one policy, opened once.
#[derive(Debug)]
pub struct Grants {
    rules: FileRules,
    roots: Vec<Root>,
}

/// A granted directory.
#[derive(Debug)]
pub struct Root {
    /// Pinned to the inode that was granted.
    pub dir: Dir,
    /// Real path.
    pub path: PathBuf,
    /// The most that may be done below it.
    pub access: Access,
}

impl Grants {
    /// The rules that go with the directories.
    pub fn rules(&self) -> &FileRules {
        &self.rules
    }

    /// The directories, in the operator's order.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }
}
