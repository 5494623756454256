//! Keeps the best hits of many, in bounded memory.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A document's number and its score.
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

/// Keeps the documents with the best scores.
#[derive(Debug)]
pub(crate) struct Best {
    limit: usize,
    heap: BinaryHeap<Reverse<Scored>>,
}

impl Best {
    /// Keeps `limit` documents, 1 or more.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::with_capacity(limit + 1) }
    }

    /// Checks whether a document would be among the best.
    pub(crate) fn takes(&self, document: Scored) -> bool {
        if self.heap.len() < self.limit {
            return true;
        }
        match self.heap.peek() {
            Some(Reverse(worst)) => document > *worst,
            None => false,
        }
    }

    /// Adds a document, and removes the worst one if there are too many.
    pub(crate) fn add(&mut self, document: Scored) {
        self.heap.push(Reverse(document));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    /// Returns the documents, the best first.
    pub(crate) fn into_sorted(self) -> Vec<Scored> {
        self.heap.into_sorted_vec().into_iter().map(|Reverse(document)| document).collect()
    }
}
