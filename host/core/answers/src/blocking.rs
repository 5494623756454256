//! Runs work that may wait for a disk, or that is long, on a thread that may block.

/// Bytes of an answer that are processed at once. A longer one would delay the other calls on the
/// thread.
pub(crate) const AT_ONCE: usize = 64 * 1024;

/// Runs a function that may wait for a disk on a thread that may block.
pub(crate) async fn blocking<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => match runtime.spawn_blocking(run).await {
            Ok(result) => result,
            // The task can't be cancelled, so it has panicked.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        },
        Err(_) => run(),
    }
}
