//! Skills as their authors publish them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::client;
use crate::mcp::client::text;
use crate::support::{Cli, fetched};

/// The folders of skills below a folder.
fn folders_of_skills(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let below: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    if below.iter().any(|path| path.join("SKILL.md").is_file()) {
        found.push(folder.to_owned());
        return;
    }
    below.iter().for_each(|path| folders_of_skills(path, found));
}

#[test]
fn published_skills_are_sound_and_load() {
    let Some(packages) = fetched("skills") else { return };
    let mut folders = Vec::new();
    folders_of_skills(&packages.canonicalize().expect("it is there").join("lib"), &mut folders);
    assert!(folders.len() >= 3, "{folders:?}");
    let mut count = 0;
    for folder in folders {
        let cli = Cli::new();
        cli.configure(&format!("[skills]\nfolders = [{folder:?}]\n"));
        let path = folder.display().to_string();
        let checked = cli.run(&["skills", "check", &path]).ends(0).stdout;
        assert!(!checked.contains("error"), "{checked}");
        let listed = cli.run(&["skills", "list", "--json"]).ends(0).json();
        assert_eq!(listed["left_out"], json!([]), "{path}");
        let mut client = client(&cli);
        for skill in listed["skills"].as_array().expect("a list") {
            let name = skill["name"].as_str().expect("a text");
            let loaded = client.call("load_skill", json!({ "name": name }));
            assert_ne!(loaded["isError"], true, "{name}: {loaded}");
            assert!(text(&loaded).len() > 500, "{name}");
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}
