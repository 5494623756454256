//! `[tools.memory]`: what the built-in memory may keep, and which model makes its vectors.

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
        /// MiB of all entries of all users, projects and sessions together. 64 MiB may have 100,000
        /// entries, and other sizes in proportion.
        pub index_mib: Bounded<1, 65_536> = Bounded::clamped(64), Narrowing::Smaller;
        /// The table of `[providers]` whose model makes vectors of entries and of queries, so that
        /// entries are also found by what they mean. It needs an `/embeddings`, and gets what is
        /// saved and searched, without what looks like a secret. If empty, nothing is sent.
        pub embeddings: String, Narrowing::OnlyEmpty;
    }
}

impl Memory {
    /// Entries of all users, projects and sessions together.
    pub fn index_documents(&self) -> u64 {
        self.index_mib.get() * 100_000 / 64
    }
}
