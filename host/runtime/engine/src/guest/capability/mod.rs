//! The capabilities of plugins. Each capability has a file or folder with its grant, its state in a
//! call, and its host functions.
//!
//! Each capability is one line in the list below. The list generates the grants of a plugin, the
//! state of a call and the linked functions. The common properties, such as names and keys, are in
//! [`Capability`]. Files aren't in the list: `search` and `process` use the grant for files too,
//! and the functions of WASI are always linked.

pub mod embeddings;
mod grants;
pub(crate) mod http;
pub mod index;
mod kept;
mod parts;
pub mod process;
pub mod schedule;
mod search;
pub mod service;
mod store;

use std::sync::Arc;
use std::time::Duration;

use toolhold_compiler::parts::Parts;
use toolhold_component::{Capability, Manifest};
use toolhold_contract::Call;
use toolhold_net::Egress;
use toolhold_store::Store;
use wasmtime::component::Linker;

use crate::Runtime;
use crate::guest::CallState;

pub use grants::PluginGrants;

use embeddings::{Embeddings, EmbeddingsGrant};
use http::Http;
use index::{Index, IndexGrant};
use parts::PartsAccess;
use process::{PluginProcesses, Processes};
use schedule::{ScheduleGrant, Tasks};
use service::{PluginServices, Services};
use store::StoreAccess;

/// A call's share of a capability. The default is an empty share, which an instance has before and
/// after a call, and without a grant.
pub(crate) trait CallCapability: Default {
    /// The operator's grant.
    type Grant;

    /// Makes a call's share from the grant of its plugin.
    fn begin(grant: &Self::Grant, facts: &CallFacts<'_>) -> Self;

    /// Links the functions of the capability. The functions are also linked without a grant, and
    /// then refuse every use.
    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()>;
}

/// The data about a new call for its capabilities.
pub(crate) struct CallFacts<'a> {
    pub(crate) call: &'a Call,
    /// The grants of the call's plugin.
    pub(crate) grants: &'a PluginGrants,
    /// The plugin's pure components, and the engine that runs them.
    pub(crate) parts: &'a Arc<Parts>,
    pub(crate) runtime: &'a Arc<Runtime>,
    /// Whether the call only reads, because the tool promises this or the call is restricted to it.
    pub(crate) only_reads: bool,
}

impl CallFacts<'_> {
    /// Checks whether the granted directories are read-only in the call.
    pub(crate) fn reads_files_only(&self) -> bool {
        self.only_reads || self.grants.read_only
    }
}

macro_rules! capabilities {
    ($($(#[$doc:meta])* $capability:ident $name:ident: $grant:ty => $state:ty;)*) => {
        /// The granted capabilities of a plugin. `None` means that a capability isn't granted.
        #[derive(Clone, Debug, Default)]
        pub struct CapabilityGrants {
            $($(#[$doc])* pub $name: Option<$grant>,)*
        }

        impl CapabilityGrants {
            /// Checks whether a capability is granted. Directories and sessions aren't in these
            /// grants, since no import depends on them.
            pub(crate) fn has(&self, capability: Capability) -> bool {
                match capability {
                    $(Capability::$capability => self.$name.is_some(),)*
                    Capability::Files | Capability::Search | Capability::Session => true,
                }
            }

            /// Removes the grants that a plugin doesn't ask for.
            pub(crate) fn keep_requested(&mut self, manifest: &Manifest) {
                $(if manifest.asks_for(Capability::$capability).is_none() {
                    self.$name = None;
                })*
                // A service is a program.
                if self.process.is_none() {
                    self.service = None;
                }
            }
        }

        /// A call's share of each capability.
        #[derive(Default)]
        pub(crate) struct CallCapabilities {
            $(pub(crate) $name: $state,)*
        }

        impl CallCapabilities {
            /// Makes a call's share of its plugin's grants.
            pub(crate) fn begin(facts: &CallFacts<'_>) -> Self {
                let grants = &facts.grants.capabilities;
                Self {
                    $($name: match &grants.$name {
                        Some(grant) => <$state as CallCapability>::begin(grant, facts),
                        None => <$state>::default(),
                    },)*
                }
            }
        }

        /// Links the functions of all capabilities.
        pub(crate) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
            $(<$state as CallCapability>::link(linker)?;)*
            search::link(linker)
        }
    };
}

capabilities! {
    /// The hosts that the plugin's requests may reach.
    Http http: Arc<Egress> => Http;
    /// The programs that the plugin may start.
    Process process: Arc<PluginProcesses> => Option<Processes>;
    /// The plugin's programs that may outlive a call.
    Service service: Arc<PluginServices> => Option<Services>;
    /// The plugin's stored keys and values.
    Store store: Arc<Store> => Option<StoreAccess>;
    /// The plugin's stored and searchable documents.
    Index index: IndexGrant => Option<Index>;
    /// The model that makes vectors of the plugin's texts.
    Embeddings embeddings: EmbeddingsGrant => Option<Embeddings>;
    /// The processor time of the plugin's parts in one call.
    Parts parts: Duration => Option<PartsAccess>;
    /// Whether the plugin may create scheduled tasks.
    Schedule schedule: ScheduleGrant => Option<Tasks>;
}

/// The models and databases that the program provides for capabilities, and their traits.
/// `toolhold-core` re-exports the whole module.
pub mod providers {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    pub use super::embeddings::EmbeddingModel;
    pub use super::index::{VectorDatabase, VectorPoint, VectorSet};

    /// The models and databases of the program. Some grants do nothing without them.
    #[derive(Clone, Debug, Default)]
    pub struct CapabilityProviders {
        /// The models that make vectors of texts, by the names of their tables in `[providers]`.
        /// `embeddings` of a tool or a plugin names one of them. `toolhold-models` makes these
        /// models from the configuration.
        pub embedding_models: BTreeMap<String, Arc<dyn EmbeddingModel>>,
        /// The database that finds near vectors for `search_code`. `vector_backend` of `[index]`
        /// names it, and `toolhold-models` makes it from the configuration. `None` if the index
        /// compares all vectors itself.
        pub vector_database: Option<Arc<dyn VectorDatabase>>,
    }
}

/// The interfaces of the capabilities, generated from their WIT.
#[allow(missing_docs, unreachable_pub, reason = "generated; the WIT documents it")]
pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: [
            "../../../wit/deps/io",
            "../../../wit/tool",
            "../../../wit/host",
        ],
        inline: "
            package toolhold:runtime;

            world capabilities {
                import toolhold:host/embeddings@0.1.0;
                import toolhold:host/index@0.1.0;
                import toolhold:host/parts@0.1.0;
                import toolhold:host/process@0.1.0;
                import toolhold:host/schedule@0.1.0;
                import toolhold:host/search@0.1.0;
                import toolhold:host/secrets@0.1.0;
                import toolhold:host/service@0.1.0;
                import toolhold:host/store@0.1.0;
            }
        ",
        world: "toolhold:runtime/capabilities",
        // The functions aren't async: a plugin that starts programs runs on a thread that may
        // block.
        imports: {
            "toolhold:host/process": trappable,
            "toolhold:host/secrets": trappable,
            "toolhold:host/service": trappable,
            default: async | trappable,
        },
        with: {
            "toolhold:host/process.child": crate::guest::capability::process::child::Child,
            "toolhold:host/service.connection": crate::guest::capability::service::connection::Connection,
            "toolhold:host/types": crate::guest::bindings::toolhold::host::types,
            "wasi:io/poll": wasmtime_wasi::p2::bindings::io::poll,
        },
    });
}
