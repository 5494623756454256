//! The plugin of the built-in output filters, which leave out lines of a command's output that a
//! model doesn't need.
//!
//! A rule is data: a matcher and one or more steps, each a strategy with its parameters. For every
//! strategy, the [`guard`] decides which lines are never left out.

mod engine;
pub mod guard;
pub mod rules;
pub mod strategy;
pub mod text;

pub use engine::Engine;

toolhold_sdk::plugin! {
    name: "filters",
    description: "Shortens the output of commands, by rules",
    filters: Engine,
}
