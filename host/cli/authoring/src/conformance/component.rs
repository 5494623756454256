//! Tests a component: loads it, checks its manifest, and checks and calls each tool.

use std::path::Path;
use std::sync::Arc;

use toolhold_core::text::{counted, neutral};
use toolhold_core::{
    Candidate, Capability, Definition, Difference, Host, HostError, PluginInfo, PluginInspection,
};

use crate::AuthoringError;
use crate::conformance::calls::{Subject, Tried};
use crate::conformance::report::{CheckResult, Finding, Report, short};
use crate::conformance::world::World;
use crate::conformance::{Options, definitions};

/// The prefix of the exports in Toolhold's contract.
const CONTRACT: &str = "toolhold:tool/";

/// The component of a file, before its code runs.
struct Opened {
    candidate: Result<Candidate, HostError>,
    /// The notices of `toolhold plugin pack`.
    notices: Result<Vec<String>, AuthoringError>,
}

fn open(file: &Path) -> Opened {
    let notices = crate::compare_file(file);
    Opened { candidate: Candidate::file(file), notices }
}

pub(crate) async fn test(file: &Path, options: Options) -> Result<Report, HostError> {
    let mut report = Report {
        file: neutral(&file.display().to_string()).into_owned(),
        plugin: None,
        seed: options.seed,
        calls: 0,
        checks: Vec::new(),
    };
    let path = file.to_owned();
    let opened = tokio::task::spawn_blocking(move || (open(&path), World::new()));
    let (Opened { candidate, notices }, world) =
        opened.await.map_err(|error| HostError::io("reading the component")(error.into()))?;
    let world = world?;
    let candidate = match candidate {
        Ok(candidate) => candidate,
        Err(error) => {
            report.checks.push(not_loaded(&error.to_string()));
            return Ok(report);
        }
    };
    let info = Arc::clone(candidate.info());
    if !info.without_manifest {
        report.plugin = Some(format!("{} {}", info.manifest.name, short(&info.manifest.version)));
    }
    let first = match PluginInspection::new(candidate, &world.folders(), None).await {
        Ok(inspection) => inspection,
        Err(error @ HostError::Engine(_)) => return Err(error),
        Err(error) => {
            report.checks.push(not_loaded(&error.to_string()));
            return Ok(report);
        }
    };
    report.checks.push(check_contract(&info));
    report.checks.push(check_manifest(&info, notices));

    let config = world.config(Some(&info.manifest), options.time)?;
    let host = match world.builder(config).plugin_file(file).build().await {
        Ok(host) => host,
        Err(error @ (HostError::Load { .. } | HostError::Config(_))) => {
            report.checks.push(not_loaded(&error.to_string()));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let about = "the component loads, and its list of tools is within the limits";
    report.checks.push(CheckResult::from_findings("loads", about, Vec::new()));

    let mut tools: Vec<Arc<Definition>> = host.tools();
    tools.retain(|tool| {
        host.plugin_of(&tool.name).is_some_and(|plugin| plugin.digest == info.digest)
    });
    report.checks.push(check_same_definitions(&first, &info, &tools));
    try_all(&host, &world, &tools, &info, options, &mut report).await;
    report.checks.extend(list_impossible_checks(&info, &tools));
    // The host must end before its folders are removed.
    let _ = tokio::task::spawn_blocking(move || drop((host, world))).await;
    Ok(report)
}

/// Checks the definition of each tool, and calls each tool.
async fn try_all(
    host: &Host,
    world: &World,
    tools: &[Arc<Definition>],
    info: &PluginInfo,
    options: Options,
    report: &mut Report,
) {
    if tools.is_empty() {
        let why = "the component offers no tools; use `toolhold filter` to test filters";
        report.checks.push(CheckResult::not_tried("calls", why));
    }
    let needs_network_or_programs = info.manifest.asks_for(Capability::Http).is_some()
        || info.manifest.asks_for(Capability::Process).is_some();
    let subject =
        Subject { host, world, seed: options.seed, time: options.time, needs_network_or_programs };
    for tool in tools {
        report.checks.push(definitions::check(tool).for_tool(&tool.name));
        let Tried { checks, calls } = subject.try_tool(tool).await;
        report.checks.extend(checks);
        report.calls += calls;
    }
}

fn not_loaded(error: &str) -> CheckResult {
    let fix = "follow the message; `toolhold plugin inspect` describes the component";
    let finding = Finding::new("a component that a host loads", error, fix);
    CheckResult::from_findings("loads", "no other check could run", vec![finding])
}

fn check_contract(info: &PluginInfo) -> CheckResult {
    const NAME: &str = "contract";
    let mut exports = Vec::new();
    for export in &info.exports {
        if export.starts_with(CONTRACT) {
            exports.push(short(export));
        }
    }
    if exports.is_empty() {
        return CheckResult::not_tried(NAME, "the component is not made for Toolhold");
    }
    CheckResult::from_findings(
        NAME,
        format!("the component exports {}", exports.join(", ")),
        Vec::new(),
    )
}

/// Checks that the manifest requests exactly the component's imports. `notices` contains the
/// differences, or the reason why no host loads the component.
fn check_manifest(info: &PluginInfo, notices: Result<Vec<String>, AuthoringError>) -> CheckResult {
    const NAME: &str = "manifest";
    if info.without_manifest {
        return CheckResult::not_tried(NAME, "the component has no manifest, and needs none");
    }
    let faults = match notices {
        Ok(notices) => notices,
        Err(error) => vec![error.to_string()],
    };
    let expected = "a manifest that asks for exactly the imports of the component";
    let fix = "correct the manifest, because users decide about grants by the manifest";
    let findings = faults.into_iter().map(|fault| Finding::new(expected, fault, fix));
    let about = "the requests match the imports";
    CheckResult::from_findings(NAME, about, findings.collect())
}

/// Checks that a component offers the same tools with and without grants. `first` is an inspection
/// without grants. `tools` come from the host, which grants all requests of the manifest.
fn check_same_definitions(
    first: &PluginInspection,
    info: &Arc<PluginInfo>,
    tools: &[Arc<Definition>],
) -> CheckResult {
    let second = PluginInspection {
        info: Arc::clone(info),
        tools: tools.to_vec(),
        // Only the offered tools are compared, so both sides get the same value.
        left_out: first.left_out.clone(),
    };
    let Difference { tools_added, tools_removed, tools_changed, .. } =
        Difference::between(first, &second);
    let mut differences: Vec<String> = Vec::new();
    differences.extend(tools_added.into_iter().map(|tool| format!("{tool} appeared")));
    differences.extend(tools_removed.into_iter().map(|tool| format!("{tool} disappeared")));
    for changed in tools_changed {
        let change = changed.change;
        differences.push(format!(
            "{} of {}: {} became {}",
            changed.what, changed.tool, change.old, change.new
        ));
    }
    let fix = "list the same tools each time, because clients store the first list";
    let mut findings = Vec::new();
    for difference in differences {
        findings.push(Finding::new("the same definitions", difference, fix));
    }
    let about = format!("{} offered twice", counted(tools.len() as u64, "tool"));
    CheckResult::from_findings("same definitions", about, findings)
}

/// Lists the checks that this test can't make, with the reasons.
fn list_impossible_checks(info: &PluginInfo, tools: &[Arc<Definition>]) -> Vec<CheckResult> {
    let mut checks = Vec::new();
    if info.manifest.asks_for(Capability::Http).is_some() {
        checks.push(CheckResult::not_tried("network", "the test has no servers"));
    }
    if info.manifest.asks_for(Capability::Process).is_some() {
        checks.push(CheckResult::not_tried("programs", "the test grants no programs"));
    }
    if tools.iter().any(|tool| tool.takes_attachments()) {
        checks.push(CheckResult::not_tried("attachments", "the test creates no secrets"));
    }
    if !tools.is_empty() {
        let why = "the host parses arguments, so text that isn't JSON or Unicode reaches no tool";
        checks.push(CheckResult::not_tried("invalid JSON", why));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn inspection(tools: &[&str], description: &str) -> PluginInspection {
        let info = json!({ "manifest": 1, "name": "sample", "version": "1", "description": "d" });
        let info = PluginInfo {
            manifest: serde_json::from_value(info).expect("it is a manifest"),
            origin: toolhold_core::Origin::BuiltIn,
            digest: String::new(),
            size: 0,
            imports: Vec::new(),
            exports: Vec::new(),
            kind: Default::default(),
            without_manifest: false,
        };
        let tool = |name: &&str| Arc::new(Definition::new(*name, description, json!({})));
        let tools = tools.iter().map(tool).collect();
        PluginInspection { info: Arc::new(info), tools, left_out: Vec::new() }
    }

    #[test]
    fn other_definitions_are_found() {
        let first = inspection(&["a", "b"], "Does.");
        let cases = [
            (inspection(&["a", "b"], "Does."), None),
            (
                inspection(&["a", "b"], "Does more."),
                Some("description of a: Does. became Does more."),
            ),
            (inspection(&["a"], "Does."), Some("b disappeared")),
            (inspection(&["a", "b", "c"], "Does."), Some("c appeared")),
        ];
        for (second, expected) in cases {
            let check = check_same_definitions(&first, &second.info, &second.tools);
            let found = check.findings.first().map(|finding| finding.found.as_str());
            assert_eq!(found, expected);
        }
    }
}
