//! The temporary folders and files of `toolhold demo`, including the secret that attacks must not
//! reach.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};
use toolhold_core::HostError;
use toolhold_core::config::Folders;

/// The content of the project's readme.
pub(crate) const README: &str = "# A project\n\nIt says hello.\n";

/// The demo's folders: a granted project, and a folder next to it that no tool may reach. They are
/// removed when this value is dropped.
pub(crate) struct Scene {
    root: tempfile::TempDir,
    /// The granted folder.
    pub(crate) project: PathBuf,
    /// A file outside the granted folder.
    pub(crate) secret_file: PathBuf,
    /// The content of the secret file. It is random each time, so only a reader of the file can
    /// know it.
    pub(crate) secret: String,
}

impl Scene {
    /// Creates the folders and files.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] if the temporary folder can't be written.
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

    /// Writes a file into the configuration folder.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] if the temporary folder is full.
    pub(crate) fn configure(&self, name: &str, content: &[u8]) -> Result<(), HostError> {
        let folder = self.folders().config;
        let path = folder.join(name);
        fs::create_dir_all(&folder)
            .and_then(|()| {
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)
            })
            .and_then(|mut file| file.write_all(content))
            .map_err(HostError::io(format!("writing {}", path.display())))
    }

    /// `text` with paths relative to the project.
    pub(crate) fn shortened(&self, text: &str) -> String {
        let project = format!("{}/", self.project.display());
        let beside = format!("{}/", self.project.with_file_name("").display()).replace("//", "/");
        text.replace(&project, "").replace(&beside, "../")
    }

    /// Returns Toolhold's own folders for the demo. The demo doesn't read the user's folders, and
    /// its own folders are removed.
    pub(crate) fn folders(&self) -> Folders {
        Folders::inside(&self.root.path().join("toolhold"))
    }

    /// Whether the file outside is unchanged.
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
