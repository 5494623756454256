//! The part that parses C.
grammars::part!(C);
