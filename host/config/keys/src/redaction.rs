//! `[tools.redaction]`: how secrets are removed from answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};

section! {
    /// The removal of secrets from answers. Each secret is replaced by a mark:
    /// `[REDACTED:github-token ghp_…]`.
    #[derive(Eq)]
    pub struct Redaction {
        /// Whether secrets are removed.
        pub enabled: bool = true, Narrowing::OnlyTrue;
        /// Tools whose answers may contain secrets, by their names or aliases.
        pub exempt: Vec<String>, Narrowing::Ignored;
    }
}
