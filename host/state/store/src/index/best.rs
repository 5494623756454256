//! Selects the best hits in bounded memory.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored {
    pub(crate) id: i64,
    pub(crate) score: f64,
}

impl Ord for Scored {
    /// Compares by score. If the scores are equal, the later document is better.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scored {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scored {}

#[derive(Debug)]
pub(crate) struct Best {
    limit: usize,
    heap: BinaryHeap<Reverse<Scored>>,
}

impl Best {
    /// Selects `limit` documents, at least 1.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::with_capacity(limit + 1) }
    }

    pub(crate) fn takes(&self, document: Scored) -> bool {
        if self.heap.len() < self.limit {
            return true;
        }
        match self.heap.peek() {
            Some(Reverse(worst)) => document > *worst,
            // The limit is 0.
            None => false,
        }
    }

    /// Adds a document. Above the limit, the worst document is removed.
    pub(crate) fn add(&mut self, document: Scored) {
        self.heap.push(Reverse(document));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    pub(crate) fn into_sorted(self) -> Vec<Scored> {
        self.heap.into_sorted_vec().into_iter().map(|Reverse(document)| document).collect()
    }
}
