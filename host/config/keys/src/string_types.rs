//! Macros for types of keys that are written as one string.

/// Implements a JSON Schema that is inlined where the type is used.
macro_rules! inline_schema {
    ($type:ty, $name:expr, $schema:expr) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}

/// Implements `as_str`.
macro_rules! as_written {
    ($type:ty) => {
        impl $type {
            /// Returns the text as written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}
pub(crate) use {as_written, inline_schema};
