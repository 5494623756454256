//! `[tools.diagnostics]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// The tool that runs the compilers and linters of a project. What they may do is said in
    /// `[tools.shell]`, and its rules are those of `bash`.
    pub struct Diagnostics {
        /// Whether there is a `diagnostics` tool. `false` takes it out of the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// The checkers that may run.
        pub checkers: Vec<Checker> = Checker::ALL.to_vec(), Narrowing::Subset;
        /// Seconds of a call that names no `timeout`.
        pub timeout: Bounded<1, 86_400> = Bounded::clamped(300), Narrowing::Smaller;
        /// More arguments for each checker.
        pub arguments: CheckerArguments, Narrowing::Table(CheckerArguments::RULES);
    }
}

section! {
    /// Arguments that the checkers get beside their own.
    #[derive(Eq)]
    pub struct CheckerArguments {
        /// For `cargo check` and `cargo clippy`, such as `["--all-targets"]`.
        pub cargo: Vec<String>, Narrowing::Ignored;
        /// For `tsc`.
        pub tsc: Vec<String>, Narrowing::Ignored;
        /// For `eslint`.
        pub eslint: Vec<String>, Narrowing::Ignored;
        /// For `ruff check`.
        pub ruff: Vec<String>, Narrowing::Ignored;
        /// For `mypy`.
        pub mypy: Vec<String>, Narrowing::Ignored;
        /// For `go vet`.
        pub go: Vec<String>, Narrowing::Ignored;
    }
}

/// A program that checks a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
