//! The folders that the user grants by name.

use std::path::{Path, PathBuf};

use toolhold_core::config::Folders;

/// A folder that can't be granted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("a name is missing")]
    NoName,
    #[error("{} can't be used: {error}", path.display())]
    Unusable { path: PathBuf, error: std::io::Error },
    #[error("{} isn't a folder; name the folder that contains it", .0.display())]
    NotAFolder(PathBuf),
    #[error(
        "that is the whole machine, with all keys and passwords; name the folders that tools need"
    )]
    WholeMachine,
    #[error("{} contains no files, but the system itself", .0.display())]
    System(PathBuf),
    #[error("{} belongs to Toolhold, and no tool may use it", .0.display())]
    Own(PathBuf),
    #[error("the name of {} is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("its name is not UTF-8")]
    GivenNotUtf8,
}

/// Returns the form of a folder in the file, as [`folder`] does, for a path.
pub(crate) fn folder_at(path: &Path, own: &Folders, here: &Path) -> Result<String, FolderError> {
    folder(path.to_str().ok_or(FolderError::GivenNotUtf8)?, own, here)
}

/// Returns the form of a folder in the file: its real path, or `.` for the working directory.
///
/// # Errors
///
/// Returns an error if the folder can't be granted.
pub(crate) fn folder(written: &str, own: &Folders, here: &Path) -> Result<String, FolderError> {
    if written.is_empty() {
        return Err(FolderError::NoName);
    }
    let path = match (&own.home, written.strip_prefix('~')) {
        (Some(home), Some(rest)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => here.join(written),
    };
    let real = path.canonicalize().map_err(|error| FolderError::Unusable { path, error })?;
    if !real.is_dir() {
        return Err(FolderError::NotAFolder(real));
    }
    if real.parent().is_none() {
        return Err(FolderError::WholeMachine);
    }
    if ["/proc", "/sys", "/dev"].iter().any(|system| real.starts_with(system)) {
        return Err(FolderError::System(real));
    }
    if own.own().iter().any(|own| is_within(&real, &own.path)) {
        return Err(FolderError::Own(real));
    }
    // In the file, `.` is always the folder in which Toolhold is started.
    if written == "." {
        return Ok(written.to_owned());
    }
    real.into_os_string().into_string().map_err(|name| FolderError::NotUtf8(name.into()))
}

fn is_within(path: &Path, folder: &Path) -> bool {
    path.starts_with(folder.canonicalize().as_deref().unwrap_or(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_real_paths_and_not_the_root_or_own_folders() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let real = root.path().canonicalize().expect("it is there");
        let own = Folders { home: Some(real.clone()), ..Folders::inside(&real.join("own")) };
        for folder in ["own/data/plugins", "a"] {
            std::fs::create_dir_all(real.join(folder)).expect("folders are made");
        }
        std::fs::write(real.join("file"), "").expect("a file is made");
        std::os::unix::fs::symlink(real.join("own/data"), real.join("link"))
            .expect("a link is made");
        let check = |written: &str| folder(written, &own, &real);
        assert_eq!(check(".").unwrap(), ".");
        for same in ["a", "~/a", "./a/../a/"] {
            assert_eq!(check(same).unwrap(), real.join("a").display().to_string(), "{same}");
        }
        assert_eq!(check("~").unwrap(), real.display().to_string());
        for (written, reason) in [
            ("", "missing"),
            ("/", "the whole machine"),
            ("/usr/..", "the whole machine"),
            ("/proc/self", "the system itself"),
            ("none", "can't be used"),
            ("file", "isn't a folder"),
            ("own/data", "belongs to Toolhold"),
            ("own/data/plugins", "belongs to Toolhold"),
            ("link", "belongs to Toolhold"),
        ] {
            let refused = check(written).expect_err(written).to_string();
            assert!(refused.contains(reason), "{written}: {refused}");
        }
    }
}
