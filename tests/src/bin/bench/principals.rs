//! What one more principal costs a server: a host that shares the engine of the first one.

use std::time::{Duration, Instant};

use crate::Setting;
use crate::measure::memory;
use crate::sandbox::{Sandbox, builtins};
use crate::table::{Row, Target, Unit};

/// Hosts that are measured. Their memory is read together, because one is smaller than the noise.
const HOSTS: usize = 16;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir_in(&setting.scratch)
        .map_err(|error| format!("no folder for a home: {error}"))?;
    let home = folder.path();
    let sandbox = Sandbox::with_builtins(&setting.repository, home, home, &[])?;
    let builtins = builtins(&setting.repository)?;
    // The first one compiles what isn't compiled yet.
    let first = sandbox.further_host(&builtins, home, 0)?;
    let before = memory(std::process::id(), "RssAnon")?;
    let mut hosts = vec![first];
    let mut times: Vec<Duration> = Vec::with_capacity(HOSTS);
    for number in 1..=HOSTS {
        let start = Instant::now();
        hosts.push(sandbox.further_host(&builtins, home, number)?);
        times.push(start.elapsed());
    }
    let used = memory(std::process::id(), "RssAnon")? - before;
    let row = |what: &str, samples, unit, target| Row {
        name: "principals",
        what: format!("a principal more: {what}"),
        samples,
        unit,
        target,
        ours: String::new(),
        rival: String::new(),
    };
    let starts = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let each = vec![used / HOSTS as f64];
    Ok(vec![
        row("its first answer, p50", starts, Unit::Milliseconds, Target::AtMost(10.0)),
        row("own memory", each, Unit::Mebibytes, Target::AtMost(5.0)),
    ])
}
