//! Decides which exported functions of a component that isn't made for Toolhold become tools, and
//! calls them.

use std::collections::HashMap;

use serde_json::{Map, Value};
use toolhold_component::schema;
use toolhold_contract::text::{cut, neutral, neutral_line};
use toolhold_contract::{Category, Content, Definition, Failure, Outcome, Output};
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, Instance, Type, Val};
use wasmtime::{Engine, Store};

use crate::typed::docs::Docs;
use crate::typed::schema::{Schemas, TypeError};
use crate::typed::signature::write_signature;
use crate::typed::values::{Lifting, Lowering, ValueError};

/// The limits for the tools of one component.
#[derive(Clone, Copy, Debug)]
pub struct ToolBounds {
    /// Most tools.
    pub tools: usize,
    /// Most characters of a tool's own name.
    pub name: usize,
    /// Most bytes of a tool's description.
    pub description: usize,
}

/// Most bytes of a failure's message.
const MAX_MESSAGE: usize = 4096;

/// Bytes of a description that are reserved for the signature.
const SIGNATURE: usize = 1300;

/// Most exports that are looked at. The rest can't all be tools.
const MAX_EXPORTS: usize = 1000;

/// Most functions that are listed as left out.
const MAX_LEFT_OUT: usize = 128;

/// The field of a structured answer that isn't an object itself.
const RESULT: &str = "result";

/// The functions that a component exports, as tools.
pub struct Functions {
    offered: Vec<Function>,
    left_out: Vec<String>,
    /// Most bytes of a description.
    description: usize,
}

/// An exported function that is a tool.
struct Function {
    /// The tool's own name.
    name: String,
    /// The place where the component exports the function, in the form of WIT.
    written: String,
    interface: Option<String>,
    index: ComponentExportIndex,
    params: Vec<(String, Type)>,
    /// The type of the result. A WIT `result` is split, and its error is the tool's failure.
    ok: Option<Type>,
    err: Option<Type>,
    fails: bool,
    definition: Definition,
}

/// A function that may become a tool.
struct Exported {
    /// The full name of the interface. `None` if the component exports the function directly.
    interface: Option<String>,
    function: String,
    index: ComponentExportIndex,
    ty: ComponentFunc,
}

/// A component exports no function that could be a tool.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "it exports nothing that Toolhold can call: neither `toolhold:tool/tools` nor `toolhold:tool/filter`, no function of its own, \
     and no `wasi:cli/run`"
)]
pub struct NoFunctionsError;

/// A reason why a function isn't a tool.
#[derive(Debug, thiserror::Error)]
enum FunctionError {
    #[error("it belongs to a resource, which lives in one instance, and each call has its own")]
    OfResource,
    #[error("another function would have its name, `{0}`, too")]
    NameTaken(String),
    #[error("its name `{name}` is {} characters; the limit is {limit}", .name.len())]
    LongName { name: String, limit: usize },
    #[error("it belongs to the tools that built the component")]
    OfToolchain,
    #[error("it is async, which Toolhold doesn't run yet")]
    Async,
    #[error("its {what} {error}")]
    Type { what: &'static str, error: TypeError },
    #[error("the component has more than {0} functions, which is the limit")]
    TooMany(usize),
}

impl Functions {
    /// Reads the types of a component. No code of the component runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the component exports no function.
    pub fn from_component(
        component: &Component,
        bounds: ToolBounds,
    ) -> Result<Self, NoFunctionsError> {
        let exports = find_exports(component);
        if exports.is_empty() {
            return Err(NoFunctionsError);
        }
        let names = tool_names(&exports, bounds.name);
        let mut offered: Vec<Function> = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        for (export, name) in exports.into_iter().zip(names) {
            let written = export.written();
            let mut function = name.and_then(|name| Function::new(export, name));
            if function.is_ok() && offered.len() == bounds.tools {
                function = Err(FunctionError::TooMany(bounds.tools));
            }
            match function {
                Ok(function) => offered.push(function),
                Err(error) if left_out.len() < MAX_LEFT_OUT => {
                    left_out.push(format!("{}: {error}", neutral_line(cut(&written, 200))));
                }
                Err(_) => {}
            }
        }
        Ok(Self { offered, left_out, description: bounds.description })
    }

    /// Finds the function of a tool.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no tool with this name.
    fn find(&self, tool: &str) -> Result<&Function, Failure> {
        self.offered.iter().find(|function| function.name == tool).ok_or_else(|| {
            let message = format!("the component has no function for `{tool}`");
            Failure::new(Category::PermanentFailure, message).with_code("host")
        })
    }

    /// Converts the arguments of a tool to values, before any code of the component runs.
    ///
    /// # Errors
    ///
    /// The arguments don't fit the types of the function.
    pub fn check(&self, tool: &str, arguments: &Value) -> Result<Vec<Val>, Failure> {
        self.find(tool)?.convert_arguments(arguments)
    }

    /// Calls the function of a tool. The answer has at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the component trapped or was stopped.
    pub async fn call<T: Send + 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        tool: &str,
        values: &[Val],
        limit: usize,
    ) -> wasmtime::Result<Outcome> {
        match self.find(tool) {
            Ok(function) => function.call(store, instance, values, limit).await,
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Returns the definitions of the tools. Also returns the functions that are left out, each
    /// with the reason.
    pub fn offer(&self, docs: &Docs) -> (Vec<Definition>, Vec<String>) {
        let tools = self.offered.iter().map(|function| function.describe(docs, self.description));
        (tools.collect(), self.left_out.clone())
    }
}

/// Finds the functions that a component exports directly or in an interface. Functions of the
/// packages `wasi` and `toolhold` are ignored.
fn find_exports(component: &Component) -> Vec<Exported> {
    let engine = component.engine();
    let mut all = Vec::new();
    for (name, item) in component.component_type().exports(engine).take(MAX_EXPORTS) {
        if name.starts_with("wasi:") || name.starts_with("toolhold:") {
            continue;
        }
        let Some(index) = component.get_export_index(None, name) else { continue };
        match item.ty {
            ComponentItem::ComponentFunc(ty) => {
                all.push(Exported { interface: None, function: name.to_owned(), index, ty });
            }
            ComponentItem::ComponentInstance(interface) => {
                for (function, ty) in interface_functions(&interface, engine) {
                    let Some(index) = component.get_export_index(Some(&index), &function) else {
                        continue;
                    };
                    all.push(Exported { interface: Some(name.to_owned()), function, index, ty });
                }
            }
            _ => {}
        }
        if all.len() >= MAX_EXPORTS {
            break;
        }
    }
    all
}

fn interface_functions(
    interface: &wasmtime::component::types::ComponentInstance,
    engine: &Engine,
) -> Vec<(String, ComponentFunc)> {
    let exports = interface.exports(engine).take(MAX_EXPORTS);
    exports
        .filter_map(|(name, item)| match item.ty {
            ComponentItem::ComponentFunc(ty) => Some((name.to_owned(), ty)),
            _ => None,
        })
        .collect()
}

/// Returns the tool name of each function, or the reason why there is no name. A function of an
/// interface is always named `interface-function`. If two interfaces with the same name have the
/// function, the name starts with the name of their package.
fn tool_names(exports: &[Exported], limit: usize) -> Vec<Result<String, FunctionError>> {
    let short_names: Vec<String> = exports.iter().map(|export| export.name(false)).collect();
    let short_counts = count_names(&short_names);
    let mut names = Vec::new();
    for (export, short_name) in exports.iter().zip(&short_names) {
        if short_counts[short_name.as_str()] > 1 {
            names.push(export.name(true));
        } else {
            names.push(short_name.clone());
        }
    }

    let counts = count_names(&names);
    names
        .iter()
        .zip(exports)
        .map(|(name, export)| {
            // WIT writes a function of a resource as `[method]…`.
            if export.function.starts_with('[') {
                Err(FunctionError::OfResource)
            } else if counts[name.as_str()] > 1 {
                Err(FunctionError::NameTaken(name.clone()))
            } else if name.len() > limit {
                Err(FunctionError::LongName { name: name.clone(), limit })
            } else {
                Ok(name.clone())
            }
        })
        .collect()
}

fn count_names(names: &[String]) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

impl Exported {
    /// Returns the function's name in the form for people: `acme:units/convert.to-feet`.
    fn written(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{interface}.{}", self.function),
            None => self.function.clone(),
        }
    }

    /// Returns the tool name. For example, the function `to-feet` of `acme:units/convert@1.0.0` is
    /// named `convert-to-feet`, or `units-convert-to-feet` with its package.
    fn name(&self, with_package: bool) -> String {
        let versioned = self.interface.as_deref().unwrap_or_default();
        let full = versioned.split_once('@').map_or(versioned, |(name, _)| name);
        let (package, interface) = full.rsplit_once('/').unwrap_or(("", full));
        let package_name = package.rsplit_once(':').map_or(package, |(_, name)| name);
        let mut parts = vec![interface, self.function.as_str()];
        if with_package {
            parts.insert(0, package_name);
        }
        parts.retain(|part| !part.is_empty());
        parts.join("-").to_ascii_lowercase()
    }

    /// Checks whether a language's toolchain exports the function for its own use. A call of such a
    /// function would replace the program.
    fn is_of_toolchain(&self) -> bool {
        if self.function != "init" {
            return false;
        }
        match self.interface.as_deref() {
            Some(interface) => interface == "exports",
            None => self.ty.params().any(|(name, _)| name == "script"),
        }
    }
}

impl Function {
    fn new(exported: Exported, name: String) -> Result<Self, FunctionError> {
        if exported.is_of_toolchain() {
            return Err(FunctionError::OfToolchain);
        }
        let written = exported.written();
        let Exported { interface, function, index, ty } = exported;
        if ty.async_() {
            return Err(FunctionError::Async);
        }
        let params: Vec<(String, Type)> =
            ty.params().map(|(name, ty)| (name.to_owned(), ty)).collect();
        let input = input_schema(&params)
            .map_err(|error| FunctionError::Type { what: "parameters' type", error })?;
        let result = ty.results().next();
        let signature = write_signature(
            &function,
            params.iter().map(|(name, ty)| (name.as_str(), ty.clone())),
            result.as_ref(),
        );

        let (ok, err, fails) = match result {
            Some(Type::Result(result)) => (result.ok(), result.err(), true),
            other => (other, None, false),
        };
        // Values of a type without a schema can't be converted.
        if let Some(ty) = &err
            && let Err(error) = Schemas::new().schema_of(ty)
        {
            return Err(FunctionError::Type { what: "error's type", error });
        }
        let mut definition = Definition::new(name.clone(), signature, input);
        definition.foreign = true;
        if let Some(ty) = &ok {
            let output = output_schema(ty)
                .map_err(|error| FunctionError::Type { what: "answer's type", error })?;
            definition.output_schema = Some(output);
        }
        Ok(Self { name, written, interface, index, params, ok, err, fails, definition })
    }

    /// Returns the definition, with the documentation of the function.
    fn describe(&self, docs: &Docs, limit: usize) -> Definition {
        let documentation = docs
            .function(self.interface.as_deref(), self.wit_name())
            .map(|text| cut(text, limit.saturating_sub(SIGNATURE)).trim())
            .unwrap_or_default();
        let signature = &self.definition.description;
        let export = match &self.interface {
            Some(interface) => format!("`{signature}` of `{interface}`"),
            None => format!("`{signature}`"),
        };
        let description = if documentation.is_empty() {
            format!("{export}. It has no description.")
        } else {
            format!("{documentation}\n\n{export}")
        };
        let mut definition = self.definition.clone();
        definition.description = neutral(cut(&description, limit)).into_owned();
        definition
    }

    /// Returns the function's name in WIT, without its interface.
    fn wit_name(&self) -> &str {
        self.written.rsplit('.').next().unwrap_or_default()
    }

    /// Converts arguments to component values.
    ///
    /// # Errors
    ///
    /// The arguments don't fit the types.
    fn convert_arguments(&self, arguments: &Value) -> Result<Vec<Val>, Failure> {
        let none = Map::new();
        let fields = arguments.as_object().unwrap_or(&none);
        let mut lowering = Lowering::new();
        let values: Result<Vec<Val>, ValueError> = self
            .params
            .iter()
            .map(|(name, ty)| lowering.field(name, fields.get(name), ty))
            .collect();
        values.map_err(|error| {
            let place = neutral_line(cut(&lowering.place(), 200));
            Failure::new(Category::InvalidParameters, format!("`{place}` {error}"))
        })
    }

    /// Calls the function. An error is a trap.
    async fn call<T: Send + 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        values: &[Val],
        limit: usize,
    ) -> wasmtime::Result<Outcome> {
        let function = instance
            .get_func(&mut *store, self.index)
            .ok_or_else(|| wasmtime::Error::msg("the instance lacks the function"))?;
        let has_result = self.ok.is_some() || self.fails;
        // The call replaces the placeholder.
        let mut results = vec![Val::Bool(false); usize::from(has_result)];
        if let Err(error) = function.call_async(&mut *store, values, &mut results).await {
            return if is_too_large(&error) { Ok(Err(too_large(store))) } else { Err(error) };
        }
        Ok(self.outcome(results.pop(), limit))
    }

    /// Converts the result of the function. `limit` is the most bytes of the answer.
    fn outcome(&self, result: Option<Val>, limit: usize) -> Outcome {
        let value = match result {
            Some(Val::Result(Err(error))) if self.fails => {
                return Err(self.failure(error.map(|error| *error), limit));
            }
            Some(Val::Result(Ok(value))) if self.fails => value.map(|value| *value),
            other => other,
        };
        let (Some(value), Some(ty)) = (value, &self.ok) else {
            return Ok(Output {
                content: vec![Content::text("The function returned nothing.")],
                ..Output::default()
            });
        };

        let json = lift(value, ty, limit)?;
        let content = Content::text(json_text(&json));
        let structured = if matches!(ty, Type::Record(_)) {
            json
        } else {
            Map::from_iter([(RESULT.to_owned(), json)]).into()
        };
        Ok(Output { content: vec![content], structured: Some(structured), meta: None })
    }

    /// Converts the error that the function returned. `error` is the value of the error, if it has
    /// one.
    fn failure(&self, error: Option<Val>, limit: usize) -> Failure {
        let name = self.wit_name();
        let (Some(error), Some(ty)) = (error, &self.err) else {
            return Failure::new(Category::PermanentFailure, format!("`{name}` failed"));
        };
        let code = match &error {
            Val::Enum(name) | Val::Variant(name, _) => Some(name.clone()),
            _ => None,
        };
        let json = match lift(error, ty, limit) {
            Ok(json) => json,
            Err(failure) => return failure,
        };

        let text = json_text(&json);
        let message = neutral(cut(&text, MAX_MESSAGE));
        let mut failure =
            Failure::new(Category::PermanentFailure, format!("`{name}` failed: {message}"));
        failure.code = code.filter(|code| !toolhold_contract::HOST_CODES.contains(&code.as_str()));
        failure.structured = Some(Map::from_iter([("error".to_owned(), json)]).into());
        failure
    }
}

/// Returns a JSON value as text. A string is returned without quotes.
fn json_text(json: &Value) -> String {
    match json {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Converts a value of an answer to JSON. The answer has at most `limit` bytes.
fn lift(value: Val, ty: &Type, limit: usize) -> Result<Value, Failure> {
    // The value is sent twice: as text, and as a structured answer.
    Lifting::new(limit / 2).json(value, ty).map_err(|_| {
        let message = format!("the tool's answer is more than {limit} bytes, which is the limit");
        Failure::new(Category::PermanentFailure, message).with_code("result_limit")
    })
}

/// Checks whether a call failed because its answer would take too much memory of the host. Only the
/// text of the error shows this.
fn is_too_large(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains("fuel allocated for hostcalls"))
}

fn too_large<T: 'static>(store: &Store<T>) -> Failure {
    let limit = store.hostcall_fuel();
    let value_size = size_of::<Val>();
    let message = format!(
        "the tool's answer has too many values: they may take {limit} bytes of the host's memory, and each number or byte takes {value_size}"
    );
    Failure::new(Category::PermanentFailure, message)
        .with_code("result_limit")
        .with_suggestion("Ask for less at once.")
}

/// Makes the schema of a function's arguments.
fn input_schema(params: &[(String, Type)]) -> Result<Value, TypeError> {
    let fields = params.iter().map(|(name, ty)| (name.as_str(), ty.clone()));
    let object = Schemas::new().object(fields)?;
    Ok(schema::parse(&object.to_string())?)
}

/// Makes the schema of a function's structured answer.
fn output_schema(ty: &Type) -> Result<Value, TypeError> {
    let inner = Schemas::new().schema_of(ty)?;
    Ok(schema::parse(&answer_schema(ty, inner).to_string())?)
}

/// Makes the schema of a structured answer. The schema is the schema of an object, because clients
/// expect an object. `inner` is the schema of the type.
fn answer_schema(ty: &Type, inner: Value) -> Value {
    if matches!(ty, Type::Record(_)) {
        return inner;
    }
    let required = if matches!(ty, Type::Option(_)) { vec![] } else { vec![RESULT] };
    serde_json::json!({ "type": "object", "properties": { RESULT: inner }, "required": required })
}
