//! What authors of plugins need: new projects, builds with each language's own tools, the manifest
//! of a component, and the contract's WIT. The commands `toolhold plugin new`, `build`, `pack` and
//! `wit` are thin layers over this crate.
//!
//! [`conformance`] tests a component. [`dev`] builds and serves one whenever a source changes.

mod arguments;
mod build;
pub mod conformance;
pub mod dev;
mod error;
mod files;
mod language;
mod manifest;
mod module;
mod pack;
mod project;
mod section;
mod tools;
mod wit;

use std::io::Read;

pub use arguments::AuthorCommand;
pub use build::{Built, build, build_on, compare_file, pack_file};
pub use error::AuthoringError;
pub use language::Language;
pub use project::create;
pub use tools::Console;
pub use wit::write as write_wit;

use files::ProjectFileError;

/// The largest file that is read as a component or a manifest: more is no plugin.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Reads a file that an author names.
///
/// # Errors
///
/// It can't be read, it is no file, or it is larger than a component may be.
pub(crate) fn read(path: &std::path::Path) -> Result<Vec<u8>, ProjectFileError> {
    // A device or a pipe has no end.
    if !std::fs::metadata(path).map_err(ProjectFileError::io("read", path))?.is_file() {
        return Err(ProjectFileError::NotAFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(ProjectFileError::io("read", path))?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(ProjectFileError::io("read", path))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ProjectFileError::TooLarge(path.to_owned()));
    }
    Ok(bytes)
}
