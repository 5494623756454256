//! `[tools.overflow]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::rule::{Rule, section};

section! {
    /// Answers that are too long for a model: it gets their beginning and end, and the whole is
    /// kept for `read_overflow`.
    #[derive(Copy, Eq)]
    pub struct Overflow {
        /// Characters of an answer's text, beyond which it is cut. 0: it is not cut.
        pub threshold: Bounded<0, 100_000_000> = Bounded::clamped(30_000), Rule::SmallerOrUnbounded;
        /// Hours that the whole of an answer is kept.
        pub retention_hours: Bounded<1, 8760> = Bounded::clamped(168), Rule::Smaller;
        /// MiB that all kept answers may take together; the oldest go first. Of one answer, at most
        /// 10 MiB are kept.
        pub max_mib: Bounded<1, 1_048_576> = Bounded::clamped(256), Rule::Smaller;
    }
}
