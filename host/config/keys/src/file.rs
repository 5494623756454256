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
        /// Directories that the built-in file tools may use. The default and an empty list mean the
        /// working directory, for reading and writing.
        pub allowed_paths: Vec<AllowedPath> = vec![AllowedPath { path: ".".to_owned(), access: PathAccess::ReadWrite }], Narrowing::Directories;
        /// Globs of files that no tool reads or writes, such as `**/.env`, `secrets/**`, `~/.ssh`.
        /// They also apply to plugins.
        pub deny_read: Vec<PathGlob>, Narrowing::Adds;
        /// Globs of the only files that tools read. They also apply to plugins. If empty, all
        /// files.
        pub allow_read: Vec<PathGlob>, Narrowing::Restricts;
        /// Globs of files that no tool writes. They also apply to plugins. The default keeps tools
        /// from planting code in a repository.
        pub deny_write: Vec<PathGlob> = vec![PathGlob::known(".git/**")], Narrowing::Adds;
    }
}

impl FileTools {
    /// The granted directories, with what an empty list stands for.
    pub fn granted_paths(&self) -> Vec<AllowedPath> {
        if self.allowed_paths.is_empty() {
            Self::default().allowed_paths
        } else {
            self.allowed_paths.clone()
        }
    }
}
