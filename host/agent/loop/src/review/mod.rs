//! Judges calls before they run: a model of the configuration is asked whether a call keeps to the
//! operator's policies. The host says when, how long, and what a missing answer means.
//!
//! A call is written by an agent that may have been misled, so its texts are hostile: they are
//! bounded, redacted, and put between fences that they can't close. Of the answer, two words count.

mod answer;
mod findings;
mod parameters;
mod reviewer;
mod turn;

pub use findings::findings;
pub use reviewer::ModelReviewer;
