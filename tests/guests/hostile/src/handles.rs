//! Attacks that take handles until there are none left. Each answers with the number that it got.

use wasip2::filesystem::types::{DescriptorFlags, OpenFlags, PathFlags};

use crate::arguments::Arguments;
use crate::outside::{open, spellings};
use hostile_support::Loot;

/// More handles than a host should give.
const MANY: usize = 100_000;

pub(crate) fn hoard_descriptors(arguments: &Arguments) -> Loot {
    let (folder, name) = spellings(&arguments.path).swap_remove(0);
    hoard(|| folder.open_at(PathFlags::empty(), &name, OpenFlags::empty(), DescriptorFlags::READ))
}

pub(crate) fn hoard_streams(arguments: &Arguments) -> Loot {
    let file = open(&arguments.path, OpenFlags::empty(), DescriptorFlags::READ)?;
    hoard(|| file.read_via_stream(0))
}

pub(crate) fn hoard_listings(arguments: &Arguments) -> Loot {
    let folder = open(&arguments.path, OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
    hoard(|| folder.read_directory())
}

pub(crate) fn hoard_pollables(_: &Arguments) -> Loot {
    hoard(|| Ok::<_, ()>(wasip2::clocks::monotonic_clock::subscribe_duration(u64::MAX)))
}

fn hoard<T, E>(take: impl Fn() -> Result<T, E>) -> Loot {
    let held: Vec<T> = (0..MANY).map_while(|_| take().ok()).collect();
    Ok(held.len().to_string().into())
}
