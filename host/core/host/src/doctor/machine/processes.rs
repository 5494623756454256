//! `toolhold doctor`: checks which parts of the process sandbox this kernel supports, by entering a
//! sandbox.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_config::{Config, SandboxMode};
use toolhold_contract::CancellationToken;
use toolhold_engine::own_helper;
use toolhold_policy::OwnTable;
use toolhold_system::confine::{Limits, Sandbox};
use toolhold_system::files::{GrantError, Grants};
use toolhold_system::machine;
use toolhold_system::process::{Child, Command, Places, RememberedPlaces, StartError};

use crate::doctor::machine::Finding;

/// Time for the harmless program.
const TIME: Duration = Duration::from_secs(20);

/// The oldest kernel with everything that the sandbox needs. It counts the processes of each user
/// namespace separately.
const OLDEST: (u32, u32) = (5, 14);

/// The first version of Landlock that is used in a sandbox with its own mounts.
const MOVES: u32 = 2;

/// The first version of Landlock that keeps processes from sockets without a path.
const SCOPES: u32 = 6;

/// The reason why a harmless program can't run in the sandbox.
#[derive(Debug, thiserror::Error)]
enum TrialError {
    #[error(transparent)]
    Grants(#[from] GrantError),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Checks every part of the sandbox.
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
            let missing = find_missing(&helper, Sandbox::BestEffort)
                .unwrap_or_else(|error| vec![error.to_string()]);
            (Err(error), missing)
        }
    };

    let failed = state.as_ref().err().map(ToString::to_string);
    // A part that is missing because of another part isn't reported twice.
    let namespaces = match (&failed, find_reason(&missing, "namespaces")) {
        (Some(reason), None) if missing.is_empty() || is_view(reason) => Some(reason.as_str()),
        (_, found) => found,
    };
    let filter_reason = find_reason(&missing, "the filter")
        .or(find_reason(&missing, "system calls"))
        .or(find_reason(&missing, "seccomp"));
    vec![
        check_sandbox(&state, table),
        self::namespaces(namespaces),
        landlock(find_reason(&missing, "Landlock"), namespaces.is_none()),
        filter(filter_reason),
        processes(),
    ]
}

/// Finds the reason why a part of the sandbox is missing.
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

/// Checks whether the reason is a step that makes the view of files.
fn is_view(reason: &str) -> bool {
    [
        "mounting",
        "cloning",
        "protecting",
        "making",
        "taking the mounts",
        "hiding",
        "entering",
        "leaving",
    ]
    .iter()
    .any(|step| reason.starts_with(step))
}

/// Runs a harmless program in the sandbox, and returns the missing parts of the sandbox.
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
        output: None,
        shell: None,
    };
    let mut child =
        Child::start(&places, &command, 1024, Instant::now() + TIME, &CancellationToken::new())?;
    child.wait_for_end(&mut |_, _| {});
    Ok(child.missing().to_vec())
}

fn check_sandbox(state: &Result<Duration, TrialError>, table: &OwnTable) -> Finding {
    let name = "sandbox";
    match state {
        Ok(time) => {
            let parts = "the view of files, writes, the network, processes and system calls";
            Finding::ok(name, format!("strict: {parts}, in {} ms", time.as_millis()))
        }
        Err(reason) => {
            let fix = format!(
                "fix the findings below, or accept a weaker sandbox: `sandbox = \"best-effort\"` in {table}"
            );
            Finding::warning(
                name,
                format!("not all parts are available, so no command starts: {reason}"),
                fix,
            )
        }
    }
}

/// Reports the namespaces of users, mounts, processes and the network, and the file view that they
/// make possible.
fn namespaces(missing: Option<&str>) -> Finding {
    let name = "namespaces";
    let known = machine::namespaces();
    let Some(reason) = missing else {
        return Finding::ok(
            name,
            "own users, mounts, processes and network; commands see only the granted directories",
        );
    };
    let absent: Vec<&str> = ["user", "mnt", "pid", "net"]
        .into_iter()
        .filter(|kind| !known.kinds.contains(kind))
        .collect();
    let release = machine::release().unwrap_or_default();
    let container = "in a container: `docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                     --security-opt systempaths=unconfined …`; elsewhere, a service's RestrictNamespaces=no";
    let settings = format!("sysctl {}", known.forbidden_by.join(" "));
    let fix = if !absent.is_empty() {
        "a kernel with CONFIG_NAMESPACES and CONFIG_USER_NS".to_owned()
    } else if machine::version(&release).is_some_and(|version| version < OLDEST) {
        format!("Linux {}.{} or later; this is {release}", OLDEST.0, OLDEST.1)
    } else {
        match (known.forbidden_by.is_empty(), known.is_confined) {
            (true, _) => container.to_owned(),
            (false, false) => settings,
            (false, true) => format!("{settings}; {container}"),
        }
    };
    let found = format!(
        "missing ({reason}): commands see the names of all files and all processes of your user, and the network is blocked only in part"
    );
    Finding::warning(name, found, fix)
}

/// Reports Landlock. `view` says whether mounts protect files without Landlock.
fn landlock(missing: Option<&str>, view: bool) -> Finding {
    let name = "Landlock";
    match (missing, machine::landlock_version()) {
        (None, Some(version)) if version >= SCOPES => {
            Finding::ok(name, format!("version {version}"))
        }
        (None, Some(version)) if version >= MOVES => Finding::ok(
            name,
            format!(
                "version {version}; with the network, commands can create Unix sockets only from version {SCOPES} on (Linux 6.12)"
            ),
        ),
        (reason, version) => {
            let found = match (reason, version) {
                (Some(reason), _) => reason.trim_start_matches("Landlock: ").to_owned(),
                (None, Some(version)) => format!("version {version} isn't used"),
                (None, None) => "not supported by this kernel".to_owned(),
            };
            let rest =
                if view { "only mounts protect files" } else { "files are protected only in part" };
            let fix = "Linux 5.19 or later, with the kernel parameter lsm=landlock,…, before the modules that are there; in a container, a \
                       seccomp profile that allows landlock_create_ruleset";
            Finding::warning(name, format!("{found}, so {rest}"), fix)
        }
    }
}

fn filter(missing: Option<&str>) -> Finding {
    let name = "filter of system calls";
    match missing {
        None => Finding::ok(name, "enforced"),
        Some(reason) => {
            let fix = "a kernel with CONFIG_SECCOMP_FILTER; in a container, a profile that allows seccomp and prctl";
            Finding::warning(name, format!("missing: {reason}"), fix)
        }
    }
}

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
