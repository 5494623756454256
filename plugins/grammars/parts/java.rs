//! The part that parses Java.
grammars::part!(Java);
