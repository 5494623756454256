use std::io;
use std::path::PathBuf;

/// The directory from which relative paths start, absolute. Arguments that are
/// [subjects](crate::Subject) of kind `path` are absolute already; this is for what a path that was
/// left out means.
///
/// # Errors
///
/// Where the call has no directory at all.
pub fn working_directory() -> io::Result<PathBuf> {
    #[cfg(target_arch = "wasm32")]
    return crate::guest::working_directory().map(PathBuf::from).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "there is no working directory: no directory is granted",
        )
    });
    #[cfg(not(target_arch = "wasm32"))]
    std::env::current_dir()
}
