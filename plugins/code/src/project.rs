//! Finds the project that a search is in, and lists its files.

use std::path::Path;

use toolhold_sdk::search::{self, Ending, Entry, Kind, Scope, SearchError};

/// Most entries of one listing of the host.
pub(crate) const LISTED: u32 = 10_000;

/// How deep a project is listed folder by folder, where it is too large for one listing.
const MAX_DEPTH: usize = 24;

/// The files of a project, as they are now.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Regular files, with paths below the project.
    pub(crate) files: Vec<Entry>,
    /// Whether files may be missing in the list.
    pub(crate) incomplete: bool,
    /// A folder with more entries than one listing has.
    pub(crate) crowded: Option<String>,
    /// Entries that the operator's rules deny.
    pub(crate) denied: u64,
}

/// The folder whose index a search of `path` uses: the working directory if `path` lies in it, or
/// else the repository of `path`, or else the folder itself.
pub(crate) fn root_of(path: &str, working_directory: Option<&str>) -> String {
    if let Some(directory) = working_directory.filter(|directory| is_below(directory, path)) {
        return directory.to_owned();
    }
    let path = Path::new(path);
    let folder = if path.is_file() { path.parent().unwrap_or(path) } else { path };
    let repository = folder.ancestors().find(|folder| folder.join(".git").exists());
    repository.unwrap_or(folder).to_string_lossy().into_owned()
}

/// Whether `path` is `folder` or lies below it.
pub(crate) fn is_below(folder: &str, path: &str) -> bool {
    below(folder, path).is_some()
}

/// The path below `root`. Empty: it is the root itself.
pub(crate) fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// Lists the files of a project, at most `max_files`.
///
/// # Errors
///
/// The project can't be listed.
pub(crate) fn walk(root: &str, max_files: usize) -> Result<Walk, SearchError> {
    let mut walk = Walk::default();
    list(root, 0, &mut walk)?;
    for file in &mut walk.files {
        let below = below(root, &file.path).unwrap_or_default().len();
        file.path.drain(..file.path.len() - below);
    }
    // A name that isn't UTF-8 can't be opened by what is shown of it, and one with a line end can't
    // be kept in the table.
    walk.files.retain(|file| !file.path.is_empty() && !file.path.contains(['\u{fffd}', '\n']));
    if walk.files.len() > max_files {
        walk.files.truncate(max_files);
        walk.incomplete = true;
    }
    Ok(walk)
}

fn list(folder: &str, depth: usize, walk: &mut Walk) -> Result<(), SearchError> {
    let whole =
        Scope { root: folder.to_owned(), ignore_rules: true, files_only: true, ..Scope::default() };
    let found = search::find(&whole, LISTED)?;
    if found.ending != Ending::Limit || depth >= MAX_DEPTH {
        walk.denied += found.skipped.denied;
        walk.incomplete |= found.ending != Ending::Complete;
        walk.files.extend(found.items);
        return Ok(());
    }
    // Too many for one listing: folder by folder.
    let top = Scope { files_only: false, max_depth: Some(1), ..whole };
    let found = search::find(&top, LISTED)?;
    walk.denied += found.skipped.denied;
    walk.incomplete |= found.ending != Ending::Complete;
    if found.ending == Ending::Limit {
        walk.crowded.get_or_insert_with(|| folder.to_owned());
    }
    for entry in found.items {
        match entry.kind {
            Kind::File => walk.files.push(entry),
            // It may have gone meanwhile.
            Kind::Directory => match list(&entry.path, depth + 1, walk) {
                Ok(()) | Err(SearchError::NotFound(_)) => {}
                Err(error) => return Err(error),
            },
            Kind::Symlink | Kind::Other => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn project_is_working_directory_or_repository_or_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap();
        fs::create_dir_all(dir.path().join("repo/.git")).unwrap();
        fs::create_dir_all(dir.path().join("repo/src")).unwrap();
        fs::create_dir_all(dir.path().join("plain")).unwrap();
        fs::write(dir.path().join("repo/src/a.rs"), "").unwrap();
        let of = |path: &str, working: Option<&str>| {
            root_of(&format!("{root}/{path}"), working).replace(root, "")
        };
        assert_eq!(of("repo/src", Some(root)), "");
        assert_eq!(of("repo/src/a.rs", None), "/repo");
        assert_eq!(of("repo/src/a.rs", Some(&format!("{root}/rep"))), "/repo");
        assert_eq!(of("plain", None), "/plain");
    }

    #[test]
    fn paths_are_compared_by_whole_names() {
        assert!(is_below("/a", "/a") && is_below("/a", "/a/b") && is_below("/", "/a"));
        assert!(!is_below("/a", "/ab"));
        assert_eq!(
            (below("/a", "/a/b"), below("/a", "/a"), below("/a", "/ab")),
            (Some("b"), Some(""), None)
        );
    }

    #[test]
    fn walk_lists_every_file_of_a_large_project() {
        let dir = tempfile::tempdir().unwrap();
        for folder in 0..11 {
            let folder = dir.path().join(format!("d{folder}"));
            fs::create_dir(&folder).unwrap();
            (0..1000).for_each(|file| fs::write(folder.join(format!("{file}.rs")), "").unwrap());
        }
        let root = dir.path().to_str().unwrap();
        let all = walk(root, 50_000).unwrap();
        assert_eq!((all.files.len(), all.incomplete), (11_000, false));
        assert!(all.files.iter().any(|file| file.path == "d10/999.rs"));
        assert_eq!(all.crowded, None);
        let some = walk(root, 100).unwrap();
        assert_eq!((some.files.len(), some.incomplete), (100, true));
    }

    #[test]
    fn folder_with_too_many_entries_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("wide");
        fs::create_dir(&folder).unwrap();
        (0..=LISTED).for_each(|file| fs::write(folder.join(format!("{file}.rs")), "").unwrap());
        let walk = walk(dir.path().to_str().unwrap(), 50_000).unwrap();
        assert_eq!((walk.files.len(), walk.incomplete), (LISTED as usize, true));
        assert_eq!(walk.crowded.as_deref(), folder.to_str());
    }
}
