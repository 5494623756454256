//! `toolhold serve` on stdin and stdout, against the servers that the protocol's own project has
//! for Node, one in Python, and a loop that only echoes lines. The client is the same for all, and
//! they take turns. Some rows repeat a call with a small client in Python, whose own work is
//! larger.
//!
//! ACT, the fastest other host, isn't a rival here: its package has no component that it could run.
//! Its measured ratios to Node are targets instead.

mod bad;
pub(crate) mod behind;
mod client;
mod servers;

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub(crate) use self::bad::serve as serve_badly;
use self::client::IN_FLIGHT;
pub(crate) use self::client::{Client, echo_lines};
use self::servers::{BYTES, BenchSetting, NODE, SAID, Server, TOOLHOLD};
use crate::Setting;
use crate::measure::{find_program, median, median_ratio, percentile};
use crate::table::{Row, Target, Unit, show_time};
use crate::timed::TimedProgram;

const ROUNDS: usize = 15;

/// Calls before the measurement: Node compiles code that has run often.
const WARM_UP: usize = 3_000;

/// Calls of a round, consecutive and parallel.
const ONE_BY_ONE: usize = 300;
const MANY: usize = 800;

/// Starts of each server, and the calls before its memory is read.
const STARTS: usize = 5;
const CALLS: usize = 1_000;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let place = BenchSetting::make(setting)?;
    let mut rows = on_one_core(|| measure_calls(&place, "one core"))??;
    rows.extend(on_one_core(|| measure_from_python(&place))??);
    rows.extend(on_one_core(|| measure_process(&place))??);
    rows.push(on_one_core(|| beside_a_hung_call(&place))??);
    // With several cores, figures depend on the core on which a process wakes up: they are shown
    // and not judged.
    let wherever = measure_calls(&place, "all cores")?;
    rows.extend(wherever.into_iter().map(|row| Row { target: row.target.reported(), ..row }));
    Ok(rows)
}

/// The measurements of one server.
#[derive(Default)]
struct Measured {
    name: &'static str,
    /// The median of each round.
    p50: Vec<Duration>,
    /// All consecutive calls.
    times: Vec<Duration>,
    /// The time of each call among parallel ones, the average of each round.
    each: Vec<Duration>,
}

fn measure_calls(place: &BenchSetting, on: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let tools = [
        (
            "echo",
            place.echoing(SAID),
            [Target::AtMost(1.0), Target::AtMost(1.0 / 15.0), Target::AtLeast(3.0)],
        ),
        (
            "echo of 4 KiB",
            place.echoing(&SAID.repeat(BYTES / SAID.len())),
            [Target::AtMost(1.15), Target::Lower, Target::Higher],
        ),
        (
            "read of 4 KiB",
            place.reading(),
            [Target::AtMost(0.4), Target::Lower, Target::AtLeast(4.0)],
        ),
    ];
    for (tool, (servers, left_out), targets) in tools {
        let measured = in_turn(&servers.iter().collect::<Vec<_>>())?;
        let [median_of, worst_of, many_of] = targets;
        let (ours, node) = (find(&measured, TOOLHOLD), find(&measured, NODE));
        let row =
            |what: &str, unit_of: &dyn Fn(&Measured) -> String, samples: Vec<f64>, target| Row {
                name: "mcp",
                what: format!("{tool} over MCP, {on}, {what}"),
                samples,
                unit: Unit::Ratio,
                target,
                ours: ours.map(unit_of).unwrap_or_default(),
                rival: against(&measured, unit_of, left_out.as_deref()),
            };
        let both = ours.zip(node);
        let ratios = |of: fn(&Measured) -> &Vec<Duration>| {
            both.map(|(ours, node)| in_ratios(of(ours), of(node))).unwrap_or_default()
        };
        let p99 = |measured: &Measured| percentile(&measured.times, 99);
        rows.extend([
            row(
                "p50",
                &|measured| show_time(median(measured.p50.clone())),
                ratios(|measured| &measured.p50),
                median_of,
            ),
            row(
                "p99",
                &|measured| show_time(p99(measured)),
                both.map(|(ours, node)| in_ratio(p99(ours), p99(node))).into_iter().collect(),
                worst_of,
            ),
            row(
                &format!("{IN_FLIGHT} at a time"),
                &|measured| a_second(median(measured.each.clone())),
                ratios(|measured| &measured.each).iter().map(|ratio| 1.0 / ratio).collect(),
                many_of,
            ),
        ]);
    }
    Ok(rows)
}

/// All servers run, and are measured in turn.
fn in_turn(servers: &[&Server]) -> Result<Vec<Measured>, String> {
    let mut clients: Vec<Client> =
        servers.iter().map(|server| server.start()).collect::<Result<_, _>>()?;
    for (server, client) in servers.iter().zip(&mut clients) {
        client.many(&server.call, WARM_UP)?;
    }
    let mut measured: Vec<Measured> = servers
        .iter()
        .map(|server| Measured { name: server.name, ..Measured::default() })
        .collect();
    for _ in 0..ROUNDS {
        for ((server, client), measured) in servers.iter().zip(&mut clients).zip(&mut measured) {
            let times = client.one_by_one(&server.call, ONE_BY_ONE)?;
            measured.p50.push(median(times.clone()));
            measured.times.extend(times);
            measured.each.push(client.many(&server.call, MANY)?);
        }
    }
    Ok(measured)
}

/// Toolhold and Node with the client in Python.
fn measure_from_python(place: &BenchSetting) -> Result<Vec<Row>, String> {
    let (servers, left_out) = place.echoing(SAID);
    let servers: Vec<_> =
        servers.into_iter().filter(|server| [TOOLHOLD, NODE].contains(&server.name)).collect();
    let mut measured = Vec::new();
    if let Some(python) = find_program("python3").filter(|_| servers.len() > 1) {
        let mut clients: Vec<TimedProgram> = servers
            .iter()
            .map(|server| server.start_from_python(&python, &place.repository))
            .collect::<Result<_, _>>()?;
        clients.iter_mut().try_for_each(|client| client.one_by_one(WARM_UP).map(drop))?;
        measured.extend(
            servers.iter().map(|server| Measured { name: server.name, ..Measured::default() }),
        );
        for _ in 0..ROUNDS {
            for (client, measured) in clients.iter_mut().zip(&mut measured) {
                let times = client.one_by_one(ONE_BY_ONE)?;
                measured.p50.push(median(times.clone()));
                measured.times.extend(times);
            }
        }
    }
    let left_out = left_out.or_else(|| measured.is_empty().then(|| "no python3".to_owned()));
    let both = find(&measured, TOOLHOLD).zip(find(&measured, NODE));
    let p50 = |measured: &Measured| show_time(median(measured.p50.clone()));
    let p99 = |measured: &Measured| percentile(&measured.times, 99);
    let row = |what: &str, unit_of: &dyn Fn(&Measured) -> String, samples, target| Row {
        name: "mcp",
        what: format!("echo over MCP from a client in Python, one core, {what}"),
        samples,
        unit: Unit::Ratio,
        target,
        ours: find(&measured, TOOLHOLD).map(unit_of).unwrap_or_default(),
        rival: against(&measured, unit_of, left_out.as_deref()),
    };
    Ok(vec![
        row(
            "p50",
            &p50,
            both.map(|(ours, node)| in_ratios(&ours.p50, &node.p50)).unwrap_or_default(),
            Target::AtMost(0.97),
        ),
        row(
            "p99",
            &|measured| show_time(p99(measured)),
            both.map(|(ours, node)| in_ratio(p99(ours), p99(node))).into_iter().collect(),
            Target::AtMost(1.0 / 15.0),
        ),
    ])
}

/// The time to start, and the memory of a server that has answered some calls.
fn measure_process(place: &BenchSetting) -> Result<Vec<Row>, String> {
    let (servers, left_out) = place.echoing(SAID);
    // Code that is compiled once for a machine is ready.
    servers.iter().try_for_each(|server| server.start().map(drop))?;
    let mut started: Vec<Measured> = servers
        .iter()
        .map(|server| Measured { name: server.name, ..Measured::default() })
        .collect();
    let mut memory = vec![Vec::new(); servers.len()];
    for _ in 0..STARTS {
        for ((server, started), memory) in servers.iter().zip(&mut started).zip(&mut memory) {
            let mut client = server.start()?;
            started.p50.push(client.start);
            client.one_by_one(&server.call, CALLS)?;
            memory.push(client.resident()?);
        }
    }
    let memory: Vec<(&str, Vec<f64>)> =
        servers.iter().map(|server| server.name).zip(memory).collect();
    let memory_of =
        |name: &str| memory.iter().find(|(of, _)| *of == name).map(|(_, memory)| memory);
    let start = |measured: &Measured| show_time(median(measured.p50.clone()));
    let both = find(&started, TOOLHOLD).zip(find(&started, NODE));
    let others = memory
        .iter()
        .filter(|(name, _)| *name != TOOLHOLD)
        .map(|(name, mib)| format!("{name} {:.1} MiB", median_ratio(mib.clone())));
    Ok(vec![
        Row {
            name: "mcp",
            what: "from the start of an MCP server to its first answer, one core".to_owned(),
            samples: both.map(|(ours, node)| in_ratios(&ours.p50, &node.p50)).unwrap_or_default(),
            unit: Unit::Ratio,
            target: Target::AtMost(1.0 / 25.0),
            ours: find(&started, TOOLHOLD).map(start).unwrap_or_default(),
            rival: against(&started, &start, left_out.as_deref()),
        },
        Row {
            name: "mcp",
            what: format!("resident memory of an MCP server after {CALLS} calls"),
            samples: memory_of(TOOLHOLD)
                .zip(memory_of(NODE))
                .map(|(ours, node)| ours.iter().zip(node).map(|(ours, node)| ours / node).collect())
                .unwrap_or_default(),
            unit: Unit::Ratio,
            target: Target::AtMost(1.0 / 3.0),
            ours: memory_of(TOOLHOLD)
                .map_or_else(String::new, |mib| format!("{:.1} MiB", median_ratio(mib.clone()))),
            rival: others.chain(left_out).collect::<Vec<_>>().join(", "),
        },
    ])
}

/// The cost of a call without an end for the other calls of its client.
fn beside_a_hung_call(place: &BenchSetting) -> Result<Row, String> {
    let (server, hung) = place.hanging();
    let (mut alone, mut beside) = (server.start()?, server.start()?);
    beside.leave_hanging(&hung)?;
    let (mut of_alone, mut of_beside) = (Vec::new(), Vec::new());
    for client in [&mut alone, &mut beside] {
        client.many(&server.call, WARM_UP)?;
    }
    for _ in 0..ROUNDS {
        of_alone.extend(alone.one_by_one(&server.call, ONE_BY_ONE)?);
        of_beside.extend(beside.one_by_one(&server.call, ONE_BY_ONE)?);
    }
    let (of_alone, of_beside) = (percentile(&of_alone, 99), percentile(&of_beside, 99));
    Ok(Row {
        name: "mcp",
        what: "echo over MCP beside a call that hangs, one core, p99".to_owned(),
        samples: vec![in_ratio(of_beside, of_alone)],
        unit: Unit::Ratio,
        target: Target::AtMost(2.0),
        ours: show_time(of_beside),
        rival: format!("alone {}", show_time(of_alone)),
    })
}

/// Runs a function with this thread and its processes on one core.
fn on_one_core<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let failed = |error| format!("can't stay on one core: {error}");
    let all = sched_getaffinity(None).map_err(failed)?;
    let first = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap_or_default();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).map_err(failed)?;
    let done = work();
    sched_setaffinity(None, &all).map_err(failed)?;
    Ok(done)
}

fn find<'a>(measured: &'a [Measured], name: &str) -> Option<&'a Measured> {
    measured.iter().find(|measured| measured.name == name)
}

/// The results of the others, and the reasons for missing ones.
fn against(
    measured: &[Measured],
    shown: &dyn Fn(&Measured) -> String,
    left_out: Option<&str>,
) -> String {
    let others = measured.iter().filter(|measured| measured.name != TOOLHOLD);
    let told = others
        .map(|measured| format!("{} {}", measured.name, shown(measured)))
        .chain(left_out.map(str::to_owned));
    told.collect::<Vec<_>>().join(", ")
}

/// The ratio of each round.
fn in_ratios(ours: &[Duration], rival: &[Duration]) -> Vec<f64> {
    ours.iter().zip(rival).map(|(ours, rival)| in_ratio(*ours, *rival)).collect()
}

fn in_ratio(ours: Duration, rival: Duration) -> f64 {
    ours.as_secs_f64() / rival.as_secs_f64().max(1e-9)
}

fn a_second(each: Duration) -> String {
    format!("{:.0} a second", 1.0 / each.as_secs_f64().max(1e-9))
}
