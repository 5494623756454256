//! The part that parses Go.
grammars::part!(Go);
