//! Values that are written as one text.

/// Gives a type a JSON Schema that stands where the type is used, by its name in messages.
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

/// Gives the text of a value as it was written.
macro_rules! as_written {
    ($type:ty) => {
        impl $type {
            /// As it was written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}
pub(super) use {as_written, inline_schema};
