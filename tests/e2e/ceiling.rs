//! A ceiling, set by an organisation: it limits whatever its users allow.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::support::{Cli, Ended, plugin};

/// A user with a ceiling.
struct Under {
    cli: Cli,
    ceiling: PathBuf,
}

impl Under {
    fn new(ceiling: &str) -> Self {
        let cli = Cli::new();
        let path = cli.work().join("ceiling.toml");
        fs::write(&path, ceiling).expect("the ceiling is written");
        Self { cli, ceiling: path }
    }

    #[track_caller]
    fn run(&self, line: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = self.cli.command(line);
        command.env("TOOLHOLD_CEILING", &self.ceiling).envs(variables.iter().copied());
        Ended::from_output(command.output().expect("toolhold starts"))
    }
}

#[test]
fn no_file_variable_or_option_exceeds_a_ceiling() {
    let under = Under::new(
        "[tools]\nmax_call = 9\n[tools.file]\nallowed_paths = [\".\"]\ndeny_read = [\"notes.txt\"]\n",
    );
    let root = under.cli.root.path().canonicalize().expect("it is there").display().to_string();
    under
        .cli
        .configure(&format!("[tools]\nmax_call = 60\n[tools.file]\nallowed_paths = [{root:?}]\n"));
    let refused = under.run(&["call", "read", "path=../secret.txt"], &[]).ends(3);
    assert!(!refused.stdout.contains("the secret"), "{}", refused.stdout);
    let refused = under
        .run(&["--allow", "/", "--allow-read", &root, "call", "read", "path=../secret.txt"], &[])
        .ends(3);
    assert!(!refused.stdout.contains("the secret"), "{}", refused.stdout);
    let variable =
        [("TOOLHOLD_TOOLS_FILE_ALLOWED_PATHS", "/"), ("TOOLHOLD_TOOLS_FILE_DENY_READ", "[]")];
    under.run(&["call", "read", "path=../secret.txt"], &variable).ends(3);
    let refused = under
        .run(&["--set", "tools.file.deny_read=[]", "call", "read", "path=notes.txt"], &variable)
        .ends(3);
    assert!(
        refused.stderr.contains("deny_read = \"notes.txt\"")
            && refused.stderr.contains("ceiling.toml, line 5"),
        "{}",
        refused.stderr
    );

    // It is silent unless somebody asks.
    under.run(&["call", "list_directory"], &[]).ends(0);
    assert_eq!(under.run(&["tools"], &[]).ends(0).stderr, "");
    let shown = under.run(&["config", "show"], &[]).ends(0).stdout;
    let told = format!(
        "ceiling.toml:2: without the ceiling, `tools.max_call` is 60 \
             ({root}/config/toolhold.toml:2)"
    );
    assert!(shown.contains("limits all these files") && shown.contains(&told), "{shown}");
    let shown = under.run(&["config", "show", "--json"], &[]).ends(0).json();
    let taken = shown["ceilings"][0]["taken"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|taken| taken["key"] == json!("tools.max_call"));
    assert_eq!(
        taken.map(|taken| (&taken["held"], &taken["wanted"])),
        Some((&json!(9), &json!(60))),
        "{shown}"
    );
    let doctor = under.run(&["doctor"], &[]).stdout;
    assert!(
        doctor.contains(
            "ceiling.toml limits tools.file.allowed_paths, tools.file.deny_read, tools.max_call"
        ),
        "{doctor}"
    );
}

#[test]
fn ceiling_is_closed_to_every_tool() {
    let under = Under::new("[tools]\nmax_call = 9\n");
    let before = fs::read(&under.ceiling).expect("it is there");
    for line in [
        &["call", "write", "path=ceiling.toml", "content="][..],
        &["call", "delete_path", "path=ceiling.toml"],
        &["call", "move_path", "source=notes.txt", "destination=ceiling.toml", "overwrite=true"],
    ] {
        let ended = under.run(line, &[]);
        assert!(
            ended.code == 3 && ended.stderr.contains("policy_blocked"),
            "{line:?}: {}",
            ended.stderr
        );
        assert_eq!(fs::read(&under.ceiling).expect("it is there"), before, "{line:?}");
    }
}

#[test]
fn missing_or_invalid_ceiling_stops_the_start() {
    let under = Under::new("[tools]\nmax_cal = 9\n");
    let wrong = under.run(&["call", "read", "path=notes.txt"], &[]).ends(4);
    assert!(
        wrong.stderr.contains("ceiling.toml:2: ")
            && wrong.stderr.contains("did you mean `max_call`?"),
        "{}",
        wrong.stderr
    );
    assert_eq!(wrong.stdout, "");
    fs::remove_file(&under.ceiling).expect("it goes");
    let missing = under.run(&["call", "read", "path=notes.txt"], &[]).ends(4);
    assert!(
        missing.stderr.contains("ceiling.toml") && missing.stdout.is_empty(),
        "{}",
        missing.stderr
    );
}

#[test]
fn ceiling_keeps_the_audit_log_on_and_doctor_warns_of_one_that_leaves_it_free() {
    let read = ["--set", "audit.enabled=false", "call", "read", "path=notes.txt"];
    let free = Under::new("[tools]\nmax_call = 9\n");
    free.run(&read, &[]).ends(0);
    assert!(!free.cli.root.path().join("data/audit").exists(), "it is switched off");
    let doctor = free.run(&["doctor"], &[]).stdout;
    assert!(doctor.contains("ceiling.toml lets users set `audit.enabled` to false"), "{doctor}");

    let kept = Under::new("[audit]\nenabled = true\non_failure = \"stop\"\n");
    kept.run(&read, &[("TOOLHOLD_AUDIT_ENABLED", "false")]).ends(0);
    let entries = kept.run(&["audit", "tail", "--json"], &[]).ends(0).stdout;
    let is_read = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).is_ok_and(|entry| entry["tool"] == "read")
    };
    assert!(entries.lines().any(is_read), "{entries}");
    let doctor = kept.run(&["doctor"], &[]).stdout;
    assert!(!doctor.contains("lets users set"), "{doctor}");
    let arguments = ["--set", "audit.on_failure=continue", "config", "show"];
    let shown = kept.run(&arguments, &[]).ends(0).stdout;
    assert!(shown.contains("without the ceiling, `audit.on_failure` is"), "{shown}");
}

/// Whatever a user grants, the plugin gets what `[plugins."*"]` leaves: seen by what it reads.
#[test]
fn grants_of_every_plugin_end_at_the_ceiling() {
    let under = Under::new("");
    let hostile = plugin("hostile");
    let work = under.cli.work().display().to_string();
    under.cli.configure(&format!(
        "[plugins.hostile]\npath = {hostile:?}\nreload = \"trust\"\nallowed_paths = [{work:?}]\n"
    ));
    let line = ["call", "--yes", "hostile__read_outside", &format!("path={work}/notes.txt")];
    assert!(under.run(&line, &[]).ends(0).stdout.contains("first"), "it is granted");
    for ceiling in
        ["[plugins.\"*\"]\nallowed_paths = []\n", "[plugins.hostile]\nallowed_paths = []\n"]
    {
        fs::write(&under.ceiling, ceiling).expect("the ceiling is written");
        for line in
            [&line[..], &[&["--set", "plugins.hostile.allowed_paths=[\"/\"]"], &line[..]].concat()]
        {
            let refused = under.run(line, &[]);
            assert!(refused.code != 0 && !refused.stdout.contains("first"), "{}", refused.stdout);
        }
    }
    // What nobody signed doesn't load, wherever it lies.
    fs::write(&under.ceiling, "installing.require_signature = true\n").expect("it is written");
    let told = under.run(&line, &[]);
    assert!(told.code != 0 && told.stderr.contains("ceiling.toml"), "{}", told.stderr);
    assert!(!told.stdout.contains("first"), "{}", told.stdout);
}
