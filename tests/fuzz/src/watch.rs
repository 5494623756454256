//! Runs a test in another process, watches it, and finds the input that ended it.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::Target;
use crate::input::Inputs;

/// The longest time for one input, also on a machine that is busy: it waits for something, or
/// computes without end.
const HANG: Duration = Duration::from_secs(120);

/// Most bytes that are shown of what the process said last.
const MAX_SAID: usize = 8 << 10;

/// Names the file with the number of the input, in the process that handles them.
const PROGRESS: &str = "TOOLHOLD_FUZZ_PROGRESS";

/// Draws other inputs, or the same ones again.
const SEED: &str = "TOOLHOLD_SEED";

/// The number of the input that is being handled, in a file that outlives the process.
pub(crate) struct Progress {
    file: File,
    pub(crate) seed: u64,
}

impl Progress {
    /// `None`: this process doesn't handle inputs itself.
    pub(crate) fn from_environment() -> Option<Self> {
        let path = std::env::var_os(PROGRESS)?;
        let file = File::options().write(true).open(path).expect("it was made for this process");
        Some(Self { file, seed: seed()? })
    }

    pub(crate) fn begin(&self, case: u64) {
        self.file.write_all_at(&case.to_le_bytes(), 0).expect("the number is written");
    }
}

fn seed() -> Option<u64> {
    std::env::var(SEED).ok()?.parse().ok()
}

/// Runs the test in another process, until that ends.
///
/// # Panics
///
/// If an input did harm.
pub(crate) fn run(target: &Target<'_>, inputs: &Inputs<'_>) {
    // A soak draws new inputs each time.
    let drawn = if crate::seconds().is_some() { u64::from(std::process::id()) << 32 } else { 1 };
    let seed = seed().unwrap_or(drawn);
    let exe = std::env::current_exe().expect("this program has a path");
    let folder = exe.ancestors().nth(3).expect("it is in the target folder").join("fuzz");
    fs::create_dir_all(&folder).expect("a folder is made");
    let place = |name: &str| -> PathBuf { folder.join(format!("{}-{name}", target.name)) };

    let progress = place(&format!("{seed}-progress"));
    fs::write(&progress, []).expect("it is written");
    let case = || fs::read(&progress).ok()?.try_into().ok().map(u64::from_le_bytes);
    let mut child = Command::new(&exe)
        .args(["--exact", target.test, "--nocapture"])
        .env(PROGRESS, &progress)
        .env(SEED, seed.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let mut stderr = child.stderr.take().expect("it is piped");
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stderr.read(&mut buffer) {
            said.extend_from_slice(&buffer[..read]);
            let surplus = said.len().saturating_sub(MAX_SAID);
            said.drain(..surplus);
        }
        let _ = ended.send(said);
    });
    let (started, mut last) = (Instant::now(), None);
    let said = loop {
        match end.recv_timeout(HANG) {
            Err(RecvTimeoutError::Timeout) if case() == last => {
                let _ = child.kill();
                break format!("it takes more than {} s", HANG.as_secs());
            }
            Err(RecvTimeoutError::Timeout) => last = case(),
            said => break String::from_utf8_lossy(&said.unwrap_or_default()).into_owned(),
        }
    };
    let status = child.wait().expect("it has ended");
    let last = case();
    let _ = fs::remove_file(&progress);
    let Some(case) = last else {
        panic!("{} handled no input ({status}): {said}", target.test);
    };
    if status.success() {
        let (cases, secs) = (case + 1, started.elapsed().as_secs_f64());
        let each = cases as f64 / secs;
        println!("{}: {cases} inputs of seed {seed} in {secs:.1} s: {each:.0}/s", target.name);
        return;
    }
    let file = place(&format!("{seed}-{case}"));
    fs::write(&file, inputs.get(seed, case)).expect("the input is written");
    panic!(
        "{status} at input {case} of seed {seed}: {said}\nThe input is in {file:?}. To handle it alone: \
         {}={file:?} cargo test … -- --exact {}",
        crate::INPUT,
        target.test
    );
}
