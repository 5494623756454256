//! Kills a process in the middle of its work. The tests of several crates share it.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts a test of this program once more, in a process of its own, with `variables`. Once it has
/// written `lines` lines of the form `WORD NUMBER`, and after `moment`, it is killed. Returns the
/// number of the last such line: what the process has acknowledged.
pub(crate) fn kill_after(
    test: &str,
    variables: &[(&str, &OsStr)],
    word: &str,
    lines: u64,
    moment: Duration,
) -> Option<u64> {
    let mut process = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
    let (mut acknowledged, mut seen, mut line) = (None, 0, String::new());
    let mut read = |seen: &mut u64| {
        line.clear();
        let is_open = output.read_line(&mut line).expect("its output is read") > 0;
        // The last line may be cut.
        let number = line.strip_prefix(word).filter(|rest| rest.ends_with('\n'));
        if let Some(number) = number.and_then(|number| number.trim().parse().ok()) {
            acknowledged = Some(number);
            *seen += 1;
        }
        is_open
    };
    while seen < lines && read(&mut seen) {}
    let waited = Instant::now();
    while waited.elapsed() < moment {
        std::hint::spin_loop();
    }
    process.kill().expect("it is killed");
    process.wait().expect("it ends");
    while read(&mut seen) {}
    acknowledged
}
