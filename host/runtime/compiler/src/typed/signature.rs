//! Writes the signature of a function in WIT. For a component without documentation, the signature
//! is the whole description.

use wasmtime::component::Type;

/// Longest signature in bytes. A longer one is cut.
const MAX_BYTES: usize = 1000;

/// Writes a signature. A signature of more than [`MAX_BYTES`] is cut and ends with `…`.
pub(crate) fn write_signature<'t>(
    name: &str,
    params: impl Iterator<Item = (&'t str, Type)>,
    result: Option<&Type>,
) -> String {
    let mut out = Signature { text: String::new(), full: false };
    out.put(name);
    out.put(": func(");
    out.named(params);
    out.put(")");
    if let Some(result) = result {
        out.put(" -> ");
        out.ty(result);
    }
    if out.full {
        out.text.push('…');
    }
    out.text
}

struct Signature {
    text: String,
    full: bool,
}

impl Signature {
    /// Adds `text` if it fits. After a text that doesn't fit, nothing more is added.
    fn put(&mut self, text: &str) {
        if self.text.len() + text.len() > MAX_BYTES {
            self.full = true;
        }
        if !self.full {
            self.text.push_str(text);
        }
    }

    /// Writes parameters or fields, such as `a: u8, b: string`.
    fn named<'t>(&mut self, items: impl Iterator<Item = (&'t str, Type)>) {
        for (index, (name, ty)) in items.enumerate() {
            if self.full {
                return;
            }
            if index > 0 {
                self.put(", ");
            }
            self.put(name);
            self.put(": ");
            self.ty(&ty);
        }
    }

    /// Writes a type that contains other types, such as `result<_, string>`. `None` is written `_`.
    fn generic(&mut self, keyword: &str, types: impl Iterator<Item = Option<Type>>) {
        self.put(keyword);
        self.put("<");
        for (index, ty) in types.enumerate() {
            if self.full {
                return;
            }
            if index > 0 {
                self.put(", ");
            }
            match ty {
                Some(ty) => self.ty(&ty),
                None => self.put("_"),
            }
        }
        self.put(">");
    }

    /// Writes a type that consists of names, such as `enum { red, blue }`.
    fn names<'t>(&mut self, keyword: &str, names: impl Iterator<Item = &'t str>) {
        self.put(keyword);
        self.put(" { ");
        for (index, name) in names.enumerate() {
            if self.full {
                return;
            }
            if index > 0 {
                self.put(", ");
            }
            self.put(name);
        }
        self.put(" }");
    }

    fn ty(&mut self, ty: &Type) {
        if self.full {
            return;
        }
        match ty {
            Type::Bool => self.put("bool"),
            Type::S8 => self.put("s8"),
            Type::U8 => self.put("u8"),
            Type::S16 => self.put("s16"),
            Type::U16 => self.put("u16"),
            Type::S32 => self.put("s32"),
            Type::U32 => self.put("u32"),
            Type::S64 => self.put("s64"),
            Type::U64 => self.put("u64"),
            Type::Float32 => self.put("f32"),
            Type::Float64 => self.put("f64"),
            Type::Char => self.put("char"),
            Type::String => self.put("string"),
            Type::List(list) => self.generic("list", [Some(list.ty())].into_iter()),
            Type::Map(map) => self.generic("map", [map.key(), map.value()].map(Some).into_iter()),
            Type::Record(record) => {
                self.put("record { ");
                self.named(record.fields().map(|field| (field.name, field.ty)));
                self.put(" }");
            }
            Type::Tuple(tuple) => self.generic("tuple", tuple.types().map(Some)),
            Type::Variant(variant) => {
                self.put("variant { ");
                for (index, case) in variant.cases().enumerate() {
                    if self.full {
                        return;
                    }
                    if index > 0 {
                        self.put(", ");
                    }
                    self.put(case.name);
                    if let Some(ty) = case.ty {
                        self.put("(");
                        self.ty(&ty);
                        self.put(")");
                    }
                }
                self.put(" }");
            }
            Type::Enum(cases) => self.names("enum", cases.names()),
            Type::Option(option) => self.generic("option", [Some(option.ty())].into_iter()),
            Type::Result(result) => match (result.ok(), result.err()) {
                (None, None) => self.put("result"),
                (ok, None) => self.generic("result", [ok].into_iter()),
                (ok, err) => self.generic("result", [ok, err].into_iter()),
            },
            Type::Flags(flags) => self.names("flags", flags.names()),
            Type::FixedLengthList(list) => {
                self.generic("list", [Some(list.ty())].into_iter());
                self.put(&format!(" of {}", list.len()));
            }
            Type::Own(_) | Type::Borrow(_) => self.put("a resource"),
            Type::Future(_) => self.put("a future"),
            Type::Stream(_) => self.put("a stream"),
            Type::ErrorContext => self.put("error-context"),
        }
    }
}
