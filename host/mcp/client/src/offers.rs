//! Decides which prompts and resources of an upstream server the host offers, and under which
//! names.
//!
//! The entries of a list are pinned, as the definitions of tools are. The text of a prompt or a
//! resource isn't pinned: it is an answer like that of a tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{GetPromptRequestParams, Prompt, Resource, ResourceTemplate};
use serde_json::{Value, json};
use toolhold_core::text::{cut, neutral_line, neutral_owned};
use toolhold_core::{
    Annotations, Call, Category, Definition, Failure, Offers, PromptOffer, PromptOfferArgument,
    ResourceOffer,
};

use crate::listing::Listing;
use crate::naming::{MAX_DESCRIPTION, MAX_TITLE, PROMPTER, READER, fitted, shown};
use crate::pins::{PinnedOffers, PinnedTool};
use crate::{MAX_DEFINITIONS, MAX_OFFERS};

/// Most bytes of a prompt or a resource in a list, as JSON text.
const MAX_OFFER: usize = 16 * 1024;

/// Most arguments of a prompt.
const MAX_ARGUMENTS: usize = 32;

/// Most bytes of an address.
const MAX_ADDRESS: usize = 2 * 1024;

/// The reason against offering a prompt or a resource.
#[derive(Debug, thiserror::Error)]
enum OfferError {
    #[error("it has more than {MAX_ARGUMENTS} arguments")]
    Arguments,
    #[error("its address is {0} bytes; the limit is {MAX_ADDRESS}")]
    LongAddress(usize),
    #[error("its address has no scheme")]
    NoScheme,
    #[error("its address has spaces or control characters")]
    SteeringAddress,
}

/// Pins the entries that can be pinned, and returns the names of the others with the reason.
pub(crate) fn pin(listing: &Listing) -> (PinnedOffers, Vec<(String, String)>) {
    let mut left_out = Vec::new();
    let prompts = listing.prompts.iter().map(|prompt: &Prompt| {
        let many = prompt.arguments.as_ref().map_or(0, Vec::len) > MAX_ARGUMENTS;
        (PinnedTool::pin(&prompt.name, prompt), many.then_some(OfferError::Arguments))
    });
    let prompts = pinned(prompts, &mut left_out);
    let resources = listing.resources.iter().map(|resource: &Resource| {
        (PinnedTool::pin(&resource.uri, resource), check_address(&resource.uri).err())
    });
    let resources = pinned(resources, &mut left_out);
    let templates = listing.templates.iter().map(|template: &ResourceTemplate| {
        let address = &template.uri_template;
        (PinnedTool::pin(address, template), check_address(address).err())
    });
    let templates = pinned(templates, &mut left_out);
    (PinnedOffers { prompts, resources, templates }, left_out)
}

fn pinned(
    offers: impl Iterator<Item = (PinnedTool, Option<OfferError>)>,
    left_out: &mut Vec<(String, String)>,
) -> Vec<PinnedTool> {
    let mut pins: Vec<PinnedTool> = Vec::new();
    let mut bytes = 0;
    for (pin, error) in offers {
        let size = pin.definition.len();
        let reason = if pins.len() >= MAX_OFFERS {
            format!("more than {MAX_OFFERS}, the limit")
        } else if size > MAX_OFFER {
            format!("its definition is {size} bytes; the limit is {MAX_OFFER}")
        } else if bytes + size > MAX_DEFINITIONS {
            format!("all definitions are more than {MAX_DEFINITIONS} bytes, the limit")
        } else if pins.iter().any(|known| known.name == pin.name) {
            "another one has that name".to_owned()
        } else if let Some(error) = error {
            error.to_string()
        } else {
            bytes += size;
            pins.push(pin);
            continue;
        };
        left_out.push((shown(&pin.name), reason));
    }
    pins
}

/// Checks the server's own address of a resource, or a template of addresses.
fn check_address(address: &str) -> Result<(), OfferError> {
    let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme);
    if address.len() > MAX_ADDRESS {
        return Err(OfferError::LongAddress(address.len()));
    }
    if !scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        || !scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    {
        return Err(OfferError::NoScheme);
    }
    if neutral_line(address) != address || address.contains(char::is_whitespace) {
        return Err(OfferError::SteeringAddress);
    }
    Ok(())
}

/// The prompts and resources of a server that the host offers.
#[derive(Default)]
pub(crate) struct ServerOffers {
    pub(crate) offers: Offers,
    /// The tools that get them, which aren't listed.
    pub(crate) definitions: Vec<Arc<Definition>>,
}

/// The request of a call to a server.
pub(crate) enum Asked {
    /// The resource at its own address.
    Resource(String),
    /// A prompt.
    Prompt(GetPromptRequestParams),
}

impl ServerOffers {
    /// Prompts with equal names are left out, as tools are.
    pub(crate) fn new(server: &str, pins: &PinnedOffers, trust_annotations: bool) -> Self {
        let mut offers = Offers { prefix: format!("{server}+"), ..Offers::default() };
        let mut prompts: BTreeMap<String, Vec<&PinnedTool>> = BTreeMap::new();
        for pin in &pins.prompts {
            if let Some(name) = fitted(server, &pin.name) {
                prompts.entry(name).or_default().push(pin);
            }
        }
        for (name, pins) in prompts {
            match pins[..] {
                [pin] => offers.prompts.extend(prompt(name, pin)),
                _ => tracing::warn!("{} prompts of `{server}` would be named `{name}`", pins.len()),
            }
        }
        let resources = pins.resources.iter().map(|pin| (pin, false));
        let templates = pins.templates.iter().map(|pin| (pin, true));
        for (pin, is_template) in resources.chain(templates) {
            offers.resources.push(resource(server, &offers.prefix, pin, is_template));
        }
        let mut definitions = Vec::new();
        let annotations = if trust_annotations {
            Annotations { read_only: true, destructive: false, ..Annotations::default() }
        } else {
            Annotations::default()
        };
        if pins.has_resources() {
            let uri = json!({ "type": "string", "maxLength": MAX_ADDRESS });
            let schema = json!({ "type": "object", "properties": { "uri": uri }, "required": ["uri"], "additionalProperties": false });
            offers.reader = fitted(server, READER).unwrap_or_default();
            let reader = Definition::new(&offers.reader, "Reads a resource of the server", schema);
            definitions.push(unlisted(reader, annotations));
        }
        if !offers.prompts.is_empty() {
            let names: Vec<&String> =
                offers.prompts.iter().map(|prompt| &prompt.own_name).collect();
            let arguments =
                json!({ "type": "object", "additionalProperties": { "type": "string" } });
            let schema = json!({ "type": "object", "properties": { "name": { "enum": names }, "arguments": arguments }, "required": ["name"], "additionalProperties": false });
            offers.prompter = fitted(server, PROMPTER).unwrap_or_default();
            let prompter = Definition::new(&offers.prompter, "Gets a prompt of the server", schema);
            definitions.push(unlisted(prompter, annotations));
        }
        Self { offers, definitions }
    }

    /// The request in a call of one of the two tools. `None`: the call is of another tool.
    pub(crate) fn asked(&self, call: &Call) -> Option<Result<Asked, Failure>> {
        if call.tool == self.offers.reader {
            let address = text_argument(call, "uri");
            let checked = check_address(&address).map(|()| Asked::Resource(address));
            return Some(
                checked
                    .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string())),
            );
        }
        (call.tool == self.offers.prompter).then(|| {
            let mut params = GetPromptRequestParams::new(text_argument(call, "name"));
            params.arguments = call.arguments["arguments"].as_object().cloned();
            Ok(Asked::Prompt(params))
        })
    }
}

/// The definition of a tool of the server that isn't listed.
fn unlisted(mut definition: Definition, annotations: Annotations) -> Arc<Definition> {
    definition.foreign = true;
    definition.unlisted = true;
    definition.annotations = annotations;
    Arc::new(definition)
}

fn text_argument(call: &Call, name: &str) -> String {
    call.arguments[name].as_str().unwrap_or_default().to_owned()
}

/// The definition of a pin.
fn parsed(pin: &PinnedTool) -> Value {
    serde_json::from_str(&pin.definition).unwrap_or_default()
}

fn line(definition: &Value, key: &str) -> Option<String> {
    let text = definition.get(key).and_then(Value::as_str)?;
    Some(neutral_line(cut(text, MAX_TITLE)))
}

fn description(definition: &Value) -> Option<String> {
    let text = definition.get("description").and_then(Value::as_str)?;
    Some(neutral_owned(cut(text, MAX_DESCRIPTION).to_owned()))
}

fn prompt(name: String, pin: &PinnedTool) -> Option<PromptOffer> {
    let definition = parsed(pin);
    let arguments = match definition.get("arguments").and_then(Value::as_array) {
        None => Vec::new(),
        Some(arguments) => arguments.iter().map(prompt_argument).collect::<Option<_>>()?,
    };
    Some(PromptOffer {
        name,
        own_name: pin.name.clone(),
        title: line(&definition, "title"),
        description: description(&definition),
        arguments,
    })
}

fn prompt_argument(argument: &Value) -> Option<PromptOfferArgument> {
    let name = argument["name"].as_str()?;
    // A client sends the name back as it is.
    (neutral_line(name) == name).then(|| PromptOfferArgument {
        name: name.to_owned(),
        title: line(argument, "title"),
        description: description(argument),
        required: argument["required"] == true,
    })
}

fn resource(server: &str, prefix: &str, pin: &PinnedTool, is_template: bool) -> ResourceOffer {
    let definition = parsed(pin);
    ResourceOffer {
        uri: format!("{prefix}{}", pin.name),
        is_template,
        name: format!("{server}__{}", line(&definition, "name").unwrap_or_default()),
        title: line(&definition, "title"),
        description: description(&definition),
        media_type: line(&definition, "mimeType"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::is_reserved;

    fn listing(prompts: &[Value], resources: &[Value]) -> Listing {
        let prompts = prompts.iter().cloned().map(serde_json::from_value);
        let resources = resources.iter().cloned().map(serde_json::from_value);
        Listing {
            prompts: prompts.collect::<Result<_, _>>().expect("prompts"),
            resources: resources.collect::<Result<_, _>>().expect("resources"),
            templates: Vec::new(),
        }
    }

    #[test]
    fn hostile_entries_are_left_out_and_the_others_stay() {
        let resource = |uri: &str| json!({ "uri": uri, "name": "a", "description": "\u{1b}[2J" });
        let many: Vec<Value> = (0..1000).map(|at| resource(&format!("memo://{at}"))).collect();
        let (pins, left_out) = pin(&listing(&[], &many));
        assert_eq!((pins.resources.len(), left_out.len()), (MAX_OFFERS, 1000 - MAX_OFFERS));
        let long = format!("memo://{}", "x".repeat(MAX_ADDRESS));
        let addresses = [
            "memo://a",
            "memo://a",
            "../etc/passwd",
            "memo://\u{1b}[2J",
            "memo://\u{202e}x",
            &long,
            "a b://c",
            "",
        ];
        let resources: Vec<Value> = addresses.iter().map(|address| resource(address)).collect();
        let prompts = [
            json!({ "name": "Plan.It", "description": "\u{202e}x", "arguments": [{ "name": "a", "required": true }] }),
            json!({ "name": "steers", "arguments": [{ "name": "\u{1b}" }] }),
            json!({ "name": "large", "description": "x".repeat(MAX_OFFER) }),
        ];
        let (pins, left_out) = pin(&listing(&prompts, &resources));
        assert_eq!(left_out.len(), 8, "{left_out:?}");
        let offered = ServerOffers::new("evil", &pins, false).offers;
        let uris: Vec<&str> = offered.resources.iter().map(|resource| &*resource.uri).collect();
        assert_eq!(uris, ["evil+memo://a"]);
        let names: Vec<&str> = offered.prompts.iter().map(|prompt| &*prompt.name).collect();
        assert_eq!(names, ["evil__plan_it"]);
        let shown = format!("{offered:?}");
        assert!(!shown.contains("\\u{1b}") && !shown.contains("\\u{202e}"), "{shown}");
    }

    #[test]
    fn tools_that_get_them_are_unlisted_and_act() {
        let none = ServerOffers::new("s", &PinnedOffers::default(), false);
        assert!(none.definitions.is_empty() && none.offers.resources.is_empty());
        let (pins, _) =
            pin(&listing(&[json!({ "name": "p" })], &[json!({ "uri": "memo://a", "name": "a" })]));
        let offers = ServerOffers::new("s", &pins, false);
        let names: Vec<&str> = offers.definitions.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["s__read_resource", "s__get_prompt"]);
        assert!(offers.definitions.iter().all(|tool| tool.unlisted && !tool.annotations.read_only));
        assert!(is_reserved(&pins, "s", "s__read_resource") && !is_reserved(&pins, "s", "s__read"));
        let trusted = ServerOffers::new("s", &pins, true);
        assert!(trusted.definitions.iter().all(|tool| tool.annotations.read_only));
    }
}
