//! `toolhold plugin list`, `inspect`, `approve` and `reload`, beside a host that runs in another
//! process.

use std::process::Output;

use serde_json::Value;

use crate::support::{
    Cli, Component, Ended, Living, plugin, run, said, state, until_says, version,
};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(output));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

/// The plugin `word` among those of the only host that is listed.
#[track_caller]
fn listed(output: &Output) -> Value {
    let hosts = json(output);
    assert_eq!(hosts.as_array().map(Vec::len), Some(1), "{hosts}");
    let plugins = hosts[0]["plugins"].as_array().expect("a host has plugins");
    plugins
        .iter()
        .find(|plugin| plugin["name"] == "word")
        .unwrap_or_else(|| panic!("{hosts}"))
        .clone()
}

#[test]
fn plugin_is_inspected_approved_and_listed_with_its_figures() {
    run(async {
        let living = Living::new();
        let host = living.watching(&[]).await;
        living.put("word", &version("word", "1.0.0", "one").encode());
        let held = listed(&living.toolhold(&["plugin", "reload", "--json"]));
        assert_eq!(
            (&held["digest"], &held["waiting"]["held"]),
            (&Value::Null, &Value::Bool(true)),
            "{held}"
        );

        // Nobody was asked, so nothing was approved.
        let asked = living.toolhold(&["plugin", "approve", "word"]);
        assert_eq!(asked.status.code(), Some(3), "{}", text(&asked));
        assert!(said(&host, "word").await.is_err());
        let other = living.toolhold(&["plugin", "approve", "word", "--digest", "0123456789abcdef"]);
        assert_eq!(other.status.code(), Some(2), "{}", text(&other));
        assert!(said(&host, "word").await.is_err());

        let approved = living.toolhold(&["plugin", "approve", "word", "--yes"]);
        assert!(
            approved.status.success() && text(&approved).contains("word__say"),
            "{}",
            text(&approved)
        );
        assert!(
            text(&approved)
                .contains(&format!("process {} uses the component now", std::process::id())),
            "{}",
            text(&approved)
        );
        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
        assert!(said(&host, "word").await.is_ok());

        let known = listed(&living.toolhold(&["plugin", "list", "--json"]));
        assert_eq!(
            (&known["generation"], &known["calls"], &known["failures"]),
            (&1.into(), &2.into(), &0.into()),
            "{known}"
        );
        assert!(known["p50_micros"].is_u64() && known["p99_micros"].is_u64(), "{known}");
        let table = text(&living.toolhold(&["plugin", "list"]));
        let digest = state(&host, "word").digest.expect("it serves");
        assert!(
            table.contains(&std::process::id().to_string()) && table.contains(&digest[..12]),
            "{table}"
        );
    });
}

#[test]
fn changes_of_a_plugin_are_shown_before_approval() {
    run(async {
        let living = Living::new();
        living.put("word", &version("word", "1.0.0", "one").encode());
        assert!(living.toolhold(&["plugin", "approve", "word", "--yes"]).status.success());
        let host = living.watching(&[]).await;

        let manifest =
            br#"{"manifest":1,"name":"word","version":"2.0.0","description":"Says something",
            "capabilities":[{"name":"files","access":"read-write","reason":"to write it down"}]}"#;
        let mut wider =
            Component { manifests: vec![manifest.to_vec()], ..version("word", "2.0.0", "two") };
        wider.offers[0].description = "Says \u{1b}[2Ja word of wisdom.".into();
        living.put("word", &wider.encode());
        let inspected = text(&living.toolhold(&["plugin", "inspect", "word"]));
        for part in [
            "was 1.0.0",
            "is  2.0.0",
            "asks for files (read-write): to write it down",
            "word__say: description",
            "a word of wisdom",
        ] {
            assert!(inspected.contains(part), "{part} is missing:\n{inspected}");
        }
        assert!(!inspected.contains('\u{1b}'), "{inspected}");
        let difference =
            &json(&living.toolhold(&["plugin", "inspect", "word", "--json"]))["difference"];
        assert_eq!(difference["version"]["new"], "2.0.0", "{difference}");
        assert_eq!(difference["tools_changed"][0]["what"], "description", "{difference}");

        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
        let digest = json(&living.toolhold(&["plugin", "inspect", "word", "--json"]))["digest"]
            .as_str()
            .expect("it has one")
            .to_owned();
        let approved = living.toolhold(&["plugin", "approve", "word", "--digest", &digest]);
        assert!(
            approved.status.success() && text(&approved).contains("to write it down"),
            "{}",
            text(&approved)
        );
        until_says(&host, "word", Some("two")).await;
        // A component that was inspected by its file is compared too.
        let file = living.file("word");
        let by_file = text(&living.toolhold(&["plugin", "inspect", &file.display().to_string()]));
        assert!(!by_file.contains("Changes since"), "it is the approved one:\n{by_file}");
    });
}

#[test]
fn component_that_cannot_be_approved_is_named() {
    let living = Living::new();
    let missing = living.toolhold(&["plugin", "approve", "word", "--yes"]);
    assert!(
        missing.status.code() == Some(4) && text(&missing).contains("there is no word.wasm in"),
        "{}",
        text(&missing)
    );
    living.put("word", b"no component");
    let broken = living.toolhold(&["plugin", "approve", "word", "--yes"]);
    assert!(
        broken.status.code() == Some(4) && text(&broken).contains("not a WebAssembly component"),
        "{}",
        text(&broken)
    );
    living.put("word", &version("other", "1.0.0", "x").encode());
    let misnamed = living.toolhold(&["plugin", "approve", "word", "--yes"]);
    assert!(
        misnamed.status.code() == Some(2) && text(&misnamed).contains("`other`"),
        "{}",
        text(&misnamed)
    );
    assert!(!living.folders.data.join("toolhold.lock").exists(), "nothing was approved");
    // A command that checks once reports at once what it saw. A configured plugin that is missing
    // differs from an unknown name.
    living.put("word", b"no component");
    let told = text(&living.toolhold(&["tools"]));
    assert!(
        told.contains("the plugin `word` is not loaded: the file is not a WebAssembly component"),
        "{told}"
    );
    let absent =
        text(&living.toolhold(&["--set", "plugins.gone.allowed_paths=.", "call", "gone__say"]));
    assert!(absent.contains("there is no gone.wasm in"), "{absent}");
    let quiet = living.toolhold(&["plugin", "reload"]);
    assert!(
        quiet.status.success() && text(&quiet).contains("nothing to reload"),
        "{}",
        text(&quiet)
    );
}

#[test]
fn killed_host_is_not_asked_again() {
    let living = Living::new();
    let sockets = living.folders.data.join("hosts");
    std::fs::create_dir(&sockets).expect("a folder is made");
    drop(std::os::unix::net::UnixListener::bind(sockets.join("1-0")).expect("a socket is made"));
    let listed = json(&living.toolhold(&["plugin", "list", "--json"]));
    assert_eq!(listed[0]["pid"], Value::Null, "{listed}");
    assert!(
        std::fs::read_dir(&sockets).expect("it is there").next().is_none(),
        "what it left behind is gone"
    );
}

#[test]
fn hosts_and_secret_names_of_a_plugin_are_shown() {
    let cli = Cli::new();
    let file = plugin("hostile-http").display().to_string();
    let asks = cli.run(&["plugin", "inspect", &file]).ends(0).stdout;
    let own = cli.root.path().join("config/toolhold.toml").display().to_string();
    let missing = format!(
        "Not granted\n  http. To grant some of these requests, write in \
         {own}:\n    [plugins.hostile-http]\n    path = {file:?}\n"
    );
    assert!(
        asks.contains(&missing) && asks.contains("\n    hosts = [\"api.example.com\"]\n"),
        "{asks}"
    );
    assert!(asks.contains("hostile-http__send") && !asks.contains("\nGranted\n"), "{asks}");

    cli.configure(&format!(
        "[plugins.hostile-http]\npath = {file:?}\nreload = \"trust\"\nhosts = [\"https://*.example.com:8443\", {{ host = \"a.example\", methods = [\"get\"] }}]\n\
         allowed_private_hosts = [\"localhost:3000\"]\n[plugins.hostile-http.secrets.github]\nenv = \"TOKEN\"\nhosts = [\"a.example\", \"b.example\"]\n"
    ));
    let granted = "https://*.example.com:8443, a.example (GET), localhost:3000 (private)";
    let run = |line: &[&str]| {
        let output =
            cli.command(line).env("TOKEN", "zq-7731-Wert").output().expect("toolhold starts");
        let ended = Ended::from_output(output).ends(0);
        assert!(
            !format!("{}{}", ended.stdout, ended.stderr).contains("zq-7731"),
            "{}",
            ended.stdout
        );
        ended
    };
    let shown = run(&["plugin", "inspect", &file]).stdout;
    assert!(
        shown.contains(&format!(
            "\nGranted\n  http: {granted}\n  secrets: github (for a.example, b.example)\n"
        )),
        "{shown}"
    );
    assert!(!shown.contains("Not granted"), "{shown}");
    let object = run(&["plugin", "inspect", &file, "--json"]).json();
    assert_eq!(object["granted"]["http"], granted, "{object}");
    assert_eq!(
        object["secrets"],
        serde_json::json!([{ "name": "github", "hosts": ["a.example", "b.example"] }]),
        "{object}"
    );
    let table = run(&["plugin", "list"]).stdout;
    assert!(table.contains(&format!("\n  reaches {granted}\n  secrets: github\n")), "{table}");
}
