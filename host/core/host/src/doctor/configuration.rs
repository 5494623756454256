//! `toolhold doctor`: checks whether the configuration can be read, and reports missing and risky
//! values.

use std::path::PathBuf;
use std::time::Duration;

use toolhold_catalogue::plugins::runtime_config;
use toolhold_config::{self as config, Config, Folders, Inputs, Problems, Source};
use toolhold_engine::RuntimeConfig;
use toolhold_policy::Autonomy;

use super::Finding;
use crate::doctor::machine::within_or;

/// The configuration for the other checks, or the defaults if the configuration has errors.
#[derive(Clone, Debug, Default)]
pub(super) struct Read {
    pub(super) folders: Option<Folders>,
    pub(super) loaded: Config,
    /// Whether the values are those of the operator's configuration.
    pub(super) is_right: bool,
}

impl Read {
    pub(super) fn runtime(&self, helper: Option<PathBuf>) -> RuntimeConfig {
        runtime_config(&self.loaded, self.folders.as_ref(), helper)
    }
}

/// Reads the configuration and reports its errors.
pub(super) async fn read(inputs: Inputs, patience: Duration) -> (Read, Vec<Finding>) {
    match within_or(patience, move || examine(&inputs)).await {
        Ok(result) => result,
        Err(finding) => (Read::default(), vec![finding]),
    }
}

fn examine(inputs: &Inputs) -> (Read, Vec<Finding>) {
    let folders = match Folders::from_environment() {
        Ok(folders) => folders,
        Err(error) => {
            let fix = "set HOME to your home's absolute path, or TOOLHOLD_CONFIG_DIR, TOOLHOLD_DATA_DIR and TOOLHOLD_CACHE_DIR";
            return (Read::default(), vec![Finding::failure("folders", error.to_string(), fix)]);
        }
    };
    let mut findings = Vec::new();
    let loaded = match config::load(&folders, inputs) {
        Ok(loaded) => {
            let file = match &loaded.file {
                Some(file) => format!("{} was read", file.display()),
                None => {
                    format!("there is no {}: the defaults apply", folders.config_file().display())
                }
            };
            findings.push(Finding::ok("file", file));
            for ceiling in &loaded.ceilings {
                findings.push(Finding::ok("ceiling", describe_ceiling(ceiling)));
            }
            findings.push(autonomy(&loaded));
            findings.extend(missing(&loaded, &folders));
            Some(loaded)
        }
        Err(Problems(problems)) => {
            findings.extend(problems.iter().map(problem));
            None
        }
    };

    let variables = toolhold_variables(inputs);
    let names = if variables.is_empty() {
        "no variable sets a key".to_owned()
    } else {
        variables.join(", ")
    };
    findings.push(Finding::ok("variables", names));
    let is_right = loaded.is_some();
    (Read { folders: Some(folders), loaded: loaded.unwrap_or_default(), is_right }, findings)
}

/// Finds granted directories that don't exist, and places of presets that aren't granted.
fn missing(loaded: &Config, folders: &Folders) -> Vec<Finding> {
    let here = config::working_directory().unwrap_or_default();
    let missing = loaded.missing_directories(folders, &here);
    let mut findings = Vec::new();
    for problem in &missing {
        findings.push(place_warning(problem, "create it, or remove the entry"));
    }
    for problem in &loaded.linked_places(folders) {
        let fix = "set the variable, such as CARGO_HOME or PATH, to where the link leads";
        findings.push(place_warning(problem, fix));
    }
    findings
}

fn place_warning(problem: &config::Problem, fix: &str) -> Finding {
    Finding::warning(problem.source.to_string(), &problem.message, fix)
}

/// Reports the level of autonomy, and why commands need approval that otherwise wouldn't.
fn autonomy(loaded: &Config) -> Finding {
    let Ok(policy) = loaded.policy() else {
        return Finding::ok("autonomy", "unknown: a rule is invalid");
    };
    let level = policy.autonomy.value.as_str();
    let place = &policy.autonomy.place.text;
    match policy.containment.commands {
        Some(missing) if policy.autonomy.value == Autonomy::Sandboxed => Finding::warning(
            "autonomy",
            format!("\"{level}\" ({place}); but commands need approval, because of `{missing}`"),
            format!(
                "take `{missing}` out of {}; or set `autonomy = \"ask\"` in {}",
                loaded.own_file(),
                loaded.own_table("tools")
            ),
        ),
        _ => Finding::ok("autonomy", format!("\"{level}\" ({place})")),
    }
}

fn describe_ceiling(ceiling: &config::Ceiling) -> String {
    let keys: Vec<&str> = ceiling.taken.iter().map(|taken| taken.key.as_str()).collect();
    let names = if keys.is_empty() { "none of your keys".to_owned() } else { keys.join(", ") };
    format!("{} limits {names}", ceiling.path.display())
}

fn problem(problem: &config::Problem) -> Finding {
    let fix = match &problem.source {
        Source::File { path, line } => format!(
            "change line {line} of {}; `toolhold config schema` shows the valid values",
            path.display()
        ),
        Source::Path(path) => {
            format!("check {}: the problem is the file itself, not a line of it", path.display())
        }
        Source::Variable(name) => format!("unset {name}, or set it to a valid value"),
        Source::Flag(flag) => format!("remove {flag}, or fix it"),
        Source::TaskBounds => "make the task anew".to_owned(),
        Source::Default => "see docs/configuration.md".to_owned(),
    };
    Finding::failure(problem.source.to_string(), &problem.message, fix)
}

/// Returns the names of the variables that set keys or folders.
fn toolhold_variables(inputs: &Inputs) -> Vec<String> {
    let mut names: Vec<String> = inputs
        .variables
        .iter()
        .filter_map(|(name, _)| name.to_str())
        .filter(|name| name.starts_with("TOOLHOLD_"))
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}
