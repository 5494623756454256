//! The limits of calls, of listing tools, and of filters.

use std::sync::Arc;
use std::time::Duration;

use toolhold_compiler::StoreBounds;
use toolhold_policy::OwnTable;

use crate::timing::CallBounds;

/// Most tools of a plugin. A plugin with more is refused.
pub(crate) const MAX_TOOLS: usize = 128;
/// Most characters of a tool's name in the plugin.
pub(crate) const MAX_TOOL_NAME: usize = 38;
/// Most bytes of a description.
pub(crate) const MAX_DESCRIPTION: usize = 4096;
/// Most bytes of a name that a plugin has chosen, such as a tool's name, in an error message.
/// Longer names are cut.
pub(crate) const MAX_NAME_IN_ERROR: usize = 80;

/// The limits of a call. The defaults are those of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time of a call without a `timeout` argument.
    pub call: Duration,
    /// The longest time that a `timeout` argument may set.
    pub max_call: Duration,
    /// Time that the host waits after `call` for the guest to end by itself.
    pub grace: Duration,
    /// Processor time of the guest, including its host functions.
    pub cpu: Duration,
    /// Bytes of all linear memories of the component.
    pub memory: usize,
    /// Bytes that one host call or answer may make the host copy.
    pub host_allocation: usize,
    /// Bytes of an answer: content, structured value and emitted parts.
    pub result: usize,
    /// Stored bytes of standard output and of standard error each.
    pub stdio: usize,
    /// Stored log messages. Longer messages are cut at 4 KiB.
    pub log_lines: usize,
    /// Open descriptors, streams and other handles together.
    pub handles: usize,
    /// Bytes written to files.
    pub written: u64,
    /// Bytes of arguments as JSON text.
    pub arguments: usize,
    /// The table of the configuration with these limits, which error messages name.
    pub table: Arc<OwnTable>,
}

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;
const GIB: u64 = 1 << 30;

/// Most log messages while a plugin lists its tools or filters an output.
const FEW_LOG_LINES: usize = 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(30),
            max_call: Duration::from_secs(600),
            grace: Duration::from_secs(5),
            cpu: Duration::from_secs(10),
            memory: 256 * MIB,
            host_allocation: 16 * MIB,
            result: 8 * MIB,
            stdio: 256 * KIB,
            log_lines: 1000,
            handles: 256,
            written: GIB,
            arguments: MIB,
            table: Arc::new(OwnTable { name: "tools.limits".to_owned(), ..OwnTable::default() }),
        }
    }
}

impl Limits {
    pub(crate) fn bounds(&self) -> CallBounds {
        CallBounds { grace: self.grace, cpu: self.cpu, table: Arc::clone(&self.table) }
    }

    pub(crate) fn for_listing(&self) -> Self {
        Self {
            call: Duration::from_secs(10),
            grace: Duration::ZERO,
            cpu: Duration::from_secs(2),
            memory: self.memory.min(64 * MIB),
            log_lines: FEW_LOG_LINES,
            stdio: 16 * KIB,
            written: 0,
            ..self.clone()
        }
    }

    /// Returns the limits for applying a filter. The limits are small, because an answer waits for
    /// the filter.
    pub(crate) fn for_filtering(&self) -> Self {
        let time = Duration::from_secs(5);
        Self {
            call: time,
            max_call: time,
            grace: Duration::ZERO,
            cpu: time.min(self.cpu),
            log_lines: FEW_LOG_LINES,
            written: 0,
            ..self.clone()
        }
    }
}

/// Most core instances of a component. Components of Python and JavaScript tools need fewer.
pub(crate) const MAX_INSTANCES: usize = 64;

/// Most elements of all tables, most memories and most tables of a store.
const MAX_TABLE_ELEMENTS: usize = 500_000;
const MAX_MEMORIES: usize = 16;
const MAX_TABLES: usize = 64;

pub(crate) const fn store_bounds(memory: usize) -> StoreBounds {
    StoreBounds {
        memory,
        table_elements: MAX_TABLE_ELEMENTS,
        instances: MAX_INSTANCES,
        memories: MAX_MEMORIES,
        tables: MAX_TABLES,
    }
}
