//! Components whose files are recognised by their stamps, and files that only look unchanged.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use toolhold_core::config::Folders;

use crate::support::{Component, Living, Offer, run, said, soon, state, version, waiting};

/// The age from which a stamp is kept, and a little.
const SETTLED: Duration = Duration::from_millis(3050);

/// A plugin folder with a cache of its own.
fn living() -> Living {
    let mut living = Living::new();
    living.folders = Folders { cache: living.root().join("cache"), ..living.folders.clone() };
    living
}

/// What is kept of files of components.
fn known(living: &Living) -> Vec<PathBuf> {
    let files = fs::read_dir(living.folders.cache.join("compiled")).expect("there is a cache");
    let files = files.flatten().map(|file| file.path());
    files.filter(|path| path.extension() == Some("known".as_ref())).collect()
}

/// Approves the plugin `word`, lets it serve once, and returns what is kept of its file.
async fn serve_once(living: &Living) -> PathBuf {
    let begun = Instant::now();
    living.put("word", &version("word", "1.0.0", "one").encode());
    living.approve("word");
    let host = living.host(&[]).await;
    assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
    let known_at_once = !known(living).is_empty();
    // A change just after the last one could have the same time. A busy machine may take longer.
    assert!(
        !known_at_once || begun.elapsed() >= Duration::from_secs(3),
        "the file has just changed"
    );
    drop(host);
    let changed = fs::metadata(living.file("word")).expect("it exists");
    let changed = SystemTime::UNIX_EPOCH
        + Duration::new(changed.ctime().unsigned_abs(), changed.ctime_nsec() as u32);
    let is_settled = || changed.elapsed().is_ok_and(|age| age >= SETTLED);
    soon("the file's last change is long enough ago", is_settled).await;
    let host = living.host(&[]).await;
    assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
    let mut known = known(living);
    assert_eq!(known.len(), 1, "{known:?}");
    known.remove(0)
}

#[test]
fn known_file_serves_and_its_digest_is_that_of_its_content() {
    run(async {
        let living = living();
        let known = serve_once(&living).await;
        let before = fs::metadata(&known).expect("it is kept");
        let host = living.host(&[]).await;
        let digest = state(&host, "word").digest;
        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
        let kept: Value =
            serde_json::from_slice(&fs::read(&known).expect("it is kept")).expect("it is JSON");
        assert_eq!(kept["digest"].as_str(), digest.as_deref());
        let after = fs::metadata(&known).expect("it is kept");
        assert_eq!((before.ino(), before.mode() & 0o777), (after.ino(), 0o600));
    });
}

#[test]
fn other_content_with_the_same_size_and_time_is_not_taken_for_the_approved_one() {
    run(async {
        let living = living();
        serve_once(&living).await;
        let (file, other) = (living.file("word"), version("word", "1.0.0", "two").encode());
        let before = fs::metadata(&file).expect("it exists");
        // In place, with the same inode.
        fs::write(&file, &other).expect("it is written");
        let opened = File::options().write(true).open(&file).expect("it opens");
        opened.set_modified(before.modified().expect("it has a time")).expect("it is set");
        let after = fs::metadata(&file).expect("it exists");
        assert_eq!(
            (before.ino(), before.len(), before.mtime(), before.mtime_nsec()),
            (after.ino(), after.len(), after.mtime(), after.mtime_nsec())
        );
        let host = living.host(&[]).await;
        assert!(state(&host, "word").waiting.is_some_and(|waiting| waiting.held));
        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"), "the approved copy serves");
        let host = living.host(&["plugin_folder.reload=trust"]).await;
        assert_eq!(said(&host, "word").await.as_deref(), Ok("two"));
    });
}

#[test]
fn recalled_digest_is_compared_with_the_file_before_code_runs() {
    run(async {
        let living = living();
        let known = serve_once(&living).await;
        living.put("word", &version("word", "1.0.0", "two").encode());
        // A clock or a file system that lies: the new file has the stamp of the old one.
        let mut kept: Value =
            serde_json::from_slice(&fs::read(&known).expect("it is kept")).expect("it is JSON");
        let now = fs::metadata(living.file("word")).expect("it exists");
        kept["stamp"] = json!({
            "device": now.dev(),
            "inode": now.ino(),
            "size": now.len(),
            "modified": [now.mtime(), now.mtime_nsec()],
            "changed": [now.ctime(), now.ctime_nsec()],
        });
        fs::write(&known, kept.to_string()).expect("it is replaced");
        let host = living.host(&[]).await;
        assert!(host.tool("word__say").is_some(), "it is listed without a look at its file");
        let refused = said(&host, "word").await.expect_err("neither version runs");
        assert!(
            refused.contains("the component's file has changed; run `toolhold plugin reload`"),
            "{refused}"
        );
        assert!(!known.exists(), "the next start reads the file");
        host.reload_plugins().await;
        assert!(waiting(&host, "word").contains("the version is still 1.0.0"));
        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"), "the approved copy serves");
    });
}

#[test]
fn damaged_entry_or_one_of_another_path_is_not_used() {
    run(async {
        let living = living();
        let known = serve_once(&living).await;
        let honest = fs::read_to_string(&known).expect("it is text");
        let file = living.file("word").display().to_string();
        for forged in [
            String::new(),
            honest[..honest.len() - 1].to_owned(),
            honest.replace(&file, "/another/path"),
            honest.replace("\"path\"", "\"paths\""),
        ] {
            assert_ne!(forged, honest);
            fs::write(&known, &forged).expect("it is replaced");
            let host = living.host(&[]).await;
            assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
            assert_eq!(fs::read_to_string(&known).expect("it is kept"), honest, "{forged}");
        }
    });
}

#[test]
fn name_that_two_plugins_offer_at_once_stops_only_one_of_them() {
    run(async {
        let living = living();
        // A plugin in the place of a built-in one has tools without its name before theirs.
        let manifest = br#"{"manifest":1,"name":"first","version":"1","description":"Says"}"#;
        let offering = Component::offering(vec![Offer::named("word__say")]);
        let first = Component { manifests: vec![manifest.to_vec()], ..offering };
        living.put("first", &first.encode());
        living.put("word", &version("word", "1.0.0", "one").encode());
        living.put("other", &version("other", "1.0.0", "other").encode());
        let host =
            living.host(&["plugin_folder.reload=trust", "plugins.first.replaces=file"]).await;
        let states = host.plugins();
        let waits = states.iter().filter(|state| state.waiting.is_some());
        let waits: Vec<_> = waits.map(|state| state.waiting.clone().expect("it waits")).collect();
        assert_eq!(waits.len(), 1, "{states:?}");
        assert!(waits[0].reason.contains("another source already has a tool"), "{waits:?}");
        assert_eq!(states.iter().filter(|state| state.word() == "running").count(), 2);
        assert_eq!(said(&host, "other").await.as_deref(), Ok("other"));
    });
}
