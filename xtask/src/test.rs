//! `cargo xtask test`: everything that has to hold, the cheap first. It ends with one line:
//! `N passed, N failed`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::process::{Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cargo::{self, WASM};
use crate::{Done, clients, dist, host, machine, passed_on, step, tidy};

pub(crate) fn command(arguments: &[OsString]) -> Done {
    let filter = passed_on(arguments);
    run(if filter.is_empty() { ALL } else { &[BUILD, CLIENTS, TESTS] }, filter, Tally::default())
}

/// `cargo xtask soak`: whole, what `cargo xtask test` tries a small part of.
pub(crate) fn soak(arguments: &[OsString]) -> Done {
    let filter = passed_on(arguments);
    let filter = if filter.is_empty() { &["soak".into()] } else { filter };
    run(
        &[CLIENTS, TESTS_OF_THE_PLUGINS, BUILD, TESTS],
        filter,
        Tally { soak: true, ..Tally::default() },
    )
}

fn run(steps: &[Step], filter: &[OsString], mut tally: Tally) -> Done {
    machine::check()?;
    // What waits for the network does so while others compute.
    tally.clients = Some(std::thread::spawn(clients::provide));
    let failed = steps.iter().find(|step| !step.run(&mut tally, filter));
    tally.times.iter().for_each(|(step, time)| eprintln!("{:>7.1} s  {step}", time.as_secs_f64()));
    let missing = tally.sum_up_not_tried(std::env::var_os("CI").is_some_and(|set| !set.is_empty()));
    // On stdout and last, where the next program looks for them.
    let failed = failed.map(|step| step.name).or(missing.then_some("what was not tried"));
    if let Some(step) = failed {
        println!("failed: {step}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if failed.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What CI may lack: what a fresh machine lacks, and nothing for which a test could be done without
/// it.
const CI_MAY_LACK: &[&str] = &["aarch64-linux-gnu-gcc", "x86_64-linux-gnu-gcc"];

/// One check. The next one runs only if it held.
struct Step {
    name: &'static str,
    check: fn(&mut Tally, &[OsString]) -> Result<(), String>,
}

const BUILD: Step = Step { name: "build", check: |_, _| host::build().map(drop) };

/// Before the tests that take them. Why some can't be had is said at once and at the end.
const CLIENTS: Step = Step {
    name: "clients",
    check: |tally, _| {
        let provided = tally
            .clients
            .take()
            .and_then(|clients| clients.join().ok())
            .ok_or("fetching clients broke down")?;
        for (clients, why) in provided {
            eprintln!("{clients}: {why}");
            tally.not_tried.entry(clients).or_default().insert(why);
        }
        Ok(())
    },
};

const TESTS: Step = Step { name: "tests", check: tests };

const TESTS_OF_THE_PLUGINS: Step = Step {
    name: "tests of the plugins",
    check: |tally, filter| {
        tally.run(
            "cargo test",
            cargo::guests("test").args(["--workspace", "--no-fail-fast"]).args(filter),
        )
    },
};

const ALL: &[Step] = &[
    Step { name: "format", check: |_, _| format() },
    Step { name: "tidy", check: |_, _| tidy::check() },
    Step { name: "locks", check: |_, _| locks() },
    Step { name: "clippy of the plugins", check: |_, _| clippy_of_the_plugins() },
    CLIENTS,
    TESTS_OF_THE_PLUGINS,
    Step { name: "examples", check: |tally, _| examples(tally) },
    BUILD,
    Step { name: "what is handed out", check: |tally, _| handed_out(tally) },
    Step { name: "documentation", check: |_, _| documentation() },
    TESTS,
];

impl Step {
    /// Whether it held. A step that fails without a failed test counts as one.
    fn run(&self, tally: &mut Tally, arguments: &[OsString]) -> bool {
        step::headline(self.name);
        let (failed_before, started) = (tally.failed, Instant::now());
        let result = (self.check)(tally, arguments);
        tally.times.push((self.name, started.elapsed()));
        if let Err(message) = &result {
            eprintln!("error: {message}");
            if tally.failed == failed_before {
                tally.failed += 1;
            }
        }
        result.is_ok()
    }
}

fn format() -> Result<(), String> {
    step::run("cargo fmt", cargo::host("fmt").args(["--all", "--check"]))?;
    step::run("cargo fmt of the plugins", cargo::guests("fmt").args(["--all", "--check"]))
}

/// The versions of all dependencies are fixed: what is handed out, and who installs from sources,
/// takes these and no other.
fn locks() -> Result<(), String> {
    for folder in [cargo::root().to_owned(), cargo::plugins()].into_iter().chain(cargo::examples()?)
    {
        step::run(
            "cargo update",
            cargo::cargo(&folder, "update").args(["--workspace", "--locked", "--quiet"]),
        )?;
    }
    Ok(())
}

/// Both as the tests see them and as they ship: code for wasm only is invisible to a native build.
fn clippy_of_the_plugins() -> Result<(), String> {
    let deny = ["--", "-D", "warnings"];
    step::run("clippy", cargo::guests("clippy").args(["--workspace", "--all-targets"]).args(deny))?;
    step::run(
        "clippy",
        cargo::guests("clippy").args(["--workspace", "--release", "--target", WASM]).args(deny),
    )
}

/// The example plugins, as their readers build them: each is a project of its own.
fn examples(tally: &mut Tally) -> Result<(), String> {
    for folder in cargo::examples()? {
        let name = folder.display().to_string();
        let example = |subcommand: &str| {
            let mut command = cargo::cargo(&folder, subcommand);
            // They share what the plugins have compiled already.
            command.arg("--target-dir").arg(cargo::plugins().join("target"));
            command
        };
        step::run(&name, cargo::cargo(&folder, "fmt").arg("--check"))?;
        step::run(&name, example("clippy").args(["--all-targets", "--", "-D", "warnings"]))?;
        tally.run(&name, &mut example("test"))?;
        step::run(&name, example("build").args(["--release", "--target", WASM]))?;
    }
    Ok(())
}

/// The host as `cargo xtask dist` builds it, up to where machine code would be made: clippy goes
/// through all code for that target, and C is compiled. What is left to go wrong there is the
/// linker's.
fn handed_out(tally: &mut Tally) -> Result<(), String> {
    let target = dist::target();
    machine::provide(&target)?;
    let paths = dist::Paths::of_this_machine(&target)?;
    let mut clippy = cargo::host("clippy");
    dist::with_c_compiler(&mut clippy, &target, "cc", &paths);
    step::run(
        "clippy",
        clippy.args(["--workspace", "--all-targets", "--target", &target, "--", "-D", "warnings"]),
    )?;
    paths.are_absent_from_c_of(&target)?;
    paths.are_those_of_sources_in(&cargo::target().join("debug/berth"))?;
    other_machine(tally, &paths)
}

/// The same for the other kind of machine, where there is a C compiler for it.
fn other_machine(tally: &mut Tally, paths: &dist::Paths) -> Result<(), String> {
    let other = if std::env::consts::ARCH == "x86_64" { "aarch64" } else { "x86_64" };
    let (target, compiler) =
        (format!("{other}-unknown-linux-musl"), format!("{other}-linux-gnu-gcc"));
    if Command::new(&compiler).arg("--version").output().is_err() {
        tally.not_tried.entry(compiler).or_default().insert(format!("cargo check for {target}"));
        return Ok(());
    }
    machine::provide(&target)?;
    let mut check = cargo::host("check");
    dist::with_c_compiler(&mut check, &target, &compiler, paths);
    step::run("cargo check", check.args(["--package", "berth-cli", "--target", &target]))
}

fn tests(tally: &mut Tally, filter: &[OsString]) -> Result<(), String> {
    // The library's examples are run by tests. With a filter, `cargo test` leaves them as they were
    // built before.
    step::run("cargo build", cargo::host("build").args(["--workspace", "--examples"]))?;
    tally
        .run("cargo test", cargo::host("test").args(["--workspace", "--no-fail-fast"]).args(filter))
}

/// The library's documentation: every link in it leads somewhere.
fn documentation() -> Result<(), String> {
    // All of them, for the target that clippy has looked at: another selection would have every
    // dependency checked once more.
    let target = dist::target();
    let mut command = cargo::host("doc");
    dist::with_c_compiler(&mut command, &target, "cc", &dist::Paths::of_this_machine(&target)?);
    command.env("RUSTDOCFLAGS", "-D warnings").args([
        "--workspace",
        "--lib",
        "--no-deps",
        "--target",
        &target,
    ]);
    step::run("cargo doc", &mut command)
}

/// What the test programs have reported.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// What this machine lacks, and for each the tests that leave something out for that, or what
    /// else became of it.
    not_tried: BTreeMap<String, BTreeSet<String>>,
    /// Which clients can't be had, and why, once that is known.
    clients: Option<JoinHandle<Vec<(String, String)>>>,
    /// Whether tests are to try all that they know, however long that takes.
    soak: bool,
    /// How long each step took.
    times: Vec<(&'static str, Duration)>,
}

impl Tally {
    /// Runs test programs, passes on what they print, and counts.
    fn run(&mut self, what: &str, command: &mut Command) -> Result<(), String> {
        // A thread that waits, for an end of time or for a server, leaves its core to another test.
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            command.env("RUST_TEST_THREADS", (2 * cores).to_string());
        }
        if self.soak {
            command.env("BERTH_SOAK", "1");
        }
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| step::cannot_start(command, &error))?;
        let printed = child.stdout.take().map(|output| self.follow(BufReader::new(output)));
        let status = child.wait().map_err(|error| format!("{what} got lost: {error}"))?;
        if let Some(Err(error)) = printed {
            return Err(format!("what {what} printed can't be read: {error}"));
        }
        if status.success() { Ok(()) } else { Err(format!("{what} failed ({status})")) }
    }

    fn follow(&mut self, mut output: impl BufRead) -> std::io::Result<()> {
        let mut stdout = std::io::stdout().lock();
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            stdout.write_all(&line)?;
            self.count(&String::from_utf8_lossy(&line));
            line.clear();
        }
        stdout.flush()
    }

    /// Says what was not tried. In CI, that is a failure for each thing that is not known to be
    /// missing there. Returns whether there is one.
    fn sum_up_not_tried(&mut self, ci: bool) -> bool {
        let mut failed = false;
        for (needed, tests) in &self.not_tried {
            let unknown = ci && !CI_MAY_LACK.contains(&needed.as_str());
            let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
            eprintln!(
                "{}NOT TRIED for want of {needed}: {}",
                if unknown { "error: " } else { "" },
                tests.join(", ")
            );
            self.failed += u64::from(unknown);
            failed |= unknown;
        }
        failed
    }

    /// Adds a line like `test result: ok. 3 passed; 0 failed; …`, or what `tests/not_tried.rs`
    /// writes; every other line says nothing.
    fn count(&mut self, line: &str) {
        if let Some((test, needed)) =
            line.trim_end().strip_prefix("NOT TRIED: ").and_then(|rest| rest.split_once(": needs "))
        {
            self.not_tried.entry(needed.to_owned()).or_default().insert(test.to_owned());
        }
        let Some((_, counts)) =
            line.trim_end().strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            match count.split_once(' ').map(|(number, what)| (number.parse::<u64>(), what)) {
                Some((Ok(number), "passed")) => self.passed += number,
                Some((Ok(number), "failed")) => self.failed += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Step, Tally};

    #[test]
    fn results_are_summed_up() {
        let mut tally = Tally::default();
        let printed = "running 3 tests\ntest a ... ok\n\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.00s\n\
            9 passed, 9 failed\n";
        for line in printed.lines() {
            tally.count(line);
        }
        assert_eq!((tally.passed, tally.failed), (5, 1));
    }

    #[test]
    fn what_was_not_tried_fails_in_ci_once_for_each_thing_that_is_missing() {
        let mut tally = Tally::default();
        for line in [
            "NOT TRIED: a::b: needs make\n",
            "NOT TRIED: a::c: needs make\n",
            "NOT TRIED: a::b: needs clients/node\n",
        ] {
            tally.count(line);
        }
        assert_eq!(tally.not_tried["make"].iter().collect::<Vec<_>>(), ["a::b", "a::c"]);
        assert!(!tally.sum_up_not_tried(false));
        assert_eq!(tally.failed, 0);
        assert!(tally.sum_up_not_tried(true));
        assert_eq!(tally.failed, 2);
    }

    #[test]
    fn a_step_that_breaks_down_counts_as_a_failure_once() {
        let mut tally = Tally::default();
        let breaks_down = Step { name: "breaks down", check: |_, _| Err("for a test".to_owned()) };
        assert!(!breaks_down.run(&mut tally, &[]));
        assert_eq!((tally.passed, tally.failed), (0, 1));

        let has_failed_tests = Step {
            name: "has failed tests",
            check: |tally, _| {
                tally.count("test result: FAILED. 1 passed; 2 failed; 0 ignored");
                Err("for a test".to_owned())
            },
        };
        assert!(!has_failed_tests.run(&mut tally, &[]));
        assert_eq!((tally.passed, tally.failed), (1, 3));
    }
}
