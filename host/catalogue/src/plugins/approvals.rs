//! Which versions of plugins were approved: a grant belongs to a name and a digest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use berth_contract::HostError;
use berth_runtime::{Candidate, PluginInfo};
use berth_system::private::PrivateFolder;
use serde::{Deserialize, Serialize};

use berth_config::Folders;
use berth_system::state;

/// The file in the data folder.
const FILE: &str = "plugins.json";

/// The version of a plugin that was approved last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovedPlugin {
    /// SHA-256 of the component.
    pub digest: String,
    /// The version that its manifest told.
    pub version: String,
}

/// The approvals of a user. Each component that was approved is kept as well, so that it can go on
/// serving when another one takes its file's place. Its functions block.
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
    /// [`HostError`] where the file can't be read, or its folder is not the user's alone.
    pub fn all(&self) -> Result<BTreeMap<String, ApprovedPlugin>, HostError> {
        state::read(&self.data, FILE)
    }

    /// Approves this very component for its name, in place of the one that was approved before.
    ///
    /// # Errors
    ///
    /// [`HostError`] where it can't be kept.
    pub fn approve(&self, candidate: &Candidate) -> Result<(), HostError> {
        let PluginInfo { manifest, digest, .. } = &**candidate.info();
        let approved = ApprovedPlugin { digest: digest.clone(), version: manifest.version.clone() };
        state::update(&self.data, FILE, |all: &mut All| {
            // First the component, so that an approval never stands for one that is not there.
            let failed = HostError::io(format!("keeping {}", self.path().display()));
            let folder = PrivateFolder::make(&self.path());
            let kept = folder
                .and_then(|folder| {
                    folder.put(&file_name(digest), candidate.bytes()).map(|()| folder)
                })
                .map_err(failed)?;
            all.insert(manifest.name.clone(), approved);
            forget_others(&kept, all);
            Ok(())
        })
    }

    /// The component that was approved, from where it is kept. `None` where it is not what was
    /// approved any more.
    ///
    /// # Errors
    ///
    /// [`HostError`] where it can't be read.
    pub fn component(
        &self,
        name: &str,
        approved: &ApprovedPlugin,
    ) -> Result<Option<Candidate>, HostError> {
        let file_name = file_name(&approved.digest);
        let path = self.path().join(&file_name);
        let file = PrivateFolder::open(&self.path()).and_then(|folder| folder.file(&file_name));
        let candidate =
            Candidate::opened(file.map_err(HostError::io(path.display().to_string()))?, &path)?;
        let info = candidate.info();
        Ok((info.digest == approved.digest && info.manifest.name == name).then_some(candidate))
    }

    fn path(&self) -> PathBuf {
        self.data.join("approved")
    }
}

/// Removes components that no approval stands for. What can't be removed only takes room.
fn forget_others(kept: &PrivateFolder, all: &All) {
    for name in kept.names(usize::MAX).unwrap_or_default() {
        if !all.values().any(|approved| file_name(&approved.digest) == name) {
            let _ = kept.remove(&name);
        }
    }
}

fn file_name(digest: &str) -> String {
    format!("{digest}.wasm")
}

/// Why a component is held back that was not approved.
pub(super) fn held(name: &str, info: &PluginInfo, approved: Option<&ApprovedPlugin>) -> String {
    let version = &info.manifest.version;
    let what = match approved {
        None => format!("version {version} was never approved"),
        Some(ApprovedPlugin { version: old, .. }) if old == version => {
            format!("it changed, and still calls itself version {version}")
        }
        Some(ApprovedPlugin { version: old, .. }) if is_older(version, old) => {
            format!(
                "version {version} was not approved and is older than {old}, which was: a downgrade"
            )
        }
        Some(ApprovedPlugin { version: old, .. }) => {
            format!("version {version} was not approved, {old} was")
        }
    };
    format!(
        "{what}; inspect it with `berth plugin inspect {name}`, then `berth plugin approve {name}`"
    )
}

/// Whether one version comes before another, number by number. What are no numbers makes no order.
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
    fn older_versions_are_told_by_their_numbers() {
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
