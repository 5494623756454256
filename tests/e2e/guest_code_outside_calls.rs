//! Code of a component that runs while the host only prepares or finishes: while an instance is
//! created, while arguments and answers are written into its memory, and after its answer. A call's
//! limits hold there too.

use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Answer, Body, Content, Host, Request};

use crate::support::{ATTACK_MIB, Component, Offer, builtin, run_alone, shared_cache, toolhold};

/// Goes on for ever.
const LOOP: &str = "(loop (br 0))";

/// A host with the built-in tools and a plugin made by hand, each of whose calls has a second of a
/// processor.
struct Made {
    _root: TempDir,
    host: Arc<Host>,
}

impl Made {
    async fn new(component: &Component) -> Result<Self, String> {
        let root = TempDir::new().expect("a temporary folder is made");
        let file = root.path().join("plugin.wasm");
        std::fs::write(&file, component.encode()).expect("the plugin is written");
        let folders = Folders { cache: shared_cache(), ..Folders::inside(root.path()) };
        let bounds = [
            "tools.autonomy=full",
            "tools.call=30",
            "tools.limits.cpu_secs=1",
            "tools.limits.memory_mib=64",
            "tools.retry.max_attempts=0",
        ];
        let settings = bounds.map(str::to_owned).to_vec();
        let loaded = config::load(&folders, &Inputs { settings, ..Inputs::default() })
            .expect("the settings are valid");
        let builder =
            Host::builder().config(loaded).folders(folders).working_directory(root.path());
        let host = builder
            .builtins(&[builtin("bench")])
            .plugin_file(&file)
            .helper(toolhold())
            .build()
            .await;
        Ok(Self { host: Arc::new(host.map_err(|error| error.to_string())?), _root: root })
    }

    /// Calls its tool while others are served.
    async fn call(&self, request: Request) -> Answer {
        let host = Arc::clone(&self.host);
        let called = tokio::spawn(async move { host.call(request).await });
        for number in 0..10 {
            let text = format!("hello {number}");
            let answer = self.host.call(Request::new("echo", json!({ "text": text }))).await;
            assert_eq!(answer.outcome.expect("others are served").joined_text(), text);
        }
        called.await.expect("the host does not panic")
    }

    #[track_caller]
    fn stopped(answer: &Answer, code: &str) {
        assert_eq!(
            answer.outcome.as_ref().err().and_then(|failure| failure.code.as_deref()),
            Some(code),
            "{answer:?}"
        );
    }
}

fn request() -> Request {
    Request::new("handmade__tool", json!({ "path": "x".repeat(1000) }))
}

fn component() -> Component {
    Component { on_call: "", answer: "done", ..Component::offering(vec![Offer::named("tool")]) }
}

#[test]
fn code_at_the_start_of_an_instance_is_bounded() {
    run_alone(ATTACK_MIB, async {
        for (start, reason) in [
            (LOOP, "CPU"),
            ("unreachable", "crashed"),
            (
                "(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable",
                "memory",
            ),
        ] {
            let in_module = format!("(func $start {start}) (start $start)").leak();
            let refused = Made::new(&Component { in_module, ..component() })
                .await
                .err()
                .expect("it does not load");
            assert!(refused.contains(reason) || refused.contains("longer than"), "{refused}");
        }
    });
}

/// An instance for a call behaves differently from the one that listed the tools: each tosses a
/// coin.
#[test]
fn code_at_the_start_of_a_later_instance_is_bounded() {
    run_alone(ATTACK_MIB, async {
        let made = || {
            Component {
            in_component: "(import \"wasi:random/random@0.2.0\" (instance $random (export \"get-random-u64\" (func (result u64)))))
                (core func $toss (canon lower (func $random \"get-random-u64\")))
                (core module $memory (memory (export \"memory\") 8))
                (core instance $memory (instantiate $memory))
                (core instance $coin (export \"toss\" (func $toss)))",
            imports: "(import \"coin\" \"toss\" (func $toss (result i64))) (import \"memory\" \"memory\" (memory $memory 8))",
            with: "(with \"coin\" (instance $coin)) (with \"memory\" (instance $memory))",
            in_module: "(func $start (if (i64.eqz (i64.and (call $toss) (i64.const 1))) (then (loop (br 0))))) (start $start)",
            ..component()
        }
        };
        let loaded = async || {
            for _ in 0..30 {
                match Made::new(&made()).await {
                    Ok(made) => return made,
                    Err(refused) => assert!(
                        refused.contains("CPU") || refused.contains("longer than"),
                        "{refused}"
                    ),
                }
            }
            panic!("thirty coins fall on the same side");
        };
        let made = loaded().await;
        for _ in 0..6 {
            let answer = made.call(request()).await;
            match &answer.outcome {
                Ok(output) => assert_eq!(output.joined_text(), "done"),
                Err(_) => Made::stopped(&answer, "cpu_budget"),
            }
        }
    });
}

#[test]
fn code_that_allocates_for_arguments_is_bounded() {
    run_alone(ATTACK_MIB, async {
        for (on_realloc, code) in [
            (LOOP, "cpu_budget"),
            ("unreachable", "crash"),
            (
                "(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable",
                "memory_limit",
            ),
            // Where there is no memory, and without an end.
            ("(return (i32.const -16))", "crash"),
            ("(return (call 2 (local.get 0) (local.get 1) (local.get 2) (local.get 3)))", "crash"),
        ] {
            let made = Made::new(&Component { on_realloc, ..component() })
                .await
                .expect("listing gives no arguments");
            Made::stopped(&made.call(request()).await, code);
        }
    });
}

/// A host function that returns a list asks the guest for its memory during its own call.
#[test]
fn code_that_allocates_for_the_host_s_answers_is_bounded() {
    run_alone(ATTACK_MIB, async {
        let in_component = |on_realloc: &str| -> &'static str {
            format!(
                "(import \"wasi:random/random@0.2.0\" (instance $random (export \"get-random-bytes\" (func (param \"len\" u64) (result (list u8))))))
                (core module $memory (memory (export \"memory\") 8)
                    (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) {on_realloc} (i32.const 262144)))
                (core instance $memory (instantiate $memory))
                (core func $random (canon lower (func $random \"get-random-bytes\")
                    (memory (core memory $memory \"memory\")) (realloc (core func $memory \"realloc\"))))
                (core instance $coin (export \"random\" (func $random)))"
            )
            .leak()
        };
        for (on_realloc, code) in [
            (LOOP, "cpu_budget"),
            ("unreachable", "crash"),
            ("(return (i32.const -16))", "crash"),
            ("", ""),
        ] {
            let made = Component {
                in_component: in_component(on_realloc),
                imports: "(import \"coin\" \"random\" (func $random (param i64 i32))) (import \"memory\" \"memory\" (memory $memory 8))",
                with: "(with \"coin\" (instance $coin)) (with \"memory\" (instance $memory))",
                on_call: "(call $random (i64.const 1000) (i32.const 262136))",
                ..component()
            };
            let answer = Made::new(&made).await.expect("it loads").call(request()).await;
            match code {
                "" => assert_eq!(answer.outcome.expect("it is harmless").joined_text(), "done"),
                code => Made::stopped(&answer, code),
            }
        }
    });
}

#[test]
fn code_behind_an_answer_is_bounded() {
    run_alone(ATTACK_MIB, async {
        for (on_return, reason, code) in
            [(LOOP, "CPU", "cpu_budget"), ("unreachable", "crashed", "crash")]
        {
            // After the list of its tools, and after an answer: a call leaves a one in the memory.
            let refused = Made::new(&Component { on_return, ..component() })
                .await
                .err()
                .expect("it does not load");
            assert!(refused.contains(reason) || refused.contains("longer than"), "{refused}");
            let after_a_call =
                format!("(if (i32.load8_u (i32.const 0)) (then {on_return}))").leak();
            let made = Component {
                on_return: after_a_call,
                on_call: "(i32.store8 (i32.const 0) (i32.const 1))",
                ..component()
            };
            let made = Made::new(&made).await.expect("listing is harmless");
            Made::stopped(&made.call(request()).await, code);
        }
    });
}

/// Attachments are written into the guest's memory too: by their size, their number, and their
/// content.
#[test]
fn attachments_are_bounded_by_the_memory_of_the_guest() {
    // The test itself holds two of 80 MiB.
    run_alone(ATTACK_MIB + 160, async {
        let on_realloc =
            "(drop (memory.grow (i32.add (i32.shr_u (local.get 3) (i32.const 16)) (i32.const 1))))";
        let made = Made::new(&Component { on_realloc, ..component() }).await.expect("it loads");
        let many: Vec<Content> = (0..100_000).map(|_| Content::text("x")).collect();
        let large = vec![Content::text("x".repeat(80 << 20))];
        let bytes =
            vec![Content { body: Body::Bytes(vec![0xff; 80 << 20]), media_type: None, meta: None }];
        let steering = vec![Content {
            body: Body::Link("file:///etc/shadow\u{1b}[2J".to_owned()),
            media_type: Some("\u{202e}".repeat(100)),
            meta: Some(json!([[]])),
        }];
        let whole = vec![Content::text("x".repeat(1 << 20)), Content::text("")];
        for attachments in [large, bytes] {
            Made::stopped(&made.call(Request { attachments, ..request() }).await, "memory_limit");
        }
        for attachments in [many, steering, whole] {
            let answer = made.call(Request { attachments, ..request() }).await;
            assert_eq!(answer.outcome.expect("it is harmless").joined_text(), "done");
        }
    });
}
