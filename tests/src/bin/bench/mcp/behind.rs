//! The tools of another server, through Berth and without it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::servers::{NODE, Place, SAID, Server};
use super::{Measured, ROUNDS, in_ratio, in_turn, on_one_core};
use crate::Setting;
use crate::measure::{median, output_of, percentile};
use crate::table::{Row, Target, Unit, show_time};

/// Servers in a configuration that has many.
const SERVERS: usize = 20;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let place = Place::make(setting)?;
    let (all, left_out) = place.echoing(SAID);
    let Some(node) = all.into_iter().find(|server| server.name == NODE) else {
        let why = left_out.unwrap_or_default();
        let row = |what: String, unit, target| {
            Row::not_measured("servers", &what, unit, target, why.clone())
        };
        return Ok(vec![
            row(added(), Unit::Microseconds, ADDED),
            row(worst(), Unit::Ratio, WORST),
            row(start(), Unit::Milliseconds, START),
        ]);
    };
    let one = configured(&place, &node, 1)?;
    let mut rows = on_one_core(|| calls(&one, &node))??;
    rows.push(on_one_core(|| starts(&place, &node))??);
    Ok(rows)
}

const ADDED: Target = Target::AtMost(150.0);
const WORST: Target = Target::AtMost(2.0);
const START: Target = Target::AtMost(2.0);

fn added() -> String {
    "what Berth adds to an echo of another server over stdio, one core, p50".to_owned()
}

fn worst() -> String {
    "echo of another server over stdio, one core, p99".to_owned()
}

fn start() -> String {
    format!("what {SERVERS} other servers add to the start of an MCP server, one core")
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
fn starts(place: &Place, node: &Server) -> Result<Row, String> {
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

/// Berth with this number of approved servers, and a call of the first. Without any, a call of its
/// own.
fn configured(place: &Place, node: &Server, servers: usize) -> Result<Server, String> {
    let home = place.home.join(format!("behind-{servers}"));
    let config = home.join(".config/berth");
    let modules = place.repository.join("target/clients/node");
    let mut text = "[tools]\nautonomy = \"full\"\n".to_owned();
    for number in 0..servers {
        text += &format!(
            "[mcp.servers.s{number}]\ncommand = {:?}\nargs = {:?}\nallowed_paths = [{{ path = {modules:?}, access = \"read\" }}]\n",
            node.program, node.arguments
        );
    }
    let written = std::fs::create_dir_all(&config)
        .and_then(|()| std::fs::write(config.join("berth.toml"), text));
    written.map_err(|error| format!("can't write {}: {error}", config.display()))?;
    let berth = match servers {
        0 => place.berth(&["bench"], call("bench__echo", "text"), SAID),
        _ => place.berth(&["bench"], call("s0__echo", "message"), SAID),
    };
    let berth = Server { home: Some(home), ..berth };
    for number in 0..servers {
        approve(&berth.program, &berth, number)?;
    }
    // What is compared at the start is the first answer of Berth itself.
    Ok(if servers > 1 { Server { call: call("bench__echo", "text"), ..berth } } else { berth })
}

fn call(tool: &str, argument: &str) -> String {
    serde_json::json!({ "name": tool, "arguments": { argument: SAID } }).to_string()
}

fn approve(program: &Path, berth: &Server, number: usize) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(["mcp", "approve", &format!("s{number}"), "--yes"]);
    output_of(berth.surround(&mut command)).map(drop)
}
