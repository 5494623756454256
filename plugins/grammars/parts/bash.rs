//! The part that parses scripts of shells.
grammars::part!(Bash);
