//! The source of a value of the configuration: a file, a variable, a flag or the default.

use std::fmt;
use std::path::PathBuf;

/// The source of a value of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// No source has the key, so the default applies.
    #[default]
    Default,
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// A whole file.
    Path(PathBuf),
    /// An environment variable, by its name.
    Variable(String),
    /// A flag of the command line, as written.
    Flag(String),
    /// The limits of a task: the configuration at the time when the task was created.
    TaskBounds,
}

impl Source {
    /// Describes where `key` is set, so that a denial shows the operator which line to change.
    pub fn place(&self, key: &str) -> String {
        let table = key.rsplit_once('.').map_or("", |(table, _)| table);
        match self {
            Self::Default => format!("the default of [{table}]"),
            Self::File { path, line } => format!("[{table}] in {}, line {line}", path.display()),
            Self::Path(path) => format!("[{table}] in {}", path.display()),
            Self::Variable(name) => format!("{name} in the environment"),
            Self::Flag(text) => format!("{text} on the command line"),
            Self::TaskBounds => format!("[{table}] at the creation of the task"),
        }
    }
}

/// Displays the source in problems and in the comments of `toolhold config show`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(text) => f.write_str(text),
            Self::TaskBounds => f.write_str("the task's configuration, from its creation"),
        }
    }
}
