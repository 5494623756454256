//! The part that parses PHP.
grammars::part!(Php);
