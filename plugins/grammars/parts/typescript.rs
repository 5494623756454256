//! The part that parses TypeScript without JSX.
grammars::part!(TypeScript);
