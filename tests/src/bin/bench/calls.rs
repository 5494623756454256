//! The cost of a call in a fresh sandbox, against the start of the smallest process.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Setting;
use crate::measure::{Compared, in_turn, median, output_of, time};
use crate::sandbox::{ECHO, Sandbox};
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 15;

/// The smallest program that there is.
const RIVAL: &str = "/bin/true";

/// Pairs in a round of pairwise measurements, and the pause before each.
const PAIRS: usize = 30;
const REST: Duration = Duration::from_millis(5);

/// How long each side of a round of the throughput measurement runs.
const SLICE: Duration = Duration::from_millis(500);

/// Number of parallel callers.
const THREADS: usize = 2;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let sandbox = Arc::new(Sandbox::with_echo(&setting.repository, &setting.scratch)?);
    Ok(vec![latency(&sandbox)?, ready(&sandbox)?, throughput(&sandbox)?])
}

fn latency(sandbox: &Sandbox) -> Result<Row, String> {
    let Compared { ours, rival, ratios } = in_turn(
        ROUNDS,
        || sandbox.p50(200),
        || {
            (0..20)
                .map(|_| time(|| output_of(&mut Command::new(RIVAL))))
                .collect::<Result<_, _>>()
                .map(median)
        },
    )?;
    Ok(Row {
        name: "echo",
        what: "echo through Host::call, fresh sandbox, p50".to_owned(),
        samples: ratios,
        unit: Unit::Ratio,
        target: Target::AtMost(1.0 / 30.0),
        ours: show_time(ours),
        rival: format!("{RIVAL} {}", show_time(rival)),
    })
}

/// Two consecutive calls after a pause, as an agent makes them, both with a warm instance. The
/// first one warms the caches again; the second ones of both sides are compared.
fn ready(sandbox: &Sandbox) -> Result<Row, String> {
    let (mut first_of_ours, mut first_of_rival) = (Vec::new(), Vec::new());
    let ours = || {
        let call = || sandbox.call_and_wait(ECHO, json!({ "text": "hello" }));
        // A call that prepares the next.
        call()?;
        let rested = || sandbox.wait_until("instances wait", || sandbox.ready("bench") > 1);
        second_of_two(&mut first_of_ours, rested, || time(call))
    };
    let rival = || {
        second_of_two(
            &mut first_of_rival,
            || Ok(()),
            || time(|| output_of(&mut Command::new(RIVAL))),
        )
    };
    let Compared { ours, rival, ratios } = in_turn(ROUNDS, ours, rival)?;
    let and_first = |second: Duration, first: Vec<Duration>| {
        format!("{}, after the rest {}", show_time(second), show_time(median(first)))
    };
    Ok(Row {
        name: "ready",
        what: "echo in an instance that waited for it, p50".to_owned(),
        samples: ratios,
        unit: Unit::Ratio,
        target: Target::AtMost(1.0 / 60.0),
        ours: and_first(ours, first_of_ours),
        rival: format!("{RIVAL} {}", and_first(rival, first_of_rival)),
    })
}

/// The median time of the second of two consecutive calls after a pause. The times of the first are
/// added to `first`.
fn second_of_two(
    first: &mut Vec<Duration>,
    rested: impl Fn() -> Result<(), String>,
    timed: impl Fn() -> Result<Duration, String>,
) -> Result<Duration, String> {
    let mut times = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        std::thread::sleep(REST);
        rested()?;
        first.push(timed()?);
        times.push(timed()?);
    }
    Ok(median(times))
}

fn throughput(sandbox: &Arc<Sandbox>) -> Result<Row, String> {
    let call_for_a_slice = |sandbox: Arc<Sandbox>| async move {
        let start = Instant::now();
        let mut done = 0_u32;
        while start.elapsed() < SLICE {
            sandbox.call(ECHO, json!({ "text": "hello" })).await?;
            done += 1;
        }
        Ok::<u32, String>(done)
    };
    let ours = || {
        let start = Instant::now();
        let tasks: Vec<_> = (0..THREADS)
            .map(|_| sandbox.runtime().spawn(call_for_a_slice(Arc::clone(sandbox))))
            .collect();
        let mut done = 0;
        for task in tasks {
            done += sandbox.runtime().block_on(task).map_err(|error| error.to_string())??;
        }
        Ok(start.elapsed() / done.max(1))
    };
    let rival = || {
        let start = Instant::now();
        let spawn = || {
            let mut done = 0_u32;
            while start.elapsed() < SLICE {
                output_of(&mut Command::new(RIVAL))?;
                done += 1;
            }
            Ok::<u32, String>(done)
        };
        let done = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(spawn)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
                .sum::<Result<u32, String>>()
        })?;
        Ok(start.elapsed() / done.max(1))
    };
    let Compared { ours, rival, ratios } = in_turn(5, ours, rival)?;
    let a_second = |each: Duration| format!("{:.0} a second", 1.0 / each.as_secs_f64().max(1e-9));
    Ok(Row {
        name: "throughput",
        what: format!("sandboxed calls on {THREADS} threads"),
        samples: ratios.iter().map(|ratio| 1.0 / ratio).collect(),
        unit: Unit::Ratio,
        target: Target::AtLeast(15.0),
        ours: a_second(ours),
        rival: format!("{RIVAL} {}", a_second(rival)),
    })
}
