//! `[tools.file]`: which directories the file tools may read and write.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{AllowedPath, PathAccess, PathGlob};

section! {
    /// The directories and files that file tools may use. A denial overrides every grant.
    pub struct FileTools {
        /// Whether the file tools exist. `false` removes them from the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Directories that the built-in file tools may use. The default and an empty list both
        /// mean the working directory, for reading and writing.
        pub allowed_paths: Vec<AllowedPath> = vec![AllowedPath { path: ".".to_owned(), access: PathAccess::ReadWrite }], Narrowing::Directories;
        /// Globs of files that no tool reads or writes, such as `**/.env`, `secrets/**`, `~/.ssh`.
        /// They also apply to plugins.
        pub deny_read: Vec<PathGlob>, Narrowing::Adds;
        /// Globs of files that tools may read. Tools can't read any other file. The globs also
        /// apply to plugins. If empty, tools may read all files.
        pub allow_read: Vec<PathGlob>, Narrowing::Restricts;
        /// Globs of files that no tool writes. They also apply to plugins. The default prevents
        /// tools from adding code that git runs.
        pub deny_write: Vec<PathGlob> = vec![PathGlob::known(".git/**")], Narrowing::Adds;
    }
}

impl FileTools {
    /// Returns the granted directories. An empty list stands for the working directory.
    pub fn granted_paths(&self) -> Vec<AllowedPath> {
        if self.allowed_paths.is_empty() {
            Self::default().allowed_paths
        } else {
            self.allowed_paths.clone()
        }
    }
}
