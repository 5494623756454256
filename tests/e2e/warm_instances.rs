//! Warm instances: each serves one call, nothing of a call reaches the next, and a component can do
//! no harm while it is instantiated.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_core::{Category, Host, Request};

use crate::support::{
    Cli, Component, Living, descriptors_below, failure, log_with, run, said, soon, state, version,
};

const TRUST: &str = "plugin_folder.reload=trust";

/// Warm instances of one plugin, and of all together.
const EACH: usize = 2;
const ALL: usize = 16;

/// A plugin that notices an earlier call in its instance.
fn once() -> Component {
    Component {
        in_module: "(global $called (mut i32) (i32.const 0))",
        on_call:
            "(if (i32.or (global.get $called) (i32.load (i32.const 200000))) (then unreachable))
            (global.set $called (i32.const 1))
            (i32.store (i32.const 200000) (i32.const 1))",
        ..version("once", "1.0.0", "for the first time")
    }
}

/// A plugin that asks for the granted directories while it is instantiated, keeps the first, and
/// then runs `init`, unless none is granted, as for listing its tools. At 400000 there is a file's
/// name of 9 bytes; `$open` opens that file below the kept directory for writing, created and
/// emptied, and returns whether it worked; `$wait` waits for a number of nanoseconds.
fn early(name: &str, init: &str, on_call: &'static str) -> Component {
    const ERRORS: &str = r#""access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist" "file-too-large"
        "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop" "too-many-links" "message-size"
        "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory" "insufficient-space" "not-directory" "not-empty"
        "not-recoverable" "unsupported" "no-tty" "no-such-device" "overflow" "not-permitted" "pipe" "read-only" "invalid-seek"
        "text-file-busy" "cross-device""#;
    let in_component = format!(
        r#"
  (import "wasi:filesystem/types@0.2.0" (instance $types
    (export "descriptor" (type $descriptor (sub resource)))
    (type $e (enum {ERRORS}))
    (export "error-code" (type $error (eq $e)))
    (type $p (flags "symlink-follow"))
    (export "path-flags" (type $path-flags (eq $p)))
    (type $o (flags "create" "directory" "exclusive" "truncate"))
    (export "open-flags" (type $open-flags (eq $o)))
    (type $f (flags "read" "write" "file-integrity-sync" "data-integrity-sync" "requested-write-sync" "mutate-directory"))
    (export "descriptor-flags" (type $descriptor-flags (eq $f)))
    (export "[method]descriptor.open-at" (func (param "self" (borrow $descriptor)) (param "path-flags" $path-flags)
      (param "path" string) (param "open-flags" $open-flags) (param "flags" $descriptor-flags)
      (result (result (own $descriptor) (error $error)))))))
  (alias export $types "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
    (export "descriptor" (type $d (eq $descriptor)))
    (export "get-directories" (func (result (list (tuple (own $d) string)))))))
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (export "pollable" (type $p (eq $pollable)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (core module $libc
    (memory (export "memory") 16)
    (global $next (mut i32) (i32.const 500000))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $libc (instantiate $libc))
  (core func $directories (canon lower (func $preopens "get-directories")
    (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
  (core func $open-at (canon lower (func $types "[method]descriptor.open-at") (memory (core memory $libc "memory"))))
  (core func $pause (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))"#
    );
    let in_module = format!(
        r#"
    (data (i32.const 400000) "early.txt")
    (global $directory (mut i32) (i32.const -1))
    (func $open (result i32)
      (call $open-at (global.get $directory) (i32.const 0) (i32.const 400000) (i32.const 9) (i32.const 9) (i32.const 2) (i32.const 400016))
      (i32.eqz (i32.load8_u (i32.const 400016))))
    (func $wait (param i64) (call $block (call $pause (local.get 0))))
    (func $start
      (call $directories (i32.const 400032))
      (if (i32.eqz (i32.load (i32.const 400036))) (then return))
      (global.set $directory (i32.load (i32.load (i32.const 400032))))
      {init})
    (start $start)"#
    );
    let manifest = format!(
        r#"{{"manifest":1,"name":"{name}","version":"1.0.0","description":"Begins early",
        "capabilities":[{{"name":"files","access":"read-write","reason":"to be tried"}}]}}"#
    );
    Component {
        in_component: in_component.leak(),
        imports: r#"(import "libc" "memory" (memory $memory 16))
    (import "host" "directories" (func $directories (param i32)))
    (import "host" "open-at" (func $open-at (param i32 i32 i32 i32 i32 i32 i32)))
    (import "host" "pause" (func $pause (param i64) (result i32)))
    (import "host" "block" (func $block (param i32)))"#,
        with: r#"(with "libc" (instance $libc)) (with "host" (instance
    (export "directories" (func $directories)) (export "open-at" (func $open-at)) (export "pause" (func $pause))
    (export "block" (func $block))))"#,
        in_module: in_module.leak(),
        on_call,
        manifests: vec![manifest.into_bytes()],
        ..version(name, "1.0.0", "here")
    }
}

/// A host with these plugins, each with the folder `work` granted.
async fn host_with(
    living: &Living,
    settings: &[&str],
    plugins: &[(&str, &Component)],
) -> Arc<Host> {
    let mut all = vec![TRUST.to_owned()];
    for (name, component) in plugins {
        living.put(name, &component.encode());
        all.push(format!("plugins.{name}.allowed_paths=[\"{{root}}/work\"]"));
    }
    all.extend(settings.iter().map(|&setting| setting.to_owned()));
    living.host(&all.iter().map(String::as_str).collect::<Vec<_>>()).await
}

async fn readied(host: &Host, plugin: &str) {
    soon("instances wait", || state(host, plugin).ready == EACH).await;
}

/// Waits until the housekeeper has done its work for the calls so far: it comes to `once` last.
async fn kept_house(host: &Host) {
    readied(host, "once").await;
    assert_eq!(said(host, "once").await.as_deref(), Ok("for the first time"));
    readied(host, "once").await;
}

#[test]
fn warm_instance_holds_nothing_of_another_call() {
    run(async {
        let living = Living::new();
        let host = host_with(&living, &[], &[("once", &once())]).await;
        assert_eq!(state(&host, "once").ready, 0, "nothing is readied before the first call");
        for _ in 0..50 {
            assert_eq!(said(&host, "once").await.as_deref(), Ok("for the first time"));
            readied(&host, "once").await;
        }
        // More at a time than there are warm instances.
        let calls: Vec<_> = (0..8)
            .map(|_| {
                tokio::spawn({
                    let host = Arc::clone(&host);
                    async move { said(&host, "once").await }
                })
            })
            .collect();
        for call in calls {
            assert_eq!(
                call.await.expect("the host does not panic").as_deref(),
                Ok("for the first time")
            );
        }
    });
}

#[test]
fn call_takes_a_warm_instance() {
    run(async {
        let living = Living::new();
        // So slow to instantiate that the next one isn't ready when the call ends.
        let slow = "(func $slow (local $left i32) (local.set $left (i32.const 100000000))
            (loop $again (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1))))))
            (start $slow)";
        let host = host_with(
            &living,
            &[],
            &[("slow", &Component { in_module: slow, ..version("slow", "1.0.0", "at last") })],
        )
        .await;
        let mut taken = false;
        for _ in 0..20 {
            assert_eq!(said(&host, "slow").await.as_deref(), Ok("at last"));
            taken = taken || state(&host, "slow").ready == EACH - 1;
            readied(&host, "slow").await;
            if taken {
                break;
            }
        }
        assert!(taken, "calls leave the instances that wait alone");
    });
}

/// A directory that a component opens before its call stays usable in it, with the rights of the
/// call.
#[test]
fn directory_opened_early_is_usable_in_the_call() {
    run(async {
        let living = Living::new();
        let writes = early("early", "", "(if (i32.eqz (call $open)) (then unreachable))");
        let host = host_with(&living, &[], &[("early", &writes)]).await;
        let file = living.work().join("early.txt");
        for _ in 0..3 {
            assert_eq!(said(&host, "early").await.as_deref(), Ok("here"));
            assert!(file.exists(), "a call may write");
            fs::remove_file(&file).expect("it is removed");
            readied(&host, "early").await;
        }
        assert!(!file.exists(), "nothing is written before there is a call");
    });
}

#[test]
fn nothing_is_written_before_a_call() {
    run(async {
        let living = Living::new();
        // It would crash if the attack were allowed, or didn't happen.
        let init = "(if (call $open) (then unreachable))
            (if (i32.ne (i32.load8_u (i32.const 400020)) (i32.const 31)) (then unreachable))";
        let host =
            host_with(&living, &[], &[("early", &early("early", init, "")), ("once", &once())])
                .await;
        for content in [None, Some("kept")] {
            let file = living.work().join("early.txt");
            content
                .into_iter()
                .for_each(|content| fs::write(&file, content).expect("a file is written"));
            assert_eq!(said(&host, "early").await.as_deref(), Ok("here"));
            said(&host, "once").await.expect("others are served");
            kept_house(&host).await;
            assert_eq!(fs::read_to_string(&file).ok().as_deref(), content);
            // What it saw would be outdated at the time of the call.
            assert_eq!(state(&host, "early").ready, 0);
        }
    });
}

/// What a component reads while it is instantiated, it can keep for its call.
#[test]
fn rules_about_paths_hold_before_the_call() {
    run(async {
        let deny = "tools.policy.rules=[{ effect = \"deny\", paths = [\"work/early.txt\"], access = \"read\" }]";
        // It crashes if it could open the file for reading.
        let init = "(call $open-at (global.get $directory) (i32.const 0) (i32.const 400000) (i32.const 9) (i32.const 0) (i32.const 1) (i32.const 400016))
            (if (i32.eqz (i32.load8_u (i32.const 400016))) (then unreachable))";
        for (settings, opens) in [(&[][..], true), (&[deny], false)] {
            let living = Living::new();
            fs::write(living.work().join("early.txt"), "a secret").expect("a file is written");
            let host = host_with(
                &living,
                settings,
                &[("early", &early("early", init, "")), ("once", &once())],
            )
            .await;
            for _ in 0..3 {
                assert_eq!(said(&host, "early").await.is_err(), opens, "{settings:?}");
                said(&host, "once").await.expect("others are served");
                kept_house(&host).await;
                assert_eq!(state(&host, "early").ready, 0, "it looks at files");
            }
        }
    });
}

#[test]
fn component_that_fails_to_warm_up_is_not_tried_again() {
    run(async {
        let crash = Err((Category::PermanentFailure, Some("crash")));
        let cpu = Err((Category::PermanentFailure, Some("cpu_budget")));
        let memory = Err((Category::PermanentFailure, Some("memory_limit")));
        for (name, init, outcome) in [
            ("early-crash", "unreachable", crash),
            ("early-loop", "(loop (br 0))", cpu),
            (
                "early-bomb",
                "(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable",
                memory,
            ),
            ("early-large", "(drop (memory.grow (i32.const 1100)))", Ok(())),
            ("early-sleep", "(call $wait (i64.const 20000000))", Ok(())),
        ] {
            let living = Living::new();
            let settings = ["tools.limits.cpu_secs=1", "tools.limits.memory_mib=128"];
            let host =
                host_with(&living, &settings, &[(name, &early(name, init, "")), ("once", &once())])
                    .await;
            for _ in 0..2 {
                let answer = host.call(Request::new(format!("{name}__say"), json!({}))).await;
                match outcome {
                    Ok(()) => assert_eq!(answer.outcome.expect("it works").joined_text(), "here"),
                    Err((category, code)) => drop(failure(&answer, category, code).message.clone()),
                }
                said(&host, "once").await.expect("others are served");
                kept_house(&host).await;
                assert_eq!(state(&host, name).ready, 0, "{name}");
            }
            if name == "early-crash" {
                let plugin = format!("plugin=\"{name}\"");
                assert_eq!(
                    log_with(&[&plugin, "call=none", "the tool crashed"]).len(),
                    1,
                    "readied once, and not again"
                );
                assert_eq!(
                    log_with(&[&plugin, "it printed"]).len(),
                    3,
                    "and each call's own end is told"
                );
            }
        }
    });
}

#[test]
fn warm_instances_go_when_idle_and_with_their_version() {
    run(async {
        let living = Living::new();
        let keeps = early("early", "", "");
        let host = host_with(&living, &["tools.keep_ready=2"], &[("early", &keeps)]).await;
        let open = || descriptors_below(&living.work());
        let before = open();
        said(&host, "early").await.expect("it works");
        soon("those that wait hold their directories", || open() == before + EACH).await;
        soon("nobody called", || state(&host, "early").ready == 0 && open() == before).await;

        said(&host, "early").await.expect("it works still");
        soon("those that wait hold their directories", || open() == before + EACH).await;
        living.put("early", &early("early", "", "(drop (i32.const 0))").encode());
        host.reload_plugins().await;
        assert_eq!(state(&host, "early").generation, 2);
        soon("what the old version had is gone", || open() == before).await;
        said(&host, "early").await.expect("the new version works");
    });
}

#[test]
fn few_wait_however_many_plugins_are_called() {
    run(async {
        let living = Living::new();
        let names: Vec<String> = (0..12).map(|number| format!("word-{number}")).collect();
        let components: Vec<_> =
            names.iter().map(|name| version(name, "1.0.0", "a word")).collect();
        let plugins: Vec<_> = names.iter().map(String::as_str).zip(&components).collect();
        let host = host_with(&living, &["tools.max_concurrent=2"], &plugins).await;
        let ready = || host.plugins().iter().map(|plugin| plugin.ready).sum::<usize>();
        for _ in 0..3 {
            for name in &names {
                assert_eq!(said(&host, name).await.as_deref(), Ok("a word"));
                // The counts are read one after the other, while the housekeeper goes from plugin
                // to plugin.
                soon("no more wait than may", || ready() <= ALL).await;
            }
            soon("as many wait as may", || ready() == ALL).await;
        }
        // Who is called in turn with too many others gets no place of theirs: it would lose it
        // before its next call.
        let waits = |name: &String| state(&host, name).ready == EACH;
        let (first, last) = names.split_at(ALL / EACH);
        assert!(first.iter().all(waits));
        assert!(last.iter().all(|name| state(&host, name).ready == 0));
        // Who is called again at once gets one.
        soon_called(&host, &last[0], || waits(&last[0])).await;
        soon("as many wait as may", || ready() == ALL).await;
    });
}

/// Calls a plugin until something is so.
async fn soon_called(host: &Host, plugin: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "`{plugin}` gets no place");
        said(host, plugin).await.expect("it works");
        tokio::task::yield_now().await;
    }
}

#[test]
fn operator_turns_warm_instances_off() {
    run(async {
        let living = Living::new();
        let host = host_with(&living, &["tools.keep_ready=0"], &[("once", &once())]).await;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {
            said(&host, "once").await.expect("it works");
            assert_eq!(state(&host, "once").ready, 0);
        }
    });
}

#[test]
fn plugin_that_sleeps_while_it_lists_is_refused_and_ends_nothing_else() {
    let cli = Cli::new();
    for (name, component) in
        [("start", early("sleeper", "", "")), ("listing", early("sleeper", "", ""))]
    {
        let sleeps = "(call $wait (i64.const 600000000000))";
        let component = match name {
            "start" => Component {
                in_module: component
                    .in_module
                    .replace("(then return)", &format!("(then {sleeps})"))
                    .leak(),
                ..component
            },
            _ => Component { on_list: sleeps, ..component },
        };
        let file = cli.root.path().join(format!("{name}.wasm"));
        fs::write(&file, component.encode()).expect("a plugin is written");
        let ended =
            cli.run(&["--plugin", file.to_str().expect("is UTF-8"), "call", "sleeper__say"]);
        assert_ne!(ended.code, 0);
        assert!(ended.stderr.contains("does not list its tools in time"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    }
}
