//! Limits the memory, tables and instances of a store.

use wasmtime::ResourceLimiter;

/// The bounds of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreBounds {
    /// Bytes of all memories together. wasmtime's own limit applies to each memory.
    pub memory: usize,
    /// Elements of all tables together, with 8 bytes each.
    pub table_elements: usize,
    /// Core instances.
    pub instances: usize,
    /// Memories.
    pub memories: usize,
    /// Tables.
    pub tables: usize,
}

/// Limits a store. Every store of an untrusted guest has a limiter.
#[derive(Debug)]
pub struct StoreLimiter {
    bounds: StoreBounds,
    memory_left: usize,
    table_elements_left: usize,
    /// The bytes of the last growth, which are added to `memory_left` again if the growth fails.
    last_growth: usize,
    refused: bool,
}

impl StoreLimiter {
    /// Makes the limiter of a new store.
    pub fn new(bounds: StoreBounds) -> Self {
        Self {
            bounds,
            memory_left: bounds.memory,
            table_elements_left: bounds.table_elements,
            last_growth: 0,
            refused: false,
        }
    }

    /// Returns the used bytes of memory.
    pub fn used(&self) -> usize {
        self.bounds.memory - self.memory_left
    }

    /// Checks whether the limiter has refused to grow a memory or a table. If it has, this is the
    /// cause of a later crash of the guest.
    pub fn refused(&self) -> bool {
        self.refused
    }
}

impl ResourceLimiter for StoreLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current);
        self.last_growth = growth;
        match self.memory_left.checked_sub(growth) {
            Some(remaining) => self.memory_left = remaining,
            None => self.refused = true,
        }
        // After a refusal, all further growth is refused.
        Ok(!self.refused)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let limiter_allowed_growth = !self.refused;
        if limiter_allowed_growth {
            // The limiter has already subtracted these bytes, but the machine has no memory for
            // them.
            self.memory_left += self.last_growth;
            self.last_growth = 0;
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
        let growth = desired.saturating_sub(current);
        match self.table_elements_left.checked_sub(growth) {
            Some(remaining) => self.table_elements_left = remaining,
            None => self.refused = true,
        }
        // After a refusal, all further growth is refused.
        Ok(!self.refused)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    fn instances(&self) -> usize {
        self.bounds.instances
    }

    fn tables(&self) -> usize {
        self.bounds.tables
    }

    fn memories(&self) -> usize {
        self.bounds.memories
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> StoreLimiter {
        let (memory, table_elements) = (100, 50);
        let bounds = StoreBounds { memory, table_elements, instances: 1, memories: 2, tables: 2 };
        StoreLimiter::new(bounds)
    }

    #[test]
    fn memory_limit_is_for_all_memories_together() {
        let mut limiter = limiter();
        assert!(limiter.memory_growing(0, 60, None).expect("decides"));
        assert!(limiter.memory_growing(0, 40, None).expect("decides"));
        assert!(!limiter.refused());
        assert!(!limiter.memory_growing(40, 41, None).expect("decides"));
        assert!(limiter.refused());
    }

    #[test]
    fn element_limit_is_for_all_tables_together() {
        let mut limiter = limiter();
        assert!(limiter.table_growing(0, 50, None).expect("decides"));
        assert!(!limiter.table_growing(0, 1, None).expect("decides"));
    }
}
