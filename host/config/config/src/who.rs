//! Who calls a server, and the name of this caller's folder.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The bytes of the digest that name a principal's folder. A longer name wouldn't be safer.
const ID_BYTES: usize = 16;

/// A caller of a server, as its token names it. The local user has no `Who`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Who {
    /// The issuer of the token: the URL of an authorization server, or `toolhold` for a token of
    /// `toolhold token`.
    pub issuer: String,
    /// The name of the caller at its issuer.
    pub subject: String,
    /// The groups that the token names.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The program that the token was issued to.
    #[serde(default)]
    pub client: Option<String>,
    /// The ID of the token, if `toolhold token` made it.
    #[serde(default)]
    pub token: Option<String>,
}

impl Who {
    /// Returns the name of the principal's folder. Groups, client and token don't change it.
    pub fn id(&self) -> PrincipalId {
        // An issuer is a value of the configuration and contains no NUL, so that two principals
        // never have the same text.
        let digest = Sha256::new()
            .chain_update(&self.issuer)
            .chain_update([0])
            .chain_update(&self.subject)
            .finalize();
        PrincipalId(digest[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the principal's unique name, for its sessions. It includes the issuer, because two
    /// issuers may use the same subject.
    pub fn name(&self) -> String {
        serde_json::json!([self.issuer, self.subject]).to_string()
    }
}

/// The name of a principal's folder: 32 hex digits, so that no text of a caller is in a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrincipalId(String);

impl PrincipalId {
    /// Returns the 32 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(issuer: &str, subject: &str) -> Who {
        Who {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            groups: Vec::new(),
            client: None,
            token: None,
        }
    }

    #[test]
    fn issuer_and_subject_alone_make_the_id() {
        let anna = who("https://a.example.org", "anna");
        let with_groups =
            Who { groups: vec!["dev".into()], client: Some("app".into()), ..anna.clone() };
        assert_eq!(anna.id(), with_groups.id());
        let others = [
            who("https://a.example.org", "ben"),
            who("https://b.example.org", "anna"),
            who("https://a.example.organ", "na"),
        ];
        for other in others {
            assert_ne!(anna.id(), other.id(), "{other:?}");
        }
    }

    #[test]
    fn no_text_of_a_caller_is_in_a_path() {
        for subject in ["", "..", "../../etc", "a/b", "\0", "ünï", &"x".repeat(10_000)] {
            let id = who("https://a.example.org", subject).id();
            let is_hex = id.as_str().bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(id.as_str().len() == 32 && is_hex, "{id}");
        }
    }
}
