use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::{Call, Definition, Failure, Output};

/// What a call comes to: the tool's output, or its failure.
pub type Outcome = Result<Output, Failure>;

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whatever offers tools to the host: the plugin runtime, the client of a server, code of the
/// embedding program.
///
/// The host has resolved, validated and allowed a call before a provider sees it, and shapes what
/// it returns. The rest is the provider's: it keeps the call's [`time`](Call::time), stops when the
/// call is cancelled, bounds what it collects, and passes no text of strangers to
/// [`Events`](crate::Events) that it has not [neutralised](crate::text::neutral).
pub trait Provider: Send + Sync + 'static {
    /// The provider's name in messages.
    fn name(&self) -> &str;

    /// The tools. The host asks once, when it is built. Each name is one that no other tool of the
    /// host has, and has at most 64 of `[a-z0-9_-]`.
    fn tools(&self) -> Vec<Arc<Definition>>;

    /// Runs one call of one of its tools, [`Call::tool`]. Dropping the future cancels it.
    fn call(&self, call: Call) -> BoxFuture<'_, Outcome>;
}
