//! The principals that the operator denied. Their tokens may still be valid.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toolhold_contract::HostError;
use toolhold_data_dir::state;

use crate::{Folders, PrincipalId, Who};

/// The folder in the operator's data folder. It has a file for each denied principal.
const FOLDER: &str = "denied";

/// Maximum number of attempts to remove a folder.
const REMOVAL_ATTEMPTS: usize = 10;

/// A principal that no server admits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedPrincipal {
    /// The issuer of the principal's tokens.
    pub issuer: String,
    /// The name of the principal at its issuer.
    pub subject: String,
    /// Whether the principal's data is removed, too.
    pub purge: bool,
}

impl DeniedPrincipal {
    /// Denies a principal. Returns the file that does so: the principal is admitted again when the
    /// file is removed. `folders` are those of the operator or of any principal. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if the file can't be written.
    pub fn store(folders: &Folders, who: &Who, purge: bool) -> Result<PathBuf, HostError> {
        let name = file_name(&who.id());
        state::update(&folder(folders), &name, |file: &mut Option<Self>| {
            *file = Some(Self { issuer: who.issuer.clone(), subject: who.subject.clone(), purge });
            Ok(())
        })?;
        Ok(folder(folders).join(name))
    }

    /// Returns the denial of a principal, if there is one. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if the file can't be read. The principal must then be refused.
    pub fn find(folders: &Folders, id: &PrincipalId) -> Result<Option<Self>, HostError> {
        state::read(&folder(folders), &file_name(id))
    }

    /// Returns an error if the principal is denied. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if the principal is denied, or the file can't be read.
    pub fn check(folders: &Folders, who: &Who) -> Result<(), HostError> {
        let id = who.id();
        match Self::find(folders, &id)? {
            None => Ok(()),
            Some(_) => Err(HostError::Config(format!(
                "this caller was denied with `toolhold token revoke`; to admit the caller again, \
                 remove {}",
                folder(folders).join(file_name(&id)).display()
            ))),
        }
    }

    /// Removes the data of a principal. A server that still works for the principal may make new
    /// files, until it has read the denial. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if a file can't be removed.
    pub fn remove_data(folders: &Folders, id: &PrincipalId) -> Result<(), HostError> {
        let own = folders.of_principal(id);
        for folder in [own.data, own.cache] {
            remove_folder(&folder).map_err(HostError::io(folder.display().to_string()))?;
        }
        Ok(())
    }
}

/// Removes a folder, if it exists. Tries again if a server has made a file meanwhile.
fn remove_folder(folder: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for _ in 0..REMOVAL_ATTEMPTS {
        result = fs::remove_dir_all(folder);
        if result.is_ok() || matches!(folder.try_exists(), Ok(false)) {
            return Ok(());
        }
    }
    result
}

fn folder(folders: &Folders) -> PathBuf {
    folders.operator_data().join(FOLDER)
}

fn file_name(id: &PrincipalId) -> String {
    format!("{id}.json")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn who(subject: &str) -> Who {
        Who {
            issuer: "https://login.example.org".into(),
            subject: subject.into(),
            groups: vec!["dev".into()],
            client: None,
            token: None,
        }
    }

    #[test]
    fn denial_is_about_issuer_and_subject_alone() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let anna = who("anna");
        DeniedPrincipal::check(&folders, &anna).expect("nobody is denied");
        let file = DeniedPrincipal::store(&folders, &anna, false).expect("it is written");
        let others_folders = folders.of_principal(&who("ben").id());
        for folders in [&folders, &others_folders] {
            let renamed = Who { groups: Vec::new(), client: Some("app".into()), ..anna.clone() };
            DeniedPrincipal::check(folders, &renamed).expect_err("she is denied");
            DeniedPrincipal::check(folders, &who("ben")).expect("he isn't denied");
            let other = Who { issuer: "https://login.example.com".into(), ..anna.clone() };
            DeniedPrincipal::check(folders, &other).expect("another issuer has another anna");
        }

        // A file that can't be trusted or read denies, too.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("its mode is set");
        DeniedPrincipal::check(&folders, &anna).expect_err("anybody could have changed the file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode is set");
        fs::write(&file, "{").expect("it is damaged");
        DeniedPrincipal::check(&folders, &anna).expect_err("the file is damaged");
        fs::remove_file(&file).expect("it is removed");
        DeniedPrincipal::check(&folders, &anna).expect("she is admitted again");
    }

    #[test]
    fn removed_data_is_one_principals_alone() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let [anna, ben] = ["anna", "ben"].map(|name| who(name).id());
        for id in [&anna, &ben] {
            let own = folders.of_principal(id);
            for folder in [own.data, own.cache] {
                fs::create_dir_all(folder.join("undo")).expect("a folder is made");
                fs::write(folder.join("undo/file"), "text").expect("a file is made");
            }
        }
        let of_ben = folders.of_principal(&ben);
        let link = folders.of_principal(&anna).data.join("link");
        symlink(&of_ben.data, link).expect("a link is made");
        DeniedPrincipal::remove_data(&folders, &anna).expect("it is removed");
        DeniedPrincipal::remove_data(&folders, &anna).expect("there is nothing more");
        let own = folders.of_principal(&anna);
        assert!(!own.data.exists() && !own.cache.exists());
        assert!(of_ben.data.join("undo/file").exists() && of_ben.cache.join("undo/file").exists());
    }
}
