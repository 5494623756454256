//! Outputs that are longer than an answer can be: nothing is lost, and filters see everything.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use toolhold_core::{Answer, Audience, Request};

use super::{bash, contents, passing, program, text};
use crate::support::{ATTACK_MIB, Scene, plugin, run_alone};

/// An answer has room for both outputs, as text and as a structured value, and a command has time.
const LONG: [&str; 2] = ["tools.limits.result_mib=8", "tools.call=60"];

const MARK: &str = "[REDACTED:github-token ghp_…]";

fn token() -> String {
    format!("gh{}_{}", 'p', "Zx8Kq2Lw9Vn4Rt7Yb1Mc6Hd3Jf5Gs0Pa2Qe8")
}

/// The files of kept outputs.
fn kept_files(scene: &Scene) -> Vec<PathBuf> {
    let folder = scene.root().join("toolhold/data/overflow");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The whole output that an answer names.
async fn whole(scene: &Scene, answer: &Answer) -> String {
    let said = text(answer);
    let id = said.split("read_overflow with id \"").skip(1).last();
    let id = id.and_then(|rest| rest.split('"').next());
    let id = id.unwrap_or_else(|| panic!("it names an id: {answer:?}"));
    let file = kept_files(scene).into_iter().find(|file| file.to_string_lossy().ends_with(id));
    let whole = fs::read_to_string(file.expect("it is kept")).expect("it is text");
    let total = whole.chars().count();
    for offset in [0, total / 3, total.saturating_sub(100)] {
        let arguments = json!({ "id": id, "offset": offset, "limit": 20_000 });
        let output = scene.call("read_overflow", arguments).await.outcome.expect("it is there");
        let page = output.structured.clone().expect("it has one");
        let shown = output.joined_text();
        let (fenced, _) = shown.rsplit_once("[Characters ").expect("it says what it shows");
        // The output of a command stands behind a fence.
        let (_, part) = fenced
            .split_once("key=\"")
            .and_then(|(_, rest)| rest.split_once(">\n"))
            .expect("a fence");
        let end = (offset + 20_000).min(total);
        assert_eq!(page, json!({ "start": offset, "end": end, "total": total }));
        assert!(part.chars().take(end - offset).eq(whole.chars().skip(offset).take(end - offset)));
    }
    whole
}

#[tokio::test]
async fn whole_output_is_kept_without_secrets() {
    let scene = Scene::with(&LONG, |_| {}).await;
    // A credential in every twentieth line, so also around the places where pieces are cut.
    let script = format!(
        "for ((n = 0; n < 60000; n++)); do ((n % 20)) || echo 'größe {}'; echo \"record $n of the export\"; done",
        token()
    );
    fs::write(scene.granted.join("export.sh"), script).expect("it is written");
    let answer = bash(&scene, "bash export.sh; bash export.sh >&2; exit 3").await;
    let shown = text(&answer);
    assert!(
        shown.contains("record 59999 of the export") && shown.chars().count() < 31_000,
        "{shown}"
    );
    assert!(answer.truncated);
    let each: String = (0..60_000)
        .map(|n| {
            let secret = if n % 20 == 0 { format!("größe {MARK}\n") } else { String::new() };
            format!("{secret}record {n} of the export\n")
        })
        .collect();
    assert!(whole(&scene, &answer).await == format!("stdout:\n{each}\nstderr:\n{each}"));
    let files = kept_files(&scene);
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0].metadata().expect("it is there").mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&files[0]).expect("it is text").contains(&token()));
    // A person is told too.
    let command = json!({ "command": "bash export.sh" });
    let request = Request { audience: Audience::Person, ..Request::new("bash", command) };
    let person = scene.host.call(request).await;
    assert!(text(&person).contains("bytes are left out here"));
    assert!(whole(&scene, &person).await == each);
}

#[tokio::test]
async fn key_over_the_end_of_a_piece_is_removed_as_a_whole() {
    let scene = Scene::with(&LONG, |_| {}).await;
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n".repeat(200);
    let key = format!("-----BEGIN {0} KEY-----\n{body}-----END {0} KEY-----\n", "PRIVATE");
    let line = "an ordinary line of some length\n";
    for before in [(1 << 20) - 20_000, (1 << 20) - 8000, 1 << 20] {
        let said = line.repeat(before / line.len()) + &key + &line.repeat(40_000);
        fs::write(scene.granted.join("said"), &said).expect("it is written");
        let answer = bash(&scene, "cat said").await;
        let kept = whole(&scene, &answer).await;
        assert!(!kept.contains("MIIEvQ"), "{before}");
        assert!(kept.matches(line).count() == said.matches(line).count(), "{before}");
    }
}

#[tokio::test]
async fn filters_see_all_of_a_long_output() {
    let all =
        passing(60_000).replace("module_4::holds_30006 ... ok", "module_4::holds_30006 ... FAILED");
    let all = all.replace(
        "test result: ok. 60000 passed; 0 failed",
        "failures:\n\n---- module_4::holds_30006 stdout ----\n\nthread 'x' panicked at src/lib.rs:31:9:\nassertion failed: 4 == 5\n\n\nfailures:\n    module_4::holds_30006\n\ntest result: FAILED. 59999 passed; 1 failed",
    );
    assert!(all.len() > 3 << 19 && all.contains("holds_30006 ... FAILED"));
    let scene =
        Scene::with(&LONG, |root| program(&root.join("granted"), "cargo", &all, "", 101)).await;
    let answer = bash(&scene, "./cargo test --workspace").await;
    let shown = text(&answer);
    assert!(shown.contains("holds_30006") && shown.contains("assertion failed: 4 == 5"), "{shown}");
    assert!(shown.contains("59999 passed; 1 failed") && !shown.contains("holds_7 "), "{shown}");
    let filtered = answer.filtered.as_ref().expect("it is filtered");
    assert!(filtered.lines[0] > 60_000 && filtered.percent() > 99.0, "{filtered:?}");
    assert!(whole(&scene, &answer).await.contains("test module_0::holds_7 ... ok\n"));
}

#[test]
fn security_filters_see_all_of_a_long_output() {
    run_alone(ATTACK_MIB, async {
        let path = format!("plugins.hostile-filter.path={:?}", plugin("hostile-filter"));
        let chain = "tools.filters.chain=[\"hostile-filter\"]";
        let settings = [LONG[0], LONG[1], &*path, "plugins.hostile-filter.reload=trust", chain];
        let scene = Scene::with(&settings, |_| {}).await;
        let answer = bash(&scene, "seq -f 'record %g' 1 300000; true safe-confess").await;
        assert_eq!(whole(&scene, &answer).await, MARK, "what it leaves has no secret either");
        let answer = bash(&scene, "seq -f 'record %g' 1 300000; true safe-block").await;
        assert!(contents(&answer).is_empty() && answer.outcome.is_err());
        assert_eq!(kept_files(&scene).len(), 1, "nothing is kept of an answer that is withheld");
    });
}

#[tokio::test]
async fn output_beyond_the_store_keeps_its_ends() {
    let scene = Scene::with(&[LONG[0], LONG[1], "tools.overflow.max_mib=32"], |_| {}).await;
    let command = "echo begun; seq -f 'line %.0f' 1 2500000; echo ended";
    let answer = bash(&scene, command).await;
    assert!(
        text(&answer).contains("The start and the end of the output are stored: "),
        "{answer:?}"
    );
    let files = kept_files(&scene);
    assert_eq!(files.len(), 1, "{files:?}");
    let size = files[0].metadata().expect("it is there").len();
    assert!(size > 6 << 20 && size <= 16 << 20, "{size}");
    let text = fs::read_to_string(&files[0]).expect("it is text");
    assert!(text.starts_with("begun\nline 1\n") && text.ends_with("line 2500000\nended\n"));
    let (beginning, end) = text.split_once("\n[… ").expect("it says what is missing");
    let (left_out, end) = end.split_once(" bytes are left out here …]\n").expect("it counts");
    let left_out: usize = left_out.parse().expect("a number");
    let output = Command::new("bash").args(["-c", command]).output().expect("it runs").stdout;
    assert_eq!(beginning.len() + left_out + end.len(), output.len());
}

#[tokio::test]
async fn small_store_and_short_output_leave_nothing_behind() {
    let scene = Scene::with(&[LONG[0], LONG[1], "tools.overflow.max_mib=2"], |_| {}).await;
    bash(&scene, "seq 1 1000").await;
    assert_eq!(kept_files(&scene), Vec::<PathBuf>::new());
    for _ in 0..3 {
        let answer = bash(&scene, "seq -f 'record %g' 1 300000").await;
        assert!(text(&answer).contains("record 300000\n"), "{}", text(&answer));
        let files = kept_files(&scene);
        let sizes = files.iter().map(|file| file.metadata().expect("it is there").len());
        assert!(sizes.sum::<u64>() <= 2 << 20);
    }
}

#[tokio::test]
async fn output_that_cannot_be_kept_is_still_answered() {
    let scene = Scene::with(&LONG, |_| {}).await;
    let folder = scene.root().join("toolhold/data/overflow");
    fs::create_dir_all(&folder).expect("it is made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let answer = bash(&scene, "seq -f 'record %g' 1 300000").await;
    let shown = text(&answer);
    assert!(shown.starts_with("record 1\n") && shown.contains("record 300000\n"), "{shown}");
    assert!(shown.contains("Storing the output failed: "), "{shown}");
}
