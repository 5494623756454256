//! The part that parses TypeScript with JSX.
grammars::part!(Tsx);
