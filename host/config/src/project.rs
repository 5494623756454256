//! The `berth.toml` of the working directory: read, narrowed, and trusted where the user said so of
//! exactly what it says.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use berth_contract::HostError;
use berth_system::state;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::leaf::Leaf;
use super::narrow::{self, Bases, Whose, narrow};
use super::{Folders, Loaded, Problem, Problems, Project, ProjectTrust, Source, file};

/// Where the data folder keeps which files are trusted.
const TRUSTED: &str = "trusted.json";

/// Values in the file, the elements of lists included: enough for a project, and too few to make
/// every start slow.
const MAX_VALUES: usize = 512;

impl Project {
    /// Lets all of it count from now on, as long as it stays as it was read.
    ///
    /// # Errors
    ///
    /// What hinders from keeping that.
    pub fn trust(&self, folders: &Folders) -> Result<(), HostError> {
        let Some(path) = self.path.to_str() else {
            return Err(HostError::Config(format!(
                "{} can't be trusted: its path is not UTF-8",
                self.path.display()
            )));
        };
        state::update(&folders.data, TRUSTED, |trusted: &mut Trusted| {
            trusted.files.insert(path.to_owned(), self.digest.clone());
            Ok(())
        })
    }
}

/// The trusted files: their [digests](Project::digest), by their real paths.
///
/// # Errors
///
/// What hinders from reading them.
pub fn trusted(folders: &Folders) -> Result<BTreeMap<String, String>, HostError> {
    Ok(state::read::<Trusted>(&folders.data, TRUSTED)?.files)
}

/// Trusts the file at a real path no longer. Says whether it was trusted.
///
/// # Errors
///
/// What hinders from keeping that.
pub fn forget(folders: &Folders, path: &Path) -> Result<bool, HostError> {
    let Some(path) = path.to_str() else { return Ok(false) };
    state::update(&folders.data, TRUSTED, |trusted: &mut Trusted| {
        Ok(trusted.files.remove(path).is_some())
    })
}

#[derive(Default, Serialize, Deserialize)]
struct Trusted {
    files: BTreeMap<String, String>,
}

/// What the file says, before anybody has looked at whether it may.
pub(super) struct Proposal {
    path: PathBuf,
    text: String,
    leaves: Vec<Leaf>,
}

/// Reads the file, unless it is the one of the user's that was read already.
///
/// # Errors
///
/// Everything that is wrong with it.
pub(super) fn read(
    working_directory: &Path,
    of_the_user: Option<(u64, u64)>,
) -> Result<Option<Proposal>, Vec<Problem>> {
    let path = working_directory.join("berth.toml");
    let Some(file::Text { text, .. }) =
        file::read_unbelieved(&path, of_the_user).map_err(|problem| vec![problem])?
    else {
        return Ok(None);
    };
    let (leaves, problems) = file::parse(&path, &text, MAX_VALUES);
    if !problems.is_empty() {
        return Err(problems);
    }
    // As in the user's file: a name that no plugin can have is a mistake.
    Loaded::from_leaves(&leaves)?.checked()?;
    Ok(Some(Proposal { path, text, leaves }))
}

/// Sees what of it counts beside `base`, all that the operator says.
///
/// # Errors
///
/// What is wrong with the file, or with what is kept of those that are trusted.
pub(super) fn settle(
    proposal: Proposal,
    base: &Loaded,
    folders: &Folders,
) -> Result<(Project, Vec<Leaf>), Vec<Problem>> {
    let Proposal { path, text, leaves } = proposal;
    let bases = Bases { folders, working_directory: path.parent().unwrap_or(&path) };
    let narrowed = narrow(&leaves, base, bases, Whose::Stranger)?;
    let digest = digest(&text, &narrow::destinations(&leaves, bases));
    let mut project =
        Project { path, digest, standing: ProjectTrust::Narrows, widening: narrowed.ignored };
    if project.widening.is_empty() {
        return Ok((project, narrowed.leaves));
    }
    // What is wrong then is no fault of the project's file.
    let unknown = |error: HostError| {
        let why = if let HostError::Io { source, .. } = &error {
            source.to_string()
        } else {
            error.to_string()
        };
        vec![Problem::new(Source::Path(folders.data.join(TRUSTED)), why)]
    };
    let trusted = trusted(folders).map_err(unknown)?;
    let known = project.path.to_str().and_then(|path| trusted.get(path));
    project.standing = match known {
        None => ProjectTrust::Narrows,
        Some(known) if *known == project.digest => ProjectTrust::Trusted,
        Some(_) => ProjectTrust::Changed,
    };
    let counting = if project.standing == ProjectTrust::Trusted {
        narrow::trusted(&leaves, narrowed.leaves, base)
    } else {
        narrowed.leaves
    };
    Ok((project, counting))
}

fn digest(text: &str, destinations: &[PathBuf]) -> String {
    let mut digest = Sha256::new_with_prefix(text);
    for destination in destinations {
        // A NUL is in no path and in no TOML.
        digest.update([0]);
        digest.update(destination.as_os_str().as_bytes());
    }
    format!("{:x}", digest.finalize())
}

impl From<Problems> for Vec<Problem> {
    fn from(problems: Problems) -> Self {
        problems.0
    }
}
