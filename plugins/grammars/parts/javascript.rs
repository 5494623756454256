//! The part that parses JavaScript.
grammars::part!(JavaScript);
