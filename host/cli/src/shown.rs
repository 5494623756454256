//! Values and paths, to be shown and to be written.

use std::path::Path;
use std::time::Duration;

pub(crate) use berth_host::config::inline as toml;
use berth_host::text::neutral_line;

/// A path on one line, without what could steer a terminal.
pub(crate) fn path(path: &Path) -> String {
    neutral_line(&path.display().to_string())
}

/// A time as people read it.
pub(crate) fn time(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..1000 => format!("{micros} µs"),
        micros @ 1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        micros => format!("{:.1} s", micros as f64 / 1e6),
    }
}
