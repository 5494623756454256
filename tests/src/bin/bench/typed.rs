//! The echo of a component that knows nothing of Toolhold, whose values the host converts from
//! JSON, against one whose SDK decodes the JSON.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Setting;
use crate::measure::{Compared, in_turn, median};
use crate::sandbox::{ECHO, Sandbox};
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 15;
const CALLS: usize = 200;

/// The function of `every-type` that returns its text.
const TYPED: &str = "every-type__same-text";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let component = setting.repository.join("target/plugins/every-type.wasm");
    let home = tempfile::tempdir_in(&setting.scratch)
        .map_err(|error| format!("no folder for a home: {error}"))?;
    let path = format!("plugins.every-type.path={}", json!(component));
    let settings = [
        &*path,
        "plugins.every-type.reload=trust",
        "tools.result_cache.enabled=false",
        "tools.autonomy=full",
        "audit.keep=1",
    ];
    let sandbox = Sandbox::governed(&setting.repository, home.path(), &settings)?;
    let what = "echo of a typed component, p50";
    [("5 bytes", "hello".to_owned()), ("4 KiB", "lorem ipsum ".repeat(342))]
        .into_iter()
        .map(|(size, text)| {
            let Compared { ours, rival, ratios } = in_turn(
                ROUNDS,
                || p50(&sandbox, TYPED, &json!({ "value": text })),
                || p50(&sandbox, ECHO, &json!({ "text": text })),
            )?;
            Ok(Row {
                name: "typed",
                what: format!("{what}, {size}"),
                samples: ratios,
                unit: Unit::Ratio,
                target: Target::Lower,
                ours: show_time(ours),
                rival: format!("echo with JSON {}", show_time(rival)),
            })
        })
        .collect()
}

fn p50(sandbox: &Sandbox, tool: &str, arguments: &Value) -> Result<Duration, String> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let arguments = arguments.clone();
        let start = Instant::now();
        sandbox.call_and_wait(tool, arguments)?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}
