//! Decides which prompts and resources of an upstream server the host offers.
//!
//! Lists of prompts and resources are pinned like tools. Their contents aren't pinned, because they
//! are like answers of tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{GetPromptRequestParams, Prompt};
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

/// Largest entry of a list as JSON text, in bytes. A larger entry isn't offered.
const MAX_ENTRY_BYTES: usize = 16 * 1024;

/// Most arguments of a prompt. A prompt with more isn't offered.
const MAX_ARGUMENTS: usize = 32;

/// Longest address in bytes. A resource with a longer address isn't offered.
const MAX_ADDRESS: usize = 2 * 1024;

/// The reason why a prompt or a resource isn't offered.
#[derive(Debug, thiserror::Error)]
enum OfferError {
    #[error("the server offers more than {MAX_OFFERS}, the limit")]
    TooMany,
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("another prompt or resource has this name")]
    SameName,
    #[error("the prompt has more than {MAX_ARGUMENTS} arguments, the limit")]
    Arguments,
    #[error("the address is {0} bytes; the limit is {MAX_ADDRESS}")]
    LongAddress(usize),
    #[error("the address has no scheme")]
    NoScheme,
    #[error("the address has spaces or control characters")]
    AddressLetters,
}

/// Pins the entries of `listing`. Also returns the names of unpinned entries, with the reasons.
pub(crate) fn pin(listing: &Listing) -> (PinnedOffers, Vec<(String, String)>) {
    let mut left_out = Vec::new();
    let mut prompts = Vec::new();
    for prompt in &listing.prompts {
        let pin = PinnedTool::pin(&prompt.name, prompt);
        add_pin(pin, check_arguments(prompt), &mut prompts, &mut left_out);
    }
    let mut resources = Vec::new();
    for resource in &listing.resources {
        let pin = PinnedTool::pin(&resource.uri, resource);
        add_pin(pin, check_address(&resource.uri), &mut resources, &mut left_out);
    }
    let mut templates = Vec::new();
    for template in &listing.templates {
        let address = &template.uri_template;
        let pin = PinnedTool::pin(address, template);
        add_pin(pin, check_address(address), &mut templates, &mut left_out);
    }
    (PinnedOffers { prompts, resources, templates }, left_out)
}

/// Adds an entry to `pins`, or its name and the reason to `left_out` if the entry can't be pinned.
/// `entry_check` is the result of a check without the other entries.
fn add_pin(
    pin: PinnedTool,
    entry_check: Result<(), OfferError>,
    pins: &mut Vec<PinnedTool>,
    left_out: &mut Vec<(String, String)>,
) {
    match check_entry(&pin, pins).and(entry_check) {
        Ok(()) => pins.push(pin),
        Err(error) => left_out.push((printable_name(&pin.name), error.to_string())),
    }
}

/// Checks whether an entry can be pinned together with the earlier `pins`.
fn check_entry(pin: &PinnedTool, pins: &[PinnedTool]) -> Result<(), OfferError> {
    if pins.len() >= MAX_OFFERS {
        return Err(OfferError::TooMany);
    }
    pin.check_size(pins, MAX_ENTRY_BYTES)?;
    if pins.iter().any(|known| known.name == pin.name) {
        return Err(OfferError::SameName);
    }
    Ok(())
}

fn check_arguments(prompt: &Prompt) -> Result<(), OfferError> {
    let count = prompt.arguments.as_ref().map_or(0, Vec::len);
    if count > MAX_ARGUMENTS { Err(OfferError::Arguments) } else { Ok(()) }
}

/// Checks the address of a resource, or a template of addresses. The scheme must be valid, and
/// characters that could mislead a reader are refused.
fn check_address(address: &str) -> Result<(), OfferError> {
    if address.len() > MAX_ADDRESS {
        return Err(OfferError::LongAddress(address.len()));
    }
    let Some((scheme, _)) = address.split_once(':') else { return Err(OfferError::NoScheme) };
    let starts_with_letter = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    if !starts_with_letter || !scheme.chars().all(can_be_in_scheme) {
        return Err(OfferError::NoScheme);
    }
    if neutral_line(address) != address || address.contains(char::is_whitespace) {
        return Err(OfferError::AddressLetters);
    }
    Ok(())
}

fn can_be_in_scheme(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+-.".contains(letter)
}

#[derive(Default)]
pub(crate) struct ServerOffers {
    pub(crate) offers: Offers,
    /// The tools that get the prompts and resources. The list of tools doesn't contain them.
    pub(crate) definitions: Vec<Arc<Definition>>,
}

/// The request that a call makes at the server.
pub(crate) enum OfferRequest {
    /// Reads the resource at this address.
    Resource(String),
    Prompt(GetPromptRequestParams),
}

impl ServerOffers {
    /// Makes the offers from the pins, and the definitions of the tools that read resources and get
    /// prompts. Prompts whose names become equal are left out.
    pub(crate) fn new(server: &str, pins: &PinnedOffers, trust_annotations: bool) -> Self {
        let mut offers = Offers { prefix: format!("{server}+"), ..Offers::default() };
        offers.prompts = offered_prompts(server, pins);
        for pin in &pins.resources {
            let is_template = false;
            offers.resources.push(resource(server, &offers.prefix, pin, is_template));
        }
        for pin in &pins.templates {
            let is_template = true;
            offers.resources.push(resource(server, &offers.prefix, pin, is_template));
        }

        let mut definitions = Vec::new();
        // Reading a resource or a prompt should change nothing, but only a trusted server is
        // believed to keep to this.
        let annotations = if trust_annotations {
            Annotations { read_only: true, destructive: false, ..Annotations::default() }
        } else {
            Annotations::default()
        };
        // The names of servers are short, so the names of both tools are within the limit.
        if pins.has_resources() {
            offers.reader = offered_name(server, READER).unwrap_or_default();
            definitions.push(into_unlisted(reader_definition(&offers.reader), annotations));
        }
        if !offers.prompts.is_empty() {
            offers.prompter = offered_name(server, PROMPTER).unwrap_or_default();
            let prompter = prompter_definition(&offers.prompter, &offers.prompts);
            definitions.push(into_unlisted(prompter, annotations));
        }
        Self { offers, definitions }
    }

    /// Reads the request of a call. Returns `None` if the call isn't for a prompt or resource.
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

/// Makes the offers of prompts. Prompts whose names become equal are left out.
fn offered_prompts(server: &str, pins: &PinnedOffers) -> Vec<PromptOffer> {
    let mut pins_by_name: BTreeMap<String, Vec<&PinnedTool>> = BTreeMap::new();
    for pin in &pins.prompts {
        if let Some(name) = offered_name(server, &pin.name) {
            pins_by_name.entry(name).or_default().push(pin);
        }
    }
    let mut prompts = Vec::new();
    for (name, pins) in pins_by_name {
        let [pin] = pins[..] else {
            tracing::warn!(
                "{} prompts of the server `{server}` would have the name `{name}`",
                pins.len()
            );
            continue;
        };
        if let Some(prompt) = prompt(name, pin) {
            prompts.push(prompt);
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

fn into_unlisted(mut definition: Definition, annotations: Annotations) -> Arc<Definition> {
    definition.foreign = true;
    definition.unlisted = true;
    definition.annotations = annotations;
    Arc::new(definition)
}

fn text_argument(call: &Call, name: &str) -> String {
    call.arguments[name].as_str().unwrap_or_default().to_owned()
}

fn parse_definition(pin: &PinnedTool) -> Value {
    serde_json::from_str(&pin.definition).unwrap_or_default()
}

fn neutral_field(definition: &Value, key: &str) -> Option<String> {
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
    let mut arguments = Vec::new();
    if let Some(raw_arguments) = definition.get("arguments").and_then(Value::as_array) {
        for argument in raw_arguments {
            arguments.push(prompt_argument(argument)?);
        }
    }
    Some(PromptOffer {
        name,
        own_name: pin.name.clone(),
        title: neutral_field(&definition, "title"),
        description: description(&definition),
        arguments,
    })
}

/// Makes the offer of an argument. Returns `None` if the name has control characters. A client
/// sends the name back, so Toolhold can't change the name.
fn prompt_argument(argument: &Value) -> Option<PromptOfferArgument> {
    let name = argument["name"].as_str()?;
    if neutral_line(name) != name {
        return None;
    }
    Some(PromptOfferArgument {
        name: name.to_owned(),
        title: neutral_field(argument, "title"),
        description: description(argument),
        required: argument["required"] == true,
    })
}

/// Makes the offer of a resource, or of a template for resources. `prefix` contains the server's
/// name, because two servers may have resources at the same address.
fn resource(server: &str, prefix: &str, pin: &PinnedTool, is_template: bool) -> ResourceOffer {
    let definition = parse_definition(pin);
    ResourceOffer {
        uri: format!("{prefix}{}", pin.name),
        is_template,
        name: format!("{server}__{}", neutral_field(&definition, "name").unwrap_or_default()),
        title: neutral_field(&definition, "title"),
        description: description(&definition),
        media_type: neutral_field(&definition, "mimeType"),
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
            json!({ "name": "large", "description": "x".repeat(MAX_ENTRY_BYTES) }),
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
