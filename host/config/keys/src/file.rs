//! `[tools.file]`: which directories the file tools may read and write.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{AllowedPath, PathAccess, PathGlob};

section! {
    /// What file tools may reach. A denial wins over everything that allows.
    pub struct FileTools {
        /// Whether there are file tools. `false` takes them out of the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Directories that the built-in file tools may use. The default, and an empty list, is the
        /// working directory for reading and writing.
        pub allowed_paths: Vec<AllowedPath> = vec![AllowedPath { path: ".".to_owned(), access: PathAccess::ReadWrite }], Narrowing::Directories;
        /// Globs of files that no tool reads or writes: `**/.env`, `secrets/**`, `~/.ssh`. They
        /// hold for plugins too.
        pub deny_read: Vec<PathGlob>, Narrowing::Adds;
        /// If it isn't empty, only files that match are read. It holds for plugins too.
        pub allow_read: Vec<PathGlob>, Narrowing::Restricts;
        /// Globs of files that are never written. They hold for plugins too. The default keeps
        /// tools from planting code in a repository.
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
