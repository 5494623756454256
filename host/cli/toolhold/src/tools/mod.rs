//! `toolhold tools`: lists tools, and describes a tool.

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

pub(crate) fn run(arguments: &ToolsArguments, options: &Options) -> Result<Exit, Error> {
    if let Some(task) = &arguments.task {
        return crate::agent::command::tools_for(task, arguments.json, options);
    }
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let empty_hint = disabled_hint(&loaded);
    let untrusted = untrusted_servers(&loaded);
    let host = host::block_on(async {
        Ok(host::build(options, folders, loaded, "toolhold call").await?)
    })?;
    match &arguments.tool {
        Some(name) => show_tool(&host, name, &untrusted, arguments.json),
        None => list_tools(&host, empty_hint, arguments.json),
    }
}

/// Explains an empty list of tools.
fn disabled_hint(loaded: &Config) -> String {
    let tools = &loaded.values.tools;
    let switches = [("tools.enabled", tools.enabled), ("tools.file.enabled", tools.file.enabled)];
    match switches.iter().find(|(_, enabled)| !enabled) {
        Some((key, _)) => {
            format!("all tools are disabled by `{key} = false` ({})", loaded.place(key))
        }
        None => "the rules deny every tool; `toolhold policy check TOOL` names the rule".to_owned(),
    }
}

fn untrusted_servers(loaded: &Config) -> Vec<String> {
    let servers = loaded.values.mcp.servers.iter();
    let untrusted = servers.filter(|(_, server)| !server.trust_annotations);
    untrusted.map(|(name, _)| name.clone()).collect()
}

/// Lists the tools. `empty_hint` explains an empty list.
fn list_tools(host: &Host, empty_hint: String, as_json: bool) -> Result<Exit, Error> {
    // The same session, and so the same tools, as for `toolhold call` in this directory.
    let named_session = None;
    let session = call::session(named_session, &Folders::from_environment()?)?;
    let mut tools = Vec::new();
    for offered in host.tools_for(&session)? {
        tools.push(offered.definition);
    }
    if as_json {
        let tools: Value = tools.iter().map(|tool| json!(**tool)).collect();
        writeln!(std::io::stdout().lock(), "{tools:#}")?;
        return Ok(Exit::Success);
    }
    if tools.is_empty() {
        warn(&neutral_line(&empty_hint))?;
    }
    let mut table = Table::new(["NAME", "FROM", "DESCRIPTION"], &[]);
    for tool in &tools {
        table.row([tool.name.clone(), provider(host, &tool.name), shown::summary(tool)]);
    }
    table.print(&mut anstream::stdout().lock())?;
    Ok(Exit::Success)
}

/// Describes the tool `name`. `untrusted` are the servers whose promises aren't trusted.
fn show_tool(host: &Host, name: &str, untrusted: &[String], as_json: bool) -> Result<Exit, Error> {
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
    let is_of_server = plugin.is_none() && tool.foreign;
    if is_of_server && host.source_of(&tool.name).is_some_and(|name| untrusted.contains(&name)) {
        writeln!(out, "  the server's promises are not trusted without `trust_annotations`")?;
    }
    if let Some(Decision { rule, place, remedy, .. }) = off {
        let why =
            neutral(&format!("the tool is disabled by `{rule}` ({place}). {remedy}")).into_owned();
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
    match host.plugin_of(tool) {
        Some(plugin) => plugin.manifest.name.clone(),
        None => host.source_of(tool).unwrap_or_default(),
    }
}

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
                shown::wrap(&about, names + types + 16, columns)
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

/// Describes a tool's promises.
fn behaviour(annotations: Annotations) -> String {
    let Annotations { read_only, destructive, idempotent, open_world, cacheable } = annotations;
    let promises = [
        (read_only, "only reads (enforced)"),
        (!read_only && destructive, "may destroy"),
        (!read_only && !destructive, "changes things"),
        (idempotent, "repeating a call has no further effect"),
        (open_world, "reaches other machines"),
        (cacheable, "answers may be cached"),
    ];
    let mut made_promises = Vec::new();
    for (is_made, promise) in promises {
        if is_made {
            made_promises.push(promise);
        }
    }
    made_promises.join(", ")
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
        assert!(text.contains("  may destroy, reaches other machines\n"), "{text}");
        assert!(text.contains("  also called see\n"), "{text}");
    }
}
