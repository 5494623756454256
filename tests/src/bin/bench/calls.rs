//! What a call in a fresh sandbox costs, against starting the smallest process.

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

/// Calls of a round whose calls are made one by one, and the pause before each.
const CALLS: usize = 30;
const PAUSE: Duration = Duration::from_millis(5);

/// How long each side of a round of the throughput measurement runs.
const SLICE: Duration = Duration::from_millis(500);

/// So many call at the same time.
const THREADS: usize = 2;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let sandbox = Arc::new(Sandbox::with_echo(&setting.repository, &setting.scratch)?);
    Ok(vec![latency(&sandbox)?, ready(&sandbox)?, throughput(&sandbox)?])
}

fn latency(sandbox: &Sandbox) -> Result<Row, String> {
    let Compared { ours, rival, ratio } = in_turn(
        ROUNDS,
        || sandbox.p50(200),
        || (0..20).map(|_| time(|| output_of(&mut Command::new(RIVAL)))).collect::<Result<_, _>>().map(median),
    )?;
    Ok(Row {
        name: "echo",
        what: "echo through Host::call, fresh sandbox, p50".to_owned(),
        value: Some(ratio),
        unit: Unit::Ratio,
        target: Target::AtMost(1.0 / 30.0),
        ours: show_time(ours),
        rival: format!("{RIVAL} {}", show_time(rival)),
    })
}

/// Calls with a pause before each, as an agent makes them, so that each finds an instance waiting for it. The rival has the pauses too:
/// what rests has its memory and its clock to warm up again.
fn ready(sandbox: &Sandbox) -> Result<Row, String> {
    let ours = || {
        let call = || sandbox.call_and_wait(ECHO, json!({ "text": "hello" }));
        // One that readies the next.
        call()?;
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            std::thread::sleep(PAUSE);
            sandbox.wait_until("an instance waits", || sandbox.ready("bench") > 0)?;
            times.push(time(call)?);
        }
        Ok(median(times))
    };
    let rival = || {
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            std::thread::sleep(PAUSE);
            times.push(time(|| output_of(&mut Command::new(RIVAL)))?);
        }
        Ok(median(times))
    };
    let Compared { ours, rival, ratio } = in_turn(ROUNDS, ours, rival)?;
    Ok(Row {
        name: "ready",
        what: "echo in an instance that waited for it, p50".to_owned(),
        value: Some(ratio),
        unit: Unit::Ratio,
        target: Target::AtMost(1.0 / 60.0),
        ours: show_time(ours),
        rival: format!("{RIVAL} {}", show_time(rival)),
    })
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
        let tasks: Vec<_> = (0..THREADS).map(|_| sandbox.runtime().spawn(call_for_a_slice(Arc::clone(sandbox)))).collect();
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
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?).sum::<Result<u32, String>>()
        })?;
        Ok(start.elapsed() / done.max(1))
    };
    let Compared { ours, rival, ratio } = in_turn(5, ours, rival)?;
    let a_second = |each: Duration| format!("{:.0} a second", 1.0 / each.as_secs_f64().max(1e-9));
    Ok(Row {
        name: "throughput",
        what: format!("sandboxed calls on {THREADS} threads"),
        value: Some(1.0 / ratio),
        unit: Unit::Ratio,
        target: Target::AtLeast(15.0),
        ours: a_second(ours),
        rival: format!("{RIVAL} {}", a_second(rival)),
    })
}
