//! The operator's own rules for the built-in filters: their path and their present text.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{Folders, Loaded};

/// Bytes of a file with rules.
const MAX_FILE: usize = 1 << 20;

/// The operator's own rules for the built-in filters at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRules {
    /// Their path. The file need not exist.
    pub path: PathBuf,
    /// Their text. `None` if the file is missing.
    pub text: Result<Option<String>, String>,
}

impl Loaded {
    /// The path of the operator's own rules for the built-in filters. The file need not exist.
    pub fn filter_rules_path(&self, folders: &Folders, working_directory: &Path) -> PathBuf {
        match self.config.tools.filters.filters_path.as_str() {
            "" => {
                let beside = self
                    .file
                    .as_deref()
                    .and_then(Path::parent)
                    .map(|folder| working_directory.join(folder));
                beside.unwrap_or_else(|| folders.config.clone()).join("filters.toml")
            }
            path => self.beside_its_source(
                "tools.filters.filters_path",
                path,
                folders,
                working_directory,
            ),
        }
    }

    /// Reads the operator's own rules for the built-in filters. Blocks.
    pub fn filter_rules(&self, folders: &Folders, working_directory: &Path) -> FilterRules {
        let path = self.filter_rules_path(folders, working_directory);
        let text = read(&path).map_err(|reason| format!("{}: {reason}", path.display()));
        FilterRules { path, text }
    }
}

fn read(path: &Path) -> Result<Option<String>, String> {
    // Non-blocking: otherwise opening a FIFO would wait for its other end.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = match std::fs::File::options().read(true).custom_flags(nonblocking).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("it isn't a regular file".to_owned());
    }
    let mut text = String::new();
    file.take(MAX_FILE as u64 + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() > MAX_FILE {
        return Err("it is larger than 1 MiB, which is the limit".to_owned());
    }
    toml::from_str::<toml::Table>(&text).map_err(|error| error.to_string())?;
    Ok(Some(text))
}
