//! Reusable answers, and every way in which one stops being true.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Answer, Host, Request, Session};

use crate::support::{builtin, plugin, run, shared_cache, toolhold};

/// A folder, a host that stores answers, and one that doesn't and gives the expected result.
struct Twins {
    folder: PathBuf,
    keeping: Host,
    session: Session,
    truthful: Host,
    _root: TempDir,
}

impl Twins {
    async fn new(settings: &[&str]) -> Self {
        let root = TempDir::new().expect("a temporary folder is made");
        let path = root.path().canonicalize().expect("it is there");
        let folder = path.join("work");
        for directory in ["src/deep", "docs", "other"] {
            fs::create_dir_all(folder.join(directory)).expect("a folder is made");
        }
        for (file, text) in [
            ("src/a.rs", "fn a() {}\nlet needle = 1;\n"),
            ("src/deep/b.rs", "fn b() {}\nlet needle = 2;\n"),
            ("docs/c.md", "a needle in the docs\n"),
            ("docs/d.md", "nothing here\n"),
            ("other/e.rs", "needle elsewhere\n"),
        ] {
            fs::write(folder.join(file), text).expect("a file is written");
        }
        symlink("../src/a.rs", folder.join("docs/link")).expect("a link is made");
        let keeping = host(&path, &folder, settings).await;
        let truthful =
            host(&path, &folder, &[settings, &["tools.result_cache.enabled=false"]].concat()).await;
        Self { folder, keeping, session: Session::new("the test's"), truthful, _root: root }
    }

    async fn call(&self, tool: &str, arguments: &Value) -> Answer {
        self.keeping
            .call(Request {
                session: Some(self.session.clone()),
                ..Request::new(tool, arguments.clone())
            })
            .await
    }

    /// Calls until the answer comes from the cache, as it does once nothing has changed for a
    /// moment.
    async fn until_kept(&self, tool: &str, arguments: &Value) -> String {
        loop {
            let answer = self.call(tool, arguments).await;
            if answer.cached {
                assert!(answer.steps.iter().all(|step| step.name != "run"));
                return shown(&answer);
            }
        }
    }

    /// The result must equal the one without a cache. Returns whether it came from the cache.
    async fn compare(&self, what: &str, tool: &str, arguments: &Value) -> bool {
        let answer = self.call(tool, arguments).await;
        let truth = self.truthful.call(Request::new(tool, arguments.clone())).await;
        assert!(!truth.cached);
        assert_eq!(
            shown(&answer),
            shown(&truth),
            "{what}: {tool} {arguments}, kept: {}",
            answer.cached
        );
        answer.cached
    }
}

async fn host(root: &Path, folder: &Path, settings: &[&str]) -> Host {
    let folders = Folders { cache: shared_cache(), ..Folders::inside(&root.join("toolhold")) };
    let settings =
        ["tools.autonomy=full"].iter().chain(settings).map(|&setting| setting.to_owned()).collect();
    let loaded = config::load(&folders, &Inputs { settings, ..Inputs::default() })
        .expect("the settings are valid");
    let builder = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(folder)
        .builtins(&[builtin("file")])
        .helper(toolhold());
    builder.build().await.expect("the plugins load")
}

fn shown(answer: &Answer) -> String {
    match &answer.outcome {
        Ok(output) => output.joined_text(),
        Err(failure) => format!("{}: {}", failure.category.as_str(), failure.message),
    }
}

/// Calls of each tool whose answers are stored.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("read", json!({ "path": "src/a.rs" })),
        ("read", json!({ "path": "docs/link" })),
        ("read", json!({ "path": "src/../src/deep/b.rs" })),
        ("grep", json!({ "pattern": "needle" })),
        ("grep", json!({ "pattern": "needle", "path": "docs" })),
        ("grep", json!({ "pattern": "needle", "path": "docs/link" })),
        ("grep", json!({ "pattern": "^fn", "path": "src" })),
        ("find_path", json!({ "pattern": "**/*.rs" })),
        ("find_path", json!({ "pattern": "*.md", "path": "docs" })),
        ("list_directory", json!({ "path": "." })),
        ("list_directory", json!({ "path": "docs" })),
        ("list_directory", json!({ "path": "src" })),
    ]
}

/// A change of the folder, and its description.
type Change = (&'static str, fn(&Path));

/// The possible changes. Each can be applied again.
const CHANGES: &[Change] = &[
    ("other contents of the same size", |at| flip(&at.join("src/a.rs"))),
    ("other contents of the same size, with the old time", |at| {
        let before = fs::metadata(at.join("src/a.rs"))
            .and_then(|file| file.modified())
            .expect("it has a time");
        flip(&at.join("src/a.rs"));
        let file = File::options().write(true).open(at.join("src/a.rs")).expect("it opens");
        file.set_times(FileTimes::new().set_modified(before)).expect("its time is set back");
    }),
    ("one line more", |at| append(&at.join("src/deep/b.rs"), "needle\n")),
    ("a file takes another's place", |at| {
        fs::write(at.join("new"), format!("needle {}\n", fresh())).expect("a file is written");
        fs::rename(at.join("new"), at.join("docs/d.md")).expect("it is renamed");
    }),
    ("a new file", |at| {
        fs::write(at.join(format!("src/{}.rs", fresh())), "a new needle\n")
            .expect("a file is written");
    }),
    ("a file less", |at| {
        let mut entries =
            fs::read_dir(at.join("src")).expect("it is there").flatten().map(|entry| entry.path());
        if let Some(file) = entries.find(|path| path.is_file() && !path.ends_with("a.rs")) {
            fs::remove_file(file).expect("it is removed");
        }
    }),
    ("a folder takes another's place", |at| {
        fs::rename(at.join("src"), at.join("moved")).expect("it is renamed");
        fs::rename(at.join("other"), at.join("src")).expect("it is renamed");
        fs::rename(at.join("moved"), at.join("other")).expect("it is renamed");
        for folder in ["src", "other"] {
            fs::create_dir_all(at.join(folder).join("deep")).expect("a folder is made");
            for file in ["a.rs", "deep/b.rs"] {
                if !at.join(folder).join(file).exists() {
                    fs::write(at.join(folder).join(file), format!("needle {}\n", fresh()))
                        .expect("a file is written");
                }
            }
        }
    }),
    ("a link leads elsewhere", |at| {
        let now = fs::read_link(at.join("docs/link")).expect("it is a link");
        let then = if now.ends_with("a.rs") { "../src/deep/b.rs" } else { "../src/a.rs" };
        fs::remove_file(at.join("docs/link"))
            .and_then(|()| symlink(then, at.join("docs/link")))
            .expect("a link is made");
    }),
    ("an ignore file comes", |at| {
        fs::write(at.join(".ignore"), format!("deep\n# {}\n", fresh())).expect("a file is written");
    }),
    ("an ignore file says something else", |at| {
        fs::write(at.join(".ignore"), format!("c.md\n# {}\n", fresh())).expect("a file is written");
    }),
    ("an ignore file goes", |at| {
        let _ = fs::remove_file(at.join(".ignore"));
    }),
    ("an ignore file in a folder", |at| {
        fs::write(at.join("docs/.gitignore"), format!("*.md\n# {}\n", fresh()))
            .expect("a file is written");
    }),
    ("a repository begins", |at| {
        fs::create_dir_all(at.join(".git/info")).expect("a folder is made");
    }),
    ("a repository excludes", |at| {
        if at.join(".git").exists() {
            fs::create_dir_all(at.join(".git/info")).expect("a folder is made");
            fs::write(at.join(".git/info/exclude"), format!("other\n# {}\n", fresh()))
                .expect("a file is written");
        }
    }),
    ("a repository ends", |at| {
        let _ = fs::remove_dir_all(at.join(".git"));
        let _ = fs::remove_file(at.join("docs/.gitignore"));
    }),
    ("another mode", |at| {
        let mode =
            fs::metadata(at.join("src/a.rs")).expect("it is there").permissions().mode() ^ 0o044;
        fs::set_permissions(at.join("src/a.rs"), Permissions::from_mode(mode))
            .expect("its mode is set");
    }),
    ("a file becomes a folder, and a file again", |at| {
        let path = at.join("docs/c.md");
        if path.is_dir() {
            fs::remove_dir_all(&path)
                .and_then(|()| fs::write(&path, "needle in a file\n"))
                .expect("it is a file");
        } else {
            fs::remove_file(&path).and_then(|()| fs::create_dir(&path)).expect("it is a folder");
        }
    }),
];

/// Replaces a letter.
fn flip(path: &Path) {
    let text = fs::read_to_string(path).expect("it is text");
    let text = if text.contains("needle") {
        text.replace("needle", "noodle")
    } else {
        text.replace("noodle", "needle")
    };
    fs::write(path, text).expect("the file is written");
}

fn append(path: &Path, text: &str) {
    let before = fs::read_to_string(path).expect("it is text");
    fs::write(path, before + text).expect("the file is written");
}

/// A new number.
fn fresh() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn answer_is_reused_until_its_sources_change() {
    run(async {
        let twins = Twins::new(&[]).await;
        for (what, change) in CHANGES {
            for (tool, arguments) in calls() {
                if fs::symlink_metadata(twins.folder.join("docs/c.md"))
                    .is_ok_and(|file| file.is_dir())
                    && tool == "read"
                {
                    continue;
                }
                twins.until_kept(tool, &arguments).await;
                change(&twins.folder);
                twins.compare(what, tool, &arguments).await;
            }
        }
        assert!(twins.session.cache_summary().hits >= 100);
    });
}

#[test]
fn stale_answers_are_never_served() {
    run(async {
        let twins = Twins::new(&[]).await;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let (calls, mut kept, mut last) = (calls(), 0, "nothing yet");
        for _ in 0..1500 {
            if random(40) == 0 {
                let (what, change) = CHANGES[random(CHANGES.len())];
                change(&twins.folder);
                last = what;
            }
            let (tool, arguments) = &calls[random(calls.len())];
            kept += usize::from(twins.compare(last, tool, arguments).await);
        }
        assert!(kept > 20, "only {kept} answers were kept ones");
    });
}

#[test]
fn unrelated_changes_keep_a_stored_answer() {
    run(async {
        let twins = Twins::new(&[]).await;
        let arguments = json!({ "path": "src/a.rs" });
        twins.until_kept("read", &arguments).await;
        fs::write(twins.folder.join("src/sibling.rs"), "needle").expect("a file is written");
        let answer = twins.call("read", &arguments).await;
        assert!(answer.cached || twins.session.cache_summary().answers > 0);
        twins.until_kept("grep", &json!({ "pattern": "needle", "path": "src/a.rs" })).await;
    });
}

#[test]
fn stored_answers_belong_to_one_session_and_can_be_dropped() {
    run(async {
        let twins = Twins::new(&[]).await;
        let arguments = json!({ "pattern": "needle" });
        twins.until_kept("grep", &arguments).await;
        let other = Session::new("somebody else");
        let request =
            || Request { session: Some(other.clone()), ..Request::new("grep", arguments.clone()) };
        assert!(!twins.keeping.call(request()).await.cached);
        while !twins.keeping.call(request()).await.cached {}
        assert!(other.cache_summary().hits > 0);
        other.clear_cache();
        assert_eq!(other.cache_summary(), toolhold_core::CacheSummary::default());
        assert!(!twins.keeping.call(request()).await.cached);
        // The stored answer may have been dropped since if its check took too long; the counts
        // belong to a session's answers.
        assert!(twins.session.cache_summary().hits > 0);
    });
}

#[test]
fn other_arguments_and_other_hosts_get_their_own() {
    run(async {
        let twins = Twins::new(&[]).await;
        let session = Session::new("of two hosts");
        let request = |arguments: Value| Request {
            session: Some(session.clone()),
            ..Request::new("read", arguments)
        };
        while !twins.keeping.call(request(json!({ "path": "src/a.rs", "limit": 1 }))).await.cached {
        }
        let whole = twins.keeping.call(request(json!({ "path": "src/a.rs" }))).await;
        assert!(!whole.cached && shown(&whole).contains("needle"));
        // The same session, and a host with other rules.
        let root = twins.folder.parent().expect("it lies in one");
        let strict = host(root, &twins.folder, &["tools.file.deny_read=[\"a.rs\"]"]).await;
        let refused = strict.call(request(json!({ "path": "src/a.rs", "limit": 1 }))).await;
        assert!(
            !refused.cached && shown(&refused).starts_with("policy_blocked"),
            "{}",
            shown(&refused)
        );
    });
}

#[test]
fn stored_answer_passes_the_same_steps_as_a_fresh_one() {
    run(async {
        let twins = Twins::new(&[]).await;
        fs::write(twins.folder.join("src/a.rs"), "needle \u{1b}[2J\n").expect("a file is written");
        let arguments = json!({ "path": "src/a.rs" });
        let kept = twins.until_kept("read", &arguments).await;
        assert!(kept.contains("needle") && !kept.contains('\u{1b}'), "{kept:?}");
        let answer = twins.call("read", &arguments).await;
        let steps: Vec<&str> = answer
            .steps
            .iter()
            .map(|step| step.name)
            .filter(|name| ["cache", "run", "shape"].contains(name))
            .collect();
        assert!(steps == ["cache", "shape"] || !answer.cached, "{steps:?}");
    });
}

#[test]
fn failed_acting_and_untrusted_calls_store_no_answer() {
    run(async {
        let twins = Twins::new(&[]).await;
        for (tool, arguments) in [
            ("read", json!({ "path": "src/none.rs" })),
            ("create_directory", json!({ "path": "made" })),
            ("grep", json!({ "pattern": "needle", "path": "nowhere" })),
        ] {
            for _ in 0..5 {
                assert!(!twins.call(tool, &arguments).await.cached, "{tool} {arguments}");
            }
        }
        assert_eq!(twins.session.cache_summary().answers, 0);

        // The built-in tools as a third-party plugin: their claims aren't trusted.
        let root = twins.folder.parent().expect("it lies in one");
        let path = format!("plugins.file.path={:?}", plugin("file"));
        let settings = [
            path.as_str(),
            "plugins.file.replaces=file",
            "plugins.file.reload=trust",
            "plugins.file.allowed_paths=[\".\"]",
        ];
        let replaced = host(root, &twins.folder, &settings).await;
        for _ in 0..5 {
            let answer = replaced.call(Request::new("read", json!({ "path": "src/a.rs" }))).await;
            assert!(!answer.cached && shown(&answer).contains("needle"), "{}", shown(&answer));
        }
    });
}

#[test]
fn cacheable_claim_counts_only_after_approval() {
    run(async {
        let twins = Twins::new(&[]).await;
        let root = twins.folder.parent().expect("it lies in one");
        let folders =
            || Folders { cache: shared_cache(), ..Folders::inside(&root.join("toolhold")) };
        let settings = vec!["plugins.file.allowed_paths=[\".\"]".to_owned()];
        let loaded = config::load(&folders(), &Inputs { settings, ..Inputs::default() })
            .expect("the settings are valid");
        let builder = Host::builder()
            .config(loaded)
            .folders(folders())
            .working_directory(&twins.folder)
            .helper(toolhold());
        // Naming a component for a run approves it.
        let host = builder.plugin_file(plugin("file")).build().await.expect("the plugin loads");
        let call = || host.call(Request::new("file__read", json!({ "path": "src/a.rs" })));
        while !call().await.cached {}
        flip(&twins.folder.join("src/a.rs"));
        let answer = call().await;
        assert!(shown(&answer).contains("noodle"), "{}", shown(&answer));
    });
}

#[test]
fn operator_turns_stored_answers_off() {
    run(async {
        let off = Twins::new(&["tools.result_cache.enabled=false"]).await;
        for _ in 0..5 {
            assert!(!off.call("grep", &json!({ "pattern": "needle" })).await.cached);
        }
        assert_eq!(off.session.cache_summary(), toolhold_core::CacheSummary::default());
    });
}

#[test]
fn many_that_ask_at_once_get_the_truth() {
    run(async {
        let twins = Arc::new(Twins::new(&[]).await);
        let arguments = json!({ "pattern": "needle", "path": "src" });
        for _ in 0..20 {
            flip(&twins.folder.join("src/a.rs"));
            let truth = shown(&twins.truthful.call(Request::new("grep", arguments.clone())).await);
            let calls: Vec<_> = (0..8)
                .map(|_| {
                    let (twins, arguments) = (Arc::clone(&twins), arguments.clone());
                    tokio::spawn(async move { shown(&twins.call("grep", &arguments).await) })
                })
                .collect();
            for call in calls {
                assert_eq!(call.await.expect("nothing panics"), truth);
            }
        }
    });
}
