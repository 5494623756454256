//! Remembers the stamp and digest of each plugin's file. A start then doesn't read an unchanged
//! file.
//!
//! The stamps are next to the compiled code, in a folder that only this user can change. Listing
//! the tools of a component needs only the remembered digest. Before code of the component first
//! runs, the file is read and its digest compared. Stored code is named after its digest, so a
//! wrong stamp can at most run an earlier, approved version.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use toolhold_component::file::{self as component_file, ComponentFileError};
use toolhold_system::watch::FileStamp;

use crate::Runtime;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    File(#[from] ComponentFileError),
    #[error("the component's file has changed; run `toolhold plugin reload`")]
    Changed,
    #[error("reading the component failed")]
    Thread(#[from] JoinError),
}

#[derive(Clone)]
pub(crate) struct ComponentFile {
    pub(crate) path: PathBuf,
    /// The file's stamp before it was read. `None` if the digest must not be remembered, for
    /// example because the file was changed a moment ago.
    pub(crate) stamp: Option<FileStamp>,
    /// Whether the digest was remembered, so that the file wasn't read.
    pub(crate) recalled: bool,
}

impl ComponentFile {
    pub(crate) fn read_always(path: &Path) -> Self {
        Self { path: path.to_owned(), stamp: None, recalled: false }
    }

    /// Reads the component again, because the cache has lost its code. Blocks.
    pub(crate) fn read_again(&self, digest: &str) -> Result<Vec<u8>, ReadError> {
        let wasm = component_file::open(&self.path).and_then(component_file::read)?;
        if component_file::digest(&wasm) == digest { Ok(wasm) } else { Err(ReadError::Changed) }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFile<'a> {
    path: Cow<'a, str>,
    stamp: FileStamp,
    digest: Cow<'a, str>,
}

/// Returns the name of the file that stores a stamp. Two paths with the same hash use the same
/// file, which only costs an additional read.
fn stored_name(path: &str) -> String {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    format!("{:016x}.known", hasher.finish())
}

/// Returns the remembered digest for a path and a stamp, if there is one. Blocks.
pub(crate) fn recall(runtime: &Runtime, path: &Path, stamp: &FileStamp) -> Option<String> {
    let path_text = path.to_str()?;
    let stored = runtime.compiler.read_kept(&stored_name(path_text))?;
    let known: KnownFile<'_> = serde_json::from_slice(&stored).ok()?;
    let is_same_file = known.path == path_text && known.stamp == *stamp;
    if !is_same_file {
        return None;
    }
    Some(known.digest.into_owned())
}

/// Remembers the digest of a file that was read. Blocks.
pub(crate) fn keep(runtime: &Runtime, file: &ComponentFile, digest: &str) {
    if file.recalled {
        return;
    }
    // A change of the file can be noticed only with a stamp.
    let Some(stamp) = file.stamp else { return };
    let Some(path) = file.path.to_str() else { return };
    let known = KnownFile { path: path.into(), stamp, digest: digest.into() };
    let stored = match serde_json::to_vec(&known) {
        Ok(json) => runtime.compiler.keep(&stored_name(path), &json),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = stored {
        tracing::warn!("can't store the digest of {path}: {error}");
    }
}

/// Reads a file whose digest was recalled, and compares the digest with the content. Returns the
/// content. Must be called before code of the file first runs.
///
/// If the digest wasn't recalled, or the file has another stamp by now, returns `None` without
/// comparing.
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

fn compare(
    runtime: &Runtime,
    file: &ComponentFile,
    digest: &str,
) -> Result<Option<Cow<'static, [u8]>>, ReadError> {
    // The next reload handles a file that was removed or replaced.
    let Ok(opened) = component_file::open(&file.path) else { return Ok(None) };
    let stamp = match opened.metadata() {
        Ok(metadata) if metadata.is_file() => Some(FileStamp::from(&metadata)),
        // A missing stamp differs from the stamp of the recalled file.
        _ => None,
    };
    if stamp != file.stamp {
        return Ok(None);
    }
    let wasm = component_file::read(opened)?;
    if component_file::digest(&wasm) == digest {
        return Ok(Some(wasm.into()));
    }
    // Remove the stored digest, so that the next start reads the file.
    if let Some(path) = file.path.to_str() {
        runtime.compiler.forget(&stored_name(path));
    }
    Err(ReadError::Changed)
}
