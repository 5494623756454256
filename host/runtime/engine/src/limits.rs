//! The limits of one call, of listing tools and of filtering: memory, time, sizes and instances.

use std::sync::Arc;
use std::time::Duration;

use toolhold_compiler::StoreBounds;
use toolhold_policy::OwnTable;

use crate::timing::CallBounds;

/// Most tools of one plugin.
pub(crate) const MAX_TOOLS: usize = 128;
/// Most characters of a tool's own name.
pub(crate) const MAX_TOOL_NAME: usize = 38;
/// Most bytes of a description.
pub(crate) const MAX_DESCRIPTION: usize = 4096;

/// The limits of a call. The defaults equal the defaults of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time of a call without a `timeout` argument.
    pub call: Duration,
    /// Longest time that a `timeout` argument may set.
    pub max_call: Duration,
    /// Time that the host waits for the answer after the tool's time.
    pub grace: Duration,
    /// Processor time of the guest and of its host functions.
    pub cpu: Duration,
    /// Bytes of linear memory, all memories of the component together.
    pub memory: usize,
    /// Bytes that the host copies in one host call or answer.
    pub host_allocation: usize,
    /// Bytes of one answer: content, structured value and emitted parts.
    pub result: usize,
    /// Most stored bytes of standard output, and of standard error.
    pub stdio: usize,
    /// Most stored log messages. Each message is cut at 4 KiB.
    pub log_lines: usize,
    /// Open descriptors, streams and other handles, together.
    pub handles: usize,
    /// Bytes written to files.
    pub written: u64,
    /// Bytes of arguments as JSON text.
    pub arguments: usize,
    /// The table of the configuration that raises the limits, for remedies.
    pub table: Arc<OwnTable>,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            call: Duration::from_secs(30),
            max_call: Duration::from_secs(600),
            grace: Duration::from_secs(5),
            cpu: Duration::from_secs(10),
            memory: 256 * MIB,
            host_allocation: 16 * MIB,
            result: 8 * MIB,
            stdio: 256 * 1024,
            log_lines: 1000,
            handles: 256,
            written: 1 << 30,
            arguments: MIB,
            table: Arc::new(OwnTable { name: "tools.limits".to_owned(), ..OwnTable::default() }),
        }
    }
}

impl Limits {
    /// Returns the bounds of a call, except its time.
    pub(crate) fn bounds(&self) -> CallBounds {
        CallBounds { grace: self.grace, cpu: self.cpu, table: Arc::clone(&self.table) }
    }

    /// Returns the limits for listing a plugin's tools, which needs little time and memory.
    pub(crate) fn for_listing(&self) -> Self {
        Self {
            call: Duration::from_secs(10),
            grace: Duration::ZERO,
            cpu: Duration::from_secs(2),
            memory: self.memory.min(64 << 20),
            log_lines: 20,
            stdio: 16 * 1024,
            written: 0,
            ..self.clone()
        }
    }

    /// Returns the limits for applying a filter. They are small, since an answer waits for the
    /// filter.
    pub(crate) fn for_filtering(&self) -> Self {
        let time = Duration::from_secs(5);
        Self {
            call: time,
            max_call: time,
            grace: Duration::ZERO,
            cpu: time.min(self.cpu),
            log_lines: 20,
            written: 0,
            ..self.clone()
        }
    }
}

/// Most core instances of one component. Components from Python and JavaScript tools need fewer.
pub(crate) const MAX_INSTANCES: usize = 64;

/// Returns the bounds of a guest's store with `memory` bytes.
pub(crate) const fn store_bounds(memory: usize) -> StoreBounds {
    StoreBounds {
        memory,
        table_elements: 500_000,
        instances: MAX_INSTANCES,
        memories: 16,
        tables: 64,
    }
}
