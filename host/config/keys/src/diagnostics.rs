//! `[tools.diagnostics]`: which compilers and linters the tool may run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// The tool that runs the compilers and linters of a project. These programs have the grants of
    /// `[tools.shell]` and the rules of `bash`.
    pub struct Diagnostics {
        /// Whether the `diagnostics` tool exists. `false` removes it from the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// The checkers that may run.
        pub checkers: Vec<Checker> = Checker::ALL.to_vec(), Narrowing::Subset;
        /// Seconds for a call without a `timeout`.
        pub timeout: Bounded<1, 86_400> = Bounded::clamped(300), Narrowing::Smaller;
        /// Additional arguments for a checker, by its name. `cargo` means `cargo check` and `cargo
        /// clippy`, `ruff` means `ruff check`, and `go` means `go vet`.
        #[schemars(extend("examples" = [{ "cargo": ["--all-targets"] }]))]
        pub arguments: BTreeMap<Checker, Vec<String>>, Narrowing::Each(&Narrowing::Ignored);
    }
}

/// A program that checks a project.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Checker {
    /// `cargo check` and `cargo clippy`.
    Cargo,
    /// `tsc`.
    Tsc,
    /// `eslint`.
    Eslint,
    /// `ruff`.
    Ruff,
    /// `mypy`.
    Mypy,
    /// `go vet`.
    Go,
}

impl Checker {
    const ALL: [Self; 6] = [Self::Cargo, Self::Tsc, Self::Eslint, Self::Ruff, Self::Mypy, Self::Go];
}
