//! The temporary files of `toolhold demo`, with a secret that attacks must not reach.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};
use toolhold_core::HostError;
use toolhold_core::config::Folders;

pub(crate) const README: &str = "# A project\n\nIt says hello.\n";

/// A granted project, and a secret file next to it. All files are removed with this value.
pub(crate) struct Scene {
    root: tempfile::TempDir,
    pub(crate) project: PathBuf,
    pub(crate) secret_file: PathBuf,
    /// The random content of `secret_file`, which only a tool that read the file can know.
    pub(crate) secret: String,
}

impl Scene {
    /// Creates the project, and a secret file outside the project.
    pub(crate) fn new() -> Result<Self, HostError> {
        let root = tempfile::Builder::new()
            .prefix("toolhold-demo-")
            .tempdir()
            .map_err(HostError::io("making a scratch folder"))?;
        let path =
            root.path().canonicalize().map_err(HostError::io("finding the scratch folder"))?;
        let project = path.join("project");
        let secret_file = path.join("secret.txt");
        let secret = token()?;
        fill(&project, &secret_file, &secret)
            .map_err(HostError::io(format!("filling {}", path.display())))?;
        Ok(Self { root, project, secret_file, secret })
    }

    /// Writes a new file into the configuration folder. Only the user may read the file.
    pub(crate) fn configure(&self, name: &str, content: &[u8]) -> Result<(), HostError> {
        let folder = self.folders().config;
        let path = folder.join(name);
        write_new(&folder, &path, content)
            .map_err(HostError::io(format!("writing {}", path.display())))
    }

    /// Makes absolute paths in `text` relative to the project.
    pub(crate) fn shortened(&self, text: &str) -> String {
        let project = format!("{}/", self.project.display());
        let beside = format!("{}/", self.project.with_file_name("").display()).replace("//", "/");
        text.replace(&project, "").replace(&beside, "../")
    }

    /// Returns folders inside the temporary folder. The demo must not use the user's folders.
    pub(crate) fn folders(&self) -> Folders {
        Folders::inside(&self.root.path().join("toolhold"))
    }

    pub(crate) fn secret_is_untouched(&self) -> bool {
        fs::read_to_string(&self.secret_file).is_ok_and(|text| text == self.secret)
    }
}

fn fill(project: &Path, secret_file: &Path, secret: &str) -> io::Result<()> {
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("src/main.rs"), "fn main() {\n    println!(\"hello\");\n}\n")?;
    fs::write(project.join("README.md"), README)?;
    fs::write(secret_file, secret)?;
    std::os::unix::fs::symlink(secret_file, project.join("link.txt"))
}

fn write_new(folder: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)
}

fn token() -> Result<String, HostError> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|errno| HostError::io("asking for random bytes")(errno.into()))?;
    Ok(format!("secret-{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_project() {
        let scene = Scene::new().expect("a scratch folder");
        let text =
            format!("{} and {}", scene.project.join("a/b").display(), scene.secret_file.display());
        assert_eq!(scene.shortened(&text), "a/b and ../secret.txt");
    }
}
