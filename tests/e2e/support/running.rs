use std::future::Future;
use std::io::Write;
use std::process::{Command, Output};
use std::time::Duration;

use tokio::runtime::Builder;

use super::process::{output_under, peak_memory_mib, refusing};

/// A test that takes longer hangs. Far more than any test needs, since the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs a test on a reactor of its own, and fails one that hangs.
#[track_caller]
pub(crate) fn run(test: impl Future<Output = ()> + Send + 'static) {
    let reactor = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a reactor starts");
    // On a worker: a test that blocks its thread would not see that its time is up.
    let test = reactor.spawn(test);
    let ended = reactor.block_on(async { tokio::time::timeout(PATIENCE, test).await });
    reactor.shutdown_background();
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        Err(_) => panic!("the test hangs: it took longer than {PATIENCE:?}"),
    }
}

/// Memory that a process may use during an attack: 60 MiB for a host and the tests around it, 64
/// for a guest with its largest memory, and about as much for copies of it.
pub(crate) const ATTACK_MIB: u64 = 192;

/// Marks this program as the process of one test.
const ALONE: &str = "TOOLHOLD_TEST_ALONE";

/// The same in its own process, which fails if it has ever used more than `most_mib`: so every
/// attack is measured by itself.
#[track_caller]
pub(crate) fn run_alone(most_mib: u64, test: impl Future<Output = ()> + Send + 'static) {
    if std::env::var_os(ALONE).is_some() {
        run(test);
        let peak = peak_memory_mib();
        assert!(peak < most_mib, "the process grew to {peak} MiB; the limit is {most_mib}");
    } else {
        start_alone(|alone| alone.output().expect("this program starts"));
    }
}

/// Runs a test in a process in which system calls fail with `EPERM`.
#[track_caller]
pub(crate) fn run_without(calls: &[i64], test: impl Future<Output = ()> + Send + 'static) {
    if std::env::var_os(ALONE).is_some() {
        run(test);
    } else {
        start_alone(|alone| output_under(&[refusing(calls)], alone));
    }
}

/// Starts the process of this test.
#[track_caller]
fn start_alone(output: impl FnOnce(&mut Command) -> Output) {
    let name = std::thread::current().name().expect("a test has a name").to_owned();
    let mut alone = Command::new(std::env::current_exe().expect("this program is there"));
    let ended = output(alone.args([&name, "--exact", "--nocapture"]).env(ALONE, "1"));
    let [stdout, stderr] =
        [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(
        ended.status.success() && stdout.contains("1 passed"),
        "in a process of its own, {}:\n{stdout}\n{stderr}",
        ended.status
    );
    for not_tried in stdout.lines().filter(|line| line.starts_with("NOT TRIED: ")) {
        let _ = std::io::stdout().write_all(format!("{not_tried}\n").as_bytes());
    }
}
