//! `toolhold:host/parts`: what a part can't do, and what a plugin can't do with its parts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use toolhold_core::{Audience, Host, Request};

use super::{host, host_with, served};
use crate::support::{Cli, loot, not_tried, plugin, run};

const NAME: &str = "hostile-parts";
const GRANT: &str = "plugins.hostile-parts.parts_cpu_secs=60";

/// The plugin with a manifest that names the part `attack` with this digest.
fn packed(folder: &Path, digest: &str) -> PathBuf {
    let cli = Cli::new();
    let manifest = format!(
        "name = \"{NAME}\"\nversion = \"1.0.0\"\ndescription = \"d\"\n\
         [[capabilities]]\nname = \"parts\"\nreason = \"r\"\n\
         [[parts]]\nname = \"attack\"\nsha256 = \"{digest}\"\n"
    );
    fs::write(cli.work().join("plugin.toml"), manifest).expect("a file is written");
    fs::copy(plugin(NAME), cli.work().join("bare.wasm")).expect("a file is copied");
    cli.run(&["plugin", "pack", "bare.wasm", "-o", "packed.wasm"]).ends(0);
    let path = folder.join("attacker.wasm");
    fs::copy(cli.work().join("packed.wasm"), &path).expect("a file is copied");
    path
}

fn digest(wasm: &[u8]) -> String {
    Sha256::digest(wasm).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn part() -> Vec<u8> {
    fs::read(plugin("hostile-part")).expect("the part is readable")
}

/// The folder of the plugin's parts, with the part.
fn parts(folder: &Path) -> PathBuf {
    let parts = folder.join("attacker.parts");
    fs::create_dir_all(&parts).expect("a folder is made");
    fs::write(parts.join("attack.wasm"), part()).expect("a file is written");
    parts
}

fn settings(path: &Path, more: &[&str]) -> Vec<String> {
    let mut all = served(NAME, path);
    all.extend(more.iter().map(|setting| (*setting).to_owned()));
    all
}

async fn scene(folder: &Path, more: &[&str]) -> Host {
    let path = packed(folder, &digest(&part()));
    parts(folder);
    host(folder, &[], &settings(&path, more)).await
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder is made")
}

async fn call(host: &Host, arguments: Value) -> Value {
    // What a model reads is cut.
    let request = Request::new(format!("{NAME}__run"), arguments);
    let answer = host.call(Request { audience: Audience::Person, ..request }).await;
    serde_json::from_str(&loot(&answer)).expect("it is JSON")
}

async fn attack(host: &Host, inputs: &[&str]) -> Vec<Value> {
    match call(host, json!({ "part": "attack", "inputs": inputs })).await {
        Value::Array(results) => results,
        other => panic!("{other} is no list"),
    }
}

/// The same input again and again: each answer, with how often there was it.
async fn repeated(host: &Host, input: &str, times: usize) -> Vec<(Value, usize)> {
    let arguments = json!({ "part": "attack", "inputs": [input], "times": times });
    let counts: BTreeMap<String, usize> =
        serde_json::from_value(call(host, arguments).await).expect("they are counted");
    let read = |(answer, count): (String, usize)| {
        (serde_json::from_str(&answer).expect("it is JSON"), count)
    };
    counts.into_iter().map(read).collect()
}

fn answer(text: &str) -> Value {
    json!({ "answer": text })
}

#[track_caller]
fn fails(result: &Value, code: &str, said: &str) {
    let message = result["message"].as_str().unwrap_or_default();
    assert!(result["code"] == code && message.contains(said), "{result}");
}

#[test]
fn input_that_fails_fails_alone() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[GRANT]).await;
        let attacks =
            ["echo a", "fail x", "crash", "spin", "allocate", "recurse", "huge 17000000", "echo b"];
        let results = attack(&host, &attacks).await;
        assert_eq!((&results[0], &results[7]), (&answer("a"), &answer("b")));
        fails(&results[1], "failed", "failed: x");
        fails(&results[2], "failed", "crashed");
        fails(&results[3], "limit", "2 s of CPU time");
        fails(&results[4], "limit", "256 MiB");
        fails(&results[5], "failed", "crashed");
        fails(&results[6], "limit", "16 MiB");
        // The host and the plugin go on.
        assert_eq!(attack(&host, &["echo c"]).await, [answer("c")]);
    });
}

#[test]
fn part_reaches_nothing() {
    run(async {
        let folder = folder();
        let secret = folder.path().join("secret");
        fs::write(&secret, "loot-4711").expect("a file is written");
        let read = format!("file {}", secret.display());
        let allowed = format!("plugins.{NAME}.allowed_paths=[\"{{folder}}\"]");
        let host = scene(folder.path(), &[GRANT, &allowed]).await;
        let attacks = [&read, "variable", "clock", "moment", "sleep", "print x"];
        let started = Instant::now();
        let results = attack(&host, &attacks).await;
        assert!(started.elapsed() < Duration::from_secs(45), "nothing has slept");
        for result in &results {
            let answered = result["answer"].as_str().unwrap_or_default();
            assert!(!answered.starts_with("Ok") && !answered.contains("slept"), "{result}");
            assert!(answered.is_empty() || answered.starts_with("Err"), "{result}");
        }
        assert!(!json!(results).to_string().contains("loot-4711"));
        // Random numbers are always the same, so answers follow from inputs.
        let first = attack(&host, &["random"]).await;
        assert!(first[0]["answer"].is_string(), "{first:?}");
        assert_eq!(attack(&host, &["random"]).await, first);
    });
}

#[test]
fn plugin_without_the_grant_runs_no_part() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[]).await;
        let arguments = json!({ "part": "attack", "inputs": ["echo a"] });
        let refused = host.call(Request::new(format!("{NAME}__run"), arguments)).await;
        let failure = refused.outcome.expect_err("it doesn't load");
        let said = format!("{} {:?}", failure.message, failure.suggestion);
        assert!(
            said.contains("toolhold:host/parts@0.1.0") && said.contains("parts_cpu_secs = 60"),
            "{said}"
        );
    });
}

#[test]
fn only_bytes_with_the_digest_of_the_manifest_run() {
    const MISSING: &str = "the module's file is missing or belongs to another build";
    run(async {
        let folder = folder();
        // A part of its own, so that no other test has left its code in a cache.
        let mut wasm = part();
        wasm.extend_from_slice(b"\0\x05\x04beth");
        let path = packed(folder.path(), &digest(&wasm));
        let cache = folder.path().join("cache");
        let host = host_with(folder.path(), cache, &[], &settings(&path, &[GRANT])).await;
        let parts = folder.path().join("attacker.parts");
        let results = attack(&host, &["echo a"]).await;
        // Where the host looked is nothing that a plugin may know.
        fails(&results[0], "unavailable", MISSING);
        assert!(!results[0].to_string().contains("attacker.parts"), "{}", results[0]);
        // The part of another digest, and one in the working directory.
        fs::create_dir_all(&parts).expect("a folder is made");
        fs::write(parts.join("attack.wasm"), part()).expect("a file is written");
        let working = folder.path().join("parts");
        fs::create_dir_all(&working).expect("a folder is made");
        fs::write(working.join("attack.wasm"), &wasm).expect("a file is written");
        fails(&attack(&host, &["echo a"]).await[0], "unavailable", MISSING);
        // The right one is found without a new start.
        fs::write(parts.join("attack.wasm"), &wasm).expect("a file is written");
        assert_eq!(attack(&host, &["echo a"]).await, [answer("a")]);
        let results = call(&host, json!({ "part": "../attack", "inputs": ["echo a"] })).await;
        fails(&results[0], "invalid", "its modules are: attack");
    });
}

#[test]
fn parts_of_a_call_share_its_processor_time() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-parts.parts_cpu_secs=1"]).await;
        let results = attack(&host, &["spin", "spin", "spin", "spin"]).await;
        for result in &results {
            fails(result, "budget", "`parts_cpu_secs` in [plugins.hostile-parts]");
        }
        // Each call has that time.
        assert_eq!(attack(&host, &["echo a"]).await, [answer("a")]);
    });
}

#[test]
fn parts_end_with_their_call() {
    run(async {
        let folder = folder();
        let more = [GRANT, "tools.call=2", "tools.max_call=2"];
        let host = scene(folder.path(), &more).await;
        // The part is compiled before, which takes its own time.
        attack(&host, &["echo a"]).await;
        let started = Instant::now();
        let results = repeated(&host, "spin", 200).await;
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        let (result, count) =
            results.iter().max_by_key(|(_, count)| *count).expect("there are results");
        assert!(*count > 150, "{results:?}");
        fails(result, "budget", "the call's time limit is reached");
    });
}

#[test]
fn many_inputs_share_instances_and_have_a_limit() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[GRANT]).await;
        let results = repeated(&host, "count", 4096).await;
        assert_eq!(results.iter().map(|(_, count)| count).sum::<usize>(), 4096);
        let first = results.iter().find(|(result, _)| *result == answer("1"));
        assert!(first.is_some_and(|(_, instances)| *instances <= 64), "{first:?}");
        let results = repeated(&host, "count", 4097).await;
        fails(&results[0].0, "limit", "4097 inputs; the limit is 4096");
        // All answers together are bounded, so that no plugin makes the host copy more.
        let results = repeated(&host, "huge 3000000", 10).await;
        let answered = results.iter().find(|(result, _)| result["bytes"] == 3_000_000);
        assert!(answered.is_some_and(|(_, count)| *count == 5), "{results:?}");
        let refused = results.iter().find(|(result, _)| result["code"].is_string());
        fails(&refused.expect("some are refused").0, "limit", "fewer inputs");
    });
}

#[test]
fn manifest_with_an_invalid_part_is_refused() {
    let cli = Cli::new();
    fs::copy(plugin(NAME), cli.work().join("bare.wasm")).expect("a file is copied");
    let digest = "0".repeat(64);
    for (name, sha256, said) in [
        ("../evil", &*digest, "`../evil` isn't valid"),
        ("evil", "0", "64 hexadecimal digits"),
        ("evil", &"A".repeat(64), "64 hexadecimal digits"),
        ("evil", &format!("{}/..", "0".repeat(61)), "64 hexadecimal digits"),
    ] {
        let manifest = format!(
            "name = \"{NAME}\"\nversion = \"1.0.0\"\ndescription = \"d\"\n\
             [[capabilities]]\nname = \"parts\"\nreason = \"r\"\n\
             [[parts]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\n"
        );
        fs::write(cli.work().join("plugin.toml"), manifest).expect("a file is written");
        let refused = cli.run(&["plugin", "pack", "bare.wasm"]).ends(2);
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
}

/// The parts that parse languages answer in the host as they do in their own tests, and end on what
/// makes them slow.
#[test]
fn grammars_parse_in_the_host() {
    let built = plugin(NAME).with_file_name("parts");
    if !built.join("rust.wasm").exists() {
        not_tried("clients/plugins-c");
        return;
    }
    run(async move {
        let folder = folder();
        let parts = folder.path().join("attacker.parts");
        fs::create_dir_all(&parts).expect("a folder is made");
        for (name, source, hostile) in [
            ("rust", "fn helper_of_rust() {}", "f(((".repeat(20_000)),
            ("bash", "helper_of_bash() { :; }", "f(function () { ".repeat(50_000)),
        ] {
            let wasm = fs::read(built.join(format!("{name}.wasm"))).expect("it is readable");
            let path = packed(folder.path(), &digest(&wasm));
            fs::write(parts.join("attack.wasm"), &wasm).expect("a file is written");
            let host = host(folder.path(), &[], &settings(&path, &[GRANT])).await;
            // The byte behind a source asks for what the index needs.
            let [source, hostile] = [source, &hostile].map(|source| format!("{source}\0"));
            let results = attack(&host, &[&source, &hostile, &source]).await;
            for place in [0, 2] {
                let answered = results[place]["answer"].as_str().unwrap_or_default();
                assert!(answered.contains(&format!("helper_of_{name}")), "{}", results[place]);
            }
            assert!(
                results[1]["code"] == "limit" || results[1]["code"].is_null(),
                "{}",
                results[1]
            );
        }
    });
}
