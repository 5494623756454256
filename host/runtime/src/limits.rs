//! The limits of one call, and the limiter for its memory.

use std::sync::Arc;
use std::time::Duration;

use berth_policy::OwnTable;
use berth_timing::CallBounds;
use wasmtime::ResourceLimiter;

/// Most tools of one plugin.
pub(crate) const MAX_TOOLS: usize = 128;
/// Most characters of a tool's own name.
pub(crate) const MAX_TOOL_NAME: usize = 38;
/// Most bytes of a description.
pub(crate) const MAX_DESCRIPTION: usize = 4096;

/// The limits of a call. The defaults are those of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time of a call without a `timeout` argument.
    pub call: Duration,
    /// Longest time that a `timeout` argument may set.
    pub max_call: Duration,
    /// Time that the host waits for the answer after the tool's time.
    pub grace: Duration,
    /// Processor time of the guest and of host functions for it.
    pub cpu: Duration,
    /// Bytes of linear memory, all memories of the component together.
    pub memory: usize,
    /// Bytes that the host copies in one host call or answer.
    pub host_allocation: usize,
    /// Bytes of one answer: content, structured value and emitted parts.
    pub result: usize,
    /// Bytes of standard output that are kept, and the same number of standard error.
    pub stdio: usize,
    /// Log messages that are kept. Each is cut at 4 KiB.
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
    /// What bounds a call beside its time.
    pub(crate) fn bounds(&self) -> CallBounds {
        CallBounds { grace: self.grace, cpu: self.cpu, table: Arc::clone(&self.table) }
    }

    /// The limits for listing a plugin's tools, which needs little time and memory.
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

    /// The limits for applying a filter. They are small, since an answer waits for it.
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

/// Most core instances, memories and tables of one component. Components from Python and JavaScript
/// tools need fewer.
pub(crate) const MAX_INSTANCES: usize = 64;
const MAX_MEMORIES: usize = 16;
const MAX_TABLES: usize = 64;

/// Most elements of all tables together, 8 bytes each.
const MAX_TABLE_ELEMENTS: usize = 500_000;

/// Limits all memories of a store together. Wasmtime's own limit is for each memory.
#[derive(Debug)]
pub(crate) struct MemoryLimiter {
    bound: usize,
    left: usize,
    table_elements_left: usize,
    /// Bytes of the last allowed growth. They are given back if the growth fails.
    last: usize,
    refused: bool,
}

impl MemoryLimiter {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            bound: bytes,
            left: bytes,
            table_elements_left: MAX_TABLE_ELEMENTS,
            last: 0,
            refused: false,
        }
    }

    /// Bytes that the guest uses.
    pub(crate) fn used(&self) -> usize {
        self.bound - self.left
    }

    /// Whether the guest was refused memory. If it crashes after that, the limit is the reason.
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        self.last = more;
        match self.left.checked_sub(more) {
            Some(left) => self.left = left,
            None => self.refused = true,
        }
        Ok(!self.refused)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        if !self.refused {
            self.left += std::mem::take(&mut self.last);
        }
        self.refused = true;
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        match self.table_elements_left.checked_sub(desired.saturating_sub(current)) {
            Some(left) => self.table_elements_left = left,
            None => self.refused = true,
        }
        Ok(!self.refused)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limit_is_for_all_memories_together() {
        let mut limiter = MemoryLimiter::new(100);
        assert!(limiter.memory_growing(0, 60, None).expect("decides"));
        assert!(limiter.memory_growing(0, 40, None).expect("decides"));
        assert!(!limiter.refused());
        assert!(!limiter.memory_growing(40, 41, None).expect("decides"));
        assert!(limiter.refused());
    }

    #[test]
    fn element_limit_is_for_all_tables_together() {
        let mut limiter = MemoryLimiter::new(100);
        assert!(limiter.table_growing(0, MAX_TABLE_ELEMENTS, None).expect("decides"));
        assert!(!limiter.table_growing(0, 1, None).expect("decides"));
    }
}
