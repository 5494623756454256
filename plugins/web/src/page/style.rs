//! Reads the declarations of style attributes and style sheets that can make text invisible.
//!
//! This is a part of CSS only: sheets of the page itself, without variables, animations and shapes.
//! Everything is bounded, since the page is untrusted.

use std::rc::Rc;

use scraper::Selector;

/// The number of bytes of all sheets that are read.
const MAX_SHEETS: usize = 512 * 1024;
/// The number of bytes of a style attribute that are read.
const MAX_ATTRIBUTE: usize = 16 * 1024;
/// The number of selectors that are kept.
const MAX_SELECTORS: usize = 128;
/// The number of bytes of a selector.
const MAX_SELECTOR: usize = 300;

/// The number of bytes of a value that are read.
const MAX_VALUE: usize = 200;

/// A declaration that can make text invisible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declaration {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) important: bool,
}

/// A rule of a sheet.
pub(super) struct Rule {
    pub(super) selector: Selector,
    /// The number of ids, and that of classes, attributes and pseudo-classes.
    pub(super) weight: (usize, usize),
    pub(super) declarations: Cascade,
}

/// Declarations, weakest first: at most one of each name. Elements share them, so that a page can't
/// make many copies of a large one.
#[derive(Clone, Default)]
pub(super) struct Cascade(Vec<Rc<Declaration>>);

impl Cascade {
    /// Adds stronger declarations.
    pub(super) fn add(&mut self, stronger: &Self) {
        stronger.0.iter().for_each(|declaration| self.push(Rc::clone(declaration)));
    }

    fn push(&mut self, declaration: Rc<Declaration>) {
        if let Some(at) = self.0.iter().position(|known| known.name == declaration.name) {
            if self.0[at].important && !declaration.important {
                return;
            }
            self.0.remove(at);
        }
        self.0.push(declaration);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Declaration> {
        self.0.iter().map(AsRef::as_ref)
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.iter().find(|declaration| declaration.name == name).map(|it| it.value.as_str())
    }
}

const NAMES: [&str; 21] = [
    "font-size",
    "font",
    "opacity",
    "filter",
    "visibility",
    "display",
    "position",
    "left",
    "right",
    "top",
    "bottom",
    "margin-left",
    "margin-top",
    "text-indent",
    "transform",
    "clip",
    "clip-path",
    "color",
    "background-color",
    "background",
    "-webkit-clip-path",
];

/// The declarations of a style attribute, in order.
pub(super) fn declarations(style: &str) -> Cascade {
    let style = &style[..style.floor_char_boundary(MAX_ATTRIBUTE)];
    read_declarations(&without_comments(style))
}

fn read_declarations(text: &str) -> Cascade {
    let mut cascade = Cascade::default();
    for declaration in split(text, b';').into_iter().filter_map(read_declaration) {
        cascade.push(Rc::new(declaration));
    }
    cascade
}

fn read_declaration(text: &str) -> Option<Declaration> {
    let (name, value) = text.split_once(':')?;
    let name = unescape(name).trim().to_ascii_lowercase();
    let name = *NAMES.iter().find(|known| **known == name)?;
    let mut value = unescape(value).trim().to_ascii_lowercase();
    let important = value.ends_with("important") && value.contains('!');
    if important {
        value.truncate(value.rfind('!').unwrap_or(value.len()));
        value.truncate(value.trim_end().len());
    }
    value.truncate(value.floor_char_boundary(MAX_VALUE));
    Some(Declaration { name, value, important })
}

/// The rules of all sheets that can make text invisible, or visible again, weakest first.
pub(super) fn rules<'a>(sheets: impl Iterator<Item = &'a str>) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut left = MAX_SHEETS;
    for sheet in sheets {
        let sheet = &sheet[..sheet.floor_char_boundary(left)];
        left -= sheet.len();
        read_sheet(&without_comments(sheet), &mut rules);
    }
    rules.sort_by_key(|rule| rule.weight);
    rules
}

fn read_sheet(sheet: &str, rules: &mut Vec<Rule>) {
    let mut rest = sheet;
    while let Some(open) = rest.find(['{', '}']) {
        let prelude = rest[..open].rsplit(';').next().unwrap_or_default().trim();
        if rest.as_bytes()[open] == b'}' {
            // The end of a group of rules.
            rest = &rest[open + 1..];
            continue;
        }
        let body = &rest[open + 1..];
        let group = prelude.to_ascii_lowercase();
        let is_for_print = group.contains("print") && !group.contains("screen");
        let holds_rules =
            ["@media", "@supports", "@layer", "@container"].iter().any(|at| group.starts_with(at));
        if holds_rules && !is_for_print {
            rest = body;
            continue;
        }
        let end = block_end(body);
        if !prelude.starts_with('@') {
            read_rule(prelude, &body[..end], rules);
        }
        rest = body.get(end + 1..).unwrap_or_default();
    }
}

fn read_rule(prelude: &str, body: &str, rules: &mut Vec<Rule>) {
    let declarations = read_declarations(body);
    if declarations.0.is_empty() {
        return;
    }
    for selector in split(prelude, b',') {
        let selector = selector.trim();
        // `:has` would take quadratic time.
        if rules.len() >= MAX_SELECTORS
            || selector.len() > MAX_SELECTOR
            || selector.contains(":has")
        {
            continue;
        }
        let Ok(parsed) = Selector::parse(selector) else { continue };
        let weight = (selector.matches('#').count(), selector.matches(['.', '[', ':']).count());
        rules.push(Rule { selector: parsed, weight, declarations: declarations.clone() });
    }
}

/// The end of a block, with the blocks in it.
fn block_end(body: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    body.len()
}

fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        plain.push_str(before);
        // A comment separates words.
        plain.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}

/// Splits at a sign outside of brackets and quotes.
fn split(text: &str, sign: u8) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut depth = 0_usize;
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'(' | b'[') => depth += 1,
            (None, b')' | b']') => depth = depth.saturating_sub(1),
            (None, _) if byte == sign && depth == 0 => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// Resolves escapes: `\66 ont-size` is `font-size`.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let digits = after.bytes().take(6).take_while(u8::is_ascii_hexdigit).count();
        rest = if digits > 0 {
            let code = u32::from_str_radix(&after[..digits], 16).ok();
            plain.extend(code.and_then(char::from_u32));
            let after = &after[digits..];
            after.strip_prefix([' ', '\t', '\n']).unwrap_or(after)
        } else {
            let mut characters = after.chars();
            plain.extend(characters.next());
            characters.as_str()
        };
    }
    plain.push_str(rest);
    plain
}

/// A length in pixels, roughly. A share of something is given as a share of 1,000 pixels.
pub(super) fn pixels(value: &str) -> Option<f64> {
    let value = value.trim().trim_start_matches("calc(").trim_end_matches(')').trim();
    let end = value
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'))
        .count();
    let number: f64 = value[..end].parse().ok()?;
    let unit = match value[end..].trim() {
        "px" => 1.0,
        "pt" => 1.33,
        "em" | "rem" => 16.0,
        "ex" | "ch" => 8.0,
        "%" | "vw" | "vh" | "vmin" | "vmax" => 10.0,
        "cm" => 37.8,
        "mm" => 3.78,
        "in" => 96.0,
        "" if number == 0.0 => 1.0,
        _ => return None,
    };
    Some(number * unit)
}

/// A colour as red, green, blue and whether it is transparent.
pub(super) fn colour(value: &str) -> Option<[u8; 4]> {
    let value = value.trim();
    if let Some(hex) = value.strip_prefix('#') {
        let digits: Vec<u8> = hex
            .chars()
            .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()?;
        return match digits.len() {
            3 | 4 => Some(with_alpha(
                [digits[0] * 17, digits[1] * 17, digits[2] * 17],
                digits.get(3) == Some(&0),
            )),
            6 | 8 => {
                let bytes: Vec<u8> =
                    digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]).collect();
                Some(with_alpha([bytes[0], bytes[1], bytes[2]], bytes.get(3) == Some(&0)))
            }
            _ => None,
        };
    }
    if let Some(parts) = value.strip_prefix("rgb").and_then(|rest| rest.split_once('(')) {
        let parts: Vec<&str> = parts
            .1
            .trim_end_matches(')')
            .split([',', ' ', '/'])
            .filter(|part| !part.is_empty())
            .collect();
        let rgb =
            [colour_part(parts.first())?, colour_part(parts.get(1))?, colour_part(parts.get(2))?];
        let alpha = parts.get(3).and_then(|alpha| alpha.trim_end_matches('%').parse::<f64>().ok());
        return Some(with_alpha(rgb, alpha.is_some_and(|alpha| alpha < 0.05)));
    }
    let rgb = match value {
        "white" => [255; 3],
        "black" => [0; 3],
        "red" => [255, 0, 0],
        "blue" => [0, 0, 255],
        "gray" | "grey" => [128; 3],
        "silver" => [192; 3],
        "transparent" => return Some([0; 4]),
        _ => return None,
    };
    Some(with_alpha(rgb, false))
}

fn colour_part(text: Option<&&str>) -> Option<u8> {
    let part = text?.parse::<f64>().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let byte = part.clamp(0.0, 255.0) as u8;
    Some(byte)
}

fn with_alpha([red, green, blue]: [u8; 3], clear: bool) -> [u8; 4] {
    if clear { [0; 4] } else { [red, green, blue, 1] }
}
