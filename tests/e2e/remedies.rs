//! Follows the advice of a refusal, and the call passes.

use std::fs;

use crate::support::{Cli, Ended};

/// The lines that a refusal says to write.
#[track_caller]
fn lines(refused: &Ended) -> String {
    lines_after(refused, "toolhold.toml:")
}

/// The lines after the one that holds some words.
#[track_caller]
fn lines_after(refused: &Ended, words: &str) -> String {
    let (_, remedy) = refused.stderr.split_once(words).expect(&refused.stderr);
    let lines = remedy.lines().skip(1).take_while(|line| line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.trim())).collect()
}

/// The line that begins with `remedy:`.
#[track_caller]
fn remedy(refused: &Ended) -> &str {
    refused
        .stderr
        .lines()
        .find_map(|line| line.trim().strip_prefix("remedy: "))
        .expect(&refused.stderr)
}

/// Folders that are not granted, and one that no tool writes.
fn scene() -> Cli {
    let cli = Cli::asking();
    for folder in [cli.root.path().join("out \"side"), cli.work().join(".git")] {
        fs::create_dir(&folder).expect("a folder is made");
        fs::write(folder.join("x"), "of the outside").expect("a file is written");
    }
    cli
}

#[test]
fn printed_lines_grant_what_the_defaults_refuse() {
    let cli = scene();
    let (read, write) = (
        ["call", "read", "path=../out \"side/x"],
        ["call", "--yes", "write", "path=../out \"side/y", "content=y"],
    );
    let header = "[tools]\ncall = 20\n";
    let granted = lines(&cli.run(&read).ends(3));
    cli.configure(&format!("{header}{granted}"));
    assert!(cli.run(&read).ends(0).stdout.contains("of the outside"));
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    // A caller that wanted to read gets the advice for reading.
    cli.run(&write).ends(3);
    assert!(!cli.root.path().join("out \"side/y").exists());
    cli.configure(header);
    cli.configure(&format!("{header}{}", lines(&cli.run(&write).ends(3))));
    cli.run(&write).ends(0);
    assert!(cli.root.path().join("out \"side/y").exists());

    cli.configure(header);
    let write = ["call", "--yes", "write", "path=.git/x", "content=y"];
    let granted = lines(&cli.run(&write).ends(3));
    assert!(granted.contains("deny_write = []"), "{granted}");
    cli.configure(&format!("{header}{granted}"));
    cli.run(&write).ends(0);
    assert_eq!(fs::read_to_string(cli.work().join(".git/x")).expect("it is there"), "y");
}

#[test]
fn remedy_is_not_offered_for_what_cannot_be_granted() {
    let cli = scene();
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    let audit = cli.root.path().canonicalize().expect("it is there").join("data/audit/audit.jsonl");
    assert!(audit.exists());
    for path in ["/proc/self/environ", audit.to_str().expect("it is text")] {
        let refused = cli.run(&["call", "read", &format!("path={path}")]).ends(3);
        assert!(
            remedy(&refused).starts_with("No configuration key can change this")
                && !refused.stderr.contains("access = "),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn remedy_names_the_file_that_holds_the_rule() {
    let cli = scene();
    let (read, write) =
        (["call", "read", "path=notes.txt"], ["call", "write", "path=new.txt", "content=x"]);
    let project = cli.work().join("toolhold.toml");
    let ceiling = cli.root.path().join("ceiling.toml");
    let under = |line: &[&str]| {
        Ended::from_output(
            cli.command(line).env("TOOLHOLD_CEILING", &ceiling).output().expect("toolhold starts"),
        )
    };

    // A project's file: a line in the user's own file changes nothing.
    fs::write(&project, "[tools.file]\ndeny_read = [\"notes.txt\"]\n").expect("a file is written");
    cli.configure("[tools.file]\ndeny_read = []\n");
    let refused = cli.run(&read).ends(3);
    assert!(
        remedy(&refused).contains(project.to_str().expect("it is text"))
            && !remedy(&refused).contains("remove "),
        "{}",
        refused.stderr
    );
    fs::write(&project, "[[tools.permissions.write]]\npattern = \"*\"\naction = \"deny\"\n")
        .expect("a file is written");
    cli.configure("[[tools.permissions.write]]\npattern = \"*\"\naction = \"allow\"\n");
    let refused = cli.run(&write).ends(3);
    assert!(
        remedy(&refused).contains("your own configuration can't override this file"),
        "{}",
        refused.stderr
    );
    fs::write(&project, "").expect("a file is written");
    cli.run(&read).ends(0);
    cli.run(&write).ends(0);

    // A ceiling, in each gate.
    let absolute = format!("path={}/new.txt", cli.work().display());
    for (rules, line) in [
        ("[[tools.permissions.write]]\npattern = \"*\"\naction = \"deny\"\n", &write),
        ("[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"write\"]\n", &write),
        ("[[tools.policy.rules]]\neffect = \"allow\"\ntools = [\"read\"]\n", &write),
        ("[tools]\nautonomy = \"read-only\"\n", &write),
        ("[tools.file]\nallowed_paths = [\"src\"]\n", &["call", "write", &absolute, "content=y"]),
    ] {
        fs::create_dir_all(cli.work().join("src")).expect("a folder is made");
        fs::write(&ceiling, rules).expect("a file is written");
        let refused = under(line).ends(3);
        let said = remedy(&refused);
        assert!(
            said.contains("whoever manages the ceiling") && said.contains("ceiling.toml"),
            "{rules}: {}",
            refused.stderr
        );
    }
    fs::write(&ceiling, "").expect("a file is written");
    under(&write).ends(0);

    // A flag and a variable.
    cli.configure("");
    let set = ["--set", "tools.file.deny_read=notes.txt"];
    let refused = cli.run(&[&set[..], &read].concat()).ends(3);
    assert_eq!(
        remedy(&refused),
        "To change that, leave out `--set tools.file.deny_read=notes.txt`."
    );
    let refused = Ended::from_output(
        cli.command(&read)
            .env("TOOLHOLD_TOOLS_FILE_DENY_READ", "notes.txt")
            .output()
            .expect("toolhold starts"),
    )
    .ends(3);
    assert_eq!(remedy(&refused), "To change that, unset TOOLHOLD_TOOLS_FILE_DENY_READ.");
    let outside = format!(
        "path={}/out \"side/y",
        cli.root.path().canonicalize().expect("it is there").display()
    );
    let refused = cli
        .run(&["--allow-read", "../out \"side", "call", "--yes", "write", &outside, "content=x"])
        .ends(3);
    assert!(remedy(&refused).contains("--allow instead of --allow-read"), "{}", refused.stderr);
    cli.run(&["--allow", "../out \"side", "call", "--yes", "write", &outside, "content=x"]).ends(0);
    // Beside an option that adds a directory, the default is written in full.
    let other = cli.root.path().join("others");
    fs::create_dir(&other).expect("a folder is made");
    fs::write(other.join("public.txt"), "x").expect("a file is written");
    let line = format!("path={}/public.txt", other.display());
    let refused = cli.run(&["--allow", "../out \"side", "call", "read", &line]).ends(3);
    cli.configure(&lines(&refused));
    cli.run(&["--allow", "../out \"side", "call", "read", &line]).ends(0);
}

#[test]
fn allowed_call_asks_after_its_remedy() {
    let cli = scene();
    let check = ["policy", "check", "write", "path=new.txt", "content=x"];
    for begin in ["", "[tools]\nautonomy = \"full\"\n"] {
        let cli = Cli::new();
        cli.configure(begin);
        let said = cli.run(&check).ends(0).stdout;
        let (_, remedy) = said.split_once("To be asked for approval, ").expect(&said);
        let file = cli.root.path().join("config/toolhold.toml").display().to_string();
        assert!(remedy.contains(&file) && remedy.contains("autonomy = \"ask\""), "{said}");
        cli.configure("[tools]\nautonomy = \"ask\"\n");
        cli.run(&["call", "write", "path=new.txt", "content=x"]).ends(3);
    }
    // A ceiling: nobody can be told to write a line.
    let ceiling = cli.root.path().join("ceiling.toml");
    fs::write(&ceiling, "[tools.shell]\nblock_high_risk_commands = true\n").expect("it is written");
    let mut command = cli.command(&["call", "--yes", "bash", "chmod +s x"]);
    let refused = command.env("TOOLHOLD_CEILING", &ceiling).output().expect("toolhold starts");
    let refused = Ended::from_output(refused).ends(3);
    assert!(remedy(&refused).contains("whoever manages the ceiling"), "{}", refused.stderr);
    cli.configure("[tools.shell]\nblock_high_risk_commands = true\n");
    let refused = cli.run(&["call", "--yes", "bash", "chmod +s x"]).ends(3);
    let file = cli.root.path().join("config/toolhold.toml").display().to_string();
    assert!(
        remedy(&refused).contains("block_high_risk_commands = false")
            && remedy(&refused).contains(&file),
        "{}",
        refused.stderr
    );
}

#[test]
fn existing_table_is_not_written_twice() {
    let cli = scene();
    let table = "[tools.file]\ndeny_read = [\"zz\"]\n";
    for line in [
        &["call", "read", "path=../out \"side/x"][..],
        &["call", "--yes", "write", "path=.git/x", "content=y"],
    ] {
        cli.configure(&format!("# mine\n{table}"));
        let refused = cli.run(line).ends(3);
        assert!(remedy(&refused).contains("which is already in"), "{}", refused.stderr);
        cli.configure(&format!(
            "# mine\n{table}{}",
            lines_after(&refused, "write in [tools.file]")
        ));
        cli.run(line).ends(0);
    }
    cli.configure(&format!("# mine\n{table}{table}"));
    let wrong = cli.run(&["call", "read", "path=notes.txt"]).ends(4);
    assert!(wrong.stderr.contains("duplicate key; it is already in line 2"), "{}", wrong.stderr);
}

#[test]
fn rule_under_an_alias_is_written_first_in_its_own_list() {
    let cli = scene();
    let rule = "[[tools.permissions.file_write]]\npattern = \"*\"\naction = \"deny\"\n";
    cli.configure(rule);
    let line = ["call", "write", "path=new.txt", "content=x"];
    let before = lines_after(&cli.run(&line).ends(3), "before the deciding rule");
    cli.configure(&format!("{before}{rule}"));
    cli.run(&line).ends(0);
    assert!(cli.work().join("new.txt").exists());
}

#[test]
fn list_replaced_by_an_option_is_not_extended() {
    let cli = scene();
    let set = "tools.permissions.write=[{pattern=\"zz\",action=\"ask\"}]";
    let line = ["call", "write", "path=new.txt", "content=x"];
    let refused = cli.run(&[&["--set", set][..], &line].concat()).ends(3);
    assert!(remedy(&refused).contains(&format!("leave out `--set {set}`")), "{}", refused.stderr);
    cli.configure(&lines_after(&refused, "add to "));
    cli.run(&line).ends(0);
    assert!(cli.work().join("new.txt").exists());
}

#[test]
fn rule_of_a_trusted_file_is_widened_in_the_user_s_file() {
    let cli = scene();
    let project = "[[tools.policy.rules]]\neffect = \"allow\"\ntools = [\"read\"]\n";
    fs::write(cli.work().join("toolhold.toml"), project).expect("a file is written");
    cli.run(&["trust", "--yes"]).ends(0);
    let line = ["call", "list_directory", "path=."];
    let refused = cli.run(&line).ends(3);
    assert!(remedy(&refused).contains("config/toolhold.toml"), "{}", refused.stderr);
    cli.configure(&lines_after(&refused, "add a rule to "));
    cli.run(&line).ends(0);
    // A denial in it is removed there, which makes it another file.
    let denial = "[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"list_directory\"]\n";
    fs::write(cli.work().join("toolhold.toml"), format!("{project}{denial}"))
        .expect("a file is written");
    cli.run(&["trust", "--yes"]).ends(0);
    let refused = cli.run(&line).ends(3);
    assert!(remedy(&refused).contains("run `toolhold trust` again"), "{}", refused.stderr);
}

#[test]
fn remedy_quotes_paths_with_any_characters() {
    let cli = scene();
    for name in ["a'\u{202e}b", "a[1].txt", "a{b,c}.txt", "a\\b", "a\"*?", "two\nlines\u{1b}"] {
        fs::write(cli.work().join(name), "here it is").expect("a file is written");
        let path = format!("path={name}");
        cli.configure("");
        let (read, write) =
            (["call", "read", &path], ["call", "write", &path, "content=here it is"]);
        cli.configure(&lines_after(&cli.run(&write).ends(3), "add to "));
        cli.run(&write).ends(0);

        cli.configure("[tools.file]\nallow_read = [\"zz\"]\n");
        let refused = cli.run(&read).ends(3);
        let (_, glob) =
            remedy(&refused).split_once("add to `allow_read`: ").expect(&refused.stderr);
        cli.configure(&format!("[tools.file]\nallow_read = [\"zz\", {glob}]\n"));
        assert!(cli.run(&read).ends(0).stdout.contains("here it is"), "{name:?}");
        cli.run(&["call", "read", "path=notes.txt"]).ends(3);
    }
}

#[test]
fn remedy_does_not_edit_a_list_that_is_not_written() {
    let cli = Cli::asking();
    let work = cli.work().canonicalize().expect("it is there");
    let line =
        ["call", "--yes", "delete_path", &format!("path={}", work.display()), "recursive=true"];
    let refused = cli.run(&line).ends(3);
    assert!(
        !remedy(&refused).contains("remove ")
            && remedy(&refused).contains("name the parent directory in `allowed_paths` instead"),
        "{}",
        refused.stderr
    );
    cli.configure(&format!(
        "[tools.file]\nallowed_paths = [{:?}]\n",
        work.parent().expect("it has one")
    ));
    cli.run(&line).ends(0);
    assert!(!work.exists());
}
