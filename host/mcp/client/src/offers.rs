//! Decides which prompts and resources of an upstream server the host offers, and under which
//! names.
//!
//! The entries of a list are pinned like the definitions of tools. The text of a prompt or a
//! resource isn't pinned, because this text is like the answer of a tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{GetPromptRequestParams, Prompt, Resource, ResourceTemplate};
use serde_json::{Value, json};
use toolhold_core::text::{cut, neutral_line, neutral_owned};
use toolhold_core::{
    Annotations, Call, Category, Definition, Failure, Offers, PromptOffer, PromptOfferArgument,
    ResourceOffer,
};

use crate::MAX_OFFERS;
use crate::listing::Listing;
use crate::naming::{MAX_DESCRIPTION, MAX_TITLE, PROMPTER, READER, offered_name, printable_name};
use crate::pins::{PinnedOffers, PinnedTool, SizeError};

/// Most bytes of a prompt or a resource in a list, as JSON text.
const MAX_OFFER: usize = 16 * 1024;

/// Most arguments of a prompt.
const MAX_ARGUMENTS: usize = 32;

/// Most bytes of an address.
const MAX_ADDRESS: usize = 2 * 1024;

/// The reason against offering a prompt or a resource.
#[derive(Debug, thiserror::Error)]
enum OfferError {
    #[error("more than {MAX_OFFERS}, the limit")]
    TooMany,
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("another one has that name")]
    SameName,
    #[error("it has more than {MAX_ARGUMENTS} arguments")]
    Arguments,
    #[error("its address is {0} bytes; the limit is {MAX_ADDRESS}")]
    LongAddress(usize),
    #[error("its address has no scheme")]
    NoScheme,
    #[error("its address has spaces or control characters")]
    SteeringAddress,
}

/// Pins the entries that can be pinned. Also returns the names of the other entries, each with the
/// reason.
pub(crate) fn pin(listing: &Listing) -> (PinnedOffers, Vec<(String, String)>) {
    let mut left_out = Vec::new();
    let prompt_entries = listing
        .prompts
        .iter()
        .map(|prompt: &Prompt| (PinnedTool::pin(&prompt.name, prompt), check_arguments(prompt)));
    let prompts = pin_list(prompt_entries, &mut left_out);
    let resource_entries = listing.resources.iter().map(|resource: &Resource| {
        (PinnedTool::pin(&resource.uri, resource), check_address(&resource.uri))
    });
    let resources = pin_list(resource_entries, &mut left_out);
    let template_entries = listing.templates.iter().map(|template: &ResourceTemplate| {
        let address = &template.uri_template;
        (PinnedTool::pin(address, template), check_address(address))
    });
    let templates = pin_list(template_entries, &mut left_out);
    (PinnedOffers { prompts, resources, templates }, left_out)
}

/// Pins the entries of one list. Each entry has the result of its own check.
fn pin_list(
    entries: impl Iterator<Item = (PinnedTool, Result<(), OfferError>)>,
    left_out: &mut Vec<(String, String)>,
) -> Vec<PinnedTool> {
    let mut pins: Vec<PinnedTool> = Vec::new();
    for (pin, own_check) in entries {
        match check_entry(&pin, &pins).and(own_check) {
            Ok(()) => pins.push(pin),
            Err(error) => left_out.push((printable_name(&pin.name), error.to_string())),
        }
    }
    pins
}

/// Checks whether an entry can be added to the pins of the previous entries.
fn check_entry(pin: &PinnedTool, pins: &[PinnedTool]) -> Result<(), OfferError> {
    if pins.len() >= MAX_OFFERS {
        return Err(OfferError::TooMany);
    }
    pin.check_size(pins, MAX_OFFER)?;
    if pins.iter().any(|known| known.name == pin.name) {
        return Err(OfferError::SameName);
    }
    Ok(())
}

fn check_arguments(prompt: &Prompt) -> Result<(), OfferError> {
    let count = prompt.arguments.as_ref().map_or(0, Vec::len);
    if count > MAX_ARGUMENTS { Err(OfferError::Arguments) } else { Ok(()) }
}

/// Checks the server's own address of a resource, or a template of addresses.
fn check_address(address: &str) -> Result<(), OfferError> {
    if address.len() > MAX_ADDRESS {
        return Err(OfferError::LongAddress(address.len()));
    }
    let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme);
    let starts_with_letter = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    if !starts_with_letter || !scheme.chars().all(is_of_scheme) {
        return Err(OfferError::NoScheme);
    }
    if neutral_line(address) != address || address.contains(char::is_whitespace) {
        return Err(OfferError::SteeringAddress);
    }
    Ok(())
}

fn is_of_scheme(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+-.".contains(letter)
}

/// The prompts and resources of a server that the host offers.
#[derive(Default)]
pub(crate) struct ServerOffers {
    pub(crate) offers: Offers,
    /// The tools that get the prompts and resources. These tools aren't listed.
    pub(crate) definitions: Vec<Arc<Definition>>,
}

/// The request of a call to a server.
pub(crate) enum OfferRequest {
    /// The resource at this address.
    Resource(String),
    /// A prompt.
    Prompt(GetPromptRequestParams),
}

impl ServerOffers {
    /// Makes the offers of a server from its pins. Prompts with equal names are left out, like
    /// tools with equal names.
    pub(crate) fn new(server: &str, pins: &PinnedOffers, trust_annotations: bool) -> Self {
        let mut offers = Offers { prefix: format!("{server}+"), ..Offers::default() };
        offers.prompts = offered_prompts(server, pins);
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
            offers.reader = offered_name(server, READER).unwrap_or_default();
            definitions.push(unlisted(reader_definition(&offers.reader), annotations));
        }
        if !offers.prompts.is_empty() {
            offers.prompter = offered_name(server, PROMPTER).unwrap_or_default();
            let prompter = prompter_definition(&offers.prompter, &offers.prompts);
            definitions.push(unlisted(prompter, annotations));
        }
        Self { offers, definitions }
    }

    /// Reads the request in a call of one of the two tools. Returns `None` for a call of another
    /// tool.
    ///
    /// # Errors
    ///
    /// Returns an error if the address of the resource isn't valid.
    pub(crate) fn parse_request(&self, call: &Call) -> Result<Option<OfferRequest>, Failure> {
        if call.tool == self.offers.reader {
            let address = text_argument(call, "uri");
            check_address(&address)
                .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))?;
            return Ok(Some(OfferRequest::Resource(address)));
        }
        if call.tool == self.offers.prompter {
            let mut params = GetPromptRequestParams::new(text_argument(call, "name"));
            params.arguments = call.arguments["arguments"].as_object().cloned();
            return Ok(Some(OfferRequest::Prompt(params)));
        }
        Ok(None)
    }
}

fn offered_prompts(server: &str, pins: &PinnedOffers) -> Vec<PromptOffer> {
    let mut names: BTreeMap<String, Vec<&PinnedTool>> = BTreeMap::new();
    for pin in &pins.prompts {
        if let Some(name) = offered_name(server, &pin.name) {
            names.entry(name).or_default().push(pin);
        }
    }
    let mut prompts = Vec::new();
    for (name, pins) in names {
        match pins[..] {
            [pin] => prompts.extend(prompt(name, pin)),
            _ => tracing::warn!("{} prompts of `{server}` would be named `{name}`", pins.len()),
        }
    }
    prompts
}

fn reader_definition(name: &str) -> Definition {
    let uri = json!({ "type": "string", "maxLength": MAX_ADDRESS });
    let schema = json!({
        "type": "object",
        "properties": { "uri": uri },
        "required": ["uri"],
        "additionalProperties": false,
    });
    Definition::new(name, "Reads a resource of the server", schema)
}

fn prompter_definition(name: &str, prompts: &[PromptOffer]) -> Definition {
    let names: Vec<&String> = prompts.iter().map(|prompt| &prompt.own_name).collect();
    let arguments = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let schema = json!({
        "type": "object",
        "properties": { "name": { "enum": names }, "arguments": arguments },
        "required": ["name"],
        "additionalProperties": false,
    });
    Definition::new(name, "Gets a prompt of the server", schema)
}

/// Completes the definition of a tool of the server that isn't listed.
fn unlisted(mut definition: Definition, annotations: Annotations) -> Arc<Definition> {
    definition.foreign = true;
    definition.unlisted = true;
    definition.annotations = annotations;
    Arc::new(definition)
}

fn text_argument(call: &Call, name: &str) -> String {
    call.arguments[name].as_str().unwrap_or_default().to_owned()
}

/// Parses the definition of a pin.
fn parse_definition(pin: &PinnedTool) -> Value {
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

/// Makes the offer of a prompt. Returns `None` if an argument can't be offered.
fn prompt(name: String, pin: &PinnedTool) -> Option<PromptOffer> {
    let definition = parse_definition(pin);
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

/// Makes the offer of a prompt's argument. Returns `None` if the name isn't neutral. A client sends
/// the name back, so the name can't be changed.
fn prompt_argument(argument: &Value) -> Option<PromptOfferArgument> {
    let name = argument["name"].as_str()?;
    if neutral_line(name) != name {
        return None;
    }
    Some(PromptOfferArgument {
        name: name.to_owned(),
        title: line(argument, "title"),
        description: description(argument),
        required: argument["required"] == true,
    })
}

fn resource(server: &str, prefix: &str, pin: &PinnedTool, is_template: bool) -> ResourceOffer {
    let definition = parse_definition(pin);
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
