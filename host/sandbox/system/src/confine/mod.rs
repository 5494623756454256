//! The sandbox that a helper process enters before it runs untrusted code: a compiler for a
//! component ([`to_computing`]), or a program that a call starts ([`run`]).
//!
//! Such a program isn't in the sandbox of WebAssembly, so it gets the kernel's. Its parts, in the
//! order in which they are set up:
//!
//! 1. namespaces: processes, mounts, network and System V objects of its own, in a user namespace
//!    with nobody but the user in it;
//! 2. a view: a root directory that holds the granted trees and what programs need of the system,
//!    with what is denied covered up;
//! 3. bounds on memory, processes, processor time, file sizes and descriptors, of each process and
//!    of all together;
//! 4. Landlock, where the kernel's is new enough: the same trees once more, for what is written and
//!    what is read, and no way to processes outside;
//! 5. no capabilities, no way to get any, and a filter of system calls.
//!
//! The process that set this up stays as the first one of the namespace: it checks the limits, and
//! when it ends, the kernel ends all others.

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
pub(crate) use view::open_itself;

/// The first argument of the helper.
pub const HELPER: &str = "__confine";
