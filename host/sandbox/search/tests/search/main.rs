//! Searches of real trees: what they find, what they leave out, and what a hostile tree can't do.

mod hostile;
mod listing;
mod matching;
mod rules;
mod tree;
