//! What a `berth.toml` in the working directory may do to each key: it narrows and never widens.
//!
//! The directory is what tools may write and what repositories ship, so whoever wrote that file is a stranger. The rules stand beside the
//! types that they are for, and a key without one doesn't compile.

use serde_json::Value;

/// What counts of a key in the working directory's file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// A table, whose keys have rules of their own.
    Table(&'static [(&'static str, Rule)]),
    /// A table for each name. A name that the operator's configuration doesn't have would start something, so it is ignored.
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
    /// The same of tables: those whose key of this name doesn't say `allow`. They come before those that there are.
    Denials(&'static str),
    /// A value for each name, with this rule. A name that nobody else says anything about starts nothing.
    Each(&'static Rule),
    /// What alone is allowed: anything where everything was, else only what was.
    Restricts,
    /// Grants that stand each for itself, exceptions from what is forbidden among them: those that stand in both lists.
    Subset,
    /// The same of grants that one another may be part of, by what says whether the first covers the second: those of either list that the
    /// other one covers.
    Covered(fn(&Value, &Value) -> bool),
    /// `"approve"`.
    Approve,
    /// Nothing: only the operator's own configuration can say it.
    Ignored,
}

/// Gives each key of a table its rule.
macro_rules! rules {
    ($table:ident { $($key:ident: $rule:expr),* $(,)? }) => {
        impl $table {
            /// What a `berth.toml` in the working directory may do to each key.
            pub(super) const RULES: &[(&str, Rule)] = &[$((stringify!($key), $rule)),*];
        }

        // Taken apart without `..`, so that a key that has no rule is an error here.
        const _: fn($table) = |$table { $($key: _),* }| {};
    };
}
pub(super) use rules;
