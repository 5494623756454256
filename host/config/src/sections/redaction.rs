//! `[tools.redaction]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::{Rule, section};

section! {
    /// Secrets in answers: each leaves a mark instead, `[REDACTED:github-token ghp_…]`.
    #[derive(Eq)]
    pub struct Redaction {
        /// Whether secrets are taken out at all.
        pub enabled: bool = true, Rule::OnlyTrue;
        /// Tools whose answers may hold secrets, by their names or aliases.
        pub exempt: Vec<String>, Rule::Ignored;
    }
}
