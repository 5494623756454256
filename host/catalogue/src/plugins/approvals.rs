//! The approved versions of plugins. An approval belongs to a name and a digest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use berth_contract::HostError;
use berth_contract::text::shell_word;
use berth_private::PrivateFolder;
use berth_runtime::{Candidate, PluginInfo};
use serde::{Deserialize, Serialize};

use berth_config::Folders;
use berth_private::state;

/// The file in the data folder.
const FILE: &str = "plugins.json";

/// The last approved version of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovedPlugin {
    /// SHA-256 of the component.
    pub digest: String,
    /// The version in its manifest.
    pub version: String,
}

/// The approvals of a user. A copy of each approved component is kept, so that it can continue to
/// serve when its file is replaced. The functions block.
#[derive(Clone, Debug)]
pub struct Approvals {
    data: PathBuf,
}

type All = BTreeMap<String, ApprovedPlugin>;

impl Approvals {
    /// The approvals in the data folder.
    pub fn open(folders: &Folders) -> Self {
        Self { data: folders.data.clone() }
    }

    /// The approved version of every plugin, by name.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the file can't be read, or if others can use its folder.
    pub fn all(&self) -> Result<BTreeMap<String, ApprovedPlugin>, HostError> {
        state::read(&self.data, FILE)
    }

    /// Approves exactly this component for its name. This replaces the previous approval.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the approval can't be stored.
    pub fn approve(&self, candidate: &Candidate) -> Result<(), HostError> {
        let PluginInfo { manifest, digest, .. } = &**candidate.info();
        let approved = ApprovedPlugin { digest: digest.clone(), version: manifest.version.clone() };
        let bytes = candidate.bytes().ok_or_else(|| HostError::Load {
            plugin: manifest.name.clone(),
            reason: "its file wasn't read, so it can't be approved".to_owned(),
        })?;
        state::update(&self.data, FILE, |all: &mut All| {
            // The component comes first, so that each approval has its component.
            let failed = HostError::io(format!("storing {}", self.path().display()));
            let folder = PrivateFolder::make(&self.path());
            let folder = folder
                .and_then(|folder| folder.put(&file_name(digest), bytes).map(|()| folder))
                .map_err(failed)?;
            all.insert(manifest.name.clone(), approved);
            remove_unapproved(&folder, all);
            Ok(())
        })
    }

    /// The stored copy of the approved component. `None` if the copy isn't the approved component
    /// any more.
    ///
    /// # Errors
    ///
    /// [`HostError`] if it can't be read.
    pub fn component(
        &self,
        name: &str,
        approved: &ApprovedPlugin,
    ) -> Result<Option<Candidate>, HostError> {
        let file_name = file_name(&approved.digest);
        let path = self.path().join(&file_name);
        let file = PrivateFolder::open(&self.path()).and_then(|folder| folder.file(&file_name));
        let candidate =
            Candidate::opened(file.map_err(HostError::io(path.display().to_string()))?, &path)?
                .under(name);
        let info = candidate.info();
        Ok((info.digest == approved.digest && info.manifest.name == name).then_some(candidate))
    }

    fn path(&self) -> PathBuf {
        self.data.join("approved")
    }
}

/// Removes components without an approval. Errors are ignored, since such a file only uses space.
fn remove_unapproved(folder: &PrivateFolder, all: &All) {
    for name in folder.names(usize::MAX).unwrap_or_default() {
        if !all.values().any(|approved| file_name(&approved.digest) == name) {
            let _ = folder.remove(&name);
        }
    }
}

fn file_name(digest: &str) -> String {
    format!("{digest}.wasm")
}

/// Why a component without an approval is held back, and what to do.
pub(super) fn hold_reason(
    name: &str,
    info: &PluginInfo,
    approved: Option<&ApprovedPlugin>,
) -> String {
    let version = &info.manifest.version;
    let what = match approved {
        None => format!("version {version} was never approved"),
        Some(ApprovedPlugin { version: old, .. }) if old == version => {
            format!("it changed, but its version is still {version}")
        }
        Some(ApprovedPlugin { version: old, .. }) if is_older(version, old) => {
            format!(
                "version {version} isn't approved and is a downgrade from the approved version {old}"
            )
        }
        Some(ApprovedPlugin { version: old, .. }) => {
            format!("version {version} isn't approved; the approved version is {old}")
        }
    };
    let name = shell_word(name);
    format!(
        "{what}; inspect it with `berth plugin inspect {name}`, then run `berth plugin approve {name}`"
    )
}

/// Whether one version is older than another, compared number by number. False if one of them isn't
/// made of numbers.
fn is_older(version: &str, than: &str) -> bool {
    let numbers = |version: &str| -> Option<Vec<u64>> {
        let plain = version.split(['-', '+']).next().unwrap_or_default();
        plain.split('.').map(|part| part.parse().ok()).collect()
    };
    numbers(version).zip(numbers(than)).is_some_and(|(version, than)| version < than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_numbers() {
        for (version, than, older) in [
            ("1.9.0", "1.10.0", true),
            ("1.10.0", "1.9.0", false),
            ("1.0", "1.0", false),
            ("2-rc1", "2", false),
            ("a", "1", false),
        ] {
            assert_eq!(is_older(version, than), older, "{version} {than}");
        }
    }
}
