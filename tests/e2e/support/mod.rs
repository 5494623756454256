//! What the tests have in common.

mod answers;
mod artifacts;
mod attacks;
mod cli;
mod component;
mod living;
mod log;
pub(crate) mod model;
#[path = "../../not_tried.rs"]
mod not_tried;
mod process;
mod running;
mod scene;
#[allow(dead_code, reason = "shared with the tests of toolhold-net, which use more of it")]
#[path = "../../../host/sandbox/net/tests/requests/server.rs"]
pub(crate) mod server;
#[allow(dead_code, reason = "shared with the tests of toolhold-registry, which use more of it")]
#[path = "../../../host/packages/registry/tests/fetching/shelf.rs"]
pub(crate) mod shelf;
mod waiting;

pub(crate) use answers::{failure, loot, refused, said_by};
pub(crate) use artifacts::{
    built, builtin, compiler_caches, example, fetched, go_compiler, plugin, toolhold,
};
pub(crate) use attacks::attacks;
pub(crate) use cli::{Cli, Ended, NEWEST_LANDLOCK, type_at_terminal};
pub(crate) use component::{Component, Offer, manifest, section};
pub(crate) use living::{
    Living, ends, mappings_below, said, soon, state, until, until_says, version, waiting,
};
pub(crate) use log::{log_of, log_with};
pub(crate) use not_tried::not_tried;
pub(crate) use process::{descriptors_below, output_under, refusing};
pub(crate) use running::{ATTACK_MIB, run, run_alone, run_without};
pub(crate) use scene::{Recorder, Scene, shared_cache, unasked};
pub(crate) use waiting::wait_until;
