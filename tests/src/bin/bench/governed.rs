//! The cost of deciding on calls and of recording them, against the same call of the plugin without
//! a host.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolhold_contract::{
    Call, CallCommands, CallId, CallRequests, CancellationToken, NoEvents, Report, ToolSource,
};
use toolhold_engine::{Candidate, Plugin, PluginGrants, RuntimeConfig};

use crate::Setting;
use crate::measure::{Compared, in_turn, median, time};
use crate::sandbox::{ECHO, Sandbox};
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 15;
const CALLS: usize = 200;

/// The memory limit of a call, as by default.
const MEMORY: usize = 256 << 20;

/// Parallel callers with a durable log, and the calls of each.
const CALLERS: [usize; 2] = [1, 16];
const DURABLE_CALLS: usize = 20;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let mut rows = vec![governed(setting)?];
    let home = setting.scratch.join("durable");
    let sandbox = Arc::new(Sandbox::governed(
        &setting.repository,
        &home,
        &["audit.durable=true", "audit.keep=1"],
    )?);
    for callers in CALLERS {
        rows.push(durable(&sandbox, callers)?);
    }
    Ok(rows)
}

/// Neither has a warm instance, so both create their own.
fn governed(setting: &Setting) -> Result<Row, String> {
    let home = setting.scratch.join("governed");
    let sandbox =
        Sandbox::governed(&setting.repository, &home, &["tools.keep_ready=0", "audit.keep=1"])?;
    let plugin = bare(setting, &sandbox)?;
    let of_plugin = || {
        sandbox.runtime().block_on(async {
            let mut times = Vec::with_capacity(CALLS);
            for _ in 0..CALLS {
                let call = call();
                let start = std::time::Instant::now();
                plugin.call(call).await.map_err(|failure| failure.message)?;
                times.push(start.elapsed());
            }
            Ok(median(times))
        })
    };
    let Compared { ours, rival, ratios } = in_turn(ROUNDS, || sandbox.p50(CALLS), of_plugin)?;
    Ok(Row {
        name: "governed",
        what: "echo decided on, recorded and shaped, against the plugin alone, p50".to_owned(),
        samples: ratios,
        unit: Unit::Ratio,
        target: Target::AtMost(1.5),
        ours: show_time(ours),
        rival: format!("plugin alone {}", show_time(rival)),
    })
}

/// The plugin on an engine of its own.
fn bare(setting: &Setting, sandbox: &Sandbox) -> Result<Plugin, String> {
    let file = setting.repository.join("target/plugins/bench.wasm");
    let loaded = sandbox.runtime().block_on(async {
        let runtime = toolhold_engine::Runtime::new(RuntimeConfig {
            memory: MEMORY,
            keep_ready: Duration::ZERO,
            ..RuntimeConfig::default()
        })?;
        runtime.load(Candidate::file(&file)?, PluginGrants::default()).await
    });
    loaded.map_err(|error| error.to_string())
}

fn call() -> Call {
    Call {
        id: CallId("bench".into()),
        tool: ECHO.to_owned(),
        arguments: Arc::new(json!({ "text": "hello" })),
        meta: None,
        attachments: Vec::new(),
        time: None,
        caller: None,
        session: "bench".into(),
        caller_info: None,
        read_only: false,
        path_rules: None,
        changes: None,
        commands: CallCommands::default(),
        requests: CallRequests::default(),
        tasks: None,
        inquirer: None,
        report: Arc::new(Report::default()),
        events: Arc::new(NoEvents),
        cancel: CancellationToken::new(),
    }
}

/// Calls whose records are synced before their answers leave.
fn durable(sandbox: &Arc<Sandbox>, callers: usize) -> Result<Row, String> {
    let calls = || {
        let each = |sandbox: Arc<Sandbox>| async move {
            for _ in 0..DURABLE_CALLS {
                sandbox.call(ECHO, json!({ "text": "hello" })).await?;
            }
            Ok::<(), String>(())
        };
        let tasks: Vec<_> =
            (0..callers).map(|_| sandbox.runtime().spawn(each(Arc::clone(sandbox)))).collect();
        tasks.into_iter().try_for_each(|task| {
            sandbox.runtime().block_on(task).map_err(|error| error.to_string())?
        })
    };
    calls()?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        times.push(time(calls)?);
    }
    let calls = u32::try_from(callers * DURABLE_CALLS).unwrap_or(u32::MAX);
    let each = median(times.clone()) / calls;
    Ok(Row {
        name: "durable",
        what: format!("a call with its record on the disk, {callers} at a time"),
        samples: times.iter().map(|time| time.as_secs_f64() * 1e6 / f64::from(calls)).collect(),
        unit: Unit::Microseconds,
        target: Target::Lower,
        ours: format!("{:.0} calls a second", 1.0 / each.as_secs_f64().max(1e-9)),
        rival: String::new(),
    })
}
