//! Lists and gets the prompts and resources of the host's sources, in the form of MCP.

use rmcp::ErrorData;
use rmcp::model::{
    ContentBlock, GetPromptRequestParams, GetPromptResult, JsonObject, Prompt, PromptArgument,
    PromptMessage, ReadResourceResult, Resource, ResourceContents, ResourceTemplate, Role,
};
use serde_json::{Value, json};
use toolhold_core::{Answer, Body, Category, Content, Host, PromptOffer, ResourceOffer};

use crate::answer;

/// The call of a tool that gets a prompt or a resource, as the tool and its arguments.
pub(crate) type OfferCall = (String, JsonObject);

/// Returns the prompts.
pub(crate) fn prompts(host: &Host) -> Vec<Prompt> {
    host.offers().iter().flat_map(|offers| &offers.prompts).map(prompt).collect()
}

fn prompt(offer: &PromptOffer) -> Prompt {
    let arguments = offer.arguments.iter().map(|argument| {
        let mut shown = PromptArgument::new(&argument.name).with_required(argument.required);
        shown.title.clone_from(&argument.title);
        shown.description.clone_from(&argument.description);
        shown
    });
    let mut prompt = Prompt::new(&offer.name, offer.description.clone(), Some(arguments.collect()));
    prompt.title.clone_from(&offer.title);
    prompt
}

/// Returns the resources with a fixed address.
pub(crate) fn resources(host: &Host) -> Vec<Resource> {
    let resources = offers_of(host, false).map(|offer| {
        let mut resource = Resource::new(offer.uri, offer.name);
        resource.title = offer.title;
        resource.description = offer.description;
        resource.mime_type = offer.media_type;
        resource
    });
    resources.collect()
}

/// Returns the templates of addresses.
pub(crate) fn templates(host: &Host) -> Vec<ResourceTemplate> {
    let templates = offers_of(host, true).map(|offer| {
        let mut template = ResourceTemplate::new(offer.uri, offer.name);
        template.title = offer.title;
        template.description = offer.description;
        template.mime_type = offer.media_type;
        template
    });
    templates.collect()
}

fn offers_of(host: &Host, templates: bool) -> impl Iterator<Item = ResourceOffer> {
    let all = host.offers().into_iter().flat_map(|offers| offers.resources);
    all.filter(move |offer| offer.is_template == templates)
}

/// Returns the call that gets a prompt. Returns `None` if no provider offers the prompt.
pub(crate) fn prompt_call(host: &Host, request: &GetPromptRequestParams) -> Option<OfferCall> {
    host.offers().into_iter().find_map(|offers| {
        let prompt = offers.prompts.iter().find(|prompt| prompt.name == request.name)?;
        let arguments = request.arguments.clone().unwrap_or_default();
        Some(call(offers.prompter, json!({ "name": prompt.own_name, "arguments": arguments })))
    })
}

/// Returns the call that reads the resource at an address. Returns `None` if no provider has the
/// resource.
pub(crate) fn resource_call(host: &Host, uri: &str) -> Option<OfferCall> {
    let mut with_resources =
        host.offers().into_iter().filter(|offers| !offers.resources.is_empty());
    with_resources.find_map(|offers| {
        let own_address = uri.strip_prefix(&offers.prefix)?;
        Some(call(offers.reader, json!({ "uri": own_address })))
    })
}

fn call(tool: String, arguments: Value) -> OfferCall {
    match arguments {
        Value::Object(arguments) => (tool, arguments),
        _ => (tool, JsonObject::new()),
    }
}

/// Converts the answer of a call to a prompt.
///
/// # Errors
///
/// The call failed.
pub(crate) fn prompt_result(answer: Answer) -> Result<GetPromptResult, ErrorData> {
    let messages = parts(answer)?.into_iter().enumerate().map(|(at, part)| {
        let says_assistant = part.meta.as_ref().is_some_and(|meta| meta["role"] == "assistant");
        let role = if says_assistant { Role::Assistant } else { Role::User };
        PromptMessage::new(role, answer::block(at, part))
    });
    Ok(GetPromptResult::new(messages.collect()))
}

/// Converts the answer of a call to a resource. Each part has the requested address.
///
/// # Errors
///
/// The call failed.
pub(crate) fn resource_result(answer: Answer, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let parts = parts(answer)?.into_iter().enumerate();
    Ok(ReadResourceResult::new(parts.map(|(at, part)| contents(at, part, uri)).collect()))
}

fn contents(at: usize, part: Content, uri: &str) -> ResourceContents {
    let media_type = part.media_type.clone();
    let contents = match part.body {
        Body::Text(text) | Body::Link(text) => ResourceContents::text(text, uri),
        Body::Bytes(_) => match answer::block(at, part) {
            ContentBlock::Image(image) => ResourceContents::blob(image.data, uri),
            ContentBlock::Audio(audio) => ResourceContents::blob(audio.data, uri),
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::BlobResourceContents { blob, .. } => {
                    ResourceContents::blob(blob, uri)
                }
                other => other,
            },
            _ => ResourceContents::text("", uri),
        },
    };
    match media_type {
        Some(media_type) => contents.with_mime_type(media_type),
        None => contents,
    }
}

fn parts(answer: Answer) -> Result<Vec<Content>, ErrorData> {
    answer.outcome.map(|output| output.content).map_err(|failure| match failure.category {
        Category::InvalidParameters | Category::ToolNotFound => {
            ErrorData::invalid_params(failure.feedback(), None)
        }
        _ => ErrorData::internal_error(failure.feedback(), None),
    })
}
