//! Parses the front matter of a `SKILL.md`: YAML between two lines of `---`.
//!
//! The parser reads event by event and builds only the needed values. Aliases are refused, because
//! a small text with aliases can expand to a huge value.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// Some editors write this character at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Most levels of lists and tables. Deeper YAML is refused.
const MAX_DEPTH: usize = 16;

/// Most values. YAML with more values is refused.
const MAX_VALUES: usize = 1024;

/// The keys of the documented format.
const KNOWN_KEYS: [&str; 6] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// The content of the front matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontMatter {
    /// The skill's name.
    pub name: Option<String>,
    /// The purpose of the skill.
    pub description: Option<String>,
    /// The licence of the skill.
    pub license: Option<String>,
    /// The requirements of the skill.
    pub compatibility: Option<String>,
    /// Whether the front matter has `allowed-tools`.
    pub names_tools: bool,
    /// Keys that the documented format doesn't have.
    pub unknown: Vec<String>,
    /// The fault in the YAML, if the YAML is only valid with its values in quotes.
    pub mistake: Option<YamlError>,
}

/// The reason why a front matter can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontMatterError {
    /// The text has no front matter.
    #[error(
        "the front matter is missing: a line `---`, `name` and `description`, and another line \
         `---`"
    )]
    NoStart,
    /// The front matter has no end.
    #[error("the front matter doesn't end with a line `---` within {MAX_BYTES} bytes")]
    NoEnd,
    /// The front matter isn't YAML, or isn't valid for a skill.
    #[error("the front matter isn't valid: {0}")]
    Invalid(YamlError),
}

/// A fault of the YAML, usually with the line number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The front matter isn't YAML.
    #[error("line {}: {}", .0.marker().line() + 1, .0.info())]
    Syntax(ScanError),
    /// The front matter has too many values.
    #[error("line {0}: the front matter has more than {MAX_VALUES} values, the limit")]
    TooManyValues(usize),
    /// The front matter has too many levels.
    #[error("line {0}: the front matter has more than {MAX_DEPTH} levels, the limit")]
    TooDeep(usize),
    /// The front matter has an alias.
    #[error("line {0}: aliases (`*name`) aren't supported; write the value")]
    Alias(usize),
    /// A key is a list or a table.
    #[error("line {0}: a key has to be a string")]
    Key(usize),
    /// The value of a key is a list or a table.
    #[error("line {0}: `{1}` has to be a string")]
    Value(usize, String),
    /// A key occurs twice.
    #[error("line {0}: `{1}` is given twice")]
    Twice(usize, String),
    /// The front matter isn't a table.
    #[error("the front matter has no keys")]
    NoKeys,
}

/// Splits a `SKILL.md` into the front matter and the instructions after it.
pub(crate) fn split(text: &str) -> Result<(&str, &str), FrontMatterError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let first_line = text.lines().next().unwrap_or_default();
    if first_line.trim_end() != "---" {
        return Err(FrontMatterError::NoStart);
    }
    let Some((_, after_first_line)) = text.split_once('\n') else {
        return Err(FrontMatterError::NoEnd);
    };
    let mut yaml_length = 0;
    for line in after_first_line.split_inclusive('\n') {
        if line.trim_end() == "---" {
            let (yaml, rest) = after_first_line.split_at(yaml_length);
            return Ok((yaml, &rest[line.len()..]));
        }
        yaml_length += line.len();
        if yaml_length > MAX_BYTES {
            break;
        }
    }
    Err(FrontMatterError::NoEnd)
}

/// Parses the front matter. After a fault, parses the text again with its values in quotes, and
/// records the fault.
pub(crate) fn parse(yaml: &str) -> Result<FrontMatter, FrontMatterError> {
    let mistake = match parse_yaml(yaml) {
        Ok(matter) => return Ok(matter),
        Err(mistake) => mistake,
    };
    // The most common mistake is a colon in a value without quotes, so try again with quotes.
    match parse_yaml(&quote_values(yaml)) {
        Ok(matter) => Ok(FrontMatter { mistake: Some(mistake), ..matter }),
        Err(_) => Err(FrontMatterError::Invalid(mistake)),
    }
}

fn parse_yaml(yaml: &str) -> Result<FrontMatter, YamlError> {
    let mut matter = FrontMatter::default();
    let mut depth = 0;
    let mut key: Option<String> = None;
    let mut is_table = false;
    for (count, event) in Parser::new_from_str(yaml).enumerate() {
        let (event, span) = event.map_err(YamlError::Syntax)?;
        // Line 1 is `---`, which isn't part of `yaml`.
        let line = span.start.line() + 1;
        if count > MAX_VALUES {
            return Err(YamlError::TooManyValues(line));
        }
        let text = match event {
            Event::Alias(_) => return Err(YamlError::Alias(line)),
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                if depth == 0 {
                    is_table = matches!(event, Event::MappingStart(..));
                }
                if depth == 1 {
                    let key = key.take().ok_or(YamlError::Key(line))?;
                    set_value(&mut matter, line, &key, None)?;
                }
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(YamlError::TooDeep(line));
                }
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => {
                depth -= 1;
                continue;
            }
            Event::Scalar(text, style, ..) if depth == 1 => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                if is_null { String::new() } else { text.into_owned() }
            }
            _ => continue,
        };
        match key.take() {
            None => key = Some(text),
            Some(key) => set_value(&mut matter, line, &key, Some(text))?,
        }
    }
    if is_table { Ok(matter) } else { Err(YamlError::NoKeys) }
}

/// Sets the value of a known key, and ignores unknown keys. `value` is `None` if it is a list or a
/// table in the YAML. Fails if the key needs a string, or already has a value.
fn set_value(
    matter: &mut FrontMatter,
    line: usize,
    key: &str,
    value: Option<String>,
) -> Result<(), YamlError> {
    let field = match key {
        "name" => &mut matter.name,
        "description" => &mut matter.description,
        "license" => &mut matter.license,
        "compatibility" => &mut matter.compatibility,
        "allowed-tools" => {
            matter.names_tools = true;
            return Ok(());
        }
        _ => {
            if !KNOWN_KEYS.contains(&key) {
                matter.unknown.push(key.to_owned());
            }
            return Ok(());
        }
    };
    let value = value.ok_or_else(|| YamlError::Value(line, key.to_owned()))?;
    if field.is_some() {
        return Err(YamlError::Twice(line, key.to_owned()));
    }
    if !value.trim().is_empty() {
        *field = Some(value);
    }
    Ok(())
}

/// Puts values without quotes into single quotes, if they start on the line of their key.
fn quote_values(yaml: &str) -> String {
    let mut text = String::new();
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((key, first_line)) = split_unquoted(line) else {
            text += line;
            text.push('\n');
            continue;
        };
        let mut value = first_line.trim().to_owned();
        // Indented lines continue the value.
        while let Some(continuation) = lines.next_if(|line| line.starts_with([' ', '\t'])) {
            value.push(' ');
            value += continuation.trim();
        }
        text += &format!("{key}: '{}'\n", value.replace('\'', "''"));
    }
    text
}

/// Splits a line into a key and its value without quotes. Returns `None` if the line has no key, or
/// if the value starts with a character that has a meaning in YAML, such as a quote.
fn split_unquoted(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(": ")?;
    let is_key =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let first = value.trim_start().chars().next()?;
    let is_unquoted = !"\"'|>[{&*!%@`#".contains(first);
    if is_key && is_unquoted { Some((key, value)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(yaml: &str) -> (Option<String>, Option<String>) {
        let read = parse(yaml).expect("it is valid");
        (read.name, read.description)
    }

    fn both(name: &str, description: &str) -> (Option<String>, Option<String>) {
        (Some(name.to_owned()), Some(description.to_owned()))
    }

    #[test]
    fn documented_forms_are_read() {
        let text = "\u{feff}---\r\nname: pdf\r\ndescription: Reads PDFs.\r\n---\r\n# Steps\r\n";
        let (yaml, body) = split(text).expect("it has one");
        assert_eq!((values(yaml), body), (both("pdf", "Reads PDFs."), "# Steps\r\n"));
        let folded = "name: 'a'\ndescription: >-\n  one\n  two\nlicense: MIT\nmetadata:\n  v: 1\n\
                      allowed-tools: [Bash, Read]\nversion: 1.0\n";
        assert_eq!(values(folded), both("a", "one two"));
        let read = parse(folded).expect("it is valid");
        assert!(read.names_tools && read.mistake.is_none());
        assert_eq!(read.unknown, ["version"]);
        assert_eq!(values("name: 5\ndescription:\n"), (Some("5".to_owned()), None));
    }

    #[test]
    fn colon_in_a_value_is_read_and_told() {
        let text = "name: a\ndescription: Use it when: the user says \"it's: on\"\n  or asks\n";
        assert_eq!(values(text), both("a", "Use it when: the user says \"it's: on\" or asks"));
        assert!(parse(text).expect("it is read").mistake.is_some());
    }

    #[test]
    fn text_without_front_matter_is_refused() {
        for text in ["", "# Skill", "---\nname: a\n", " ---\n---\n", "---"] {
            assert!(split(text).is_err(), "{text:?}");
        }
        let long = format!("---\n{}---\n", "# x\n".repeat(MAX_BYTES / 4 + 1));
        assert!(split(&long).is_err());
    }

    #[test]
    fn hostile_yaml_ends_soon() {
        let mut bomb = "a0: &a0 [x, x]\n".to_owned();
        for level in 1..30 {
            bomb += &format!("a{level}: &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1);
        }
        let deep = format!("name: {}", "[".repeat(20_000));
        let nested: String = (0..300).map(|at| format!("{}a:\n", " ".repeat(at))).collect();
        let many = "- x\n".repeat(16_000);
        let keys: String = (0..5000).map(|at| format!("k{at}: x\n")).collect();
        let anchor = "description: *x\n".to_owned();
        let odd = [
            "name: [",
            "name: {a: b}",
            "? [a]\n: b",
            "- a",
            "\0",
            "%YAML 9.9",
            "a: !!x y\nname: \"\\x\"",
        ];
        let odd = odd.map(str::to_owned);
        for text in [bomb, deep, nested, many, keys, anchor].into_iter().chain(odd) {
            assert!(parse(&text).is_err(), "{}", &text[..text.len().min(80)]);
        }
    }
}
