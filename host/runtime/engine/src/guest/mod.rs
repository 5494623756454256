//! The host's side of an instance: the WASI base, the functions for every plugin, the capabilities,
//! the conversions of the contract, and the state of the instance's call.

pub(crate) mod bindings;
pub mod capability;
pub(crate) mod contract;
pub(crate) mod convert;
mod host_functions;
pub(crate) mod linking;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use toolhold_compiler::StoreLimiter;
use toolhold_component::PluginConfig;
use toolhold_contract::{CallId, CallerSource, Content, Events, NoEvents};
use toolhold_policy::{CommandLine, OwnTable};
use wasmtime::component::{HasData, Resource, ResourceTable};
use wasmtime_wasi::p2::bindings::cli::{stderr, stdout};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{DynOutputStream, DynPollable};
use wasmtime_wasi::{
    Deterministic, HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder, WasiCtxView,
    WasiView,
};

use crate::limits::{Limits, store_bounds};
use crate::timing::CallWatch;
use crate::wasi::{Capture, Descriptor, Files, FilesView};
use capability::{CallCapabilities, CallFacts, PluginGrants};

/// The host's state of one instance and its call. The store always drops this state with itself.
pub(crate) struct CallState {
    wasi: WasiCtx,
    /// The guest's working directory.
    directory: Option<String>,
    table: ResourceTable,
    /// The output streams in the table, by their handles.
    printing: BTreeMap<u32, Capture>,
    pub(crate) memory: StoreLimiter,
    pub(crate) files: Files,
    /// The capabilities of the call, made from the grants of its plugin.
    pub(crate) capabilities: CallCapabilities,
    pub(crate) call: RunningCall,
}

/// The call as `toolhold:host/call`, `log` and `search` see it.
pub(crate) struct RunningCall {
    pub(crate) id: CallId,
    /// The caller of the call. `None` if the instance has no call yet.
    pub(crate) caller: Option<Arc<dyn CallerSource>>,
    /// The plugin's name, for the log.
    pub(crate) plugin: Arc<str>,
    /// The table that grants, for remedies.
    pub(crate) table: Arc<OwnTable>,
    /// The plugin's settings.
    pub(crate) config: Arc<PluginConfig>,
    pub(crate) watch: Arc<CallWatch>,
    pub(crate) events: Arc<dyn Events>,
    /// The emitted parts, which become the answer of a stopped call. The waiting task shares them,
    /// since a stopped call doesn't return its store.
    pub(crate) emitted: Emitted,
    /// Whether the guest's clocks are stopped.
    pub(crate) still: bool,
    /// The number of bytes that the call may still emit.
    pub(crate) emit_budget: usize,
    /// Whether a part was dropped. The host then drops all later parts.
    pub(crate) emitted_all: bool,
    pub(crate) log_budget: usize,
    /// The current second, and the number of progress messages in this second.
    pub(crate) progress: (Duration, u32),
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
}

/// The emitted parts of an answer.
pub(crate) type Emitted = Arc<Mutex<Vec<Content>>>;

/// Takes the parts out of the shared list.
pub(crate) fn take_emitted(emitted: &Emitted) -> Vec<Content> {
    std::mem::take(&mut *emitted.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Most log messages of a component during its instantiation, before it has a call.
const IDLE_LOG_LINES: usize = 20;

impl CallState {
    /// Makes the state of an instance without a call. `directory`: the guest's working directory.
    ///
    /// A component may run code during its instantiation, long before a call. This code has no more
    /// rights than the weakest call: its events are dropped, and `files` should be read-only. A
    /// call gets its own files later.
    pub(crate) fn idle(
        plugin: &Arc<str>,
        policy: &PluginGrants,
        limits: &Limits,
        files: Files,
        directory: Option<&str>,
        watch: Arc<CallWatch>,
    ) -> Self {
        static NO_CALL: LazyLock<CallId> = LazyLock::new(|| CallId("none".into()));
        let stdout = Capture::new(limits.stdio);
        let stderr = Capture::new(limits.stdio);
        let wasi = base_context(directory).build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        Self {
            wasi,
            directory: directory.map(str::to_owned),
            table,
            printing: BTreeMap::new(),
            memory: StoreLimiter::new(store_bounds(limits.memory)),
            files,
            capabilities: CallCapabilities::default(),
            call: RunningCall {
                id: NO_CALL.clone(),
                caller: None,
                plugin: Arc::clone(plugin),
                table: Arc::clone(&policy.table),
                config: Arc::clone(&policy.config),
                watch,
                events: Arc::new(NoEvents),
                emitted: Emitted::default(),
                still: false,
                emit_budget: 0,
                emitted_all: false,
                log_budget: IDLE_LOG_LINES,
                progress: (Duration::ZERO, 0),
                stdout,
                stderr,
            },
        }
    }

    /// Stops all clocks and makes random numbers constant. The offer of a component then depends
    /// only on its bytes and its settings, so one approval is enough.
    pub(crate) fn stand_still(&mut self) {
        let mut wasi = base_context(None);
        wasi.wall_clock(StoppedClock)
            .monotonic_clock(StoppedClock)
            .secure_random(fixed_random())
            .insecure_random(fixed_random())
            .insecure_random_seed(43);
        self.wasi = wasi.build();
        self.call.still = true;
    }

    /// Gives the instance a call. The instance keeps its handles and its memory. The limits of the
    /// call include the memory, handles and printed bytes that the instance has already used.
    pub(crate) fn begin(
        &mut self,
        facts: &CallFacts<'_>,
        files: Files,
        watch: Arc<CallWatch>,
        emitted: Emitted,
    ) {
        let earlier_files = std::mem::replace(&mut self.files, files);
        self.files.keep_denials_of(earlier_files);
        self.capabilities = CallCapabilities::begin(facts);

        let limits = &facts.grants.limits;
        let call = &mut self.call;
        call.id = facts.call.id.clone();
        call.caller = facts.call.caller_info.clone();
        call.watch = watch;
        call.events = Arc::clone(&facts.call.events);
        call.emitted = emitted;
        call.emit_budget = limits.result;
        call.emitted_all = false;
        call.log_budget = limits.log_lines;
        call.progress = (Duration::ZERO, 0);
    }

    /// Gives the call's command its arguments and its standard input. At most `limit` bytes of its
    /// standard output are stored. The environment is empty.
    pub(crate) fn begin_command(&mut self, line: CommandLine, limit: usize) {
        let CommandLine { words, stdin } = line;
        self.call.stdout = Capture::new(limit);
        let mut wasi = base_context(self.directory.as_deref());
        wasi.arg(&*self.call.plugin).args(&words).stdin(MemoryInputPipe::new(stdin));
        self.wasi = wasi.build();
    }

    /// Ends the call before its answer: closes all files and stops all events. The housekeeper
    /// drops the rest of the instance later.
    pub(crate) fn end(&mut self) {
        self.table = ResourceTable::new();
        self.revoke_call();
    }

    /// Ends the call, and prepares the instance for another one. Two kinds of handles stay open:
    /// the granted directories, as names, and the streams that print. The standard libraries of
    /// most languages get these handles only once.
    ///
    /// Returns `false` if the guest has other open handles, so that the instance can't serve
    /// another call.
    pub(crate) fn end_and_stay(&mut self) -> bool {
        let handles = self.table.iter_mut().count();
        let directories = self.table.iter_mut().filter(|entry| is_granted(&**entry)).count();
        // Some libraries ask for the granted directories again and again. Each request opens them
        // again.
        let opened_too_often = directories > 2 * self.files.roots();

        let mut printing = 0;
        for (handle, capture) in &self.printing {
            let stream = Resource::<DynOutputStream>::new_borrow(*handle);
            let Ok(output) = self.table.get_mut(&stream) else { continue };
            // The guest may have dropped that stream and opened another one.
            *output = Box::new(capture.clone());
            let children = self.table.iter_children(&stream);
            let waits = children.into_iter().flatten().filter(|child| child.is::<DynPollable>());
            printing += 1 + waits.count();
        }
        let left_open = handles - directories > printing;

        self.revoke_call();
        self.call.stdout.clear();
        self.call.stderr.clear();
        !opened_too_often && !left_open
    }

    /// Drops all that the call was given.
    fn revoke_call(&mut self) {
        self.files = Files::new(None, 0);
        self.capabilities = CallCapabilities::default();
        self.call.events = Arc::new(NoEvents);
        self.call.caller = None;
    }

    /// Opens a stream that prints.
    fn print_to(&mut self, capture: Capture) -> wasmtime::Result<Resource<DynOutputStream>> {
        let stream: DynOutputStream = Box::new(capture.clone());
        let handle = self.table.push(stream)?;
        self.printing.insert(handle.rep(), capture);
        Ok(handle)
    }

    pub(crate) fn table(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    /// Borrows the capabilities and the table at the same time.
    pub(crate) fn capabilities_and_table(&mut self) -> (&mut CallCapabilities, &mut ResourceTable) {
        (&mut self.capabilities, &mut self.table)
    }

    pub(crate) fn files_view(&mut self) -> FilesView<'_> {
        FilesView { files: &mut self.files, table: &mut self.table, watch: &self.call.watch }
    }
}

fn fixed_random() -> Deterministic {
    Deterministic::new(vec![7, 19, 101, 43])
}

/// Checks whether an entry of the table is a granted directory.
fn is_granted(entry: &(dyn Any + Send)) -> bool {
    entry.downcast_ref::<Descriptor>().is_some_and(Descriptor::is_granted)
}

/// Makes the context of every instance. The builder's defaults are no environment, no arguments and
/// no sockets.
fn base_context(directory: Option<&str>) -> WasiCtxBuilder {
    let mut wasi = WasiCtxBuilder::new();
    wasi.max_random_size(1 << 20);
    if let Some(directory) = directory {
        wasi.initial_cwd(directory);
    }
    wasi
}

/// A clock that never advances.
struct StoppedClock;

impl HostWallClock for StoppedClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for StoppedClock {
    fn resolution(&self) -> u64 {
        1
    }

    /// Returns a time that isn't zero. The runtime of Go treats zero as a broken clock, and ends
    /// the program.
    fn now(&self) -> u64 {
        1
    }
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl stdout::Host for CallState {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.print_to(self.call.stdout.clone())
    }
}

impl stderr::Host for CallState {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.print_to(self.call.stderr.clone())
    }
}

/// Tells the linker that the host data is `&mut CallState`.
pub(crate) struct HasState;

impl HasData for HasState {
    type Data<'a> = &'a mut CallState;
}
