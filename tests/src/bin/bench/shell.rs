//! The cost of a command in its sandbox, against the same command without one.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Setting;
use crate::measure::{Compared, find_program, in_turn, median, output_of};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};
use crate::timed::TimedProgram;

const ROUNDS: usize = 9;
const CALLS: usize = 15;

/// The shortest time that an agent thinks: the processes of the last command are gone then, and the
/// next helper waits.
const REST: Duration = Duration::from_millis(30);

/// The settings of the default sandbox.
const STRICT: [&str; 2] = ["tools.shell.sandbox=strict", "tools.shell.network=deny"];

/// The variants: settings, the pause before each command, their meaning, and the target of the
/// ratio.
const ROWS: [(&str, Duration, &[&str], Target); 5] = [
    ("in the sandbox, after a rest of 30 ms", REST, &STRICT, Target::AtMost(2.0)),
    ("in the sandbox, one after the other without a rest", Duration::ZERO, &STRICT, Target::Lower),
    (
        "in the sandbox but for the network",
        REST,
        &["tools.shell.sandbox=strict", "tools.shell.network=allow"],
        Target::Lower,
    ),
    (
        "without the sandbox",
        REST,
        &["tools.shell.sandbox=off", "tools.shell.network=allow"],
        Target::Lower,
    ),
    (
        "in the sandbox, after 2,000 files were looked at for a glob",
        REST,
        &[
            "tools.shell.sandbox=strict",
            "tools.shell.network=deny",
            "tools.file.deny_read=[\"**/.env\"]",
        ],
        Target::Lower,
    ),
];

/// What bubblewrap gets, so that it builds the same: namespaces of users, processes, the network
/// and System V objects, and a view of the system's folders. The folder of work comes after them.
const BUBBLEWRAP: &str = "--unshare-user --unshare-pid --unshare-net --unshare-ipc \
    --die-with-parent --new-session --ro-bind /usr /usr --ro-bind-try /bin /bin \
    --ro-bind-try /sbin /sbin --ro-bind-try /lib /lib --ro-bind-try /lib64 /lib64 \
    --ro-bind-try /opt /opt --ro-bind /etc /etc --proc /proc --dev /dev --tmpfs /tmp";

const NO_BUBBLEWRAP: &str = "bwrap is not installed: apt-get install bubblewrap";

/// What Claude Code's sandbox runs, and the packages of Debian that have it.
const CLAUDE_CODE: [(&str, &str); 3] =
    [("bwrap", "bubblewrap"), ("socat", "socat"), ("rg", "ripgrep")];

/// The fetched Node, in the folder of what is fetched with it.
const NODE: &str = "node_modules/.bin/node";

const NO_CLAUDE_CODE: &str =
    "not fetched: `cargo xtask bench` does it where npm is installed and reaches its registry";

/// Commands with and without the saving of what they change, and the target of the ratio.
const SAVED: [(&str, &str, Target); 2] = [
    ("that changes nothing", "true", Target::AtMost(1.1)),
    ("that writes 100 files", "for n in {1..100}; do echo x > $n.txt; done", Target::Lower),
];

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = setting.scratch.join("shell");
    let work = home.join("work");
    make_files(&work, 2000)?;
    let mut rows: Vec<Row> = ROWS
        .iter()
        .map(|(what, rest, settings, target)| {
            let sandbox = sandbox(setting, &home, &work, settings)?;
            let bash = || bash(Command::new("bash"));
            let compared =
                in_turn(ROUNDS, || calls(&sandbox, "true", *rest), || directly(&bash, *rest))?;
            Ok(row(format!("bash, `true`, {what}, p50"), *target, compared, "bash -c true"))
        })
        .collect::<Result<_, String>>()?;
    let strict = sandbox(setting, &home, &work, &STRICT)?;
    rows.push(against_bubblewrap(&strict, &work)?);
    rows.push(against_claude_code(setting, &strict, &work)?);
    rows.extend(saving(setting)?);
    Ok(rows)
}

fn sandbox(
    setting: &Setting,
    home: &Path,
    work: &Path,
    settings: &[&str],
) -> Result<Sandbox, String> {
    let all = [&["tools.autonomy=full", "audit.keep=1"], settings].concat();
    Sandbox::with_builtins(&setting.repository, home, work, &all)
}

/// The same command in the sandbox that a user would build with bubblewrap.
fn against_bubblewrap(sandbox: &Sandbox, work: &Path) -> Result<Row, String> {
    let what = "bash, `true`, in the sandbox, after a rest of 30 ms, against bubblewrap, p50";
    let target = Target::AtMost(0.7);
    let Some(program) = find_program("bwrap") else {
        let why = NO_BUBBLEWRAP.to_owned();
        return Ok(Row::not_measured("shell", what, Unit::Ratio, target, why));
    };
    let bubblewrap = || {
        let mut command = Command::new(&program);
        command.args(BUBBLEWRAP.split_whitespace());
        command.arg("--bind").args([work, work]).arg("--chdir").args([work, Path::new("bash")]);
        bash(command)
    };
    let compared =
        in_turn(ROUNDS, || calls(sandbox, "true", REST), || directly(&bubblewrap, REST))?;
    Ok(row(what.to_owned(), target, compared, "bwrap … bash -c true"))
}

/// The same command in the sandbox of Claude Code: its library wraps each command, in a process of
/// Node that goes on.
fn against_claude_code(setting: &Setting, sandbox: &Sandbox, work: &Path) -> Result<Row, String> {
    let what =
        "bash, `true`, in the sandbox, after a rest of 30 ms, against Claude Code's sandbox, p50";
    let target = Target::Lower;
    let clients = setting.repository.join("target/clients/node");
    if let Some(why) = missing_for_claude_code(&clients) {
        return Ok(Row::not_measured("shell", what, Unit::Ratio, target, why));
    }
    let rest = REST.as_millis().to_string();
    let mut claude_code = TimedProgram::start(
        Command::new(clients.join(NODE))
            .arg(clients.join("sandbox.mjs"))
            .args(["true", &rest])
            .current_dir(work),
    )?;
    let compared = in_turn(
        ROUNDS,
        || calls(sandbox, "true", REST),
        || Ok(median(claude_code.one_by_one(CALLS)?)),
    )?;
    Ok(row(what.to_owned(), target, compared, "sandbox-runtime, wrapping and bash -c true,"))
}

/// The reason why Claude Code's sandbox can't run.
fn missing_for_claude_code(clients: &Path) -> Option<String> {
    if !clients.join("fetched").exists() || !clients.join(NODE).exists() {
        return Some(NO_CLAUDE_CODE.to_owned());
    }
    let (program, package) =
        CLAUDE_CODE.iter().find(|(program, _)| find_program(program).is_none())?;
    Some(format!("{program} is not installed: apt-get install {package}"))
}

fn bash(mut command: Command) -> Command {
    command.args(["-c", "true"]);
    command
}

/// The cost of saving what a command changes, in a large tree.
fn saving(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = setting.scratch.join("saving");
    let work = home.join("work");
    make_files(&work, 20_000)?;
    let sandbox = |name: &str, enabled: bool| {
        let saves = format!("tools.undo.enabled={enabled}");
        let settings = ["tools.autonomy=full", "audit.keep=1", &saves];
        Sandbox::with_builtins(&setting.repository, &home.join(name), &work, &settings)
    };
    let (saves, plain) = (sandbox("saves", true)?, sandbox("plain", false)?);
    let compare = |(what, command, target): &(&str, &str, Target)| {
        let compared =
            in_turn(ROUNDS, || calls(&saves, command, REST), || calls(&plain, command, REST))?;
        let what = format!("bash, a command {what} among 20,000, with undo, p50");
        Ok(row(what, *target, compared, "without undo"))
    };
    SAVED.iter().map(compare).collect()
}

fn row(what: String, target: Target, compared: Compared, rival_name: &str) -> Row {
    let Compared { ours, rival, ratios } = compared;
    let added = ours.saturating_sub(rival);
    Row {
        name: "shell",
        what,
        samples: ratios,
        unit: Unit::Ratio,
        target,
        ours: format!("{}, of which {} are added", show_time(ours), show_time(added)),
        rival: format!("{rival_name} {}", show_time(rival)),
    }
}

fn make_files(folder: &Path, count: usize) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("can't create {}: {error}", folder.display()))?;
    for number in 0..count {
        std::fs::write(folder.join(format!("{number}.txt")), "")
            .map_err(|error| format!("can't write to {}: {error}", folder.display()))?;
    }
    Ok(())
}

fn calls(sandbox: &Sandbox, command: &str, rest: Duration) -> Result<Duration, String> {
    sandbox.runtime().block_on(async {
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            std::thread::sleep(rest);
            let start = Instant::now();
            sandbox.call("bash", json!({ "command": command })).await?;
            times.push(start.elapsed());
        }
        Ok(median(times))
    })
}

/// Like an agent, it reads the output, which is empty.
fn directly(command: &dyn Fn() -> Command, rest: Duration) -> Result<Duration, String> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        std::thread::sleep(rest);
        let mut command = command();
        let start = Instant::now();
        output_of(&mut command)?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}
