//! Writes the program's templates and SDKs to a folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::MAX_FILE;

pub(crate) const MANIFEST: &str = "plugin.toml";

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// A file that is embedded in the program.
pub(crate) struct File {
    /// The path below the list's folder, with `/`.
    pub(crate) path: &'static str,
    pub(crate) bytes: &'static [u8],
}

pub(crate) struct Written {
    /// The path below the target folder, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

impl Written {
    pub(crate) fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into() }
    }
}

/// A file or folder that can't be used.
#[derive(Debug, Error)]
pub enum ProjectFileError {
    #[error("{} can't be {action}: {error}", path.display())]
    Io { path: PathBuf, action: &'static str, error: std::io::Error },
    #[error("{} isn't a file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} is too large; the limit is {MAX_FILE} bytes", .0.display())]
    TooLarge(PathBuf),
    #[error("{} isn't UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("{} isn't empty; choose another folder with --dir", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} is a link, but builds write to this path; remove the link", .0.display())]
    Link(PathBuf),
    #[error("{} with different content. To overwrite the content: --force", describe_existing(.0))]
    Differing(Vec<PathBuf>),
}

impl ProjectFileError {
    /// `action` is a participle, such as `written`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { path: path.to_owned(), action, error }
    }
}

/// Writes files below a folder. If `force` is off and a file has other content, writes nothing.
pub(crate) fn write_all(
    folder: &Path,
    files: &[Written],
    force: bool,
) -> Result<(), ProjectFileError> {
    let mut to_write = Vec::new();
    let mut differing = Vec::new();
    for file in files {
        let path = folder.join(&file.path);
        // Only regular files are read. A link may lead out of the folder, and reading a FIFO or a
        // device may never end.
        let is_special = path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file());
        if is_special {
            differing.push(path.clone());
        } else {
            match fs::read(&path) {
                Ok(bytes) if bytes == file.bytes => continue,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Ok(_) | Err(_) => differing.push(path.clone()),
            }
        }
        to_write.push((path, file));
    }
    if !force && !differing.is_empty() {
        return Err(ProjectFileError::Differing(differing));
    }
    for (path, file) in to_write {
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| write(&path, &file.bytes))
            .map_err(ProjectFileError::io("written", &path))?;
    }
    Ok(())
}

/// Replaces a file. A link is replaced instead of its target, which may be outside the folder.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    fs::File::create_new(path)?.write_all(bytes)
}

/// The most existing files that an error names.
const MAX_NAMED: usize = 5;

/// Returns the start of a sentence, such as `a.c, b.c exist`.
fn describe_existing(differing: &[PathBuf]) -> String {
    let mut named = Vec::new();
    for path in differing.iter().take(MAX_NAMED) {
        named.push(path.display().to_string());
    }
    let mut text = named.join(", ");
    let more = differing.len() - named.len();
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text += if differing.len() == 1 { " exists" } else { " exist" };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_file_stops_everything_unless_forced() {
        let folder = tempfile::tempdir().unwrap();
        let files = [Written::new("a/b", "new"), Written::new("c", "new")];
        fs::write(folder.path().join("c"), "mine").unwrap();
        let refused = write_all(folder.path(), &files, false).unwrap_err().to_string();
        assert!(
            refused.contains("/c exists with different content") && refused.contains("--force")
        );
        assert!(!folder.path().join("a").exists());

        write_all(folder.path(), &files, true).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("c")).unwrap(), "new");
        write_all(folder.path(), &files, false).unwrap();
    }

    #[test]
    fn link_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (outside, inside) = (folder.path().join("outside"), folder.path().join("in"));
        fs::write(&outside, "kept").unwrap();
        fs::create_dir(&inside).unwrap();
        let files = [Written::new("a", "new"), Written::new("b", "new")];
        std::os::unix::fs::symlink(&outside, inside.join("a")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("missing"), inside.join("b")).unwrap();
        let refused = write_all(&inside, &files, false).unwrap_err().to_string();
        assert!(refused.contains("--force"), "{refused}");
        write_all(&inside, &files, true).unwrap();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
        assert!(!folder.path().join("missing").exists());
        assert_eq!(fs::read_to_string(inside.join("b")).unwrap(), "new");
    }

    #[test]
    fn every_list_has_its_files_and_nothing_that_tools_made() {
        let has = |files: &[File], path: &str| files.iter().any(|file| file.path == path);
        assert!(has(WIT, "tool/tools.wit") && has(WIT, "deps/http/types.wit"));
        assert!(has(SDK_RUST, "src/lib.rs") && has(SDK_RUST, "wit/host/call.wit"));
        assert!(has(SDK_PYTHON, "toolhold/__init__.py"));
        assert!(has(SDK_C, "toolhold.h") && has(SDK_C, "bindings/plugin_component_type.o"));
        assert!(has(SDK_GO, "toolhold.go") && has(SDK_GO, "internal/exports/wit_exports.go"));
        assert!(has(SDK_GO, "internal/wit/toolhold_host_log/empty.s"));
        let sdks = [SDK_RUST, SDK_PYTHON, SDK_JAVASCRIPT, SDK_C, SDK_GO];
        let all = sdks.into_iter().chain([WIT, EXAMPLE_RUST, EXAMPLE_PYTHON, EXAMPLE_GO]);
        for file in all.flatten() {
            let parts: Vec<&str> = file.path.split('/').collect();
            for made in ["target", "node_modules", "__pycache__", "released", "tests"] {
                assert!(!parts.contains(&made), "{}", file.path);
            }
        }
    }
}
