//! The interface for the prompts and resources of an embedding program.

use rmcp::ErrorData;
use rmcp::model::{
    CompleteRequestParams, CompletionInfo, GetPromptRequestParams, GetPromptResult, Prompt,
    ReadResourceResult, Resource, ResourceTemplate,
};
use toolhold_core::{BoxFuture, Session};

/// Prompts and resources of the embedding program. Clients get them in addition to Toolhold's. The
/// program's tools come from a [`ToolSource`](toolhold_core::ToolSource).
///
/// The program is responsible for these prompts and resources: configured rules don't apply to
/// them, and their use isn't recorded. The session identifies the caller. Requests for Toolhold's
/// own names (`tools`, `toolhold://…`) aren't passed to this trait.
pub trait Extras: Send + Sync + 'static {
    /// Returns the prompts in the order of the list.
    fn prompts(&self) -> Vec<Prompt> {
        Vec::new()
    }

    /// Expands a prompt. Returns `None` if no prompt has this name.
    fn prompt<'a>(
        &'a self,
        _: &'a Session,
        _: &'a GetPromptRequestParams,
    ) -> BoxFuture<'a, Option<Result<GetPromptResult, ErrorData>>> {
        Box::pin(std::future::ready(None))
    }

    /// Returns the resources with a fixed address.
    fn resources(&self) -> Vec<Resource> {
        Vec::new()
    }

    /// Returns the resource templates.
    fn resource_templates(&self) -> Vec<ResourceTemplate> {
        Vec::new()
    }

    /// Returns the content of a resource. Returns `None` if there is no resource at this address.
    fn resource<'a>(
        &'a self,
        _: &'a Session,
        _: &'a str,
    ) -> BoxFuture<'a, Option<Result<ReadResourceResult, ErrorData>>> {
        Box::pin(std::future::ready(None))
    }

    /// Completes an argument of a prompt or a part of an address. Returns `None` if there is no
    /// completion.
    fn completed<'a>(
        &'a self,
        _: &'a Session,
        _: &'a CompleteRequestParams,
    ) -> BoxFuture<'a, Option<CompletionInfo>> {
        Box::pin(std::future::ready(None))
    }
}

/// No extras.
pub(crate) struct NoExtras;

impl Extras for NoExtras {}
