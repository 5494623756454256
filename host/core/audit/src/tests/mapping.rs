//! The mapping of entries to the Elastic Common Schema in `docs/enterprise.md`, against entries of
//! every kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use toolhold_contract::{
    Access, CallId, Category, Definition, Failure, Report, RequestRecord, SubjectKind,
};
use toolhold_policy::{Decision, Gate, ResolvedSubject, Trust, Verdict};

use super::Scene;
use crate::chain::Key;
use crate::kind::Kind;
use crate::origin::{EntryOrigin, User};
use crate::record::{self, *};

/// The types that the schema expects with each category that the mapping uses.
const SCHEMA: [(&str, &[&str]); 5] = [
    (
        "api",
        &[
            "access", "admin", "allowed", "change", "creation", "deletion", "denied", "end",
            "info", "start", "user",
        ],
    ),
    ("configuration", &["access", "change", "creation", "deletion", "info"]),
    ("file", &["access", "change", "creation", "deletion", "info"]),
    ("network", &["access", "allowed", "connection", "denied", "end", "info", "protocol", "start"]),
    ("process", &["access", "change", "end", "info", "start"]),
];

/// The kinds, each after the one before. A new kind doesn't compile without its place here.
fn next(kind: Option<Kind>) -> Option<Kind> {
    Some(match kind {
        None => Kind::Intent,
        Some(Kind::Intent) => Kind::Approval,
        Some(Kind::Approval) => Kind::Command,
        Some(Kind::Command) => Kind::Egress,
        Some(Kind::Egress) => Kind::Outcome,
        Some(Kind::Outcome) => Kind::Rollback,
        Some(Kind::Rollback) => Kind::Inquiry,
        Some(Kind::Inquiry) => Kind::JobBegin,
        Some(Kind::JobBegin) => Kind::JobEnd,
        Some(Kind::JobEnd) => Kind::Request,
        Some(Kind::Request) => Kind::Begin,
        Some(Kind::Begin) => Kind::End,
        Some(Kind::End) => Kind::Note,
        Some(Kind::Note) => return None,
    })
}

fn kinds() -> BTreeSet<&'static str> {
    std::iter::successors(next(None), |kind| next(Some(*kind))).map(Kind::as_str).collect()
}

fn mapping() -> Value {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/enterprise.md");
    let page = fs::read_to_string(page).expect("the page is readable");
    let blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut mappings = blocks.filter(|block| block.contains("\"processors\""));
    serde_json::from_str(mappings.next().expect("the page has the mapping")).expect("it is JSON")
}

/// The fields of entries that the mapping names, as `toolhold.NAME`.
fn named(mapping: &Value) -> BTreeSet<String> {
    let text = mapping.to_string();
    let fields = text.split("toolhold.").skip(1).map(|rest| {
        let is_part = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_';
        rest.chars().take_while(is_part).collect()
    });
    fields.collect()
}

/// A log with entries of every kind, as the functions of this crate write them.
fn entries() -> Vec<Value> {
    let scene = Scene::with(4096, 0);
    let key = Key::new(&[7; 32]);
    let mut log = scene.open();
    calls(&key).into_iter().for_each(|entry| log.append(&entry).expect("it is recorded"));
    drop(log);
    // The log can't know whether it ended there.
    fs::remove_file(scene.path("head")).expect("it is removed");
    scene.append(1);
    scene.trail().last(1000).expect("the log is readable")
}

/// Entries of calls: each kind, each result, and each field that some of them have.
fn calls(key: &Key) -> Vec<Vec<u8>> {
    let user = User {
        name: "anna".to_owned(),
        issuer: Some("https://login.example.org".to_owned()),
        groups: vec!["dev".to_owned()],
    };
    let origin = &EntryOrigin { front_end: "toolhold test".into(), user: Some(user) };
    let definition = Definition::new("write", "Writes.", json!({ "type": "object" }));
    let subject = ResolvedSubject {
        kind: SubjectKind::Command,
        access: Access::Write,
        text: "make".to_owned(),
    };
    let decision = Decision {
        verdict: Verdict::Ask,
        gate: Gate::Policy,
        rule: "tool = \"write\"".into(),
        place: "built in".into(),
        remedy: "".into(),
    };
    let id = CallId::from("c-1".to_owned());
    let call = || CallRecord {
        id: &id,
        requested_tool: "write",
        tool: Some(ToolRecord {
            definition: &definition,
            provider: SourceRecord::Plugin { name: "file", digest: "00" },
        }),
        arguments: &Value::Null,
        subjects: std::slice::from_ref(&subject),
        attachments: 0,
        decision: Some(&decision),
        approval: Some(("u", "once")),
        review: None,
        session: "s",
        caller: Some("agent"),
        phase: None,
        trust: Trust::Trusted,
    };
    let outcome = |category| {
        let failure = Failure::new(category, "broke").with_code("exit-status");
        let record = OutcomeRecord {
            call: call(),
            outcome: &Err(failure),
            duration: Duration::from_millis(1),
            waited: Duration::ZERO,
            attempts: 1,
            acts: true,
            cached: false,
            truncated: false,
            filtered: None,
            injections: &[],
            report: &Report::default(),
            snapshot: None,
        };
        record::outcome(key, &record, origin)
    };
    let request = RequestRecord {
        began: Duration::from_secs(1),
        method: "GET".to_owned(),
        url: "https://a.example/".to_owned(),
        hop: 0,
        address: Some([192, 0, 2, 1].into()),
        job: None,
        status: Some(200),
        received: 7,
        sent: 5,
        program: Some("npm".to_owned()),
        time: Duration::from_millis(1),
        secrets: Vec::new(),
        failed: Some("reset".to_owned()),
        refused: false,
    };
    let own_request = OwnRequestRecord {
        purpose: "plugin",
        began: request.began,
        method: "GET",
        url: &request.url,
        hop: 0,
        address: request.address,
        status: request.status,
        received: 7,
        sent: 5,
        program: request.program.as_deref(),
        secrets: &request.secrets,
        time: request.time,
        refused: false,
        failed: None,
    };
    let rollback =
        RollbackRecord { call: "c-1", tool: "write", session: "s", by: "u", error: None };
    let inquiry = InquiryRecord {
        call: "c-1",
        tool: "write",
        provider: "file",
        wanted: "form",
        answer: None,
        session: "s",
    };
    let job = |end| JobRecord { job: "j-1", call: "c-1", tool: "bash", session: "s", end };
    let ended = job(Some((Some(0), "exited", Duration::from_secs(1))));
    let failures = [
        Category::PolicyBlocked,
        Category::Timeout,
        Category::Cancelled,
        Category::PermanentFailure,
    ];
    let mut all = vec![
        record::intent(key, &call(), origin),
        record::approval(key, &call(), origin, "u", "yes", Some("once")),
        record::command(key, &call(), origin, "diagnostics", true),
        record::rollback(key, &rollback, origin),
        record::inquiry(key, &inquiry, origin),
        record::job(key, &job(None), origin),
        record::job(key, &ended, origin),
        record::own_request(key, &own_request, origin),
    ];
    all.extend(record::requests(key, &call(), origin, &[request], 0));
    all.extend(failures.map(outcome));
    all
}

#[test]
fn siem_mapping_fits_real_entries() {
    let (mapping, entries) = (mapping(), entries());
    let found = |field: &str| -> BTreeSet<&str> {
        entries.iter().filter_map(|entry| entry[field].as_str()).collect()
    };
    assert_eq!(found("kind"), kinds(), "an entry of each kind");
    for field in named(&mapping) {
        let has = |entry: &Value| entry.get(&field).is_some();
        assert!(entries.iter().any(has), "no entry has `{field}`");
    }

    let processors = mapping["processors"].as_array().expect("it has processors");
    let script = processors.iter().find_map(|each| each.get("script")).expect("it has a script");
    let mapped: BTreeMap<String, [Vec<String>; 2]> =
        serde_json::from_value(script["params"]["kinds"].clone()).expect("categories and types");
    assert_eq!(mapped.keys().map(String::as_str).collect::<BTreeSet<_>>(), kinds());
    for (kind, [categories, types]) in &mapped {
        let allowed = SCHEMA.iter().filter(|(name, _)| categories.iter().any(|each| each == name));
        let allowed: Vec<&str> = allowed.flat_map(|(_, types)| types.iter().copied()).collect();
        assert!(!types.is_empty(), "{kind}");
        assert!(types.iter().all(|each| allowed.contains(&each.as_str())), "{kind}: {types:?}");
    }
    let outcomes = script["params"]["outcomes"].as_object().expect("it has outcomes");
    for result in found("result") {
        assert!(outcomes.contains_key(result), "`{result}` has no outcome");
    }
    assert!(outcomes.values().all(|outcome| *outcome == "success" || *outcome == "failure"));

    let targets: Vec<&str> =
        processors.iter().filter_map(|each| each["rename"]["target_field"].as_str()).collect();
    let distinct: BTreeSet<&str> = targets.iter().copied().collect();
    assert_eq!(distinct.len(), targets.len(), "each has its own field: {targets:?}");
}
