//! The part that parses C++.
grammars::part!(Cpp);
