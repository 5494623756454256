//! Runs long work, and work that may wait for a disk, on a thread that may block.

/// Maximum length of an answer that is processed at once, in bytes. A longer answer would delay the
/// other calls on the thread.
pub(crate) const AT_ONCE: usize = 64 * 1024;

/// Runs a function on a thread that may block, for example while it waits for a disk.
pub(crate) async fn blocking<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => match runtime.spawn_blocking(run).await {
            Ok(result) => result,
            // The task can't be cancelled, so the function has panicked.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        },
        Err(_) => run(),
    }
}
