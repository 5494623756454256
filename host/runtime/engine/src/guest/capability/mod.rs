//! The capabilities of plugins, each in a file or folder of its own: what the operator grants, what
//! a call has of that, and the host functions that use it.
//!
//! Each capability is one line in the list below. The list makes the grants of a plugin, the state
//! of a call and the linked functions. What is the same for all plugins, such as names and keys, is
//! in [`Capability`]. Files aren't in the list: `search` and `process` use their grant too, and the
//! functions of WASI are always linked.

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

/// A call's share of a capability. The default is an empty share: before a call, after it, and
/// without a grant.
pub(crate) trait CallCapability: Default {
    /// The operator's grant.
    type Grant;

    /// Makes a call's share of its plugin's grant.
    fn begin(grant: &Self::Grant, facts: &CallFacts<'_>) -> Self;

    /// Links the functions that use the capability. They are linked without a grant too, and refuse
    /// every use.
    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()>;
}

/// The facts of a call that begins, for its capabilities.
pub(crate) struct CallFacts<'a> {
    pub(crate) call: &'a Call,
    /// The grants of its plugin.
    pub(crate) grants: &'a PluginGrants,
    /// The pure components that its plugin brings along, and the engine that runs them.
    pub(crate) parts: &'a Arc<Parts>,
    pub(crate) runtime: &'a Arc<Runtime>,
    /// Whether the tool says that it only reads, or the call may do no more.
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
        /// The capabilities that a plugin is granted. `None` means that a capability isn't granted.
        #[derive(Clone, Debug, Default)]
        pub struct CapabilityGrants {
            $($(#[$doc])* pub $name: Option<$grant>,)*
        }

        impl CapabilityGrants {
            /// Checks whether a capability is granted. Directories and sessions aren't part of
            /// these grants, and no import depends on them.
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
    /// The hosts that its requests may reach.
    Http http: Arc<Egress> => Http;
    /// The programs that it may start.
    Process process: Arc<PluginProcesses> => Option<Processes>;
    /// The programs that may outlive a call.
    Service service: Arc<PluginServices> => Option<Services>;
    /// The keys and values that it keeps.
    Store store: Arc<Store> => Option<StoreAccess>;
    /// The documents that it keeps and searches in.
    Index index: IndexGrant => Option<Index>;
    /// The model that makes vectors of its texts.
    Embeddings embeddings: EmbeddingsGrant => Option<Embeddings>;
    /// The processor time that its parts may use in one call.
    Parts parts: Duration => Option<PartsAccess>;
    /// Whether it may make tasks.
    Schedule schedule: ScheduleGrant => Option<Tasks>;
}

/// The models and databases that the program provides for capabilities, and their traits.
/// `toolhold-core` re-exports the whole module.
pub mod providers {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    pub use super::embeddings::EmbeddingModel;
    pub use super::index::{VectorDatabase, VectorPoint, VectorSet};

    /// The models and databases of the program. A grant without them does nothing.
    #[derive(Clone, Debug, Default)]
    pub struct CapabilityProviders {
        /// The models that make vectors of texts, by their tables of `[providers]`: where
        /// `embeddings` of a tool or a plugin names one. `toolhold-models` makes those of the
        /// configuration.
        pub embedding_models: BTreeMap<String, Arc<dyn EmbeddingModel>>,
        /// The database that says which vectors are near, for `search_code`, where
        /// `vector_backend` of `[index]` names one. `toolhold-models` makes that of the
        /// configuration. `None`: the index compares all vectors itself.
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
        // These don't wait: a plugin that starts programs runs on a thread that may block.
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
