//! `[tools.memory]`: what the built-in memory may keep.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// What the built-in memory keeps of what models save.
    pub struct Memory {
        /// Whether there are memory tools. `false` takes them out of the catalogue. What was saved
        /// stays.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// MiB of all entries together.
        pub index_mib: Bounded<1, 65_536> = Bounded::clamped(64), Narrowing::Smaller;
        /// Entries of all users, projects and sessions together.
        pub index_documents: Bounded<1, 10_000_000> = Bounded::clamped(100_000), Narrowing::Smaller;
        /// The table of `[providers]` whose model makes vectors of entries and of queries, so that
        /// entries are also found by what they mean. It needs an `/embeddings`, and gets what is
        /// saved and searched, without what looks like a secret. If empty, nothing is sent.
        pub embeddings: String, Narrowing::OnlyEmpty;
    }
}
