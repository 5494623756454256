//! The text files of the repository, which the rules check, by their path.

use std::path::Path;
use std::{fs, io};

use super::manifest::Manifest;
use super::source::Source;

/// The files, sorted by path.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    /// The path of the checkout, which no file may contain. `None` if it is so short that others
    /// may have the same one, such as `/app`.
    pub(crate) checkout: Option<String>,
}

/// One text file.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The parsed source. `None` if the path doesn't end in `.rs`.
    pub(crate) source: Option<Source>,
    /// The parsed manifest. `None` if the file isn't a `Cargo.toml`.
    pub(crate) manifest: Option<Manifest>,
}

/// Extensions of text files. Other files, such as images and components, are not checked.
const TEXT: [&str; 17] = [
    "rs", "md", "wit", "toml", "sh", "yml", "yaml", "json", "py", "js", "c", "h", "go", "wat",
    "txt", "svg", "zig",
];

/// Folders of cargo, git and other tools, which are not checked.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "__pycache__", ".venv"];

impl Tree {
    /// Reads all text files of the repository.
    pub(crate) fn load(root: &Path) -> Result<Tree, String> {
        let mut files = Vec::new();
        collect(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let checkout =
            Some(root.to_string_lossy().into_owned()).filter(|path| path.matches('/').count() > 1);
        Ok(Tree { files, checkout })
    }

    /// The Rust files below the folders.
    pub(crate) fn rust<'a>(
        &'a self,
        folders: &'a [&str],
    ) -> impl Iterator<Item = (&'a File, &'a Source)> {
        self.files
            .iter()
            .filter(|file| folders.iter().any(|folder| file.path.starts_with(folder)))
            .filter_map(|file| Some((file, file.source.as_ref()?)))
    }

    /// The manifests below the folders.
    pub(crate) fn manifests<'a>(
        &'a self,
        folders: &'a [&str],
    ) -> impl Iterator<Item = (&'a File, &'a Manifest)> {
        self.files
            .iter()
            .filter(|file| folders.iter().any(|folder| file.path.starts_with(folder)))
            .filter_map(|file| Some((file, file.manifest.as_ref()?)))
    }

    /// Whether the tree has this file or folder.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }
}

/// Whether a file belongs to an example or a sample, each of which is a project of its own, without
/// a workspace.
pub(crate) fn stands_alone(path: &str) -> bool {
    ["plugins/examples/", "plugins/samples/"].iter().any(|folder| path.starts_with(folder))
}

impl File {
    pub(crate) fn new(path: String, text: String) -> File {
        let source = path.ends_with(".rs").then(|| Source::parse(&text));
        let manifest =
            (path == "Cargo.toml" || path.ends_with("/Cargo.toml")).then(|| Manifest::parse(&text));
        File { path, text, source, manifest }
    }

    pub(crate) fn has_extension(&self, extensions: &[&str]) -> bool {
        extension(&self.path).is_some_and(|found| extensions.contains(&found))
    }

    /// Whether the line is code that is not released: in the package of the tests, in a file of
    /// tests or an example, or in an item for tests only. Lines count from 1.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        // The guests of the tests are programs.
        let is_guest = self.path.starts_with("tests/guests/");
        let folders = format!("/{}", self.path);
        let has_test_name = ["/tests/", "/examples/"].iter().any(|folder| folders.contains(folder))
            || self.path.ends_with("tests.rs");
        let is_test_file = has_test_name && !is_guest;
        is_test_file || self.source.as_ref().is_some_and(|source| source.is_test(line))
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|error| cannot_list(folder, &error))? {
        let entry = entry.map_err(|error| cannot_list(folder, &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(|error| cannot_list(folder, &error))?;
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() && is_text(&path) {
            let bytes =
                fs::read(entry.path()).map_err(|error| format!("can't read {path}: {error}"))?;
            files.push(File::new(path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(())
}

fn cannot_list(folder: &Path, error: &io::Error) -> String {
    format!("can't list {}: {error}", folder.display())
}

fn is_text(path: &str) -> bool {
    path == ".ci/run" || extension(path).is_some_and(|extension| TEXT.contains(&extension))
}

fn extension(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map(|(_, extension)| extension)
}
