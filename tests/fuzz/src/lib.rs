//! The loop of the fuzz tests. Each crate that reads untrusted bytes has a test that handles one
//! input; the loop makes inputs and runs the test in a process of its own, which it watches.
//!
//! An input is an entry of the corpus (`tests/fuzz/corpus`), a mutated entry, or one that the
//! target makes of random bytes with `arbitrary`. Input N of a seed is always the same. So the loop
//! makes the input again that ended the process, whatever ended it: a panic in any thread, a stack
//! overflow, too much memory, too much time.

mod input;
mod json;
mod mutate;
mod random;
mod schema;
mod watch;

pub use arbitrary::{Result, Unstructured};
pub use json::{json, json_text};
pub use schema::{NAMES, schema};

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use input::Inputs;
use watch::Progress;

/// Most address space of the process that handles inputs. An input has at most 64 KiB.
const MEMORY: u64 = 2 << 30;

/// Most processor time for one input, in a program that isn't optimised.
const MOST: Duration = Duration::from_secs(1);

/// How long `cargo xtask soak` goes on.
const SOAK: Duration = Duration::from_secs(600);

/// Names a file with the one input to handle, in this process.
const INPUT: &str = "TOOLHOLD_FUZZ_INPUT";

/// The number of seconds, in place of the usual ones.
const SECONDS: &str = "TOOLHOLD_FUZZ_SECS";

/// Something that reads untrusted bytes.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The name of its folder in the corpus.
    pub name: &'a str,
    /// The path of the test, as the test program names it.
    pub test: &'a str,
    /// Pieces of inputs that mean something.
    pub tokens: &'a [&'a str],
    /// Makes an input of random bytes.
    pub generate: fn(&mut Unstructured<'_>) -> Result<Vec<u8>>,
    /// The bytes of an entry of the corpus, which may be written in another form.
    pub read: fn(Vec<u8>) -> Vec<u8>,
    /// The number of inputs in an ordinary run, which takes about a second.
    pub cases: u64,
}

impl Target<'_> {
    /// Handles inputs with `check`, which panics if one does harm.
    ///
    /// # Panics
    ///
    /// If one did, with the file that it is in.
    pub fn run(&self, check: impl Fn(&[u8])) {
        if let Some(path) = std::env::var_os(INPUT) {
            let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            return check(&(self.read)(input));
        }
        let inputs = Inputs::new(self);
        match Progress::from_environment() {
            Some(progress) => self.handle(&inputs, &progress, check),
            None => watch::run(self, &inputs),
        }
    }

    /// Handles inputs in this process, which ends at the first panic in any thread.
    fn handle(&self, inputs: &Inputs<'_>, progress: &Progress, check: impl Fn(&[u8])) {
        let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
        setrlimit(Resource::As, limit).expect("a limit may be lowered");
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            std::process::abort();
        }));
        let started = Instant::now();
        let (cases, time) = match seconds() {
            Some(time) => (u64::MAX, time),
            None => (self.cases, Duration::MAX),
        };
        for case in (0..cases).take_while(|_| started.elapsed() < time) {
            let input = inputs.get(progress.seed, case);
            progress.begin(case);
            let before = processor_time();
            check(&input);
            let took = processor_time() - before;
            assert!(took < MOST, "it took {} ms of processor time", took.as_millis());
        }
    }
}

/// How long to go on. `None`: a number of cases instead.
fn seconds() -> Option<Duration> {
    let own = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok());
    let soak = std::env::var_os("TOOLHOLD_SOAK").map(|_| SOAK);
    own.map(Duration::from_secs).or(soak)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The folder of this crate.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
