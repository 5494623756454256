//! A configured model judges whether a call follows the operator's policies, before the call runs.
//! The host decides when to ask, how long to wait, and what happens without an answer.
//!
//! Another party may have misled the agent, so the texts of a call are hostile. These texts are
//! cut, redacted and put between fences. Only the answers `ALLOW` and `DENY` are accepted.

mod answer;
mod findings;
mod parameters;
mod reviewer;
mod turn;

pub use findings::findings;
pub use reviewer::ModelReviewer;
