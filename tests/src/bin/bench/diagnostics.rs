//! What `diagnostics` takes beside its checker: against the same command, run by `bash`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::Setting;
use crate::measure::{in_turn, time};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 15;

/// Errors that the checker finds.
const ERRORS: usize = 500;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let clients = setting.repository.join("target/clients/checkers-node");
    if !clients.join("fetched").exists() {
        return Ok(Vec::new());
    }
    let failed = |error: std::io::Error| format!("no project to check: {error}");
    let temporary = || tempfile::tempdir_in(&setting.scratch).map_err(failed);
    let (home, work) = (temporary()?, temporary()?);
    let bin = work.path().join("node_modules/.bin");
    let tsc = clients.join("node_modules/.bin/tsc");
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", tsc.display());
    let source: String =
        (0..ERRORS).map(|number| format!("export const n{number}: number = 'text';\n")).collect();
    let options = "{ \"compilerOptions\": { \"strict\": true, \"types\": [] } }";
    fs::create_dir_all(&bin)
        .and_then(|()| fs::write(bin.join("tsc"), script))
        .and_then(|()| fs::set_permissions(bin.join("tsc"), fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::write(work.path().join("a.ts"), source))
        .and_then(|()| fs::write(work.path().join("tsconfig.json"), options))
        .map_err(failed)?;
    let grant =
        format!("tools.shell.allowed_paths=[\".\", {{ path = {clients:?}, access = \"read\" }}]");
    let settings = ["tools.autonomy=full", "tools.call=120", &grant];
    let sandbox = Sandbox::with_builtins(&setting.repository, home.path(), work.path(), &settings)?;
    let found = sandbox.structured("diagnostics", json!({}))?;
    if found["total"] != ERRORS {
        return Err(format!("the checker found {}, not {ERRORS}", found["total"]));
    }
    // It fails by its findings, which is no failure here.
    let command = json!({
        "command": "node_modules/.bin/tsc --noEmit --pretty false --incremental --tsBuildInfoFile /dev/null || true"
    });
    let compared = in_turn(
        ROUNDS,
        || time(|| sandbox.call_and_wait("diagnostics", json!({}))),
        || time(|| sandbox.call_and_wait("bash", command.clone())),
    )?;
    Ok(vec![Row {
        name: "diagnostics",
        what: "diagnostics of tsc, 500 errors, against the same command by bash".to_owned(),
        samples: compared.ratios.clone(),
        unit: Unit::Ratio,
        target: Target::AtMost(1.05),
        ours: show_time(compared.ours),
        rival: format!("bash {}", show_time(compared.rival)),
    }])
}
