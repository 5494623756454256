//! Stores the state of each session in a file, for all processes of the user. Removes idle
//! sessions.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolhold_config::Folders;
use toolhold_contract::HostError;
use toolhold_data_dir::PrivateFolder;
use toolhold_data_dir::state;

use super::SessionState;
use super::state::seconds;

const FOLDER: &str = "sessions";

/// Number of seconds without a change after which a session expires.
const IDLE: u64 = 8 * 3600;

/// Maximum number of files that are checked for expiry at a time, because each check takes time.
const MAX_SWEPT_FILES: usize = 256;

/// Maximum number of bytes that a check reads of a file. A larger file isn't removed, because its
/// age can't be read.
const MAX_SWEPT_BYTES: u64 = 4 * 1024 * 1024;

/// Number of hexadecimal digits of a file's name, a digest of the session's name.
const DIGITS: usize = 32;

pub(super) struct DiskSession {
    folder: PathBuf,
    file: String,
    name: String,
}

/// Counts the stored sessions, and returns the errors of files that can't be read. At most
/// [`MAX_SWEPT_FILES`] files are read.
///
/// # Errors
///
/// [`HostError::Io`] if the folder can't be read.
pub(crate) fn count(folders: &Folders) -> Result<(usize, Vec<HostError>), HostError> {
    let path = folders.data.join(FOLDER);
    let names = match PrivateFolder::open(&path).and_then(|folder| folder.names(MAX_SWEPT_FILES)) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((0, Vec::new())),
        Err(error) => {
            let to_host_error = HostError::io(path.display().to_string());
            return Err(to_host_error(error));
        }
    };
    let mut count = 0;
    let mut errors = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(".json")) {
        count += 1;
        if let Err(error) = state::read::<File>(&path, name) {
            errors.push(error);
        }
    }
    Ok((count, errors))
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct File {
    /// The session's name, which the digest in the file's name doesn't reveal.
    name: String,
    /// Time of the last change, in seconds of Unix time.
    changed: u64,
    state: SessionState,
}

impl DiskSession {
    pub(super) fn new(folders: &Folders, name: &str) -> Self {
        let digest = format!("{:x}", Sha256::digest(name));
        Self {
            folder: folders.data.join(FOLDER),
            file: format!("{}.json", &digest[..DIGITS]),
            name: name.to_owned(),
        }
    }

    pub(super) fn read<R>(&self, read: impl FnOnce(&SessionState) -> R) -> Result<R, HostError> {
        let file: File = state::read(&self.folder, &self.file)?;
        self.check(&file)?;
        Ok(read(&file.unexpired(seconds(SystemTime::now()))))
    }

    /// Changes the state in the file of the session. Also removes files of expired sessions if the
    /// file is new.
    pub(super) fn change<R>(
        &self,
        change: impl FnOnce(&mut SessionState) -> R,
    ) -> Result<R, HostError> {
        let now = seconds(SystemTime::now());
        let (result, is_created) =
            state::update_lightly(&self.folder, &self.file, |file: &mut File| {
                self.check(file)?;
                let existed = !file.is_missing();
                let mut state = std::mem::take(file).unexpired(now);
                let result = change(&mut state);
                // A new session without state needs no file.
                let is_needed = existed || state != SessionState::default();
                if is_needed {
                    *file = File { name: self.name.clone(), changed: now, state };
                }
                let is_created = !existed && !file.is_missing();
                Ok((result, is_created))
            })?;
        if is_created {
            self.sweep(now);
        }
        Ok(result)
    }

    /// Refuses the file of another session whose name has the same digest.
    fn check(&self, file: &File) -> Result<(), HostError> {
        if file.is_missing() || file.name == self.name {
            return Ok(());
        }
        let path = self.folder.join(&self.file);
        Err(HostError::Config(format!(
            "{} belongs to another session; remove the file to start again",
            path.display()
        )))
    }

    /// Removes the files of expired sessions. Errors are ignored, because these files only take
    /// space.
    fn sweep(&self, now: u64) {
        let Ok(folder) = PrivateFolder::open(&self.folder) else { return };
        // A process that changes a session holds this lock, so a session isn't removed during a
        // change.
        let Ok(_lock) = folder.lock(state::LOCK) else { return };
        let names = folder.names(MAX_SWEPT_FILES).unwrap_or_default();
        for name in names.iter().filter(|name| name.ends_with(".json")) {
            let Ok(opened) = folder.file(name) else { continue };
            let start = opened.take(MAX_SWEPT_BYTES);
            let Ok(file) = serde_json::from_reader::<_, File>(start) else { continue };
            if file.is_expired(now) {
                let _ = folder.remove(name);
            }
        }
    }
}

impl File {
    /// Checks whether the file doesn't exist. A missing file is read as the default value.
    fn is_missing(&self) -> bool {
        self.changed == 0
    }

    /// Checks whether the session has expired. A time in the far future comes from a wrong clock,
    /// so the session's age is unknown, and it counts as expired.
    fn is_expired(&self, now: u64) -> bool {
        let is_old = now.saturating_sub(self.changed) >= IDLE;
        let is_in_future = self.changed > now.saturating_add(IDLE);
        is_old || is_in_future
    }

    fn unexpired(self, now: u64) -> SessionState {
        if self.is_expired(now) { SessionState::default() } else { self.state }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::session::Session;

    fn session(root: &Path, name: &str) -> Session {
        Session::on_disk(&Folders::inside(root), name)
    }

    fn calls(session: &Session) -> u64 {
        session.read(|state| state.calls).expect("it can be read")
    }

    fn files(root: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(root.join("data/sessions")).into_iter().flatten();
        entries
            .map(|entry| entry.expect("it is there").file_name().into_string().expect("it is text"))
            .collect()
    }

    fn only_file(root: &Path) -> PathBuf {
        let name =
            files(root).into_iter().find(|name| name.ends_with(".json")).expect("there is one");
        root.join("data/sessions").join(name)
    }

    #[test]
    fn processes_share_a_session_and_other_sessions_are_separate() {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let session = session(root.path(), "a");
                    for _ in 0..10 {
                        session.change(|state| state.calls += 1).expect("it is kept");
                    }
                });
            }
        });
        assert_eq!(calls(&session(root.path(), "a")), 40);
        assert_eq!(calls(&session(root.path(), "b")), 0);
        assert_eq!(
            fs::metadata(only_file(root.path())).expect("it is there").permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn session_without_state_writes_nothing() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let session = session(root.path(), "a");
        assert_eq!(calls(&session), 0);
        assert_eq!(
            fs::read_dir(root.path()).expect("it is there").count(),
            0,
            "looking makes nothing"
        );
        session.change(|state| assert_eq!(state.calls, 0)).expect("it can be changed");
        assert!(
            files(root.path()).iter().all(|name| !name.ends_with(".json")),
            "{:?}",
            files(root.path())
        );
    }

    #[test]
    fn session_expires_after_eight_idle_hours_with_its_file() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let old = session(root.path(), "old");
        old.change(|state| state.calls = 7).expect("it is kept");
        let file = only_file(root.path());
        let written = |changed: u64| {
            let text =
                serde_json::json!({ "name": "old", "changed": changed, "state": { "calls": 7 } })
                    .to_string();
            fs::write(&file, text).expect("it is written");
        };
        let now = seconds(SystemTime::now());
        for (changed, expected) in [(now - IDLE + 60, 7), (now - IDLE, 0), (now + IDLE + 60, 0)] {
            written(changed);
            assert_eq!(calls(&old), expected, "{changed}");
        }
        session(root.path(), "new").change(|state| state.calls = 1).expect("it is kept");
        assert!(!file.exists(), "what is over goes when a session begins");
        assert_eq!(calls(&old), 0);
    }

    #[test]
    fn untrusted_foreign_or_damaged_session_file_is_an_error() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let session = session(root.path(), "a");
        session.change(|state| state.calls = 7).expect("it is kept");
        let file = only_file(root.path());
        let good = fs::read(&file).expect("it is there");
        let refused = |why: &str| {
            session.read(|_| ()).expect_err(why);
            session.change(|_| ()).expect_err(why);
        };
        fs::set_permissions(&file, Permissions::from_mode(0o622)).expect("its mode is set");
        refused("others may write");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its mode is set");
        fs::write(&file, String::from_utf8_lossy(&good).replace("\"a\"", "\"b\""))
            .expect("it is written");
        refused("it is another's");
        fs::write(&file, &good[..good.len() / 2]).expect("it is written");
        refused("it is damaged");
        fs::write(&file, &good).expect("it is written");
        assert_eq!(calls(&session), 7);
    }
}
