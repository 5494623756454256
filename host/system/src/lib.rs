//! The ways to the outside, each in one place. Nothing here knows WebAssembly.

pub mod files;
pub mod search;
