//! The interface for the prompts and resources of an embedding program.

use rmcp::ErrorData;
use rmcp::model::{
    CompleteRequestParams, CompletionInfo, GetPromptRequestParams, GetPromptResult, Prompt,
    ReadResourceResult, Resource, ResourceTemplate,
};
use toolhold_core::{BoxFuture, Session};

/// Prompts and resources of an embedding program, in addition to Toolhold's. The program's tools
/// come from a [`ToolSource`](toolhold_core::ToolSource).
///
/// No rule and no audit entry applies to these prompts and resources. The session identifies the
/// caller. Requests for Toolhold's own names (`tools`, `toolhold://…`) never reach this trait.
pub trait Extras: Send + Sync + 'static {
    /// Returns the prompts in the order of the list.
    fn prompts(&self) -> Vec<Prompt> {
        Vec::new()
    }

    /// Expands a prompt. Returns `None` if no prompt has this name, as the default does.
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

    /// Returns the content of a resource, or `None` if there is no resource at this address, as by
    /// default.
    fn resource<'a>(
        &'a self,
        _: &'a Session,
        _: &'a str,
    ) -> BoxFuture<'a, Option<Result<ReadResourceResult, ErrorData>>> {
        Box::pin(std::future::ready(None))
    }

    /// Completes an argument of a prompt or a part of an address. Returns `None` without a
    /// completion, as by default.
    fn completed<'a>(
        &'a self,
        _: &'a Session,
        _: &'a CompleteRequestParams,
    ) -> BoxFuture<'a, Option<CompletionInfo>> {
        Box::pin(std::future::ready(None))
    }
}

pub(crate) struct NoExtras;

impl Extras for NoExtras {}
