//! The format of the lock file: approved versions, their sources, and unfinished installations.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toolhold_contract::HostError;
use toolhold_data_dir::PrivateFolder;

/// Maximum number of stored earlier versions of a plugin.
const MAX_PREVIOUS: usize = 8;

/// The permissions of files that are installed with a bundle. A bundle can contain the ceiling,
/// which all users of the machine must be able to read.
const MODE: u32 = 0o644;

/// The content of the lock file. No plugin can have the name `$pending`.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct LockFile {
    /// Files that must still be moved to their destinations. A single write of the lock file
    /// activates both these files and the plugins.
    #[serde(default, rename = "$pending", skip_serializing_if = "Vec::is_empty")]
    pub(super) pending: Vec<FilePlace>,
    #[serde(flatten)]
    pub(super) plugins: BTreeMap<String, LockedPlugin>,
}

impl LockFile {
    /// Moves the pending files to their destinations. If this is repeated after an error, files
    /// that were already moved are skipped.
    pub(super) fn finish(&mut self) -> Result<(), HostError> {
        for place in &self.pending {
            let path = place.folder.join(&place.name);
            let action = format!("can't finish the installation of {}", path.display());
            place.replace().map_err(HostError::io(action))?;
        }
        self.pending.clear();
        Ok(())
    }
}

/// Where an installed plugin came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginSource {
    /// The source as the user wrote it: a path, an address or a reference.
    pub given: String,
    /// The exact source at the time of the installation. A source in a registry contains the digest
    /// of a manifest.
    pub resolved: String,
    /// The name of the trusted key that signed the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// The time of the installation, in seconds since 1970.
    pub installed_at: u64,
    /// The name of the trusted key that signed the plugin's bundle. Only another bundle can update
    /// the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
}

/// An approved version of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovedPlugin {
    /// The SHA-256 digest of the component.
    pub digest: String,
    /// The version in the plugin's manifest.
    pub version: String,
    /// The source of the installation. `None` means that a file of the user was approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<PluginSource>,
}

/// The entry of a plugin in the lock file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedPlugin {
    /// The active version.
    #[serde(flatten)]
    pub approved: ApprovedPlugin,
    /// Earlier versions of an installed plugin, the most recent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub previous: Vec<ApprovedPlugin>,
    /// An update that needs approval. The active version runs meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<ApprovedPlugin>,
}

impl LockedPlugin {
    pub(super) fn new(approved: ApprovedPlugin) -> Self {
        Self { approved, previous: Vec::new(), offered: None }
    }

    /// Activates another version. A replaced installed version becomes the first of the earlier
    /// versions.
    pub(super) fn replace(&mut self, approved: ApprovedPlugin) {
        self.offered.take_if(|offered| offered.digest == approved.digest);
        let is_installed = approved.source.is_some();
        let replaced = std::mem::replace(&mut self.approved, approved);
        if !is_installed {
            // This version is a file of the user, not an installed version, so there is nothing to
            // roll back to.
            self.previous.clear();
            return;
        }
        if replaced.digest == self.approved.digest {
            return;
        }
        self.previous.retain(|version| version.digest != self.approved.digest);
        if replaced.source.is_some() {
            self.previous.insert(0, replaced);
        }
        self.previous.truncate(MAX_PREVIOUS);
    }

    /// Returns all versions with a stored component.
    pub fn versions(&self) -> impl Iterator<Item = &ApprovedPlugin> {
        std::iter::once(&self.approved).chain(&self.previous).chain(&self.offered)
    }
}

/// The destination of a file. Only the user may be able to change its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlace {
    /// The folder.
    pub folder: PathBuf,
    /// The name of the file in the folder.
    pub name: String,
}

impl FilePlace {
    fn staged(&self) -> String {
        format!("{}.pending", self.name)
    }

    /// Writes the new file next to its destination.
    pub(super) fn stage(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = PrivateFolder::open(&self.folder)?.updated(&self.staged())?;
        // An interrupted process may have left this file, so remove its old content.
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.sync_all()
    }

    /// Removes the staged file. Errors are ignored, because nothing reads this file.
    pub(super) fn discard(&self) {
        let _ = PrivateFolder::open(&self.folder).and_then(|folder| folder.remove(&self.staged()));
    }

    /// Moves the staged file to its destination.
    fn replace(&self) -> io::Result<()> {
        let result = PrivateFolder::open(&self.folder)
            .and_then(|folder| folder.replace(&self.staged(), &self.name));
        match result {
            // An earlier attempt has already moved the file.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
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

    fn installed(digest: &str) -> ApprovedPlugin {
        let source = PluginSource {
            given: "a.wasm".to_owned(),
            resolved: "/a.wasm".to_owned(),
            signer: None,
            installed_at: 1,
            bundle: None,
        };
        ApprovedPlugin { digest: digest.to_owned(), version: "1".to_owned(), source: Some(source) }
    }

    fn list_previous(locked: &LockedPlugin) -> Vec<&str> {
        locked.previous.iter().map(|one| &*one.digest).collect()
    }

    #[test]
    fn earlier_versions_are_kept_in_order_and_bounded() {
        let mut locked = LockedPlugin::new(installed("0"));
        locked.replace(installed("0"));
        assert!(locked.previous.is_empty(), "the same version isn't an earlier one");
        locked.replace(installed("1"));
        locked.replace(installed("2"));
        assert_eq!(list_previous(&locked), ["1", "0"]);
        // One that comes back isn't listed twice.
        locked.replace(installed("0"));
        assert_eq!((&*locked.approved.digest, list_previous(&locked)), ("0", vec!["2", "1"]));
        for number in 3..20 {
            locked.replace(installed(&number.to_string()));
        }
        assert_eq!(locked.previous.len(), MAX_PREVIOUS);
        assert_eq!(locked.versions().count(), MAX_PREVIOUS + 1);
    }

    #[test]
    fn offer_ends_when_it_is_in_force_and_only_then() {
        let mut locked = LockedPlugin::new(installed("0"));
        locked.offered = Some(installed("2"));
        locked.replace(installed("1"));
        assert!(locked.offered.is_some());
        locked.replace(installed("2"));
        assert_eq!((locked.offered.as_ref(), list_previous(&locked)), (None, vec!["1", "0"]));
        // Approved where it lies: it has no source, so there is nothing to go back to.
        locked.replace(ApprovedPlugin { source: None, ..installed("3") });
        assert!(locked.previous.is_empty());
    }

    #[test]
    fn lock_file_of_approvals_alone_is_read() {
        let plugins: BTreeMap<String, LockedPlugin> =
            serde_json::from_str(r#"{"word": {"digest": "ab", "version": "1"}}"#).unwrap();
        assert_eq!(
            plugins["word"],
            LockedPlugin::new(ApprovedPlugin {
                digest: "ab".to_owned(),
                version: "1".to_owned(),
                source: None,
            })
        );
    }
}
