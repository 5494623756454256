//! Decides which exported functions of a component that knows nothing of Toolhold become tools, and
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
use crate::typed::signature::signature;
use crate::typed::values::{Lifting, Lowering, ValueError};

/// The bounds for the tools of one component.
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

/// Bytes of a description that are kept for the signature.
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
    /// Where the component exports it, as WIT writes that.
    written: String,
    interface: Option<String>,
    index: ComponentExportIndex,
    params: Vec<(String, Type)>,
    /// The type of the result. A `result` is split: its error is the tool's failure.
    ok: Option<Type>,
    err: Option<Type>,
    fails: bool,
    definition: Definition,
}

/// A function on its way to be a tool.
struct Exported {
    /// The interface's full name. `None`: the component exports the function itself.
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
    /// Reads the types of a component. None of its code runs.
    ///
    /// # Errors
    ///
    /// The component exports no function.
    pub fn from_component(
        component: &Component,
        bounds: ToolBounds,
    ) -> Result<Self, NoFunctionsError> {
        let exported = exported(component);
        if exported.is_empty() {
            return Err(NoFunctionsError);
        }
        let names = tool_names(&exported, bounds.name);
        let mut offered: Vec<Function> = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        for (one, name) in exported.into_iter().zip(names) {
            let written = one.written();
            let made = name.and_then(|name| Function::new(one, name));
            let function = match made {
                Ok(_) if offered.len() == bounds.tools => Err(FunctionError::TooMany(bounds.tools)),
                other => other,
            };
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

    /// The function of a tool.
    ///
    /// # Errors
    ///
    /// There is no tool of that name.
    fn find(&self, tool: &str) -> Result<&Function, Failure> {
        self.offered.iter().find(|function| function.name == tool).ok_or_else(|| {
            Failure::new(
                Category::PermanentFailure,
                format!("the component has no function for `{tool}`"),
            )
            .with_code("host")
        })
    }

    /// The values of the arguments of a tool, before any code of the component runs.
    ///
    /// # Errors
    ///
    /// The arguments don't fit the types of the function.
    pub fn check(&self, tool: &str, arguments: &Value) -> Result<Vec<Val>, Failure> {
        self.find(tool)?.values_of(arguments)
    }

    /// Calls the function of a tool. Its answer has at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// The component trapped, or was stopped.
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

    /// The definitions of the tools, and the functions that are left out, each with the reason.
    pub fn offer(&self, docs: &Docs) -> (Vec<Definition>, Vec<String>) {
        let tools = self.offered.iter().map(|function| function.described(docs, self.description));
        (tools.collect(), self.left_out.clone())
    }
}

/// The functions that a component exports itself or in an interface, except those of the packages
/// `wasi` and `toolhold`.
fn exported(component: &Component) -> Vec<Exported> {
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
                for (function, item) in functions(&interface, engine) {
                    let Some(index) = component.get_export_index(Some(&index), &function) else {
                        continue;
                    };
                    all.push(Exported {
                        interface: Some(name.to_owned()),
                        function,
                        index,
                        ty: item,
                    });
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

fn functions(
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

/// The tool's name of each function, or the reason why there is no name. A function of an interface
/// is always named `interface-function`. If two interfaces of the same name have the function, the
/// name begins with their package's name.
fn tool_names(exported: &[Exported], limit: usize) -> Vec<Result<String, FunctionError>> {
    let mut count: HashMap<String, usize> = HashMap::new();
    let short: Vec<String> = exported.iter().map(|one| one.name(false)).collect();
    short.iter().for_each(|name| *count.entry(name.clone()).or_default() += 1);
    let names: Vec<String> = exported
        .iter()
        .zip(short)
        .map(|(one, short)| if count[&short] > 1 { one.name(true) } else { short })
        .collect();
    let mut count: HashMap<&str, usize> = HashMap::new();
    names.iter().for_each(|name| *count.entry(name).or_default() += 1);
    names
        .iter()
        .zip(exported)
        .map(|(name, one)| {
            if one.function.starts_with('[') {
                Err(FunctionError::OfResource)
            } else if count[name.as_str()] > 1 {
                Err(FunctionError::NameTaken(name.clone()))
            } else if name.len() > limit {
                Err(FunctionError::LongName { name: name.clone(), limit })
            } else {
                Ok(name.clone())
            }
        })
        .collect()
}

impl Exported {
    /// The function's name as people write it: `acme:units/convert.to-feet`.
    fn written(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{interface}.{}", self.function),
            None => self.function.clone(),
        }
    }

    fn name(&self, with_package: bool) -> String {
        let versioned = self.interface.as_deref().unwrap_or_default();
        let full = versioned.split_once('@').map_or(versioned, |(name, _)| name);
        let (package, interface) = full.rsplit_once('/').unwrap_or(("", full));
        let package = package.rsplit_once(':').map_or(package, |(_, name)| name);
        let all = [if with_package { package } else { "" }, interface, &self.function];
        let parts: Vec<&str> = all.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("-").to_ascii_lowercase()
    }

    /// Whether a language's tools export the function for their own use: a call would replace the
    /// program.
    fn is_of_toolchain(&self) -> bool {
        let interface = self.interface.as_deref();
        self.function == "init"
            && (interface == Some("exports")
                || interface.is_none() && self.ty.params().any(|(name, _)| name == "script"))
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
        let input = Schemas::new()
            .object(params.iter().map(|(name, ty)| (name.as_str(), ty.clone())))
            .and_then(|input| Ok(schema::parse(&input.to_string())?))
            .map_err(|error| FunctionError::Type { what: "parameters' type", error })?;
        let result = ty.results().next();
        let signature = signature(
            &function,
            params.iter().map(|(name, ty)| (name.as_str(), ty.clone())),
            result.as_ref(),
        );
        let (ok, err, fails) = match result {
            Some(Type::Result(result)) => (result.ok(), result.err(), true),
            other => (other, None, false),
        };
        // Values of a type without a schema can't be converted.
        err.as_ref()
            .map_or(Ok(Value::Null), |ty| Schemas::new().schema_of(ty))
            .map_err(|error| FunctionError::Type { what: "error's type", error })?;
        let output = ok.as_ref().map(|ty| {
            Schemas::new()
                .schema_of(ty)
                .and_then(|inner| Ok(schema::parse(&answer_schema(ty, inner).to_string())?))
                .map_err(|error| FunctionError::Type { what: "answer's type", error })
        });
        let mut definition = Definition::new(name.clone(), signature, input);
        definition.output_schema = output.transpose()?;
        definition.foreign = true;
        Ok(Self { name, written, interface, index, params, ok, err, fails, definition })
    }

    /// The definition, with what the documentation says.
    fn described(&self, docs: &Docs, limit: usize) -> Definition {
        let signature = &self.definition.description;
        let own = self.written.rsplit('.').next().unwrap_or_default();
        let said = docs
            .function(self.interface.as_deref(), own)
            .map(|said| cut(said, limit.saturating_sub(SIGNATURE)).trim())
            .unwrap_or_default();
        let exported = match &self.interface {
            Some(interface) => format!("`{signature}` of `{interface}`"),
            None => format!("`{signature}`"),
        };
        let description = if said.is_empty() {
            format!("{exported}. It has no description.")
        } else {
            format!("{said}\n\n{exported}")
        };
        Definition {
            description: neutral(cut(&description, limit)).into_owned(),
            ..self.definition.clone()
        }
    }

    /// The component values of arguments.
    ///
    /// # Errors
    ///
    /// The arguments don't fit the types.
    fn values_of(&self, arguments: &Value) -> Result<Vec<Val>, Failure> {
        let none = Map::new();
        let given = arguments.as_object().unwrap_or(&none);
        let mut lowering = Lowering::new();
        let values: Result<Vec<Val>, ValueError> = self
            .params
            .iter()
            .map(|(name, ty)| lowering.field(name, given.get(name), ty))
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
        let returns = self.ok.is_some() || self.fails;
        let mut results = vec![Val::Bool(false); usize::from(returns)];
        if let Err(error) = function.call_async(&mut *store, values, &mut results).await {
            return if is_too_large(&error) { Ok(Err(too_large(store))) } else { Err(error) };
        }
        Ok(self.outcome(results.pop(), limit))
    }

    fn outcome(&self, result: Option<Val>, limit: usize) -> Outcome {
        let (value, ty) = match result {
            None => (None, &self.ok),
            Some(Val::Result(Err(error))) if self.fails => {
                let error = error.zip(self.err.as_ref()).map(|(error, ty)| {
                    let code = match &*error {
                        Val::Enum(name) | Val::Variant(name, _) => Some(name.clone()),
                        _ => None,
                    };
                    lift(*error, ty, limit).map(|error| (error, code))
                });
                return Err(self.failure(error.transpose()?));
            }
            Some(Val::Result(Ok(value))) if self.fails => (value.map(|value| *value), &self.ok),
            Some(value) => (Some(value), &self.ok),
        };
        let Some((value, ty)) = value.zip(ty.as_ref()) else {
            return Ok(Output {
                content: vec![Content::text("The function returned nothing.")],
                ..Output::default()
            });
        };
        let value = lift(value, ty, limit)?;
        let content = match &value {
            Value::String(words) => Content::text(words),
            other => Content::text(other.to_string()),
        };
        let structured = if matches!(ty, Type::Record(_)) {
            value
        } else {
            Map::from_iter([(RESULT.to_owned(), value)]).into()
        };
        Ok(Output { content: vec![content], structured: Some(structured), meta: None })
    }

    fn failure(&self, error: Option<(Value, Option<String>)>) -> Failure {
        let name = self.written.rsplit('.').next().unwrap_or_default();
        let Some((error, code)) = error else {
            return Failure::new(Category::PermanentFailure, format!("`{name}` failed"));
        };
        let said = match &error {
            Value::String(words) => words.clone(),
            other => other.to_string(),
        };
        let message = neutral(cut(&said, MAX_MESSAGE)).into_owned();
        let mut failure =
            Failure::new(Category::PermanentFailure, format!("`{name}` failed: {message}"));
        failure.code = code.filter(|code| !toolhold_contract::HOST_CODES.contains(&code.as_str()));
        failure.structured = Some(Map::from_iter([("error".to_owned(), error)]).into());
        failure
    }
}

/// The JSON of a value of an answer, which has at most `limit` bytes.
fn lift(value: Val, ty: &Type, limit: usize) -> Result<Value, Failure> {
    // The value is sent twice: as text and as a structured answer.
    Lifting::new(limit / 2).json(value, ty).map_err(|_| {
        let message = format!("the tool's answer is more than {limit} bytes, which is the limit");
        Failure::new(Category::PermanentFailure, message).with_code("result_limit")
    })
}

/// Whether a call failed since its answer would take too much of the host's memory. Only the text
/// of the error shows this.
fn is_too_large(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains("fuel allocated for hostcalls"))
}

fn too_large<T: 'static>(store: &Store<T>) -> Failure {
    let limit = store.hostcall_fuel();
    let each = size_of::<Val>();
    let message = format!(
        "the tool's answer has too many values: they may take {limit} bytes of the host's memory, and each number or byte takes {each}"
    );
    Failure::new(Category::PermanentFailure, message)
        .with_code("result_limit")
        .with_suggestion("Ask for less at once.")
}

/// The schema of a structured answer: an object, since clients expect one.
fn answer_schema(ty: &Type, inner: Value) -> Value {
    if matches!(ty, Type::Record(_)) {
        return inner;
    }
    let required = if matches!(ty, Type::Option(_)) { vec![] } else { vec![RESULT] };
    serde_json::json!({ "type": "object", "properties": { RESULT: inner }, "required": required })
}
