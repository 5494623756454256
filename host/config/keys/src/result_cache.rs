//! `[tools.result_cache]`: whether answers of tools that only read may serve again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// Answers that may serve again in their session: answers of tools that only read, as long as
    /// all their sources stay the same.
    #[derive(Copy, Eq)]
    pub struct ResultCache {
        /// Whether answers are stored at all.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Seconds after which an answer is made anew in any case. 0 means that it may serve for as
        /// long as it is true.
        pub ttl_secs: Bounded<0, 31_536_000> = Bounded::clamped(300), Narrowing::SmallerOrUnbounded;
        /// MiB of memory for the stored answers of one session, at most 512, and for what is known
        /// about how they were made.
        pub max_mib: Bounded<1, 4096> = Bounded::clamped(32), Narrowing::Smaller;
    }
}
