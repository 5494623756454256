//! Attacks with the help of somebody outside who swaps links and folders while the host decides.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use berth_host::Answer;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::support::{Scene, attacks};

/// How often an attack tries.
const TIMES: u64 = 10_000;

/// What stands in what is granted.
const PUBLIC: &str = "public";

/// Time enough for so many tries on a busy machine.
const TIME: [&str; 3] = ["tools.call=40", "tools.limits.cpu_secs=40", "tools.limits.written_mib=64"];

/// Exchanges two names again and again, until it is dropped.
struct Swapper {
    end: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    fn start(a: PathBuf, b: PathBuf) -> Self {
        let (end, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, counted) = (Arc::clone(&end), Arc::clone(&swaps));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).expect("names are exchanged");
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        Self { end, swaps, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the swapper swaps");
        }
    }
}

/// Beside what is granted: a link to the secret, a link to its folder, and their innocent doubles.
fn with_doubles(root: &Path) {
    let granted = root.join("granted");
    fs::create_dir_all(granted.join("folder")).expect("folders are made");
    for file in ["file", "folder/secret.txt"] {
        fs::write(granted.join(file), PUBLIC).expect("a file is written");
    }
    for (target, link) in [("../outside/secret.txt", "link"), ("../outside", "link-folder")] {
        std::os::unix::fs::symlink(target, granted.join(link)).expect("a link is made");
    }
}

/// Runs an attack on the file `target` while `a` and `b` are exchanged.
async fn race(attack: &str, target: &str, a: &str, b: &str) {
    let scene = Scene::with(&TIME, with_doubles).await;
    let swapper = Swapper::start(scene.granted.join(a), scene.granted.join(b));
    let mut had = 0;
    // On a busy machine the swapper may have slept through a round.
    while had == 0 || swapper.swaps.load(Ordering::Relaxed) < 100 {
        had += successes(&scene.attack_beside_others(attack, arguments(&scene.granted.join(target))).await);
    }
}

fn arguments(path: &Path) -> Value {
    json!({ "path": path, "text": PUBLIC, "count": TIMES })
}

/// How often an attack got what it was allowed. It has to have got nothing else.
fn successes(answer: &Answer) -> u64 {
    let failure = answer.outcome.as_ref().expect_err("nothing else is found");
    let (_, count) = failure.message.rsplit_once("expected: ").unwrap_or_else(|| panic!("it tells how it went: {}", failure.message));
    count.trim_end_matches(')').parse().expect("a number")
}

attacks! {
    async fn race_reads() {
        race("race_reads", "file", "file", "link").await;
        race("race_reads", "folder/secret.txt", "folder", "link-folder").await;
    }

    async fn race_searches() {
        race("race_searches", "folder/secret.txt", "folder", "link-folder").await;
        race("race_searches", "folder", "folder", "link-folder").await;
    }

    async fn race_writes() {
        race("race_writes", "file", "file", "link").await;
        race("race_writes", "folder/new.txt", "folder", "link-folder").await;
    }
}
