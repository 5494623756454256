//! The callers that find an entry of the memory again, by the beginning of its key.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::Caller;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Scope {
    // No doc comments: so the schema stays a plain list of names.
    User,
    Project,
    Session,
}

impl Scope {
    /// All of them, the nearest first.
    pub(crate) const ALL: [Self; 3] = [Self::Session, Self::Project, Self::User];

    /// The name in arguments and answers.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Session => "session",
        }
    }

    /// The beginning of the keys of its entries. Each key contains the user, so that two principals
    /// share nothing.
    pub(crate) fn prefix(self, caller: &Caller) -> String {
        let Caller { user, project, session, .. } = caller;
        match self {
            Self::User => format!("user/{user}/"),
            Self::Project => format!("project/{user}/{project}/"),
            Self::Session => format!("session/{user}/{session}/"),
        }
    }
}

/// The scopes to look into.
pub(crate) fn scopes(asked: Option<Scope>) -> Vec<Scope> {
    asked.map_or_else(|| Scope::ALL.to_vec(), |scope| vec![scope])
}
