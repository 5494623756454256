//! What a refusal says to do about it is done, and the call passes.

use std::fs;

use crate::support::{Cli, Ended};

/// The lines that a refusal says to write.
#[track_caller]
fn lines(refused: &Ended) -> String {
    let (_, remedy) = refused.stderr.split_once("write in berth.toml").expect(&refused.stderr);
    let lines = remedy.lines().skip(1).take_while(|line| line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.trim())).collect()
}

/// The line that begins with `remedy:`.
#[track_caller]
fn remedy(refused: &Ended) -> &str {
    refused.stderr.lines().find_map(|line| line.trim().strip_prefix("remedy: ")).expect(&refused.stderr)
}

/// Folders that are not granted, and one that no tool writes.
fn scene() -> Cli {
    let cli = Cli::new();
    for folder in [cli.root.path().join("out \"side"), cli.work().join(".git")] {
        fs::create_dir(&folder).expect("a folder is made");
        fs::write(folder.join("x"), "of the outside").expect("a file is written");
    }
    cli
}

#[test]
fn what_the_defaults_refuse_is_granted_by_the_lines_that_are_printed() {
    let cli = scene();
    let (read, write) = (["call", "read", "path=../out \"side/x"], ["call", "--yes", "write", "path=../out \"side/y", "content=y"]);
    let header = "[tools]\ncall = 20\n";
    let granted = lines(&cli.run(&read).ends(3));
    cli.configure(&format!("{header}{granted}"));
    assert!(cli.run(&read).ends(0).stdout.contains("of the outside"));
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    // Who asked for reading was told how to read.
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
fn what_can_t_be_granted_is_not_proposed() {
    let cli = scene();
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    let audit = cli.root.path().canonicalize().expect("it is there").join("data/audit/audit.jsonl");
    assert!(audit.exists());
    for path in ["/proc/self/environ", audit.to_str().expect("it is text")] {
        let refused = cli.run(&["call", "read", &format!("path={path}")]).ends(3);
        assert!(remedy(&refused).starts_with("No key changes that") && !refused.stderr.contains("access = "), "{}", refused.stderr);
    }
}

#[test]
fn what_stands_elsewhere_is_undone_there_and_not_in_the_user_s_file() {
    let cli = scene();
    let (read, write) = (["call", "read", "path=notes.txt"], ["call", "write", "path=new.txt", "content=x"]);
    let project = cli.work().join("berth.toml");
    let ceiling = cli.root.path().join("ceiling.toml");
    let under = |line: &[&str]| Ended::of(cli.command(line).env("BERTH_CEILING", &ceiling).output().expect("berth starts"));

    // A project's file: the user's own line changes nothing.
    fs::write(&project, "[tools.file]\ndeny_read = [\"notes.txt\"]\n").expect("a file is written");
    cli.configure("[tools.file]\ndeny_read = []\n");
    let refused = cli.run(&read).ends(3);
    assert!(remedy(&refused).contains(project.to_str().expect("it is text")) && !remedy(&refused).contains("take "), "{}", refused.stderr);
    fs::write(&project, "[[tools.permissions.write]]\npattern = \"*\"\naction = \"deny\"\n").expect("a file is written");
    cli.configure("[[tools.permissions.write]]\npattern = \"*\"\naction = \"allow\"\n");
    let refused = cli.run(&write).ends(3);
    assert!(remedy(&refused).contains("change it in that file"), "{}", refused.stderr);
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
        assert!(said.contains("whoever administers the ceiling") && said.contains("ceiling.toml"), "{rules}: {}", refused.stderr);
    }
    fs::write(&ceiling, "").expect("a file is written");
    under(&write).ends(0);

    // A flag and a variable.
    cli.configure("");
    let set = ["--set", "tools.file.deny_read=notes.txt"];
    let refused = cli.run(&[&set[..], &read].concat()).ends(3);
    assert_eq!(remedy(&refused), "To change that, leave out `--set tools.file.deny_read=notes.txt`.");
    let refused = Ended::of(cli.command(&read).env("BERTH_TOOLS_FILE_DENY_READ", "notes.txt").output().expect("berth starts")).ends(3);
    assert_eq!(remedy(&refused), "To change that, unset BERTH_TOOLS_FILE_DENY_READ.");
    let outside = format!("path={}/out \"side/y", cli.root.path().canonicalize().expect("it is there").display());
    let refused = cli.run(&["--allow-read", "../out \"side", "call", "--yes", "write", &outside, "content=x"]).ends(3);
    assert!(remedy(&refused).contains("--allow instead of --allow-read"), "{}", refused.stderr);
    cli.run(&["--allow", "../out \"side", "call", "--yes", "write", &outside, "content=x"]).ends(0);
    // Beside a flag that adds a directory, the default is told in full.
    let other = cli.root.path().join("secret.txt");
    let line = format!("path={}", other.display());
    let refused = cli.run(&["--allow", "../out \"side", "call", "read", &line]).ends(3);
    cli.configure(&lines(&refused));
    cli.run(&["--allow", "../out \"side", "call", "read", &line]).ends(0);
}
