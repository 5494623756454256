//! Permanent approvals: the rule that one writes, where, and when it isn't offered.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use toolhold_core::config::Folders;
use toolhold_core::{Category, Request, Scope, Session};

use crate::approvals::{Person, category, host, write};
use crate::approvals_command::{WRITE, notes, only_question, waiting};
use crate::support::{Cli, Ended, run, shared_cache};

/// The user's configuration.
fn configuration(cli: &Cli) -> String {
    fs::read_to_string(cli.root.path().join("config/toolhold.toml")).expect("it is there")
}

#[test]
fn always_writes_a_rule_for_exactly_this_into_the_user_s_file() {
    let cli = Cli::asking();
    let mine = "# mine\n[tools]\ncall = 20 # short\n";
    cli.configure(mine);
    let file = cli.root.path().join("config/toolhold.toml");
    fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("its mode is set");
    let path = cli.work().join("notes.txt");
    let rule = format!(
        "[[tools.permissions.write]]\npattern = \"{}\"\nexact = true\naction = \"allow\"\n",
        path.display()
    );

    cli.run(&WRITE).ends(3);
    let id = only_question(&cli);
    let shown = cli.run(&["approvals"]).ends(0).stdout;
    assert!(
        rule.lines().all(|line| shown.contains(&format!("│ {line}"))),
        "it is shown first: {shown}"
    );
    assert_eq!(configuration(&cli), mine);
    let said = cli.run(&["approvals", "allow", &id, "--always"]).ends(0).stdout;
    assert!(said.contains(&rule), "{said}");
    assert_eq!(configuration(&cli), format!("{mine}\n{rule}"));
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o640);

    // It covers only this file.
    cli.run(&["call", "write", "path=notes.txt", "content=other"]).ends(0);
    assert_eq!(notes(&cli), "other");
    cli.run(&["call", "write", "path=notes.txt.old", "content=x"]).ends(3);
    cli.run(&["call", "edit", "path=notes.txt", "old_string=other", "new_string=x"]).ends(3);
    assert_eq!(notes(&cli), "other");
    // The rule allows the call that asked, and its question is answered.
    cli.run(&WRITE).ends(0);
    assert_eq!(configuration(&cli), format!("{mine}\n{rule}"), "a rule is written once");
}

#[test]
fn always_at_a_terminal_stands_before_the_rule_that_asked() {
    let cli = Cli::asking();
    let asks = "# Ask me first.\n[[tools.permissions.write]]\npattern = \"*\"\naction = \"ask\"\n";
    cli.configure(asks);
    let Some(said) = cli.typed(&WRITE, "always\n") else { return };
    said.ends(0);
    assert_eq!(notes(&cli), "new");
    let written = configuration(&cli);
    assert!(
        written.starts_with("[[tools.permissions.write]]\npattern = \"/")
            && written.ends_with(&format!("\n{asks}")),
        "{written}"
    );
    cli.run(&["call", "write", "path=notes.txt", "content=other"]).ends(0);
    cli.run(&["call", "write", "path=other.txt", "content=other"]).ends(3);
}

#[test]
fn always_is_offered_only_where_its_rule_would_decide() {
    let cli = Cli::asking();
    cli.configure("");
    let unavailable = |line: &[&str], why: &str| {
        cli.run(line).ends(3);
        let waiting = waiting(&cli);
        let question = waiting.last().expect("it waits");
        let reason =
            question["question"]["always"]["unavailable"].as_str().expect("it is not offered");
        assert!(reason.contains(why), "{reason}");
        let id = question["id"].as_str().expect("it has a name");
        let refused = cli.run(&["approvals", "allow", id, "--always"]).ends(2);
        assert!(refused.stderr.contains("isn't possible for this call"), "{}", refused.stderr);
        assert_eq!(configuration(&cli), "");
        cli.run(&["approvals", "deny", id]).ends(0);
        cli.run(line).ends(3);
        reason.to_owned()
    };
    fs::write(cli.root.path().join("team.toml"), "").expect("a file is written");
    unavailable(
        &[&WRITE[..], &["--config", "../team.toml"]].concat(),
        "team.toml instead of your own",
    );
    unavailable(
        &["call", "copy_path", "source=notes.txt", "destination=copy.txt"],
        "several paths or other things",
    );
    unavailable(&["call", "delete_path", "path=notes.txt"], "with all its contents");

    // An untrusted file asks, whatever the user's file says.
    let project = "[[tools.permissions.write]]\npattern = \"*\"\naction = \"ask\"\n";
    fs::write(cli.work().join("toolhold.toml"), project).expect("a file is written");
    unavailable(&WRITE, "would have no effect");
    assert_eq!(fs::read_to_string(cli.work().join("toolhold.toml")).expect("it is there"), project);
    assert_eq!(fs::read_to_string(cli.root.path().join("team.toml")).expect("it is there"), "");
}

#[test]
fn always_covers_the_exact_text_only() {
    let cli = Cli::asking();
    cli.configure("");
    // A wildcard of a pattern is an ordinary character here.
    let made = ["call", "create_directory", "path=b*[x]"];
    cli.run(&made).ends(3);
    cli.run(&["approvals", "allow", &only_question(&cli), "--always"]).ends(0);
    cli.run(&made).ends(0);
    assert!(cli.work().join("b*[x]").is_dir());
    for other in ["b*[x]/below", "B*[x]", "bxx", "bx", "b*"] {
        cli.run(&["call", "create_directory", &format!("path={other}")]).ends(3);
        assert!(!cli.work().join(other).exists(), "{other}");
    }
}

#[test]
fn always_is_not_offered_if_the_file_is_read_only() {
    let cli = Cli::asking();
    cli.configure("");
    let folder = cli.root.path().join("config");
    fs::set_permissions(&folder, Permissions::from_mode(0o500)).expect("its mode is set");
    // Root may write everywhere, unless that right is removed first.
    let toolhold = cli.command(&WRITE);
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = std::process::Command::new("setpriv");
        command
            .args(["--bounding-set", "-all"])
            .arg(toolhold.get_program())
            .args(toolhold.get_args())
            .current_dir(cli.work())
            .env_clear();
        command.envs(toolhold.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    } else {
        toolhold
    };
    Ended::from_output(command.output().expect("toolhold starts")).ends(3);
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("its mode is set");
    let question = &waiting(&cli)[0]["question"];
    let why = question["always"]["unavailable"].as_str().expect("it is not offered");
    assert!(why.contains("config can't be written"), "{why}");
}

#[test]
fn always_counts_at_once_in_a_running_host() {
    run(async {
        let root = tempfile::TempDir::new().expect("a temporary folder is made");
        let folders =
            Folders { cache: shared_cache(), ..Folders::inside(&root.path().join("toolhold")) };
        let work = root.path().join("work");
        fs::create_dir(&work).expect("a folder is made");
        let host = host(&folders, &work).await;
        let (person, session) = (Person::yes(Scope::Always), Session::new("s"));
        host.call(write("x", &person, &session)).await.outcome.expect("a person agreed");
        let answer = host
            .call(Request { approver: None, ..write("y", &person, &Session::new("other")) })
            .await;
        answer.outcome.expect("a rule allows it");
        assert!(
            answer.approval.is_none()
                && answer
                    .decision
                    .expect("it was decided on")
                    .place
                    .contains("toolhold.toml, line 1")
        );
        let elsewhere = json!({ "path": "other.txt", "content": "y" });
        let answer = host
            .call(Request { arguments: elsewhere, approver: None, ..write("", &person, &session) })
            .await;
        assert_eq!(category(&answer.outcome), Some(Category::ConfirmationRequired));
        assert_eq!(fs::read_to_string(work.join("notes.txt")).expect("it is there"), "y");

        // A second one, beside the first.
        let elsewhere = json!({ "path": "other.txt", "content": "y" });
        host.call(Request { arguments: elsewhere, ..write("", &person, &session) })
            .await
            .outcome
            .expect("a person agreed");
        let written = fs::read_to_string(folders.config_file()).expect("it is there");
        assert_eq!(written.matches("[[tools.permissions.write]]").count(), 2, "{written}");
        assert_eq!(person.asked().len(), 2);
    });
}
