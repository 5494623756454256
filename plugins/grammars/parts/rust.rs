//! The part that parses Rust.
grammars::part!(Rust);
