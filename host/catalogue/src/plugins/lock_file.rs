//! The content of the lock file, and the other files that come into force with it.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toolhold_contract::HostError;
use toolhold_private::PrivateFolder;

use super::approvals::LockedPlugin;

/// The permissions of files beside the lock file: the ceiling is for every user of the machine.
const MODE: u32 = 0o644;

/// What the lock file holds. `pending` stands beside the plugins, and is no plugin's name.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct LockFile {
    /// Files that were written and aren't in their places yet. Writing the lock file with them is
    /// the one step that puts all of them into force.
    #[serde(default, rename = "$pending", skip_serializing_if = "Vec::is_empty")]
    pub(super) pending: Vec<FilePlace>,
    #[serde(flatten)]
    pub(super) plugins: BTreeMap<String, LockedPlugin>,
}

impl LockFile {
    /// Puts the pending files in their places. Repeating it does no harm.
    pub(super) fn finish(&mut self) -> Result<(), HostError> {
        for place in &self.pending {
            place.replace().map_err(HostError::io(format!(
                "finishing the installation of a bundle: {}",
                place.folder.join(&place.name).display()
            )))?;
        }
        self.pending.clear();
        Ok(())
    }
}

/// Where a file belongs. Only this user may be able to change its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlace {
    /// The folder.
    pub folder: PathBuf,
    /// The file's name there.
    pub name: String,
}

impl FilePlace {
    /// The name of the new file before it is in its place.
    fn staged(&self) -> String {
        format!("{}.pending", self.name)
    }

    /// Writes the new file beside its place.
    pub(super) fn stage(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = PrivateFolder::open(&self.folder)?.updated(&self.staged())?;
        // What an earlier process left here is overwritten.
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.sync_all()
    }

    /// Removes the new file, if it isn't in its place yet. Errors are ignored, since nothing reads
    /// it.
    pub(super) fn discard(&self) {
        let _ = PrivateFolder::open(&self.folder).and_then(|folder| folder.remove(&self.staged()));
    }

    fn replace(&self) -> io::Result<()> {
        let replaced = PrivateFolder::open(&self.folder)
            .and_then(|folder| folder.replace(&self.staged(), &self.name));
        match replaced {
            // It is in its place already.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            replaced => replaced,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pending_files_are_put_in_their_places_once_and_then_forgotten() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let place = |name: &str| FilePlace { folder: root.path().into(), name: name.into() };
        fs::write(root.path().join("a"), "old").expect("it is written");
        fs::write(root.path().join("b"), "old").expect("it is written");
        place("a").stage(b"new").expect("it is staged");
        let text = r#"{"$pending": [{"folder": "F", "name": "a"}, {"folder": "F", "name": "b"}], "word": {"digest": "ab", "version": "1"}}"#;
        let text = text.replace('F', root.path().to_str().expect("it is UTF-8"));
        let mut lock: LockFile = serde_json::from_str(&text).expect("it is read");
        assert_eq!(lock.plugins.len(), 1);
        let read = |name: &str| fs::read_to_string(root.path().join(name)).expect("it is there");
        assert_eq!((read("a"), read("b")), ("old".into(), "old".into()));
        lock.finish().expect("it is finished");
        // The second one was in its place before.
        assert_eq!((read("a"), read("b")), ("new".into(), "old".into()));
        assert!(!root.path().join("a.pending").exists());
        let text = serde_json::to_string(&lock).expect("it is written");
        assert_eq!(text, r#"{"word":{"digest":"ab","version":"1"}}"#);
    }

    #[test]
    fn file_that_cannot_be_put_in_its_place_stays_pending() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let place = FilePlace { folder: root.path().into(), name: "a".into() };
        place.stage(b"new").expect("it is staged");
        fs::create_dir(root.path().join("a")).expect("a folder is in its place");
        let mut lock = LockFile { pending: vec![place.clone()], plugins: BTreeMap::new() };
        lock.finish().expect_err("a folder isn't replaced");
        assert_eq!(lock.pending, std::slice::from_ref(&place));
        place.discard();
        assert!(!root.path().join("a.pending").exists());
    }
}
