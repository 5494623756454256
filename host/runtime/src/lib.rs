//! The plugin provider: it loads WASI components and runs each call in a sandbox of its own.
//!
//! The only crate that names wasmtime. A plugin is loaded once (`load`), its directories are opened
//! once for its policy, and each call gets a fresh store (`run`), perhaps one that was made shortly
//! before (`warm_pool`), that is dropped with everything in it.

mod admission;
mod cache;
mod clock;
mod compile;
mod compiled;
mod engine;
mod examine;
mod filter;
mod filters;
mod guest;
mod housekeeper;
mod limits;
mod load;
mod manifest;
mod outcome;
mod plugin;
mod policy;
mod provider;
mod run;
mod schema;
mod shape;
mod stop;
mod warm_pool;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_contract::HostError;
use tokio::sync::Semaphore;

pub use compile::{helper_hook, own_helper};
pub use compiled::Precompiled;
pub use examine::{EngineExamination, examine};
pub use limits::Limits;
pub use load::Candidate;
pub use manifest::{Manifest, Request, RequestedLimits};
pub use plugin::{Builtin, Origin, Plugin, PluginInfo};
pub use policy::{CommandAdvisor, FailedCommand, PluginPolicy, ProcessPolicy};
pub use schema::schema_weight;

use crate::admission::Admission;
use crate::compile::Compiler;
use crate::engine::Engine;

/// What a runtime needs to know.
#[derive(Clone, Debug, Default)]
pub struct RuntimeConfig {
    /// Calls that may run at a time. 0:
    /// [`automatic_concurrency`](berth_system::machine::automatic_concurrency).
    pub concurrency: usize,
    /// The most memory that any plugin's calls are granted, in bytes.
    pub memory: usize,
    /// How long a few fresh instances wait for the next call of a plugin that was called. Zero:
    /// none is made before it is asked for.
    pub keep_ready: Duration,
    /// Where compiled code is kept from one run to the next. None: it is not.
    pub cache: Option<PathBuf>,
    /// The program that compiles what is not built in: one whose `main` begins with
    /// [`helper_hook`]. None: this program, where it does.
    pub helper: Option<PathBuf>,
}

impl RuntimeConfig {
    /// Calls that run at a time.
    pub fn places(&self) -> usize {
        if self.concurrency == 0 {
            berth_system::machine::automatic_concurrency()
        } else {
            self.concurrency
        }
    }
}

/// The engine and what all plugins share. It lives as long as any plugin that it loaded.
pub struct Runtime {
    engine: Engine,
    compiler: Compiler,
    admission: Arc<Admission>,
    /// Places for instances of filters that are kept for their sessions.
    filter_places: Arc<Semaphore>,
}

impl Runtime {
    /// Starts the engine.
    ///
    /// # Errors
    ///
    /// [`HostError::Engine`] where this machine can't run it.
    pub fn new(config: RuntimeConfig) -> Result<Arc<Self>, HostError> {
        let concurrency = config.places();
        let helper = config.helper.or_else(compile::own_helper);
        Ok(Arc::new(Self {
            engine: Engine::new(concurrency, config.memory, config.keep_ready)?,
            compiler: Compiler::new(config.cache.as_deref(), helper),
            admission: Admission::new(concurrency),
            filter_places: Arc::new(Semaphore::new(warm_pool::FILTERS)),
        }))
    }
}
