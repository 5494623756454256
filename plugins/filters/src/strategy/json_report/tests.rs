//! Tests of `json_report` for the reports of each test runner and linter.

use super::super::testing::{check, steps};
use super::*;

const REPORT: &str = "{ type = 'json_report' }";

fn shorten(text: &str) -> String {
    super::super::run(&steps(REPORT).unwrap(), text, true).map_or(text.to_owned(), |(text, _)| text)
}

#[test]
fn libtest_events_of_passed_tests_are_left_out() {
    check(
        REPORT,
        true,
        r#"{ "type": "suite", "event": "started", "test_count": 3 }
{ "type": "test", "event": "started", "name": "a::one" }
{ "type": "test", "name": "a::one", "event": "ok" }
{ "type": "test", "event": "started", "name": "a::two" }
{ "type": "test", "name": "a::two", "event": "failed", "stdout": "panicked at src/a.rs:3:5:\nno\n" }
{ "type": "suite", "event": "failed", "passed": 1, "failed": 1 }
"#,
        r#"... (4 lines left out) ...
{ "type": "test", "name": "a::two", "event": "failed", "stdout": "panicked at src/a.rs:3:5:\nno\n" }
{ "type": "suite", "event": "failed", "passed": 1, "failed": 1 }
"#,
        Confidence::Full,
    );
}

#[test]
fn failure_in_the_output_of_a_passed_test_stays() {
    let ok = r#"{"type":"test","name":"a","event":"ok"}"#;
    let odd = r#"{"type":"test","name":"b","event":"ok","stdout":"error: the disk is full\n"}"#;
    let text = format!("{ok}\n{odd}\n{ok}\n").repeat(3);
    assert_eq!(shorten(&text).matches(odd).count(), 3);
    assert!(!shorten(&text).contains(ok));
    let go = |action: &str, more: &str| {
        format!(
            "{{\"Time\":\"2026\",\"Action\":\"{action}\",\"Package\":\"p\",\"Test\":\"T\"{more}}}\n"
        )
    };
    let text = [
        go("run", ""),
        go("output", ",\"Output\":\"all is well\\n\""),
        go("output", ",\"Output\":\"error: the disk is full\\n\""),
        go("pass", ""),
    ]
    .concat();
    assert!(shorten(&text).contains("error: the disk is full"));
    assert!(!shorten(&text).contains("all is well"));
}

#[test]
fn go_test_that_failed_once_keeps_its_output() {
    let go = |action: &str, more: &str| {
        format!(
            "{{\"Time\":\"2026\",\"Action\":\"{action}\",\"Package\":\"p\",\"Test\":\"T\"{more}}}\n"
        )
    };
    let text = [
        go("run", ""),
        go("output", ",\"Output\":\"    a_test.go:3: got 1\\n\""),
        go("output", ",\"Output\":\"        want 2\\n\""),
        go("fail", ""),
        go("run", ""),
        go("pass", ""),
    ]
    .concat();
    assert_eq!(
        shorten(&text),
        r#"... (1 line left out) ...
{"Action":"output","Package":"p","Test":"T","Output":"    a_test.go:3: got 1\n        want 2\n"}
{"Action":"fail","Package":"p","Test":"T"}
... (2 lines left out) ...
"#
    );
    // A test that never ended may be the one that hangs.
    let text = [go("run", ""), go("output", ",\"Output\":\"waiting\\n\"").repeat(9)].concat();
    assert!(shorten(&text).contains("waiting"));
}

#[test]
fn cargo_messages_keep_text_and_place_once() {
    let artifact = r#"{"reason":"compiler-artifact","package_id":"a","target":{"name":"a"}}"#;
    let message = r#"{"reason":"compiler-message","package_id":"a","target":{"name":"a"},"message":{"rendered":"error: no\n --> src/a.rs:3:4\n","level":"error","message":"no","code":{"code":"E1","explanation":"long"},"spans":[{"file_name":"src/a.rs","line_start":3,"column_start":4,"is_primary":true,"text":[]}],"children":[]}}"#;
    let end = r#"{"reason":"build-finished","success":false}"#;
    check(
        REPORT,
        true,
        &format!("{artifact}\n{message}\n{message}\n{end}\n"),
        &format!(
            "... (1 line left out) ...\n{}\n... (1 line left out) ...\n{end}\n",
            r#"{"reason":"compiler-message","message":{"level":"error","code":"E1","message":"no","spans":[{"file_name":"src/a.rs","line_start":3,"column_start":4}],"rendered":"error: no\n --> src/a.rs:3:4\n"}}"#
        ),
        Confidence::Full,
    );
}

#[test]
fn eslint_report_keeps_every_finding() {
    let clean = r#"{"filePath":"/a/clean.js","messages":[],"errorCount":0,"source":"x"}"#;
    let text = format!(
        "npm warn\n[{clean},{}]\nafter\n",
        r#"{"filePath":"/a/bad.js","messages":[{"ruleId":"semi","severity":2,"message":"Missing semicolon","line":3,"column":5,"nodeType":"X","messageId":"y","endLine":3,"fix":{"range":[1,2],"text":";"}}],"errorCount":1,"source":"let a\n"}"#
    );
    assert_eq!(
        shorten(&text),
        r#"npm warn
[
{"filePath":"/a/bad.js","messages":[{"ruleId":"semi","severity":2,"message":"Missing semicolon","line":3,"column":5}],"errorCount":1}]
... (1 entry without failures left out) ...
after
"#
    );
}

#[test]
fn jest_report_keeps_failures_and_suites_that_did_not_run() {
    let text = r#"{"numFailedTests":1,"numPassedTests":2,"testResults":[
{"name":"/a.js","status":"failed","message":"again","assertionResults":[
{"fullName":"adds","status":"passed","failureMessages":[]},
{"fullName":"fails","status":"failed","failureMessages":["\u001b[31mError\u001b[39m: no\n    at f (/home/u/a.js:3:4)\n    at g (/home/u/node_modules/x/b.js:3:4)\n    at h (/home/u/node_modules/x/c.js:3:4)"]}]},
{"name":"/b.js","status":"failed","message":"Cannot find module 'y'","assertionResults":[]},
{"name":"/c.js","status":"passed","message":"","assertionResults":[{"fullName":"c","status":"passed","failureMessages":[]}]}]}"#;
    let short = shorten(text);
    for kept in
        ["\"fails\"", "Error: no\\n    at f (/home/u/a.js:3:4)", "Cannot find module 'y'", "/a.js"]
    {
        assert!(short.contains(kept), "{kept}: {short}");
    }
    for gone in ["adds", "node_modules", "again", "/c.js", "001b"] {
        assert!(!short.contains(gone), "{gone}: {short}");
    }
}

#[test]
fn pytest_report_keeps_failures_in_every_phase() {
    let test = |name: &str, outcome: &str, more: &str| {
        format!(
            r#"{{"nodeid":"t.py::{name}","lineno":3,"outcome":"{outcome}","keywords":["{name}","k"]{more}}}"#
        )
    };
    let text = format!(
        r#"{{"created":1.5,"exitcode":1,"root":"/a","summary":{{"passed":1,"failed":1}},"tests":[{},{},{}]}}"#,
        test("adds", "passed", ",\"call\":{\"outcome\":\"passed\"}"),
        test(
            "fails",
            "failed",
            ",\"setup\":{\"outcome\":\"passed\"},\"call\":{\"outcome\":\"failed\",\"crash\":{\"path\":\"/a/t.py\",\"lineno\":3,\"message\":\"assert 1 == 2\"},\"traceback\":[{\"path\":\"t.py\"}]}"
        ),
        test("ends", "passed", ",\"teardown\":{\"outcome\":\"failed\",\"longrepr\":\"no\"}"),
    );
    let short = shorten(&text);
    for kept in [
        "t.py::fails",
        "assert 1 == 2",
        "traceback",
        "t.py::ends",
        "\"longrepr\":\"no\"",
        "summary",
    ] {
        assert!(short.contains(kept), "{kept}: {short}");
    }
    assert!(!short.contains("t.py::adds") && !short.contains("keywords"), "{short}");
}

#[test]
fn other_json_stays() {
    for text in [
        "{\"a\":1}\n".repeat(100),
        format!("[{}1]", "1,".repeat(500)),
        format!("{{\"testResults\":[{}", "{\"status\":\"passed\"},".repeat(100)),
        "[".repeat(100_000),
        "{\"reason\":".repeat(10_000),
        "{\"reason\":1,\"event\":2,\"Action\":3}\n".repeat(100),
    ] {
        assert_eq!(shorten(&text), text);
    }
}
