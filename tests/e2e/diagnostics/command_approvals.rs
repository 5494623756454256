//! What a plugin chooses to start is decided on as a command of `bash`.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolhold_core::audit::Trail;
use toolhold_core::config::Folders;
use toolhold_core::{Approver, BoxFuture, Category, Question, Reply, Request, Scope, Session};

use super::{RUST, call, found, scene};
use crate::approvals::Person;
use crate::support::{Scene, plugin};

/// Whether cargo has made anything.
fn has_run(scene: &Scene) -> bool {
    scene.granted.join("target").exists() || scene.granted.join("Cargo.lock").exists()
}

fn commands(scene: &Scene) -> Vec<Value> {
    let trail = Trail::open(&Folders::inside(&scene.root().join("toolhold")));
    let all = trail.and_then(|trail| trail.last(usize::MAX)).expect("the log is readable");
    all.into_iter().filter(|record| record["kind"] == "command").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_for_bash_that_denies_holds() {
    let deny = "tools.permissions.bash=[{ pattern = \"cargo *\", action = \"deny\" }]";
    let scene = scene(&[deny], &RUST).await;
    let answer = call(&scene, json!({})).await;
    let failure = answer.outcome.expect_err("it is denied");
    assert_eq!(failure.category, Category::PolicyBlocked, "{failure:?}");
    let denial = failure.denial.expect("it names the rule");
    assert!(denial.rule.contains("cargo *") && denial.place.contains("bash"), "{denial:?}");
    assert!(!has_run(&scene), "nothing ran");
    let [record] = &commands(&scene)[..] else { panic!("one is recorded") };
    assert_eq!(record["call"], json!(answer.id.0), "{record}");
    assert_eq!(
        (&record["result"], &record["chosen_by"], &record["tool"]),
        (&json!("blocked"), &json!("diagnostics"), &json!("bash")),
        "{record}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_gates_of_bash_hold() {
    for setting in [
        "tools.shell.only_commands=[\"git\"]",
        "tools.shell.blocked_commands=[\"cargo check\"]",
        "tools.shell.enabled=false",
        "tools.policy.rules=[{ effect = \"deny\", tools = [\"bash\"] }]",
        "tools.autonomy=read-only",
    ] {
        let scene = scene(&[setting], &RUST).await;
        let failure = call(&scene, json!({})).await.outcome.expect_err("it is denied");
        assert_eq!(failure.category, Category::PolicyBlocked, "{setting}: {failure:?}");
        assert!(!has_run(&scene), "{setting}: nothing ran");
    }
    // Each command counts, and there is a place for the call alone.
    let scene = scene(&["tools.max_tool_calls_per_session=1"], &RUST).await;
    let failure = call(&scene, json!({})).await.outcome.expect_err("it is denied");
    assert_eq!(failure.code.as_deref(), Some("quota_blocked"), "{failure:?}");
    assert!(!has_run(&scene), "nothing ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_command_without_a_person_is_denied_and_nothing_runs() {
    let scene = scene(&["tools.autonomy=ask"], &RUST).await;
    let failure = call(&scene, json!({})).await.outcome.expect_err("nobody agreed");
    assert_eq!(failure.category, Category::ConfirmationRequired, "{failure:?}");
    assert!(failure.message.contains("this call of `bash` needs approval"), "{failure:?}");
    assert!(!has_run(&scene), "nothing ran");

    let asked = async |person: &Arc<Person>, session: &Session, arguments: Value| {
        let approver = Some(Arc::clone(person) as Arc<dyn Approver>);
        let session = Some(session.clone());
        scene
            .host
            .call(Request { approver, session, ..Request::new("diagnostics", arguments) })
            .await
    };
    let (no, session) = (
        Person::saying(Reply::No { by: "a test".to_owned(), reason: "not now".to_owned() }),
        Session::new("one"),
    );
    let failure = asked(&no, &session, json!({})).await.outcome.expect_err("the person said no");
    assert_eq!(failure.code.as_deref(), Some("denied_by_user"), "{failure:?}");
    assert!(failure.message.contains("not now") && !has_run(&scene), "{failure:?}");

    let yes = Person::yes(Scope::Session);
    let answer = asked(&yes, &session, json!({})).await;
    assert!(answer.outcome.expect("it was approved").joined_text().contains("E0308"));
    assert!(has_run(&scene), "the counterpart runs");
    let questions = yes.asked();
    let [question] = &questions[..] else { panic!("one question is asked: {questions:?}") };
    assert_eq!((&*question.tool, &question.id), ("bash", &answer.id));
    let command = question.arguments["command"].as_str().expect("there is a command");
    assert!(command.starts_with("cargo check --offline "), "{command}");
    asked(&yes, &session, json!({})).await.outcome.expect("it is approved for the session");
    assert_eq!(yes.asked().len(), 1);
    // Another command is another question.
    let clippy = json!({ "level": "clippy" });
    asked(&yes, &session, clippy).await.outcome.expect("it was approved");
    assert_eq!(yes.asked().len(), 2);
}

/// Approves after a time.
struct Slow(Duration);

impl Approver for Slow {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async {
            let _ = tokio::time::timeout(self.0, std::future::pending::<()>()).await;
            Reply::Yes { scope: Scope::Once, by: "a test".to_owned() }
        })
    }
}

const THIRD: &str = "plugins.hostile-process.judged_programs=true";

async fn third_party(settings: &[&str]) -> Scene {
    let path = format!("plugins.hostile-process.path={:?}", plugin("hostile-process"));
    let mut all = vec![
        path.as_str(),
        "plugins.hostile-process.reload=trust",
        "plugins.hostile-process.allowed_paths=[\"{granted}\"]",
        THIRD,
    ];
    all.extend(settings);
    scene(&all, &[]).await
}

async fn run(scene: &Scene, arguments: Value) -> toolhold_core::Answer {
    let approver = Some(Person::yes(Scope::Once) as Arc<dyn Approver>);
    let request = Request::new("hostile-process__run_program", arguments);
    scene.host.call(Request { approver, ..request }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn time_for_a_person_does_not_count() {
    // The call may take a second.
    let scene = third_party(&["tools.autonomy=ask"]).await;
    let approver = Some(Arc::new(Slow(Duration::from_millis(2500))) as Arc<dyn Approver>);
    let arguments = json!({ "words": ["touch", "made"] });
    let request = Request::new("hostile-process__run_program", arguments);
    let answer = scene.host.call(Request { approver, ..request }).await;
    assert!(scene.granted.join("made").exists(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn third_party_plugin_starts_what_bash_may_and_nothing_else() {
    let deny = "tools.permissions.bash=[{ pattern = \"touch denied*\", action = \"deny\" }, \
                { pattern = \"*\", action = \"allow\" }]";
    let scene = third_party(&[deny]).await;
    let made = |name: &str| scene.granted.join(name).exists();
    run(&scene, json!({ "words": ["touch", "made"] })).await;
    assert!(made("made"), "the counterpart runs");
    for words in [
        json!(["touch", "denied"]),
        json!(["env", "touch", "denied"]),
        json!(["sh", "-c", "touch denied"]),
        json!(["sudo", "touch", "denied2"]),
    ] {
        let answer = run(&scene, json!({ "words": words })).await;
        assert!(answer.outcome.is_err(), "{words}: {answer:?}");
    }
    assert!(!made("denied") && !made("denied2"));
    // What the gates don't read has no effect: the standard input.
    let script = json!({ "words": ["sh"], "input": "touch denied" });
    run(&scene, script).await;
    assert!(!made("denied"));
    // The folder and the variables are a part of what they read.
    fs::create_dir(scene.granted.join("sub")).expect("it is made");
    let arguments = json!({
        "words": ["touch", "made2"],
        "directory": scene.granted.join("sub"),
        "environment": { "A": "b c" },
    });
    run(&scene, arguments).await;
    let records = commands(&scene);
    let last = records.last().expect("there is one")["arguments"]["command"].to_string();
    if made("sub/made2") {
        assert!(
            last.contains("cd -- ") && last.contains("&& ") && last.contains("A='b c' touch"),
            "{last}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_grant_nothing_is_judged() {
    let scene = third_party(&[
        "plugins.hostile-process.judged_programs=false",
        "plugins.hostile-process.programs=[\"true\"]",
        "tools.permissions.bash=[{ pattern = \"*\", action = \"allow\" }]",
    ])
    .await;
    run(&scene, json!({ "words": ["touch", "made"] })).await;
    assert!(!scene.granted.join("made").exists());
    assert!(commands(&scene).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn allowed_command_is_recorded_before_its_call_ends() {
    let scene = scene(&[], &RUST).await;
    found(&scene, json!({})).await;
    let [record] = &commands(&scene)[..] else { panic!("one is recorded") };
    assert_eq!(record["result"], "allowed", "{record}");
    assert!(record["gate"].is_string() && record["rule"].is_string(), "{record}");
}
