//! `web_scrape`: extracts values from a page by CSS selectors.

mod no_match;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use html5ever::serialize::{SerializeOpts, TraversalScope, serialize};
use schemars::{JsonSchema, Schema};
use scraper::{ElementRef, Html, Node, Selector};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolhold_sdk::{Access, Call, Content, Failure, Output, Promises, Subject, SubjectKind, Tool};
use url::Url;

use crate::fetch::success;
use crate::page::charset;
use crate::page::dom::Dom;
use crate::request::{self, Kind};

/// The default number of values.
const DEFAULT_LIMIT: usize = 10;

/// The greatest number of values.
const MAX_LIMIT: usize = 1_000;

/// The greatest number of bytes of one value.
const MAX_VALUE: usize = 20_000;

/// The greatest number of bytes of all values. The answer contains them twice.
const MAX_ALL: usize = 500_000;

/// The greatest number of bytes of a selector.
const MAX_SELECTOR: usize = 1_000;

/// The greatest number of named fields.
const MAX_FIELDS: usize = 50;

pub(crate) struct WebScrape;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    url: String,
    /// A CSS selector, or named fields: {"title": "h1", "links": {"select": "a", "extract":
    /// "attr:href"}}.
    select: Select,
    /// `text`, `html`, or an attribute as `attr:href`. Default: `text`.
    #[schemars(regex(pattern = r"^(text|html|attr:[A-Za-z_:][A-Za-z0-9_.:-]*)$"))]
    extract: Option<String>,
    /// Values of each field, or items. Default: 10.
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
    /// With named fields: the selector of elements with one value of every field, such as the rows
    /// of a list.
    items: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Select {
    One(String),
    Named(BTreeMap<String, Field>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Field {
    Selector(String),
    Full(FullField),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FullField {
    select: String,
    extract: Option<String>,
}

/// The values that were found, for programs. It is stable: fields may be added, but never change.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Envelope {
    /// The URL of the page, after redirects.
    url: String,
    /// For one selector a list of values; for named fields an object of lists; with `items` a list
    /// of objects, with null for values that an item doesn't have.
    results: Value,
    /// The number of elements, including those beyond the limit: of the selector, of `items`, or of
    /// all fields together.
    total: usize,
    /// Whether values were left out or cut.
    truncated: bool,
    /// The requested attributes that none of the selected elements has, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

impl Tool for WebScrape {
    const NAME: &str = "web_scrape";
    const TITLE: Option<&str> = Some("Scrape a page");
    const DESCRIPTION: &str = "\
        Takes single values from a web page by CSS selectors: texts, HTML or attributes. Use it \
        for a page whose structure you know; use fetch to read a page. Returns a list for one selector, an object of lists for named fields, a list of \
        objects with items. If nothing matches, the answer lists the tags, classes and ids of the \
        page.";
    const PROMISES: Promises = Promises { closed_world: false, ..Promises::READ_ONLY };
    const SUBJECTS: &[Subject] = &[Subject::new("/url", SubjectKind::Url, Access::Read)];
    const ALIASES: &[&str] = &["web-scrape"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] =
        &[("url", &["uri"]), ("select", &["selector", "selectors"])];
    const FENCE: Option<&str> = Some("scrape");
    const ANSWERS_IN_TEXT: bool = true;
    type Arguments = Arguments;

    fn output_schema() -> Option<Schema> {
        Some(toolhold_sdk::schema::for_type::<Envelope>())
    }

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        // Wrong arguments fail before a request is sent.
        let query = Query::new(&arguments)?;
        let answer = success(
            request::build("GET", &arguments.url)
                .header("accept", "text/html, application/xhtml+xml")
                .send()?,
        )?;
        if request::body_kind(&answer.media_type(), &answer.body) == Kind::Binary {
            let message = format!("the answer is not a page: its type is {}", answer.media_type());
            return Err(Failure::permanent("no-page", message));
        }
        let text = charset::decode(&answer.body, answer.header("content-type").unwrap_or_default());
        let dom = Dom::parse(&text);
        let base = Url::parse(&answer.url)
            .map_err(|error| Failure::permanent("url", error.to_string()))?;
        let truncated = answer.cut || dom.cut;
        let mut collector = Collector {
            base,
            room: MAX_ALL,
            total: 0,
            truncated,
            is_empty: true,
            attributes: BTreeMap::new(),
        };
        let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let results = collector.collect_results(&query, &dom.html, limit);
        if collector.total == 0 {
            return Err(no_match::failure(&query, &dom.html));
        }
        let lacking = no_match::find_lacking(&query, &collector.attributes);
        if let Some((message, part)) = &lacking
            && collector.is_empty
        {
            return Err(no_match::attribute_failure(message, part.clone()));
        }
        let (missing, others) = lacking.unzip();
        let envelope = Envelope {
            url: answer.url,
            results,
            total: collector.total,
            truncated: collector.truncated,
            missing,
        };
        let text = serde_json::to_string_pretty(&envelope)?;
        let part =
            Content { media_type: Some("application/json".to_owned()), ..Content::text(text) };
        let mut output = Output::from(part);
        if let Some(part) = others {
            output = output.with(part);
        }
        output.with_structured(&envelope)
    }
}

/// The parsed arguments.
struct Query {
    fields: Vec<FieldQuery>,
    /// Whether the fields have names. Otherwise there is one field without a name.
    named: bool,
    items: Option<(String, Selector)>,
}

struct FieldQuery {
    name: String,
    source: String,
    selector: Selector,
    extract: Extract,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Extract {
    Text,
    Html,
    Attribute(String),
}

impl Query {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let extract = Extract::parse(arguments.extract.as_deref())?;
        let object = match &arguments.select {
            Select::One(text) => as_object(text)?,
            Select::Named(_) => None,
        };
        let (fields, named) = match object.as_ref().unwrap_or(&arguments.select) {
            Select::One(source) => (vec![field_query("", source, extract)?], false),
            Select::Named(fields) if fields.is_empty() || fields.len() > MAX_FIELDS => {
                return Err(Failure::invalid(format!(
                    "`select` has {} fields; it takes 1 to {MAX_FIELDS}",
                    fields.len()
                )));
            }
            Select::Named(fields) => {
                let queries = fields.iter().map(|(name, field)| match field {
                    Field::Selector(source) => field_query(name, source, extract.clone()),
                    Field::Full(field) => {
                        let own = field
                            .extract
                            .as_deref()
                            .map(|own| Extract::parse(Some(own)))
                            .transpose()?;
                        field_query(name, &field.select, own.unwrap_or_else(|| extract.clone()))
                    }
                });
                (queries.collect::<Result<_, _>>()?, true)
            }
        };
        let items = arguments
            .items
            .as_deref()
            .map(|source| Ok::<_, Failure>((source.to_owned(), selector(source)?)))
            .transpose()?;
        if items.is_some() && !named {
            return Err(Failure::invalid("`items` needs named fields")
                .with_suggestion("Set `select` to an object: {\"name\": \"selector\"}."));
        }
        Ok(Self { fields, named, items })
    }
}

fn field_query(name: &str, source: &str, extract: Extract) -> Result<FieldQuery, Failure> {
    Ok(FieldQuery {
        name: name.to_owned(),
        source: source.to_owned(),
        selector: selector(source)?,
        extract,
    })
}

/// The object of named fields, if a model wrote it as a JSON text. No selector starts with `{`.
fn as_object(text: &str) -> Result<Option<Select>, Failure> {
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    match serde_json::from_str(text) {
        Ok(fields) => Ok(Some(Select::Named(fields))),
        Err(error) => Err(Failure::invalid(format!(
            "`select` starts like an object of named fields, but isn't valid: {error}"
        ))
        .with_suggestion("Use a CSS selector, or an object: {\"name\": \"selector\"}.")),
    }
}

impl Extract {
    fn parse(text: Option<&str>) -> Result<Self, Failure> {
        match text {
            None | Some("text") => Ok(Self::Text),
            Some("html") => Ok(Self::Html),
            Some(other) => match other.strip_prefix("attr:").filter(|name| !name.is_empty()) {
                Some(name) => Ok(Self::Attribute(name.to_ascii_lowercase())),
                None => Err(Failure::invalid(format!(
                    "extract is {other:?}; use `text`, `html` or `attr:NAME`"
                ))),
            },
        }
    }
}

/// Parses a selector. The failure says where it is wrong.
fn selector(source: &str) -> Result<Selector, Failure> {
    if source.len() > MAX_SELECTOR {
        return Err(Failure::invalid(format!(
            "a selector is {} bytes; the limit is {MAX_SELECTOR}",
            source.len()
        )));
    }
    Selector::parse(source).map_err(|_| {
        let good = source
            .char_indices()
            .map(|(at, _)| at)
            .filter(|at| *at > 0)
            .rev()
            .find(|end| Selector::parse(&source[..*end]).is_ok())
            .unwrap_or(0);
        let place =
            if good == 0 { "at its start".to_owned() } else { format!("after `{}`, at `{}`", &source[..good], &source[good..]) };
        let advice = if source.starts_with('/') || source.contains("//") || source.contains('@') {
            "This is XPath. Use a CSS selector: `div.price`, `table tr > td:nth-child(2)`, `a[href]`."
        } else if source.contains(":contains") || source.contains(":has-text") || source.contains(":text") {
            "CSS can't search for words. Select the elements, and check their texts."
        } else if [":eq(", ":first", ":last", ":gt(", ":lt("].iter().any(|part| source.contains(part)) {
            "Use `:nth-of-type(1)`, `:last-of-type`, or `limit`."
        } else {
            "Use a CSS selector: `div.price`, `#main h2`, `table tr > td:nth-child(2)`, `a[href^=\"/news\"]`."
        };
        Failure::invalid(format!("the selector `{source}` isn't valid {place}")).with_suggestion(advice)
    })
}

/// Collects values, up to the limits.
struct Collector<'w> {
    base: Url,
    room: usize,
    total: usize,
    truncated: bool,
    /// Whether there is no value so far.
    is_empty: bool,
    /// The attributes of the elements, for each field that asks for an attribute.
    attributes: BTreeMap<&'w str, Attributes>,
}

/// The attributes of a field's elements.
#[derive(Default)]
struct Attributes {
    /// Whether one of them has the requested attribute.
    found: bool,
    /// The names of the others.
    others: BTreeSet<String>,
}

impl<'w> Collector<'w> {
    fn collect_results(&mut self, query: &'w Query, page: &Html, limit: usize) -> Value {
        if let Some((_, items)) = &query.items {
            let mut rows = Vec::new();
            for item in page.select(items) {
                self.total += 1;
                if rows.len() >= limit {
                    self.truncated = true;
                    continue;
                }
                let mut row = Map::new();
                for field in &query.fields {
                    let first =
                        item.select(&field.selector).find_map(|element| self.value(element, field));
                    row.insert(field.name.clone(), first.map_or(Value::Null, Value::String));
                }
                rows.push(Value::Object(row));
            }
            return Value::Array(rows);
        }
        let mut fields = Map::new();
        for field in &query.fields {
            let mut values = Vec::new();
            for element in page.select(&field.selector) {
                self.total += 1;
                if values.len() >= limit {
                    self.truncated = true;
                } else if let Some(value) = self.value(element, field) {
                    values.push(Value::String(value));
                }
            }
            if !query.named {
                return Value::Array(values);
            }
            fields.insert(field.name.clone(), Value::Array(values));
        }
        Value::Object(fields)
    }

    /// The value of a field in an element; `None` if the element lacks the attribute.
    fn value(&mut self, element: ElementRef<'_>, field: &'w FieldQuery) -> Option<String> {
        let most = MAX_VALUE.min(self.room);
        let mut value = match &field.extract {
            Extract::Text => text(element, most),
            Extract::Html => html(element, most),
            Extract::Attribute(name) => {
                let attributes = self.attributes.entry(&field.name).or_default();
                let Some(value) = element.attr(name) else {
                    no_match::add_names(&mut attributes.others, element.value());
                    return None;
                };
                attributes.found = true;
                let is_address =
                    matches!(name.as_str(), "href" | "src" | "action" | "poster" | "data");
                let absolute = is_address.then(|| self.base.join(value.trim()).ok()).flatten();
                absolute.map_or_else(|| value.to_owned(), String::from)
            }
        };
        if value.len() > most {
            self.truncated = true;
            value.truncate(value.floor_char_boundary(most));
        }
        self.room -= value.len();
        self.is_empty = false;
        Some(value)
    }
}

/// The visible text of an element, without scripts and styles, and with single spaces. It stops
/// after the first word that exceeds `most` bytes.
fn text(element: ElementRef<'_>, most: usize) -> String {
    let mut text = String::new();
    let mut space = false;
    for node in element.descendants() {
        let Node::Text(part) = node.value() else { continue };
        let within = node
            .parent()
            .and_then(|parent| parent.value().as_element().map(|element| element.name()));
        if matches!(within, Some("script" | "style" | "noscript" | "template")) {
            continue;
        }
        space |= part.starts_with(char::is_whitespace);
        for word in part.split_whitespace() {
            if space && !text.is_empty() {
                text.push(' ');
            }
            text.push_str(word);
            space = true;
            if text.len() > most {
                return text;
            }
        }
        space &= part.is_empty() || part.ends_with(char::is_whitespace) || part.trim().is_empty();
    }
    text
}

/// The HTML of an element, cut after about `most` bytes. The bound is needed because elements
/// contain each other, and a selector can match all of them.
fn html(element: ElementRef<'_>, most: usize) -> String {
    let mut bounded = BoundedWriter { bytes: Vec::new(), most };
    let options = SerializeOpts {
        traversal_scope: TraversalScope::IncludeNode,
        scripting_enabled: false,
        create_missing_parent: false,
    };
    // It fails only if the writer is full.
    let _ = serialize(&mut bounded, &element, options);
    String::from_utf8_lossy(&bounded.bytes).into_owned()
}

/// A writer that fails after `most` bytes.
struct BoundedWriter {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() > self.most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
