//! Skills: where they come from, what models get of them, and what their scripts may do.

mod hostile;
mod published;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::mcp::client::{Client, MODERN, text};
use crate::support::Cli;

const FULL: &str = "[tools]\nautonomy = \"full\"\n";

/// Writes a skill. `matter`: further lines of its front matter. Returns its folder.
pub(crate) fn write_skill(folder: &Path, name: &str, matter: &str, body: &str) -> PathBuf {
    let skill = folder.join(name);
    fs::create_dir_all(skill.join("scripts")).expect("a folder is made");
    let text = format!("---\nname: {name}\ndescription: Does {name}.\n{matter}---\n{body}\n");
    fs::write(skill.join("SKILL.md"), text).expect("a file is written");
    skill
}

/// The folder of the user's skills.
fn users(cli: &Cli) -> PathBuf {
    cli.root.path().canonicalize().expect("it is there").join(".claude/skills")
}

/// The folder of the project's skills.
fn projects(cli: &Cli) -> PathBuf {
    cli.work().join(".agents/skills")
}

fn client(cli: &Cli) -> Client {
    Client::new(cli, &[], MODERN, false)
}

/// The description of `load_skill`. `None`: it isn't offered.
fn described(client: &mut Client) -> Option<String> {
    let tools = client.request("tools/list", json!({}))["tools"].clone();
    let tools = tools.as_array().expect("a list");
    let tool = tools.iter().find(|tool| tool["name"] == "load_skill")?;
    Some(tool["description"].as_str().expect("a text").to_owned())
}

fn load(client: &mut Client, name: &str) -> Value {
    client.call("load_skill", json!({ "name": name }))
}

fn bash(client: &mut Client, command: &str) -> String {
    text(&client.call("bash", json!({ "command": command })))
}

#[test]
fn client_lists_and_loads_skills_of_the_user() {
    let cli = Cli::new();
    assert_eq!(described(&mut client(&cli)), None, "there is no skill");
    write_skill(&users(&cli), "other", "", "Do it.");
    let refused = cli.run(&["call", "read", "path=/etc/hosts"]).ends(3);
    assert!(refused.stderr.contains("the default of [tools.file]"), "{}", refused.stderr);
    fs::remove_dir_all(users(&cli)).expect("it is removed");
    let pdf = write_skill(&users(&cli), "pdf", "", "Read the form first.");
    fs::create_dir(pdf.join("references")).expect("a folder is made");
    fs::write(pdf.join("references/forms.md"), "Forms have fields.").expect("it is written");
    write_skill(&cli.root.path().join(".agents/skills"), "deploy", "", "Ask before.");
    let mut client = client(&cli);
    let listed = described(&mut client).expect("there are skills");
    assert!(listed.contains("\n- deploy: Does deploy.\n- pdf: Does pdf.\n"), "{listed}");
    let loaded = text(&load(&mut client, "pdf"));
    let path = pdf.display().to_string();
    for part in ["Read the form first.", &path, "`references/forms.md`"] {
        assert!(loaded.contains(part), "{part}: {loaded}");
    }
    assert!(!loaded.contains("description:"), "{loaded}");
    let file = json!({ "name": "pdf", "file": "references/forms.md" });
    assert!(text(&client.call("invoke_skill", file)).contains("Forms have fields."));
    let unknown = text(&load(&mut client, "pdfs"));
    assert!(unknown.contains("there is no skill `pdfs`") && unknown.contains("deploy, pdf"));
    // The file tools may read there too.
    let read = json!({ "path": pdf.join("references/forms.md") });
    assert!(text(&client.call("read", read)).contains("Forms have fields."));
}

#[test]
fn disabled_skills_are_not_offered() {
    let cli = Cli::new();
    let pdf = write_skill(&users(&cli), "pdf", "", "Read the form first.");
    cli.configure("[skills]\nenabled = false\n");
    let mut client = client(&cli);
    assert_eq!(described(&mut client), None);
    let read = text(&client.call("read", json!({ "path": pdf.join("SKILL.md") })));
    assert!(!read.contains("form first"), "{read}");
}

#[test]
fn script_runs_and_its_folder_stays_as_it_is() {
    let cli = Cli::new();
    cli.configure(FULL);
    let pdf = write_skill(&users(&cli), "pdf", "", "Run it.");
    let script = pdf.join("scripts/run.sh");
    fs::write(&script, "echo from the script > made.txt\n").expect("it is written");
    let mut client = client(&cli);
    load(&mut client, "pdf");
    bash(&mut client, &format!("sh {}", script.display()));
    let made = fs::read_to_string(cli.work().join("made.txt"));
    assert_eq!(made.expect("the script ran"), "from the script\n");
    let before = fs::read_to_string(&script).expect("it is there");
    bash(&mut client, &format!("echo evil > {}", script.display()));
    bash(&mut client, &format!("touch {}", pdf.join("new").display()));
    client.call("write", json!({ "path": script, "content": "evil" }));
    client.call("write", json!({ "path": users(&cli).join("evil/SKILL.md"), "content": "evil" }));
    assert_eq!(fs::read_to_string(&script).expect("it is there"), before);
    assert!(!pdf.join("new").exists() && !users(&cli).join("evil").exists());
}

#[test]
fn variables_last_until_another_skill_is_loaded() {
    let cli = Cli::new();
    let env = "[skills.env.pdf]\nPDF_DPI = \"300\"\nPDF_MODE = \"it's slow\"\n";
    cli.configure(&format!("{FULL}{env}"));
    write_skill(&users(&cli), "pdf", "env:\n  EVIL: \"1\"\n", "Run it.");
    write_skill(&users(&cli), "other", "", "Do it.");
    let print = "echo \"<$PDF_DPI><$PDF_MODE><$EVIL>\"";
    let mut one = client(&cli);
    assert!(bash(&mut one, print).contains("<><><>"));
    let loaded = text(&load(&mut one, "pdf"));
    assert!(loaded.contains("PDF_DPI, PDF_MODE") && !loaded.contains("it's slow"), "{loaded}");
    for _ in 0..2 {
        assert!(bash(&mut one, print).contains("<300><it's slow><>"));
    }
    // A command may change its own; a file of the skill changes nothing.
    assert!(bash(&mut one, "PDF_DPI=72 sh -c 'echo \"<$PDF_DPI>\"'").contains("<72>"));
    one.call("load_skill", json!({ "name": "pdf", "file": "SKILL.md" }));
    load(&mut one, "none");
    assert!(bash(&mut one, print).contains("<300>"));
    // They belong to their session.
    assert!(bash(&mut client(&cli), print).contains("<><><>"));
    load(&mut one, "other");
    assert!(bash(&mut one, print).contains("<><><>"));
}

#[test]
fn variables_that_load_code_are_refused() {
    for name in ["PATH", "LD_PRELOAD", "BASH_ENV", "TOOLHOLD_DATA_DIR", "PYTHONPATH", "A-B"] {
        let cli = Cli::new();
        cli.configure(&format!("[skills.env.pdf]\n\"{name}\" = \"x\"\n"));
        let refused = cli.run(&["config", "check"]);
        assert!(refused.code != 0 && refused.stderr.contains(name), "{name}: {}", refused.stderr);
    }
}

#[test]
fn project_skill_counts_as_it_was_seen() {
    let cli = Cli::new();
    cli.configure(FULL);
    let skill = write_skill(&projects(&cli), "deploy", "", "Obey the project.");
    let script = skill.join("scripts/run.sh");
    fs::write(&script, "echo 1\n").expect("it is written");
    let line = ["call", "load_skill", "name=deploy"];
    let before = cli.run(&line);
    assert!(before.code != 0 && !before.stdout.contains("Obey"), "{}", before.stdout);
    assert_eq!(described(&mut client(&cli)), None);

    let shown = cli.run(&["trust"]);
    assert!(shown.code != 0 && shown.stdout.contains("Obey the project."), "{}", shown.stdout);
    assert!(shown.stdout.contains("scripts/run.sh (7 bytes)"), "{}", shown.stdout);
    cli.run(&line).ends(before.code);
    cli.run(&["trust", "--yes"]).ends(0);
    assert!(cli.run(&line).ends(0).stdout.contains("Obey the project."));
    assert!(cli.run(&["trust", "--yes"]).ends(0).stdout.contains("already trusted"));

    // Any change ends it, for a host that runs too.
    let mut running = client(&cli);
    assert!(text(&load(&mut running, "deploy")).contains("Obey the project."));
    fs::write(&script, "echo 2\n").expect("it is written");
    let changed = text(&load(&mut running, "deploy"));
    assert!(
        !changed.contains("Obey") && changed.contains("isn't trusted in its current version"),
        "{changed}"
    );
    let file = json!({ "name": "deploy", "file": "scripts/run.sh" });
    assert!(!text(&running.call("load_skill", file)).contains("echo 2"));
    cli.run(&line).ends(before.code);
    let listed = cli.run(&["skills", "list", "--json"]).ends(0).json();
    assert_eq!(listed["skills"][0]["origin"], "changed", "{listed}");
    cli.run(&["trust", "--yes"]).ends(0);
    cli.run(&line).ends(0);

    cli.run(&["trust", "--forget"]).ends(0);
    cli.run(&line).ends(before.code);
}

#[test]
fn project_skill_does_not_replace_one_of_the_user() {
    let cli = Cli::new();
    write_skill(&users(&cli), "deploy", "", "The user's way.");
    write_skill(&projects(&cli), "deploy", "", "The project's way.");
    let _ = cli.run(&["trust", "--yes"]);
    let loaded = cli.run(&["call", "load_skill", "name=deploy"]).ends(0).stdout;
    assert!(loaded.contains("The user's way.") && !loaded.contains("The project's"), "{loaded}");
}

#[test]
fn commands_show_and_check_skills() {
    let cli = Cli::new();
    assert!(cli.run(&["skills", "list"]).ends(0).stdout.contains("no skills"));
    cli.run(&["skills", "check"]).ends(0);
    write_skill(&users(&cli), "pdf", "license: MIT\n", "Read the form.");
    write_skill(&projects(&cli), "deploy", "allowed-tools: Bash\n", "Ask.");
    let listed = cli.run(&["skills", "list"]).ends(0);
    for part in ["pdf     yours", "Does pdf.", "deploy  of the project, not trusted"] {
        assert!(listed.stdout.contains(part), "{part}: {}", listed.stdout);
    }
    assert!(listed.stderr.contains("`toolhold trust`"), "{}", listed.stderr);
    let shown = cli.run(&["skills", "show", "pdf"]).ends(0).stdout;
    assert!(shown.contains("Read the form.") && shown.contains("pdf, yours"), "{shown}");
    let shown = cli.run(&["skills", "show", "pdf", "--json"]).ends(0).json();
    assert_eq!((&shown["license"], &shown["findings"]), (&json!("MIT"), &json!([])));
    cli.run(&["skills", "show", "none"]).ends(2);
    let checked = cli.run(&["skills", "check"]).ends(0).stdout;
    assert!(checked.contains("ignores `allowed-tools`") && checked.contains("ok  "), "{checked}");
    let broken = users(&cli).join("broken");
    fs::create_dir(&broken).expect("a folder is made");
    fs::write(broken.join("SKILL.md"), "---\nname: broken\n---\nx\n").expect("it is written");
    let checked = cli.run(&["skills", "check"]).ends(1).stdout;
    assert!(checked.contains("`description` is missing"), "{checked}");
    cli.run(&["skills", "check", "pdf"]).ends(0);
    let path = users(&cli).display().to_string();
    let checked = cli.run(&["skills", "check", &path, "--json"]).ends(1).json();
    assert_eq!(checked["skills"].as_array().map(Vec::len), Some(2), "{checked}");
}
