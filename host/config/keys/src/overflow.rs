//! `[tools.overflow]`: the length at which an answer is cut, and how long the rest is stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// Answers that are too long for a model. The model gets the beginning and the end. The whole
    /// answer is stored for `read_overflow`.
    #[derive(Copy, Eq)]
    pub struct Overflow {
        /// Characters of an answer's text. A longer text is cut. 0 means that no text is cut.
        pub threshold: Bounded<0, 100_000_000> = Bounded::clamped(30_000), Narrowing::SmallerOrUnbounded;
        /// Hours that a whole answer is stored.
        pub retention_hours: Bounded<1, 8760> = Bounded::clamped(168), Narrowing::InCeiling(&Narrowing::Smaller);
        /// MiB of all stored answers together. The oldest answers are removed first. At most 10 MiB
        /// of one answer are stored. For the outputs of one command, the limit is 64 MiB and half
        /// of `max_mib`.
        pub max_mib: Bounded<1, 1_048_576> = Bounded::clamped(256), Narrowing::InCeiling(&Narrowing::Smaller);
    }
}
