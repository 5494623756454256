//! The capabilities of plugins. Each has a file or folder with its grant, its state in a call, and
//! its host functions.
//!
//! The list in this file generates the grants of a plugin, the state of a call and the linked
//! functions. [`Capability`] has names and keys. Files aren't in the list, because the functions of
//! WASI are always linked, and `search` and `process` use the grant for files too.

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

/// The state of a capability in a call. The default is the state without a grant or without a call.
pub(crate) trait CallCapability: Default {
    type Grant;

    /// Makes the state from the plugin's grant.
    fn begin(grant: &Self::Grant, facts: &CallFacts<'_>) -> Self;

    /// Links the functions. Without a grant, they are linked too, but refuse every use.
    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()>;
}

/// The facts about a call that capabilities need.
pub(crate) struct CallFacts<'a> {
    pub(crate) call: &'a Call,
    pub(crate) grants: &'a PluginGrants,
    /// The plugin's parts.
    pub(crate) parts: &'a Arc<Parts>,
    pub(crate) runtime: &'a Arc<Runtime>,
    /// Whether the call only reads, because its tool promises it or the call is restricted.
    pub(crate) only_reads: bool,
}

impl CallFacts<'_> {
    /// Checks whether the call must not write files.
    pub(crate) fn reads_files_only(&self) -> bool {
        self.only_reads || self.grants.read_only
    }
}

macro_rules! capabilities {
    ($($(#[$doc:meta])* $capability:ident $name:ident: $grant:ty => $state:ty;)*) => {
        /// The granted capabilities of a plugin.
        #[derive(Clone, Debug, Default)]
        pub struct CapabilityGrants {
            $($(#[$doc])* pub $name: Option<$grant>,)*
        }

        impl CapabilityGrants {
            /// Checks whether the grants allow a plugin to import the functions of a capability.
            /// The functions for files, searches and sessions need no grant.
            pub(crate) fn allow_import(&self, capability: Capability) -> bool {
                match capability {
                    $(Capability::$capability => self.$name.is_some(),)*
                    Capability::Files | Capability::Search | Capability::Session => true,
                }
            }

            pub(crate) fn keep_requested(&mut self, manifest: &Manifest) {
                $(if manifest.asks_for(Capability::$capability).is_none() {
                    self.$name = None;
                })*
                // A service is a program, so it needs the grant for programs.
                if self.process.is_none() {
                    self.service = None;
                }
            }
        }

        /// The states of all capabilities in a call.
        #[derive(Default)]
        pub(crate) struct CallCapabilities {
            $(pub(crate) $name: $state,)*
        }

        impl CallCapabilities {
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

/// Models and databases that a program provides for capabilities. `toolhold-core` re-exports this
/// module.
pub mod providers {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    pub use super::embeddings::EmbeddingModel;
    pub use super::index::{VectorDatabase, VectorPoint, VectorSet};

    /// Models and databases of a program. Some grants have no effect without them.
    #[derive(Clone, Debug, Default)]
    pub struct CapabilityProviders {
        /// Models that make vectors, by the names of their tables in `[providers]`. The key
        /// `embeddings` of a plugin names one of them.
        pub embedding_models: BTreeMap<String, Arc<dyn EmbeddingModel>>,
        /// The database that finds near vectors, from `vector_backend` in `[index]`. Without a
        /// database, the index compares all vectors itself.
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
        // These functions aren't async, because a plugin that starts programs runs on a thread that
        // may block.
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
