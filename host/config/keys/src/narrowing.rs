//! The rules for changes of a key by a `toolhold.toml` in the working directory. The file can
//! narrow the configuration and never widens it, because it is untrusted: tools may write to the
//! directory, and repositories contain these files.
//!
//! Each key has its rule where it is declared. A key without a rule doesn't compile.

use serde_json::Value;

/// The values of a key that apply in the working directory's file.
#[derive(Clone, Copy, Debug)]
pub enum Narrowing {
    /// A table. Its keys have rules of their own.
    Table(&'static [(&'static str, Narrowing)]),
    /// A table for each name. A new name is ignored, since it would start something, such as a
    /// plugin.
    Named(&'static [(&'static str, Narrowing)]),
    /// The smaller number.
    Smaller,
    /// The smaller number. 0 means a number that depends on the machine's processors.
    SmallerOrAutomatic,
    /// The smaller number. 0 means no limit.
    SmallerOrUnbounded,
    /// Only `false`, which disables something.
    OnlyFalse,
    /// Only `true`, which enables a protection.
    OnlyTrue,
    /// Only an empty string, which disables something.
    OnlyEmpty,
    /// The stricter word. These words are sorted, the strictest first.
    Stricter(&'static [&'static str]),
    /// Directories that are already granted, with the lesser access.
    Directories,
    /// Denials, which are added to the current denials.
    Adds,
    /// Rules that deny or ask, added before the current rules. In these rules, the key with this
    /// name isn't `allow`.
    Denials(&'static str),
    /// A value for each name, with this rule. New names are accepted, because they start nothing.
    Each(&'static Narrowing),
    /// A list of everything that is allowed. If the current list is empty, any list applies.
    /// Otherwise only entries of the current list apply.
    Restricts,
    /// Separate grants, or exceptions from denials. The entries that are in both lists apply.
    Subset,
    /// Grants that may contain each other. An entry of either list applies if the other list covers
    /// it. The function returns whether its first entry covers its second.
    Covered(fn(&Value, &Value) -> bool),
    /// Only `"approve"`.
    Approve,
    /// This rule in a ceiling. In a working directory, no value is accepted: other directories
    /// would lose data, or a repository would write text that a model obeys.
    InCeiling(&'static Narrowing),
    /// No value. Only the plugin that reads the table knows its keys, and only the operator's own
    /// configuration can set them.
    Free,
    /// No value. Only the operator's own configuration can set the key.
    Ignored,
}

/// Declares a table of the configuration, with everything about a key in one place:
///
/// ```text
/// /// What it means: the documents, the template and the schema show this.
/// pub key: Type = default, Narrowing::OnlyFalse;
/// ```
///
/// A key without a default has the default of its type. The rule says what a `toolhold.toml` in the
/// working directory may do to the key. A key without a rule doesn't compile.
macro_rules! section {
    (
        $(#[$attribute:meta])*
        pub struct $table:ident {
            $(
                $(#[$key_attribute:meta])*
                pub $key:ident: $type:ty $(= $default:expr)?, $rule:expr;
            )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(default)]
        #[schemars(deny_unknown_fields)]
        pub struct $table {
            $(
                $(#[$key_attribute])*
                pub $key: $type,
            )*
        }

        impl $table {
            /// The rules for a `toolhold.toml` in the working directory, by key.
            pub const RULES: &[(&str, Narrowing)] = &[$((stringify!($key), $rule)),*];
        }

        impl Default for $table {
            fn default() -> Self {
                Self { $($key: section!(@default $($default)?)),* }
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}
pub(crate) use section;
