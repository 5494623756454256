//! A secret that was found, and the count of examined bytes.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The kind that the mark of the secret names.
    pub(super) kind: &'static str,
}

/// Counts examined bytes where a hostile text could make the count large. Tests check that the
/// count is linear in the length of the text.
pub(super) fn count_examined(_bytes: usize) {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + _bytes);
}

#[cfg(test)]
thread_local! {
    /// Number of bytes that were examined on this thread.
    pub(super) static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
