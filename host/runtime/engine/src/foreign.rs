//! Runs components that don't import Toolhold's interfaces: their functions, and WASI commands.

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

/// The name of a command's only tool.
const RUN: &str = "run";

/// Most bytes of a command's standard error in its answer, taken from the end.
const MAX_STDERR: usize = 16 * 1024;

/// The bounds for functions. Tools of the host have the same bounds.
const BOUNDS: ToolBounds =
    ToolBounds { tools: MAX_TOOLS, name: MAX_TOOL_NAME, description: MAX_DESCRIPTION };

/// The exports of a component that doesn't know Toolhold.
pub(crate) enum Foreign {
    /// Functions, each a tool.
    Functions(Functions),
    /// The function `run` of `wasi:cli/run`.
    Command(ComponentExportIndex),
}

/// The checked arguments of one call.
pub(crate) enum Input {
    Values(Vec<Val>),
    Command(CommandLine),
}

impl Foreign {
    /// Finds the exports of a component that doesn't export Toolhold's interfaces.
    ///
    /// # Errors
    ///
    /// The component exports nothing that Toolhold can call.
    pub(crate) fn from_component(component: &Component) -> Result<Self, NoFunctionsError> {
        if let Some(run) = find_run(component) {
            return Ok(Self::Command(run));
        }
        Functions::from_component(component, BOUNDS).map(Self::Functions)
    }

    /// Converts and checks the arguments of a call, before any code of the component runs.
    ///
    /// # Errors
    ///
    /// The fault of the arguments.
    pub(crate) fn check(
        &self,
        tool: &str,
        arguments: &Value,
        policy: &PluginGrants,
    ) -> Result<Input, Failure> {
        match self {
            Self::Functions(functions) => functions.check(tool, arguments).map(Input::Values),
            Self::Command(_) => {
                let template = policy.command.as_ref().ok_or_else(|| {
                    Failure::new(Category::PermanentFailure, NO_TEMPLATE).with_code("host")
                })?;
                let line = template.expand(arguments);
                line.map(Input::Command)
                    .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))
            }
        }
    }

    /// Calls the component. An error is a trap.
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
            _ => Err(wasmtime::Error::msg("the arguments don't belong to this component")),
        }
    }
}

/// The reason why a command without a template is not loaded, with the remedy.
const NO_TEMPLATE: &str = "it is a WASI command; to run it as a tool, set `command = true` and its `arguments` in its table of the configuration";

/// A reason why the operator's table doesn't fit a component.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    /// With the remedy.
    #[error("{NO_TEMPLATE} ({0})")]
    NoTemplate(String),
    #[error(
        "its table of the configuration says `command = true`, but it is no command: it doesn't export `wasi:cli/run`"
    )]
    NoCommand,
}

/// Lists the tools of a component that doesn't know Toolhold. Also lists the functions that are
/// left out, each with the reason.
///
/// # Errors
///
/// Returns an error if the operator's table doesn't fit the component.
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

/// Makes the only tool of a command, from the operator's template.
///
/// # Errors
///
/// The operator's table has no template.
pub(crate) fn command_tools(
    manifest: &Manifest,
    policy: &PluginGrants,
) -> Result<Vec<Definition>, TableError> {
    let template = match &policy.command {
        Some(template) => Cow::Borrowed(&**template),
        // The tool is shown as a command without arguments.
        None if policy.inspect_only => Cow::Owned(CommandTemplate::default()),
        None => return Err(TableError::NoTemplate(policy.table.lines("command = true"))),
    };
    let about = template.description.as_deref().unwrap_or(&manifest.description);
    let mut tool = Definition::new(RUN, neutral(cut(about, MAX_DESCRIPTION)), template.schema());
    tool.subjects = template.subjects();
    tool.foreign = true;
    Ok(vec![tool])
}

/// Checks whether the operator's table fits the kind of the component.
///
/// # Errors
///
/// The table has a template, and the component is no command.
pub(crate) fn check_kind(kind: ComponentKind, policy: &PluginGrants) -> Result<(), TableError> {
    if policy.command.is_some() && kind != ComponentKind::Command {
        return Err(TableError::NoCommand);
    }
    Ok(())
}

/// Makes a manifest for a component that has none. `name`: the name of its file or of its table.
pub(crate) fn make_manifest(name: &str, outline: &Outline, docs: &Docs) -> Manifest {
    let mut capabilities = Vec::new();
    if let Some(import) = outline.imports_of("wasi:filesystem") {
        let reason = format!("it imports `{import}`");
        capabilities.push(request("files", Some("read-write"), reason));
    }
    if let Some(import) = outline.imports_of("wasi:http") {
        capabilities.push(request("http", None, format!("it imports `{import}`")));
    }
    if outline.is_module() {
        let reason = "it is a module of WASI preview 1".to_owned();
        capabilities.push(request("files", Some("read-write"), reason));
    }

    let description = match docs.package().map(str::trim) {
        Some(text) if !text.is_empty() => text,
        _ if outline.kind == ComponentKind::Command => "A command without a manifest",
        _ => "A component without a manifest",
    };
    Manifest {
        manifest: 1,
        name: name.to_owned(),
        version: outline.version.clone().unwrap_or_else(|| "0".to_owned()),
        description: neutral(cut(description, 1024)).into_owned(),
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

/// Finds the function `run` of a command, in any version of WASI 0.2.
fn find_run(component: &Component) -> Option<ComponentExportIndex> {
    let component_type = component.component_type();
    let mut exports = component_type.exports(component.engine());
    let (name, _) = exports.find(|(name, _)| name.starts_with("wasi:cli/run@0.2."))?;
    let interface = component.get_export_index(None, name)?;
    component.get_export_index(Some(&interface), "run")
}

async fn run_command(
    store: &mut Store<CallState>,
    instance: &Instance,
    run: ComponentExportIndex,
    line: CommandLine,
    limit: usize,
) -> wasmtime::Result<Outcome> {
    store.data_mut().begin_command(line, limit);
    let run = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut *store, run)?;
    let code = match run.call_async(&mut *store, ()).await {
        Ok((Ok(()),)) => 0,
        Ok((Err(()),)) => 1,
        Err(error) => match error.downcast_ref::<I32Exit>() {
            Some(exit) => exit.0,
            None => return Err(error),
        },
    };
    Ok(command_outcome(code, store.data()))
}

/// Makes the outcome of a command that ended by itself. `code`: the exit code.
fn command_outcome(code: i32, state: &CallState) -> Outcome {
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

    if code == 0 {
        if content.is_empty() {
            content.push(Content::text("The command wrote nothing."));
        }
        return Ok(Output { content, ..Output::default() });
    }
    let mut failure = Failure::new(Category::PermanentFailure, format!("Exit code: {code}"));
    failure.code = Some("exit-status".to_owned());
    failure.content = content;
    Err(failure)
}
