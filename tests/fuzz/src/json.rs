//! JSON texts, and values in them.

use std::ops::Range;

use arbitrary::{Result, Unstructured};

/// Texts of values without parts.
const SIMPLE: [&str; 20] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1",
    "5.0",
    "1.5",
    "1e999",
    "-0.0",
    "9007199254740993",
    "18446744073709551616",
    r#""""#,
    r#""a""#,
    r#""é""#,
    r#""\u0000""#,
    r#""\ud83d\ude00""#,
    r#""\ud800""#,
    r##""#""##,
    r#""5""#,
];

/// A JSON text. The keys of objects come from `keys`, and so do some values, as texts. At most
/// `depth` levels deep.
///
/// # Errors
///
/// There aren't enough random bytes.
pub fn json(random: &mut Unstructured<'_>, keys: &[&str], depth: usize) -> Result<String> {
    let kind = random.int_in_range(0..=if depth == 0 || random.is_empty() { 3 } else { 9 })?;
    Ok(match kind {
        0..=2 => (*random.choose(&SIMPLE)?).to_owned(),
        3 => json_text(random.choose(keys)?),
        4 | 5 => {
            let count = random.int_in_range(0..=4)?;
            let items = (0..count).map(|_| json(random, keys, depth - 1));
            format!("[{}]", items.collect::<Result<Vec<_>>>()?.join(","))
        }
        _ => {
            let count = random.int_in_range(0..=5)?;
            let field = |_| {
                let key = json_text(random.choose(keys)?);
                Ok(format!("{key}:{}", json(random, keys, depth - 1)?))
            };
            format!("{{{}}}", (0..count).map(field).collect::<Result<Vec<_>>>()?.join(","))
        }
    })
}

/// A text as JSON.
pub fn json_text(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c.is_control() => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json + "\""
}

/// The next JSON value that begins behind a place, whatever is around it.
pub(crate) fn value_at(text: &[u8], at: usize) -> Option<Range<usize>> {
    let begins = |byte: &u8| matches!(byte, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9');
    let start = at + text[at..].iter().position(begins)?;
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (end, byte) in (start..).zip(&text[start..]) {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (true, _) => continue,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') if depth == 0 => return Some(start..end),
            (false, b'}' | b']') => depth -= 1,
            (false, b',' | b'\n') if depth == 0 => return Some(start..end),
            _ => continue,
        }
        if depth == 0 && !in_text {
            return Some(start..end + 1);
        }
    }
    Some(start..text.len())
}

#[cfg(test)]
mod tests {
    use super::value_at;

    #[test]
    fn values_are_found_with_their_ends() {
        let text = br#"data: {"a":[1,"]\""],"b":-12}"#;
        let found = |at| value_at(text, at).map(|range| &text[range]);
        let expected = [
            (0, &br#"{"a":[1,"]\""],"b":-12}"#[..]),
            (7, br#""a""#),
            (10, br#"[1,"]\""]"#),
            (12, b"1"),
            (14, br#""]\"""#),
            (24, b"-12"),
        ];
        for (at, value) in expected {
            assert_eq!(found(at), Some(value), "{at}");
        }
        assert_eq!(value_at(text, text.len()), None);
    }
}
