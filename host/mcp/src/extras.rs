//! What the embedding program offers beside Berth's own prompts and resources.

use berth_core::{BoxFuture, Session};
use rmcp::ErrorData;
use rmcp::model::{
    CompleteRequestParams, CompletionInfo, GetPromptRequestParams, GetPromptResult, Prompt,
    ReadResourceResult, Resource, ResourceTemplate,
};

/// Prompts and resources of the embedding program, which clients get beside those of Berth. Its
/// tools come from a [`Provider`](berth_core::Provider).
///
/// What is offered here is the program's own matter: no rule of the configuration decides on it,
/// and nothing is recorded. The session says who asks. Names that Berth has itself (`tools`,
/// `berth://…`) never get here.
pub trait Extras: Send + Sync + 'static {
    /// The prompts, in the order in which clients see them.
    fn prompts(&self) -> Vec<Prompt> {
        Vec::new()
    }

    /// What a prompt comes to. `None`: there is none of that name.
    fn prompt<'a>(
        &'a self,
        _: &'a Session,
        _: &'a GetPromptRequestParams,
    ) -> BoxFuture<'a, Option<Result<GetPromptResult, ErrorData>>> {
        Box::pin(std::future::ready(None))
    }

    /// The resources that have an address of their own.
    fn resources(&self) -> Vec<Resource> {
        Vec::new()
    }

    /// Those whose address has something to be put in.
    fn resource_templates(&self) -> Vec<ResourceTemplate> {
        Vec::new()
    }

    /// What a resource holds. `None`: there is none at that address.
    fn resource<'a>(
        &'a self,
        _: &'a Session,
        _: &'a str,
    ) -> BoxFuture<'a, Option<Result<ReadResourceResult, ErrorData>>> {
        Box::pin(std::future::ready(None))
    }

    /// What an argument of a prompt, or a part of an address, may go on with. `None`: it can't be
    /// completed.
    fn completed<'a>(
        &'a self,
        _: &'a Session,
        _: &'a CompleteRequestParams,
    ) -> BoxFuture<'a, Option<CompletionInfo>> {
        Box::pin(std::future::ready(None))
    }
}

/// Nothing.
pub(crate) struct NoExtras;

impl Extras for NoExtras {}
