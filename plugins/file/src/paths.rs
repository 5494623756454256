//! Paths in arguments and answers.

use berth_sdk::{Failure, working_directory};

/// The path of an argument, or the working directory where it was left out.
pub(crate) fn or_working_directory(path: Option<String>) -> Result<String, Failure> {
    if let Some(path) = path {
        return Ok(path);
    }
    let directory = working_directory()?;
    directory.into_os_string().into_string().map_err(|_| Failure::permanent("invalid-name", "the working directory's name is not UTF-8"))
}

/// How many bytes of `path` are `root` and the `/` behind it.
pub(crate) fn prefix(root: &str, path: &str) -> usize {
    let root = root.trim_end_matches('/');
    path.strip_prefix(root).map_or(0, |rest| if rest.starts_with('/') { root.len() + 1 } else { 0 })
}
