//! `[tools.memory]`: the size of the built-in memory, and the model that makes its vectors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// The built-in memory, in which models save entries.
    pub struct Memory {
        /// Whether the memory tools exist. `false` removes them from the catalogue. Saved entries
        /// aren't removed.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// MiB of all entries of all users, projects and sessions together. 64 MiB can store
        /// 100,000 entries, and other sizes store a proportional number.
        pub index_mib: Bounded<1, 65_536> = Bounded::clamped(64), Narrowing::Smaller;
        /// The table of `[providers]` whose model makes vectors of entries and of queries, so that
        /// entries are also found by their meaning. The provider needs an `/embeddings` endpoint,
        /// and gets the entries and queries without text that looks like a secret. If empty,
        /// nothing is sent.
        pub embeddings: String, Narrowing::OnlyEmpty;
    }
}

impl Memory {
    /// Returns the maximum number of entries of all users, projects and sessions together.
    pub fn index_documents(&self) -> u64 {
        self.index_mib.get() * 100_000 / 64
    }
}
