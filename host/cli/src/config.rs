//! `berth config`.

use std::io::Write;

use berth_host::config::{self, Entry, Folders, Inputs, Loaded, Source};
use berth_host::text::{neutral, neutral_line};
use serde_json::{Value, json};

use crate::arguments::{ConfigCommand, Options};
use crate::error::Error;
use crate::exit::Exit;
use crate::style::{FAINT, STRONG};

/// Where the comments of `show` begin.
const COMMENTS: usize = 48;

/// Runs the command.
pub(crate) fn run(command: ConfigCommand, options: &Options) -> Result<Exit, Error> {
    match command {
        ConfigCommand::Show { json } => show(options, json),
        ConfigCommand::Schema => {
            writeln!(std::io::stdout(), "{:#}", config::schema())?;
            Ok(Exit::Success)
        }
        ConfigCommand::Check { file } => {
            let inputs = match file {
                Some(file) => Inputs { file: Some(file), ..Inputs::default() },
                None => options.inputs()?,
            };
            check(&inputs)
        }
    }
}

fn show(options: &Options, as_json: bool) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = config::load(&folders, &options.inputs()?).map_err(berth_host::HostError::from)?;
    let entries = loaded.entries();
    if as_json {
        let entries: Vec<Value> =
            entries.iter().map(|entry| json!({ "key": entry.key, "value": entry.value, "source": entry.source.to_string() })).collect();
        writeln!(std::io::stdout(), "{:#}", Value::Array(entries))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    match &loaded.file {
        Some(file) => writeln!(out, "{FAINT}# {} was read.{FAINT:#}", shown(file))?,
        None => writeln!(out, "{FAINT}# There is no {}.{FAINT:#}", shown(&folders.config_file()))?,
    }
    let mut table = "";
    for entry in &entries {
        let (above, name) = entry.key.rsplit_once('.').unwrap_or(("", &entry.key));
        if above != table {
            writeln!(out, "\n{STRONG}[{above}]{STRONG:#}")?;
            table = above;
        }
        for (line, source) in lines(name, entry) {
            match source {
                Some(source) => writeln!(out, "{line:COMMENTS$} {FAINT}# {}{FAINT:#}", neutral_line(&source.to_string()))?,
                None => writeln!(out, "{line}")?,
            }
        }
    }
    Ok(Exit::Success)
}

/// The lines of one entry, with the source of what stands in each. A list takes several where its elements have several sources.
fn lines<'a>(name: &str, entry: &'a Entry) -> Vec<(String, Option<&'a Source>)> {
    let items = entry.value.as_array().map_or(&[][..], Vec::as_slice);
    let one_source = entry.elements.iter().all(|source| *source == entry.source);
    if one_source {
        return vec![(format!("{name} = {}", toml(&entry.value)), Some(&entry.source))];
    }
    let mut lines = vec![(format!("{name} = ["), None)];
    lines.extend(items.iter().zip(&entry.elements).map(|(item, source)| (format!("  {},", toml(item)), Some(source))));
    lines.push(("]".to_owned(), None));
    lines
}

/// A value as TOML on one line.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(table) => {
            let pairs: Vec<String> = table.iter().map(|(key, value)| format!("{key} = {}", toml(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        // JSON's escapes are TOML's as well; what could steer a terminal is escaped on top.
        Value::String(_) => value.to_string().chars().map(visible).collect(),
        other => other.to_string(),
    }
}

fn visible(c: char) -> String {
    let text = c.to_string();
    if neutral(&text) == text { text } else { format!("\\U{:08X}", u32::from(c)) }
}

fn shown(path: &std::path::Path) -> String {
    neutral_line(&path.display().to_string())
}

fn check(inputs: &Inputs) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let working_directory = std::env::current_dir().map_err(berth_host::HostError::io("finding the working directory"))?;
    let loaded = match config::load(&folders, inputs) {
        Ok(loaded) => loaded,
        Err(problems) => {
            writeln!(anstream::stderr(), "{problems}")?;
            return Ok(Exit::Host);
        }
    };
    let refused = grants(&loaded, &folders, &working_directory);
    if !refused.is_empty() {
        writeln!(anstream::stderr(), "{}", refused.join("\n"))?;
        return Ok(Exit::Host);
    }
    match &loaded.file {
        Some(file) => writeln!(anstream::stdout(), "{} is right.", shown(file))?,
        None => writeln!(anstream::stdout(), "There is no {}, so the defaults hold.", shown(&folders.config_file()))?,
    }
    Ok(Exit::Success)
}

/// What is wrong with the grants, seen from the working directory.
fn grants(loaded: &Loaded, folders: &Folders, working_directory: &std::path::Path) -> Vec<String> {
    let plugins = loaded.config.plugins.keys().map(|name| loaded.plugin_files(name, folders, working_directory));
    let all = std::iter::once(loaded.built_in_files(folders, working_directory)).chain(plugins);
    all.filter_map(|policy| policy.err().map(|error| error.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_toml() {
        let check = |value: Value, expected: &str| assert_eq!(toml(&value), expected);
        check(json!(30), "30");
        check(json!(["a\"b", true]), r#"["a\"b", true]"#);
        check(json!({ "path": "b", "access": "read" }), r#"{ path = "b", access = "read" }"#);
        check(json!("\u{1b}[31m\u{202e}"), r#""\u001b[31m\U0000202E""#);
    }

    #[test]
    fn a_list_of_several_sources_takes_several_lines() {
        let flag = Source::Flag("--allow x".to_owned());
        let mut entry = Entry { key: "k".into(), value: json!([".", "x"]), source: Source::Default, elements: vec![Source::Default; 2] };
        assert_eq!(lines("k", &entry), [("k = [\".\", \"x\"]".to_owned(), Some(&Source::Default))]);
        entry.elements[1] = flag.clone();
        let shown = lines("k", &entry);
        assert_eq!(shown[2], ("  \"x\",".to_owned(), Some(&flag)));
        assert_eq!(shown.len(), 4);
    }
}
