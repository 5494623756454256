//! The part that parses C#.
grammars::part!(CSharp);
