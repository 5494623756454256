//! Reads the `toolhold.toml` of the working directory, and stores the user's trust in its content.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolhold_contract::HostError;
use toolhold_data_dir::state;

use super::leaf::Leaf;
use super::narrow::{self, Bases, Narrower, narrow};
use super::{Config, Folders, Problem, Problems, Project, ProjectTrust, Source, file};

/// The file in the data folder with the list of trusted files.
const TRUSTED: &str = "trusted.json";

/// Most values in the file, including elements of lists. A file with more values is refused,
/// because it would slow down every start.
const MAX_VALUES: usize = 512;

impl Project {
    /// Trusts the file until its content changes.
    ///
    /// # Errors
    ///
    /// Fails if the list of trusted files can't be written.
    pub fn trust(&self, folders: &Folders) -> Result<(), HostError> {
        add_trust(folders, &self.path, &self.digest)
    }
}

/// Adds a file, or the folder of a skill, to the list of trusted files.
///
/// # Errors
///
/// Fails if the list of trusted files can't be written.
pub fn add_trust(folders: &Folders, path: &Path, digest: &str) -> Result<(), HostError> {
    let Some(path) = path.to_str() else {
        return Err(HostError::Config(format!(
            "{} can't be trusted: its path isn't UTF-8",
            path.display()
        )));
    };
    state::update(&folders.data, TRUSTED, |trusted: &mut Trusted| {
        trusted.files.insert(path.to_owned(), digest.to_owned());
        Ok(())
    })
}

/// Reads the list of trusted files: the real paths and their [digests](Project::digest).
///
/// # Errors
///
/// Fails if the list can't be read.
pub fn trusted(folders: &Folders) -> Result<BTreeMap<String, String>, HostError> {
    // The operator trusts files for the operator's own work. A principal trusts none.
    if folders.operator.is_some() {
        return Ok(BTreeMap::new());
    }
    Ok(state::read::<Trusted>(&folders.data, TRUSTED)?.files)
}

/// Removes a file, by its real path, from the list of trusted files. Returns whether the list had
/// the file.
///
/// # Errors
///
/// Fails if the list of trusted files can't be written.
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

/// The file's content, before its values are compared with the operator's values.
pub(super) struct Proposal {
    path: PathBuf,
    text: String,
    leaves: Vec<Leaf>,
}

/// Reads the file. Returns `None` if the file is missing, or if the file is the user's own file.
/// `user_file` is the device and the inode of the user's file.
///
/// # Errors
///
/// Returns all problems of the file.
pub(super) fn read(
    working_directory: &Path,
    user_file: Option<(u64, u64)>,
) -> Result<Option<Proposal>, Vec<Problem>> {
    let path = working_directory.join("toolhold.toml");
    let file = file::read_project(&path, user_file).map_err(|problem| vec![problem])?;
    let Some(file::Text { text, .. }) = file else { return Ok(None) };
    let (leaves, problems) = file::parse(&path, &text, MAX_VALUES);
    if !problems.is_empty() {
        return Err(problems);
    }
    // `checked` refuses an invalid plugin name, as in the user's file.
    Config::from_leaves(&leaves)?.checked()?;
    Ok(Some(Proposal { path, text, leaves }))
}

/// Decides which values of the file apply. `base` is the operator's whole configuration.
///
/// # Errors
///
/// Returns all problems of the file or of the list of trusted files.
pub(super) fn apply(
    proposal: &Proposal,
    base: &Config,
    folders: &Folders,
) -> Result<(Project, Vec<Leaf>), Vec<Problem>> {
    let (mut project, narrowed) = apply_untrusted(proposal, base, folders)?;
    if project.widening.is_empty() {
        return Ok((project, narrowed));
    }

    let digests = trusted(folders).map_err(|error| {
        let message = match &error {
            HostError::Io { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        // The list of trusted files can't be read, so the problem names the list and not the
        // project's file.
        vec![Problem::new(Source::Path(folders.data.join(TRUSTED)), message)]
    })?;
    let trusted_digest = project.path.to_str().and_then(|path| digests.get(path));
    project.standing = match trusted_digest {
        None => ProjectTrust::Narrows,
        Some(digest) if *digest == project.digest => ProjectTrust::Trusted,
        Some(_) => ProjectTrust::Changed,
    };
    let applied = if project.standing == ProjectTrust::Trusted {
        narrow::trusted(&proposal.leaves, narrowed, base)
    } else {
        narrowed
    };
    Ok((project, applied))
}

/// Returns the values of the file that narrow `base`, whether or not the user trusts the file.
///
/// # Errors
///
/// Returns all problems of the file.
pub(super) fn apply_untrusted(
    proposal: &Proposal,
    base: &Config,
    folders: &Folders,
) -> Result<(Project, Vec<Leaf>), Vec<Problem>> {
    let Proposal { path, text, leaves } = proposal;
    // The file's path is in the working directory, so it has a parent.
    let bases = Bases { folders, working_directory: path.parent().unwrap_or(path) };
    let narrowed = narrow(leaves, base, bases, Narrower::Project)?;
    let project = Project {
        path: path.clone(),
        digest: digest(text, &narrow::destinations(leaves, bases)),
        standing: ProjectTrust::Narrows,
        widening: narrowed.ignored,
    };
    Ok((project, narrowed.leaves))
}

/// Returns the digest of a project's file and of `destinations`, the real paths of the directories
/// that the file grants.
fn digest(text: &str, destinations: &[PathBuf]) -> String {
    let mut digest = Sha256::new_with_prefix(text);
    for destination in destinations {
        // Paths and TOML can't contain a NUL, so the NUL shows where each path begins.
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
