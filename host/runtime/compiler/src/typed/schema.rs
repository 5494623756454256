//! Describes component types as JSON Schema. The schemas describe exactly the JSON that `values`
//! accepts.

use serde_json::{Map, Value, json};
use toolhold_component::SchemaError;
use wasmtime::component::{Type, types};

/// The largest integer that every JSON parser reads exactly.
pub(crate) const EXACT: u64 = 1 << 53;

/// Strings for floating-point numbers that JSON doesn't have.
pub(crate) const NOT_FINITE: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Most parts of a schema. A short type can describe a tree that is too large for memory, because
/// types refer to other types several times.
const MAX_PARTS: usize = 10_000;

/// Most levels of nested types.
const MAX_DEPTH: usize = 24;

/// The reason why values of a type can't be JSON. The message continues a sentence that begins with
/// the type, such as "the error's type".
#[derive(Debug, thiserror::Error)]
pub(crate) enum TypeError {
    #[error("has types of more than {MAX_PARTS} parts, the limit")]
    TooManyParts,
    #[error("has types nested deeper than {MAX_DEPTH} levels, the limit")]
    TooDeep,
    #[error("uses a resource, and resources don't survive a call")]
    Resource,
    #[error("uses {0}, which JSON doesn't have")]
    NotInJson(&'static str),
    #[error("uses a list of a fixed length, which Toolhold doesn't support yet")]
    FixedLengthList,
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Makes the schemas of a function.
pub(crate) struct Schemas {
    parts: usize,
}

impl Schemas {
    pub(crate) fn new() -> Self {
        Self { parts: 0 }
    }

    pub(crate) fn schema_of(&mut self, ty: &Type) -> Result<Value, TypeError> {
        self.schema(ty, 0)
    }

    pub(crate) fn object<'t>(
        &mut self,
        fields: impl Iterator<Item = (&'t str, Type)>,
    ) -> Result<Value, TypeError> {
        self.fields(fields, 0)
    }

    /// Makes the schema of an object with these fields. A field that isn't an `option` is required.
    fn fields<'t>(
        &mut self,
        fields: impl Iterator<Item = (&'t str, Type)>,
        depth: usize,
    ) -> Result<Value, TypeError> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (name, ty) in fields {
            properties.insert(name.to_owned(), self.schema(&ty, depth + 1)?);
            if !matches!(ty, Type::Option(_)) {
                required.push(name.to_owned());
            }
        }
        let mut object = Map::new();
        object.insert("type".into(), json!("object"));
        object.insert("properties".into(), properties.into());
        if !required.is_empty() {
            object.insert("required".into(), json!(required));
        }
        object.insert("additionalProperties".into(), json!(false));
        Ok(object.into())
    }

    fn schema(&mut self, ty: &Type, depth: usize) -> Result<Value, TypeError> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(TypeError::TooManyParts);
        }
        if depth > MAX_DEPTH {
            return Err(TypeError::TooDeep);
        }
        let next = depth + 1;
        Ok(match ty {
            Type::Bool => json!({ "type": "boolean" }),
            Type::S8 => integer(i8::MIN.into(), i8::MAX.into()),
            Type::U8 => integer(0, u8::MAX.into()),
            Type::S16 => integer(i16::MIN.into(), i16::MAX.into()),
            Type::U16 => integer(0, u16::MAX.into()),
            Type::S32 => integer(i32::MIN.into(), i32::MAX.into()),
            Type::U32 => integer(0, u32::MAX.into()),
            // Many JSON parsers round numbers beyond 2^53, but strings stay exact.
            Type::S64 => json!({
                "type": ["integer", "string"],
                "minimum": -(EXACT as i64), "maximum": EXACT, "pattern": "^-?[0-9]{1,19}$",
            }),
            Type::U64 => json!({
                "type": ["integer", "string"],
                "minimum": 0, "maximum": EXACT, "pattern": "^[0-9]{1,20}$",
            }),
            Type::Float32 | Type::Float64 => {
                json!({ "anyOf": [{ "type": "number" }, { "enum": NOT_FINITE }] })
            }
            Type::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            Type::String => json!({ "type": "string" }),
            Type::List(list) if matches!(list.ty(), Type::U8) => {
                json!({ "type": "string", "contentEncoding": "base64" })
            }
            Type::List(list) => {
                json!({ "type": "array", "items": self.schema(&list.ty(), next)? })
            }
            Type::Map(map) if matches!(map.key(), Type::String) => {
                json!({ "type": "object", "additionalProperties": self.schema(&map.value(), next)? })
            }
            Type::Map(map) => {
                let pair = [self.schema(&map.key(), next)?, self.schema(&map.value(), next)?];
                json!({ "type": "array", "items": tuple(pair.into()) })
            }
            Type::Record(record) => {
                self.fields(record.fields().map(|field| (field.name, field.ty)), depth)?
            }
            Type::Tuple(types) => {
                let types = types.types().map(|ty| self.schema(&ty, next));
                tuple(types.collect::<Result<_, _>>()?)
            }
            Type::Variant(variant) => self.variant(variant, next + 1)?,
            Type::Enum(cases) => {
                self.parts = self.parts.saturating_add(cases.names().len());
                json!({ "type": "string", "enum": cases.names().collect::<Vec<_>>() })
            }
            Type::Option(option) if matches!(option.ty(), Type::Option(_)) => nullable(json!({
                "type": "object",
                "properties": { "some": self.schema(&option.ty(), next + 1)? },
                "required": ["some"],
                "additionalProperties": false,
            })),
            Type::Option(option) => nullable(self.schema(&option.ty(), next)?),
            Type::Result(result) => {
                let ok = self.side("ok", result.ok(), next + 1)?;
                json!({ "oneOf": [ok, self.side("err", result.err(), next + 1)?] })
            }
            Type::Flags(flags) => {
                let names: Vec<_> = flags.names().collect();
                self.parts = self.parts.saturating_add(names.len());
                json!({
                    "type": "array",
                    "items": { "type": "string", "enum": names },
                    "uniqueItems": true,
                })
            }
            Type::Own(_) | Type::Borrow(_) => return Err(TypeError::Resource),
            Type::Stream(_) => return Err(TypeError::NotInJson("a stream")),
            Type::Future(_) => return Err(TypeError::NotInJson("a future")),
            Type::ErrorContext => return Err(TypeError::NotInJson("an error-context")),
            Type::FixedLengthList(_) => return Err(TypeError::FixedLengthList),
        })
    }

    fn variant(&mut self, variant: &types::Variant, depth: usize) -> Result<Value, TypeError> {
        let mut cases = Vec::new();
        for case in variant.cases() {
            let value = match &case.ty {
                Some(ty) => Some(self.schema(ty, depth)?),
                None => None,
            };
            self.parts += 1;
            cases.push(tagged_case(case.name, value));
        }
        Ok(json!({ "oneOf": cases }))
    }

    fn side(&mut self, name: &str, ty: Option<Type>, depth: usize) -> Result<Value, TypeError> {
        let value = match ty {
            Some(ty) => self.schema(&ty, depth)?,
            None => json!({ "type": "null" }),
        };
        Ok(json!({
            "type": "object",
            "properties": { name: value },
            "required": [name],
            "additionalProperties": false,
        }))
    }
}

fn integer(least: i64, most: i64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

fn tuple(items: Vec<Value>) -> Value {
    let length = items.len();
    json!({ "type": "array", "prefixItems": items, "minItems": length, "maxItems": length })
}

/// Makes the schema of a case of a variant: the case's name as `tag`, and its value if it has one.
fn tagged_case(name: &str, value: Option<Value>) -> Value {
    let mut properties = Map::new();
    let mut required = vec!["tag"];
    properties.insert("tag".into(), json!({ "const": name }));
    if let Some(value) = value {
        properties.insert("value".into(), value);
        required.push("value");
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn nullable(mut schema: Value) -> Value {
    let single_type = schema.get("type").and_then(Value::as_str).map(str::to_owned);
    let (Some(ty), Some(fields)) = (single_type, schema.as_object_mut()) else {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    };
    fields.insert("type".into(), json!([ty, "null"]));
    if let Some(Value::Array(names)) = fields.get_mut("enum") {
        names.push(Value::Null);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nullable_schema_allows_null_beside_every_form() {
        assert_eq!(nullable(json!({ "type": "string" })), json!({ "type": ["string", "null"] }));
        assert_eq!(
            nullable(json!({ "type": "string", "enum": ["a"] })),
            json!({ "type": ["string", "null"], "enum": ["a", null] })
        );
        let several = json!({ "type": ["integer", "string"] });
        assert_eq!(nullable(several.clone()), json!({ "anyOf": [several, { "type": "null" }] }));
    }
}
