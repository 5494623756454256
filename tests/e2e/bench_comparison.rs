//! `cargo xtask bench --json` and `--compare`, with the row that takes the least time, and a build
//! for tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Ended, built};

fn bench(line: &[&str]) -> Ended {
    let repository =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the repository");
    let mut command = Command::new(built("bench"));
    Ended::from_output(
        command
            .arg("--repository")
            .arg(repository)
            .args(line)
            .output()
            .expect("the bench program starts"),
    )
}

/// The row of a comparison.
fn row(ended: &Ended) -> &str {
    let row = ended.stdout.lines().rfind(|line| line.contains("resident memory"));
    row.unwrap_or_else(|| panic!("there is a row: {}{}", ended.stdout, ended.stderr))
}

#[test]
fn figures_are_compared_with_a_file_of_this_machine() {
    let folder = tempfile::tempdir().expect("a folder is made");
    let file = folder.path().join("before.json");
    let before = file.to_str().expect("it is text");
    // Whether it reaches its target doesn't matter here.
    bench(&["--json", before, "memory"]);
    let figures: Value = serde_json::from_slice(&fs::read(&file).expect("the figures are written"))
        .expect("they are JSON");
    assert_eq!(
        (&figures["rows"][0]["name"], &figures["rows"][0]["better"]),
        (&json!("memory"), &json!("lower")),
        "{figures}"
    );
    assert_eq!(
        figures["rows"][0]["samples"].as_array().map(Vec::len),
        Some(7),
        "one for each run: {figures}"
    );
    // Without a name, everything in the file is measured. Two runs show no noise.
    let compared = bench(&["--compare", before, "--runs", "2"]).ends(0);
    assert!(
        row(&compared).contains(" %") && row(&compared).contains("too few to tell"),
        "{}",
        row(&compared)
    );
    // Against what had a tenth of the memory, and ten times as much.
    for (factor, verdict, code) in [(0.1, "worse", 1), (10.0, "better", 0)] {
        let mut other = figures.clone();
        // All rows, since one that differs by chance would decide on the exit code.
        for row in other["rows"].as_array_mut().expect("a list") {
            let samples = row["samples"].as_array_mut().expect("a list");
            samples
                .iter_mut()
                .for_each(|sample| *sample = json!(sample.as_f64().expect("a number") * factor));
        }
        fs::write(&file, other.to_string()).expect("they are written again");
        let compared = bench(&["--compare", before, "--runs", "4", "memory"]).ends(code);
        assert!(row(&compared).contains(verdict), "{}", row(&compared));
    }

    let refused = |key: &str, value: Value, why: &str| {
        let mut other = figures.clone();
        other[key] = value;
        fs::write(&file, other.to_string()).expect("they are written again");
        let refused = bench(&["--compare", before, "memory"]).ends(1);
        assert!(
            refused.stderr.contains(before) && refused.stderr.contains(why),
            "{}",
            refused.stderr
        );
        assert_eq!(
            (refused.stdout.as_str(), refused.stderr.contains("measure memory")),
            ("", false),
            "before anything is measured"
        );
    };
    refused(
        "machine",
        json!("64 × another one"),
        "it was measured on `64 × another one`; this machine is `",
    );
    refused("format", json!(0), "its format is 0; ");
    refused("rows", json!(1), "it has no `rows`");
}

#[test]
fn two_programs_are_compared_in_pairs_of_runs() {
    // As a developer keeps an old build: the program with its plugins beside it. What tests have
    // compiled for it is used again.
    let folder = tempfile::tempdir().expect("a folder is made");
    let kept = folder.path().canonicalize().expect("it is there").join("kept");
    let (release, plugins) = (kept.join("target/release"), kept.join("target/plugins"));
    fs::create_dir_all(&release).and_then(|()| fs::create_dir(&plugins)).expect("folders are made");
    for name in ["bench", "file", "shell", "web", "filters", "memory", "code"] {
        let name = format!("{name}.wasm");
        fs::copy(built("../plugins").join(&name), plugins.join(&name)).expect("a plugin is copied");
    }
    let program = release.join("bench");
    fs::create_dir_all(built("").join("../bench")).expect("a folder is made");
    std::os::unix::fs::symlink(built("").join("../bench"), kept.join("target/bench"))
        .expect("a link is made");
    for name in ["bench", "toolhold"] {
        fs::copy(built(name), release.join(name)).expect("the program is copied");
    }
    let program = program.to_str().expect("it is text");

    let compared = bench(&["--compare", program, "--runs", "2", "memory"]).ends(0);
    let heading = format!("before: {program} with the plugins of {}\n", kept.display());
    assert!(
        compared.stdout.starts_with(&heading) && compared.stdout.contains("2 pairs of runs"),
        "{}",
        compared.stdout
    );
    assert!(row(&compared).contains("too few to tell"), "{}", row(&compared));

    assert!(
        bench(&["--compare", program, "--json", "x", "memory"])
            .ends(1)
            .stderr
            .contains("there are two")
    );
    // Another program isn't a build of this one.
    let other = bench(&["--compare", "/bin/true", "memory"]).ends(1);
    assert!(
        other.stderr.contains("/true") && other.stderr.contains("wrote no figures"),
        "{}",
        other.stderr
    );
}
