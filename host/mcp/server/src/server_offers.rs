//! Lists and gets the prompts and resources of the host's sources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::ErrorData;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage,
    ReadResourceResult, Resource, ResourceContents, ResourceTemplate, Role,
};
use serde_json::{Value, json};
use toolhold_core::{Answer, Body, Category, Content, Host, PromptOffer, ResourceOffer};

use crate::answer;

/// A tool that gets a prompt or a resource, and its arguments.
pub(crate) type OfferCall = (String, JsonObject);

pub(crate) fn prompts(host: &Host) -> Vec<Prompt> {
    host.offers().iter().flat_map(|offers| &offers.prompts).map(prompt).collect()
}

fn prompt(offer: &PromptOffer) -> Prompt {
    let mut arguments = Vec::new();
    for offered in &offer.arguments {
        let mut argument = PromptArgument::new(&offered.name).with_required(offered.required);
        argument.title.clone_from(&offered.title);
        argument.description.clone_from(&offered.description);
        arguments.push(argument);
    }
    let mut prompt = Prompt::new(&offer.name, offer.description.clone(), Some(arguments));
    prompt.title.clone_from(&offer.title);
    prompt
}

pub(crate) fn resources(host: &Host) -> Vec<Resource> {
    let mut resources = Vec::new();
    for offer in offered_resources(host) {
        if !offer.is_template {
            let mut resource = Resource::new(offer.uri, offer.name);
            resource.title = offer.title;
            resource.description = offer.description;
            resource.mime_type = offer.media_type;
            resources.push(resource);
        }
    }
    resources
}

pub(crate) fn templates(host: &Host) -> Vec<ResourceTemplate> {
    let mut templates = Vec::new();
    for offer in offered_resources(host) {
        if offer.is_template {
            let mut template = ResourceTemplate::new(offer.uri, offer.name);
            template.title = offer.title;
            template.description = offer.description;
            template.mime_type = offer.media_type;
            templates.push(template);
        }
    }
    templates
}

fn offered_resources(host: &Host) -> impl Iterator<Item = ResourceOffer> {
    host.offers().into_iter().flat_map(|offers| offers.resources)
}

/// Returns the call that gets a prompt, or `None` if no source offers the prompt.
pub(crate) fn prompt_call(host: &Host, request: &GetPromptRequestParams) -> Option<OfferCall> {
    for offers in host.offers() {
        let prompt = offers.prompts.iter().find(|prompt| prompt.name == request.name);
        if let Some(prompt) = prompt {
            let arguments = request.arguments.clone().unwrap_or_default();
            let call_arguments = json!({ "name": prompt.own_name, "arguments": arguments });
            return Some(call(offers.prompter, call_arguments));
        }
    }
    None
}

/// Returns the call that reads the resource at `uri`, or `None` if no source has the prefix of
/// `uri`.
pub(crate) fn resource_call(host: &Host, uri: &str) -> Option<OfferCall> {
    for offers in host.offers() {
        if !offers.resources.is_empty()
            && let Some(address_in_source) = uri.strip_prefix(&offers.prefix)
        {
            return Some(call(offers.reader, json!({ "uri": address_in_source })));
        }
    }
    None
}

fn call(tool: String, arguments: Value) -> OfferCall {
    match arguments {
        Value::Object(arguments) => (tool, arguments),
        _ => (tool, JsonObject::new()),
    }
}

/// Converts the answer of a call that gets a prompt. Each part is a message.
pub(crate) fn prompt_result(answer: Answer) -> Result<GetPromptResult, ErrorData> {
    let mut messages = Vec::new();
    for (index, part) in parts(answer)?.into_iter().enumerate() {
        let is_of_assistant = part.meta.as_ref().is_some_and(|meta| meta["role"] == "assistant");
        let role = if is_of_assistant { Role::Assistant } else { Role::User };
        messages.push(PromptMessage::new(role, answer::block(index, part)));
    }
    Ok(GetPromptResult::new(messages))
}

/// Converts the answer of a call that reads a resource. Each part gets the address `uri`.
pub(crate) fn resource_result(answer: Answer, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let parts = parts(answer)?.into_iter();
    Ok(ReadResourceResult::new(parts.map(|part| contents(part, uri)).collect()))
}

fn contents(part: Content, uri: &str) -> ResourceContents {
    let Content { body, media_type, .. } = part;
    let contents = match body {
        Body::Text(text) | Body::Link(text) => ResourceContents::text(text, uri),
        Body::Bytes(bytes) => ResourceContents::blob(STANDARD.encode(bytes), uri),
    };
    match media_type {
        Some(media_type) => contents.with_mime_type(media_type),
        None => contents,
    }
}

/// Returns the parts of an answer. A failure becomes an error of the protocol.
fn parts(answer: Answer) -> Result<Vec<Content>, ErrorData> {
    let failure = match answer.outcome {
        Ok(output) => return Ok(output.content),
        Err(failure) => failure,
    };
    let error = match failure.category {
        Category::InvalidParameters | Category::ToolNotFound => {
            ErrorData::invalid_params(failure.feedback(), None)
        }
        _ => ErrorData::internal_error(failure.feedback(), None),
    };
    Err(error)
}
