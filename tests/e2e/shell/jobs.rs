//! Commands in the background: what they are for, and what holds them.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_core::{Answer, Category, Host, Request, Session};

use super::process_lifetime::{assert_gone, mark, stubborn, with_word};
use super::{scene, yes};
use crate::mcp::client::{Client, LEGACY, records, text};
use crate::support::{Cli, Scene, not_tried, soon};

async fn call(host: &Host, session: &Session, tool: &str, arguments: Value) -> Answer {
    let session = Some(session.clone());
    host.call(Request { session, approver: Some(yes()), ..Request::new(tool, arguments) }).await
}

/// The text and the structured part of an answer that succeeded.
async fn succeeds(host: &Host, session: &Session, tool: &str, arguments: Value) -> (String, Value) {
    let answer = call(host, session, tool, arguments.clone()).await;
    let output = answer.outcome.unwrap_or_else(|failure| panic!("{tool} {arguments}: {failure:?}"));
    (output.joined_text(), output.structured.unwrap_or_default())
}

/// Starts a job, and returns its ID.
async fn start(host: &Host, session: &Session, command: &str) -> String {
    let arguments = json!({ "command": command, "background": true });
    let (_, structured) = succeeds(host, session, "bash", arguments).await;
    structured["job"].as_str().expect("it has an ID").to_owned()
}

/// The text and the structured part of all output of a job that has ended.
async fn whole(host: &Host, session: &Session, id: &str) -> (String, Value) {
    let arguments = json!({ "id": id, "offset": 0, "until": "end", "wait": 60 });
    succeeds(host, session, "job_output", arguments).await
}

async fn fails(host: &Host, session: &Session, tool: &str, arguments: Value) -> String {
    let failure = call(host, session, tool, arguments).await.outcome.expect_err("it fails");
    assert_eq!(failure.category, Category::PermanentFailure, "{failure:?}");
    failure.message
}

#[tokio::test(flavor = "multi_thread")]
async fn job_goes_on_and_keeps_its_output_and_exit_code() {
    let scene = scene(&[], |_| {}).await;
    let (host, session) = (&scene.host, Session::new("one"));
    let began = Instant::now();
    let command = "echo begun; until [ -e go ]; do sleep 0.05; done; echo no >&2; exit 7";
    let id = start(host, &session, command).await;
    let output = json!({ "id": id, "wait": 60 });
    let (text, read) = succeeds(host, &session, "job_output", output.clone()).await;
    assert!(text.contains("begun\n") && read["state"] == "running", "{text} {read}");
    let (listed, list) = succeeds(host, &session, "job_list", json!({})).await;
    assert!(listed.contains(&id) && listed.contains("running"), "{listed}");
    assert_eq!(list["jobs"][0]["command"], command);
    // Another command runs meanwhile, and nothing is said of a job that runs.
    let (other, _) = succeeds(host, &session, "bash", json!({ "command": "true" })).await;
    assert!(!other.contains("Job"), "{other}");
    fs::write(scene.granted.join("go"), "").expect("it is written");
    let (text, read) =
        succeeds(host, &session, "job_output", json!({ "id": id, "until": "end", "wait": 60 }))
            .await;
    assert!(text.contains("no\n") && !text.contains("begun"), "the rest alone: {text}");
    assert_eq!(
        (&read["state"], &read["exit_code"], &read["end"]),
        (&json!("ended"), &json!(7), &json!(9)),
        "{read}"
    );
    let (text, _) = whole(host, &session, &id).await;
    assert!(text.contains("begun\nno\n") && text.contains("exit code 7"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(50), "nothing waited for its whole time");
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_job_is_told_once_in_the_next_answer_of_its_session() {
    let scene = scene(&[], |_| {}).await;
    let (host, session, other) = (&scene.host, Session::new("one"), Session::new("other"));
    let id = start(host, &session, "exit 3").await;
    let observed = session.clone();
    let mut told = String::new();
    let until = Instant::now() + Duration::from_secs(60);
    while !told.contains(&id) && Instant::now() < until {
        told = succeeds(host, &observed, "bash", json!({ "command": "echo hi" })).await.0;
    }
    assert!(told.contains(&format!("[Job {id} has ended with exit code 3 after 0 s.")), "{told}");
    for session in [&session, &other] {
        let (text, _) = succeeds(host, session, "bash", json!({ "command": "echo hi" })).await;
        assert!(!text.contains("Job"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_sees_reads_or_stops_the_job_of_another() {
    let scene = scene(&[], |_| {}).await;
    let (host, one, other) = (&scene.host, Session::new("one"), Session::new("other"));
    let mark = mark(20, 0);
    let id = start(host, &one, &format!("echo private; sleep {mark}")).await;
    soon("it runs", || with_word(&mark) > 0).await;
    for (tool, name) in
        [("job_output", id.as_str()), ("job_stop", &id), ("job_output", ""), ("job_stop", "../x")]
    {
        let real = fails(host, &other, tool, json!({ "id": name })).await;
        let guessed = fails(host, &other, tool, json!({ "id": "job-0000000000000000" })).await;
        assert_eq!(real.replace(name, ""), guessed.replace("job-0000000000000000", ""), "{tool}");
    }
    let (listed, list) = succeeds(host, &other, "job_list", json!({})).await;
    assert!(!listed.contains(&id) && list["jobs"] == json!([]), "{listed}");
    assert!(with_word(&mark) > 0, "it runs on");
    assert!(host.call(Request::new("job_output", json!({ "id": id }))).await.outcome.is_err());
    succeeds(host, &one, "job_stop", json!({ "id": id })).await;
    assert_gone(&mark);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_ends_with_its_session_with_job_stop_and_with_the_host_whatever_it_does() {
    let scene = scene(&[], |_| {}).await;
    let Scene { host, .. } = scene;
    let (first, second) = (Session::new("first"), Session::new("second"));
    let marks = [mark(21, 1), mark(21, 2), mark(21, 3)];
    let mut ids = Vec::new();
    for (mark, session) in marks.iter().zip([&first, &first, &second]) {
        ids.push(start(&host, session, &stubborn(mark)).await);
        soon("it runs", || with_word(mark) > 3).await;
    }
    // Many stop it at the same time.
    let stops = (0..20).map(|_| {
        let (host, first, id) = (Arc::clone(&host), first.clone(), ids[0].clone());
        tokio::spawn(
            async move { succeeds(&host, &first, "job_stop", json!({ "id": id })).await.1 },
        )
    });
    for stopped in stops.collect::<Vec<_>>() {
        let stopped = stopped.await.expect("nothing panics");
        assert_eq!((&stopped["state"], &stopped["ending"]), (&json!("ended"), &json!("cancelled")));
    }
    assert_gone(&marks[0]);
    assert!(with_word(&marks[1]) > 3 && with_word(&marks[2]) > 3, "the others run on");
    drop(first);
    assert_gone(&marks[1]);
    assert!(with_word(&marks[2]) > 3, "the other session's runs on");
    drop(host);
    assert_gone(&marks[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_bounded_in_number_time_and_processes() {
    let settings = [
        "tools.shell.jobs.running=2",
        "tools.shell.jobs.max_secs=3",
        "tools.shell.limits.processes=30",
    ];
    let scene = scene(&settings, |_| {}).await;
    let (host, session, other) = (&scene.host, Session::new("one"), Session::new("other"));
    let mark = mark(22, 0);
    let long = start(host, &session, &format!("sleep {mark}")).await;
    let stopped = start(host, &session, &format!("sleep {mark}")).await;
    let third = json!({ "command": format!("sleep {mark}"), "background": true });
    let refused = fails(host, &session, "bash", third).await;
    let limit =
        "2 jobs of this session are running; the limit is 2 (`running` in [tools.shell.jobs]";
    assert!(refused.contains(limit), "{refused}");
    start(host, &other, "true").await;
    succeeds(host, &session, "job_stop", json!({ "id": stopped })).await;
    let bomb = start(host, &session, "b() { b | b & }; b; while :; do :; done").await;
    let (text, ended) = whole(host, &session, &long).await;
    let how = (&ended["exit_code"], &ended["ending"]);
    assert_eq!(how, (&Value::Null, &json!("timeout")), "{text}");
    let (_, ended) = whole(host, &session, &bomb).await;
    assert_eq!(ended["state"], "ended");
    assert_gone(&mark);
    // Their places are free again, and the oldest that have ended go.
    for _ in 0..3 {
        let id = start(host, &session, "exit 4").await;
        assert_eq!(whole(host, &session, &id).await.1["exit_code"], 4);
    }
    let (_, list) = succeeds(host, &session, "job_list", json!({})).await;
    assert!(list["jobs"].as_array().is_some_and(|jobs| jobs.len() <= 3), "{list}");
    fails(host, &session, "job_output", json!({ "id": long })).await;
}

/// Bytes of the nameless files of jobs that this process has open.
fn bytes_of_outputs(scene: &Scene) -> u64 {
    let folder = scene.root().join("toolhold").join("data").join("jobs");
    let open = fs::read_dir("/proc/self/fd").expect("it is mounted").flatten();
    open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(&folder)))
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .map(|file| file.size())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_keeps_its_newest_part_and_no_more_of_the_disk() {
    let scene = scene(&["tools.shell.jobs.output_mib=1"], |_| {}).await;
    let (host, session) = (&scene.host, Session::new("one"));
    let id = start(host, &session, "for i in $(seq 200000); do echo \"line $i\"; done").await;
    let (text, read) = whole(host, &session, &id).await;
    let (from, total) =
        (read["kept_from"].as_u64().unwrap_or(0), read["total"].as_u64().unwrap_or(0));
    assert!(from > 0 && total - from == 1 << 20, "{read}");
    assert_eq!(read["start"], from, "{read}");
    assert!(
        text.contains("bytes are no longer stored") && text.contains("Continue with offset"),
        "{text}"
    );
    let tail = json!({ "id": id, "offset": total - 12 });
    let (text, read) = succeeds(host, &session, "job_output", tail).await;
    assert!(text.contains("line 200000\n") && read["end"] == total, "{text}");
    assert_eq!(bytes_of_outputs(&scene), 1 << 20);
    drop(session);
    soon("its file is gone", || bytes_of_outputs(&scene) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_hides_secrets_and_what_steers_terminals_wherever_it_is_cut() {
    let scene = scene(&[], |_| {}).await;
    let (host, session) = (&scene.host, Session::new("one"));
    let (head, tail) = ("ghp_0123456789abcdef", "ghijklmnopqrstuvwxyzAB");
    let command = format!(
        "printf 'token {head}'; sleep 0.3; echo '{tail} after'; printf '\\033]0;title\\007\\033[2Jseen\\n'"
    );
    let id = start(host, &session, &command).await;
    // A half is never shown while the rest is to come.
    loop {
        let (text, read) =
            succeeds(host, &session, "job_output", json!({ "id": id, "offset": 0 })).await;
        assert!(!text.contains("89abcdef"), "{text}");
        if read["state"] == "ended" {
            break;
        }
    }
    let (text, read) = whole(host, &session, &id).await;
    assert!(text.contains("after\n") && text.contains("seen\n"), "{text}");
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{7}') && !text.contains("title"),
        "{text:?}"
    );
    for offset in 0..read["total"].as_u64().unwrap_or(0) {
        let arguments = json!({ "id": id, "offset": offset, "limit": 30 });
        let (text, _) = succeeds(host, &session, "job_output", arguments).await;
        assert!(
            !text.contains("89abc") && !text.contains("ghijk") && !text.contains("uvwxy"),
            "{offset}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_decide_on_a_job_as_on_every_command() {
    let settings = [
        "tools.autonomy=\"ask\"",
        "tools.permissions.bash=[{pattern=\"touch *\", action=\"deny\"}]",
    ];
    let scene = scene(&settings, |_| {}).await;
    let (host, session) = (&scene.host, Session::new("one"));
    let ask = |command: &str| {
        let arguments = json!({ "command": command, "background": true });
        Request { session: Some(session.clone()), ..Request::new("bash", arguments) }
    };
    for (command, category) in [
        ("touch made", Category::PolicyBlocked),
        ("sudo touch made", Category::PolicyBlocked),
        ("echo > made", Category::ConfirmationRequired),
    ] {
        let failure = host.call(ask(command)).await.outcome.expect_err("it must not run");
        assert_eq!(failure.category, category, "{command}");
    }
    let id =
        start(host, &session, "cat ../outside/secret.txt; echo x > ../outside/made; echo > made")
            .await;
    // Who may start it may follow and stop it: nobody is asked.
    for (tool, arguments) in [
        ("job_output", json!({ "id": id })),
        ("job_list", json!({})),
        ("job_stop", json!({ "id": start(host, &session, "sleep 600").await })),
    ] {
        let request = Request { session: Some(session.clone()), ..Request::new(tool, arguments) };
        host.call(request).await.outcome.unwrap_or_else(|failure| panic!("{tool}: {failure:?}"));
    }
    let (text, _) = whole(host, &session, &id).await;
    assert!(!text.contains(&scene.secret) && scene.granted.join("made").exists(), "{text}");
    scene.assert_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_job_can_be_undone_when_it_has_ended() {
    let scene = scene(&[], |_| {}).await;
    let (host, session) = (&scene.host, Session::new("one"));
    let file = scene.granted.join("public.txt");
    let text = || fs::read_to_string(&file).expect("it is there");
    let command = "echo changed > public.txt; until [ -e go ]; do sleep 0.05; done; exit 1";
    let id = start(host, &session, command).await;
    soon("it changes the file", || text() == "changed\n").await;
    // It may change more as long as it runs.
    fails(host, &session, "undo", json!({})).await;
    let (_, list) = succeeds(host, &session, "job_list", json!({})).await;
    let call = list["jobs"][0]["call"].clone();
    let refused = fails(host, &session, "undo", json!({ "call": call })).await;
    assert!(refused.contains("still runs"), "{refused}");
    assert_eq!(text(), "changed\n");
    fs::write(scene.granted.join("go"), "").expect("it is written");
    whole(host, &session, &id).await;
    succeeds(host, &session, "undo", json!({ "call": call })).await;
    assert_eq!(text(), "public");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_job_is_undone_at_its_end_if_the_configuration_wants_that() {
    let scene = scene(&["tools.shell.auto_rollback=true"], |_| {}).await;
    let (host, session) = (&scene.host, Session::new("one"));
    let id = start(host, &session, "echo changed > public.txt; sleep 0.2; exit 2").await;
    let (text, _) = whole(host, &session, &id).await;
    assert!(text.contains("its changes were undone: 1 path"), "{text}");
    let file = fs::read_to_string(scene.granted.join("public.txt")).expect("it is there");
    assert_eq!(file, "public");
}

#[test]
fn call_refuses_a_job_that_would_end_with_it() {
    let cli = Cli::new();
    let line = ["call", "bash", r#"{"command": "touch made", "background": true}"#];
    let refused = cli.run(&line).ends(1).stderr;
    assert!(refused.contains("`toolhold serve`"), "{refused}");
    assert!(!cli.work().join("made").exists());
    cli.configure("[tools.shell.jobs]\nrunning = 0\n");
    let tools = cli.run(&["tools"]).ends(0).stdout;
    assert!(!tools.contains("job_"), "{tools}");
}

/// Starts a job over MCP, and returns its ID.
fn start_served(client: &mut Client, command: &str) -> String {
    let started = client.call("bash", json!({ "command": command, "background": true }));
    let told = text(&started);
    let id = told.split(' ').find(|word| word.starts_with("job-")).expect("it has an ID");
    id.trim_end_matches('.').to_owned()
}

/// `toolhold serve` with a folder of jobs' outputs that has room for a few pages. `None` without
/// such namespaces.
fn on_a_small_disk(cli: &Cli) -> Option<Client> {
    let folder = cli.root.path().join("data").join("jobs");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).expect("it is made");
    let script = format!("mount -t tmpfs -o size=256k,mode=700 tmpfs {folder:?} && exec \"$@\"");
    let tried = Command::new("unshare")
        .args(["-Urm", "sh", "-c", &script, "sh", "true"])
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        not_tried("mounting in namespaces of its own (`unshare -Urm`)");
        return None;
    }
    let toolhold = cli.command(&["serve", "--set", "tools.autonomy=full"]);
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script, "sh"]).arg(toolhold.get_program());
    command.args(toolhold.get_args()).env_clear().current_dir(cli.work());
    command.envs(toolhold.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    let mut client = Client::start(command);
    client.begin(LEGACY, false);
    Some(client)
}

#[test]
fn full_disk_keeps_what_fits_and_ends_neither_the_job_nor_the_host() {
    let cli = Cli::new();
    let Some(mut client) = on_a_small_disk(&cli) else { return };
    let long = start_served(&mut client, "seq 100000; exit 3");
    let read = |client: &mut Client, id: &str, offset: u64| {
        let arguments = json!({ "id": id, "offset": offset, "until": "end", "wait": 60 });
        text(&client.call("job_output", arguments))
    };
    let told = read(&mut client, &long, 0);
    let between = |before: &str, after: &str| {
        let number = told.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        number.map_or(0, |(number, _)| number.parse().expect("it is a number"))
    };
    let lost: u64 = between("[The first ", " bytes are no longer stored");
    let kept = 588_895 - lost;
    assert!(told.contains(" of 588895.]") && kept > 100_000 && kept <= 256 << 10, "{told}");
    let tail = read(&mut client, &long, 588_895 - 20);
    assert!(tail.contains("99999\n100000\n"), "the newest: {tail}");
    assert!(tail.contains("ended with exit code 3"), "{tail}");
    // Nothing is left for another.
    let other = start_served(&mut client, "echo lost; exit 4");
    let told = read(&mut client, &other, 0);
    assert!(
        told.contains("The output can't be stored") && told.contains("No space left"),
        "{told}"
    );
    assert!(!told.contains("lost\n") && told.contains("exit code 4"), "{told}");
    assert!(told.contains("[The first 5 bytes are no longer stored.]"), "{told}");
    // Commands in the foreground need no such file.
    assert!(text(&client.call("bash", json!({ "command": "echo here" }))).contains("here\n"));
    assert_eq!(client.leave(), 0);
}

#[test]
fn audit_has_the_beginning_and_the_end_of_each_job() {
    let cli = Cli::new();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let id = start_served(&mut client, "exit 5");
    let ended = client.call("job_output", json!({ "id": id, "until": "end", "wait": 60 }));
    assert!(text(&ended).contains("ended with exit code 5"), "{ended}");
    let left = start_served(&mut client, "sleep 600");
    assert_eq!(client.leave(), 0);
    let all = records(&cli.root.path().join("data"));
    let of_job: Vec<&Value> = all.iter().filter(|record| record["job"] == *id).collect();
    let of_kind = |kind| *of_job.iter().find(|record| record["kind"] == kind).expect("it is there");
    let [begin, call, end] = ["job_begin", "outcome", "job_end"].map(of_kind);
    assert!(of_job.len() == 3 && call["exit_code"].is_null(), "{of_job:?}");
    assert_eq!((&end["exit_code"], &end["ending"]), (&json!(5), &json!("exited")));
    let of_left: Vec<&Value> = all.iter().filter(|record| record["job"] == *left).collect();
    assert!(of_left.iter().any(|record| record["ending"] == "cancelled"), "{of_left:?}");
    let intent = all.iter().find(|record| record["kind"] == "intent").expect("the call is there");
    assert_eq!(begin["call"], intent["call"]);
}

#[test]
fn job_goes_on_when_the_configuration_changes_until_it_allows_none() {
    let cli = Cli::new();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let mark = mark(26, 0);
    let id = start_served(&mut client, &format!("echo begun; sleep {mark}"));
    let until = Instant::now() + Duration::from_secs(60);
    let running = |at_least: usize, what: &str| {
        while with_word(&mark).min(1) != at_least {
            assert!(Instant::now() < until, "{what}");
            std::thread::yield_now();
        }
    };
    running(1, "it runs");
    // A new host takes the place of the first one, with a tool less.
    cli.configure("[tools.web]\nenabled = false\n");
    while client.request("tools/list", json!({})).to_string().contains("web_scrape") {
        assert!(Instant::now() < until, "the new configuration counts");
    }
    let read = client.call("job_output", json!({ "id": id, "offset": 0 }));
    assert!(text(&read).contains("begun\n") && text(&read).contains("has run for"), "{read}");
    assert_eq!(with_word(&mark).min(1), 1);
    cli.configure("[tools.shell.jobs]\nrunning = 0\n");
    running(0, "it ends");
    let refused = client.call("bash", json!({ "command": "true", "background": true }));
    assert!(text(&refused).contains("`running` in [tools.shell.jobs]"), "{refused}");
}

#[test]
fn person_lists_and_stops_the_jobs_of_running_hosts() {
    let cli = Cli::new();
    assert_eq!(cli.run(&["jobs"]).ends(0).stdout, "There are no jobs.\n");
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let mark = mark(24, 0);
    let id = start_served(&mut client, &format!("sleep {mark} # \u{1b}[31m"));
    let until = Instant::now() + Duration::from_secs(60);
    while with_word(&mark) == 0 {
        assert!(Instant::now() < until, "it runs");
        std::thread::yield_now();
    }
    let shown = cli.run(&["jobs"]).ends(0).stdout;
    assert!(shown.contains(&id) && shown.contains("running") && shown.contains(&mark), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let listed = cli.run(&["jobs", "--json"]).ends(0).json();
    let job = &listed[0]["jobs"][0];
    assert_eq!((&listed[0]["pid"], &job["id"]), (&json!(client.pid()), &json!(id)), "{listed}");
    for wrong in ["job-0000000000000000", "", "x\nstop y", &"j".repeat(100)] {
        let refused = cli.run(&["jobs", "stop", wrong]).ends(2).stderr;
        assert!(refused.contains("no running job has the id"), "{refused}");
    }
    assert!(with_word(&mark) > 0, "it runs on: {}", cli.run(&["jobs"]).stdout);
    assert_eq!(cli.run(&["jobs", "stop", &id]).ends(0).stdout, "Stopped.\n");
    let listed = cli.run(&["jobs", "--json"]).ends(0).json();
    assert_eq!(listed[0]["jobs"][0]["ending"], "cancelled", "{listed}");
    assert_gone(&mark);
    let told = text(&client.call("job_output", json!({ "id": id, "until": "end", "wait": 60 })));
    assert!(told.contains("stopped"), "{told}");
    cli.run(&["jobs", "stop", &id]).ends(2);
}

#[test]
fn soak_no_job_outlives_a_killed_host() {
    let rounds: u32 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 300 } else { 3 };
    let cli = Cli::new();
    for number in 0..rounds {
        let mark = mark(23, number);
        let mut client = Client::new(&cli, &["--set", "tools.autonomy=full"], LEGACY, false);
        let job = json!({ "command": stubborn(&mark), "background": true });
        let started = client.call("bash", job);
        assert_eq!(started["isError"], false, "{started}");
        while with_word(&mark) == 0 {
            std::thread::yield_now();
        }
        // SIGKILL: no code of the host runs any more.
        drop(client);
        assert_gone(&mark);
    }
    let left = fs::read_dir(cli.root.path().join("data").join("jobs")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no file of an output is left");
}
