//! The errors of making, building and packing a plugin.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::Language;
use crate::build::WASM;
use crate::files::ProjectFileError;
use crate::manifest::{AuthoredError, FILE};
use crate::pack::PackError;
use crate::project::MAX_NAME;
use crate::tools::ToolError;

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
    /// The component that the plugin's language made can't be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A given component can't be packed.
    #[error("{}: {error}", file.display())]
    PackFile {
        /// Its file.
        file: PathBuf,
        /// The reason.
        error: PackError,
    },
    /// The interfaces can't be written into a core module.
    #[error("the module can't be described: {0}")]
    NotDescribable(String),
    /// The manifest isn't valid.
    #[error("{}: {error}", file.display())]
    Manifest {
        /// Its file.
        file: PathBuf,
        /// The reason.
        error: AuthoredError,
    },
    /// The manifest is missing.
    #[error("{} is missing", .0.display())]
    NoManifest(PathBuf),
    /// The folder has no plugin.
    #[error("{} has no plugin: `toolhold plugin new NAME --lang LANGUAGE` makes one", .0.display())]
    NoPlugin(PathBuf),
    /// The folder of the SDK can't be opened.
    #[error(
        "the SDK in {} can't be opened: {error}. `sdk` in [build] of {FILE} names its folder",
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
        "the name `{0}` isn't valid: it has to be at most {MAX_NAME} characters of [a-z0-9-], the first a letter"
    )]
    Name(String),
    /// No SDK is for the language.
    #[error(
        "there is no language `{0}` here; there are {known}. For another one, see `toolhold plugin wit` and `toolhold plugin pack`",
        known = Language::ALL.map(Language::name).join(", ")
    )]
    UnknownLanguage(String),
}
