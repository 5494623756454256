//! Replaces the content of a file in one step, so that no reader sees half of it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use toolhold_sdk::Failure;

use crate::temporary::Temporary;

/// The number of links, one after the other, that is too many.
const MAX_LINKS: usize = 8;

/// Replaces the content of the file at `path` by `bytes`. It writes and flushes a temporary file in
/// the same directory, then renames it. If this fails, the file is unchanged and the temporary file
/// is removed. The directory has to exist. A file with several names is written over, since a
/// rename would leave the others with the old content.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let is_shared = rustix::fs::lstat(path).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink > 1
    });
    if is_shared {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        return file.sync_all();
    }
    let (temporary, mut file) = Temporary::file(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    temporary.name(path)
}

/// The target of `path` after following links, or `path` itself if it isn't a link. The target may
/// be missing. Links are followed because replacing a link would separate it from its target.
pub(crate) fn resolve_links(path: &str) -> Result<PathBuf, Failure> {
    let mut real = PathBuf::from(path);
    for _ in 0..MAX_LINKS {
        if !fs::symlink_metadata(&real).is_ok_and(|meta| meta.is_symlink()) {
            return Ok(real);
        }
        let target = fs::read_link(&real).map_err(|error| {
            let failure = Failure::io(format!("following the link {}", real.display()), &error);
            failure.with_suggestion("Use the path of its target.")
        })?;
        real = match real.parent() {
            Some(parent) => parent.join(target),
            None => target,
        };
    }
    Err(Failure::permanent(
        "too-many-links",
        format!("{path} leads through too many links; the limit is {}", MAX_LINKS - 1),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn content_is_replaced_without_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for content in ["first, and longer", "second"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn all_names_of_a_file_get_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&path, "first, and longer").unwrap();
        fs::hard_link(&path, &other).unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "second");
        assert_eq!(names(dir.path()), ["a", "b"]);
    }

    #[test]
    fn failed_replacement_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "kept").unwrap();
        assert!(replace(&path, b"new").is_err());
        assert_eq!(names(dir.path()), ["a"]);
        assert_eq!(fs::read_to_string(path.join("inside")).unwrap(), "kept");
    }

    #[test]
    fn links_are_followed_to_their_end() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        symlink("b", at("a")).unwrap();
        symlink(at("sub/c"), at("b")).unwrap();
        assert_eq!(resolve_links(at("a").to_str().unwrap()).unwrap(), at("sub/c"));
        symlink("round", at("round")).unwrap();
        assert_eq!(
            resolve_links(at("round").to_str().unwrap()).unwrap_err().code.as_deref(),
            Some("too-many-links")
        );
    }
}
