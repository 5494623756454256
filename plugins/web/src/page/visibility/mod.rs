//! Finds the text that a person doesn't see on a page, so that a model doesn't get it.
//!
//! Three kinds are told apart. What isn't rendered at all, such as scripts and hidden elements, is
//! left out. Tab panels are rendered after a click, so they stay. Text that is rendered so that
//! nobody can see it, such as text of size 0, has no honest reader but programs: it is left out,
//! and the answer says so. Labels for screen readers have the same form. They go too, since their
//! class can't be trusted, but they aren't worth a note.

use std::collections::HashSet;

use scraper::node::Element;
use scraper::{ElementRef, Html};

use super::flat::{Flat, What};
use super::style::{self, Cascade, Rule, colour, pixels};

/// The items that a person doesn't see.
pub(super) struct Visibility {
    /// Which items are left out, each with its content.
    pub(super) gone: Vec<bool>,
    /// The number of letters that are rendered invisibly, without labels.
    pub(super) invisible: usize,
    /// Whether nearly all of the text is faded. It stays, since a script shows it.
    pub(super) faded: bool,
}

/// The greatest number of letters of a label for screen readers.
const MAX_LABEL: usize = 40;
/// The greatest number of comparisons of an element with a selector.
const MAX_MATCHES: usize = 3_000_000;
/// The size in pixels below which a text is unreadable.
const MIN_SIZE: f64 = 2.0;
/// The distance in pixels from which on a part is taken for off-screen. Less is usual for slides.
const OFF_SCREEN: f64 = 2_000.0;
/// The same for shifts, which carousels use for their whole strip.
const FAR_SHIFT: f64 = 5_000.0;

/// The properties that an element and its content inherit.
#[derive(Clone, Copy)]
struct Sight {
    /// Text is too small.
    tiny: bool,
    /// `visibility: hidden`.
    hidden: bool,
    /// Text is moved away by its indent.
    indented: bool,
    /// The text's colour, where it is known.
    colour: Option<[u8; 4]>,
    /// The colour behind the text, where it is known.
    behind: Option<[u8; 4]>,
    /// Neither this element nor its content can become visible.
    lost: Option<Lost>,
}

impl Sight {
    const CLEAR: Self = Self {
        tiny: false,
        hidden: false,
        indented: false,
        colour: None,
        behind: None,
        lost: None,
    };
}

/// How a whole element is made invisible.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// By its opacity. A script may show it later.
    Faded,
    /// By its place or a clip. Labels for screen readers are hidden so.
    Clipped,
}

impl Visibility {
    pub(super) fn new(html: &Html, flat: &Flat<'_>) -> Self {
        let panels = tab_panels(flat);
        let mut gone: Vec<bool> = (0..flat.items.len())
            .map(|at| {
                flat.element(at).is_some_and(|element| {
                    is_unrendered(element) || is_switched_off(element) && !panels.contains(&at)
                })
            })
            .collect();
        let styles = styles(html, flat);
        let mut invisible = Vec::new();
        let mut sights: Vec<Sight> = Vec::with_capacity(flat.items.len());
        let mut at = 0;
        while at < flat.items.len() {
            let parent = sights.get(flat.items[at].parent).copied().unwrap_or(Sight::CLEAR);
            match flat.items[at].what {
                What::Element(element) => {
                    let sight = sight(parent, element, &styles[at]);
                    if sight.lost.is_some() && !gone[at] {
                        invisible.push((at, sight.lost));
                    }
                    // Images and the like have no text of their own.
                    gone[at] |= sight.hidden && flat.items[at].end == at + 1;
                    sights.push(sight);
                    if gone[at] || sight.lost.is_some() {
                        sights.resize(flat.items[at].end, sight);
                        at = flat.items[at].end;
                        continue;
                    }
                }
                What::Text(_) => {
                    if is_invisible(parent) {
                        invisible.push((at, None));
                    }
                    sights.push(parent);
                }
            }
            at += 1;
        }
        let mut all = Self { gone, invisible: 0, faded: false };
        all.leave_out(flat, invisible);
        all
    }

    /// Leaves out invisible items. A page that is faded as a whole is shown by a script, so it
    /// stays.
    fn leave_out(&mut self, flat: &Flat<'_>, invisible: Vec<(usize, Option<Lost>)>) {
        let body = flat.find(0..flat.items.len(), "body").unwrap_or(0);
        let all = count_letters(flat, body);
        for (at, lost) in invisible {
            let many = count_letters(flat, at);
            if lost == Some(Lost::Faded) && many * 10 > all * 9 {
                self.faded = true;
                continue;
            }
            if lost == Some(Lost::Clipped) && stands_for_hidden_text(flat, at) {
                continue;
            }
            self.gone[at] = true;
            let is_label = lost == Some(Lost::Clipped) && many <= MAX_LABEL;
            self.invisible += if is_label { 0 } else { many };
        }
    }
}

/// The letters and digits in an item.
fn count_letters(flat: &Flat<'_>, index: usize) -> usize {
    (index..flat.items[index].end)
        .filter_map(|at| match flat.items[at].what {
            What::Text(text) => Some(text.chars().filter(|c| c.is_alphanumeric()).count()),
            What::Element(_) => None,
        })
        .sum()
}

/// Whether an element is never rendered, or has no readable text.
fn is_unrendered(element: &Element) -> bool {
    const UNSEEN: [&str; 28] = [
        "script", "style", "noscript", "template", "head", "link", "meta", "svg", "canvas",
        "iframe", "object", "embed", "audio", "video", "map", "button", "input", "select",
        "textarea", "datalist", "progress", "meter", "dialog", "frame", "frameset", "param",
        "source", "track",
    ];
    UNSEEN.contains(&element.name())
        && (element.attr("type") != Some("checkbox") || element.name() != "input")
}

/// Whether an element is hidden until something shows it.
fn is_switched_off(element: &Element) -> bool {
    element.attr("hidden").is_some_and(|value| value != "until-found")
        || element.attr("aria-hidden") == Some("true") && element.name() != "img"
        || element
            .attr("style")
            .is_some_and(|style| style::declarations(style).value("display") == Some("none"))
}

/// The hidden panels that belong to a tab: it names them, or there is a tab for each panel. A page
/// can't keep a text by calling it a panel, since a person sees no tab for it.
fn tab_panels(flat: &Flat<'_>) -> HashSet<usize> {
    let count = flat.items.len();
    let mut tabs = vec![0_usize; count + 1];
    let mut panels = vec![0_usize; count + 1];
    let mut named: HashSet<&str> = HashSet::new();
    for at in 0..count {
        let tab = flat.element(at).is_some() && is_tab(flat, at);
        tabs[at + 1] = tabs[at] + usize::from(tab);
        panels[at + 1] = panels[at] + usize::from(flat.attribute(at, "role") == Some("tabpanel"));
        if tab {
            named.extend(flat.attribute(at, "aria-controls"));
        }
    }
    let mut found = HashSet::new();
    for at in (0..count).filter(|&at| flat.attribute(at, "role") == Some("tabpanel")) {
        if let Some(id) = flat.attribute(at, "id")
            && named.remove(id)
        {
            found.insert(at);
            continue;
        }
        let container = flat.around(at).take(4).find(|&around| within(flat, &tabs, around) > 0);
        if let Some(container) = container {
            let many = within(flat, &tabs, container);
            if many >= 2 && within(flat, &panels, container) <= many {
                found.insert(at);
            }
        }
    }
    found
}

/// Whether an item is a tab that a person sees.
fn is_tab(flat: &Flat<'_>, index: usize) -> bool {
    flat.attribute(index, "role") == Some("tab")
        && letters(flat, index).next().is_some()
        && std::iter::once(index).chain(flat.around(index)).all(|around| {
            flat.element(around).is_none_or(|element| {
                let style = element.attr("style").map(style::declarations).unwrap_or_default();
                let sight = sight(Sight::CLEAR, element, &style);
                !is_switched_off(element) && sight.lost.is_none() && !is_invisible(sight)
            })
        })
}

/// The sum for the content of an item. `sums`: the sums up to each item.
fn within(flat: &Flat<'_>, sums: &[usize], index: usize) -> usize {
    sums[flat.items[index].end] - sums[index]
}

/// The declarations for each element, weakest first: of the page's sheets, then its own.
fn styles(html: &Html, flat: &Flat<'_>) -> Vec<Cascade> {
    let sheets: Vec<String> = (0..flat.items.len())
        .filter(|&at| flat.name(at) == "style" && flat.attribute(at, "media") != Some("print"))
        .map(|at| flat.text(at))
        .collect();
    let mut rules: Vec<Rule> = style::rules(sheets.iter().map(String::as_str));
    rules.truncate(MAX_MATCHES / flat.items.len().max(1));
    let mut styles = vec![Cascade::default(); flat.items.len()];
    if !rules.is_empty() {
        // Both lists are in the order of the page.
        let places = (0..flat.items.len()).filter(|&at| flat.element(at).is_some());
        let elements = html.root_element().descendants().filter_map(ElementRef::wrap);
        for (at, element) in places.zip(elements) {
            for rule in rules.iter().filter(|rule| rule.selector.matches(&element)) {
                styles[at].add(&rule.declarations);
            }
        }
    }
    for (at, styles) in styles.iter_mut().enumerate() {
        if let Some(own) = flat.attribute(at, "style") {
            styles.add(&style::declarations(own));
        }
    }
    styles
}

/// The properties that an element inherits and declares.
fn sight(parent: Sight, element: &Element, style: &Cascade) -> Sight {
    let mut sight = parent;
    for declaration in style.iter() {
        let size = match declaration.name {
            "font-size" => Some(declaration.value.as_str()),
            "font" => size_in_font(&declaration.value),
            _ => None,
        };
        if let Some(size) = size {
            // A share of nothing is nothing.
            let is_share = size.ends_with('%') || size.ends_with("em") && !size.ends_with("rem");
            // A share refers to the size around it, which is about 16 pixels.
            let share = size.strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok());
            match share.map(|share| share * 0.16).or_else(|| pixels(size)) {
                Some(size) if size < MIN_SIZE => sight.tiny = true,
                _ if parent.tiny && (is_share || matches!(size, "inherit" | "unset")) => {
                    sight.tiny = true;
                }
                _ => sight.tiny = false,
            }
        }
    }
    match style.value("visibility") {
        Some("hidden" | "collapse") => sight.hidden = true,
        Some("visible" | "initial") => sight.hidden = false,
        _ => {}
    }
    if let Some(indent) = style.value("text-indent").and_then(pixels) {
        sight.indented = indent.abs() >= FAR_SHIFT || indent <= -500.0;
    }
    let background = style
        .value("background-color")
        .and_then(colour)
        .or_else(|| style.value("background")?.split_whitespace().find_map(colour))
        .or_else(|| colour_attribute(element, "bgcolor"));
    if background.is_some() || style.value("background").is_some() {
        sight.behind = background.filter(|colour| colour[3] > 0);
    } else if element.attr("class").is_some() || element.attr("id").is_some() {
        // A sheet that isn't known may have given it another one.
        sight.behind = None;
    }
    if let Some(text) = style.value("color") {
        sight.colour = colour(text);
    } else if element.name() == "font" && element.attr("color").is_some() {
        sight.colour = colour_attribute(element, "color");
    }
    let is_faded = style.value("opacity").and_then(share).is_some_and(|opacity| opacity < 0.05)
        || style
            .value("filter")
            .and_then(|filter| filter.split_once("opacity("))
            .and_then(|(_, rest)| share(rest.split(')').next().unwrap_or_default()))
            .is_some_and(|opacity| opacity < 0.05);
    if is_faded {
        sight.lost = sight.lost.or(Some(Lost::Faded));
    } else if is_moved_away(style) || is_clipped(style) {
        sight.lost = Some(Lost::Clipped);
    }
    sight
}

/// The colour in an attribute, as old pages have it.
fn colour_attribute(element: &Element, name: &str) -> Option<[u8; 4]> {
    colour(&element.attr(name)?.to_ascii_lowercase())
}

/// A number or a percentage.
fn share(value: &str) -> Option<f64> {
    match value.strip_suffix('%') {
        Some(share) => share.trim().parse::<f64>().ok().map(|share| share / 100.0),
        None => value.parse::<f64>().ok(),
    }
}

/// The size in `font`: `0/0 a`, `bold 12px/1.5 serif`.
fn size_in_font(font: &str) -> Option<&str> {
    font.split_whitespace()
        .filter_map(|part| part.split('/').next())
        .find(|part| pixels(part).is_some())
}

fn is_moved_away(style: &Cascade) -> bool {
    let is_placed = matches!(style.value("position"), Some("absolute" | "fixed" | "relative"));
    let is_beyond = ["left", "right", "top", "bottom"].iter().any(|side| {
        style
            .value(side)
            .and_then(pixels)
            .is_some_and(|pixels| pixels <= -OFF_SCREEN || pixels >= FAR_SHIFT)
    });
    let has_far_margin = ["margin-left", "margin-top"]
        .iter()
        .any(|side| style.value(side).and_then(pixels).is_some_and(|pixels| pixels <= -FAR_SHIFT));
    let transform = style.value("transform").unwrap_or_default();
    let is_shifted = transform
        .split(['(', ',', ')'])
        .any(|part| pixels(part).is_some_and(|pixels| pixels.abs() >= FAR_SHIFT));
    let is_shrunk = transform
        .split_once("scale(")
        .is_some_and(|(_, rest)| rest.split([',', ')']).any(|part| part.trim().parse() == Ok(0.0)));
    is_placed && is_beyond || has_far_margin || is_shifted || is_shrunk
}

fn is_clipped(style: &Cascade) -> bool {
    let clip = style.value("clip").unwrap_or_default();
    let is_empty = clip.starts_with("rect(") && {
        let sides = numbers(clip);
        !sides.is_empty() && !clip.contains("auto") && sides.iter().all(|side| *side < MIN_SIZE)
    };
    let path =
        style.value("clip-path").or_else(|| style.value("-webkit-clip-path")).unwrap_or_default();
    let path_is_empty = path.starts_with("inset(")
        && numbers(path).first().is_some_and(|side| *side >= 500.0)
        || path.starts_with("circle(")
            && numbers(path).first().is_some_and(|radius| *radius < MIN_SIZE);
    is_empty && matches!(style.value("position"), Some("absolute" | "fixed")) || path_is_empty
}

/// The numbers in the brackets of a value.
fn numbers(text: &str) -> Vec<f64> {
    let inside = text.split_once('(').map_or("", |(_, inside)| inside);
    inside.trim_end_matches(')').split([',', ' ']).filter_map(pixels).collect()
}

/// Whether a text with this sight can't be seen.
fn is_invisible(sight: Sight) -> bool {
    let is_camouflaged = match (sight.colour, sight.behind) {
        (Some(text), Some(behind)) => {
            text[3] > 0 && text.iter().zip(behind).all(|(text, behind)| text.abs_diff(behind) < 8)
        }
        _ => false,
    };
    sight.tiny || sight.hidden || sight.indented || is_camouflaged
}

/// The letters and digits at the beginning of an item's text.
fn letters<'a>(flat: &'a Flat<'a>, at: usize) -> impl Iterator<Item = char> {
    let texts =
        flat.items[at..flat.items[at].end].iter().take(100).filter_map(|item| match item.what {
            What::Text(text) => Some(text),
            What::Element(_) => None,
        });
    texts.flat_map(str::chars).take(1_000).filter(|c| c.is_alphanumeric())
}

/// Whether a clipped text says what an element next to it shows, which is hidden from screen
/// readers: a price is often written so. A formula is too.
fn stands_for_hidden_text(flat: &Flat<'_>, at: usize) -> bool {
    let own = label(flat, at);
    if own.is_empty() || own.chars().count() > MAX_LABEL {
        return false;
    }
    flat.children(flat.items[at].parent).take(20).any(|beside| {
        beside != at
            && flat.attribute(beside, "aria-hidden") == Some("true")
            && flat.attribute(beside, "style").is_none()
            && (label(flat, beside) == own || flat.find(at..flat.items[at].end, "math").is_some())
    })
}

fn label(flat: &Flat<'_>, index: usize) -> String {
    letters(flat, index).take(MAX_LABEL + 1).collect()
}

#[cfg(test)]
mod tests;
