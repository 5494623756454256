//! Files that aren't plugins, and plugins that offer what a host must refuse.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use tempfile::TempDir;
use toolhold_core::config::Folders;
use toolhold_core::{Category, Host, HostError, Request};

use crate::support::{
    Component, Offer, builtin, failure, manifest, plugin, run, section, shared_cache, toolhold,
    unasked,
};

/// A host with the built-in tools and one plugin of `bytes`.
async fn load(bytes: &[u8]) -> Result<Host, String> {
    let folder = TempDir::new().expect("a temporary folder is made");
    let file = folder.path().join("plugin.wasm");
    fs::write(&file, bytes).expect("the plugin is written");
    load_file(&file).await
}

async fn load_file(file: &Path) -> Result<Host, String> {
    let folder = TempDir::new().expect("a temporary folder is made");
    let folders = Folders { cache: shared_cache(), ..Folders::inside(folder.path()) };
    let host = Host::builder()
        .config(unasked(&folders))
        .folders(folders)
        .working_directory(folder.path())
        .builtins(&[builtin("file"), builtin("bench")])
        .plugin_file(file)
        .helper(toolhold())
        .build();
    host.await.map_err(|error| match error {
        HostError::Load { .. } => error.to_string(),
        other => panic!("a plugin's fault is told as one: {other}"),
    })
}

/// The plugin does not load, and the message says why.
async fn refused(bytes: &[u8], reason: &str) {
    match load(bytes).await {
        Ok(_) => panic!("it loads, in spite of: {reason}"),
        Err(message) => {
            assert!(message.contains(reason), "{message:?} does not say {reason:?}");
            assert!(message.len() < 8192, "the message has {} bytes", message.len());
            let steering = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!message.contains(steering), "{message:?}");
        }
    }
}

async fn refused_offer(change: impl Fn(&mut Offer), reason: &str) {
    let mut offer = Offer::named("tool");
    change(&mut offer);
    refused(&Component::offering(vec![offer]).encode(), reason).await;
}

#[test]
fn component_made_by_hand_loads() {
    run(async {
        let host =
            load(&Component::offering(vec![Offer::named("one"), Offer::named("two")]).encode())
                .await
                .expect("it is harmless");
        assert!(host.tool("handmade__one").is_some() && host.tool("handmade__two").is_some());
        let answer = host.call(Request::new("handmade__one", json!({ "path": "x" }))).await;
        failure(&answer, Category::PermanentFailure, Some("crash"));
    });
}

#[test]
fn invalid_component_does_not_load() {
    run(async {
        refused(b"", "not a WebAssembly component").await;
        refused(b"#!/bin/sh\necho hello\n", "not a WebAssembly component").await;
        refused(b"\0asm", "not a WebAssembly component").await;
        refused(&wat::parse_str("(module)").expect("a module"), "core WebAssembly module").await;
        refused(
            &fs::read(plugin("bench").with_extension("cwasm")).expect("it was compiled"),
            "precompiled",
        )
        .await;
        let nothing = "exports nothing that Toolhold can call";
        refused(&wat::parse_str("(component)").expect("a component"), nothing).await;
        let mut empty = wat::parse_str("(component)").expect("a component");
        empty.extend(section("toolhold:manifest", &manifest("empty")));
        refused(&empty, nothing).await;
    });
}

#[test]
fn truncated_or_damaged_plugin_does_not_load() {
    run(async {
        let whole = fs::read(plugin("bench")).expect("it was built");
        for sixteenth in 1..16 {
            refused(&whole[..whole.len() * sixteenth / 16], "").await;
        }
        // A simple generator: the same bytes in every run.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..16 {
            let mut damaged = whole.clone();
            for _ in 0..64 {
                let at = usize::try_from(random()).expect("64 bits") % damaged.len();
                damaged[at] = random().to_le_bytes()[0];
            }
            // Damage may hit unused bytes; what counts is that it does no harm.
            if let Ok(host) = load(&damaged).await {
                let answer = host.call(Request::new("echo", json!({ "text": "still here" }))).await;
                assert_eq!(answer.outcome.expect("others are served").joined_text(), "still here");
            }
        }
        let mut noise: Vec<u8> = b"\0asm\x0d\0\x01\0".to_vec();
        noise.extend((0..4096).map(|_| random().to_le_bytes()[0]));
        refused(&noise, "").await;
    });
}

#[test]
fn special_missing_and_large_files_do_not_load() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let fifo = folder.path().join("fifo.wasm");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO is made");
        for path in [&fifo, folder.path(), Path::new("/dev/zero")] {
            let message = load_file(path).await.err().expect("it is no file");
            assert!(message.contains("isn't a file"), "{message}");
        }
        let message =
            load_file(&folder.path().join("missing.wasm")).await.err().expect("it is not there");
        assert!(message.contains("can't be read"), "{message}");
        // Nothing is read that could never be loaded.
        let large = folder.path().join("large.wasm");
        fs::File::create(&large)
            .and_then(|file| file.set_len(1 << 40))
            .expect("a file with a hole is made");
        let message = load_file(&large).await.err().expect("it is too large");
        assert!(message.contains("64 MiB"), "{message}");
    });
}

#[test]
fn manifest_is_one_small_object() {
    run(async {
        let with = |manifests: &[&[u8]]| {
            let manifests = manifests.iter().map(|bytes| bytes.to_vec()).collect();
            Component { manifests, ..Component::offering(vec![Offer::named("tool")]) }.encode()
        };
        refused(&with(&[]), "no manifest").await;
        refused(&with(&[&manifest("one"), &manifest("two")]), "several").await;
        refused(&with(&[b"{"]), "manifest").await;
        refused(&with(&[b"\xff\xfe\x00"]), "manifest").await;
        refused(&with(&[b"[]"]), "manifest").await;
        refused(&with(&[&vec![b' '; 65 * 1024]]), "the limit is 65536").await;
        refused(&with(&["[".repeat(30_000).as_bytes()]), "manifest").await;
        refused(
            &with(&[br#"{"manifest":2,"name":"x","version":"1","description":""}"#]),
            "format 2",
        )
        .await;
        for name in [
            "",
            "Upper",
            "under_score",
            "a__b",
            "../up",
            "a name",
            "x\\u001b[2J",
            "x\\u202e",
            "aaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            refused(&with(&[&manifest(name)]), "plugin's name").await;
        }
        for taken in ["file", "bench"] {
            refused(&with(&[&manifest(taken)]), "has this name").await;
        }
    });
}

#[test]
fn missing_grant_of_an_import_is_named() {
    run(async {
        for import in [
            "wasi:http/outgoing-handler@0.2.3",
            "toolhold:host/process@0.1.0",
            "toolhold:host/process@0.1.0",
            "toolhold:host/parts@0.1.0",
            "toolhold:host/store@0.1.0",
            "toolhold:host/index@0.1.0",
            "toolhold:host/embeddings@0.1.0",
            "toolhold:host/service@0.1.0",
            "evil:host/run",
            "wasi:config/store@0.2.0",
        ] {
            let fields: &'static str = format!("(import \"{import}\" (instance))").leak();
            let component = Component {
                in_component: fields,
                ..Component::offering(vec![Offer::named("tool")])
            };
            refused(&component.encode(), import).await;
        }
        // A grant in a wrong form isn't linked.
        let fields = "(import \"toolhold:host/log@0.1.0\" (instance (export \"write\" (func (param \"secret\" u64)))))";
        refused(
            &Component { in_component: fields, ..Component::offering(vec![Offer::named("tool")]) }
                .encode(),
            "link",
        )
        .await;
    });
}

#[test]
fn listing_tools_is_bounded() {
    run(async {
        let listing = |on_list| {
            Component { on_list, ..Component::offering(vec![Offer::named("tool")]) }.encode()
        };
        refused(&listing("(loop (br 0))"), "CPU").await;
        refused(&listing("unreachable"), "crashed").await;
        // Grows until it can't, and then gives up.
        refused(
            &listing(
                "(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable",
            ),
            "memory",
        )
        .await;
    });
}

#[test]
fn definitions_of_a_plugin_are_bounded() {
    run(async {
        let many: Vec<Offer> =
            (0..10_000).map(|number| Offer::named(&format!("tool{number}"))).collect();
        refused(&Component::offering(many).encode(), "the limit is 128").await;
        refused(
            &Component::offering(vec![Offer::named("one"), Offer::named("one")]).encode(),
            "twice",
        )
        .await;
        let long = "a".repeat(39);
        for name in
            ["", "Read", "a b", "../x", "a\u{1b}[2J", "ünï", "a\u{202e}b", "x\ny", long.as_str()]
        {
            refused_offer(|offer| offer.name = name.into(), "the name has").await;
        }
        refused_offer(|offer| offer.description = "d".repeat(5000), "description").await;
        refused_offer(|offer| offer.subject_pointer = Some("path".into()), "pointer").await;
        // Beyond what the host copies at all.
        refused_offer(|offer| offer.description = "d".repeat(20 << 20), "").await;
    });
}

#[test]
fn schemas_stay_small_and_in_their_document() {
    run(async {
        let nested = format!(
            "{}{}{}",
            r#"{"type":"object","properties":{"a":"#,
            r#"{"items":"#.repeat(100),
            "{}".to_owned() + &"}".repeat(102)
        );
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        for (schema, reason) in [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("true", "isn't the schema of an object"),
            (r#"{"type":"string"}"#, "isn't the schema of an object"),
            (nested.as_str(), "nested"),
            (deep.as_str(), "bytes"),
            (r#"{"type":"object","$ref":"https://example.com/schema"}"#, "another document"),
            (
                r#"{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}"#,
                "another document",
            ),
            (r#"{"type":"object","$defs":{"a":{"$dynamicRef":"other#x"}}}"#, "another document"),
            (r#"{"type":"object","properties":{"a":{"pattern":"("}}}"#, "can't be used"),
            (
                r#"{"type":"object","properties":{"a":{"pattern":"((a{200}){200}){200}"}}}"#,
                "can't be used",
            ),
        ] {
            refused_offer(|offer| offer.input_schema = schema.into(), reason).await;
        }
        let large = format!(r#"{{"type":"object","description":"{}"}}"#, "s".repeat(1 << 20));
        refused_offer(|offer| offer.input_schema.clone_from(&large), "bytes").await;
        refused_offer(|offer| offer.output_schema = Some(large.clone()), "output schema").await;
    });
}

/// A pattern on which a backtracking engine never ends takes no time here.
#[test]
fn patterns_of_schemas_run_in_linear_time() {
    run(async {
        let mut offer = Offer::named("tool");
        offer.input_schema =
            r#"{"type":"object","properties":{"a":{"type":"string","pattern":"^(a+)+$"}}}"#.into();
        let host =
            load(&Component::offering(vec![offer]).encode()).await.expect("the pattern is one");
        let answer = host
            .call(Request::new("handmade__tool", json!({ "a": "a".repeat(100_000) + "!" })))
            .await;
        failure(&answer, Category::InvalidParameters, None);
        let answer = host.call(Request::new("handmade__tool", json!({ "a": "aaa" }))).await;
        failure(&answer, Category::PermanentFailure, Some("crash"));
    });
}

#[test]
fn recursive_schema_is_handled() {
    run(async {
        let mut offer = Offer::named("tool");
        // It may be refused or accepted; neither it nor its call may hang or end the process.
        for schema in [
            r##"{"type":"object","$ref":"#"}"##,
            r##"{"type":"object","allOf":[{"$ref":"#"},{"$ref":"#"}]}"##,
        ] {
            offer.input_schema = schema.into();
            if let Ok(host) = load(&Component::offering(vec![offer.clone()]).encode()).await {
                host.call(Request::new("handmade__tool", json!({})))
                    .await
                    .outcome
                    .expect_err("the tool itself crashes");
            }
        }
        offer.input_schema = r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##.into();
        let host =
            load(&Component::offering(vec![offer]).encode()).await.expect("recursion is no fault");
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
        host.call(Request::new("handmade__tool", deep))
            .await
            .outcome
            .expect_err("the tool itself crashes");
    });
}

#[test]
fn names_and_descriptions_are_neutralized() {
    run(async {
        let bad = "nice\u{1b}[2J\u{202e}\u{200b}\u{e0041}";
        let mut offer = Offer::named("tool");
        offer.title = Some(bad.into());
        offer.description = bad.into();
        offer.fence = Some(bad.into());
        offer.input_schema = json!({ "type": "object", "properties": { bad: { "description": bad, "enum": [bad] } } }).to_string();
        offer.output_schema = Some(json!({ "description": bad }).to_string());
        offer.meta = Some(json!({ "m": bad }).to_string());
        let host =
            load(&Component::offering(vec![offer]).encode()).await.expect("it loads, neutralised");
        let tool = host.tool("handmade__tool").expect("it is there");
        let shown = format!("{:?} {} {:?}", tool.title, tool.description, tool.fence);
        let json = serde_json::to_string(&*tool).expect("it has a form in JSON");
        for c in ['\u{1b}', '\u{202e}', '\u{200b}', '\u{e0041}'] {
            assert!(!shown.contains(c) && !json.contains(c), "{c:?} is left in {json}");
        }
        assert!(!json.contains("\\u001b"), "{json}");
    });
}

#[test]
fn third_party_tool_takes_no_existing_name() {
    run(async {
        let mut offer = Offer::named("read");
        offer.aliases = ["read", "file_read", "cat", "bash"].map(str::to_owned).to_vec();
        let host = load(&Component::offering(vec![offer]).encode())
            .await
            .expect("its own name is its own");
        for name in ["read", "file_read"] {
            let plugin = host
                .tool(name)
                .and_then(|tool| Some(host.plugin_of(&tool.name)?.manifest.name.clone()));
            assert_eq!(plugin.as_deref(), Some("file"), "{name}");
        }
        assert!(host.tool("handmade__read").is_some());
        assert!(host.tool("cat").is_none() && host.tool("bash").is_none());
    });
}

/// Limits that only hand-made code reaches: many memories, tables, and instances.
#[test]
fn memories_and_tables_are_bounded_together() {
    run(async {
        let calling = |in_module, on_call| {
            Component { in_module, on_call, ..Component::offering(vec![Offer::named("tool")]) }
                .encode()
        };
        let grow_all = "(loop (drop (memory.grow 1 (i32.const 256))) (drop (memory.grow 2 (i32.const 256))) (br_if 0 (i32.ne (memory.grow 3 (i32.const 256)) (i32.const -1)))) unreachable";
        let host = load(&calling("(memory 1) (memory 1) (memory 1)", grow_all))
            .await
            .expect("four memories are few");
        let answer = host.call(Request::new("handmade__tool", json!({}))).await;
        failure(&answer, Category::PermanentFailure, Some("memory_limit"));

        let grow = "(loop (br_if 0 (i32.ne (table.grow $t (ref.null func) (i32.const 10000)) (i32.const -1)))) unreachable";
        let host = load(&calling("(table $t 1 funcref)", grow)).await.expect("one table is few");
        let answer = host.call(Request::new("handmade__tool", json!({}))).await;
        failure(&answer, Category::PermanentFailure, Some("memory_limit"));

        let many: &'static str = "(memory 1)".repeat(99).leak();
        refused(&calling(many, "unreachable"), "").await;
        let many: &'static str = "(table 1 funcref)".repeat(200).leak();
        refused(&calling(many, "unreachable"), "").await;
        refused(&calling("(memory 65536)", "unreachable"), "").await;
        refused(&calling("(table 100000000 funcref)", "unreachable"), "").await;
        let many: &'static str = "(core module $x (memory 1)) (core instance (instantiate $x))"
            .to_owned()
            .chars()
            .chain("(core instance (instantiate $x))".repeat(500).chars())
            .collect::<String>()
            .leak();
        refused(
            &Component { in_component: many, ..Component::offering(vec![Offer::named("tool")]) }
                .encode(),
            "",
        )
        .await;
    });
}

/// Sixty definitions, each of which uses the next one twice: small in text, and 2⁶⁰ to check.
#[test]
fn endlessly_unfolding_schema_delays_nobody() {
    run(async {
        let mut definitions = serde_json::Map::new();
        for number in 0..60 {
            let next = json!({ "$ref": format!("#/$defs/d{}", number + 1) });
            definitions.insert(format!("d{number}"), json!({ "allOf": [next, next] }));
        }
        definitions.insert("d60".into(), json!({ "type": "object" }));
        let schema = json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": definitions });
        refused_offer(|offer| offer.input_schema = schema.to_string(), "when expanded").await;
    });
}
