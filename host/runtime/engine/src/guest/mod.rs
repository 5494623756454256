//! The host's side of an instance: host functions, capabilities, and the state of its call.

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

/// The host's state of an instance and its call.
pub(crate) struct CallState {
    wasi: WasiCtx,
    directory: Option<String>,
    table: ResourceTable,
    /// Streams in the table that print, by handle.
    printing: BTreeMap<u32, Capture>,
    pub(crate) memory: StoreLimiter,
    pub(crate) files: Files,
    /// Made from the grants of the plugin.
    pub(crate) capabilities: CallCapabilities,
    pub(crate) call: RunningCall,
}

/// The state of a call for the host functions of all guests.
pub(crate) struct RunningCall {
    pub(crate) id: CallId,
    /// `None` if the instance has no call yet.
    pub(crate) caller: Option<Arc<dyn CallerSource>>,
    /// The plugin's name, for the log.
    pub(crate) plugin: Arc<str>,
    /// The table with the plugin's grants, which error messages name.
    pub(crate) table: Arc<OwnTable>,
    pub(crate) config: Arc<PluginConfig>,
    pub(crate) watch: Arc<CallWatch>,
    pub(crate) events: Arc<dyn Events>,
    /// The emitted parts. They are shared with the host, because the store of a stopped call is
    /// lost and the parts become its answer.
    pub(crate) emitted: Emitted,
    /// Whether the guest's clocks stand still.
    pub(crate) still: bool,
    /// Bytes that the call may still emit.
    pub(crate) emit_budget: usize,
    /// Whether a part was refused. All later parts are refused too.
    pub(crate) refuses_parts: bool,
    pub(crate) log_budget: usize,
    /// The current second, and its number of progress messages.
    pub(crate) progress: (Duration, u32),
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
}

pub(crate) type Emitted = Arc<Mutex<Vec<Content>>>;

pub(crate) fn take_emitted(emitted: &Emitted) -> Vec<Content> {
    std::mem::take(&mut *emitted.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Most log messages of a guest before it has a call. Further messages are dropped.
const IDLE_LOG_LINES: usize = 20;

/// Most open handles of a granted directory in an instance that serves another call.
const MAX_OPENED_ROOTS: usize = 2;

/// Most random bytes that a guest gets at a time.
const MAX_RANDOM: u64 = 1 << 20;

impl CallState {
    /// Makes the state of an instance without a call.
    ///
    /// Guests may run code while they are instantiated, long before a call. This code must have no
    /// more rights than any call: its events are dropped, and `files` should be read-only.
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
                refuses_parts: false,
                log_budget: IDLE_LOG_LINES,
                progress: (Duration::ZERO, 0),
                stdout,
                stderr,
            },
        }
    }

    /// Stops the clocks and makes random numbers constant. A component's list of tools then depends
    /// only on its bytes and settings, so one approval of the list is enough.
    pub(crate) fn stand_still(&mut self) {
        let no_directory = None;
        let mut wasi = base_context(no_directory);
        wasi.wall_clock(StoppedClock)
            .monotonic_clock(StoppedClock)
            .secure_random(fixed_random())
            .insecure_random(fixed_random())
            .insecure_random_seed(FIXED_SEED);
        self.wasi = wasi.build();
        self.call.still = true;
    }

    /// Prepares the instance for a call. Memory, handles and printed bytes that the instance has
    /// already used count towards the call's limits.
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
        call.refuses_parts = false;
        call.log_budget = limits.log_lines;
        call.progress = (Duration::ZERO, 0);
    }

    /// Sets the arguments and standard input of a command. At most `limit` bytes of its standard
    /// output are stored.
    pub(crate) fn begin_command(&mut self, line: CommandLine, limit: usize) {
        let CommandLine { words, stdin } = line;
        self.call.stdout = Capture::new(limit);
        let mut wasi = base_context(self.directory.as_deref());
        wasi.arg(&*self.call.plugin).args(&words).stdin(MemoryInputPipe::new(stdin));
        self.wasi = wasi.build();
    }

    /// Ends the call: closes files and drops events.
    pub(crate) fn end(&mut self) {
        self.table = ResourceTable::new();
        self.revoke_call();
    }

    /// Ends the call, and prepares the instance for another call. Granted directories and streams
    /// that print stay open, because the standard libraries of most languages open them only once.
    ///
    /// Returns `false` if the guest left other handles open, or opened the granted directories too
    /// often. The instance can't be used again then.
    pub(crate) fn end_and_stay(&mut self) -> bool {
        let handles = self.table.iter_mut().count();
        let directories = self.table.iter_mut().filter(|entry| is_granted(&**entry)).count();
        // Some libraries open the granted directories at each call, and so would fill the table.
        let opened_too_often = directories > MAX_OPENED_ROOTS * self.files.roots();
        let printing_handles = self.restore_printing();
        let left_open = handles - directories > printing_handles;

        self.revoke_call();
        self.call.stdout.clear();
        self.call.stderr.clear();
        !opened_too_often && !left_open
    }

    /// Restores the streams that print, because the guest may have replaced them. Returns the
    /// number of handles of these streams and of their pollables.
    fn restore_printing(&mut self) -> usize {
        let mut handles = 0;
        for (handle, capture) in &self.printing {
            let stream = Resource::<DynOutputStream>::new_borrow(*handle);
            let Ok(output) = self.table.get_mut(&stream) else { continue };
            handles += 1;
            *output = Box::new(capture.clone());
            let Ok(children) = self.table.iter_children(&stream) else { continue };
            handles += children.filter(|child| child.is::<DynPollable>()).count();
        }
        handles
    }

    fn revoke_call(&mut self) {
        self.files = Files::new(None, 0);
        self.capabilities = CallCapabilities::default();
        self.call.events = Arc::new(NoEvents);
        self.call.caller = None;
    }

    fn print_to(&mut self, capture: Capture) -> wasmtime::Result<Resource<DynOutputStream>> {
        let stream: DynOutputStream = Box::new(capture.clone());
        let handle = self.table.push(stream)?;
        self.printing.insert(handle.rep(), capture);
        Ok(handle)
    }

    pub(crate) fn table(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    pub(crate) fn capabilities_and_table(&mut self) -> (&mut CallCapabilities, &mut ResourceTable) {
        (&mut self.capabilities, &mut self.table)
    }

    pub(crate) fn files_view(&mut self) -> FilesView<'_> {
        FilesView { files: &mut self.files, table: &mut self.table, watch: &self.call.watch }
    }
}

/// The seed is constant, so that all listings get the same numbers.
const FIXED_SEED: u128 = 43;

fn fixed_random() -> Deterministic {
    Deterministic::new(vec![7, 19, 101, 43])
}

fn is_granted(entry: &(dyn Any + Send)) -> bool {
    entry.downcast_ref::<Descriptor>().is_some_and(Descriptor::is_granted)
}

/// Makes the context of an instance. By default, it has no environment, arguments and sockets.
fn base_context(directory: Option<&str>) -> WasiCtxBuilder {
    let mut wasi = WasiCtxBuilder::new();
    wasi.max_random_size(MAX_RANDOM);
    if let Some(directory) = directory {
        wasi.initial_cwd(directory);
    }
    wasi
}

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

    /// Not zero, because Go's runtime treats zero as a broken clock and ends the program.
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

/// The host data of these interfaces is `&mut CallState`.
pub(crate) struct HasState;

impl HasData for HasState {
    type Data<'a> = &'a mut CallState;
}
