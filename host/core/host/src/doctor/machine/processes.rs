//! `toolhold doctor`: enters a sandbox for processes, and reports which parts this kernel supports.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_config::{Config, SandboxMode};
use toolhold_contract::CancellationToken;
use toolhold_engine::own_helper;
use toolhold_policy::OwnTable;
use toolhold_system::confine::{Limits, Sandbox};
use toolhold_system::files::{GrantError, Grants};
use toolhold_system::machine::{self, Namespaces};
use toolhold_system::process::{Child, Command, Places, RememberedPlaces, StartError};

use crate::doctor::machine::Finding;

/// Time limit for a trial program.
const TRIAL_TIME: Duration = Duration::from_secs(20);

/// Maximum length of the output of a trial program in bytes. The program `true` writes nothing.
const MAX_TRIAL_OUTPUT: usize = 1024;

/// The oldest kernel with all parts of the sandbox, including a count of processes for each user
/// namespace.
const OLDEST: (u32, u32) = (5, 14);

/// The first version of Landlock that works in a sandbox with its own mounts.
const LANDLOCK_WITH_MOUNTS: u32 = 2;

/// The first version of Landlock that blocks sockets without a path.
const LANDLOCK_WITH_SOCKETS: u32 = 6;

#[derive(Debug, thiserror::Error)]
enum TrialError {
    #[error(transparent)]
    Grants(#[from] GrantError),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Checks all parts of the sandbox.
pub fn findings(helper: Option<PathBuf>, table: &OwnTable) -> Vec<Finding> {
    let Some(helper) = helper.or_else(own_helper) else {
        let found = "not tried: this program has no sandbox helper, so it starts no processes";
        return vec![Finding::warning(
            "sandbox",
            found,
            "call `crate::helper_hook()` first thing in `main`",
        )];
    };
    let started_at = Instant::now();
    let (state, missing) = match find_missing(&helper, Sandbox::Strict) {
        Ok(_) => (Ok(started_at.elapsed()), Vec::new()),
        Err(error) => {
            let missing = match find_missing(&helper, Sandbox::BestEffort) {
                Ok(missing) => missing,
                Err(second_error) => vec![second_error.to_string()],
            };
            (Err(error), missing)
        }
    };

    let failed = state.as_ref().err().map(ToString::to_string);
    // Also blame missing namespaces if the sandbox failed at its mounts, or if no missing part is
    // known.
    let namespaces_reason = match (&failed, find_reason(&missing, "namespaces")) {
        (Some(reason), None) if missing.is_empty() || is_about_mounts(reason) => {
            Some(reason.as_str())
        }
        (_, found) => found,
    };
    let filter_reason = find_reason(&missing, "the filter")
        .or(find_reason(&missing, "system calls"))
        .or(find_reason(&missing, "seccomp"));
    vec![
        check_sandbox(&state, table),
        namespaces(namespaces_reason),
        landlock(find_reason(&missing, "Landlock"), namespaces_reason.is_none()),
        filter(filter_reason),
        processes(),
    ]
}

fn find_reason<'a>(missing: &'a [String], part: &str) -> Option<&'a str> {
    missing.iter().find(|reason| reason.starts_with(part)).map(String::as_str)
}

/// Warns about missing parts that the configuration accepts.
pub fn configured(loaded: &Config) -> Vec<Finding> {
    let shell = &loaded.values.tools.shell;
    let table = loaded.own_table("tools.shell");
    let remedy = format!("set `sandbox = \"strict\"` in {table}, the default");
    match shell.sandbox {
        SandboxMode::Strict => Vec::new(),
        SandboxMode::BestEffort => vec![Finding::warning(
            "commands",
            "commands start with the parts of the sandbox that this machine supports",
            remedy,
        )],
        SandboxMode::Off => {
            let found = "commands run without a sandbox, with your rights, your files and the network: `sandbox = \"off\"`";
            vec![Finding::warning("commands", found, remedy)]
        }
    }
}

fn is_about_mounts(reason: &str) -> bool {
    // Error messages about mounts start with the failed step.
    let steps = [
        "mounting",
        "cloning",
        "protecting",
        "making",
        "taking the mounts",
        "hiding",
        "entering",
        "leaving",
    ];
    steps.iter().any(|step| reason.starts_with(step))
}

/// Runs a trial program in the sandbox, and returns the missing parts.
fn find_missing(helper: &std::path::Path, sandbox: Sandbox) -> Result<Vec<String>, TrialError> {
    let places = Places {
        grants: Arc::new(Grants::open(Vec::new(), Vec::new(), |rules| rules)?),
        also: Vec::new(),
        also_hidden: Vec::new(),
        sockets: Vec::new(),
        sandbox,
        limits: Limits::default(),
        home: None,
        helper: Some(helper.to_owned()),
        known: RememberedPlaces::default(),
    };
    let command = Command {
        arguments: vec!["true".to_owned()],
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        directory: PathBuf::from("/"),
        network: false,
        path_rules: None,
        changes: None,
        shared_network: None,
        connections: None,
        authority: None,
        output: None,
        shell: None,
    };
    let end = Instant::now() + TRIAL_TIME;
    let mut child =
        Child::start(&places, &command, MAX_TRIAL_OUTPUT, end, &CancellationToken::new())?;
    child.wait_for_end(&mut |_, _| {});
    Ok(child.missing().to_vec())
}

/// Reports whether a program has run in the strict sandbox.
fn check_sandbox(state: &Result<Duration, TrialError>, table: &OwnTable) -> Finding {
    let name = "sandbox";
    match state {
        Ok(time) => {
            let parts = "visible files, writes, the network, processes and system calls are \
                         restricted";
            Finding::ok(name, format!("strict: {parts} (checked in {} ms)", time.as_millis()))
        }
        Err(reason) => {
            let fix = format!(
                "fix the problems below, or accept a weaker sandbox: `sandbox = \"best-effort\"` \
                 in {table}"
            );
            Finding::warning(
                name,
                format!("not all parts are available, so no command starts: {reason}"),
                fix,
            )
        }
    }
}

/// Reports the namespaces of the sandbox. `missing_reason` is the reason for their absence.
fn namespaces(missing_reason: Option<&str>) -> Finding {
    let name = "namespaces";
    let Some(reason) = missing_reason else {
        return Finding::ok(
            name,
            "commands have private users, mounts, processes and network, and see only the granted \
             directories",
        );
    };
    let found = format!(
        "missing ({reason}): commands see the names of all files and all processes of your user, \
         and the network is only partly blocked"
    );
    Finding::warning(name, found, namespaces_fix(&machine::namespaces()))
}

/// Returns the remedy for the most likely reason for missing namespaces.
fn namespaces_fix(known: &Namespaces) -> String {
    let has_all_kinds = ["user", "mnt", "pid", "net"].iter().all(|kind| known.kinds.contains(kind));
    // An unknown release isn't too old.
    let release = machine::release().unwrap_or_default();
    let container = "in a container: `docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                     --security-opt systempaths=unconfined …`; elsewhere, a service's RestrictNamespaces=no";
    let settings = format!("sysctl {}", known.forbidden_by.join(" "));
    let is_too_old = machine::version(&release).is_some_and(|version| version < OLDEST);
    if !has_all_kinds {
        "use a kernel with CONFIG_NAMESPACES and CONFIG_USER_NS".to_owned()
    } else if is_too_old {
        let (major, minor) = OLDEST;
        format!("use Linux {major}.{minor} or later; this is {release}")
    } else if known.forbidden_by.is_empty() {
        container.to_owned()
    } else if known.is_confined {
        format!("{settings}; {container}")
    } else {
        settings
    }
}

/// Reports Landlock. `missing_reason` is the reason for its absence. `has_mounts` means that mounts
/// protect files without Landlock.
fn landlock(missing_reason: Option<&str>, has_mounts: bool) -> Finding {
    let name = "Landlock";
    let problem = match (missing_reason, machine::landlock_version()) {
        (None, Some(version)) if version >= LANDLOCK_WITH_SOCKETS => {
            return Finding::ok(name, format!("version {version}"));
        }
        (None, Some(version)) if version >= LANDLOCK_WITH_MOUNTS => {
            let found = format!(
                "version {version}; commands with the network can create Unix sockets only with \
                 version {LANDLOCK_WITH_SOCKETS} or later (Linux 6.12)"
            );
            return Finding::ok(name, found);
        }
        (Some(reason), _) => reason.trim_start_matches("Landlock: ").to_owned(),
        (None, Some(version)) => format!("version {version} isn't used"),
        (None, None) => "not supported by this kernel".to_owned(),
    };
    let consequence =
        if has_mounts { "only mounts protect files" } else { "files are only partly protected" };
    let fix = "use Linux 5.19 or later, with the kernel parameter lsm=landlock,… before \
               the other modules; in a container, use a seccomp profile that allows \
               landlock_create_ruleset";
    Finding::warning(name, format!("{problem}, so {consequence}"), fix)
}

/// Reports the filter of system calls. `missing_reason` is the reason for its absence.
fn filter(missing_reason: Option<&str>) -> Finding {
    let name = "filter of system calls";
    match missing_reason {
        None => Finding::ok(name, "enforced"),
        Some(reason) => {
            let fix = "use a kernel with CONFIG_SECCOMP_FILTER; in a container, use a profile that \
                       allows seccomp and prctl";
            Finding::warning(name, format!("missing: {reason}"), fix)
        }
    }
}

/// Reports whether the kernel limits the number of processes in a sandbox.
fn processes() -> Finding {
    let name = "number of processes";
    if machine::bounds_namespaces() {
        return Finding::ok(name, "limited by the kernel, also for root");
    }
    Finding::ok(
        name,
        "limited by the kernel for users, and by Toolhold for root; Linux 6.14 also limits root",
    )
}
