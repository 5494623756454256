//! Attacks that create links or rename files, then use the new names.

use std::fs;

use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{DescriptorFlags, OpenFlags, PathFlags};

use crate::arguments::Arguments;
use crate::attempts::Attempts;
use crate::outside::{open, read_outside, spellings};
use hostile_support::Loot;

pub(crate) fn follow_a_link_of_its_own(arguments: &Arguments) -> Loot {
    let made = link(arguments);
    read_outside(arguments).map_err(|mut refused| {
        refused.message = format!("link: {made}; {}", refused.message);
        refused
    })
}

pub(crate) fn write_through_a_link_of_its_own(arguments: &Arguments) -> Loot {
    link(arguments);
    let mut attempts = Attempts::default();
    attempts.note("std", fs::write(&arguments.path, "overwritten").map(|()| "written"));
    let create = OpenFlags::CREATE | OpenFlags::TRUNCATE;
    attempts.note(
        "open",
        open(&arguments.path, create, DescriptorFlags::WRITE)
            .and_then(|file| file.write(b"overwritten", 0)),
    );
    let below = format!("{}/made", arguments.path);
    attempts.note(
        "below",
        open(&below, create, DescriptorFlags::WRITE).and_then(|file| file.write(b"made", 0)),
    );
    attempts
        .note("mkdir", fs::create_dir(format!("{}/made-folder", arguments.path)).map(|()| "made"));
    attempts.loot()
}

/// Creates a link `path` to `to` below each granted directory that contains `path`. Returns the
/// results.
fn link(arguments: &Arguments) -> String {
    let mut results = Vec::new();
    for (directory, name) in get_directories() {
        let Some(path) = arguments.path.strip_prefix(&name) else { continue };
        results.push(format!(
            "{:?}",
            directory.symlink_at(&arguments.to, path.trim_start_matches('/'))
        ));
    }
    results.join(", ")
}

pub(crate) fn hard_link_into_reach(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    attempts.note(
        "std",
        fs::hard_link(&arguments.path, &arguments.to)
            .and_then(|()| fs::read_to_string(&arguments.to)),
    );
    for (from, from_name) in get_directories() {
        for (to, to_name) in get_directories() {
            let relative = |path: &str, name: &str| {
                path.strip_prefix(name).unwrap_or(path).trim_start_matches('/').to_owned()
            };
            let (old, new) =
                (relative(&arguments.path, &from_name), relative(&arguments.to, &to_name));
            for follow in [PathFlags::SYMLINK_FOLLOW, PathFlags::empty()] {
                attempts.note("link", from.link_at(follow, &old, &to, &new).map(|()| "linked"));
            }
        }
    }
    attempts.loot()
}

pub(crate) fn rename_into_reach(arguments: &Arguments) -> Loot {
    let moved = fs::rename(&arguments.path, &arguments.to);
    let mut attempts = Attempts::default();
    attempts.note("rename", moved.and_then(|()| fs::read_to_string(&arguments.to)));
    attempts.loot()
}

pub(crate) fn rename(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    attempts.note("std", fs::rename(&arguments.path, &arguments.to).map(|()| "renamed"));
    for (from, old) in spellings(&arguments.path) {
        for (to, new) in spellings(&arguments.to) {
            attempts.note("raw", from.rename_at(&old, &to, &new).map(|()| "renamed"));
        }
    }
    attempts.loot()
}
