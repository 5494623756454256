//! The rules for changes of a key by a `toolhold.toml` in the working directory. The file can only
//! narrow the configuration. It is untrusted, because tools may write to the directory, and
//! repositories contain such files.
//!
//! Each key has its rule where it is declared. A key without a rule doesn't compile.

use serde_json::Value;

/// The values of a key that a `toolhold.toml` in the working directory may set.
#[derive(Clone, Copy, Debug)]
pub enum Narrowing {
    /// A table. Its keys have their own rules.
    Table(&'static [(&'static str, Narrowing)]),
    /// A table for each name. New names are ignored, because they would start something, for
    /// example a plugin.
    Named(&'static [(&'static str, Narrowing)]),
    /// The smaller number applies.
    Smaller,
    /// The smaller number applies. 0 stands for a number that depends on the machine's processors.
    SmallerOrAutomatic,
    /// The smaller number applies. 0 stands for no limit.
    SmallerOrUnbounded,
    /// Only `false` applies, because it disables something.
    OnlyFalse,
    /// Only `true` applies, because it enables a protection.
    OnlyTrue,
    /// Only an empty string applies, because it disables something.
    OnlyEmpty,
    /// The stricter of these words applies. They are sorted, the strictest first.
    Stricter(&'static [&'static str]),
    /// Directories that are already granted. The lesser access applies.
    Directories,
    /// Denials apply, in addition to the current denials.
    Adds,
    /// A list of rules. Rules that deny or ask apply, and are added before the current rules. The
    /// string is the name of a rule's key for its decision. A rule that has the value `allow` there
    /// doesn't apply.
    Denials(&'static str),
    /// A value for each name, with this rule. New names apply, because they start nothing.
    Each(&'static Narrowing),
    /// A list of everything that is allowed. Only entries that are also in the current list apply.
    /// If the current list is empty, it allows everything, so any entry applies.
    Restricts,
    /// Separate grants, or exceptions from denials. Only the entries that are in both lists apply.
    Subset,
    /// Grants that may contain each other. An entry of either list applies if the other list covers
    /// it. The function returns whether its first argument covers its second.
    Covered(fn(&Value, &Value) -> bool),
    /// Only `"approve"` applies.
    Approve,
    /// The inner rule applies only in a ceiling. In a working directory, no value applies, because
    /// other directories would lose data, or a repository would write text that a model obeys.
    InCeiling(&'static Narrowing),
    /// No value applies. Only the plugin that reads the table knows its keys.
    Free,
    /// No value applies. Only the operator's own configuration can set the key.
    Ignored,
}

/// Declares a table of the configuration, with everything about a key in one place:
///
/// ```text
/// /// What it means: the documents, the template and the schema show this.
/// pub key: Type = default, Narrowing::OnlyFalse;
/// ```
///
/// A key without a default has the default of its type. The rule decides which values of a
/// `toolhold.toml` in the working directory apply. A key without a rule doesn't compile.
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
