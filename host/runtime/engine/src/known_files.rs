//! Remembers each plugin's file by its stamp and digest, so that a start doesn't read an unchanged
//! file.
//!
//! Stamps and digests are next to the compiled code, in a folder that only this user can change. A
//! remembered digest is enough to list the offer of a component. Before the component's code first
//! runs, the host reads the file and compares the digest. The name of stored code is its digest, so
//! a wrong stamp could at most run an earlier version that was approved as well.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use toolhold_component::file::{self as component_file, ComponentFileError};
use toolhold_system::watch::FileStamp;

use crate::Runtime;

/// A reason why the bytes of a known component can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    File(#[from] ComponentFileError),
    #[error("its file has changed; run `toolhold plugin reload`")]
    Changed,
    #[error("reading it failed")]
    Thread(#[from] JoinError),
}

/// The file of a component.
#[derive(Clone)]
pub(crate) struct ComponentFile {
    pub(crate) path: PathBuf,
    /// The file's stamp before it was read. `None` if the file may change without a new stamp, or
    /// the digest must not be remembered.
    pub(crate) stamp: Option<FileStamp>,
    /// Whether the digest was remembered, so that the file wasn't read.
    pub(crate) recalled: bool,
}

impl ComponentFile {
    /// A file that is read at each start.
    pub(crate) fn read_always(path: &Path) -> Self {
        Self { path: path.to_owned(), stamp: None, recalled: false }
    }

    /// Reads a component again because the cache no longer has its code. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read, or contains another component.
    pub(crate) fn read_again(&self, digest: &str) -> Result<Vec<u8>, ReadError> {
        let wasm = component_file::open(&self.path).and_then(component_file::read)?;
        if component_file::digest(&wasm) == digest { Ok(wasm) } else { Err(ReadError::Changed) }
    }
}

/// The stamp and the digest of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFile<'a> {
    path: Cow<'a, str>,
    stamp: FileStamp,
    digest: Cow<'a, str>,
}

/// Returns the file name for the stamp of a plugin's file. Two paths with the same hash overwrite
/// each other's stamp.
fn stored_name(path: &str) -> String {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    format!("{:016x}.known", hasher.finish())
}

/// Returns the remembered digest of the component whose file has this stamp. Blocks. Returns `None`
/// if the component has never run on this machine.
pub(crate) fn recall(runtime: &Runtime, path: &Path, stamp: &FileStamp) -> Option<String> {
    let path = path.to_str()?;
    let stored = runtime.compiler.read_kept(&stored_name(path))?;
    let known: KnownFile<'_> = serde_json::from_slice(&stored).ok()?;
    if known.path != path || known.stamp != *stamp {
        return None;
    }
    Some(known.digest.into_owned())
}

/// Stores the digest of a file that was read. Blocks.
pub(crate) fn keep(runtime: &Runtime, file: &ComponentFile, digest: &str) {
    let ComponentFile { path, stamp: Some(stamp), recalled: false } = file else {
        return;
    };
    let Some(path) = path.to_str() else { return };
    let known = KnownFile { path: path.into(), stamp: *stamp, digest: digest.into() };
    let stored = serde_json::to_vec(&known)
        .map_err(std::io::Error::from)
        .and_then(|known| runtime.compiler.keep(&stored_name(path), &known));
    if let Err(error) = stored {
        tracing::warn!("can't store the digest of {path}: {error}");
    }
}

/// Checks the file of a remembered component before its code first runs. Returns the file's bytes
/// if they were read. A file with a new stamp is a new version, which a reload reads.
///
/// # Errors
///
/// Returns an error if the file contains another component than its stamp says.
pub(crate) async fn check(
    runtime: &Arc<Runtime>,
    file: &ComponentFile,
    digest: &str,
) -> Result<Option<Cow<'static, [u8]>>, ReadError> {
    if !file.recalled {
        return Ok(None);
    }
    let runtime = Arc::clone(runtime);
    let file = file.clone();
    let digest = digest.to_owned();
    tokio::task::spawn_blocking(move || compare(&runtime, &file, &digest)).await?
}

/// Compares a file with its stamp and its digest, as [`check`] does. Blocks.
fn compare(
    runtime: &Runtime,
    file: &ComponentFile,
    digest: &str,
) -> Result<Option<Cow<'static, [u8]>>, ReadError> {
    let Ok(opened) = component_file::open(&file.path) else { return Ok(None) };
    let stamp = match opened.metadata() {
        Ok(metadata) if metadata.is_file() => Some(FileStamp::from(&metadata)),
        _ => None,
    };
    if stamp != file.stamp {
        return Ok(None);
    }
    let wasm = component_file::read(opened)?;
    if component_file::digest(&wasm) == digest {
        return Ok(Some(wasm.into()));
    }
    // The next start reads the file.
    if let Some(path) = file.path.to_str() {
        runtime.compiler.forget(&stored_name(path));
    }
    Err(ReadError::Changed)
}
