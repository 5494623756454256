//! A running server follows its configuration: by effect on the calls that come after a change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, LEGACY, MODERN, text};
use super::http::client::Serving;
use crate::mounts::in_namespaces;
use crate::support::Cli;

/// Time for a change to be noticed.
const PATIENCE: Duration = Duration::from_secs(60);

const WRONG: &str = "the changed configuration is invalid";

fn read(client: &mut Client, path: &str) -> Value {
    client.call("read", json!({ "path": path }))
}

/// Calls until an answer is as wanted. Returns that answer.
#[track_caller]
fn until(mut call: impl FnMut() -> Value, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = call();
        if holds(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "it never came to this: {what}: {answer}");
    }
}

fn is_refused(answer: &Value) -> bool {
    answer["isError"] == true && text(answer).contains("policy_blocked")
}

fn is_served(answer: &Value) -> bool {
    answer["isError"] == false
}

const DENIED: &str = "[tools.file]\ndeny_read = [\"**/notes.txt\"]\n";

#[test]
fn changed_rules_count_for_the_next_call() {
    for version in [LEGACY, MODERN] {
        let cli = Cli::new();
        let mut client = Client::new(&cli, &[], version, false);
        assert!(is_served(&read(&mut client, "notes.txt")));
        // A file that appears, changes by rename as editors do it, and goes.
        cli.configure(DENIED);
        until(|| read(&mut client, "notes.txt"), "denied", is_refused);
        let file = cli.root.path().join("config/toolhold.toml");
        let aside = cli.root.path().join("config/toolhold.toml.tmp");
        fs::write(&aside, "[tools.web]\nenabled = false\n").expect("it is written");
        fs::rename(&aside, &file).expect("it is renamed");
        until(|| read(&mut client, "notes.txt"), "granted again", is_served);
        let tools = client.request("tools/list", json!({}))["tools"].to_string();
        assert!(!tools.contains("\"web_scrape\"") && tools.contains("\"read\""), "{tools}");
        if version == LEGACY {
            client.notification("notifications/tools/list_changed");
        }
        cli.configure("[tools]\nautonomy = \"read-only\"\n");
        let write = json!({ "path": "new.txt", "content": "x" });
        until(|| client.call("write", write.clone()), "read-only", is_refused);
        fs::remove_file(cli.work().join("new.txt")).ok();
        assert!(is_refused(&client.call("write", write.clone())));
        assert!(!cli.work().join("new.txt").exists());
        fs::remove_file(&file).expect("it was there");
        until(|| client.call("write", write.clone()), "the default", is_served);
        assert!(cli.work().join("new.txt").exists());
        assert_eq!(client.leave(), 0);
    }
}

#[test]
fn wrong_file_changes_nothing_and_is_told_once() {
    let cli = Cli::new();
    cli.configure(DENIED);
    fs::write(cli.work().join("other.txt"), "more\n").expect("it is written");
    let mut client = Client::new(&cli, &[], LEGACY, false);
    assert!(is_refused(&read(&mut client, "notes.txt")));
    for wrong in ["[tools.file\n", "[tools]\nautonomy = \"sometimes\"\n", "[tools]\nnonsense = 1\n"]
    {
        cli.configure(wrong);
        let told = until(
            || read(&mut client, "other.txt"),
            "it is told",
            |answer| text(answer).contains(WRONG),
        );
        assert!(is_served(&told) && text(&told).contains("more"), "{told}");
        assert!(text(&told).contains("toolhold.toml"), "it names the file: {told}");
        for _ in 0..3 {
            let later = read(&mut client, "other.txt");
            assert!(is_served(&later) && !text(&later).contains(WRONG), "{later}");
            assert!(is_refused(&read(&mut client, "notes.txt")), "the old rules go on");
        }
    }
    cli.configure("");
    until(|| read(&mut client, "notes.txt"), "right again", is_served);
}

#[test]
fn no_call_runs_after_a_ceiling_became_invalid_until_it_is_valid_again() {
    let cli = Cli::new();
    let ceiling = cli.work().join("ceiling.toml");
    let set = |text: &str| fs::write(&ceiling, text).expect("the ceiling is written");
    fs::write(cli.work().join("other.txt"), "more\n").expect("it is written");
    set(DENIED);
    let mut command = cli.command(&["serve"]);
    command.env("TOOLHOLD_CEILING", &ceiling);
    let mut client = Client::start(command);
    client.begin(LEGACY, false);
    assert!(
        is_refused(&read(&mut client, "notes.txt")) && is_served(&read(&mut client, "other.txt"))
    );
    set("[tools]\nnonsense = 1\n");
    let refused = until(|| read(&mut client, "other.txt"), "refused", is_refused);
    assert!(
        text(&refused).contains("ceiling.toml:2") && !text(&refused).contains("more"),
        "{refused}"
    );
    set("[tools.file]\ndeny_read = [\"**/other.txt\"]\n");
    until(|| read(&mut client, "notes.txt"), "valid again", is_served);
    assert!(is_refused(&read(&mut client, "other.txt")), "the new one counts");
    // A user's mistake doesn't keep a stricter ceiling from counting.
    cli.configure("[tools]\nnonsense = 1\n");
    until(|| read(&mut client, "notes.txt"), "it is told", |answer| text(answer).contains(WRONG));
    set(DENIED);
    until(|| read(&mut client, "notes.txt"), "the old ceiling is over", is_refused);
    cli.configure("");
    until(|| read(&mut client, "other.txt"), "right again", is_served);
    assert!(is_refused(&read(&mut client, "notes.txt")));
    fs::remove_file(&ceiling).expect("it was there");
    until(|| read(&mut client, "other.txt"), "the ceiling is missing", is_refused);
}

/// A server under the signed ceiling in `company`, a folder of root in its namespaces. `None`
/// without such namespaces.
fn serve_in_company(cli: &Cli, company: &Path) -> Option<Client> {
    in_namespaces(cli, "true")?;
    let serve = cli.command(&["serve"]);
    let script = "mount -t proc proc /proc && mount -t tmpfs tmpfs /etc && mkdir /etc/toolhold \
                  && mount --bind \"$1\" /etc/toolhold && \"$0\" serve";
    let mut command = Command::new("unshare");
    command.args(["-Urpfm", "--kill-child", "sh", "-c", script]);
    command.arg(serve.get_program()).arg(company).current_dir(cli.work()).env_clear();
    command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    Some(Client::start(command))
}

#[test]
fn no_call_runs_without_a_ceiling_and_none_is_refused_while_it_is_replaced() {
    const SWAPS: usize = 200;
    let cli = Cli::new();
    let company = cli.root.path().join("company");
    fs::create_dir(&company).expect("a folder is made");
    fs::set_permissions(&company, fs::Permissions::from_mode(0o755)).expect("its mode is set");
    cli.run(&["plugin", "key", "new", "fleet", "--no-password"]).ends(0);
    fs::copy(cli.root.path().join("config/keys/fleet.pub"), company.join("ceiling.pub"))
        .expect("it is copied");
    let mut ceilings = Vec::new();
    for name in ["a", "b"] {
        fs::write(cli.work().join(format!("{name}.txt")), "more\n").expect("it is written");
        let ceiling = cli.root.path().join(format!("{name}.toml"));
        let text = format!("[tools.file]\ndeny_read = [\"**/notes.txt\", \"**/{name}.txt\"]\n");
        fs::write(&ceiling, text).expect("it is written");
        let path = ceiling.display().to_string();
        cli.run(&["config", "ceiling", "sign", &path, "--key", "fleet"]).ends(0);
        ceilings.push(ceiling);
    }
    fs::write(cli.work().join("other.txt"), "more\n").expect("it is written");
    let put_in_force = |ceiling: &Path| {
        let copy = company.join("ceiling.toml.new");
        fs::copy(ceiling, &copy).expect("it is copied");
        fs::rename(&copy, company.join("ceiling.toml")).expect("it is renamed");
    };
    put_in_force(&ceilings[0]);
    let Some(mut client) = serve_in_company(&cli, &company) else { return };
    client.begin(LEGACY, false);
    for round in 0..SWAPS {
        put_in_force(&ceilings[round % 2]);
        let denied = read(&mut client, "notes.txt");
        assert!(is_refused(&denied) && !text(&denied).contains("second"), "{round}: {denied}");
        let served = read(&mut client, "other.txt");
        assert!(is_served(&served), "{round}: {served}");
    }
    // The last one is in force: both were, in turn.
    until(|| read(&mut client, "a.txt"), "the last ceiling", is_served);
    assert!(is_refused(&read(&mut client, "b.txt")));
}

#[test]
fn approvals_and_counts_of_the_session_go_on() {
    let cli = Cli::new();
    let counted = |quota: u32, file: &str| {
        cli.configure(&format!(
            "[tools]\nautonomy = \"ask\"\nmax_tool_calls_per_session = {quota}\n[tools.file]\n{file}"
        ));
    };
    // Far more than the test makes.
    let enough = 1_000_000;
    counted(enough, "");
    // An approval is bound to the file that its question showed.
    let notes = cli.work().join("notes.txt");
    fs::write(&notes, "changed\n").expect("it is written");
    let mut client = Client::new(&cli, &[], LEGACY, true);
    let write = json!({ "path": "notes.txt", "content": "changed\n" });
    let id = client.ask("tools/call", json!({ "name": "write", "arguments": write }));
    let accepted = json!({ "action": "accept", "content": { "answer": "session" } });
    client.user_says(&accepted);
    assert!(is_served(&client.answer(id)));
    // Another rule takes effect, and the approval is remembered.
    counted(enough, "deny_read = [\"**/secret\"]\n");
    fs::write(cli.work().join("secret"), "s").expect("it is written");
    until(|| read(&mut client, "secret"), "denied", is_refused);
    let again = client.call("write", write.clone());
    assert!(is_served(&again), "no question comes: {again}");
    // It is no way around a rule that came later.
    counted(enough, "deny_write = [\"**/notes.txt\"]\n");
    until(|| read(&mut client, "secret"), "granted", is_served);
    let state = || notes.metadata().and_then(|file| file.modified()).expect("it is there");
    let before = state();
    assert!(is_refused(&client.call("write", write)));
    assert_eq!(state(), before, "it isn't written");
    // Both writes count, though other hosts have served since.
    counted(2, "");
    let over = until(|| read(&mut client, "secret"), "the quota", is_refused);
    assert!(text(&over).contains("max_tool_calls_per_session = 2"), "{over}");
}

#[test]
fn running_call_ends_with_what_it_began_with() {
    let cli = Cli::new();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let waits = "until [ -e go ]; do sleep 0.02; done; cat notes.txt";
    let id = client.ask(
        "tools/call",
        json!({ "name": "bash", "arguments": { "command": waits, "timeout": 60 } }),
    );
    cli.configure("[tools.file]\ndeny_read = [\"**/notes.txt\"]\n[tools.shell]\nenabled = false\n");
    until(|| read(&mut client, "notes.txt"), "denied", is_refused);
    fs::write(cli.work().join("go"), "").expect("it is written");
    let ended = client.answer(id);
    assert!(is_served(&ended) && text(&ended).contains("second"), "{ended}");
    let gone = client.call("bash", json!({ "command": "true" }));
    assert!(gone.to_string().contains("bash") && !is_served(&gone), "{gone}");
}

#[test]
fn project_file_can_narrow_a_running_server_and_nothing_else() {
    let cli = Cli::new();
    let outside = cli.root.path().join("outside");
    fs::create_dir(&outside).expect("it is made");
    fs::write(outside.join("canary"), "tweet").expect("it is written");
    let canary = outside.join("canary").display().to_string();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    assert!(is_refused(&read(&mut client, &canary)));
    // As if a command of an agent had written it.
    let text_of = |extra: &str| {
        format!(
            "[tools]\nautonomy = \"full\"\n[tools.file]\nallowed_paths = [\".\", {outside:?}]\n{extra}[tools.shell]\nnetwork = \"allow\"\n"
        )
    };
    let project = cli.work().join("toolhold.toml");
    fs::write(&project, text_of("deny_read = [\"**/notes.txt\"]\n")).expect("it is written");
    until(|| read(&mut client, "notes.txt"), "narrowed", is_refused);
    let answer = read(&mut client, &canary);
    assert!(is_refused(&answer) && !text(&answer).contains("tweet"), "{answer}");
    // Once a person trusts exactly this text, it counts for the running server too.
    cli.run(&["trust", "--yes"]).ends(0);
    until(|| read(&mut client, &canary), "trusted", |answer| text(answer).contains("tweet"));
    // Another text isn't trusted any more.
    fs::write(&project, text_of("deny_read = [\"**/other\"]\n")).expect("it is written");
    until(|| read(&mut client, "notes.txt"), "not narrowed", is_served);
    let answer = read(&mut client, &canary);
    assert!(is_refused(&answer) && !text(&answer).contains("tweet"), "{answer}");
}

#[test]
fn clients_over_http_are_served_by_the_changed_rules_and_told_nothing() {
    let cli = Cli::new();
    let serving = Serving::new(&cli, &[]);
    let read = || serving.call("read", &json!({ "path": "notes.txt" }), &[]);
    assert!(is_served(&read()));
    cli.configure(DENIED);
    until(read, "denied", is_refused);
    cli.configure("[tools.file\n");
    // The next right file is noticed after the wrong one, and nothing was told in between.
    for _ in 0..20 {
        let answer = read();
        assert!(is_refused(&answer) && !text(&answer).contains(WRONG), "{answer}");
    }
    cli.configure("");
    until(
        || {
            let answer = read();
            assert!(!text(&answer).contains(WRONG), "{answer}");
            answer
        },
        "granted",
        is_served,
    );
    assert_eq!(serving.ends(), 0);
}
