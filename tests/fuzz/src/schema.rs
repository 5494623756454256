//! JSON Schemas with every keyword, and mostly of the right form.

use arbitrary::{Result, Unstructured};

use crate::json::{json, json_text};

/// The names of properties and definitions, which values for these schemas have as keys too.
pub const NAMES: [&str; 8] = ["a", "b", "path", "$ref", "$defs", "items", "", "a/b~c"];

const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];

const REFERENCES: [&str; 12] = [
    "#",
    "#/$defs/a",
    "#/$defs/b",
    "#/$defs/a/items",
    "#/$defs/b/allOf/0",
    "#/properties/a",
    "#/properties/a%2fb",
    "#/nowhere",
    "#anchor",
    "b.json",
    "https://example.com/x",
    "file:///etc/passwd",
];

const PATTERNS: [&str; 12] = [
    "^a*$",
    "(a+)+$",
    "a{1000}{1000}",
    "[a-z]{0,64}",
    "\\p{L}+",
    "(?i)é",
    "(",
    "^(?=a)",
    "\\d{4}-\\d{2}",
    "(x|xy|xyz)*z{999}",
    "\\u00e9",
    "^(?:(?:(?:(?:a?)?)?)?)?$",
];

const NUMBERS: [&str; 10] =
    ["0", "1", "2", "-1", "1.5", "0.01", "1e-300", "1e300", "9007199254740993", "100000"];

/// The text of a JSON Schema, at most `depth` levels deep.
///
/// # Errors
///
/// There aren't enough random bytes.
pub fn schema(random: &mut Unstructured<'_>, depth: usize) -> Result<String> {
    if random.ratio(1, 8)? {
        return chain(random);
    }
    let own = part(random, depth)?;
    if !own.ends_with('}') {
        return Ok(own);
    }
    let mut whole = own[..own.len() - 1].to_owned();
    if whole.len() > 1 {
        whole.push(',');
    }
    if random.ratio(3, 4)? && !whole.contains("\"type\"") {
        whole += "\"type\":\"object\",";
    }
    let (a, b) = (part(random, depth)?, part(random, depth)?);
    Ok(format!("{whole}\"$defs\":{{\"a\":{a},\"b\":{b}}}}}"))
}

/// Definitions that refer to the next one from some levels below, and the last one to the first.
fn chain(random: &mut Unstructured<'_>) -> Result<String> {
    const LEVELS: [(&str, &str); 8] = [
        ("{\"not\":", "}"),
        ("{\"allOf\":[", "]}"),
        ("{\"anyOf\":[{\"not\":{}},", "]}"),
        ("{\"if\":", ",\"then\":true}"),
        ("{\"items\":", "}"),
        ("{\"properties\":{\"a\":", "}}"),
        ("{\"additionalProperties\":", "}"),
        ("{\"unevaluatedProperties\":", "}"),
    ];
    let (open, close) = *random.choose(&LEVELS)?;
    let levels = random.int_in_range(0..=100)?;
    let count = random.int_in_range(1..=90)?;
    let name = |number: usize| json_text(&format!("#/$defs/{number}"));
    let mut whole =
        format!("{{\"type\":\"object\",\"allOf\":[{{\"$ref\":{}}}],\"$defs\":{{", name(0));
    for number in 0..count {
        let next = format!("{{\"$ref\":{}}}", name(number + 1));
        whole += &format!("\"{number}\":{}{next}{},", open.repeat(levels), close.repeat(levels));
    }
    whole += &format!("\"{count}\":{{\"properties\":{{\"a\":{{\"$ref\":{}}}}}}}}}}}", name(0));
    Ok(whole)
}

fn part(random: &mut Unstructured<'_>, depth: usize) -> Result<String> {
    if depth == 0 || random.is_empty() {
        return Ok((*random.choose(&["{}", "true", "false", r#"{"type":"string"}"#])?).to_owned());
    }
    let mut keywords = Vec::new();
    for _ in 0..random.int_in_range(0..=4)? {
        let (keyword, value) = keyword(random, depth - 1)?;
        if !keywords.iter().any(|(known, _)| *known == keyword) || random.ratio(1, 16)? {
            keywords.push((keyword, value));
        }
    }
    let keywords: Vec<String> =
        keywords.iter().map(|(keyword, value)| format!("\"{keyword}\":{value}")).collect();
    Ok(format!("{{{}}}", keywords.join(",")))
}

fn keyword(random: &mut Unstructured<'_>, depth: usize) -> Result<(&'static str, String)> {
    const PART: [&str; 12] = [
        "items",
        "additionalProperties",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "unevaluatedProperties",
        "unevaluatedItems",
        "contentSchema",
        "additionalItems",
    ];
    const PARTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
    const BY_NAME: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "$defs"];
    const NUMBER: [&str; 13] = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minContains",
        "maxContains",
    ];
    const TEXT: [&str; 8] = [
        "$schema",
        "$id",
        "$anchor",
        "$dynamicRef",
        "$dynamicAnchor",
        "format",
        "contentEncoding",
        "description",
    ];
    const DATA: [&str; 6] = ["enum", "const", "default", "examples", "required", "uniqueItems"];
    Ok(match random.int_in_range(0..=15)? {
        0 | 1 => ("type", json_text(random.choose(&TYPES)?)),
        2..=4 => ("$ref", json_text(random.choose(&REFERENCES)?)),
        5 | 6 => ("properties", by_name(random, depth)?),
        7 => (*random.choose(&PARTS)?, {
            let count = random.int_in_range(0..=3)?;
            let parts: Vec<String> =
                (0..count).map(|_| part(random, depth)).collect::<Result<_>>()?;
            format!("[{}]", parts.join(","))
        }),
        8 | 9 => (*random.choose(&PART)?, part(random, depth)?),
        10 => (*random.choose(&BY_NAME)?, by_name(random, depth)?),
        11 => ("pattern", json_text(random.choose(&PATTERNS)?)),
        12 => (*random.choose(&NUMBER)?, (*random.choose(&NUMBERS)?).to_owned()),
        13 => ("required", format!("[{}]", json_text(random.choose(&NAMES)?))),
        14 => (*random.choose(&DATA)?, json(random, &NAMES, 2)?),
        _ => (*random.choose(&TEXT)?, json_text(random.choose(&REFERENCES)?)),
    })
}

fn by_name(random: &mut Unstructured<'_>, depth: usize) -> Result<String> {
    let mut fields = Vec::new();
    for _ in 0..random.int_in_range(0..=3)? {
        let names = if random.ratio(1, 8)? { &PATTERNS[..] } else { &NAMES };
        fields.push(format!("{}:{}", json_text(random.choose(names)?), part(random, depth)?));
    }
    Ok(format!("{{{}}}", fields.join(",")))
}
