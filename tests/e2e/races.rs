//! Attacks with an outside helper that swaps links and folders while the host decides.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use toolhold_core::Answer;

use crate::support::{Scene, attacks};

/// Number of tries of an attack.
const TIMES: u64 = 10_000;

/// The content of the granted file.
const PUBLIC: &str = "public";

/// Enough time for all tries on a busy machine.
const TIME: [&str; 3] =
    ["tools.call=40", "tools.limits.cpu_secs=40", "tools.limits.written_mib=64"];

/// Swaps two names again and again until it is dropped.
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
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE)
                    .expect("names are exchanged");
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

/// A denied folder in the granted one, with the secret in it, and how it is denied.
const DENIED: (&str, &str) = ("denied", "tools.file.deny_read=[\"denied/**\"]");

/// Beside the granted folder: a link to the secret in `folder`, a link to that folder, and harmless
/// doubles of them.
fn with_doubles(root: &Path, folder: &str) {
    let granted = root.join("granted");
    for folder in ["folder", DENIED.0] {
        fs::create_dir_all(granted.join(folder)).expect("folders are made");
    }
    for file in ["file", "folder/secret.txt"] {
        fs::write(granted.join(file), PUBLIC).expect("a file is written");
    }
    fs::copy(root.join("outside/secret.txt"), granted.join(DENIED.0).join("secret.txt"))
        .expect("the secret is copied");
    for (target, link) in
        [(format!("{folder}/secret.txt"), "link"), (folder.to_owned(), "link-folder")]
    {
        std::os::unix::fs::symlink(target, granted.join(link)).expect("a link is made");
    }
}

/// Runs an attack on the file `target` while `a` and `b` are swapped, once with links to the
/// outside and once to denied files.
async fn race(attack: &str, target: &str, a: &str, b: &str) {
    for folder in ["../outside", DENIED.0] {
        race_for(folder, attack, target, a, b).await;
    }
}

async fn race_for(folder: &str, attack: &str, target: &str, a: &str, b: &str) {
    let settings = [&TIME[..], &[DENIED.1]].concat();
    let scene = Scene::with(&settings, |root| with_doubles(root, folder)).await;
    let denied = scene.granted.join(DENIED.0).join("secret.txt");
    let swapper = Swapper::start(scene.granted.join(a), scene.granted.join(b));
    let mut had = 0;
    // On a busy machine the swapper may have slept through a round.
    while had == 0 || swapper.swaps.load(Ordering::Relaxed) < 100 {
        had += successes(
            &scene.attack_beside_others(attack, arguments(&scene.granted.join(target))).await,
        );
    }
    assert_eq!(
        fs::read_to_string(denied).expect("it is there"),
        scene.secret,
        "what is refused is as it was"
    );
}

fn arguments(path: &Path) -> Value {
    json!({ "path": path, "text": PUBLIC, "count": TIMES })
}

/// Number of tries of an attack.
fn successes(answer: &Answer) -> u64 {
    let failure = answer.outcome.as_ref().expect_err("nothing else is found");
    let (_, count) = failure
        .message
        .rsplit_once("expected: ")
        .unwrap_or_else(|| panic!("it tells how it went: {}", failure.message));
    count.trim_end_matches(')').parse().expect("a number")
}

/// A helper outside that moves the secret into a denied folder while that folder is renamed, until
/// it is dropped.
struct Planter {
    end: Arc<AtomicBool>,
    planted: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Planter {
    fn start(granted: &Path, secret: &str) -> Self {
        let (end, planted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, counted) = (Arc::clone(&end), Arc::clone(&planted));
        let (granted, secret) = (granted.to_owned(), secret.to_owned());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                // By the name that the folder has now and then.
                if fs::write(granted.join("folder/secret.txt"), &secret).is_ok() {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                for folder in ["folder", "renamed"] {
                    let _not_there = fs::remove_file(granted.join(folder).join("secret.txt"));
                }
                std::thread::yield_now();
            }
        });
        Self { end, planted, thread: Some(thread) }
    }
}

impl Drop for Planter {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the planter plants");
        }
    }
}

attacks! {
    async fn race_renames() {
        let settings = [&TIME[..], &["tools.file.deny_read=[\"folder/secret.txt\"]"]].concat();
        let scene = Scene::with(&settings, |root| {
            for number in 0..200 {
                fs::create_dir_all(root.join(format!("granted/folder/{number}"))).expect("folders are made");
            }
        }).await;
        let planter = Planter::start(&scene.granted, &scene.secret);
        let arguments = json!({ "path": scene.granted.join("folder"), "to": scene.granted.join("renamed"), "count": 150 });
        let mut renamed = 0;
        // On a busy machine the planter may have slept through a round, or the file may have been
        // there at nearly every attempt.
        while renamed <= 50 || planter.planted.load(Ordering::Relaxed) <= 100 {
            renamed += successes(&scene.attack_beside_others("race_renames", arguments.clone()).await);
        }
    }

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
