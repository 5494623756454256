//! Converts places, symbols and hovers of a language server's answers to files, lines and bytes.

use serde_json::Value;

/// Most places or symbols of one answer.
const MAX_ANSWERS: usize = 1_000;

/// Most levels of symbols inside each other.
const MAX_LEVELS: usize = 32;

/// Most bytes of a name.
const MAX_NAME: usize = 500;

/// A position in a text: both from 0. The column counts units of UTF-16, as the protocol wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub character: u32,
}

impl Position {
    /// The position of a byte in a line of a text.
    pub fn of_byte(line: u32, text: &str, byte: usize) -> Self {
        let before = &text[..text.floor_char_boundary(byte)];
        let character = before.encode_utf16().count();
        Self { line, character: u32::try_from(character).unwrap_or(u32::MAX) }
    }

    /// The byte in its line. Beyond the end of the line: the end.
    pub fn byte_in(&self, text: &str) -> usize {
        let mut units = 0;
        let mut chars = text.char_indices();
        let found = chars.find(|(_, c)| {
            units += c.len_utf16();
            units > self.character as usize
        });
        found.map_or(text.len(), |(byte, _)| byte)
    }
}

/// A range in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The absolute path.
    pub path: String,
    /// Its beginning.
    pub start: Position,
    /// Its end.
    pub end: Position,
}

/// A symbol, such as a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// The symbol that contains it.
    pub container: Option<String>,
    /// The kind of the symbol, as a number of the protocol's list `SymbolKind`.
    pub kind: u32,
    /// Where it is.
    pub place: Place,
}

/// The places in an answer: one, a list, or a list of links. Places outside of files are left out.
pub(crate) fn places(answer: &Value) -> Vec<Place> {
    let all = answer.as_array().map_or_else(|| std::slice::from_ref(answer), Vec::as_slice);
    let read = all.iter().filter_map(|place| {
        link_target(place).or_else(|| place_at(place.get("uri")?, place.get("range")?))
    });
    read.take(MAX_ANSWERS).collect()
}

fn link_target(link: &Value) -> Option<Place> {
    place_at(link.get("targetUri")?, link.get("targetSelectionRange")?)
}

/// The symbols in an answer: a list, or a tree of the symbols of one file.
pub(crate) fn symbols(answer: &Value, path: Option<&str>) -> Vec<Symbol> {
    let mut found = Vec::new();
    add_symbols(answer, path, None, 0, &mut found);
    found
}

fn add_symbols(
    answer: &Value,
    path: Option<&str>,
    container: Option<&str>,
    level: usize,
    found: &mut Vec<Symbol>,
) {
    for symbol in answer.as_array().into_iter().flatten() {
        if found.len() >= MAX_ANSWERS || level >= MAX_LEVELS {
            return;
        }
        let Some(name) = symbol["name"].as_str().map(short) else { continue };
        let place = match (symbol.get("location"), path) {
            (Some(location), _) => place_at(&location["uri"], &location["range"]),
            (None, Some(path)) => in_file(path, &symbol["selectionRange"]),
            (None, None) => None,
        };
        let Some(place) = place else { continue };
        let own = symbol["containerName"].as_str().map(short).filter(|name| !name.is_empty());
        found.push(Symbol {
            name: name.clone(),
            container: own.or_else(|| container.map(str::to_owned)),
            kind: number(&symbol["kind"]).unwrap_or_default(),
            place,
        });
        add_symbols(&symbol["children"], path, Some(&name), level + 1, found);
    }
}

/// The text of an answer to a question of what something is.
pub(crate) fn hover(answer: &Value) -> Option<String> {
    fn text(contents: &Value) -> Option<String> {
        match contents {
            Value::String(text) => Some(text.clone()),
            Value::Object(marked) => marked.get("value")?.as_str().map(str::to_owned),
            Value::Array(parts) => {
                let parts: Vec<String> = parts
                    .iter()
                    .take(16)
                    .filter(|part| !part.is_array())
                    .filter_map(text)
                    .collect();
                Some(parts.join("\n"))
            }
            _ => None,
        }
    }
    text(answer.get("contents")?).filter(|text| !text.trim().is_empty())
}

fn place_at(uri: &Value, range: &Value) -> Option<Place> {
    in_file(&path(uri.as_str()?)?, range)
}

fn in_file(path: &str, range: &Value) -> Option<Place> {
    let start = position(&range["start"])?;
    let end = position(&range["end"])?;
    Some(Place { path: path.to_owned(), start, end })
}

fn position(at: &Value) -> Option<Position> {
    Some(Position { line: number(&at["line"])?, character: number(&at["character"])? })
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn short(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_NAME)].to_owned()
}

/// The URI of a file.
pub(crate) fn uri(path: &str) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

/// The absolute path of a URI. `None`: the URI isn't of a file of this machine.
fn path(uri: &str) -> Option<String> {
    let encoded = uri.strip_prefix("file://").filter(|path| path.starts_with('/'))?;
    let mut bytes = Vec::new();
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|path| !path.contains('\0'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn column_counts_units_of_utf16() {
        let text = "é𝄞x";
        for (byte, character) in [(0, 0), (2, 1), (6, 3), (7, 4)] {
            let position = Position::of_byte(0, text, byte);
            assert_eq!((position.character, position.byte_in(text)), (character, byte));
        }
        assert_eq!(Position { line: 0, character: 99 }.byte_in(text), text.len());
    }

    #[test]
    fn path_and_uri_are_converted() {
        for file in ["/a b/ü.rs", "/x%41", "/c++/a.cpp"] {
            assert_eq!(path(&uri(file)).as_deref(), Some(file));
        }
        assert_eq!(uri("/a b"), "file:///a%20b");
        for other in ["http://a/b", "file://host/a", "untitled:1", "file:///a%0", "file:///%00"] {
            assert_eq!(path(other), None, "{other}");
        }
    }

    fn range() -> Value {
        json!({ "start": { "line": 1, "character": 2 }, "end": { "line": 1, "character": 5 } })
    }

    #[test]
    fn every_form_of_an_answer_is_read() {
        let location = json!({ "uri": "file:///a.rs", "range": range() });
        let link = json!({ "targetUri": "file:///b.rs", "targetRange": range(), "targetSelectionRange": range() });
        assert_eq!(places(&location).len(), 1);
        let both = places(&json!([location, link, { "uri": "jdt://x", "range": range() }, 5]));
        assert_eq!(both.iter().map(|place| &*place.path).collect::<Vec<_>>(), ["/a.rs", "/b.rs"]);
        assert!(places(&Value::Null).is_empty());
        let tree = json!([{ "name": "A", "kind": 5, "selectionRange": range(), "children":
            [{ "name": "f", "kind": 6, "selectionRange": range() }] }]);
        let found = symbols(&tree, Some("/a.rs"));
        assert_eq!((&*found[1].name, found[1].container.as_deref()), ("f", Some("A")));
        let flat = json!([{ "name": "g", "kind": 12, "containerName": "m", "location": location }]);
        assert_eq!(symbols(&flat, None)[0].container.as_deref(), Some("m"));
        assert_eq!(
            hover(&json!({ "contents": { "kind": "markdown", "value": "x" } })).as_deref(),
            Some("x")
        );
        assert_eq!(hover(&json!({ "contents": ["a", { "value": "b" }] })).as_deref(), Some("a\nb"));
        assert_eq!(hover(&Value::Null), None);
    }

    #[test]
    fn answers_are_bounded() {
        let one = json!({ "uri": "file:///a.rs", "range": range() });
        assert_eq!(places(&Value::Array(vec![one; 5_000])).len(), MAX_ANSWERS);
        let mut tree = json!([]);
        for _ in 0..100 {
            tree = json!([{ "name": "n".repeat(9_000), "kind": 1, "selectionRange": range(), "children": tree }]);
        }
        let found = symbols(&tree, Some("/a"));
        assert_eq!(found.len(), MAX_LEVELS);
        assert!(found[0].name.len() <= MAX_NAME);
    }
}
