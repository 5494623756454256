//! Approving in a browser: the webhook that is told of a question, and the page behind its link.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ring::hmac;
use serde_json::{Value, json};

use super::client::{Answered, Serving};
use super::{calls, notes, write};
use crate::approvals_command::{WRITE, only_question, waiting};
use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{Cli, wait_until};

/// The address in links. The tests connect to the real one.
const ADDRESS: &str = "http://toolhold.example.org";

fn ok(_: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    answer(wire, "204 No Content", &[], b"")
}

/// With these links, and a webhook if `webhook` isn't empty.
fn configure(cli: &Cli, webhook: &str) {
    cli.configure(&format!(
        "[serve]\nurl = \"{ADDRESS}\"\n[approvals]\nwait_secs = 0\nwebhook = \"{webhook}\"\n"
    ));
}

/// Serves without a token of the caller, as to a browser.
fn serve(cli: &Cli) -> Serving {
    let mut serving = Serving::new(cli, &[]);
    serving.token = None;
    serving
}

/// The path of each waiting call's new link.
fn links(cli: &Cli) -> Vec<String> {
    let printed = cli.run(&["approvals", "--url"]).ends(0).stdout;
    printed.lines().filter_map(|line| Some(line.split_once(ADDRESS)?.1.to_owned())).collect()
}

#[track_caller]
fn only_link(cli: &Cli) -> String {
    let links = links(cli);
    let [link] = &links[..] else { panic!("{links:?}") };
    link.clone()
}

/// The cookie and the seal of an opened page.
fn cookie_and_seal(page: &Answered) -> (String, String) {
    let cookie = page.head["set-cookie"].split(';').next().expect("it has a value").to_owned();
    let (_, seal) = page.body.split_once("name=\"seal\" value=\"").expect("there is a form");
    (cookie, seal.split('"').next().expect("it has a value").to_owned())
}

/// Opens a link as a browser does.
#[track_caller]
fn open(serving: &Serving, link: &str) -> (String, String) {
    let page = serving.get(link, &[]);
    assert_eq!(page.status, 200, "{page:?}");
    cookie_and_seal(&page)
}

/// Sends the form of a page with this answer.
fn send(serving: &Serving, link: &str, (cookie, seal): (&str, &str), answer: &str) -> Answered {
    let form = format!("seal={seal}&answer={answer}");
    let head = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("cookie", cookie),
        ("origin", ADDRESS),
    ];
    serving.raw(&serving.request("POST", link, &head, &form)).whole()
}

/// Nobody approved the call of `WRITE`: it still waits, and asks again.
#[track_caller]
fn assert_not_approved(cli: &Cli) {
    assert_eq!(waiting(cli).len(), 1);
    cli.run(&WRITE).ends(3);
    assert_eq!(notes(cli), "first\nsecond\n");
}

fn question_file(cli: &Cli) -> PathBuf {
    cli.root.path().join(format!("data/questions/{}.json", only_question(cli)))
}

#[test]
fn webhook_gets_a_signed_link_once_for_each_question() {
    let cli = Cli::asking();
    let receiver = Server::plain(ok);
    configure(&cli, &format!("http://{}/hook", receiver.address));
    let serving = serve(&cli);
    let other = serve(&cli);
    cli.run(&WRITE).ends(3);
    wait_until("the webhook is told", || receiver.asked().len() == 1);
    let id = only_question(&cli);
    cli.run(&WRITE).ends(3);
    cli.run(&["call", "write", "path=other.txt", "content=new"]).ends(3);
    // The question after it shows that nothing was sent twice.
    wait_until("the webhook is told of another", || {
        receiver.asked().iter().any(|asked| !String::from_utf8_lossy(&asked.body).contains(&id))
    });
    let asked = receiver.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");

    let body = String::from_utf8(asked[0].body.clone()).expect("is UTF-8");
    let told: Value = serde_json::from_str(&body).expect("is JSON");
    let names: Vec<_> =
        told.as_object().expect("is an object").keys().map(String::as_str).collect();
    assert_eq!(names, ["id", "tool", "asked", "expires", "url"]);
    assert_eq!((&told["id"], &told["tool"]), (&json!(id), &json!("write")));
    assert!(!body.contains("notes.txt") && !body.contains("new"), "{body}");
    assert!(asked[0].head.starts_with("POST /hook "), "{}", asked[0].head);

    let secret = fs::read_to_string(cli.root.path().join("data/mcp/webhook")).expect("it is there");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.trim().as_bytes());
    let signature = asked[0].header("toolhold-signature").expect("it is signed");
    let (time, digits) = signature.split_once(",v1=").expect("it has two parts");
    let time = time.strip_prefix("t=").expect("it has a time");
    let expected = hmac::sign(&key, format!("{time}.{body}").as_bytes());
    let expected: String = expected.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, expected);
    let sent_at: u64 = time.parse().expect("it is a number");
    assert!(sent_at >= told["asked"].as_u64().expect("it is a number"), "{signature}");

    let link = told["url"].as_str().and_then(|url| url.strip_prefix(ADDRESS)).expect("a link");
    for server in [&serving, &other] {
        assert!(server.get(link, &[]).body.contains("write needs approval"));
    }
    wait_until("each request is recorded", || {
        let log = calls(&cli);
        let requests = log.iter().filter(|record| record["purpose"] == "approval");
        requests.filter(|record| record["status"] == 204).count() == 2
    });
}

#[test]
fn opening_a_link_approves_nothing() {
    let cli = Cli::asking();
    configure(&cli, "");
    let serving = serve(&cli);
    cli.run(&WRITE).ends(3);
    let link = only_link(&cli);
    for _ in 0..100 {
        assert_eq!(serving.get(&link, &[("purpose", "prefetch")]).status, 200);
    }
    let looked = serving.raw(&serving.request("HEAD", &link, &[], "")).whole();
    assert_eq!(looked.status, 200);
    for method in ["PUT", "DELETE", "OPTIONS"] {
        assert_eq!(serving.raw(&serving.request(method, &link, &[], "")).whole().status, 405);
    }
    assert_not_approved(&cli);

    let page = serving.get(&link, &[]);
    for shown in ["write needs approval", "notes.txt", "-first", "+new", "autonomy"] {
        assert!(page.body.contains(shown), "{shown} is not in {}", page.body);
    }
    assert!(!page.body.contains("<script"), "{}", page.body);
    let policy = &page.head["content-security-policy"];
    for part in ["default-src 'none'", "frame-ancestors 'none'", "form-action 'self'"] {
        assert!(policy.contains(part), "{policy}");
    }
    let cookie = &page.head["set-cookie"];
    for part in ["HttpOnly", "Secure", "SameSite=Strict"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(page.head["cache-control"], "no-store");
    assert_eq!(page.head["referrer-policy"], "same-origin");
}

#[test]
fn answer_of_the_page_is_for_one_call() {
    let cli = Cli::asking();
    configure(&cli, "");
    let serving = serve(&cli);
    cli.run(&WRITE).ends(3);
    let link = only_link(&cli);
    let (cookie, seal) = open(&serving, &link);
    let allowed = send(&serving, &link, (&cookie, &seal), "yes");
    assert_eq!(allowed.status, 200, "{allowed:?}");
    // Before and after the call has taken the answer.
    assert_eq!(send(&serving, &link, (&cookie, &seal), "yes").status, 410);
    cli.run(&WRITE).ends(0);
    assert_eq!(notes(&cli), "new");
    assert_eq!(send(&serving, &link, (&cookie, &seal), "yes").status, 410);
    assert_eq!(serving.get(&link, &[]).status, 410);
    let log = calls(&cli);
    let approval = log.iter().find(|record| record["kind"] == "approval").expect("it is recorded");
    assert_eq!(approval["approved_by"], "approval link");
    assert_eq!(approval["approval_scope"], "once");
    assert_eq!(approval["user"], Value::Null, "nobody knows who has the link");

    // The same call again is another question, to which the old link leads nobody.
    fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("it is written");
    cli.run(&WRITE).ends(3);
    assert_eq!(send(&serving, &link, (&cookie, &seal), "yes").status, 410);
    assert_not_approved(&cli);
    let link = only_link(&cli);
    let (cookie, seal) = open(&serving, &link);
    assert_eq!(send(&serving, &link, (&cookie, &seal), "no").status, 200);
    let denied = cli.run(&[&WRITE[..], &["--json"]].concat()).ends(3).json();
    assert_eq!(denied["failure"]["code"], "denied_by_user", "{denied}");
    assert_eq!(notes(&cli), "first\nsecond\n");
}

#[test]
fn answer_needs_the_page_in_the_same_browser() {
    let cli = Cli::asking();
    configure(&cli, "");
    let serving = serve(&cli);
    cli.run(&["call", "write", "path=other.txt", "content=new"]).ends(3);
    let other_link = only_link(&cli);
    let (other_cookie, other_seal) = open(&serving, &other_link);
    cli.run(&["approvals", "deny", &only_question(&cli)]).ends(0);
    cli.run(&WRITE).ends(3);
    let old_link = only_link(&cli);
    let link = only_link(&cli);
    let (old_cookie, old_seal) = open(&serving, &link);
    let (cookie, seal) = open(&serving, &link);

    for (wrong, wrong_seal) in [
        ("", &*seal),
        (&*cookie, ""),
        (&*cookie, &*old_seal),
        (&*old_cookie, &*seal),
        (&*other_cookie, &*other_seal),
        (&*cookie, &*other_seal),
    ] {
        let refused = send(&serving, &link, (wrong, wrong_seal), "yes");
        assert_eq!(refused.status, 403, "{wrong}, {wrong_seal}: {refused:?}");
    }
    for answer in ["", "session", "always", "yes&answer=no"] {
        assert_eq!(send(&serving, &link, (&cookie, &seal), answer).status, 400, "{answer}");
    }
    let long = "x".repeat(10_000);
    assert_ne!(send(&serving, &link, (&cookie, &long), "yes").status, 200);
    let form = format!("seal={seal}&answer=yes");
    for origin in ["http://evil.example", "null", "https://toolhold.example.org"] {
        let head = [("cookie", &*cookie), ("origin", origin)];
        let refused = serving.raw(&serving.request("POST", &link, &head, &form)).whole();
        assert_eq!(refused.status, 403, "{origin}");
    }

    let id = only_question(&cli);
    let start = format!("/approvals/{id}");
    let secret = link.strip_prefix(&start).expect("it starts with the ID");
    let other_secret = &other_link[start.len()..];
    let zeros = "0".repeat(secret.len());
    for wrong in [
        format!("{start}{other_secret}"),
        format!("{start}{zeros}"),
        format!("{start}{}", secret.to_uppercase()),
        start.clone(),
        format!("{link}0"),
        format!("{link}/"),
        format!("/approvals/../{id}.json"),
        "/approvals/".to_owned(),
        old_link,
        other_link,
    ] {
        assert_eq!(serving.get(&wrong, &[]).status, 410, "{wrong}");
        assert_eq!(send(&serving, &wrong, (&cookie, &seal), "yes").status, 410, "{wrong}");
    }
    assert_not_approved(&cli);
    assert_eq!(send(&serving, &link, (&cookie, &seal), "yes").status, 200, "that is the page");
}

#[test]
fn changed_question_takes_no_answer_of_its_old_page() {
    let cli = Cli::asking();
    configure(&cli, "");
    let serving = serve(&cli);
    cli.run(&WRITE).ends(3);
    let link = only_link(&cli);
    let (cookie, seal) = open(&serving, &link);
    let file = question_file(&cli);
    let stored = fs::read_to_string(&file).expect("it is there");
    let mut changed: Value = serde_json::from_str(&stored).expect("it is JSON");
    changed["question"]["arguments"]["path"] = json!("other.txt");
    fs::write(&file, changed.to_string()).expect("it is written");
    assert_eq!(send(&serving, &link, (&cookie, &seal), "yes").status, 403);
    fs::write(&file, &stored).expect("it is written");

    // The change that the page shows is no longer the change that the call would make.
    fs::write(cli.work().join("notes.txt"), "something else\n").expect("it is written");
    assert_eq!(send(&serving, &link, (&cookie, &seal), "yes").status, 410);
    cli.run(&WRITE).ends(3);
    assert_eq!(notes(&cli), "something else\n");
}

#[test]
fn arguments_are_no_html() {
    let cli = Cli::asking();
    configure(&cli, "");
    let serving = serve(&cli);
    let hostile = "content=</pre></form><script>alert(1)</script><form action=//evil.example><a \
                   href='x' onclick=\"y\">";
    cli.run(&["call", "write", "path=<img src=x>.txt", hostile]).ends(3);
    let page = serving.get(&only_link(&cli), &[]).body;
    assert!(page.contains("&lt;script&gt;") && page.contains("&lt;img src=x&gt;"), "{page}");
    for tag in ["<script", "<img", "<a ", "onclick=\""] {
        assert!(!page.contains(tag), "{tag} is in {page}");
    }
    assert_eq!((page.matches("<form").count(), page.matches("</pre>").count()), (1, 1), "{page}");
}

#[test]
fn webhook_that_is_slow_or_down_delays_no_call() {
    // It never answers: it reads until the client gives up.
    let slow = Server::plain(|_, wire| wire.read_exact(&mut [0]));
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let down = closed.local_addr().expect("it has an address");
    drop(closed);
    for address in [slow.address, down] {
        let cli = Cli::asking();
        configure(&cli, &format!("http://{address}/hook"));
        let mut serving = Serving::new(&cli, &["--set", "approvals.mcp=terminal"]);
        cli.run(&WRITE).ends(3);
        if address == slow.address {
            wait_until("the webhook is told", || !slow.asked().is_empty());
        }
        let since = Instant::now();
        let asked = serving.call("write", &write()["arguments"], &[]);
        assert_eq!(asked["isError"], true, "{asked}");
        // The time limit of a request to the webhook is 10 s.
        assert!(since.elapsed() < Duration::from_secs(9), "it waited {:?}", since.elapsed());
        // The questions can be answered.
        serving.token = None;
        for link in links(&cli) {
            let (cookie, seal) = open(&serving, &link);
            assert_eq!(send(&serving, &link, (&cookie, &seal), "no").status, 200);
        }
        assert!(waiting(&cli).is_empty());
        assert_eq!(serving.ends(), 0);
    }
}

#[test]
fn failed_request_to_the_webhook_is_repeated() {
    let cli = Cli::asking();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let receiver = Server::plain(move |_, wire| {
        match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => answer(wire, "503 Service Unavailable", &[], b""),
            _ => answer(wire, "200 OK", &[], b"fine"),
        }
    });
    configure(&cli, &format!("http://{}/hook", receiver.address));
    let serving = serve(&cli);
    cli.run(&WRITE).ends(3);
    wait_until("the webhook is told", || receiver.asked().len() == 2);
    let asked = receiver.asked();
    assert_eq!(asked[0].body, asked[1].body, "the link is the same");
    let told: Value = serde_json::from_slice(&asked[1].body).expect("is JSON");
    let link = told["url"].as_str().and_then(|url| url.strip_prefix(ADDRESS)).expect("a link");
    open(&serving, link);
}

#[test]
fn waiting_call_continues_after_the_answer() {
    let cli = Cli::asking();
    configure(&cli, "");
    let settings = ["--set", "approvals.mcp=terminal", "--set", "approvals.wait_secs=60"];
    let serving = Serving::new(&cli, &settings);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| serving.call("write", &write()["arguments"], &[]));
        wait_until("it waits", || waiting(&cli).len() == 1);
        let link = only_link(&cli);
        let (cookie, seal) = open(&serving, &link);
        assert_eq!(send(&serving, &link, (&cookie, &seal), "yes").status, 200);
        assert_eq!(call.join().expect("it is answered")["isError"], false);
    });
    assert_eq!(notes(&cli), "changed\n");
}

#[test]
fn question_of_a_principal_is_answered_in_its_own_folder() {
    let cli = Cli::asking();
    configure(&cli, "");
    let serving = serve(&cli);
    cli.run(&WRITE).ends(3);
    let id = only_question(&cli);
    let principal = "0123456789abcdef".repeat(2);
    let folder = cli.root.path().join(format!("data/principals/{principal}/questions"));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder).expect("a folder is made");
    let file = folder.join(format!("{id}.json"));
    fs::rename(question_file(&cli), &file).expect("it is moved");
    assert_eq!(only_question(&cli), id, "the operator sees it");

    let config = cli.root.path().join("config/toolhold.toml");
    let before = fs::read_to_string(&config).expect("it is there");
    cli.run(&["approvals", "allow", &id, "--always"]).ends(2);
    assert_eq!(fs::read_to_string(&config).expect("it is there"), before, "no rule for everybody");

    let link = only_link(&cli);
    assert!(link.contains(&principal), "{link}");
    let (cookie, seal) = open(&serving, &link);
    assert_eq!(send(&serving, &link, (&cookie, &seal), "yes").status, 200);
    let stored = fs::read_to_string(&file).expect("it is there");
    let stored: Value = serde_json::from_str(&stored).expect("it is JSON");
    assert_eq!(stored["reply"]["yes"]["by"], "approval link");
    // The operator's own call of the same kind isn't approved by it.
    assert!(waiting(&cli).is_empty());
    cli.run(&WRITE).ends(3);
    assert_eq!(notes(&cli), "first\nsecond\n");
}

#[test]
fn links_need_the_address_of_the_server() {
    let cli = Cli::asking();
    cli.configure("[approvals]\nwebhook = \"https://hooks.example.org/\"\n");
    for line in [&["serve", "--http", "0"][..], &["config", "check"]] {
        let refused = cli.run(line).ends(4).stderr;
        assert!(refused.contains("`url = ") && refused.contains("[serve]"), "{refused}");
    }
    cli.run(&WRITE).ends(3);
    let refused = cli.run(&["approvals", "--url"]).ends(4).stderr;
    assert!(refused.contains("[serve]"), "{refused}");
}
