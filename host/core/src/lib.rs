//! The Berth host, as a library: everything that a front end needs to offer tools.

pub mod config;
