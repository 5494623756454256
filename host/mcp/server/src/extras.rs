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
    /// The prompts in the order of the list.
    fn prompts(&self) -> Vec<Prompt> {
        Vec::new()
    }

    /// Expands a prompt. `None`: no prompt has this name.
    fn prompt<'a>(
        &'a self,
        _: &'a Session,
        _: &'a GetPromptRequestParams,
    ) -> BoxFuture<'a, Option<Result<GetPromptResult, ErrorData>>> {
        Box::pin(std::future::ready(None))
    }

    /// The resources with a fixed address.
    fn resources(&self) -> Vec<Resource> {
        Vec::new()
    }

    /// The resource templates.
    fn resource_templates(&self) -> Vec<ResourceTemplate> {
        Vec::new()
    }

    /// The content of a resource. `None`: there is none at this address.
    fn resource<'a>(
        &'a self,
        _: &'a Session,
        _: &'a str,
    ) -> BoxFuture<'a, Option<Result<ReadResourceResult, ErrorData>>> {
        Box::pin(std::future::ready(None))
    }

    /// Completions for an argument of a prompt or a part of an address. `None`: it can't be
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
