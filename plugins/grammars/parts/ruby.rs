//! The part that parses Ruby.
grammars::part!(Ruby);
