//! A secret that was found, and the count of examined bytes.

/// A secret in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The kind of the secret, as named in its mark.
    pub(super) kind: &'static str,
}

/// Counts bytes that are examined if untrusted text determines their number. Tests use the count to
/// check that the time is linear in the text.
pub(super) fn count_examined(_bytes: usize) {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + _bytes);
}

#[cfg(test)]
thread_local! {
    /// Number of bytes that were examined on this thread.
    pub(super) static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
