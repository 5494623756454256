use std::path::{Path, PathBuf};

use berth_sdk::{
    Annotations, Call, Content, Failure, Output, Subject, Tool, config, working_directory,
};
use schemars::{JsonSchema, Schema};
use serde::Deserialize;

use crate::checker::Checker;
use crate::report::{self, Answer, State};
use crate::{run, seen};

/// The number of diagnostics of a call that names none.
const USUAL: u32 = 50;

/// Runs the compilers and linters of a project.
pub(crate) struct Diagnostics;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The folder of the project, or one in it. Default: the working directory.
    path: Option<String>,
    /// For Rust: `check` compiles, `clippy` also lints. Default: check.
    level: Option<Level>,
    /// The checkers to run. Default: those that fit the folder.
    checkers: Option<Vec<Checker>>,
    /// Set it to true to see only what the last call in this folder didn't find. Default: false.
    only_new: Option<bool>,
    /// The number of diagnostics that are shown. Default: 50.
    #[schemars(range(min = 1, max = 1000))]
    max: Option<u32>,
    /// Seconds after which the checkers are stopped. Default: 300, unless the operator changed it.
    #[schemars(range(min = 1, max = 86_400))]
    #[expect(dead_code, reason = "the host reads it, and sets the deadline")]
    timeout: Option<u32>,
}

/// How much is checked.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Level {
    #[default]
    Check,
    Clippy,
}

impl Level {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Clippy => "clippy",
        }
    }
}

/// `[tools.diagnostics]`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Settings {
    checkers: Option<Vec<Checker>>,
    arguments: CheckerArguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CheckerArguments {
    cargo: Vec<String>,
    tsc: Vec<String>,
    eslint: Vec<String>,
    ruff: Vec<String>,
    mypy: Vec<String>,
    go: Vec<String>,
}

impl CheckerArguments {
    fn for_checker(&self, checker: Checker) -> &[String] {
        match checker {
            Checker::Cargo => &self.cargo,
            Checker::Tsc => &self.tsc,
            Checker::Eslint => &self.eslint,
            Checker::Ruff => &self.ruff,
            Checker::Mypy => &self.mypy,
            Checker::Go => &self.go,
        }
    }
}

impl Tool for Diagnostics {
    const NAME: &str = "diagnostics";
    const TITLE: Option<&str> = Some("Check a project");
    const DESCRIPTION: &str = "\
        Runs the compilers and linters that fit a project (cargo check or clippy, tsc, eslint, ruff, mypy, go vet) and returns what they \
        find as file:line:column: level: message, errors first, with the change that the compiler suggests: at most 50, without repetitions. \
        Use it after edits, instead of reading the output of a build: with only_new = true, it shows what an edit broke. The checkers run in \
        the sandbox of bash, without the network, and its rules hold for their commands. A checker that isn't installed is named and doesn't \
        stop the others. Fails if none could check anything.";
    const ANNOTATIONS: Annotations =
        Annotations { destructive: false, open_world: false, ..Annotations::ACTING };
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path")];
    const TIMEOUT_ARGUMENT: Option<&str> = Some("timeout");
    const ANSWERS_IN_TEXT: bool = true;
    type Arguments = Arguments;

    fn output_schema() -> Option<Schema> {
        Some(berth_sdk::schema::for_type::<Answer>())
    }

    fn call(arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        let Arguments { path, level, checkers, only_new, max, .. } = arguments;
        let top = working_directory()?;
        let folder = folder(path.map_or_else(|| top.clone(), PathBuf::from))?;
        let level = level.unwrap_or_default();
        let settings: Settings = config::all()?;
        let allowed = settings.checkers.as_deref().unwrap_or(&Checker::ALL);
        let wanted = checkers.as_deref().unwrap_or(&Checker::ALL);
        if let Some(off) = checkers.iter().flatten().find(|checker| !allowed.contains(checker)) {
            return Err(Failure::permanent("off", format!("{} is off", off.name()))
                .with_suggestion("The operator can add it to `checkers` in [tools.diagnostics]."));
        }
        let fitting: Vec<(Checker, PathBuf)> = Checker::ALL
            .into_iter()
            .filter(|checker| allowed.contains(checker) && wanted.contains(checker))
            .filter_map(|checker| Some((checker, checker.root(&folder, &top)?)))
            .collect();
        if fitting.is_empty() {
            return Err(nothing_fits(&folder, allowed, wanted));
        }
        let mut ran = Vec::new();
        for (number, (checker, root)) in fitting.iter().enumerate() {
            call.progress(number as f64 / fitting.len() as f64, checker.name());
            let more = settings.arguments.for_checker(*checker);
            let command = checker.command(level, root, &top, more);
            ran.push(run::run(*checker, &command, root, &top, call));
        }
        let has_checked = ran.iter().any(report::Ran::has_checked);
        let gone = seen::compare(&folder, level, &mut ran);
        let gone = if only_new == Some(true) { Some(gone?) } else { None };
        let failed = (!has_checked).then(|| failure(&ran));
        let most = max.unwrap_or(USUAL) as usize;
        let (content, answer) = report::answer(ran, most, gone);
        match failed {
            None => Output::default().with(content).with_structured(&answer),
            Some(failure) => Err(failure.with_structured(serde_json::to_value(&answer)?)),
        }
    }
}

/// The folder, or that of a file.
fn folder(path: PathBuf) -> Result<PathBuf, Failure> {
    let meta = std::fs::metadata(&path)
        .map_err(|error| Failure::io(format!("opening {}", path.display()), &error))?;
    match path.parent() {
        Some(parent) if !meta.is_dir() => Ok(parent.to_owned()),
        _ => Ok(path),
    }
}

/// The failure if no checker fits.
fn nothing_fits(folder: &Path, allowed: &[Checker], wanted: &[Checker]) -> Failure {
    let tried = allowed.iter().filter(|checker| wanted.contains(checker));
    let looked_for: Vec<String> =
        tried.map(|checker| format!("{} ({})", checker.looks_for(), checker.name())).collect();
    let looked_for = match looked_for.is_empty() {
        true => "no checker is on".to_owned(),
        false => format!("it has none of: {}", looked_for.join(", ")),
    };
    Failure::permanent(
        "nothing-fits",
        format!("no checker fits {}: {looked_for}", folder.display()),
    )
    .with_suggestion("Set path to the folder of a project.")
}

/// The failure if no checker could check anything. What a checker wrote is a part that is marked.
fn failure(ran: &[report::Ran]) -> Failure {
    let (mut details, mut written) = (Vec::new(), String::new());
    for ran in ran {
        let (name, detail) = (ran.checker.name(), ran.detail.as_deref().unwrap_or_default());
        let what = match ran.state {
            State::Missing => "isn't installed",
            State::Refused => "was not run",
            State::Cut | State::Timeout => "didn't finish",
            State::Ran | State::Failed => {
                details.push(format!("{name} failed"));
                written += &format!("{name}: {detail}\n");
                continue;
            }
        };
        details.push(format!("{name} {what}: {detail}"));
    }
    let code = match ran.iter().any(|ran| ran.state == State::Refused) {
        true => "not-permitted",
        false => "not-checked",
    };
    let failure = Failure::permanent(code, details.join("\n"));
    if written.is_empty() { failure } else { failure.with_content(Content::untrusted(written)) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use berth_sdk::testing;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;

    /// A project whose `tsc` is this script.
    fn project(script: &str) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("node_modules/.bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(dir.path().join("tsconfig.json"), "{}").unwrap();
        write(&dir, script);
        dir
    }

    fn write(dir: &TempDir, script: &str) {
        let program = dir.path().join("node_modules/.bin/tsc");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn call(dir: &TempDir, mut arguments: Value) -> Result<Output, Failure> {
        arguments["path"] = json!(dir.path());
        testing::call::<Diagnostics>(arguments)
    }

    #[test]
    fn findings_are_sorted_bounded_and_compared_with_the_last_call() {
        let line = |number: u32| format!("echo 'a.ts({number},1): error TS{number}: no'");
        let dir = project(&[line(2), line(1), line(2), "exit 2".to_owned()].join("; "));
        let output = call(&dir, json!({ "max": 1 })).unwrap();
        let text = output.joined_text();
        assert!(
            text.contains("a.ts:1:1: error: no [TS1]\n2 errors, 0 warnings (tsc).\n"),
            "{text}"
        );
        assert!(output.content.iter().all(|part| part.untrusted), "{text}");
        assert!(text.contains("[1 of 2 diagnostics are shown."), "{text}");
        write(&dir, &line(3).replace("a.ts(3", "a.ts(9"));
        let output = call(&dir, json!({ "only_new": true })).unwrap();
        let text = output.joined_text();
        assert!(
            text.contains("[TS3]\n1 error, 0 warnings, new since the last call (tsc).")
                && text.contains("2 diagnostics are gone"),
            "{text}"
        );
        let output = call(&dir, json!({ "only_new": true })).unwrap();
        assert_eq!(output.joined_text(), "No new diagnostics (tsc).\n");
        assert!(output.content.iter().all(|part| !part.untrusted), "nobody else wrote it");
        assert_eq!(output.structured.unwrap()["total"], 0);
    }

    #[test]
    fn checker_that_fails_says_nothing_of_the_project() {
        let dir = project("echo 'what went wrong' >&2; exit 3");
        let failure = call(&dir, json!({})).unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("not-checked"));
        assert_eq!(failure.message, "tsc failed");
        assert_eq!(failure.joined_text(), "tsc: exit code 3: what went wrong\n");
        assert!(failure.content[0].untrusted, "a program of the project wrote it");
        write(&dir, "exec no-such-program-anywhere");
        let failure = call(&dir, json!({})).unwrap_err();
        assert!(failure.message.contains("tsc isn't installed: Install it in"), "{failure}");
    }

    #[test]
    fn checker_that_says_nothing_is_no_clean_project() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join(".venv/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(dir.path().join("a.py"), "").unwrap();
        let run = |script: &str, timeout: u32| {
            let program = bin.join("ruff");
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
            call(&dir, json!({ "checkers": ["ruff"], "timeout": timeout }))
        };
        assert_eq!(run("echo '[]'", 60).unwrap().joined_text(), "No diagnostics (ruff).\n");
        for (script, said) in [
            ("exit 0", "it wrote nothing"),
            ("echo not json", "it wrote no JSON: not json"),
            ("echo 'not json'; exit 2", "exit code 2: not json"),
        ] {
            let failure = run(script, 60).unwrap_err();
            assert_eq!(failure.code.as_deref(), Some("not-checked"));
            assert!(failure.joined_text().contains(said), "{failure:?}");
        }
    }

    #[test]
    fn project_and_checkers_have_to_fit() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(call(&dir, json!({})).unwrap_err().code.as_deref(), Some("nothing-fits"));
        testing::set_config(json!({ "checkers": ["cargo"] }));
        let failure = call(&dir, json!({ "checkers": ["tsc"] })).unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("off"));
        let schema = &testing::definition::<Diagnostics>()["input_schema"];
        let described = |property: &Value| property["description"].is_string();
        assert!(schema["properties"].as_object().unwrap().values().all(described), "{schema}");
    }
}
