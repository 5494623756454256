//! Outputs of real tools through the shipped component: what matters survives, wherever it is.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toolhold_core::text::shown;
use toolhold_core::{Content, FilterInput, FilterVerdict, Host, commands};

use crate::support::Scene;

/// The facts about an output.
#[derive(Deserialize)]
struct Case {
    command: String,
    exit: i32,
    kind: String,
    /// Lines that must survive.
    keep: Vec<String>,
}

fn cases() -> Vec<(PathBuf, Case, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders =
        fs::read_dir(&root).expect("there is a corpus").flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = folders
        .filter(|path| path.is_dir())
        .flat_map(|path| fs::read_dir(path).expect("it is readable").flatten())
        .map(|entry| entry.path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let case = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("it is readable");
        let case =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let output = fs::read(path.with_extension("out")).expect("it has an output");
        (path, case, String::from_utf8_lossy(&output).into_owned())
    };
    files.into_iter().map(case).collect()
}

/// The output after the matching filters.
async fn left(host: &Host, command: &str, exit: i32, output: &str) -> String {
    let last = commands::last_command(command);
    let (subject, among_others) = last.map_or((None, false), |last| (Some(last.line), !last.alone));
    let mut input = FilterInput {
        tool: "bash".to_owned(),
        subject: subject.clone(),
        exit_code: Some(exit),
        among_others,
        ..FilterInput::default()
    };
    input.content = vec![Content::text(output)];
    for name in host.fitting_filters("bash", subject.as_deref()) {
        let verdict = host
            .try_filter(&name, input.clone())
            .await
            .unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        if let FilterVerdict::Replace { content, .. } = verdict {
            input.content = content;
        }
    }
    input.content.iter().filter_map(Content::as_text).collect()
}

/// Whether a whole line is still there: unchanged, or with its place given elsewhere.
fn survives(line: &str, left: &str) -> bool {
    let apart = |sign: &str| line.split(sign).all(|piece| left.contains(piece.trim()));
    left.contains(line) || [": ", " - ", "  ", " "].iter().any(|sign| apart(sign))
}

#[tokio::test]
async fn important_lines_of_real_outputs_survive() {
    let scene = Scene::with(&["tools.limits.cpu_secs=10"], |_| {}).await;
    let cases = cases();
    assert!(cases.len() >= 400, "{}", cases.len());
    let (mut fitting, mut before, mut after) = (0, 0, 0);
    for (path, case, output) in &cases {
        let output = shown(output.clone(), true);
        let left = left(&scene.host, &case.command, case.exit, &output).await;
        for text in &case.keep {
            assert!(survives(text, &left), "{}: {text:?} is lost; left is\n{left}", path.display());
        }
        assert!(left.len() <= output.len(), "{} grows", path.display());
        fitting += usize::from(left.len() < output.len());
        if case.kind == "tests-pass" {
            (before, after) = (before + output.len(), after + left.len());
        }
    }
    assert!(fitting > 200, "only {fitting} are made shorter");
    assert!(after * 100 <= before * 15, "of {before} bytes of passing tests, {after} are left");
}

#[tokio::test]
async fn error_survives_filtering_at_any_place() {
    let scene = Scene::with(&["tools.limits.cpu_secs=10"], |_| {}).await;
    for (number, (path, case, output)) in cases().into_iter().enumerate() {
        let output = shown(output, true);
        let error = format!("src/main.rs:{number}:7: error: planted here, and to be read");
        let lines: Vec<&str> = output.lines().collect();
        let at = lines.len() * (number % 4) / 3;
        let planted =
            [&lines[..at.min(lines.len())], &[error.as_str()], &lines[at.min(lines.len())..]]
                .concat()
                .join("\n");
        let left = left(&scene.host, &case.command, case.exit, &planted).await;
        assert!(left.contains(&error), "{}: it is lost at line {at} of\n{left}", path.display());
    }
}
