//! The tools of another server, through Toolhold and without it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::bad::{HANGS, KINDS, TOOL};
use super::servers::{BenchSetting, NODE, READ, SAID, Server};
use super::{Measured, ONE_BY_ONE, ROUNDS, WARM_UP, in_ratio, in_turn, on_one_core};
use crate::Setting;
use crate::measure::{median, output_of, percentile};
use crate::table::{Row, Target, Unit, show_time};

/// Servers in a configuration that has many.
const SERVERS: usize = 20;

/// Calls of a server that never answers: more than it gets at the same time.
const HANGING: usize = 20;

/// Calls of others between two of another bad server.
const BETWEEN: usize = 50;

/// How often Toolhold is started with a bad server, and without.
const TURNS: usize = 3;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let place = BenchSetting::make(setting)?;
    let (all, left_out) = place.echoing(SAID);
    let Some(node) = all.into_iter().find(|server| server.name == NODE) else {
        let why = left_out.unwrap_or_default();
        let row = |what: String, unit, target| {
            Row::not_measured("servers", &what, unit, target, why.clone())
        };
        let besides = KINDS.map(|(_, does)| row(beside(does), Unit::Ratio, BESIDE));
        return Ok([
            row(added(), Unit::Microseconds, ADDED),
            row(worst(), Unit::Ratio, WORST),
            row(start(), Unit::Milliseconds, START),
        ]
        .into_iter()
        .chain(besides)
        .collect());
    };
    let one = configured(&place, &node, 1)?;
    let mut rows = on_one_core(|| calls(&one, &node))??;
    rows.push(on_one_core(|| starts(&place, &node))??);
    let server = with_bad(&place, &node)?;
    for kind in KINDS {
        rows.push(on_one_core(|| beside_bad(&place, &server, kind))??);
    }
    Ok(rows)
}

const ADDED: Target = Target::AtMost(150.0);
const WORST: Target = Target::AtMost(2.0);
const START: Target = Target::AtMost(2.0);
const BESIDE: Target = Target::AtMost(2.0);

fn added() -> String {
    "what Toolhold adds to an echo of another server over stdio, one core, p50".to_owned()
}

fn worst() -> String {
    "echo of another server over stdio, one core, p99".to_owned()
}

fn start() -> String {
    format!("what {SERVERS} other servers add to the start of an MCP server, one core")
}

fn beside(does: &str) -> String {
    format!("echo of another server and `read`, beside a server that {does}, one core, p99")
}

fn calls(ours: &Server, node: &Server) -> Result<Vec<Row>, String> {
    let measured = in_turn(&[ours, node])?;
    let [through, without] = &measured[..] else { return Err("two servers run".to_owned()) };
    let p50 = |measured: &Measured| show_time(median(measured.p50.clone()));
    let p99 = |measured: &Measured| percentile(&measured.times, 99);
    let added_of =
        |(ours, node): (&Duration, &Duration)| (ours.as_secs_f64() - node.as_secs_f64()) * 1e6;
    let row = |what, unit, target, samples, of: &dyn Fn(&Measured) -> String| Row {
        name: "servers",
        what,
        samples,
        unit,
        target,
        ours: of(through),
        rival: format!("{NODE} alone {}", of(without)),
    };
    let more = through.p50.iter().zip(&without.p50).map(added_of).collect();
    Ok(vec![
        row(added(), Unit::Microseconds, ADDED, more, &p50),
        row(worst(), Unit::Ratio, WORST, vec![in_ratio(p99(through), p99(without))], &|measured| {
            show_time(p99(measured))
        }),
    ])
}

/// The start with many servers, against the start with none.
fn starts(place: &BenchSetting, node: &Server) -> Result<Row, String> {
    let (many, none) = (configured(place, node, SERVERS)?, configured(place, node, 0)?);
    let (mut of_many, mut of_none) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_many.push(many.start()?.start);
        of_none.push(none.start()?.start);
    }
    let added = of_many.iter().zip(&of_none);
    Ok(Row {
        name: "servers",
        what: start(),
        samples: added
            .map(|(many, none)| (many.as_secs_f64() - none.as_secs_f64()) * 1e3)
            .collect(),
        unit: Unit::Milliseconds,
        target: START,
        ours: show_time(median(of_many)),
        rival: format!("without them {}", show_time(median(of_none))),
    })
}

/// Toolhold with this number of approved servers, and a call of the first. Without any, a call of
/// its own.
fn configured(place: &BenchSetting, node: &Server, servers: usize) -> Result<Server, String> {
    let home = place.home.join(format!("behind-{servers}"));
    let config = home.join(".config/toolhold");
    let modules = place.repository.join("target/clients/node");
    let names: Vec<String> = (0..servers).map(|number| format!("s{number}")).collect();
    let tables = names.iter().map(|name| table(name, &node.program, &node.arguments, &modules));
    write(&config, tables)?;
    let toolhold = match servers {
        0 => place.toolhold(&["bench"], call("bench__echo", "text"), SAID),
        _ => place.toolhold(&["bench"], call("s0__echo", "message"), SAID),
    };
    let toolhold = Server { home: Some(home), ..toolhold };
    names.iter().try_for_each(|name| approve(&toolhold, name))?;
    // What is compared at the start is the first answer of Toolhold itself.
    Ok(if servers > 1 {
        Server { call: call("bench__echo", "text"), ..toolhold }
    } else {
        toolhold
    })
}

/// Toolhold with one server of Node, `s0`, and a bad one of each kind.
fn with_bad(place: &BenchSetting, node: &Server) -> Result<Server, String> {
    let home = place.home.join("beside");
    let modules = place.repository.join("target/clients/node");
    let folder = place.bench.parent().ok_or("this program lies in no folder")?;
    let bad = KINDS.iter().map(|(kind, _)| {
        let arguments = ["--serve-badly".to_owned(), (*kind).to_owned()];
        table(kind, &place.bench, &arguments, folder)
    });
    let other = table("s0", &node.program, &node.arguments, &modules);
    write(&home.join(".config/toolhold"), std::iter::once(other).chain(bad))?;
    let toolhold = place.toolhold(&[], call("s0__echo", "message"), SAID);
    let toolhold = Server { home: Some(home), ..toolhold };
    approve(&toolhold, "s0")?;
    KINDS.iter().try_for_each(|(kind, _)| approve(&toolhold, kind))?;
    Ok(toolhold)
}

/// The cost of a bad server for the calls of others. Both run in turn and never at once: the bad
/// server has the same core.
fn beside_bad(
    place: &BenchSetting,
    server: &Server,
    (kind, does): (&str, &str),
) -> Result<Row, String> {
    let calls = [(server.call.clone(), SAID), (place.read("read"), READ)];
    let bad = call(&format!("{kind}__{TOOL}"), "text");
    let mut times: [[Vec<Duration>; 2]; 2] = Default::default();
    for _ in 0..TURNS {
        for (is_beside, times) in [false, true].into_iter().zip(&mut times) {
            let mut client = server.start()?;
            client.many(&server.call, WARM_UP)?;
            client.many(&calls[1].0, ONE_BY_ONE)?;
            let (first, later) = match (is_beside, kind) {
                (false, _) => (0, 0),
                (true, HANGS) => (HANGING, 0),
                (true, _) => (1, 1),
            };
            (0..first).try_for_each(|_| client.leave_hanging(&bad))?;
            for _ in 0..ROUNDS / TURNS * ONE_BY_ONE / BETWEEN {
                for ((call, text), times) in calls.iter().zip(times.iter_mut()) {
                    (0..later).try_for_each(|_| client.leave_hanging(&bad))?;
                    times.extend(client.among_others(call, text, BETWEEN)?);
                }
            }
        }
    }
    let [of_alone, of_beside] = times.map(|times| times.map(|times| percentile(&times, 99)));
    let ratios = of_beside.iter().zip(of_alone).map(|(beside, alone)| in_ratio(*beside, alone));
    let show = |times: [Duration; 2]| times.map(show_time).join(" and ");
    Ok(Row {
        name: "servers",
        what: beside(does),
        samples: vec![ratios.fold(0.0, f64::max)],
        unit: Unit::Ratio,
        target: BESIDE,
        ours: show(of_beside),
        rival: format!("alone {}", show(of_alone)),
    })
}

/// The table of a server, which may read a folder.
fn table(name: &str, program: &Path, arguments: &[String], readable: &Path) -> String {
    format!(
        "[mcp.servers.{name}]\ncommand = {program:?}\nargs = {arguments:?}\n\
         allowed_paths = [{{ path = {readable:?}, access = \"read\" }}]\ntimeout_secs = 600\n"
    )
}

/// Writes a configuration with these tables.
fn write(config: &Path, tables: impl Iterator<Item = String>) -> Result<(), String> {
    let text = format!("[tools]\nautonomy = \"full\"\n{}", tables.collect::<String>());
    let written = std::fs::create_dir_all(config)
        .and_then(|()| std::fs::write(config.join("toolhold.toml"), text));
    written.map_err(|error| format!("can't write {}: {error}", config.display()))
}

fn call(tool: &str, argument: &str) -> String {
    serde_json::json!({ "name": tool, "arguments": { argument: SAID } }).to_string()
}

fn approve(toolhold: &Server, name: &str) -> Result<(), String> {
    let mut command = Command::new(&toolhold.program);
    command.args(["mcp", "approve", name, "--yes"]);
    output_of(toolhold.surround(&mut command)).map(drop)
}
