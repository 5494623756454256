//! Runs long or blocking work on a thread that may block.

/// Maximum length in bytes of an answer that is processed on the current thread. A longer answer
/// would delay other calls.
pub(crate) const AT_ONCE: usize = 64 * 1024;

/// Runs a function on a thread that may block. Without a Tokio runtime, the function runs on the
/// current thread.
pub(crate) async fn blocking<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => match runtime.spawn_blocking(run).await {
            Ok(result) => result,
            // Nothing cancels the task, so the function has panicked.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        },
        Err(_) => run(),
    }
}
