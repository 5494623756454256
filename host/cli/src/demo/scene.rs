use std::fs;
use std::path::PathBuf;

use berth_host::HostError;
use berth_host::config::Folders;
use rustix::rand::{GetRandomFlags, getrandom};

/// Where the demo plays: a project that is granted, and beside it what nobody may reach. Removed when dropped.
pub(crate) struct Scene {
    root: tempfile::TempDir,
    /// The granted folder.
    pub(crate) project: PathBuf,
    /// Lies outside of it.
    pub(crate) secret_file: PathBuf,
    /// What stands in the file; made up anew each time, so that nobody can know it without having read it.
    pub(crate) secret: String,
}

impl Scene {
    /// Makes the folders and files.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] where the temporary folder can't be written.
    pub(crate) fn new() -> Result<Self, HostError> {
        let root = tempfile::Builder::new().prefix("berth-demo-").tempdir().map_err(HostError::io("making a scratch folder"))?;
        let path = root.path().canonicalize().map_err(HostError::io("finding the scratch folder"))?;
        let (project, secret_file) = (path.join("project"), path.join("secret.txt"));
        let secret = token()?;
        let make = || {
            fs::create_dir_all(project.join("src"))?;
            fs::write(project.join("src/main.rs"), "fn main() {\n    println!(\"hello\");\n}\n")?;
            fs::write(project.join("README.md"), "# A project\n\nIt says hello.\n")?;
            fs::write(&secret_file, &secret)?;
            std::os::unix::fs::symlink(&secret_file, project.join("link.txt"))
        };
        make().map_err(HostError::io(format!("filling {}", path.display())))?;
        Ok(Self { root, project, secret_file, secret })
    }

    /// Berth's own folders, as far as the demo needs them.
    pub(crate) fn folders(&self) -> Folders {
        Folders::inside(&self.root.path().join("berth"))
    }

    /// Whether the file outside is as it was.
    pub(crate) fn secret_is_untouched(&self) -> bool {
        fs::read_to_string(&self.secret_file).is_ok_and(|text| text == self.secret)
    }
}

fn token() -> Result<String, HostError> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| HostError::io("asking for random bytes")(errno.into()))?;
    Ok(format!("secret-{:032x}", u128::from_ne_bytes(bytes)))
}
