//! The prompts and resources that the suite asks for.

use serde_json::json;
use toolhold_core::{BoxFuture, Session};
use toolhold_mcp_server::model::{
    CompleteRequestParams, CompletionInfo, GetPromptRequestParams, GetPromptResult, Prompt,
    PromptArgument, PromptMessage, ReadResourceResult, Reference, Resource, ResourceContents,
    ResourceTemplate, Role,
};
use toolhold_mcp_server::{ErrorData, Extras};

use crate::PNG;

const SIMPLE: &str = "test_simple_prompt";
const WITH_ARGUMENTS: &str = "test_prompt_with_arguments";
const WITH_RESOURCE: &str = "test_prompt_with_embedded_resource";
const WITH_IMAGE: &str = "test_prompt_with_image";

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";

/// What the suite asks for beside tools.
pub(crate) struct Fixtures;

impl Extras for Fixtures {
    fn prompts(&self) -> Vec<Prompt> {
        let prompt = |name: &str, arguments: &[&str]| {
            let arguments = arguments
                .iter()
                .map(|name| PromptArgument::new(*name).with_required(true))
                .collect();
            Prompt::new(name, Some("For a test"), Some(arguments))
        };
        vec![
            prompt(SIMPLE, &[]),
            prompt(WITH_ARGUMENTS, &["arg1", "arg2"]),
            prompt(WITH_RESOURCE, &["resourceUri"]),
            prompt(WITH_IMAGE, &[]),
        ]
    }

    fn prompt<'a>(
        &'a self,
        _session: &'a Session,
        asked: &'a GetPromptRequestParams,
    ) -> BoxFuture<'a, Option<Result<GetPromptResult, ErrorData>>> {
        let argument = |name: &str| {
            let value = asked
                .arguments
                .as_ref()
                .and_then(|arguments| arguments.get(name)?.as_str())
                .map(str::to_owned);
            value.ok_or_else(|| {
                ErrorData::invalid_params(format!("the prompt needs `{name}`"), None)
            })
        };
        let message = match asked.name.as_str() {
            SIMPLE => {
                Ok(PromptMessage::new_text(Role::User, "This is a simple prompt for testing."))
            }
            WITH_ARGUMENTS => argument("arg1").and_then(|first| {
                Ok(PromptMessage::new_text(
                    Role::User,
                    format!("Prompt with arguments: arg1='{first}', arg2='{}'", argument("arg2")?),
                ))
            }),
            WITH_RESOURCE => argument("resourceUri").map(|uri| {
                let text = Some("Embedded resource content for testing.".to_owned());
                PromptMessage::new_resource(
                    Role::User,
                    uri,
                    Some("text/plain".to_owned()),
                    text,
                    None,
                    None,
                    None,
                )
            }),
            WITH_IMAGE => Ok(PromptMessage::new_image(Role::User, PNG, "image/png", None, None)),
            _ => return Box::pin(std::future::ready(None)),
        };
        Box::pin(std::future::ready(Some(
            message.map(|message| GetPromptResult::new(vec![message])),
        )))
    }

    fn resources(&self) -> Vec<Resource> {
        let resource = |uri: &str, name: &str, media_type: &str| {
            Resource::new(uri, name).with_description("For a test").with_mime_type(media_type)
        };
        vec![
            resource(TEXT, "static-text", "text/plain"),
            resource(BINARY, "static-binary", "image/png"),
        ]
    }

    fn resource_templates(&self) -> Vec<ResourceTemplate> {
        vec![
            ResourceTemplate::new("test://template/{id}/data", "template")
                .with_mime_type("application/json"),
        ]
    }

    fn resource<'a>(
        &'a self,
        _session: &'a Session,
        uri: &'a str,
    ) -> BoxFuture<'a, Option<Result<ReadResourceResult, ErrorData>>> {
        let contents = match uri {
            TEXT => Some(ResourceContents::text("This is the content of the static text resource.", uri).with_mime_type("text/plain")),
            BINARY => Some(ResourceContents::blob(crate::base64(PNG), uri).with_mime_type("image/png")),
            _ => uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data")).map(|id| {
                let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")
            }),
        };
        Box::pin(std::future::ready(
            contents.map(|contents| Ok(ReadResourceResult::new(vec![contents]))),
        ))
    }

    fn completed<'a>(
        &'a self,
        _session: &'a Session,
        asked: &'a CompleteRequestParams,
    ) -> BoxFuture<'a, Option<CompletionInfo>> {
        let known =
            matches!(&asked.r#ref, Reference::Prompt(prompt) if prompt.name == WITH_ARGUMENTS);
        let values = ["paris", "park", "test"]
            .into_iter()
            .filter(|value| value.starts_with(&asked.argument.value));
        let completion =
            known.then(|| CompletionInfo::new(values.map(str::to_owned).collect()).ok()).flatten();
        Box::pin(std::future::ready(completion))
    }
}
