//! Tools for authors of plugins: `toolhold plugin new`, `build`, `pack` and `wit`.
//!
//! [`conformance`] tests a component. [`dev`] builds and serves a plugin after each change of a
//! source.

mod arguments;
mod build;
pub mod conformance;
pub mod dev;
mod files;
mod language;
mod manifest;
mod module;
mod pack;
mod pack_error;
mod project;
mod section;
mod sources;
mod tools;
mod wit;

use std::io::{self, Read};
use std::path::PathBuf;

use thiserror::Error;

pub use arguments::AuthorCommand;
pub use build::{Built, build, build_on, compare_file, find_built, pack_file};
pub use language::Language;
pub use project::create;
pub use tools::Console;
pub use wit::write as write_wit;

use build::WASM;
use files::ProjectFileError;
use manifest::{AuthoredError, FILE};
use pack_error::PackError;
use project::MAX_NAME;
use tools::ToolError;

/// A failure to make, build or pack a plugin.
#[derive(Debug, Error)]
pub enum AuthoringError {
    /// A file or folder can't be used.
    #[error(transparent)]
    File(#[from] ProjectFileError),
    /// A program of the plugin's language is missing, failed, or was stopped.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// cargo failed.
    #[error("{0}. If the target is missing: rustup target add {WASM}")]
    Cargo(ToolError),
    /// cargo made no component.
    #[error("cargo made no component: add `crate-type = [\"cdylib\"]` to [lib] in Cargo.toml")]
    NoComponent,
    /// The built component can't be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A given component can't be packed.
    #[error("{}: {error}", file.display())]
    PackFile {
        /// The component's file.
        file: PathBuf,
        /// The reason.
        error: PackError,
    },
    /// A description of the interfaces can't be written into a core module.
    #[error("the interfaces can't be written into the module: {0}")]
    NotDescribable(String),
    /// The manifest isn't valid.
    #[error("{}: {error}", file.display())]
    Manifest {
        /// The manifest's file.
        file: PathBuf,
        /// The reason.
        error: AuthoredError,
    },
    /// The manifest is missing.
    #[error("{} is missing", .0.display())]
    NoManifest(PathBuf),
    /// The folder has no plugin.
    #[error(
        "{} has no plugin; to create one: toolhold plugin new NAME --lang LANGUAGE",
        .0.display()
    )]
    NoPlugin(PathBuf),
    /// The folder of the SDK can't be opened.
    #[error(
        "the SDK in {} can't be opened: {error}. `sdk` in [build] of {FILE} sets the folder of the \
         SDK",
        folder.display()
    )]
    Sdk {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The name of a new plugin isn't valid.
    #[error(
        "the name `{0}` isn't valid: use at most {MAX_NAME} characters of [a-z0-9-], the first a \
         letter"
    )]
    Name(String),
    /// There is no SDK for the language.
    #[error(
        "the language `{0}` isn't supported; the languages are {known}. For other languages, see \
         `toolhold plugin wit` and `toolhold plugin pack`",
        known = Language::ALL.map(Language::name).join(", ")
    )]
    UnknownLanguage(String),
}

/// The most bytes of a component or a manifest.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Reads a file. Refuses special files and files that are too large.
pub(crate) fn read(path: &std::path::Path) -> Result<Vec<u8>, ProjectFileError> {
    // Reading a device or a pipe may never end.
    let metadata = std::fs::metadata(path).map_err(ProjectFileError::io("read", path))?;
    if !metadata.is_file() {
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
