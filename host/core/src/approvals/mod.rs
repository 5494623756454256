//! Asking a person, where the gates say so.

mod fingerprint;
mod question;

use berth_contract::{Category, Failure};
use berth_policy::Decision;

pub use fingerprint::Fingerprint;
pub use question::{Approver, Question, Reply, Scope};

use crate::facts::Facts;

/// A yes, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Who said it: `terminal`, `--yes`, `berth approvals`, the name of an MCP client.
    pub by: String,
    /// For how long it holds.
    pub scope: Scope,
}

/// Has a call approved that the gates want a yes for.
///
/// # Errors
///
/// A person said no, or nobody could be asked.
pub(crate) async fn approved(_facts: &Facts, _decision: &Decision, approver: Option<&dyn Approver>) -> Result<Approval, Failure> {
    let _ = approver;
    Err(Failure::new(Category::ConfirmationRequired, "a person has to agree first"))
}
