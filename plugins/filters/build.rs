//! Makes one table of the built-in rules, so that instances don't read TOML for them. Only the form
//! of a rule is checked here. The unit tests find other errors.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use serde_json::{Map, Value, json};

fn main() {
    let folder =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("rules");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder of rules can be read")
        .map(|entry| entry.expect("its entries can be read").path())
        .collect();
    files.sort();
    let mut table = String::from("&[\n");
    for file in
        files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "toml"))
    {
        let text = fs::read_to_string(file).expect("a file of rules can be read");
        let rules: Value =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for rule in rules["rule"].as_array().into_iter().chain(rules["rules"].as_array()).flatten()
        {
            write_rule(&mut table, rule)
                .unwrap_or_else(|what| panic!("{}: {what}: {rule}", file.display()));
        }
    }
    table.push_str("]\n");
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("built_in.rs");
    fs::write(target, table).expect("the table can be written");
}

fn write_rule(table: &mut String, rule: &Value) -> Result<(), String> {
    let name = rule["name"].as_str().ok_or("`name` is missing")?;
    let is_fallback = rule["fallback"] == true;
    let (subject, tool) = if is_fallback {
        ("StaticPattern::Any".to_owned(), "bash")
    } else {
        (subject(rule)?, rule["tool"].as_str().unwrap_or("*"))
    };
    let mut steps = match &rule["strategy"] {
        Value::Array(steps) => steps.clone(),
        Value::Object(_) => vec![rule["strategy"].clone()],
        _ => return Err("`strategy` is missing".to_owned()),
    };
    for step in &mut steps {
        if let Some(unless) = rule.get("unless").filter(|_| step["when"].is_null()) {
            step["unless"] = unless.clone();
        }
        for key in
            ["unless", "when", "keep_below", "patterns", "keep", "summary", "share_by", "section"]
        {
            to_ascii(&mut step[key]);
        }
        step.as_object_mut().ok_or("a step isn't a table")?.retain(|_, value| !value.is_null());
    }
    let types: Vec<&str> = steps.iter().filter_map(|step| step["type"].as_str()).collect();
    let mut meta = Map::new();
    meta.insert("strategy".to_owned(), json!(types.join("+")));
    meta.insert("built_in".to_owned(), json!(true));
    if let Some(examples) = rule.get("examples") {
        meta.insert("examples".to_owned(), examples.clone());
    }
    writeln!(
        table,
        "BuiltIn {{ name: {name:?}, tool: {tool:?}, subject: {subject}, fallback: {is_fallback}, steps: {:?}, meta: {:?} }},",
        Value::Array(steps).to_string(),
        Value::Object(meta).to_string(),
    )
    .map_err(|error| error.to_string())
}

/// The pattern of a rule's matcher, as Rust.
fn subject(rule: &Value) -> Result<String, String> {
    let (kind, pattern) = match rule["match"]
        .as_object()
        .map(|matcher| matcher.iter().collect::<Vec<_>>())
        .as_deref()
    {
        Some([(kind, Value::String(pattern))]) => (kind.as_str(), pattern.as_str()),
        _ => return Err("`match` doesn't have exactly one matcher".to_owned()),
    };
    let variant = match kind {
        "exact" => "Exact",
        "prefix" => "Prefix",
        "regex" => "Regex",
        _ => return Err(format!("the matcher `{kind}` is unknown")),
    };
    Ok(format!("StaticPattern::{variant}({pattern:?})"))
}

/// Replaces the character classes of expressions by those of ASCII.
fn to_ascii(expressions: &mut Value) {
    match expressions {
        Value::String(expression) => *expression = ascii(expression),
        Value::Array(expressions) => expressions.iter_mut().for_each(to_ascii),
        _ => {}
    }
}

/// An expression with ASCII classes. The output of programs needs no others, and Unicode classes
/// take ten times as long to compile, in every instance.
fn ascii(expression: &str) -> String {
    let mut ascii = String::with_capacity(expression.len() * 2);
    let mut characters = expression.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            ascii.push(character);
            continue;
        }
        match characters.next() {
            Some('d') => ascii.push_str("[0-9]"),
            Some('w') => ascii.push_str("[0-9A-Za-z_]"),
            Some('s') => ascii.push_str("[ \\t\\r]"),
            Some('S') => ascii.push_str("[^ \\t\\r]"),
            Some('b') => ascii.push_str("(?-u:\\b)"),
            Some(other) => ascii.extend(['\\', other]),
            None => ascii.push('\\'),
        }
    }
    ascii
}
