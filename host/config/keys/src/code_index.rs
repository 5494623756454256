//! `[index]`: the content of the index of `search_code`, and the database that searches its
//! vectors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{Bounded, ServerSecret};

section! {
    /// The index of `search_code`: the definitions and words in your projects' code. The index is
    /// made from files that tools may read, and is stored in Toolhold's data folder.
    #[derive(Eq)]
    pub struct CodeIndex {
        /// Whether `search_code` and its index exist. `false` removes the tool from the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Size limit of the index of all projects together, in MiB. The project with the oldest
        /// last search is removed first. On disk, the index takes up to three times as much space.
        pub max_mib: Bounded<1, 65_536> = Bounded::clamped(512), Narrowing::Ignored;
        /// The maximum number of files that are indexed in one project.
        pub max_files: Bounded<1, 1_000_000> = Bounded::clamped(50_000), Narrowing::Smaller;
        /// Seconds that one call may spend on updating the index, in time and in processor time
        /// beyond `cpu_secs` of `[tools.limits]`. The next call continues the update.
        pub update_secs: Bounded<1, 3600> = Bounded::clamped(20), Narrowing::Smaller;
        /// The table of `[providers]` whose model makes vectors of the code and of queries, so that
        /// `search_code` also finds code with a similar meaning. The provider needs an
        /// `/embeddings` endpoint, and gets your projects' code without text that looks like a
        /// secret. If empty, nothing is sent.
        pub embeddings: String, Narrowing::OnlyEmpty;
        /// The database that compares the vectors.
        pub vector_backend: VectorBackend, Narrowing::Stricter(&["embedded", "qdrant"]);
        /// The server of `vector_backend = "qdrant"`.
        pub qdrant: Qdrant, Narrowing::Table(Qdrant::RULES);
    }
}

/// The database that compares vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum VectorBackend {
    /// Toolhold's index, which compares all of its vectors.
    #[default]
    Embedded,
    /// The server of `[index.qdrant]`, which gets the vectors without texts and paths.
    Qdrant,
}

section! {
    /// A Qdrant server, used by its REST interface.
    #[derive(Eq)]
    pub struct Qdrant {
        /// The server's address: https, or http on this machine.
        #[schemars(extend("examples" = ["http://localhost:6333"]))]
        pub url: String, Narrowing::Ignored;
        /// The prefix of the collections' names, which continue with `-` and the length of a
        /// vector. Missing collections are created.
        pub collection: String = "toolhold-code".to_owned(), Narrowing::Ignored;
        /// The server's API key, as a secret with a name of your choice. Without `header`, the key
        /// is sent in `api-key`.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
    }
}
