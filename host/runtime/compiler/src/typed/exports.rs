//! Makes tools of the exported functions of a component without Toolhold's interfaces, and calls
//! them.

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
use crate::typed::values::{Lifting, Lowering};

/// The limits for the tools of a component.
#[derive(Clone, Copy, Debug)]
pub struct ToolBounds {
    /// Most tools. Further functions are left out.
    pub tools: usize,
    /// Most characters of a tool's name. A function with a longer name is left out.
    pub name: usize,
    /// Most bytes of a description. Longer descriptions are cut.
    pub description: usize,
}

/// Longest message of a failure in bytes. Longer messages are cut.
const MAX_MESSAGE: usize = 4096;

/// Bytes of a description that are reserved for the signature.
const SIGNATURE_ROOM: usize = 1300;

/// Most exports that are read. Further exports are ignored.
const MAX_EXPORTS: usize = 1000;

/// Most functions that are listed as left out.
const MAX_LEFT_OUT: usize = 128;

/// Most bytes of a function's or an argument's name in a message. Longer names are cut.
const MAX_SHOWN_NAME: usize = 200;

/// The field of a structured answer for a value that isn't a record.
const RESULT: &str = "result";

/// The exported functions of a component, as tools.
pub struct Functions {
    offered: Vec<Function>,
    left_out: Vec<String>,
    /// Most bytes of a description.
    description: usize,
}

struct Function {
    /// The name of the tool.
    name: String,
    /// The full name of the function in WIT.
    full_name: String,
    interface: Option<String>,
    index: ComponentExportIndex,
    params: Vec<(String, Type)>,
    /// The type of the result, or of its `ok` if the function returns a WIT `result`.
    ok: Option<Type>,
    err: Option<Type>,
    /// Whether the function returns a WIT `result`.
    fails: bool,
    definition: Definition,
}

struct Exported {
    /// The full name of the interface. `None` if the component exports the function itself.
    interface: Option<String>,
    function: String,
    index: ComponentExportIndex,
    ty: ComponentFunc,
}

/// A component exports no function that can become a tool.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the component exports nothing that Toolhold can call: neither `toolhold:tool/tools`, \
     `toolhold:tool/filter` nor `wasi:cli/run`, and no other function"
)]
pub struct NoFunctionsError;

#[derive(Debug, thiserror::Error)]
enum FunctionError {
    #[error("the function belongs to a resource, and resources don't survive a call")]
    OfResource,
    #[error("another function has the same tool name, `{0}`")]
    NameTaken(String),
    #[error("the tool name `{name}` is {} characters; the limit is {limit}", .name.len())]
    LongName { name: String, limit: usize },
    #[error("the function belongs to the toolchain that built the component")]
    OfToolchain,
    #[error("the function is async, which Toolhold doesn't support yet")]
    Async,
    #[error("the {what} {error}")]
    Type { what: &'static str, error: TypeError },
    #[error("the component has more than {0} functions, the limit")]
    TooMany(usize),
}

impl Functions {
    /// Reads the types of a component. Runs no code of the component.
    ///
    /// # Errors
    ///
    /// Returns an error if the component exports no functions.
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
            let full_name = export.full_name();
            let mut function = name.and_then(|name| Function::new(export, name));
            if function.is_ok() && offered.len() == bounds.tools {
                function = Err(FunctionError::TooMany(bounds.tools));
            }
            match function {
                Ok(function) => offered.push(function),
                Err(error) if left_out.len() < MAX_LEFT_OUT => {
                    let shown_name = neutral_line(cut(&full_name, MAX_SHOWN_NAME));
                    left_out.push(format!("{shown_name}: {error}"));
                }
                Err(_) => {}
            }
        }
        Ok(Self { offered, left_out, description: bounds.description })
    }

    fn find(&self, tool: &str) -> Result<&Function, Failure> {
        self.offered.iter().find(|function| function.name == tool).ok_or_else(|| {
            let message = format!("the component has no function for `{tool}`");
            Failure::new(Category::PermanentFailure, message).with_code("host")
        })
    }

    /// Converts the arguments of a tool before code of the component runs.
    ///
    /// # Errors
    ///
    /// Returns a failure if the arguments don't match the types of the function.
    pub fn check(&self, tool: &str, arguments: &Value) -> Result<Vec<Val>, Failure> {
        self.find(tool)?.convert_arguments(arguments)
    }

    /// Calls the function of a tool. An answer of more than `limit` bytes becomes a failure.
    ///
    /// # Errors
    ///
    /// Returns an error if the component traps.
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

    /// Returns the definitions of the tools. Also returns the functions that are left out, with the
    /// reasons.
    pub fn offer(&self, docs: &Docs) -> (Vec<Definition>, Vec<String>) {
        let tools = self.offered.iter().map(|function| function.describe(docs, self.description));
        (tools.collect(), self.left_out.clone())
    }
}

/// Finds the functions that a component exports itself or in interfaces. The packages `wasi` and
/// `toolhold` are ignored.
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
                let interface_index = index;
                for (function, ty) in interface_functions(&interface, engine) {
                    let found = component.get_export_index(Some(&interface_index), &function);
                    let Some(index) = found else { continue };
                    all.push(Exported { interface: Some(name.to_owned()), function, index, ty });
                }
            }
            // Types, modules and components can't be called.
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
    let mut functions = Vec::new();
    for (name, item) in interface.exports(engine).take(MAX_EXPORTS) {
        if let ComponentItem::ComponentFunc(ty) = item.ty {
            functions.push((name.to_owned(), ty));
        }
    }
    functions
}

/// Returns the tool name of each function, or the reason why the function isn't offered as a tool.
fn tool_names(exports: &[Exported], limit: usize) -> Vec<Result<String, FunctionError>> {
    let names = shortest_names(exports);
    let counts = count_names(&names);
    let mut results = Vec::new();
    for (name, export) in names.iter().zip(exports) {
        // The name of a resource's function begins with its kind in brackets, such as `[method]`.
        let is_of_resource = export.function.starts_with('[');
        results.push(if is_of_resource {
            Err(FunctionError::OfResource)
        } else if counts[name.as_str()] > 1 {
            Err(FunctionError::NameTaken(name.clone()))
        } else if name.len() > limit {
            Err(FunctionError::LongName { name: name.clone(), limit })
        } else {
            Ok(name.clone())
        });
    }
    results
}

/// Returns a name for each function: `function`, or `interface-function` for a function of an
/// interface. If two names are equal, the name of the package comes first.
fn shortest_names(exports: &[Exported]) -> Vec<String> {
    let short_names: Vec<String> = exports.iter().map(Exported::short_name).collect();
    let counts = count_names(&short_names);
    let mut names = Vec::new();
    for (export, short_name) in exports.iter().zip(&short_names) {
        if counts[short_name.as_str()] > 1 {
            names.push(export.name_with_package());
        } else {
            names.push(short_name.clone());
        }
    }
    names
}

/// Joins the parts of a tool name. Leaves out empty parts.
fn join_name(parts: &[&str]) -> String {
    let mut parts = parts.to_vec();
    parts.retain(|part| !part.is_empty());
    parts.join("-").to_ascii_lowercase()
}

fn count_names(names: &[String]) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

impl Exported {
    /// Returns the full name in WIT, such as `acme:units/convert.to-feet`.
    fn full_name(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{interface}.{}", self.function),
            None => self.function.clone(),
        }
    }

    /// Returns the tool name without the package. The function `to-feet` of
    /// `acme:units/convert@1.0.0` is named `convert-to-feet`.
    fn short_name(&self) -> String {
        let (_package, interface) = self.package_and_interface();
        join_name(&[interface, self.function.as_str()])
    }

    /// Returns the tool name with the package. The function `to-feet` of
    /// `acme:units/convert@1.0.0` is named `units-convert-to-feet`.
    fn name_with_package(&self) -> String {
        let (package, interface) = self.package_and_interface();
        join_name(&[package, interface, self.function.as_str()])
    }

    /// Returns `("units", "convert")` for `acme:units/convert@1.0.0`. A missing part is empty.
    fn package_and_interface(&self) -> (&str, &str) {
        let versioned = self.interface.as_deref().unwrap_or_default();
        let full = versioned.split_once('@').map_or(versioned, |(name, _)| name);
        let (package, interface) = full.rsplit_once('/').unwrap_or(("", full));
        let package_name = package.rsplit_once(':').map_or(package, |(_, name)| name);
        (package_name, interface)
    }

    /// Checks whether a language's toolchain exports the function for its own use. A call of such a
    /// function would replace the program. The toolchains name it `exports.init` or `init(script)`.
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
        let full_name = exported.full_name();
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
        // `failure` converts the error to JSON, which is only possible if its type has a schema.
        if let Some(ty) = &err
            && let Err(error) = Schemas::new().schema_of(ty)
        {
            return Err(FunctionError::Type { what: "error's type", error });
        }
        let mut definition = Definition::new(name.clone(), signature, input);
        // The component wasn't written for Toolhold.
        definition.foreign = true;
        if let Some(ty) = &ok {
            let output = output_schema(ty)
                .map_err(|error| FunctionError::Type { what: "answer's type", error })?;
            definition.output_schema = Some(output);
        }
        Ok(Self { name, full_name, interface, index, params, ok, err, fails, definition })
    }

    /// Returns the definition with the function's documentation. `limit` is the most bytes of the
    /// description. Long documentation is cut, because the signature needs room too.
    fn describe(&self, docs: &Docs, limit: usize) -> Definition {
        let documentation = match docs.function(self.interface.as_deref(), self.wit_name()) {
            Some(text) => cut(text, limit.saturating_sub(SIGNATURE_ROOM)).trim(),
            None => "",
        };
        let signature = &self.definition.description;
        let export = match &self.interface {
            Some(interface) => format!("`{signature}` of `{interface}`"),
            None => format!("`{signature}`"),
        };
        let description = if documentation.is_empty() {
            format!("{export}. The function has no description.")
        } else {
            format!("{documentation}\n\n{export}")
        };
        let mut definition = self.definition.clone();
        definition.description = neutral(cut(&description, limit)).into_owned();
        definition
    }

    fn wit_name(&self) -> &str {
        self.full_name.rsplit('.').next().unwrap_or_default()
    }

    fn convert_arguments(&self, arguments: &Value) -> Result<Vec<Val>, Failure> {
        let no_fields = Map::new();
        // Arguments that aren't an object were refused before.
        let fields = arguments.as_object().unwrap_or(&no_fields);
        let mut lowering = Lowering::new();
        let mut values = Vec::with_capacity(self.params.len());
        for (name, ty) in &self.params {
            match lowering.field(name, fields.get(name), ty) {
                Ok(value) => values.push(value),
                Err(error) => {
                    let place = neutral_line(cut(&lowering.place(), MAX_SHOWN_NAME));
                    let message = format!("`{place}` {error}");
                    return Err(Failure::new(Category::InvalidParameters, message));
                }
            }
        }
        Ok(values)
    }

    /// Calls the function. An error means a trap.
    async fn call<T: Send + 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        values: &[Val],
        limit: usize,
    ) -> wasmtime::Result<Outcome> {
        let Some(function) = instance.get_func(&mut *store, self.index) else {
            return Err(wasmtime::Error::msg("the instance doesn't have the function"));
        };
        let has_result = self.ok.is_some() || self.fails;
        // The call replaces the placeholder with the result.
        let placeholder = Val::Bool(false);
        let mut results = vec![placeholder; usize::from(has_result)];
        match function.call_async(&mut *store, values, &mut results).await {
            Ok(()) => Ok(self.outcome(results.pop(), limit)),
            Err(error) if is_too_large(&error) => Ok(Err(too_large(store))),
            Err(error) => Err(error),
        }
    }

    /// Converts the result of the function. The answer has at most `limit` bytes.
    fn outcome(&self, result: Option<Val>, limit: usize) -> Outcome {
        let value = match result {
            Some(Val::Result(Err(error))) if self.fails => {
                return Err(self.failure(error.map(|error| *error), limit));
            }
            Some(Val::Result(Ok(value))) if self.fails => value.map(|value| *value),
            // The function can't fail, so the result is the value itself.
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

    /// Converts the error of a WIT `result`. `error` is the value of the error.
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
        // Only the host may use its own codes.
        failure.code = code.filter(|code| !toolhold_contract::HOST_CODES.contains(&code.as_str()));
        failure.structured = Some(Map::from_iter([("error".to_owned(), json)]).into());
        failure
    }
}

/// Formats a JSON value. A string has no quotes.
fn json_text(json: &Value) -> String {
    match json {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Converts a value to JSON. The answer has at most `limit` bytes.
fn lift(value: Val, ty: &Type, limit: usize) -> Result<Value, Failure> {
    // The answer contains the value twice: as text and as a structured value.
    let limit_of_copy = limit / 2;
    Lifting::new(limit_of_copy).json(value, ty).map_err(|_| {
        let message = format!("the tool's answer has more than {limit} bytes, the limit");
        Failure::new(Category::PermanentFailure, message).with_code("result_limit")
    })
}

/// Checks whether an answer takes too much memory of the host. The error has no public type.
fn is_too_large(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains("fuel allocated for hostcalls"))
}

/// Makes the failure of an answer that exceeds the store's limit of host memory.
fn too_large<T: 'static>(store: &Store<T>) -> Failure {
    let limit = store.hostcall_fuel();
    let value_size = size_of::<Val>();
    let message = format!(
        "the tool's answer has too many values: the values may take {limit} bytes of the host's \
         memory, and each number or byte takes {value_size}"
    );
    Failure::new(Category::PermanentFailure, message)
        .with_code("result_limit")
        .with_suggestion("Ask for less at once.")
}

fn input_schema(params: &[(String, Type)]) -> Result<Value, TypeError> {
    let fields = params.iter().map(|(name, ty)| (name.as_str(), ty.clone()));
    let object = Schemas::new().object(fields)?;
    Ok(schema::parse(&object.to_string())?)
}

fn output_schema(ty: &Type) -> Result<Value, TypeError> {
    let inner = Schemas::new().schema_of(ty)?;
    Ok(schema::parse(&answer_schema(ty, inner).to_string())?)
}

/// Makes the schema of a structured answer from the schema `inner` of the value. Clients require an
/// object, so a value that isn't a record becomes the field `result` of one.
fn answer_schema(ty: &Type, inner: Value) -> Value {
    if matches!(ty, Type::Record(_)) {
        return inner;
    }
    // An `option` is not required, as in the schemas of all other objects.
    let required = if matches!(ty, Type::Option(_)) { vec![] } else { vec![RESULT] };
    serde_json::json!({ "type": "object", "properties": { RESULT: inner }, "required": required })
}
