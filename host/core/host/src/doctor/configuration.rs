//! `toolhold doctor`: checks whether the configuration is valid, and reports missing and risky
//! values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toolhold_catalogue::plugins::runtime_config;
use toolhold_config::{self as config, Config, Folders, Inputs, Problems, Source};
use toolhold_engine::RuntimeConfig;
use toolhold_policy::Autonomy;

use super::Finding;
use crate::doctor::machine::within_or;

/// The configuration, or the defaults if the configuration has errors.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadConfig {
    pub(super) folders: Option<Folders>,
    pub(super) loaded: Config,
    pub(super) is_valid: bool,
}

impl ReadConfig {
    pub(super) fn runtime(&self, helper: Option<PathBuf>) -> RuntimeConfig {
        runtime_config(&self.loaded, self.folders.as_ref(), helper)
    }
}

pub(super) async fn read(inputs: Inputs, patience: Duration) -> (ReadConfig, Vec<Finding>) {
    match within_or(patience, move || examine(&inputs)).await {
        Ok(result) => result,
        Err(finding) => (ReadConfig::default(), vec![finding]),
    }
}

/// Reads the configuration, and reports its files and errors.
fn examine(inputs: &Inputs) -> (ReadConfig, Vec<Finding>) {
    let folders = match Folders::from_environment() {
        Ok(folders) => folders,
        Err(error) => {
            let fix = "set HOME to your home's absolute path, or TOOLHOLD_CONFIG_DIR, TOOLHOLD_DATA_DIR and TOOLHOLD_CACHE_DIR";
            return (
                ReadConfig::default(),
                vec![Finding::failure("folders", error.to_string(), fix)],
            );
        }
    };
    let mut findings = Vec::new();
    let loaded = match config::load(&folders, inputs) {
        Ok(loaded) => {
            findings.extend(examine_valid(&loaded, &folders));
            Some(loaded)
        }
        Err(Problems(problems)) => {
            findings.extend(problems.iter().map(|problem| problem_finding(problem, inputs)));
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
    let is_valid = loaded.is_some();
    (ReadConfig { folders: Some(folders), loaded: loaded.unwrap_or_default(), is_valid }, findings)
}

/// Reports the files and the values of a valid configuration.
fn examine_valid(loaded: &Config, folders: &Folders) -> Vec<Finding> {
    let own = loaded.file.as_deref();
    let files = describe_files(own, loaded.defaults.as_deref(), &folders.config_file());
    let mut findings = vec![Finding::ok("file", files)];
    for ceiling in &loaded.ceilings {
        findings.push(Finding::ok("ceiling", describe_ceiling(ceiling)));
    }
    findings.push(autonomy(loaded));
    findings.extend(unusable_directories(loaded, folders));
    findings
}

/// Describes the user's file `own` and the organisation's file `defaults`. `usual` is the usual
/// path of the user's file.
fn describe_files(own: Option<&Path>, defaults: Option<&Path>, usual: &Path) -> String {
    let usual = usual.display();
    match (own, defaults) {
        (Some(own), None) => format!("{} was read", own.display()),
        (Some(own), Some(defaults)) => {
            format!("{} was read, after {}", own.display(), defaults.display())
        }
        (None, None) => format!("there is no {usual}: the defaults apply"),
        (None, Some(defaults)) => {
            format!("there is no {usual}: the defaults of {} apply", defaults.display())
        }
    }
}

/// Finds granted directories, directories of presets and settings of tools that can't be used.
fn unusable_directories(loaded: &Config, folders: &Folders) -> Vec<Finding> {
    // Relative paths without a known working directory are reported as missing.
    let here = config::working_directory().unwrap_or_default();
    let missing = loaded.missing_directories(folders, &here);
    let mut findings = Vec::new();
    for problem in &missing {
        findings.push(place_warning(problem, "create the directory, or remove the entry"));
    }
    for problem in &loaded.unread_settings(folders, &here) {
        let fix = "name the hosts that commands need in `hosts` of [tools.shell]";
        findings.push(place_warning(problem, fix));
    }
    for problem in &loaded.linked_places(folders) {
        let fix = "set the variable, such as CARGO_HOME or PATH, to the link's target";
        findings.push(place_warning(problem, fix));
    }
    findings
}

fn place_warning(problem: &config::Problem, fix: &str) -> Finding {
    Finding::warning(problem.source.to_string(), &problem.message, fix)
}

/// Reports the level of autonomy, and why sandboxed commands need approval.
fn autonomy(loaded: &Config) -> Finding {
    let Ok(policy) = loaded.policy() else {
        return Finding::ok("autonomy", "unknown: a rule is invalid");
    };
    let level = policy.autonomy.value.as_str();
    let place = &policy.autonomy.place.text;
    if policy.autonomy.value == Autonomy::Sandboxed
        && let Some(weakening) = policy.containment.commands
    {
        return Finding::warning(
            "autonomy",
            format!("\"{level}\" ({place}); but commands need approval, because of `{weakening}`"),
            format!(
                "remove `{weakening}` from {}; or set `autonomy = \"ask\"` in {}",
                loaded.own_file(),
                loaded.own_table("tools")
            ),
        );
    }
    Finding::ok("autonomy", format!("\"{level}\" ({place})"))
}

fn describe_ceiling(ceiling: &config::Ceiling) -> String {
    let keys: Vec<&str> = ceiling.taken.iter().map(|taken| taken.key.as_str()).collect();
    let names =
        if keys.is_empty() { "no key of your configuration".to_owned() } else { keys.join(", ") };
    let signer = match &ceiling.signed_by {
        Some(key) => format!(", signed by key {key},"),
        None => String::new(),
    };
    format!("{}{signer} limits {names}", ceiling.path.display())
}

/// Reports an error of the configuration, with the remedy for its source.
fn problem_finding(problem: &config::Problem, inputs: &Inputs) -> Finding {
    let fix = match &problem.source {
        Source::File { path, .. } | Source::Path(path) if is_of_organisation(path, inputs) => {
            format!("ask the administrator of this machine, who manages {}", path.display())
        }
        Source::File { path, line } => format!(
            "change line {line} of {}; `toolhold config schema` shows the valid values",
            path.display()
        ),
        Source::Path(path) if path.symlink_metadata().is_err() => {
            format!("create {}, or name another file", path.display())
        }
        Source::Path(path) => {
            format!(
                "check {}: the problem is the file itself, not a line in the file",
                path.display()
            )
        }
        Source::Variable(name) => format!("unset {name}, or set the variable to a valid value"),
        Source::Flag(flag) => format!("remove {flag}, or fix the value"),
        Source::TaskBounds => "create the task again".to_owned(),
        Source::Default => "see docs/configuration.md".to_owned(),
    };
    Finding::failure(problem.source.to_string(), &problem.message, fix)
}

/// Checks whether a file belongs to the organisation: its files are next to the ceiling.
fn is_of_organisation(path: &Path, inputs: &Inputs) -> bool {
    let folder = inputs.ceiling.as_deref().and_then(Path::parent);
    folder.is_some() && path.parent() == folder
}

/// Returns the names of the environment variables that set keys or folders.
fn toolhold_variables(inputs: &Inputs) -> Vec<String> {
    let mut names = Vec::new();
    for (name, _value) in &inputs.variables {
        if let Some(name) = name.to_str()
            && name.starts_with("TOOLHOLD_")
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_force_are_named() {
        let own = Some(Path::new("/u/toolhold.toml"));
        let defaults = Some(Path::new("/etc/toolhold/toolhold.toml"));
        for (own, defaults, expected) in [
            (None, None, "there is no /u/toolhold.toml: the defaults apply"),
            (own, None, "/u/toolhold.toml was read"),
            (own, defaults, "/u/toolhold.toml was read, after /etc/toolhold/toolhold.toml"),
            (
                None,
                defaults,
                "there is no /u/toolhold.toml: the defaults of /etc/toolhold/toolhold.toml apply",
            ),
        ] {
            assert_eq!(describe_files(own, defaults, Path::new("/u/toolhold.toml")), expected);
        }
    }

    #[test]
    fn fix_of_a_problem_fits_its_file() {
        let inputs =
            Inputs { ceiling: Some("/etc/toolhold/ceiling.toml".into()), ..Inputs::default() };
        let fix = |path: &str, line: Option<usize>| {
            let path = PathBuf::from(path);
            let source = match line {
                Some(line) => Source::File { path, line },
                None => Source::Path(path),
            };
            problem_finding(&config::Problem::new(source, "wrong"), &inputs).fix.unwrap_or_default()
        };
        for (path, line, expected) in [
            ("/etc/toolhold/ceiling.toml", None, "ask the administrator"),
            ("/etc/toolhold/ceiling.toml", Some(6), "ask the administrator"),
            ("/etc/toolhold/toolhold.toml", Some(2), "ask the administrator"),
            ("/no/such.toml", None, "create /no/such.toml"),
            ("/no/such.toml", Some(2), "change line 2 of /no/such.toml"),
        ] {
            let found = fix(path, line);
            assert!(found.starts_with(expected), "{path}: {found}");
        }
    }
}
