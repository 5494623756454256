//! Explains selectors of `web_scrape` that match nothing, with names that the page has.

use std::collections::{BTreeMap, BTreeSet};

use scraper::node::Element;
use scraper::{Html, Node};
use serde_json::{Map, json};
use toolhold_sdk::{Category, Content, Failure};

use super::{Attributes, Extract, Query};

/// The greatest number of names of each kind in a failure.
const MAX_NAMES: usize = 30;

/// The longest name in a failure, in bytes.
const MAX_NAME: usize = 60;

/// The failure for selectors without a match. The page's names are a separate part, since they are
/// untrusted text.
pub(super) fn failure(query: &Query, page: &Html) -> Failure {
    let sources: Vec<&str> = match &query.items {
        Some((source, _)) => vec![source],
        None => query.fields.iter().map(|field| field.source.as_str()).collect(),
    };
    let mut tags = BTreeMap::new();
    let mut classes = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for node in page.tree.nodes() {
        let Node::Element(element) = node.value() else { continue };
        count(&mut tags, element.name());
        element.classes().take(8).for_each(|class| count(&mut classes, class));
        if let Some(id) = element.id() {
            count(&mut ids, id);
        }
    }
    let names: Vec<String> = sources.iter().flat_map(|source| names_in(source)).collect();
    let names_on_page = json!({ "tags": choose_nearest(tags, &names), "classes": choose_nearest(classes, &names), "ids": choose_nearest(ids, &names) });
    let selectors =
        sources.iter().map(|source| format!("`{source}`")).collect::<Vec<_>>().join(", ");
    let message = format!("nothing on the page matches {selectors}");
    let advice = "Use names that the page has, or read it with fetch first. Scripts are not run, so elements that they create are missing.";
    let part = Content {
        media_type: Some("application/json".to_owned()),
        ..Content::text(names_on_page.to_string())
    };
    Failure::new(Category::InvalidParameters, message)
        .with_code("no-match")
        .with_suggestion(advice)
        .with_content(part)
}

/// The failure if no element has the requested attribute.
pub(super) fn attribute_failure(message: &str, part: Content) -> Failure {
    let advice =
        "Use an attribute that the elements have, or leave `extract` out to get their texts.";
    Failure::new(Category::InvalidParameters, message)
        .with_code("no-attribute")
        .with_suggestion(advice)
        .with_content(part)
}

/// Finds the fields whose elements all lack the requested attribute. The attributes that they have
/// are a separate part. `None` if there is no such field.
pub(super) fn find_lacking(
    query: &Query,
    attributes: &BTreeMap<&str, Attributes>,
) -> Option<(String, Content)> {
    let mut messages = Vec::new();
    let mut present = Map::new();
    for field in &query.fields {
        let Extract::Attribute(name) = &field.extract else { continue };
        let Some(of_field) =
            attributes.get(field.name.as_str()).filter(|attributes| !attributes.found)
        else {
            continue;
        };
        messages
            .push(format!("no element that `{}` selects has the attribute `{name}`", field.source));
        present.insert(field.source.clone(), json!(of_field.others));
    }
    let part = json!({ "attributes": present }).to_string();
    let part = Content { media_type: Some("application/json".to_owned()), ..Content::text(part) };
    (!messages.is_empty()).then(|| (messages.join("; "), part))
}

/// Adds the names of an element's attributes.
pub(super) fn add_names(names: &mut BTreeSet<String>, element: &Element) {
    for (name, _) in element.attrs().filter(|(name, _)| name.len() <= MAX_NAME) {
        if names.len() >= MAX_NAMES {
            return;
        }
        if !names.contains(name) {
            names.insert(name.to_owned());
        }
    }
}

fn count<'a>(counts: &mut BTreeMap<&'a str, usize>, name: &'a str) {
    if !name.is_empty() && name.len() <= MAX_NAME {
        *counts.entry(name).or_default() += 1;
    }
}

/// The names in a selector.
fn names_in(source: &str) -> Vec<String> {
    source
        .split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'))
        .filter(|name| name.len() > 1)
        .map(str::to_lowercase)
        .collect()
}

/// Chooses names: first those similar to the requested ones, then the most frequent.
fn choose_nearest<'a>(counts: BTreeMap<&'a str, usize>, wanted: &[String]) -> Vec<&'a str> {
    let mut names: Vec<(bool, usize, &str)> =
        counts.into_iter().map(|(name, count)| (is_near(name, wanted), count, name)).collect();
    names.sort_by(|one, other| (other.0, other.1, one.2).cmp(&(one.0, one.1, other.2)));
    names.into_iter().take(MAX_NAMES).map(|(_, _, name)| name).collect()
}

/// Whether a name is like one of the wanted names.
fn is_near(name: &str, wanted: &[String]) -> bool {
    let name = name.to_lowercase();
    wanted
        .iter()
        .any(|wanted| name.contains(wanted.as_str()) || (name.len() > 2 && wanted.contains(&name)))
}
