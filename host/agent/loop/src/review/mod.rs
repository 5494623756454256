//! Reviews calls before they run. A configured model judges whether a call follows the operator's
//! policies. The host decides when to ask, how long to wait, and what a missing answer means.
//!
//! The agent that writes a call may be misled, so the texts of the call are hostile. They are
//! truncated, redacted, and fenced so that they can't end the fence. Only two words of the answer
//! have a meaning.

mod answer;
mod findings;
mod parameters;
mod reviewer;
mod turn;

pub use findings::findings;
pub use reviewer::ModelReviewer;
