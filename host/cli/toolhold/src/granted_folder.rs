//! Checks the folders that the user grants.

use std::path::{Path, PathBuf};

use toolhold_core::config::Folders;

#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("the path is empty")]
    NoName,
    #[error("{} can't be used: {error}", path.display())]
    Unusable { path: PathBuf, error: std::io::Error },
    #[error("{} isn't a folder; name the folder that contains it", .0.display())]
    NotAFolder(PathBuf),
    #[error(
        "`/` is the whole machine, with all keys and passwords; name the folders that tools need"
    )]
    WholeMachine,
    #[error("{} has the kernel's file system instead of files", .0.display())]
    System(PathBuf),
    #[error("{} belongs to Toolhold, and no tool may use it", .0.display())]
    Own(PathBuf),
    #[error("the name of {} is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("the path is not UTF-8")]
    GivenNotUtf8,
}

/// Returns the real path of a folder that the user names. `.` stands for `here`, this command's
/// working directory.
///
/// # Errors
///
/// Returns an error if the folder can't be granted.
pub(crate) fn real_folder(
    path: &Path,
    toolhold: &Folders,
    here: &Path,
) -> Result<String, FolderError> {
    let path = if path == Path::new(".") { here } else { path };
    folder_at(path, toolhold, here)
}

/// Works like [`folder`] with a path, which must be UTF-8.
pub(crate) fn folder_at(
    path: &Path,
    toolhold: &Folders,
    here: &Path,
) -> Result<String, FolderError> {
    folder(path.to_str().ok_or(FolderError::GivenNotUtf8)?, toolhold, here)
}

/// Returns the folder for `toolhold.toml`: its real path, or `.`. A relative path starts at `here`,
/// the working directory. `toolhold` are Toolhold's own folders.
///
/// # Errors
///
/// Returns an error for a folder that can't be granted, such as one of Toolhold's folders.
pub(crate) fn folder(
    written: &str,
    toolhold: &Folders,
    here: &Path,
) -> Result<String, FolderError> {
    if written.is_empty() {
        return Err(FolderError::NoName);
    }
    let path = match (&toolhold.home, written.strip_prefix('~')) {
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
    let is_system = ["/proc", "/sys", "/dev"].iter().any(|system| real.starts_with(system));
    if is_system {
        return Err(FolderError::System(real));
    }
    for toolhold_folder in toolhold.own_folders() {
        if is_same_or_below(&real, &toolhold_folder.path) {
            return Err(FolderError::Own(real));
        }
    }
    // In `toolhold.toml`, `.` stands for the folder in which Toolhold starts.
    if written == "." {
        return Ok(written.to_owned());
    }
    real.into_os_string().into_string().map_err(|name| FolderError::NotUtf8(name.into()))
}

/// Checks whether `path` is `folder` or a path below it.
fn is_same_or_below(path: &Path, folder: &Path) -> bool {
    match folder.canonicalize() {
        Ok(real_folder) => path.starts_with(real_folder),
        Err(_) => path.starts_with(folder),
    }
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
        let here = real_folder(Path::new("."), &own, &real).unwrap();
        assert_eq!(here, real.display().to_string());
        for same in ["a", "~/a", "./a/../a/"] {
            assert_eq!(check(same).unwrap(), real.join("a").display().to_string(), "{same}");
        }
        assert_eq!(check("~").unwrap(), real.display().to_string());
        for (written, reason) in [
            ("", "the path is empty"),
            ("/", "the whole machine"),
            ("/usr/..", "the whole machine"),
            ("/proc/self", "kernel's file system"),
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
