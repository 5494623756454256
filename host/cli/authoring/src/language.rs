//! The languages of plugins.

use std::path::Path;

use crate::AuthoringError;
use crate::files::{self, File};

/// A language with an SDK and an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rust, built by cargo.
    Rust,
    /// Python, built by componentize-py.
    Python,
    /// JavaScript, built by componentize-qjs.
    JavaScript,
    /// C, built by zig.
    C,
    /// Go, built by the Go compiler.
    Go,
}

impl Language {
    /// All languages, in the order of the documentation.
    pub const ALL: [Self; 5] = [Self::Rust, Self::Python, Self::JavaScript, Self::C, Self::Go];

    /// Returns the name on the command line and in `plugin.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::C => "c",
            Self::Go => "go",
        }
    }

    /// Returns the language with a name.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is unknown.
    pub fn from_name(name: &str) -> Result<Self, AuthoringError> {
        let language = Self::ALL.into_iter().find(|language| language.name() == name);
        language.ok_or_else(|| AuthoringError::UnknownLanguage(name.to_owned()))
    }

    /// Detects the language of the plugin in a folder.
    pub(crate) fn of_folder(folder: &Path) -> Option<Self> {
        let files = [
            ("Cargo.toml", Self::Rust),
            ("package.json", Self::JavaScript),
            ("plugin.py", Self::Python),
            ("plugin.c", Self::C),
            ("go.mod", Self::Go),
        ];
        let (_, language) = files.into_iter().find(|(file, _)| folder.join(file).exists())?;
        Some(language)
    }

    pub(crate) fn sdk(self) -> &'static [File] {
        match self {
            Self::Rust => files::SDK_RUST,
            Self::Python => files::SDK_PYTHON,
            Self::JavaScript => files::SDK_JAVASCRIPT,
            Self::C => files::SDK_C,
            Self::Go => files::SDK_GO,
        }
    }

    pub(crate) fn example(self) -> &'static [File] {
        match self {
            Self::Rust => files::EXAMPLE_RUST,
            Self::Python => files::EXAMPLE_PYTHON,
            Self::JavaScript => files::EXAMPLE_JAVASCRIPT,
            Self::C => files::EXAMPLE_C,
            Self::Go => files::EXAMPLE_GO,
        }
    }

    /// Returns the relative path by which the files of the example refer to the SDK in this
    /// repository. A new plugin has its own copy of the SDK, so its files get another path.
    pub(crate) fn sdk_in_repository(self) -> &'static str {
        match self {
            Self::Rust => "../../sdk",
            Self::Python => "../../sdk-python",
            Self::JavaScript => "../../sdk-javascript",
            Self::C => "../../sdk-c",
            Self::Go => "../../sdk-go",
        }
    }
}
