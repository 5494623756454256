//! The sandbox that a helper process enters before it runs untrusted code: a compiler for a
//! component ([`to_computing`]), or a program that a call starts ([`run`]).
//!
//! A program that a call starts isn't in the sandbox of WebAssembly, so it gets a sandbox of the
//! kernel. Its parts, in the order of their setup:
//!
//! * Separate namespaces for processes, mounts, network and System V objects, in a user namespace
//!   that contains only the user.
//! * A view: a root directory with the granted trees and the parts of the system that programs
//!   need. Denied paths are covered.
//! * Limits on memory, processes, CPU time, file sizes and descriptors, for each process and for
//!   all processes together.
//! * Landlock, if the kernel's version is new enough. It restricts reads and writes to the same
//!   trees, and blocks access to processes outside.
//! * No capabilities, no way to get any, and a filter of system calls.
//!
//! The process that sets up the sandbox stays the first process of the namespace and checks the
//! limits. When it ends, the kernel kills all other processes in the namespace.

mod calls;
mod changes;
mod compute;
mod error;
mod init;
mod leaving;
mod limits;
mod namespaces;
mod network;
pub(crate) mod raw;
mod run;
mod spec;
mod trees;
mod view;

pub(crate) use changes::{CALLS, Target};
pub use compute::{ComputeError, FilterCheckError, filter_works, lower_bounds, to_computing};
pub(crate) use network::{NETWORK, NetworkAnswer, SOCKETS};
#[cfg(debug_assertions)]
pub(crate) use raw::NEWEST_LANDLOCK;
pub use raw::{close_inherited, landlock_version};
pub use run::run;
pub use spec::{Bound, Limits, Sandbox, Tree, TreeAccess};
pub(crate) use spec::{HelperStatus, Identity, Preparation, Program, Recorded, TreeState};
pub use view::AUTHORITIES;
pub(crate) use view::open_itself;

/// The first argument of the helper.
pub const HELPER: &str = "__confine";
