//! `[index]`: what `search_code` keeps in its index, and which database searches its vectors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{Bounded, ServerSecret};

section! {
    /// The index of `search_code`: what the code of your projects defines, and its words. It is
    /// derived from files that tools may read, and lies in Toolhold's data folder.
    #[derive(Eq)]
    pub struct CodeIndex {
        /// Whether there is `search_code`, and with it the index. `false` takes the tool out of the
        /// catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// MiB that the index may keep of all projects together. The project that wasn't searched
        /// for longest is removed first. On disk it takes up to three times as much.
        pub max_mib: Bounded<1, 65_536> = Bounded::clamped(512), Narrowing::Ignored;
        /// Files that are indexed of one project.
        pub max_files: Bounded<1, 1_000_000> = Bounded::clamped(50_000), Narrowing::Smaller;
        /// Seconds that one call may spend on bringing the index up to date, in time and in
        /// processor time beyond `cpu_secs` of `[tools.limits]`. What is left is done by the next
        /// call.
        pub update_secs: Bounded<1, 3600> = Bounded::clamped(20), Narrowing::Smaller;
        /// The table of `[providers]` whose model makes vectors of the code and of queries, so that
        /// `search_code` also finds what means the same. It needs an `/embeddings`, and gets the
        /// code of your projects, without what looks like a secret. If empty, nothing is sent.
        pub embeddings: String, Narrowing::OnlyEmpty;
        /// What says which vectors are near that of a query.
        pub vector_backend: VectorBackend, Narrowing::Stricter(&["embedded", "qdrant"]);
        /// The server of `vector_backend = "qdrant"`.
        pub qdrant: Qdrant, Narrowing::Table(Qdrant::RULES);
    }
}

/// What says which vectors are near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum VectorBackend {
    /// The index, which compares all of its vectors.
    #[default]
    Embedded,
    /// The server of `[index.qdrant]`, which gets the vectors too, and no texts and paths.
    Qdrant,
}

section! {
    /// A Qdrant server. It is asked by its REST interface.
    #[derive(Eq)]
    pub struct Qdrant {
        /// Its address: https, or http on this machine.
        #[schemars(extend("examples" = ["http://localhost:6333"]))]
        pub url: String, Narrowing::Ignored;
        /// The beginning of the names of its collections. `-` and the number of numbers of a
        /// vector follow. A collection that is missing is made.
        pub collection: String = "toolhold-code".to_owned(), Narrowing::Ignored;
        /// Its API key, as a secret with a name that you choose. If it names no header, `api-key`
        /// carries it.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
    }
}
