//! The runtime of plugins: loads WASI components and runs each call in its own sandbox.
//!
//! Only this crate and `toolhold-compiler` use wasmtime. A plugin is loaded once (`load`). Each
//! call gets a fresh store (`run`) or a warm instance (`warm_pool`), which is dropped after the
//! call.

mod clock;
mod code;
mod definition;
mod engine;
mod examine;
mod filter;
mod foreign;
mod guest;
mod housekeeper;
mod known_files;
mod limits;
mod load;
mod offer;
mod outcome;
mod parts;
mod plugin;
mod provider;
mod run;
mod session;
pub mod timing;
mod warm_pool;
pub mod wasi;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolhold_compiler::parts::LazyPartEngine;
use toolhold_contract::HostError;

use crate::timing::Admission;

pub use examine::{EngineExamination, ExaminationError, examine};
pub use guest::capability::{self, PluginGrants};
pub use limits::Limits;
pub use load::Candidate;
pub use parts::parts_of_plugin;
pub use plugin::{Builtin, Origin, Plugin, PluginInfo};
pub use toolhold_compiler::typed::ComponentKind;
pub use toolhold_compiler::{Precompiled, helper_hook, own_helper};
pub use toolhold_component::PluginConfig;
pub use toolhold_component::file::EmbeddedFile;
pub use toolhold_component::{
    Capability, Manifest, Request, RequestedLimits, SchemaCost, object_forms,
};

use crate::engine::Engine;
use crate::session::SessionInstances;
use toolhold_compiler::Compiler;

/// The settings of a runtime.
#[derive(Clone, Debug, Default)]
pub struct RuntimeConfig {
    /// Most calls at a time. 0 means
    /// [`automatic_concurrency`](toolhold_system::machine::automatic_concurrency).
    pub concurrency: usize,
    /// The memory limit of a call in bytes: the largest limit of all plugins.
    pub memory: usize,
    /// The lifetime of a plugin's warm instances after its last call. Zero disables them.
    pub keep_ready: Duration,
    /// The folder for compiled code. If it is `None`, code isn't stored.
    pub cache: Option<PathBuf>,
    /// The program that compiles components. Its `main` must begin with [`helper_hook`]. The
    /// default is this program, if its `main` begins so.
    pub helper: Option<PathBuf>,
}

impl RuntimeConfig {
    /// Returns the number of calls that may run at a time.
    pub fn places(&self) -> usize {
        if self.concurrency == 0 {
            toolhold_system::machine::automatic_concurrency()
        } else {
            self.concurrency
        }
    }
}

/// The engine and everything that plugins share. Plugins keep the runtime alive.
pub struct Runtime {
    engine: Engine,
    compiler: Compiler,
    part_engine: LazyPartEngine,
    admission: Arc<Admission>,
    sessions: Arc<SessionInstances>,
}

impl Runtime {
    /// Starts the engine.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Engine`] if this machine can't run the engine.
    pub fn new(config: RuntimeConfig) -> Result<Arc<Self>, HostError> {
        let concurrency = config.places();
        let helper = config.helper.or_else(own_helper);
        let sessions = Arc::new(SessionInstances::default());
        let engine =
            Engine::new(concurrency, config.memory, config.keep_ready, Arc::clone(&sessions))?;
        Ok(Arc::new(Self {
            engine,
            compiler: Compiler::new(config.cache.as_deref(), helper),
            part_engine: LazyPartEngine::default(),
            admission: Admission::new(concurrency),
            sessions,
        }))
    }
}
