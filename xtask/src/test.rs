//! `cargo xtask test`: runs every check and test, the quick ones first. The last line has the
//! counts: `N passed, N failed`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cargo::{self, WASM};
use crate::{CommandResult, clients, dist, forwarded, host, machine, step, tidy};

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    let filter = forwarded(arguments);
    let steps: &[Step] = if filter.is_empty() { ALL } else { &[BUILD, CLIENTS, TESTS] };
    run(steps, filter, Tally::default())
}

/// `cargo xtask soak`: runs in full the tests of which `cargo xtask test` runs a small part.
pub(crate) fn soak(arguments: &[OsString]) -> CommandResult {
    let filter = forwarded(arguments);
    let filter = if filter.is_empty() { &["soak".into()] } else { filter };
    run(
        &[CLIENTS, TESTS_OF_THE_PLUGINS, BUILD, TESTS],
        filter,
        Tally { soak: true, ..Tally::default() },
    )
}

fn run(steps: &[Step], filter: &[OsString], mut tally: Tally) -> CommandResult {
    machine::check()?;
    // Downloads run while other steps compute.
    let is_soak = tally.soak;
    tally.clients = Some(std::thread::spawn(move || clients::fetch_all(is_soak)));
    let failed_step = steps.iter().find(|step| !step.run(&mut tally, filter));
    tally.times.iter().for_each(|(step, time)| eprintln!("{:>7.1} s  {step}", time.as_secs_f64()));
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let has_missing = tally.report_not_tried(is_ci);
    let failed = match failed_step {
        Some(step) => Some(step.name),
        None if has_missing => Some("checks that were not tried"),
        None => None,
    };
    // Print these lines last and on stdout, because other programs look for them there.
    if let Some(step) = failed {
        println!("failed: {step}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if failed.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The things that CI may lack: programs (Harbor needs a newer Python than Debian 12 has) and a
/// model that a fresh machine doesn't have, and whose checks can't be done in another way; and
/// sandlock, which only the benches use.
const CI_MAY_LACK: &[&str] = &[
    "aarch64-linux-gnu-gcc",
    "x86_64-linux-gnu-gcc",
    "clients/harbor",
    "clients/sandlock",
    "TOOLHOLD_TEST_MODEL",
];

/// One check. The next step runs only if this one succeeds.
struct Step {
    name: &'static str,
    check: fn(&mut Tally, &[OsString]) -> Result<(), String>,
}

const BUILD: Step = Step { name: "build", check: |_, _| host::build().map(drop) };

/// Runs before the tests that use the clients. The reason for a missing client is printed here and
/// at the end.
const CLIENTS: Step = Step {
    name: "clients",
    check: |tally, _| {
        let provided = tally
            .clients
            .take()
            .and_then(|clients| clients.join().ok())
            .ok_or("the download of the clients panicked")?;
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
        )?;
        let mut grammars = cargo::grammars("test");
        grammars.args(["--lib", "--tests", "--no-fail-fast", "--target-dir"]);
        tally.run(
            "cargo test of the grammars",
            grammars.arg(cargo::plugins().join("target")).args(filter),
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
    Step { name: "release target", check: |tally, _| release_target(tally) },
    Step { name: "documentation", check: |_, _| documentation() },
    TESTS,
];

impl Step {
    /// Returns whether the step succeeded. A step that fails without a failed test counts as one
    /// failure.
    fn run(&self, tally: &mut Tally, arguments: &[OsString]) -> bool {
        step::headline(self.name);
        let failed_before = tally.failed;
        let started = Instant::now();
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
    step::run("cargo fmt of the plugins", cargo::guests("fmt").args(["--all", "--check"]))?;
    step::run("cargo fmt of the grammars", cargo::grammars("fmt").args(["--check"]))?;
    for folder in cargo::examples()?.into_iter().chain(cargo::samples()?) {
        let name = format!("cargo fmt of {}", folder.display());
        step::run(&name, cargo::cargo(&folder, "fmt").arg("--check"))?;
    }
    Ok(())
}

/// Checks that the lock files are up to date. Releases, and builds from the sources, use exactly
/// these versions.
fn locks() -> Result<(), String> {
    let own = [cargo::root().to_owned(), cargo::plugins(), cargo::plugins().join("grammars")];
    for folder in own.into_iter().chain(cargo::examples()?).chain(cargo::samples()?) {
        step::run(
            "cargo update",
            cargo::cargo(&folder, "update").args(["--workspace", "--locked", "--quiet"]),
        )?;
    }
    Ok(())
}

/// Checks the plugins for the tests' target and for wasm. Code for wasm only is not part of a
/// native build.
fn clippy_of_the_plugins() -> Result<(), String> {
    let deny = ["--", "-D", "warnings"];
    step::run("clippy", cargo::guests("clippy").args(["--workspace", "--all-targets"]).args(deny))?;
    let mut grammars = cargo::grammars("clippy");
    grammars.args(["--all-targets", "--target-dir"]).arg(cargo::plugins().join("target"));
    step::run("clippy of the grammars", grammars.args(deny))?;
    step::run(
        "clippy",
        cargo::guests("clippy").args(["--workspace", "--release", "--target", WASM]).args(deny),
    )
}

/// Builds the example plugins as their readers do: each is a project of its own. The samples are
/// only checked, since their end-to-end tests build and test them.
fn examples(tally: &mut Tally) -> Result<(), String> {
    let samples = cargo::samples()?;
    for folder in cargo::examples()?.iter().chain(&samples) {
        let name = folder.display().to_string();
        let mut clippy = example(folder, "clippy");
        step::run(&name, clippy.args(["--all-targets", "--", "-D", "warnings"]))?;
        if samples.contains(folder) {
            continue;
        }
        tally.run(&name, &mut example(folder, "test"))?;
        step::run(&name, example(folder, "build").args(["--release", "--target", WASM]))?;
    }
    Ok(())
}

/// Cargo for an example. It shares the build folder of the plugins, which has their dependencies
/// already.
fn example(folder: &Path, subcommand: &str) -> Command {
    let mut command = cargo::cargo(folder, subcommand);
    command.arg("--target-dir").arg(cargo::plugins().join("target"));
    command
}

/// Checks the host for the target of `cargo xtask dist`, short of generating machine code: clippy
/// checks all Rust code, and the C code is compiled. Only the linker isn't tried.
fn release_target(tally: &mut Tally) -> Result<(), String> {
    let target = dist::target();
    machine::ensure_target(&target)?;
    let paths = dist::Paths::of_this_machine(&target)?;
    let mut clippy = cargo::host("clippy");
    dist::with_c_compiler(&mut clippy, &target, "cc", &paths);
    step::run(
        "clippy",
        clippy.args(["--workspace", "--all-targets", "--target", &target, "--", "-D", "warnings"]),
    )?;
    paths.check_absent_from_c_code(&target)?;
    paths.check_only_sources_in(&cargo::target().join("debug/toolhold"))?;
    other_architecture(tally, &paths)
}

/// Checks the host for the other architecture, if there is a C compiler for it.
fn other_architecture(tally: &mut Tally, paths: &dist::Paths) -> Result<(), String> {
    let other = if std::env::consts::ARCH == "x86_64" { "aarch64" } else { "x86_64" };
    let target = format!("{other}-unknown-linux-musl");
    let compiler = format!("{other}-linux-gnu-gcc");
    if Command::new(&compiler).arg("--version").output().is_err() {
        tally.not_tried.entry(compiler).or_default().insert(format!("cargo check for {target}"));
        return Ok(());
    }
    machine::ensure_target(&target)?;
    let mut check = cargo::host("check");
    dist::with_c_compiler(&mut check, &target, &compiler, paths);
    step::run("cargo check", check.args(["--package", "toolhold-cli", "--target", &target]))
}

fn tests(tally: &mut Tally, filter: &[OsString]) -> Result<(), String> {
    // Tests run the library's examples. With a filter, `cargo test` doesn't rebuild them.
    step::run("cargo build", cargo::host("build").args(["--workspace", "--examples"]))?;
    tally
        .run("cargo test", cargo::host("test").args(["--workspace", "--no-fail-fast"]).args(filter))
}

/// Builds the library's documentation, and fails if a link in it has no target.
fn documentation() -> Result<(), String> {
    // Selects the same packages and target as clippy. Another selection would check every
    // dependency once more.
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

/// Counts of what the test programs have reported.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// The things that this machine lacks, and for each the tests or checks that didn't run because
    /// of it.
    not_tried: BTreeMap<String, BTreeSet<String>>,
    /// The download of the clients. It returns the clients that are missing, and why.
    clients: Option<JoinHandle<Vec<(String, String)>>>,
    /// Whether long tests run in full.
    soak: bool,
    /// Duration of each step.
    times: Vec<(&'static str, Duration)>,
}

impl Tally {
    /// Runs test programs, prints their output, and counts the results.
    fn run(&mut self, what: &str, command: &mut Command) -> Result<(), String> {
        // More threads than cores, because some tests only wait for a deadline or a server.
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            command.env("RUST_TEST_THREADS", (2 * cores).to_string());
        }
        if self.soak {
            command.env("TOOLHOLD_SOAK", "1");
        }
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| step::cannot_start(command, &error))?;
        let result = child.stdout.take().map(|output| self.forward(BufReader::new(output)));
        let status = child.wait().map_err(|error| format!("can't wait for {what}: {error}"))?;
        if let Some(Err(error)) = result {
            return Err(format!("can't read the output of {what}: {error}"));
        }
        if status.success() { Ok(()) } else { Err(format!("{what} failed ({status})")) }
    }

    fn forward(&mut self, mut output: impl BufRead) -> std::io::Result<()> {
        let mut stdout = std::io::stdout().lock();
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            stdout.write_all(&line)?;
            self.count(&String::from_utf8_lossy(&line));
            line.clear();
        }
        stdout.flush()
    }

    /// Prints what was not tried. In CI, each missing thing that isn't in `CI_MAY_LACK` is a
    /// failure. Returns whether there is such a failure.
    fn report_not_tried(&mut self, ci: bool) -> bool {
        let mut failed = false;
        for (needed, tests) in &self.not_tried {
            let unknown = ci && !CI_MAY_LACK.contains(&needed.as_str());
            let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
            eprintln!(
                "{}NOT TRIED because {needed} is missing: {}",
                if unknown { "error: " } else { "" },
                tests.join(", ")
            );
            self.failed += u64::from(unknown);
            failed |= unknown;
        }
        failed
    }

    /// Counts a line like `test result: ok. 3 passed; 0 failed; …`, or a line of
    /// `tests/not_tried.rs`. Other lines are ignored.
    fn count(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("NOT TRIED: ")
            && let Some((test, needed)) = rest.split_once(": needs ")
        {
            self.not_tried.entry(needed.to_owned()).or_default().insert(test.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let Some((_, counts)) = result.split_once(". ") else { return };
        for count in counts.split("; ") {
            let Some((number, outcome)) = count.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match outcome {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Step, Tally};

    #[test]
    fn test_results_are_added_up() {
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
    fn missing_requirement_is_one_failure_in_ci() {
        let mut tally = Tally::default();
        for line in [
            "NOT TRIED: a::b: needs make\n",
            "NOT TRIED: a::c: needs make\n",
            "NOT TRIED: a::b: needs clients/node\n",
        ] {
            tally.count(line);
        }
        assert_eq!(tally.not_tried["make"].iter().collect::<Vec<_>>(), ["a::b", "a::c"]);
        assert!(!tally.report_not_tried(false));
        assert_eq!(tally.failed, 0);
        assert!(tally.report_not_tried(true));
        assert_eq!(tally.failed, 2);
    }

    #[test]
    fn failed_step_without_failed_tests_counts_as_one_failure() {
        let mut tally = Tally::default();
        let failing = Step { name: "failing", check: |_, _| Err("for a test".to_owned()) };
        assert!(!failing.run(&mut tally, &[]));
        assert_eq!((tally.passed, tally.failed), (0, 1));

        let with_failed_tests = Step {
            name: "with failed tests",
            check: |tally, _| {
                tally.count("test result: FAILED. 1 passed; 2 failed; 0 ignored");
                Err("for a test".to_owned())
            },
        };
        assert!(!with_failed_tests.run(&mut tally, &[]));
        assert_eq!((tally.passed, tally.failed), (1, 3));
    }
}
