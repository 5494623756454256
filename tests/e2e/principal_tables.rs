//! `toolhold config` shows and checks the tables of `[principals]`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::Cli;

const TABLES: &str = r#"
[tools.file]
allowed_paths = ["WORK"]
[tools.web]
allowed_domains = ["a.example.org", "b.example.org"]
[principals.developers]
issuer = ["https://login.example.org"]
group = ["dev"]
[principals.developers.tools.file]
allowed_paths = ["WORK/homes/{sub}"]
[principals.developers.tools.web]
allowed_domains = ["b.example.org"]
"#;

fn value(shown: &Value, key: &str) -> Value {
    let values = shown["values"].as_array().expect("it has values");
    let entry = values.iter().find(|entry| entry["key"] == key);
    entry.unwrap_or_else(|| panic!("{key} isn't shown"))["value"].clone()
}

#[test]
fn rights_of_a_caller_are_shown() {
    let cli = Cli::new();
    let work = cli.work().canonicalize().expect("it exists");
    let homes = work.join("homes");
    fs::create_dir(&homes).expect("a folder is made");
    cli.configure(&TABLES.replace("WORK", &work.display().to_string()));
    cli.run(&["config", "check"]).ends(0);

    let anna = "https://login.example.org,anna,dev";
    let shown = cli.run(&["config", "show", "--json", "--as", anna]).ends(0).json();
    let own = homes.join("anna");
    assert_eq!(value(&shown, "tools.file.allowed_paths"), json!([own]));
    assert_eq!(value(&shown, "tools.web.allowed_domains"), json!(["b.example.org"]));
    let mode = fs::metadata(&own).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let text = cli.run(&["config", "show", "--as", anna]).ends(0).stdout;
    assert!(text.contains("has the rights of [principals.developers]"), "{text}");

    // The local user has no table.
    let shown = cli.run(&["config", "show", "--json"]).ends(0).json();
    assert_eq!(value(&shown, "tools.file.allowed_paths"), json!([work]));
    let ben = cli.run(&["config", "show", "--as", "https://login.example.org,ben"]).ends(4);
    assert!(ben.stderr.contains("no table [principals.*] of "), "{}", ben.stderr);
    cli.run(&["config", "show", "--as", "anna"]).ends(2);
}

#[test]
fn check_finds_a_directory_that_the_server_does_not_grant() {
    let cli = Cli::new();
    let work = cli.work().canonicalize().expect("it exists").display().to_string();
    let tables = TABLES.replace("WORK/homes", "/usr").replace("WORK", &work);
    cli.configure(&tables);
    let checked = cli.run(&["config", "check"]).ends(4);
    let expected =
        "[principals.developers] grants /usr, but `allowed_paths` doesn't ([tools.file] in";
    assert!(checked.stderr.contains(expected), "{}", checked.stderr);
}
