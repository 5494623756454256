//! A tree of source files that is large enough to tell a fast search from a slow one.

use std::fs;
use std::path::{Path, PathBuf};

/// The least that the tree has to hold.
pub(crate) const MIN_BYTES: u64 = 500 << 20;

/// The tree, and what to call it.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) description: String,
}

impl Tree {
    /// The sources of all crates that cargo has unpacked here, if there are enough; otherwise
    /// copies of them, created once in `folder`. Reads every file, so that the page cache is
    /// filled.
    ///
    /// # Errors
    ///
    /// There are no sources, or they can't be copied.
    pub(crate) fn find_or_make(folder: &Path) -> Result<Tree, String> {
        let sources = registry()?;
        let size = walk(&sources, &mut |_, _| Ok(()))?;
        if size == 0 {
            return Err(format!(
                "{} holds nothing to search: build the workspace first",
                sources.display()
            ));
        }
        let copies = if size >= MIN_BYTES { 1 } else { MIN_BYTES.div_ceil(size) };
        let root = if copies == 1 { sources.clone() } else { folder.join("tree") };
        if copies > 1 {
            // Created completely or not at all: the copies get their final name last.
            for copy in (0..copies)
                .map(|number| root.join(number.to_string()))
                .filter(|copy| !copy.exists())
            {
                let unfinished = copy.with_extension("unfinished");
                if unfinished.exists() {
                    fs::remove_dir_all(&unfinished)
                        .map_err(|error| failed("remove", &unfinished, &error))?;
                }
                copy_tree(&sources, &unfinished)?;
                fs::rename(&unfinished, &copy)
                    .map_err(|error| failed("rename", &unfinished, &error))?;
            }
        }
        let mut files = 0_u64;
        let bytes = walk(&root, &mut |path, _| {
            files += 1;
            fs::read(path).map(drop).map_err(|error| failed("read", path, &error))
        })?;
        let of = if copies == 1 {
            "the crates registry".to_owned()
        } else {
            format!("{copies} copies of the crates registry")
        };
        Ok(Tree { root, description: format!("{of}: {} MB in {files} files", bytes / 1_000_000) })
    }
}

fn registry() -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = home
        .ok_or("neither CARGO_HOME nor HOME says where the crates registry is")?
        .join("registry/src");
    if sources.is_dir() { Ok(sources) } else { Err(format!("there is no {}", sources.display())) }
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    walk(from, &mut |path, below| {
        let target = to.join(below);
        let parent = target.parent().unwrap_or(to);
        fs::create_dir_all(parent).map_err(|error| failed("create", parent, &error))?;
        fs::copy(path, &target).map(drop).map_err(|error| failed("copy", path, &error))
    })
    .map(drop)
}

/// Visits every regular file, with its path below the root, and returns how many bytes they hold.
/// Links are left alone.
fn walk(
    root: &Path,
    visit: &mut dyn FnMut(&Path, &Path) -> Result<(), String>,
) -> Result<u64, String> {
    let mut bytes = 0;
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let folder = root.join(&below);
        for entry in fs::read_dir(&folder).map_err(|error| failed("list", &folder, &error))? {
            let entry = entry.map_err(|error| failed("list", &folder, &error))?;
            let kind =
                entry.file_type().map_err(|error| failed("look at", &entry.path(), &error))?;
            let below = below.join(entry.file_name());
            if kind.is_dir() {
                folders.push(below);
            } else if kind.is_file() {
                visit(&entry.path(), &below)?;
                bytes += entry
                    .metadata()
                    .map_err(|error| failed("look at", &entry.path(), &error))?
                    .len();
            }
        }
    }
    Ok(bytes)
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("can't {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_the_same_files() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/c"), "12345").unwrap();
        fs::write(from.join("d"), "678").unwrap();
        copy_tree(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("a/b/c")).unwrap(), b"12345");
        assert_eq!(walk(&to, &mut |_, _| Ok(())), Ok(8));
    }
}
