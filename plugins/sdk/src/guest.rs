//! Makes the exports of a Rust plugin with tools.

use serde_json::Value;

use crate::contract::bindings::exports::toolhold::tool::tools;
use crate::contract::bindings::toolhold::tool::types as wit;
use crate::contract::{content_in, content_out, failure};
use crate::plugin::{Invocation, Plugin, ToolEntry};
use crate::{Failure, Output, Preview, log};

/// The trait that `plugin!` implements for a plugin with tools. It gives the component its exports.
pub trait PluginComponent {
    /// The tools.
    const PLUGIN: Plugin;
}

impl<T: PluginComponent> tools::Guest for T {
    fn list_tools() -> Result<Vec<tools::Definition>, wit::Failure> {
        log_panics();
        T::PLUGIN.tools.iter().map(definition).collect::<Result<_, _>>().map_err(failure)
    }

    fn call_tool(call: tools::Invocation) -> Result<wit::Output, wit::Failure> {
        log_panics();
        let attachments = call.attachments.into_iter().map(content_in).collect();
        let tools::Invocation { tool, arguments, meta, .. } = call;
        let invocation = Invocation { tool, arguments, attachments, meta };
        T::PLUGIN.call(invocation).map(output).map_err(failure)
    }
}

/// Writes panics to the operator's log, and to standard error, whose end the caller gets. A panic
/// ends the instance, and the host answers that the tool crashed.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        log::error(panic);
        eprintln!("{panic}");
    }));
}

fn definition(tool: &ToolEntry) -> Result<tools::Definition, Failure> {
    let schema = tool.checked_schema()?;
    let arguments = tool.arguments(&schema)?.into_iter().map(|argument| tools::Argument {
        name: argument.name,
        aliases: argument.aliases.into_iter().map(str::to_owned).collect(),
        roles: argument.roles.into_iter().map(str::to_owned).collect(),
        base: argument.base.map(str::to_owned),
        reads_with: argument.reads_with.iter().map(Value::to_string).collect(),
        meta: None,
    });
    let subjects = tool.subjects.iter().map(|subject| tools::Subject {
        pointer: subject.pointer.to_owned(),
        kind: subject.kind.as_str().to_owned(),
        access: subject.access.as_str().to_owned(),
    });
    Ok(tools::Definition {
        name: tool.name.to_owned(),
        title: tool.title.map(str::to_owned),
        description: tool.description.to_owned(),
        aliases: tool.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        input_schema: schema.as_value().to_string(),
        output_schema: (tool.output_schema)().map(|schema| schema.as_value().to_string()),
        promises: tool.promises.names().map(str::to_owned).collect(),
        subjects: subjects.collect(),
        arguments: arguments.collect(),
        preview: tool.preview.map(preview),
        answers_in: tool.answers_in_text.then(|| "text".to_owned()),
        fence: tool.fence.map(str::to_owned),
        meta: None,
    })
}

fn preview(preview: Preview) -> tools::Preview {
    match preview {
        Preview::Whole { file, content } => tools::Preview {
            file: file.to_owned(),
            content: Some(content.to_owned()),
            old: None,
            new: None,
            all: None,
        },
        Preview::Part { file, old, new, all } => tools::Preview {
            file: file.to_owned(),
            content: None,
            old: Some(old.to_owned()),
            new: Some(new.to_owned()),
            all: Some(all.to_owned()),
        },
    }
}

fn output(output: Output) -> wit::Output {
    wit::Output {
        content: output.content.into_iter().map(content_out).collect(),
        structured: output.structured.as_ref().map(Value::to_string),
        after_emitted: output.after_emitted,
        meta: output.meta.as_ref().map(Value::to_string),
    }
}
