//! Runs components without Toolhold's interfaces: plain functions and WASI commands.

use std::borrow::Cow;

use serde_json::Value;
use toolhold_compiler::typed::{
    ComponentKind, Docs, Functions, NoFunctionsError, Outline, ToolBounds,
};
use toolhold_component::{Manifest, Request, RequestedLimits};
use toolhold_contract::text::{cut, neutral};
use toolhold_contract::{Category, Content, Definition, Failure, Outcome, Output};
use toolhold_policy::{CommandLine, CommandTemplate};
use wasmtime::Store;
use wasmtime::component::{Component, ComponentExportIndex, Instance, Val};
use wasmtime_wasi::I32Exit;

use crate::guest::CallState;
use crate::guest::capability::PluginGrants;
use crate::limits::{MAX_DESCRIPTION, MAX_TOOL_NAME, MAX_TOOLS};

/// The name of a command's tool.
const RUN: &str = "run";

/// Bytes at the end of a command's standard error that its answer contains.
const MAX_STDERR: usize = 16 * 1024;

/// Most bytes of the description in a manifest that the host makes.
const MAX_SUMMARY: usize = 1024;

/// Functions have the same bounds as tools of plugins.
const BOUNDS: ToolBounds =
    ToolBounds { tools: MAX_TOOLS, name: MAX_TOOL_NAME, description: MAX_DESCRIPTION };

/// The exports of a component without Toolhold's interfaces.
pub(crate) enum Foreign {
    /// Each function is a tool.
    Functions(Functions),
    /// The function `run` of `wasi:cli/run`.
    Command(ComponentExportIndex),
}

/// Checked arguments of a call.
pub(crate) enum Input {
    Values(Vec<Val>),
    Command(CommandLine),
}

impl Foreign {
    /// Finds the exports. Returns an error if Toolhold can call none of them.
    pub(crate) fn from_component(component: &Component) -> Result<Self, NoFunctionsError> {
        if let Some(run) = find_run(component) {
            return Ok(Self::Command(run));
        }
        Functions::from_component(component, BOUNDS).map(Self::Functions)
    }

    /// Checks and converts arguments before code of the component runs.
    pub(crate) fn check(
        &self,
        tool: &str,
        arguments: &Value,
        policy: &PluginGrants,
    ) -> Result<Input, Failure> {
        match self {
            Self::Functions(functions) => functions.check(tool, arguments).map(Input::Values),
            Self::Command(_) => {
                let Some(template) = &policy.command else {
                    let failure = Failure::new(Category::PermanentFailure, NO_TEMPLATE);
                    return Err(failure.with_code("host"));
                };
                match template.expand(arguments) {
                    Ok(line) => Ok(Input::Command(line)),
                    Err(error) => Err(Failure::new(Category::InvalidParameters, error.to_string())),
                }
            }
        }
    }

    /// Calls the component. An error means a trap.
    pub(crate) async fn call(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
        tool: &str,
        input: Input,
        limit: usize,
    ) -> wasmtime::Result<Outcome> {
        match (self, input) {
            (Self::Functions(functions), Input::Values(values)) => {
                functions.call(store, instance, tool, &values, limit).await
            }
            (Self::Command(run), Input::Command(line)) => {
                run_command(store, instance, *run, line, limit).await
            }
            // Never happens, because `check` makes the input for the same component.
            _ => Err(wasmtime::Error::msg("the arguments don't belong to this component")),
        }
    }
}

const NO_TEMPLATE: &str = "the component is a WASI command; to run the command as a tool, set \
                           `command = true` and `arguments` in the plugin's table of the \
                           configuration";

#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("{NO_TEMPLATE} ({0})")]
    NoTemplate(String),
    #[error(
        "the plugin's table of the configuration has `command = true`, but the component isn't a \
         command: the export `wasi:cli/run` is missing"
    )]
    NoCommand,
}

/// Returns the tools of a component, and a message for each function that isn't offered.
pub(crate) fn offer(
    foreign: &Foreign,
    docs: &Docs,
    manifest: &Manifest,
    policy: &PluginGrants,
) -> Result<(Vec<Definition>, Vec<String>), TableError> {
    match foreign {
        Foreign::Functions(functions) => Ok(functions.offer(docs)),
        Foreign::Command(_) => Ok((command_tools(manifest, policy)?, Vec::new())),
    }
}

pub(crate) fn command_tools(
    manifest: &Manifest,
    policy: &PluginGrants,
) -> Result<Vec<Definition>, TableError> {
    let template = match &policy.command {
        Some(template) => Cow::Borrowed(&**template),
        // An inspected command without a template is shown without arguments.
        None if policy.inspect_only => Cow::Owned(CommandTemplate::default()),
        None => return Err(TableError::NoTemplate(policy.table.lines("command = true"))),
    };
    let about = template.description.as_deref().unwrap_or(&manifest.description);
    let mut tool = Definition::new(RUN, neutral(cut(about, MAX_DESCRIPTION)), template.schema());
    tool.subjects = template.subjects();
    tool.foreign = true;
    Ok(vec![tool])
}

pub(crate) fn check_kind(kind: ComponentKind, policy: &PluginGrants) -> Result<(), TableError> {
    if policy.command.is_some() && kind != ComponentKind::Command {
        return Err(TableError::NoCommand);
    }
    Ok(())
}

/// Makes a manifest for a component without one. `name` is the name of its file or table.
pub(crate) fn make_manifest(name: &str, outline: &Outline, docs: &Docs) -> Manifest {
    let mut capabilities = Vec::new();
    if let Some(import) = outline.imports_of("wasi:filesystem") {
        let reason = format!("the component imports `{import}`");
        capabilities.push(request("files", Some("read-write"), reason));
    }
    if let Some(import) = outline.imports_of("wasi:http") {
        capabilities.push(request("http", None, format!("the component imports `{import}`")));
    }
    if outline.is_module() {
        let reason = "the module uses WASI preview 1".to_owned();
        capabilities.push(request("files", Some("read-write"), reason));
    }

    let package_docs = docs.package().map_or("", str::trim);
    let description = if !package_docs.is_empty() {
        package_docs
    } else if outline.kind == ComponentKind::Command {
        "A command without a manifest"
    } else {
        "A component without a manifest"
    };
    // A manifest must have a version.
    let version = outline.version.clone().unwrap_or_else(|| "0".to_owned());
    Manifest {
        manifest: 1,
        name: name.to_owned(),
        version,
        description: neutral(cut(description, MAX_SUMMARY)).into_owned(),
        authors: Vec::new(),
        license: None,
        repository: None,
        capabilities,
        limits: RequestedLimits::default(),
        config_schema: None,
        parts: Vec::new(),
    }
}

fn request(name: &str, access: Option<&str>, reason: String) -> Request {
    Request { name: name.to_owned(), access: access.map(str::to_owned), reason }
}

/// Finds `run` of a command, in any version of WASI 0.2.
fn find_run(component: &Component) -> Option<ComponentExportIndex> {
    let component_type = component.component_type();
    let mut exports = component_type.exports(component.engine());
    let (name, _) = exports.find(|(name, _)| name.starts_with("wasi:cli/run@0.2."))?;
    let interface = component.get_export_index(None, name)?;
    component.get_export_index(Some(&interface), "run")
}

/// Runs a command to its end. An error means a trap.
async fn run_command(
    store: &mut Store<CallState>,
    instance: &Instance,
    run: ComponentExportIndex,
    line: CommandLine,
    limit: usize,
) -> wasmtime::Result<Outcome> {
    store.data_mut().begin_command(line, limit);
    let function = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut *store, run)?;
    let exit_code = match function.call_async(&mut *store, ()).await {
        Ok((Ok(()),)) => 0,
        // An error of `run` has no exit code, so use 1, as shells do for a general error.
        Ok((Err(()),)) => 1,
        // A command that calls `exit` ends with a trap that contains the exit code.
        Err(error) => match error.downcast_ref::<I32Exit>() {
            Some(exit) => exit.0,
            None => return Err(error),
        },
    };
    Ok(command_outcome(exit_code, store.data()))
}

/// Makes the outcome of a command. An exit code other than 0 is a failure.
fn command_outcome(exit_code: i32, state: &CallState) -> Outcome {
    let stdout = state.call.stdout.text();
    let stderr_end = state.call.stderr.end(MAX_STDERR);
    let stderr = stderr_end.trim_end();
    let mut content = Vec::new();
    if !stdout.is_empty() {
        content.push(Content::text(stdout));
    }
    if !stderr.is_empty() {
        content.push(Content::text(format!("Standard error:\n{stderr}")));
    }

    if exit_code == 0 {
        if content.is_empty() {
            content.push(Content::text("The command wrote nothing."));
        }
        return Ok(Output { content, ..Output::default() });
    }
    let mut failure = Failure::new(Category::PermanentFailure, format!("Exit code: {exit_code}"));
    failure.code = Some("exit-status".to_owned());
    failure.content = content;
    Err(failure)
}
