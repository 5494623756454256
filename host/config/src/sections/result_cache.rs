//! `[tools.result_cache]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::rule::{Rule, section};

section! {
    /// Answers that serve again in their session: of tools that only read, as long as everything
    /// that they were made of is as it was.
    #[derive(Copy, Eq)]
    pub struct ResultCache {
        /// Whether answers are kept at all.
        pub enabled: bool = true, Rule::OnlyFalse;
        /// Seconds after which an answer is made anew in any case. 0: it is kept for as long as it
        /// is true.
        pub ttl_secs: Bounded<0, 31_536_000> = Bounded::clamped(300), Rule::SmallerOrUnbounded;
        /// MiB of memory for the answers of one session, and for what is remembered of how they
        /// were made.
        pub max_mib: Bounded<1, 4096> = Bounded::clamped(32), Rule::Smaller;
        /// Answers of one session.
        pub max_entries: Bounded<1, 65_536> = Bounded::clamped(512), Rule::Smaller;
    }
}
