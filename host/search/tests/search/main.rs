//! Searching real trees: what is found, what is left out, and what a hostile tree can't do.

mod hostile;
mod listing;
mod matching;
mod rules;
mod tree;
