//! The principals that a server knows: who has a folder, and when its token was last used.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use toolhold_contract::HostError;
use toolhold_data_dir::{PrivateFolder, state};

use crate::{Folders, Who};

/// The file in the principal's folder.
const FILE: &str = "who.json";

/// Most folders that are listed.
const MAX_FOLDERS: usize = 10_000;

/// The time for which the groups of a token of an authorization server apply to scheduled tasks.
/// The authorization server may have removed the principal from its groups since.
const MAX_AGE: Duration = Duration::from_hours(24);

/// A principal with a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPrincipal {
    /// The principal, as its last token named it.
    pub who: Who,
    /// The Unix time at which the token was last used.
    pub seen: u64,
}

impl KnownPrincipal {
    /// Stores that a token of the principal is used now. `folders` are the principal's. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if the file can't be written.
    pub fn store(folders: &Folders, who: &Who) -> Result<(), HostError> {
        let known = Self { who: who.clone(), seen: seconds() };
        state::update(&folders.data, FILE, |file: &mut Option<Self>| {
            *file = Some(known);
            Ok(())
        })
    }

    /// Reads the principal whose folders these are. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if the file can't be read.
    pub fn load(folders: &Folders) -> Result<Option<Self>, HostError> {
        state::read(&folders.data, FILE)
    }

    /// Lists the principals with their folders, in no order. Leaves out folders whose principal
    /// can't be read. `folders` are the operator's. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if the folder of all principals can't be read.
    pub fn all(folders: &Folders) -> Result<Vec<(Self, Folders)>, HostError> {
        let path = folders.principals();
        let names = match PrivateFolder::open(&path) {
            Ok(folder) => folder.names(MAX_FOLDERS),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let mut all = Vec::new();
        for name in names.map_err(HostError::io(path.display().to_string()))? {
            let read = state::read::<Option<Self>>(&path.join(&name), FILE);
            // A folder of another name would have the data of another principal.
            if let Ok(Some(known)) = read
                && known.who.id().as_str() == name
            {
                let own = folders.of_principal(&known.who.id());
                all.push((known, own));
            }
        }
        Ok(all)
    }

    /// Checks whether the token was used so recently that its groups still apply.
    pub fn is_recent(&self) -> bool {
        seconds().saturating_sub(self.seen) < MAX_AGE.as_secs()
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn folder_belongs_to_the_principal_of_its_name() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let operator = Folders::inside(root.path());
        assert_eq!(KnownPrincipal::all(&operator).expect("there is none").len(), 0);
        let who = |subject: &str| Who {
            issuer: "https://login.example.org".into(),
            subject: subject.into(),
            groups: vec!["dev".into()],
            client: None,
            token: None,
        };
        let [anna, ben] = ["anna", "ben"].map(who);
        let folders = operator.of_principal(&anna.id());
        assert_eq!(KnownPrincipal::load(&folders).expect("it can be read"), None);
        KnownPrincipal::store(&folders, &anna).expect("it is written");
        let known = KnownPrincipal::load(&folders).expect("it can be read").expect("it is there");
        assert!(known.is_recent() && known.who == anna);
        let old = KnownPrincipal { seen: known.seen - MAX_AGE.as_secs(), ..known.clone() };
        assert!(!old.is_recent());

        // A copy in the folder of another principal doesn't make it the first one's.
        let others = operator.of_principal(&ben.id());
        KnownPrincipal::store(&others, &ben).expect("it is written");
        fs::copy(folders.data.join(FILE), others.data.join(FILE)).expect("it is copied");
        let all = KnownPrincipal::all(&operator).expect("they can be read");
        assert_eq!(all, [(known, folders)]);
    }
}
