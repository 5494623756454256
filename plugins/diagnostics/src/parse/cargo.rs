//! Parses `cargo --message-format=json`: an object a line, of which those with a message of the
//! compiler count.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Parser;
use crate::finding::{Collector, Severity, Written};

pub(crate) const PARSER: Parser = Parser { object, line };

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    manifest_path: PathBuf,
    message: Option<Message>,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    message: String,
    code: Option<Code>,
    #[serde(default)]
    spans: Vec<Span>,
    #[serde(default)]
    children: Vec<Child>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: u32,
    column_start: u32,
    is_primary: bool,
    suggested_replacement: Option<String>,
}

#[derive(Deserialize)]
struct Child {
    level: String,
    message: String,
    #[serde(default)]
    spans: Vec<Span>,
}

fn object(collector: &mut Collector, object: &[u8]) {
    let Ok(Line { manifest_path, message: Some(message) }) = serde_json::from_slice(object) else {
        return;
    };
    let severity = match &*message.level {
        level if level.starts_with("error") => Severity::Error,
        "warning" => Severity::Warning,
        // It only refers to other messages.
        "failure-note" => return,
        _ => Severity::Note,
    };
    let span = message.spans.iter().find(|span| span.is_primary).or(message.spans.first());
    // A summary, such as `aborting due to 2 previous errors`.
    let is_summary =
        message.message.starts_with("aborting due to") || message.message.ends_with(" emitted");
    if span.is_none() && is_summary {
        return;
    }
    let path = span.map(|span| in_workspace(&manifest_path, &span.file_name));
    collector.add(Written {
        path: path.as_deref(),
        line: span.map(|span| span.line_start),
        column: span.map(|span| span.column_start),
        severity,
        code: message.code.as_ref().map(|code| &*code.code),
        message: &message.message,
        suggestion: suggestion(&message.children),
    });
}

/// The output of a build script, which is only in cargo's own text: `warning: NAME@VERSION:
/// MESSAGE`.
fn line(collector: &mut Collector, line: &str) {
    let Some((word, message)) = line.split_once(": ") else { return };
    let severity = match word {
        "error" => Severity::Error,
        "warning" => Severity::Warning,
        _ => return,
    };
    let package = message.split_once(": ").map_or("", |(package, _)| package);
    if !package.contains('@') || package.contains([' ', '`']) {
        return;
    }
    collector.add(Written {
        path: None,
        line: None,
        column: None,
        severity,
        code: None,
        message,
        suggestion: None,
    });
}

/// The path of a file that is named relative to the workspace, of which only a package is known.
fn in_workspace(manifest: &Path, file: &str) -> String {
    let mut folders = manifest.ancestors().skip(1);
    let found = folders.find_map(|folder| Some(folder.join(file)).filter(|path| path.exists()));
    found.map_or_else(|| file.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// The replacement that the compiler would write, or its other advice.
fn suggestion(children: &[Child]) -> Option<String> {
    let replacement = children.iter().find_map(|child| {
        let texts = child.spans.iter().filter_map(|span| span.suggested_replacement.as_deref());
        let texts: Vec<&str> = texts.collect();
        let shown = texts.iter().filter(|text| !text.trim().is_empty());
        let shown: Vec<String> = shown.map(|text| format!("`{}`", text.trim())).collect();
        match (texts.is_empty(), shown.is_empty()) {
            (true, _) => None,
            (false, true) => Some(child.message.clone()),
            (false, false) => Some(format!("{}: {}", child.message, shown.join(", "))),
        }
    });
    replacement.or_else(|| {
        let advice = children.iter().find(|child| child.level == "help")?;
        Some(advice.message.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn message_of_the_compiler_counts() {
        let output = r#"{"reason":"compiler-artifact","manifest_path":"/w/Cargo.toml","fresh":true}
{"reason":"compiler-message","manifest_path":"/w/Cargo.toml","message":{"rendered":"…","level":"error","message":"mismatched types","code":{"code":"E0308","explanation":"long"},"spans":[{"file_name":"src/b.rs","line_start":1,"column_start":1,"is_primary":false,"suggested_replacement":null},{"file_name":"src/a.rs","line_start":3,"column_start":9,"is_primary":true,"suggested_replacement":null}],"children":[{"level":"help","message":"try","spans":[{"file_name":"src/a.rs","line_start":3,"column_start":9,"is_primary":true,"suggested_replacement":"1_i32"}]}]}}
{"reason":"compiler-message","message":{"level":"warning","message":"unused variable: `x`","code":{"code":"unused_variables"},"spans":[],"children":[{"level":"help","message":"remove it","spans":[]}]}}
{"reason":"compiler-message","message":{"level":"error","message":"aborting due to 1 previous error","code":null,"spans":[],"children":[]}}
{"reason":"compiler-message","message":{"level":"failure-note","message":"For more information","code":null,"spans":[],"children":[]}}
{"reason":"build-finished","success":false}
{"broken
"#;
        let expected = [
            "src/a.rs:3:9: error: mismatched types [E0308]\n    try: `1_i32`",
            "warning: unused variable: `x` [unused_variables]\n    remove it",
        ];
        assert_eq!(found(PARSER, output), expected);
    }

    #[test]
    fn build_script_that_warns_counts() {
        let output = "   Compiling pk v0.1.0 (/w)\nwarning: pk@0.1.0: no\u{1b}[2J header: x\n\
                      warning: unused manifest key: package.x\nerror: pk@0.1.0: gone\n\
                      warning: `pk` (lib) generated 1 warning\nerror: mail me@x: now\n";
        let expected = ["warning: pk@0.1.0: no [2J header: x", "error: pk@0.1.0: gone"];
        assert_eq!(found(PARSER, output), expected);
    }

    #[test]
    fn file_is_found_in_the_workspace_of_its_package() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("crates/one");
        std::fs::create_dir_all(package.join("src")).unwrap();
        std::fs::write(package.join("src/lib.rs"), "").unwrap();
        let path = in_workspace(&package.join("Cargo.toml"), "crates/one/src/lib.rs");
        assert_eq!(Path::new(&path), package.join("src/lib.rs"));
        assert_eq!(in_workspace(&package.join("Cargo.toml"), "no.rs"), "no.rs");
    }
}
