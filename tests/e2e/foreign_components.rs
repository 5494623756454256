//! Components that know nothing of Toolhold: their functions as tools.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolhold_core::{Answer, Category, Reply, Request};

use crate::approvals::Person;
use crate::support::{Cli, Living, Scene, failure, loot, plugin, run, section, waiting};

/// A scene with the component that has every type, which reaches the granted folder.
async fn scene() -> Scene {
    let path = format!("plugins.every-type.path={:?}", plugin("every-type"));
    let settings = [
        path.as_str(),
        "plugins.every-type.reload=trust",
        "plugins.every-type.allowed_paths=[\"{granted}\"]",
    ];
    Scene::with(&settings, |_| {}).await
}

async fn call(scene: &Scene, tool: &str, arguments: Value) -> Answer {
    let answer = scene.call(&format!("every-type__{tool}"), arguments).await;
    scene.assert_safe(&answer);
    answer
}

/// The structured answer of a call that works.
#[track_caller]
fn structured(answer: Answer) -> Value {
    match answer.outcome {
        Ok(output) => output.structured.unwrap_or_default(),
        Err(failure) => panic!("the call works: {}", failure.message),
    }
}

/// A component of one interface-less function for each of these: its name, the types that it
/// needs, and the type of its one parameter. The functions do nothing.
fn component(functions: &[(&str, &str, &str)]) -> Vec<u8> {
    let mut text = String::from(
        r#"(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "f") (param i32 i32)))
  (core instance $i (instantiate $m))"#,
    );
    for (name, types, takes) in functions {
        let _ = write!(
            text,
            r#"
  {types}
  (func (export "{name}") (param "value" (list {takes}))
    (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))"#
        );
    }
    text.push(')');
    wat::parse_str(text).expect("the text is a component")
}

#[test]
fn values_of_every_type_go_through_json_and_back() {
    run(async {
        let scene = scene().await;
        let small =
            json!({ "a": -128, "b": 255, "c": -32768, "d": 65535, "e": i32::MIN, "f": u32::MAX });
        let point = json!({ "x": 1, "y": -2 });
        let shape = json!({ "tag": "polygon", "value": [{ "x": 1, "y": 2, "name": "n" }] });
        for (tool, arguments, result) in [
            ("greet", json!({ "name": "ж" }), json!("Hello, ж!")),
            ("same-small", small, json!([-128, 255, -32768, 65535, i32::MIN, u32::MAX])),
            (
                "same-large",
                json!({ "signed": "-9223372036854775808", "unsigned": "18446744073709551615" }),
                json!(["-9223372036854775808", "18446744073709551615"]),
            ),
            (
                "same-large",
                json!({ "signed": "7", "unsigned": 9_007_199_254_740_992_u64 }),
                json!([7, 9_007_199_254_740_992_u64]),
            ),
            (
                "same-floats",
                json!({ "single": 0.1, "double": "-Infinity" }),
                json!([0.1, "-Infinity"]),
            ),
            ("same-truth", json!({ "value": true }), json!(true)),
            ("same-letter", json!({ "value": "\u{10ffff}" }), json!("\u{10ffff}")),
            ("same-bytes", json!({ "value": "AP8=" }), json!("AP8=")),
            ("same-bytes", json!({ "value": "" }), json!("")),
            ("same-numbers", json!({ "value": [0, 65535] }), json!([0, 65535])),
            ("same-numbers", json!({ "value": [] }), json!([])),
            ("same-maybe", json!({}), json!(null)),
            ("same-maybe", json!({ "value": null }), json!(null)),
            ("same-maybe", json!({ "value": 5 }), json!(5)),
            ("same-perhaps", json!({}), json!(null)),
            ("same-perhaps", json!({ "value": { "some": null } }), json!({ "some": null })),
            ("same-perhaps", json!({ "value": { "some": 5 } }), json!({ "some": 5 })),
            ("same-draw", json!({ "value": { "tag": "empty" } }), json!({ "tag": "empty" })),
            ("same-draw", json!({ "value": shape }), shape),
            ("same-paint", json!({ "value": "light-green" }), json!("light-green")),
            ("same-grant", json!({ "value": ["execute", "read"] }), json!(["read", "execute"])),
            ("same-inner", json!({ "value": { "ok": 1 } }), json!([{ "ok": 1 }])),
            ("same-inner", json!({ "value": { "err": "no" } }), json!([{ "err": "no" }])),
            ("odd-divide", json!({ "a": 7, "b": 2 }), json!(3)),
        ] {
            let said = structured(call(&scene, tool, arguments.clone()).await);
            assert_eq!(said, json!({ "result": result }), "{tool} {arguments}");
            let tool = scene.host.tool(&format!("every-type__{tool}")).expect("it is a tool");
            let schema = tool.output_schema.as_ref().expect("it has an output schema");
            assert!(jsonschema::is_valid(schema, &said), "{said} doesn't fit {schema}");
        }
        // A record is the answer itself, and an absent field is absent.
        let moved = call(&scene, "same-move", json!({ "value": point, "by": point })).await;
        assert_eq!(structured(moved), json!({ "x": 2, "y": -4 }));
        let nothing = call(&scene, "same-nothing", json!({})).await;
        assert!(loot(&nothing).contains("\nThe function returned nothing.\n"));
    });
}

#[test]
fn wrong_value_is_refused_before_the_component_runs() {
    run(async {
        let scene = scene().await;
        let place = scene.granted.join("written.txt");
        for (tool, arguments) in [
            ("same-large", json!({ "signed": 0, "unsigned": 9_007_199_254_740_993_u64 })),
            ("same-large", json!({ "signed": "9223372036854775808", "unsigned": 0 })),
            ("same-large", json!({ "signed": "", "unsigned": 0 })),
            ("same-floats", json!({ "single": 1e39, "double": 0 })),
            ("same-floats", json!({ "single": "nan", "double": 0 })),
            ("same-letter", json!({ "value": "ab" })),
            ("same-bytes", json!({ "value": "AP8" })),
            ("same-bytes", json!({ "value": "not base64" })),
            ("same-numbers", json!({ "value": [65536] })),
            ("same-draw", json!({ "value": { "tag": "square" } })),
            ("same-draw", json!({ "value": { "tag": "circle" } })),
            ("same-draw", json!({ "value": { "tag": "empty", "value": 1 } })),
            ("same-paint", json!({ "value": "blue" })),
            ("same-grant", json!({ "value": ["read", "delete"] })),
            ("same-inner", json!({ "value": { "ok": 1, "err": "no" } })),
            ("same-perhaps", json!({ "value": 5 })),
            ("odd-write-file", json!({ "path": place, "text": "x", "mode": "x" })),
            ("odd-write-file", json!({ "path": place })),
        ] {
            let answer = call(&scene, tool, arguments.clone()).await;
            let category = answer.outcome.expect_err("the value is wrong").category;
            assert!(
                matches!(category, Category::InvalidParameters | Category::TypeMismatch),
                "{tool} {arguments}: {category:?}"
            );
        }
        assert!(!place.exists(), "the component ran");
    });
}

#[test]
fn case_of_a_variant_is_shown_in_the_form_that_works() {
    let form = r#"{"tag": "circle", "value": 1}"#;
    let cli = Cli::new();
    let file = plugin("every-type").display().to_string();
    let shown = cli.run(&["--plugin", &file, "tools", "every-type__same-draw"]).ends(0).stdout;
    assert!(shown.contains(form) && shown.contains(r#"{"tag": "empty"}"#), "{shown}");
    let wrong = [
        "--plugin",
        &file,
        "call",
        "--yes",
        "every-type__same-draw",
        r#"{"value": {"circle": 2}}"#,
    ];
    let refused = cli.run(&wrong).ends(2);
    assert!(refused.stderr.contains(form), "{}", refused.stderr);
    let right = [
        "--plugin",
        &file,
        "call",
        "--yes",
        "every-type__same-draw",
        &format!(r#"{{"value": {form}}}"#),
    ];
    let answer = cli.run(&right).ends(0).stdout;
    assert!(answer.contains("circle"), "{answer}");
}

#[test]
fn error_of_a_result_is_the_failure_of_the_tool() {
    run(async {
        let scene = scene().await;
        let answer = call(&scene, "odd-divide", json!({ "a": 1, "b": 0 })).await;
        let said = failure(&answer, Category::PermanentFailure, None);
        assert_eq!(said.message, "`divide` failed: can't divide 1 by 0");
        assert_eq!(said.structured, Some(json!({ "error": "can't divide 1 by 0" })));
        let answer = call(&scene, "odd-find", json!({ "name": "x" })).await;
        let said = failure(&answer, Category::PermanentFailure, Some("not-found"));
        assert_eq!(said.structured, Some(json!({ "error": "not-found" })));
        let answer = call(&scene, "odd-fail", json!({})).await;
        assert_eq!(failure(&answer, Category::PermanentFailure, None).message, "`fail` failed");
    });
}

#[test]
fn function_reaches_what_its_component_was_granted_and_no_more() {
    run(async {
        let scene = scene().await;
        let (inside, outside) = (scene.granted.join("public.txt"), scene.outside.join("new.txt"));
        let read = async |path: &Path| call(&scene, "odd-read-file", json!({ "path": path })).await;
        assert_eq!(structured(read(&inside).await), json!({ "result": "public" }));
        // Without a subject, the path isn't known before. The path layer refuses it.
        for path in [scene.secret_file.clone(), scene.granted.join("../outside/secret.txt")] {
            assert!(read(&path).await.outcome.is_err(), "{}", path.display());
        }
        let arguments = json!({ "path": outside, "text": "x" });
        assert!(call(&scene, "odd-write-file", arguments).await.outcome.is_err());
        assert!(!outside.exists());
        let kept = scene.granted.join("kept.txt");
        call(&scene, "odd-write-file", json!({ "path": kept, "text": "x" })).await;
        assert_eq!(fs::read_to_string(kept).expect("it was written"), "x");
    });
}

#[test]
fn crash_answers_with_the_end_of_standard_error() {
    run(async {
        let scene = scene().await;
        let words = format!(
            "{}\npassword = \"hunter2hunter2\"\nlast words \u{202e}\u{1b}[2J",
            "noise and more noise\n".repeat(5000)
        );
        let answer = call(&scene, "odd-crash", json!({ "words": words })).await;
        let content = &failure(&answer, Category::PermanentFailure, Some("crash")).content;
        let text: String = content.iter().filter_map(|part| part.as_text()).collect();
        assert!(text.contains("last words") && text.contains("this is a crash"), "{text}");
        assert!(!text.contains("hunter2") && text.len() < 2300, "{} {text}", text.len());
        assert!(!text.contains(['\u{202e}', '\u{1b}']), "{text:?}");
        scene.assert_serves().await;
    });
}

#[test]
fn function_that_floods_or_never_ends_is_stopped() {
    run(async {
        let scene = scene().await;
        // Few bytes, but many values for the host.
        let answer = call(&scene, "odd-flood", json!({ "count": 3_000_000 })).await;
        failure(&answer, Category::PermanentFailure, Some("result_limit"));
        let answer = call(&scene, "odd-flood", json!({ "count": 100_000_000 })).await;
        failure(&answer, Category::PermanentFailure, Some("memory_limit"));
        let answer = call(&scene, "odd-spin", json!({})).await;
        let ended = answer.outcome.expect_err("it never ends");
        assert!(
            ended.category == Category::Timeout || ended.code.as_deref() == Some("cpu_budget"),
            "{ended:?}"
        );
        // More text than an answer may have.
        let long = json!({ "value": "x".repeat(700_000) });
        let answer = call(&scene, "same-text", long).await;
        failure(&answer, Category::PermanentFailure, Some("result_limit"));
        scene.assert_serves().await;
    });
}

#[test]
fn functions_that_are_no_tools_are_listed_with_the_reason() {
    let cli = Cli::new();
    let file = plugin("every-type");
    let file = file.to_str().expect("the path is UTF-8");
    let shown: Value = cli.run(&["plugin", "inspect", file, "--json"]).ends(0).json();
    assert_eq!(shown["name"], "every-type");
    assert_eq!((&shown["version"], &shown["without_manifest"]), (&json!("1.2.3"), &json!(true)));
    assert_eq!(shown["capabilities"][0]["name"], "files");
    let left_out: Vec<&str> =
        shown["left_out"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (function, reason) in [
        ("example:every/odd@1.2.3.[constructor]counter", "belongs to a resource"),
        ("example:every/odd@1.2.3.[method]counter.next", "belongs to a resource"),
        ("example:every/odd@1.2.3.count", "uses a resource"),
        ("example:every/odd@1.2.3.a-name-that", "the limit is 38"),
    ] {
        let found = left_out.iter().find(|one| one.starts_with(function));
        assert!(found.is_some_and(|one| one.contains(reason)), "{function}: {left_out:?}");
    }
    assert_eq!(left_out.len(), 4, "{left_out:?}");
    let names = shown["tools"].as_array().expect("it has tools").iter();
    assert!(names.clone().any(|tool| tool["name"] == "every-type__odd-divide"));
    assert_eq!(names.count(), 25);
    let text = cli.run(&["plugin", "inspect", file]).ends(0).stdout;
    assert!(
        text.contains("Rules about paths only check") && text.contains("no manifest"),
        "{text}"
    );
}

#[test]
fn unknown_component_waits_for_approval_and_its_tools_ask() {
    run(async {
        let living = Living::new();
        let bytes = fs::read(plugin("every-type")).expect("it was built");
        // The file's name, since nothing else names it.
        living.put("mine", &bytes);
        let host = living.host(&["tools.autonomy=supervised"]).await;
        assert!(waiting(&host, "mine").contains("never approved"), "it was not approved");
        living.approve("mine");
        let host = living.host(&["tools.autonomy=supervised"]).await;
        let person = Person::saying(Reply::No { by: "a test".to_owned(), reason: String::new() });
        let request = Request {
            approver: Some(Arc::clone(&person) as _),
            ..Request::new("mine__greet", json!({ "name": "you" }))
        };
        let answer = host.call(request).await;
        failure(&answer, Category::PolicyBlocked, Some("denied_by_user"));
        let asked = person.asked();
        let text = asked.first().expect("it asks").to_text();
        assert!(
            text.contains("rules about paths don't check the files that this tool uses"),
            "{text}"
        );
        // The next host knows the component, and still its name.
        let host = living.host(&[]).await;
        let request = Request::new("mine__greet", json!({ "name": "you" }));
        assert!(loot(&host.call(request).await).contains("\nHello, you!\n"));
    });
}

#[test]
fn documentation_is_shown_bounded_and_neutralised() {
    let bomb = format!(r#"{{"docs":"{}"}}"#, "x".repeat(1 << 20));
    let deep = format!("{}1{}", r#"{"docs":"#.repeat(20_000), "}".repeat(20_000));
    let told = json!({
        "docs": "About \u{1b}[2Jit all",
        "worlds": { "w": { "func_exports": { "f": { "docs": format!("Does \u{202e}f. {}", "y".repeat(9000)) } } } },
    })
    .to_string();
    let cli = Cli::new();
    let file = cli.work().join("told.wasm");
    let file = file.to_str().expect("the path is UTF-8");
    let mut bytes = component(&[("f", "", "u32")]);
    for docs in [&bomb, &deep, &told] {
        bytes.extend(section("package-docs", format!("\u{1}{docs}").as_bytes()));
    }
    fs::write(file, bytes).expect("the component is written");
    let shown: Value = cli.run(&["plugin", "inspect", file, "--json"]).ends(0).json();
    let description = shown["description"].as_str().expect("it has a description");
    assert!(description.starts_with("About") && description.ends_with("it all"), "{description}");
    let tool = shown["tools"][0]["description"].as_str().expect("the tool has a description");
    assert!(tool.starts_with("Does ") && tool.ends_with("`f: func(value: list<u32>)`"), "{tool}");
    assert!(tool.len() <= 4096, "{}", tool.len());
    for text in [description, tool] {
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn types_that_explode_cost_only_their_function() {
    // Each type is two of the one before: a short text that stands for 2^14 numbers.
    let mut types = String::from("(type $t0 (tuple u8 u8))");
    for level in 1..14 {
        let _ = write!(types, " (type $t{level} (tuple $t{} $t{}))", level - 1, level - 1);
    }
    let mut deep = String::from("(type $d0 (list u16))");
    for level in 1..40 {
        let _ = write!(deep, " (type $d{level} (list $d{}))", level - 1);
    }
    let names: String = (0..4000).map(|at| format!("\"name-number-{at}\" ")).collect();
    let long = format!("(type $e0 (enum {names})) (export $e \"e\" (type $e0))");
    let cli = Cli::new();
    let file = cli.work().join("explodes.wasm");
    let functions = [
        ("explodes", types.as_str(), "$t13"),
        ("deep", &deep, "$d39"),
        ("long", &long, "$e"),
        ("fine", "", "u8"),
    ];
    fs::write(&file, component(&functions)).expect("the component is written");
    let file = file.to_str().expect("the path is UTF-8");
    let shown: Value = cli.run(&["plugin", "inspect", file, "--json"]).ends(0).json();
    let left_out = shown["left_out"].as_array().expect("some are left out");
    assert_eq!(left_out.len(), 3, "{left_out:?}");
    for (one, reason) in left_out.iter().zip(["10000 parts", "24 levels", "65536 bytes"]) {
        assert!(one.as_str().is_some_and(|text| text.contains(reason)), "{one}: {reason}");
    }
    assert_eq!(shown["tools"][0]["name"], "explodes__fine");
    assert_eq!(shown["tools"].as_array().map(Vec::len), Some(1));
}

#[test]
fn two_functions_never_share_a_name() {
    let text = r#"(component
  (core module $m (func (export "f")))
  (core instance $i (instantiate $m))
  (func $f (canon lift (core func $i "f")))
  (instance $one (export "go" (func $f)))
  (export "a:b/run@1.0.0" (instance $one))
  (export "c:d/run@1.0.0" (instance $one))
  (export "x:b/same" (instance $one))
  (export "y:b/same" (instance $one))
  (export "alone" (func $f)))"#;
    let cli = Cli::new();
    let file = cli.work().join("names.wasm");
    fs::write(&file, wat::parse_str(text).expect("a component")).expect("it is written");
    let file = file.to_str().expect("the path is UTF-8");
    let shown: Value = cli.run(&["plugin", "inspect", file, "--json"]).ends(0).json();
    let tools = shown["tools"].as_array().into_iter().flatten();
    let names: Vec<_> = tools.filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["names__b-run-go", "names__d-run-go", "names__alone"]);
    assert_eq!(shown["left_out"].as_array().map(Vec::len), Some(2), "{}", shown["left_out"]);
}
