//! The directory where a plugin's relative paths start.

use std::io;
use std::path::PathBuf;

#[cfg(target_arch = "wasm32")]
use crate::contract::bindings::wasi::cli::environment::initial_cwd;

/// The absolute directory where relative paths start. Use it as the default of a path argument that
/// was left out. Arguments that are [subjects](crate::Subject) of kind `path` are absolute already.
///
/// # Errors
///
/// If no directory is granted to the call.
pub fn working_directory() -> io::Result<PathBuf> {
    #[cfg(target_arch = "wasm32")]
    return initial_cwd().map(PathBuf::from).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "the working directory is missing: no directory is granted",
        )
    });
    #[cfg(not(target_arch = "wasm32"))]
    std::env::current_dir()
}
