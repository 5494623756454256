//! What a `berth.toml` in the working directory may do to each key: it narrows and never widens.
//!
//! The directory is what tools may write and what repositories ship, so whoever wrote that file is
//! a stranger. The rules stand beside the keys that they are for, and a key without one doesn't
//! compile.

use serde_json::Value;

/// What counts of a key in the working directory's file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// A table, whose keys have rules of their own.
    Table(&'static [(&'static str, Rule)]),
    /// A table for each name. A name that the operator's configuration doesn't have would start
    /// something, so it is ignored.
    Named(&'static [(&'static str, Rule)]),
    /// The smaller number.
    Smaller,
    /// The smaller number, where 0 stands for what the machine's processors come to.
    SmallerOrAutomatic,
    /// The smaller number, where 0 stands for no bound at all.
    SmallerOrUnbounded,
    /// `false`: something is switched off.
    OnlyFalse,
    /// `true`: something that protects is switched on.
    OnlyTrue,
    /// The word that comes first among these, the strictest of which is the first.
    Stricter(&'static [&'static str]),
    /// Directories count as far as they are granted already, with the lesser access.
    Directories,
    /// Denials are added to those that there are.
    Adds,
    /// The same of tables: those whose key of this name doesn't say `allow`. They come before those
    /// that there are.
    Denials(&'static str),
    /// A value for each name, with this rule. A name that nobody else says anything about starts
    /// nothing.
    Each(&'static Rule),
    /// What alone is allowed: anything where everything was, else only what was.
    Restricts,
    /// Grants that stand each for itself, exceptions from what is forbidden among them: those that
    /// stand in both lists.
    Subset,
    /// The same of grants that one another may be part of, by what says whether the first covers
    /// the second: those of either list that the other one covers.
    Covered(fn(&Value, &Value) -> bool),
    /// `"approve"`.
    Approve,
    /// Nothing: only the operator's own configuration can say it.
    Ignored,
}

/// Declares a table of the configuration, with everything about a key in one place:
///
/// ```text
/// /// What it means: the documents, the template and the schema show this.
/// pub key: Type = default, Rule::OnlyFalse;
/// ```
///
/// A key without a default has that of its type. The rule says what a `berth.toml` in the working
/// directory may do to the key; without one it doesn't compile.
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
            /// What a `berth.toml` in the working directory may do to each key.
            pub(super) const RULES: &[(&str, Rule)] = &[$((stringify!($key), $rule)),*];
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
pub(super) use section;
