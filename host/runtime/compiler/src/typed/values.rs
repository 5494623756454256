//! Converts JSON to component values, and component values to JSON.
//!
//! Arguments were validated against the schema. Most errors here are therefore errors that a schema
//! can't find, such as invalid base64, or a number that is too large for its type.

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use serde_json::{Map, Number, Value};
use wasmtime::component::{Type, Val, types};

use crate::typed::schema::{EXACT, NOT_FINITE};

/// Most bytes of a call's values. A short text can have many values, because each absent field is a
/// value.
const MAX_ARGUMENTS: usize = 64 << 20;

/// Bytes of the quotes and the colon of a field in JSON.
const FIELD_SYNTAX: usize = r#""":"#.len();

/// Most levels of nested values. Never reached, because deeper types have no schema.
const MAX_DEPTH: usize = 128;

/// The reason why an argument doesn't match its type. The message continues a sentence that begins
/// with the path of the argument.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("is missing")]
    Missing,
    #[error(
        "takes more than {} MiB of memory, the limit; pass less data at once",
        MAX_ARGUMENTS >> 20
    )]
    TooLarge,
    #[error("is nested deeper than {MAX_DEPTH} levels, the limit")]
    TooDeep,
    /// The value is of another kind.
    #[error("has to be {0}")]
    Kind(&'static str),
    #[error("has to be base64 (with padding): {0}")]
    Base64(#[from] DecodeError),
    #[error("is too large for a 32-bit floating-point number")]
    Float32,
    #[error("has to have {0} items")]
    Items(usize),
    #[error("isn't a list of pairs: item {0} isn't a pair")]
    NotAPair(usize),
    #[error("has an unknown field")]
    UnknownField,
    #[error("needs the name of a case as `tag`")]
    Tag,
    #[error("may not have the field `value`, because the case `{0}` takes no value")]
    CaseValue(String),
    #[error("has to have either `ok` or `err`")]
    OkOrErr,
    #[error("may only have names of its schema")]
    Flag,
    #[error("can't be written as JSON")]
    NotInJson,
}

/// Converts arguments to values.
pub(crate) struct Lowering {
    /// Bytes that the values may still take.
    bytes_left: usize,
    /// The path of the current value.
    path: Vec<String>,
}

impl Lowering {
    pub(crate) fn new() -> Self {
        Self { bytes_left: MAX_ARGUMENTS, path: Vec::new() }
    }

    /// Returns the path at which the conversion failed, as a JSON pointer.
    pub(crate) fn place(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            pointer.push('/');
            pointer.push_str(step);
        }
        pointer
    }

    /// Converts a parameter or field. `value` is `None` if the parameter or field is absent.
    pub(crate) fn field(
        &mut self,
        name: &str,
        value: Option<&Value>,
        ty: &Type,
    ) -> Result<Val, ValueError> {
        // After an error, leave the name in the path, because `place` returns the path then.
        self.path.push(name.to_owned());
        let converted = match (value, ty) {
            (Some(value), _) => self.value(value, ty)?,
            (None, Type::Option(_)) => self.value(&Value::Null, ty)?,
            (None, _) => return Err(ValueError::Missing),
        };
        self.path.pop();
        Ok(converted)
    }

    /// Subtracts `bytes` from the memory that the values may still take.
    fn charge(&mut self, bytes: usize) -> Result<(), ValueError> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(ValueError::TooLarge)?;
        Ok(())
    }

    fn value(&mut self, value: &Value, ty: &Type) -> Result<Val, ValueError> {
        self.charge(size_of::<Val>())?;
        if self.path.len() > MAX_DEPTH {
            return Err(ValueError::TooDeep);
        }
        Ok(match ty {
            Type::Bool => Val::Bool(value.as_bool().ok_or(ValueError::Kind("true or false"))?),
            Type::S8 => Val::S8(integer(value)?),
            Type::U8 => Val::U8(integer(value)?),
            Type::S16 => Val::S16(integer(value)?),
            Type::U16 => Val::U16(integer(value)?),
            Type::S32 => Val::S32(integer(value)?),
            Type::U32 => Val::U32(integer(value)?),
            Type::S64 => Val::S64(integer(value)?),
            Type::U64 => Val::U64(integer(value)?),
            Type::Float32 => Val::Float32(float32(value)?),
            Type::Float64 => Val::Float64(float(value)?),
            Type::Char => {
                let mut chars = text(value)?.chars();
                match (chars.next(), chars.next()) {
                    (Some(single), None) => Val::Char(single),
                    _ => return Err(ValueError::Kind("a string of one character")),
                }
            }
            Type::String => {
                let string = text(value)?;
                self.charge(string.len())?;
                Val::String(string.to_owned())
            }
            Type::List(list) if matches!(list.ty(), Type::U8) => {
                let encoded = text(value)?;
                // Four characters of base64 are three bytes.
                let byte_count = encoded.len() / 4 * 3;
                self.charge(byte_count.saturating_mul(size_of::<Val>()))?;
                let bytes = STANDARD.decode(encoded)?;
                Val::List(bytes.into_iter().map(Val::U8).collect())
            }
            Type::List(list) => {
                let ty = list.ty();
                let items = array(value)?.iter().enumerate();
                let values = items.map(|(index, item)| self.item(index, item, &ty));
                Val::List(values.collect::<Result<_, _>>()?)
            }
            Type::Map(map) => self.map(value, &map.key(), &map.value())?,
            Type::Record(record) => self.record(value, record)?,
            Type::Tuple(tuple) => {
                let items = array(value)?;
                if items.len() != tuple.types().len() {
                    return Err(ValueError::Items(tuple.types().len()));
                }
                let items = tuple.types().zip(items).enumerate();
                let values = items.map(|(index, (ty, item))| self.item(index, item, &ty));
                Val::Tuple(values.collect::<Result<_, _>>()?)
            }
            Type::Variant(variant) => self.variant(value, variant)?,
            Type::Enum(cases) => {
                let name = text(value)?;
                if !cases.names().any(|case| case == name) {
                    return Err(ValueError::Kind("one of the names of its schema"));
                }
                Val::Enum(name.to_owned())
            }
            Type::Option(_) if value.is_null() => Val::Option(None),
            Type::Option(option) => {
                let ty = option.ty();
                let value = match &ty {
                    Type::Option(_) => self.field("some", object(value)?.get("some"), &ty)?,
                    _ => self.value(value, &ty)?,
                };
                Val::Option(Some(Box::new(value)))
            }
            Type::Result(result) => self.result(value, result)?,
            Type::Flags(flags) => self.flags(value, flags)?,
            Type::Own(_)
            | Type::Borrow(_)
            | Type::Future(_)
            | Type::Stream(_)
            | Type::ErrorContext
            | Type::FixedLengthList(_) => return Err(ValueError::NotInJson),
        })
    }

    fn record(&mut self, value: &Value, record: &types::Record) -> Result<Val, ValueError> {
        let fields = object(value)?;
        for name in fields.keys() {
            let is_known = record.fields().any(|field| field.name == name);
            if !is_known {
                return Err(ValueError::UnknownField);
            }
        }

        let mut values = Vec::new();
        for field in record.fields() {
            self.charge(size_of::<(String, Val)>() + field.name.len())?;
            let value = self.field(field.name, fields.get(field.name), &field.ty)?;
            values.push((field.name.to_owned(), value));
        }
        Ok(Val::Record(values))
    }

    fn variant(&mut self, value: &Value, variant: &types::Variant) -> Result<Val, ValueError> {
        let fields = object(value)?;
        // A missing tag becomes an empty name, which no case has.
        let tag = fields.get("tag").and_then(Value::as_str).unwrap_or_default();
        let case = variant.cases().find(|case| case.name == tag).ok_or(ValueError::Tag)?;
        self.charge(tag.len())?;
        let value = match (&case.ty, fields.get("value")) {
            (Some(ty), value) => Some(Box::new(self.field("value", value, ty)?)),
            (None, None | Some(Value::Null)) => None,
            (None, Some(_)) => return Err(ValueError::CaseValue(tag.to_owned())),
        };
        Ok(Val::Variant(tag.to_owned(), value))
    }

    fn result(&mut self, value: &Value, result: &types::ResultType) -> Result<Val, ValueError> {
        let fields = object(value)?;
        match (fields.get("ok"), fields.get("err")) {
            (Some(ok), None) => Ok(Val::Result(Ok(self.side("ok", ok, result.ok())?))),
            (None, Some(err)) => Ok(Val::Result(Err(self.side("err", err, result.err())?))),
            _ => Err(ValueError::OkOrErr),
        }
    }

    /// Converts `ok` or `err` of a result. Without a type, ignores the value.
    fn side(
        &mut self,
        name: &str,
        value: &Value,
        ty: Option<Type>,
    ) -> Result<Option<Box<Val>>, ValueError> {
        let Some(ty) = ty else { return Ok(None) };
        Ok(Some(Box::new(self.field(name, Some(value), &ty)?)))
    }

    fn flags(&mut self, value: &Value, flags: &types::Flags) -> Result<Val, ValueError> {
        let mut names = Vec::new();
        for item in array(value)? {
            let name = text(item)?;
            let is_known = flags.names().any(|flag| flag == name);
            if !is_known {
                return Err(ValueError::Flag);
            }
            self.charge(size_of::<String>() + name.len())?;
            names.push(name.to_owned());
        }
        Ok(Val::Flags(names))
    }

    fn item(&mut self, index: usize, item: &Value, ty: &Type) -> Result<Val, ValueError> {
        self.path.push(index.to_string());
        let converted = self.value(item, ty)?;
        self.path.pop();
        Ok(converted)
    }

    fn map(
        &mut self,
        value: &Value,
        key_type: &Type,
        value_type: &Type,
    ) -> Result<Val, ValueError> {
        let mut pairs = Vec::new();
        if matches!(key_type, Type::String) {
            for (name, value_json) in object(value)? {
                self.charge(size_of::<(Val, Val)>() + name.len())?;
                let value = self.field(name, Some(value_json), value_type)?;
                pairs.push((Val::String(name.clone()), value));
            }
        } else {
            for (index, pair) in array(value)?.iter().enumerate() {
                let [key_json, value_json] = &array(pair)?[..] else {
                    return Err(ValueError::NotAPair(index));
                };
                let key = self.item(index, key_json, key_type)?;
                let value = self.item(index, value_json, value_type)?;
                pairs.push((key, value));
            }
        }
        Ok(Val::Map(pairs))
    }
}

fn text(value: &Value) -> Result<&str, ValueError> {
    value.as_str().ok_or(ValueError::Kind("a string"))
}

fn array(value: &Value) -> Result<&Vec<Value>, ValueError> {
    value.as_array().ok_or(ValueError::Kind("a list"))
}

fn object(value: &Value) -> Result<&Map<String, Value>, ValueError> {
    value.as_object().ok_or(ValueError::Kind("an object"))
}

/// Converts a JSON number, or a string with digits, to an integer.
fn integer<T: TryFrom<i128>>(value: &Value) -> Result<T, ValueError> {
    /// The most characters of a 64-bit integer, including the sign.
    const MAX_DIGITS: usize = 20;
    let wide: Option<i128> = match value {
        Value::Number(number) => match number.as_i64() {
            Some(signed) => Some(signed.into()),
            None => number.as_u64().map(i128::from),
        },
        Value::String(text) if text.len() <= MAX_DIGITS => text.parse().ok(),
        _ => None,
    };
    let integer = wide.and_then(|wide| T::try_from(wide).ok());
    integer.ok_or(ValueError::Kind("an integer in the range of its type"))
}

fn float32(value: &Value) -> Result<f32, ValueError> {
    let double = float(value)?;
    #[expect(clippy::cast_possible_truncation, reason = "the nearest number is used")]
    let single = double as f32;
    if double.is_finite() && !single.is_finite() {
        return Err(ValueError::Float32);
    }
    Ok(single)
}

fn float(value: &Value) -> Result<f64, ValueError> {
    let [nan, infinity, negative_infinity] = NOT_FINITE;
    let float = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if text == nan => Some(f64::NAN),
        Value::String(text) if text == infinity => Some(f64::INFINITY),
        Value::String(text) if text == negative_infinity => Some(f64::NEG_INFINITY),
        _ => None,
    };
    float.ok_or(ValueError::Kind("a number"))
}

/// Converts an answer to JSON.
pub(crate) struct Lifting {
    /// Bytes that the JSON text may still have.
    bytes_left: usize,
}

/// The error for an answer above its limit.
#[derive(Debug)]
pub(crate) struct TooLarge;

impl Lifting {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes_left: limit }
    }

    /// Subtracts `bytes` from the length that the JSON text may still have.
    fn charge(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(TooLarge)?;
        Ok(())
    }

    /// Converts a value to JSON. Returns an error if the JSON text would be larger than the limit.
    pub(crate) fn json(&mut self, value: Val, ty: &Type) -> Result<Value, TooLarge> {
        // About the length of a short value with its separator.
        self.charge(4)?;
        Ok(match (value, ty) {
            (Val::Bool(value), _) => value.into(),
            (Val::S8(value), _) => value.into(),
            (Val::U8(value), _) => value.into(),
            (Val::S16(value), _) => value.into(),
            (Val::U16(value), _) => value.into(),
            (Val::S32(value), _) => value.into(),
            (Val::U32(value), _) => value.into(),
            (Val::S64(value), _) if value.unsigned_abs() <= EXACT => value.into(),
            (Val::S64(value), _) => value.to_string().into(),
            (Val::U64(value), _) if value <= EXACT => value.into(),
            (Val::U64(value), _) => value.to_string().into(),
            // Convert through the decimal form, which keeps 0.1 as 0.1. A cast to f64 would add
            // digits.
            (Val::Float32(value), _) => {
                number(value.to_string().parse().unwrap_or(f64::from(value)))
            }
            (Val::Float64(value), _) => number(value),
            (Val::Char(value), _) => value.to_string().into(),
            (Val::String(text), _) | (Val::Enum(text), _) => {
                self.charge(text.len())?;
                text.into()
            }
            (Val::List(items), Type::List(list)) if matches!(list.ty(), Type::U8) => {
                // Three bytes are four characters of base64.
                self.charge(items.len().div_ceil(3).saturating_mul(4))?;
                let mut bytes: Vec<u8> = Vec::with_capacity(items.len());
                for item in items {
                    if let Val::U8(byte) = item {
                        bytes.push(byte);
                    }
                }
                STANDARD.encode(bytes).into()
            }
            (Val::List(items), Type::List(list)) => {
                let ty = list.ty();
                items.into_iter().map(|item| self.json(item, &ty)).collect::<Result<_, _>>()?
            }
            (Val::Tuple(items), Type::Tuple(tuple)) => {
                let items = items.into_iter().zip(tuple.types());
                items.map(|(item, ty)| self.json(item, &ty)).collect::<Result<_, _>>()?
            }
            (Val::Map(pairs), Type::Map(map)) => self.map(pairs, &map.key(), &map.value())?,
            (Val::Record(fields), Type::Record(record)) => {
                let mut object = Map::new();
                for ((name, value), field) in fields.into_iter().zip(record.fields()) {
                    self.charge(name.len() + FIELD_SYNTAX)?;
                    // Leave out the field of a missing value, which is shorter than `null`.
                    if !matches!(value, Val::Option(None)) {
                        object.insert(name, self.json(value, &field.ty)?);
                    }
                }
                object.into()
            }
            (Val::Variant(tag, value), Type::Variant(variant)) => {
                // The name of the case, and about the length of `{"tag":"","value":}`.
                self.charge(tag.len() + 18)?;
                let ty = variant.cases().find(|case| case.name == tag).and_then(|case| case.ty);
                let mut object = Map::from_iter([("tag".to_owned(), tag.into())]);
                if let (Some(value), Some(ty)) = (value, ty) {
                    object.insert("value".into(), self.json(*value, &ty)?);
                }
                object.into()
            }
            (Val::Option(None), _) => Value::Null,
            (Val::Option(Some(value)), Type::Option(option)) => match option.ty() {
                inner @ Type::Option(_) => self.single("some", Some(value), Some(inner))?,
                inner => self.json(*value, &inner)?,
            },
            (Val::Result(Ok(value)), Type::Result(result)) => {
                self.single("ok", value, result.ok())?
            }
            (Val::Result(Err(value)), Type::Result(result)) => {
                self.single("err", value, result.err())?
            }
            (Val::Flags(names), _) => {
                // Each name has two quotes and a comma.
                self.charge(names.iter().map(|name| name.len() + 3).sum())?;
                names.into()
            }
            // Unreachable: each value matches its type, and functions with other types aren't
            // offered.
            _ => Value::Null,
        })
    }

    /// Makes an object with one field. The field is null if there is no value.
    fn single(
        &mut self,
        name: &str,
        value: Option<Box<Val>>,
        ty: Option<Type>,
    ) -> Result<Value, TooLarge> {
        self.charge(name.len() + FIELD_SYNTAX)?;
        let json = match (value, ty) {
            (Some(value), Some(ty)) => self.json(*value, &ty)?,
            _ => Value::Null,
        };
        Ok(Map::from_iter([(name.to_owned(), json)]).into())
    }

    fn map(
        &mut self,
        pairs: Vec<(Val, Val)>,
        key_type: &Type,
        value_type: &Type,
    ) -> Result<Value, TooLarge> {
        if matches!(key_type, Type::String) {
            let mut object = Map::new();
            for (key, value) in pairs {
                // All keys are strings, because each key matches its type.
                let Val::String(key) = key else { continue };
                self.charge(key.len() + FIELD_SYNTAX)?;
                object.insert(key, self.json(value, value_type)?);
            }
            return Ok(object.into());
        }
        let mut list = Vec::new();
        for (first, second) in pairs {
            let pair = vec![self.json(first, key_type)?, self.json(second, value_type)?];
            list.push(Value::Array(pair));
        }
        Ok(list.into())
    }
}

/// Converts a floating-point number. NaN and infinity become strings, because JSON doesn't have
/// them.
fn number(value: f64) -> Value {
    if let Some(number) = Number::from_f64(value) {
        return Value::Number(number);
    }
    let [nan, infinity, negative_infinity] = NOT_FINITE;
    if value.is_nan() {
        nan.into()
    } else if value > 0.0 {
        infinity.into()
    } else {
        negative_infinity.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn json_of(value: Val, ty: &Type) -> Value {
        Lifting::new(1 << 20).json(value, ty).expect("it is small")
    }

    /// A type as the compiler knows it: the items of the list that a function takes.
    fn type_of(written: &str) -> Type {
        let text = format!(
            r#"(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
    (func (export "f") (param i32 i32)))
  (core instance $i (instantiate $m))
  (func (export "f") (param "p" (list {written}))
    (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#
        );
        let bytes = wat::parse_str(text).expect("the text is a component");
        let mut config = wasmtime::Config::new();
        config.wasm_component_model_map(true);
        let engine = wasmtime::Engine::new(&config).expect("this machine runs the engine");
        let component =
            wasmtime::component::Component::new(&engine, bytes).expect("the component is valid");
        let ty = component.component_type().get_export(&engine, "f").expect("it exports `f`").ty;
        let wasmtime::component::types::ComponentItem::ComponentFunc(function) = ty else {
            panic!("`f` is a function");
        };
        match function.params().next().expect("`f` has a parameter").1 {
            Type::List(list) => list.ty(),
            other => panic!("{other:?} is not a list"),
        }
    }

    #[test]
    fn integers_beyond_2_53_are_texts() {
        let unsigned = |value| json_of(Val::U64(value), &Type::U64);
        assert_eq!(unsigned(EXACT), json!(9_007_199_254_740_992_u64));
        assert_eq!(unsigned(EXACT + 1), json!("9007199254740993"));
        assert_eq!(json_of(Val::S64(i64::MIN), &Type::S64), json!("-9223372036854775808"));
        assert_eq!(integer::<u64>(&json!("18446744073709551615")), Ok(u64::MAX));
        assert_eq!(integer::<i64>(&json!(-5)), Ok(-5));
        for wrong in
            [json!("18446744073709551616"), json!("-1"), json!(1.5), json!(""), json!(null)]
        {
            assert!(integer::<u64>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_that_json_lacks_are_texts() {
        for (value, text) in
            [(f64::NAN, "NaN"), (f64::INFINITY, "Infinity"), (f64::NEG_INFINITY, "-Infinity")]
        {
            assert_eq!(json_of(Val::Float64(value), &Type::Float64), json!(text));
            let back = float(&json!(text)).expect("it is one of the texts");
            assert!(back == value || back.is_nan() && value.is_nan());
        }
        assert_eq!(json_of(Val::Float32(0.1), &Type::Float32), json!(0.1));
        assert!(float(&json!("1.5")).is_err());
    }

    #[test]
    fn empty_lists_have_the_form_of_their_type() {
        assert_eq!(json_of(Val::List(Vec::new()), &type_of("(list u8)")), json!(""));
        assert_eq!(json_of(Val::List(Vec::new()), &type_of("(list u16)")), json!([]));
    }

    #[test]
    fn map_is_an_object_or_a_list_of_pairs() {
        let pair = |key, value| (key, Val::U8(value));
        let texts = Val::Map(vec![pair(Val::String("a".into()), 1)]);
        let numbers = Val::Map(vec![pair(Val::U32(7), 1), pair(Val::U32(8), 2)]);
        for (ty, value, json) in [
            ("(map string u8)", texts, json!({ "a": 1 })),
            ("(map u32 u8)", numbers, json!([[7, 1], [8, 2]])),
        ] {
            let ty = type_of(ty);
            assert_eq!(json_of(value.clone(), &ty), json);
            assert_eq!(Lowering::new().value(&json, &ty), Ok(value));
        }
    }

    #[test]
    fn options_within_options_can_be_told_apart() {
        let some = |value| Val::Option(Some(Box::new(value)));
        let ty = type_of("(option (option u8))");
        for (value, json) in [
            (Val::Option(None), json!(null)),
            (some(Val::Option(None)), json!({ "some": null })),
            (some(some(Val::U8(1))), json!({ "some": 1 })),
        ] {
            assert_eq!(json_of(value.clone(), &ty), json);
            assert_eq!(Lowering::new().value(&json, &ty), Ok(value));
        }
    }

    #[test]
    fn short_argument_that_stands_for_many_values_is_bounded() {
        let ty = type_of(&format!("(list (tuple {}))", "(option u64) ".repeat(1000)));
        let row = Value::Array(vec![Value::Null; 1000]);
        let rows = |count| Value::Array(vec![row.clone(); count]);
        assert!(Lowering::new().value(&rows(10), &ty).is_ok());
        let error = Lowering::new().value(&rows(4000), &ty).expect_err("it is too much");
        assert!(error.to_string().contains("64 MiB"), "{error}");
    }

    #[test]
    fn answer_is_bounded_while_it_is_made() {
        let (ty, many) =
            (type_of("(list (list u16))"), Val::List(vec![Val::List(Vec::new()); 1000]));
        assert!(Lifting::new(1000).json(many.clone(), &ty).is_err());
        assert!(Lifting::new(10_000).json(many, &ty).is_ok());
        assert!(Lifting::new(100).json(Val::String("x".repeat(101)), &Type::String).is_err());
    }
}
