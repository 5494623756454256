use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::{Call, Definition, Failure, Output};

/// What a call comes to: the tool's output, or its failure.
pub type Outcome = Result<Output, Failure>;

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whatever offers tools to the host: the plugin runtime, an MCP server's client, a native fixture.
///
/// The host has resolved, validated and allowed a call before a provider sees it. A provider keeps the call's deadline, stops when it is
/// cancelled, and bounds what it returns.
pub trait Provider: Send + Sync + 'static {
    /// The provider's name in messages.
    fn name(&self) -> &str;

    /// The tools as they are now. Their names are unique within the provider.
    fn tools(&self) -> Vec<Arc<Definition>>;

    /// Runs one call. Dropping the future cancels it.
    fn call(&self, call: Call) -> BoxFuture<'_, Outcome>;
}
