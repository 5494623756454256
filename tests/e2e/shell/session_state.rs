//! What the commands of a session hand on to each other, and what a forged record can't do.

use std::fs;

use serde_json::{Value, json};
use toolhold_core::{Audience, Category, Host, Request, Scope, Session};

use super::{scene, yes};
use crate::approvals::Person;
use crate::support::Scene;

async fn carrying(settings: &[&str]) -> Scene {
    let settings: Vec<&str> =
        ["tools.shell.session=true"].into_iter().chain(settings.iter().copied()).collect();
    scene(&settings, |work| {
        for folder in ["sub", "other", "gone"] {
            fs::create_dir(work.join("granted").join(folder)).expect("it is made");
        }
    })
    .await
}

/// The text of an answer, and its failure's message.
pub(super) async fn answer(host: &Host, session: &Session, arguments: Value) -> (String, String) {
    let request = Request {
        session: Some(session.clone()),
        approver: Some(yes()),
        audience: Audience::Person,
        ..Request::new("bash", arguments)
    };
    match host.call(request).await.outcome {
        Ok(output) => (output.joined_text(), String::new()),
        Err(failure) => (failure.joined_text(), failure.message),
    }
}

async fn text(host: &Host, session: &Session, command: &str) -> String {
    answer(host, session, json!({ "command": command })).await.0
}

/// The directory of the next command below the granted one, and some of its variables.
async fn state(scene: &Scene, session: &Session) -> String {
    let text = text(&scene.host, session, "pwd; echo \"${A-none} ${B-none}\"").await;
    text.replace(&*scene.granted.to_string_lossy(), "")
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_and_exported_variables_are_carried_over_however_a_command_exits() {
    let scene = carrying(&[]).await;
    let host = &scene.host;
    for (command, left) in [
        ("cd sub; export A='it'\"'\"'s' B=2", "/sub\nit's 2\n"),
        ("cd sub && export A=1; false", "/sub\n1 none\n"),
        ("cd sub; export A=$'x\\ny'; exit 3", "/sub\nx\ny none\n"),
        ("set -eu; cd sub; export A=1; false; cd ..", "/sub\n1 none\n"),
        ("set -x; cd sub; export A=", "/sub\n none\n"),
        ("trap 'echo failed' ERR; cd sub; false", "/sub\nnone none\n"),
        ("cd sub; A=1; B=2 true; (cd ../other; export A=3)", "/sub\nnone none\n"),
        ("IFS=A; cd sub; export A=1; f() { exit 1; }; f", "/sub\n1 none\n"),
        ("cd sub; export A=1; if", "\nnone none\n"),
        ("cd sub\nexport A=1\nif", "/sub\n1 none\n"),
    ] {
        let session = Session::new(command);
        text(host, &session, command).await;
        assert_eq!(state(&scene, &session).await, left, "{command}");
    }
    let session = Session::new("several");
    text(host, &session, "cd sub; export A=1 B=2").await;
    // What a command takes back is taken back, and the numbers of its lines are its own.
    let seen = text(host, &session, "echo $LINENO $BASH_ENV\necho $LINENO; unset A; cd ..").await;
    assert_eq!(seen, "1\n2\n");
    assert_eq!(state(&scene, &session).await, "\nnone 2\n");
    assert_eq!(state(&scene, &Session::new("stranger")).await, "\nnone none\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_carried_over_unless_the_operator_wants_it() {
    let scene = scene(&[], |_| {}).await;
    let session = Session::new("one");
    text(&scene.host, &session, "cd /; export A=1").await;
    assert_eq!(state(&scene, &session).await, "\nnone none\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_leaves_no_record_changes_nothing_and_the_answer_says_so() {
    let scene = carrying(&[]).await;
    let (host, session) = (&scene.host, Session::new("one"));
    text(host, &session, "cd sub; export A=1").await;
    for command in [
        "cd ../other; exec true",
        "cd ../other; trap 'echo bye' EXIT",
        "cd ../other; export A=2; kill -9 $$",
    ] {
        let told = text(host, &session, command).await;
        assert!(
            told.contains("the variables of this command: the command left no record"),
            "{command}: {told}"
        );
        assert_eq!(state(&scene, &session).await, "/sub\n1 none\n", "{command}");
    }
    let late = json!({ "command": "cd ../other; sleep 60", "timeout": 1 });
    let (_, failure) = answer(host, &session, late).await;
    assert!(!failure.is_empty());
    assert_eq!(state(&scene, &session).await, "/sub\n1 none\n");
    let many = "cd ../other; for i in $(seq 70); do export V$i=1; done";
    assert!(text(host, &session, many).await.contains("the limits are 64, 16384 and 4096"));
    let long = "cd ../other; export A=$(head -c 5000 /dev/zero | tr '\\0' x)";
    assert!(text(host, &session, long).await.contains("the limits are"));
    assert_eq!(state(&scene, &session).await, "/sub\n1 none\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_that_is_gone_or_not_granted_is_not_used() {
    let scene = carrying(&[]).await;
    let (host, session) = (&scene.host, Session::new("one"));
    for (command, reason) in [
        ("cd gone; rmdir ../gone", "is no longer a directory"),
        ("cd /usr", "allowed_paths"),
        ("cd /tmp", "allowed_paths"),
        ("cd /proc/self/root/etc", "allowed_paths"),
    ] {
        text(host, &session, command).await;
        let told = text(host, &session, "pwd").await;
        let usual = format!("{}\n", scene.granted.display());
        assert!(told.contains(&usual) && told.contains(reason), "{command}: {told}");
        assert!(
            told.contains("This command started in the default directory"),
            "{command}: {told}"
        );
        assert_eq!(text(host, &session, "pwd").await, usual, "it is said once: {command}");
    }
}

/// Writes a record of its own into the pipe that is for it.
fn forging(record: &str) -> String {
    format!("trap - EXIT; printf '{record}' >&50; true")
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_record_gives_nothing_that_the_command_line_could_not_have() {
    let settings = [
        "tools.permissions.bash=[{pattern=\"export *DEPLOY=*\", action=\"deny\"}]",
        "tools.shell.only_commands=[\"trap\", \"pwd\", \"printenv\", \"head\", \"tr\", \"true\", \"seq\"]",
    ];
    let scene = carrying(&settings).await;
    let host = &scene.host;
    let of = async |record: &str, next: &str| {
        let session = Session::new(format!("{record} {next}"));
        text(host, &session, &forging(record)).await;
        answer(host, &session, json!({ "command": next })).await
    };
    // It works at all.
    let (shown, _) = of("toolhold-state\\0/\\0A=forged\\0end\\0", "printenv A").await;
    assert!(shown.contains("forged"), "{shown}");
    let outside = scene.root().join("outside");
    let record = format!("toolhold-state\\0{}\\0end\\0", outside.display());
    let (shown, _) = of(&record, "pwd").await;
    assert!(shown.contains(&*scene.granted.to_string_lossy()), "{shown}");
    for name in ["PATH", "LD_PRELOAD", "BASH_ENV", "GIT_DIR", "PYTHONPATH", "HOME", "IFS"] {
        let record = format!("toolhold-state\\0/\\0{name}=forged\\0end\\0");
        let (shown, failure) = of(&record, &format!("printenv {name} || true")).await;
        assert!(!shown.contains("forged") && failure.is_empty(), "{name}: {shown} {failure}");
    }
    let function = "toolhold-state\\0/\\0BASH_FUNC_pwd%%%%=() { printenv A; }\\0A=forged\\0end\\0";
    let (shown, _) = of(function, "pwd").await;
    assert!(!shown.contains("forged"), "{shown}");
    // The gates see the variable, and a program in it.
    let (_, refused) = of("toolhold-state\\0/\\0DEPLOY=1\\0end\\0", "true").await;
    assert!(refused.contains("DEPLOY"), "{refused}");
    let (_, refused) = of("toolhold-state\\0/\\0EDITOR=rm x\\0end\\0", "true").await;
    assert!(refused.contains("only_commands"), "{refused}");
    for record in
        ["toolhold-state\\0/\\0A=1\\0", "%70000s", "toolhold-state\\0/\\0end\\0\\0", "end\\0"]
    {
        let session = Session::new(record);
        let told = text(host, &session, &forging(record)).await;
        assert!(told.contains("the command's record isn't valid"), "{record}: {told}");
        assert!(text(host, &session, "printenv A || true").await.trim().is_empty(), "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_at_the_same_time_change_only_what_they_changed_and_jobs_nothing() {
    let scene = carrying(&[]).await;
    let (host, session) = (&scene.host, Session::new("one"));
    text(host, &session, "export A=1").await;
    let job = json!({ "command": "pwd; echo $A > seen; cd other; export A=9; touch done", "background": true });
    answer(host, &session, job).await;
    let [one, other] = [("cd sub", "x", "y"), ("export B=2", "y", "x")].map(|(what, own, its)| {
        format!(
            "{what}; : > $OLDPWD{0}/{own}; until [ -e {0}/{its} ]; do sleep 0.02; done",
            scene.granted.display()
        )
    });
    let (one, other) = (one.replace("$OLDPWD", ""), other.replace("$OLDPWD", ""));
    tokio::join!(text(host, &session, &one), text(host, &session, &other));
    // A notice that the job has ended may follow.
    assert!(state(&scene, &session).await.starts_with("/sub\n1 2\n"));
    let waits = "until [ -e ../other/done ]; do sleep 0.02; done; cat ../seen";
    assert_eq!(text(host, &session, waits).await.lines().next(), Some("1"));
    assert!(state(&scene, &session).await.starts_with("/sub\n1 2\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn carried_secret_is_not_shown_and_an_approval_is_bound_to_what_is_carried() {
    let scene = carrying(&["tools.autonomy=\"supervised\""]).await;
    let (host, session) = (&scene.host, Session::new("one"));
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    text(host, &session, &format!("export API_TOKEN={secret}")).await;
    let person = Person::yes(Scope::Session);
    let touch = async || {
        let command = json!({ "command": "touch made; echo ${#API_TOKEN}" });
        let request = Request {
            session: Some(session.clone()),
            approver: Some(person.clone()),
            audience: Audience::Person,
            ..Request::new("bash", command)
        };
        host.call(request).await.outcome.map(|output| output.joined_text())
    };
    assert_eq!(touch().await.expect("it runs"), "40\n");
    touch().await.expect("it runs");
    assert_eq!(person.asked().len(), 1, "the same again");
    let question = person.asked()[0].to_text_with(&|_, text| text.to_owned());
    assert!(question.contains("API_TOKEN") && !question.contains(secret), "{question}");
    let log =
        fs::read_to_string(scene.root().join("toolhold/data/audit/audit.jsonl")).expect("a log");
    assert!(log.contains("API_TOKEN") && !log.contains(secret), "{log}");
    text(host, &session, "export CC=./evil").await;
    touch().await.expect("it runs");
    assert_eq!(person.asked().len(), 2, "something else is carried over");
    let refused = host
        .call(Request {
            session: Some(session.clone()),
            ..Request::new("bash", json!({ "command": "touch other" }))
        })
        .await;
    let failure = refused.outcome.expect_err("it needs approval");
    assert_eq!(failure.category, Category::ConfirmationRequired);
}
