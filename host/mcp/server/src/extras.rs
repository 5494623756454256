//! The interface for the embedding program's own prompts and resources, beside Toolhold's.

use rmcp::ErrorData;
use rmcp::model::{
    CompleteRequestParams, CompletionInfo, GetPromptRequestParams, GetPromptResult, Prompt,
    ReadResourceResult, Resource, ResourceTemplate,
};
use toolhold_core::{BoxFuture, Session};

/// Prompts and resources of the embedding program, which clients get beside those of Toolhold. Its
/// tools come from a [`ToolSource`](toolhold_core::ToolSource).
///
/// The program is responsible for what it offers here: no rule of the configuration decides on it,
/// and nothing is recorded. The session identifies the caller. Names of Toolhold's own (`tools`,
/// `toolhold://…`) never get here.
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

    /// Completes an argument of a prompt or a part of an address. Returns `None` if it can't be
    /// completed.
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
