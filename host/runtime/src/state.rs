//! What a store holds for one call.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use berth_contract::{CallId, CancellationToken, Content, Events};
use wasmtime::component::{HasData, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::clock::Meter;
use crate::limits::{Limits, MemoryLimiter};
use crate::output::Capture;
use crate::wasi::{Files, FilesView};

/// The host side of one call. Dropped with its store, whatever happened.
pub(crate) struct CallState {
    wasi: WasiCtx,
    table: ResourceTable,
    pub(crate) memory: MemoryLimiter,
    pub(crate) files: Files,
    pub(crate) call: RunningCall,
}

/// The call as `berth:host/call`, `log` and `search` see it.
pub(crate) struct RunningCall {
    pub(crate) id: CallId,
    /// The plugin's name, for the log.
    pub(crate) plugin: Arc<str>,
    /// When the tool's own time is over.
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancellationToken,
    pub(crate) events: Arc<dyn Events>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) cpu_limit: Duration,
    /// What the tool emitted, the answer should it be cut off. Shared with whoever waits for the call, since a call that is stopped
    /// from outside takes its store along.
    pub(crate) emitted: Emitted,
    /// Bytes that may still be emitted.
    pub(crate) emit_budget: usize,
    pub(crate) log_budget: usize,
    /// The second that is running and the progress messages passed on in it.
    pub(crate) progress: (Duration, u32),
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
}

/// Parts of an answer that came early.
pub(crate) type Emitted = Arc<Mutex<Vec<Content>>>;

/// What one call brings along.
pub(crate) struct Setup<'a> {
    pub(crate) id: CallId,
    pub(crate) plugin: Arc<str>,
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancellationToken,
    pub(crate) events: Arc<dyn Events>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) emitted: Emitted,
    pub(crate) files: Files,
    /// The working directory that the guest is told.
    pub(crate) directory: Option<&'a str>,
    pub(crate) limits: &'a Limits,
}

impl CallState {
    pub(crate) fn new(setup: Setup<'_>) -> Self {
        let limits = setup.limits;
        let (stdout, stderr) = (Capture::new(limits.stdio), Capture::new(limits.stdio));
        let mut wasi = WasiCtxBuilder::new();
        // No environment, no arguments, no sockets: the builder's default, and nothing here adds any.
        wasi.stdout(stdout.clone()).stderr(stderr.clone()).max_random_size(1 << 20);
        if let Some(directory) = setup.directory {
            wasi.initial_cwd(directory);
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        Self {
            wasi: wasi.build(),
            table,
            memory: MemoryLimiter::new(limits.memory),
            files: setup.files,
            call: RunningCall {
                id: setup.id,
                plugin: setup.plugin,
                deadline: setup.deadline,
                cancel: setup.cancel,
                events: setup.events,
                meter: setup.meter,
                cpu_limit: limits.cpu,
                emitted: setup.emitted,
                emit_budget: limits.result,
                log_budget: limits.log_lines,
                progress: (Duration::ZERO, 0),
                stdout,
                stderr,
            },
        }
    }

    pub(crate) fn files_view(&mut self) -> FilesView<'_> {
        FilesView { files: &mut self.files, table: &mut self.table }
    }
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// Names `&mut CallState` to the linker.
pub(crate) struct HasState;

impl HasData for HasState {
    type Data<'a> = &'a mut CallState;
}
