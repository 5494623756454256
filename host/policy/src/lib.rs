//! Pure decisions: data in, a decision with its reason out. No I/O, no clock, no WebAssembly.

pub mod files;
