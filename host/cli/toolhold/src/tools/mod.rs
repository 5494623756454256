//! `toolhold tools`: lists the tools, and describes one.

use std::io::Write;

use serde_json::{Value, json};
use toolhold_core::config::{Config, Folders};
use toolhold_core::text::{neutral, neutral_line};
use toolhold_core::{Access, Annotations, Decision, Definition, Host, SubjectKind};

use crate::arguments::ToolsArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin_description::{Card, Imports};
use crate::schema;
use crate::shown;
use crate::style::{STRONG, warn};
use crate::{call, host};
use toolhold_terminal::table::Table;

/// Runs the command.
pub(crate) fn run(arguments: &ToolsArguments, options: &Options) -> Result<Exit, Error> {
    if let Some(task) = &arguments.task {
        return crate::agent::command::tools_for(task, arguments.json, options);
    }
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let off = disabled_hint(&loaded);
    let host = host::block_on(async {
        Ok(host::build(options, folders, loaded, "toolhold call").await?)
    })?;
    match &arguments.tool {
        Some(name) => show_tool(&host, name, arguments.json),
        None => all(&host, off, arguments.json),
    }
}

/// Returns the reason why there may be no tools.
fn disabled_hint(loaded: &Config) -> String {
    let tools = &loaded.values.tools;
    let off = [("tools.enabled", tools.enabled), ("tools.file.enabled", tools.file.enabled)];
    match off.iter().find(|(_, enabled)| !enabled) {
        Some((key, _)) => {
            format!("all tools are disabled: `{key} = false` ({})", loaded.place(key))
        }
        None => "the rules deny every tool; `toolhold policy check TOOL` names the rule".to_owned(),
    }
}

fn all(host: &Host, off: String, as_json: bool) -> Result<Exit, Error> {
    // The tools for the calls of this directory.
    let session = call::session(None, &Folders::from_environment()?)?;
    let tools: Vec<_> =
        host.tools_for(&session)?.into_iter().map(|offered| offered.definition).collect();
    if as_json {
        let tools: Value = tools.iter().map(|tool| json!(**tool)).collect();
        writeln!(std::io::stdout().lock(), "{tools:#}")?;
        return Ok(Exit::Success);
    }
    if tools.is_empty() {
        warn(&neutral_line(&off))?;
    }
    let mut table = Table::new(["NAME", "FROM", "DESCRIPTION"], &[]);
    for tool in &tools {
        table.row([tool.name.clone(), provider(host, &tool.name), shown::summary(tool)]);
    }
    table.print(&mut anstream::stdout().lock())?;
    Ok(Exit::Success)
}

fn show_tool(host: &Host, name: &str, as_json: bool) -> Result<Exit, Error> {
    let Some(tool) = host.tool(name) else {
        let similar = host.similar_tools(name);
        let hint = match similar.first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`toolhold tools` lists all tools".to_owned(),
        };
        return Err(Error::Usage(format!("there is no tool `{name}`; {hint}")));
    };
    let plugin = host.plugin_of(&tool.name);
    let off = host.switched_off(&tool.name);
    if as_json {
        let mut value = json!(*tool);
        value["plugin"] = json!(plugin.as_deref());
        value["enabled"] = json!(off.is_none());
        writeln!(std::io::stdout().lock(), "{value:#}")?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    write!(out, "{}", describe(&tool, shown::columns()))?;
    if let Some(Decision { rule, place, remedy, .. }) = off {
        let why =
            neutral(&format!("the tool is disabled by `{rule}`, {place}. {remedy}")).into_owned();
        warn(&why)?;
    }
    if let Some(plugin) = &plugin {
        write!(out, "\n{}{}", Card(plugin), Imports(plugin))?;
    }
    let directories = host.directories_of(&tool.name);
    if !directories.is_empty() {
        writeln!(out, "\n{STRONG}Granted{STRONG:#}")?;
    }
    for (path, access) in directories {
        let access = if access == Access::Read { "read" } else { "read and write" };
        writeln!(out, "  {} ({access})", neutral_line(&path.display().to_string()))?;
    }
    Ok(Exit::Success)
}

fn provider(host: &Host, tool: &str) -> String {
    host.plugin_of(tool).map_or_else(String::new, |plugin| plugin.manifest.name.clone())
}

/// Everything about a tool, for people.
fn describe(tool: &Definition, columns: Option<usize>) -> String {
    let title = tool
        .title
        .as_deref()
        .map(|title| format!(" – {}", neutral_line(title)))
        .unwrap_or_default();
    let mut text = format!(
        "{STRONG}{}{STRONG:#}{title}\n\n{}\n",
        tool.name,
        shown::wrap(&neutral(tool.description.trim()), 0, columns)
    );
    let arguments = schema::arguments(&tool.input_schema);
    if !arguments.is_empty() {
        text += &format!("\n{STRONG}Arguments{STRONG:#}\n");
        let names = width(arguments.iter().map(|argument| &*argument.name));
        let types = width(arguments.iter().map(|argument| &*argument.takes)).min(32);
        for argument in &arguments {
            let required = if argument.required { "required" } else { "" };
            let default = argument
                .default
                .as_deref()
                .map(|default| format!(" [default: {}]", neutral_line(default)))
                .unwrap_or_default();
            let about = format!("{}{default}", neutral_line(&argument.description));
            let line = format!(
                "  {:names$}  {:types$}  {required:8}  {}",
                neutral_line(&argument.name),
                neutral_line(&argument.takes),
                shown::wrap(&about, names + types + 14, columns)
            );
            text += line.trim_end();
            text += "\n";
        }
    }
    text += &format!("\n{STRONG}Behaviour{STRONG:#}\n  {}\n", behaviour(tool.annotations));
    for subject in &tool.subjects {
        let access = if subject.access == Access::Read { "reads" } else { "writes" };
        let kind = match subject.kind {
            SubjectKind::Path | SubjectKind::Name => "path",
            SubjectKind::Url => "URL",
            SubjectKind::Command => "command",
            SubjectKind::Text => "text",
        };
        text += &format!(
            "  {access} the {kind} in `{}`\n",
            neutral_line(subject.pointer.trim_start_matches('/'))
        );
    }
    if !tool.aliases.is_empty() {
        let aliases: Vec<String> = tool.aliases.iter().map(|alias| neutral_line(alias)).collect();
        text += &format!("  also called {}\n", aliases.join(", "));
    }
    if let Some(output @ Value::Object(_)) = &tool.output_schema {
        let properties = output["properties"].as_object().into_iter().flatten();
        let names: Vec<String> = properties.map(|(name, _)| neutral_line(name)).collect();
        text += &format!("  structured answer: {}\n", names.join(", "));
    }
    text
}

fn width<'t>(texts: impl Iterator<Item = &'t str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn behaviour(annotations: Annotations) -> String {
    let Annotations { read_only, destructive, idempotent, open_world, cacheable } = annotations;
    let words = [
        (read_only, "only reads (enforced)"),
        (!read_only && destructive, "may destroy"),
        (!read_only && !destructive, "changes things"),
        (idempotent, "repeating a call changes nothing more"),
        (open_world, "reaches beyond this machine"),
        (cacheable, "answers may be cached"),
    ];
    let mut true_words = Vec::new();
    for (is_true, word) in words {
        if is_true {
            true_words.push(word);
        }
    }
    true_words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shown::{SUMMARY, summary};

    fn tool(description: &str) -> Definition {
        Definition {
            name: "look".into(),
            title: None,
            description: description.into(),
            input_schema: json!({ "type": "object", "properties": { "at": { "type": "string", "description": "What" } }, "required": ["at"] }),
            output_schema: None,
            annotations: Annotations::default(),
            says_destructive: false,
            subjects: Vec::new(),
            arguments: Vec::new(),
            preview: None,
            text_for_models: false,
            unlisted: false,
            fence: None,
            foreign: false,
            aliases: vec!["see".into()],
            meta: None,
        }
    }

    #[test]
    fn tool_summary_is_the_short_first_sentence() {
        let check =
            |description: &str, expected: &str| assert_eq!(summary(&tool(description)), expected);
        check("Looks. Then tells.", "Looks");
        check("Looks at\na.txt.", "Looks at a.txt");
        check("\u{1b}[2J", "\u{fffd}[2J");
        assert!(summary(&tool(&"long ".repeat(100))).len() <= SUMMARY + '…'.len_utf8());
    }

    #[test]
    fn tool_description_is_complete() {
        let text = anstream::adapter::strip_str(&describe(&tool("Looks."), None)).to_string();
        assert!(text.contains("  at  text  required  What\n"), "{text}");
        assert!(text.contains("  may destroy, reaches beyond this machine\n"), "{text}");
        assert!(text.contains("  also called see\n"), "{text}");
    }
}
