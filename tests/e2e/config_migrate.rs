//! `toolhold config migrate`, at a terminal and without one.

use std::fs;

use crate::support::Cli;

const OLD: &str = "[autonomy]\nlevel = \"supervised\" # careful\n[tools.shell]\ntimeout = 45\n[tools.tafc]\nenabled = true\n";

#[test]
fn migration_is_shown_first_and_written_after_a_yes() {
    let cli = Cli::new();
    let (old, new) = (cli.work().join("old.toml"), cli.root.path().join("config/toolhold.toml"));
    fs::write(&old, OLD).expect("a file is written");
    let _ = fs::remove_file(&new);
    let refused = cli.run(&["config", "migrate", "old.toml"]);
    assert!(
        refused.stderr.contains("toolhold config migrate --yes old.toml"),
        "{}",
        refused.stderr
    );
    for part in [
        "+autonomy = \"ask\" # careful",
        "tools.shell.timeout -> tools.call",
        "tools.tafc.enabled -> agent.tafc.enabled",
    ] {
        assert!(refused.stdout.contains(part), "{part}: {}", refused.stdout);
    }
    assert!(!new.exists());
    if let Some(ended) = cli.typed(&["config", "migrate", "old.toml"], "n\n") {
        assert!(ended.stdout.contains("Nothing was written."), "{}", ended.stdout);
        assert!(!new.exists());
    }
    cli.run(&["config", "migrate", "old.toml", "--write"]).ends(0);
    let text = fs::read_to_string(&new).expect("it is written");
    assert_eq!(
        text,
        "[tools]\nautonomy = \"ask\" # careful\ncall = 45\n\n[agent.tafc]\nenabled = true\n"
    );
    assert_eq!(fs::read_to_string(&old).expect("it stays"), OLD);
    cli.run(&["config", "check"]).ends(0);
    let again = cli.run(&["config", "migrate", "old.toml", "--yes"]).ends(2).stderr;
    assert!(again.contains("already exists"), "{again}");
    // The user's own file is rewritten in its place.
    fs::write(&new, OLD).expect("a file is written");
    let own = new.display().to_string();
    cli.run(&["config", "migrate", &own, "--yes"]).ends(0);
    assert_eq!(fs::read_to_string(&new).expect("it is written"), text);
    let told = cli.run(&["config", "migrate", &own, "--yes"]).ends(0).stdout;
    assert!(told.contains("needs no change"), "{told}");
}

#[test]
fn file_that_can_not_be_rewritten_is_refused() {
    let cli = Cli::new();
    fs::write(cli.work().join("old.toml"), "[tools").expect("a file is written");
    for (file, why) in [("old.toml", "not TOML"), ("none.toml", "the file doesn't exist")] {
        let ended = cli.run(&["config", "migrate", file, "--yes"]).ends(4);
        assert!(ended.stderr.contains(why), "{file}: {}", ended.stderr);
    }
}
