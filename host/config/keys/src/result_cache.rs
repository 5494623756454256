//! `[tools.result_cache]`: whether answers of tools that only read are used again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// The cache of answers in a session. An answer of a tool that only reads is used again until
    /// its sources change.
    #[derive(Copy, Eq)]
    pub struct ResultCache {
        /// Whether answers are cached.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Seconds after which a cached answer expires. 0 means that answers expire only when their
        /// sources change.
        pub ttl_secs: Bounded<0, 31_536_000> = Bounded::clamped(300), Narrowing::SmallerOrUnbounded;
        /// MiB of memory for the cached answers of one session and for the data about their
        /// sources. At most 512 answers are cached.
        pub max_mib: Bounded<1, 4096> = Bounded::clamped(32), Narrowing::Smaller;
    }
}
