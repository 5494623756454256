//! What a store holds for one call.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::{CallId, Content, Events, NoEvents, PathRules, Report};
use berth_egress::Requests;
use wasmtime::component::{HasData, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::guest::http::Http;
use crate::guest::output::Capture;
use crate::guest::wasi::{Files, FilesView};
use crate::limits::{Limits, MemoryLimiter};
use crate::policy::ProcessPolicy;
use crate::watch::Watch;

/// The host side of one instance and of its one call. Dropped with its store, whatever happened.
pub(crate) struct CallState {
    wasi: WasiCtx,
    table: ResourceTable,
    pub(crate) memory: MemoryLimiter,
    pub(crate) files: Files,
    pub(crate) http: Http,
    pub(crate) call: RunningCall,
}

/// The call as `berth:host/call`, `log` and `search` see it.
pub(crate) struct RunningCall {
    pub(crate) id: CallId,
    /// The plugin's name, for the log.
    pub(crate) plugin: Arc<str>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) events: Arc<dyn Events>,
    /// What the tool emitted, the answer should it be cut off. Shared with whoever waits for the
    /// call, since a call that is stopped from outside takes its store along.
    pub(crate) emitted: Emitted,
    /// Bytes that may still be emitted.
    pub(crate) emit_budget: usize,
    pub(crate) log_budget: usize,
    /// The second that is running and the progress messages passed on in it.
    pub(crate) progress: (Duration, u32),
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    /// What it may start. None: nothing, or nothing any more.
    pub(crate) processes: Option<Processes>,
}

/// What a call may start.
pub(crate) struct Processes {
    pub(crate) policy: Arc<ProcessPolicy>,
    /// Where a process works that isn't told.
    pub(crate) directory: Option<PathBuf>,
    /// The command lines that a shell may run: those that were decided on.
    pub(crate) commands: Vec<String>,
    /// What the rules about calls say of the paths that they reach.
    pub(crate) path_rules: Option<Arc<dyn PathRules>>,
    pub(crate) network: bool,
    /// Whether the tool says that it only reads.
    pub(crate) read_only: bool,
    /// How many run now.
    pub(crate) running: Arc<()>,
    pub(crate) report: Arc<Report>,
}

/// Parts of an answer that came early.
pub(crate) type Emitted = Arc<Mutex<Vec<Content>>>;

/// Takes what is left in a shared list.
pub(crate) fn take_emitted(emitted: &Emitted) -> Vec<Content> {
    std::mem::take(&mut *emitted.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What one call brings along.
pub(crate) struct Setup<'a> {
    pub(crate) id: CallId,
    pub(crate) watch: Arc<Watch>,
    pub(crate) events: Arc<dyn Events>,
    pub(crate) emitted: Emitted,
    pub(crate) files: Files,
    pub(crate) processes: Option<Processes>,
    pub(crate) requests: Option<Requests>,
    pub(crate) limits: &'a Limits,
}

/// Log messages of an instance that no call has begun in: what a component says while it is
/// instantiated.
const IDLE_LOG_LINES: usize = 20;

impl CallState {
    /// What an instance begins with, before it has a call. Code that a component runs while it is
    /// instantiated, which may be long before, has no more authority than the weakest call: nobody
    /// hears what it emits, and of `files`, which should be read-only, the call gets its own.
    /// `directory`: the working directory that the guest is told.
    pub(crate) fn idle(
        plugin: &Arc<str>,
        limits: &Limits,
        files: Files,
        directory: Option<&str>,
        watch: Arc<Watch>,
    ) -> Self {
        static NO_CALL: LazyLock<CallId> = LazyLock::new(|| CallId("none".into()));
        let (stdout, stderr) = (Capture::new(limits.stdio), Capture::new(limits.stdio));
        let mut wasi = WasiCtxBuilder::new();
        // No environment, no arguments, no sockets: the builder's default, and nothing here adds
        // any.
        wasi.stdout(stdout.clone()).stderr(stderr.clone()).max_random_size(1 << 20);
        if let Some(directory) = directory {
            wasi.initial_cwd(directory);
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        Self {
            wasi: wasi.build(),
            table,
            memory: MemoryLimiter::new(limits.memory),
            files,
            http: Http::default(),
            call: RunningCall {
                id: NO_CALL.clone(),
                plugin: Arc::clone(plugin),
                watch,
                events: Arc::new(NoEvents),
                emitted: Emitted::default(),
                emit_budget: 0,
                log_budget: IDLE_LOG_LINES,
                progress: (Duration::ZERO, 0),
                stdout,
                stderr,
                processes: None,
            },
        }
    }

    /// Gives the instance its one call. What it holds already it keeps, and what it has used of the
    /// bounds that hold for an instance: memory, handles, printed bytes.
    pub(crate) fn begin(&mut self, setup: Setup<'_>) {
        self.files = setup.files;
        self.http.begin(setup.requests);
        let call = &mut self.call;
        call.id = setup.id;
        call.watch = setup.watch;
        call.events = setup.events;
        call.emitted = setup.emitted;
        call.emit_budget = setup.limits.result;
        call.log_budget = setup.limits.log_lines;
        call.progress = (Duration::ZERO, 0);
        call.processes = setup.processes;
    }

    /// Ends the call for everybody else, before it answers: no file stays open, nobody is told
    /// anything any more. What is left is the instance, and taking it apart can wait.
    pub(crate) fn end(&mut self) {
        self.table = ResourceTable::new();
        self.files = Files::new(None, 0);
        self.http = Http::default();
        self.call.events = Arc::new(NoEvents);
        self.call.processes = None;
    }

    pub(crate) fn table(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    /// What requests need, both at once.
    pub(crate) fn http_and_table(&mut self) -> (&mut Http, &mut ResourceTable) {
        (&mut self.http, &mut self.table)
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
