//! What was found, and how much was looked at for it.

/// A secret in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    /// What it is, as its mark says.
    pub(super) kind: &'static str,
}

/// Counts the bytes of a look whose length a stranger decides, so that tests can tell that all
/// looks together are linear in the text.
pub(super) fn looked_at(_bytes: usize) {
    #[cfg(test)]
    LOOKED_AT.set(LOOKED_AT.get() + _bytes);
}

#[cfg(test)]
thread_local! {
    /// What was looked at on this thread.
    pub(super) static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
