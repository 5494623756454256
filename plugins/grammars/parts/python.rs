//! The part that parses Python.
grammars::part!(Python);
