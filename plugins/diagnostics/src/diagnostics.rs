//! `diagnostics`: its arguments, which checkers it runs in which folders, and its answer.

use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use toolhold_sdk::{
    Call, Content, Failure, Output, Promises, Subject, Tool, config, working_directory,
};

use crate::checker::{Checker, Level};
use crate::finding::one_line;
use crate::project::{self, Other};
use crate::references::{self, Configs};
use crate::report::{self, Answer, Ran, State};
use crate::run::{self, Time};
use crate::seen;

/// Most bytes of the names of configurations that were left out.
const MAX_NAMES: usize = 500;

/// The number of diagnostics of a call that names none.
const USUAL: u32 = 50;

/// Runs the compilers and linters of a project.
pub(crate) struct Diagnostics;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The project's folder. Default: `.`.
    path: Option<String>,
    /// For Rust: `clippy` also lints. Default: check.
    level: Option<Level>,
    /// Default: those that fit.
    checkers: Option<Vec<Checker>>,
    /// Only what the last call here didn't find: what an edit broke.
    only_new: Option<bool>,
    /// Default: 50.
    #[schemars(range(min = 1, max = 1000))]
    max: Option<u32>,
    /// Seconds in all. Default: 300.
    #[schemars(range(min = 1, max = 86_400))]
    timeout: Option<u32>,
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
        Runs the compilers and linters that fit a project (cargo, tsc, eslint, ruff, mypy, go vet) \
        and returns what they find as file:line:column: level: message, errors first, with \
        suggested changes. Use it after edits. Runs in \
        the sandbox of bash, without the network.";
    const PROMISES: Promises = Promises { additive: true, closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path")];
    const TIMEOUT_ARGUMENT: Option<&str> = Some("timeout");
    const ANSWERS_IN_TEXT: bool = true;
    type Arguments = Arguments;

    fn output_schema() -> Option<Schema> {
        Some(toolhold_sdk::schema::for_type::<Answer>())
    }

    fn call(arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        let Arguments { path, level, checkers, only_new, max, timeout } = arguments;
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
        let tried: Vec<Checker> = Checker::ALL
            .into_iter()
            .filter(|checker| allowed.contains(checker) && wanted.contains(checker))
            .collect();
        let fitting = match checkers {
            // A named checker runs, whatever the nearest project is.
            Some(_) => project::roots(&folder, &top, &tried),
            None => project::fitting(&folder, &top, &tried),
        };
        // A module of Go below another one isn't checked with it.
        let apart: Vec<Checker> = tried
            .iter()
            .copied()
            .filter(|checker| {
                !fitting.iter().any(|(fits, _)| fits == checker) || *checker == Checker::Go
            })
            .collect();
        let others = project::others(&folder, &top, &apart);
        if fitting.is_empty() {
            return Err(nothing_fits(&folder, &top, &tried, &others));
        }
        let time = Time::new(call, timeout);
        let mut ran = Vec::new();
        for (number, (checker, root)) in fitting.iter().enumerate() {
            call.progress(number as f64 / fitting.len() as f64, checker.name());
            let more = settings.arguments.for_checker(*checker);
            ran.push(match checker {
                Checker::Tsc => run_tsc(level, root, &top, more, &time),
                _ => run::run(*checker, &[checker.command(level, root, more)], root, &top, &time),
            });
        }
        let has_checked = ran.iter().any(report::Ran::has_checked);
        let gone = seen::compare(&folder, level, &mut ran);
        let gone = if only_new == Some(true) { Some(gone?) } else { None };
        let failed = (!has_checked).then(|| failure(&ran));
        let most = max.unwrap_or(USUAL) as usize;
        let (content, answer) = report::answer(ran, most, gone, others);
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

/// Runs `tsc` for each configuration of a project.
fn run_tsc(level: Level, root: &Path, top: &Path, more: &[String], time: &Time<'_>) -> Ran {
    let names_project = more
        .iter()
        .any(|word| ["-p", "--project"].iter().any(|name| word.eq_ignore_ascii_case(name)));
    if names_project {
        // The operator names the project to check.
        return run::run(Checker::Tsc, &[Checker::Tsc.command(level, root, more)], root, top, time);
    }
    let Configs { checked, left_out } = references::configs(root);
    let has_one = checked == [references::CONFIG];
    let commands: Vec<Vec<String>> = checked
        .iter()
        .map(|config| {
            let chosen = ["-p".to_owned(), config.clone()];
            let more = if has_one { more.to_vec() } else { [&chosen, more].concat() };
            Checker::Tsc.command(level, root, &more)
        })
        .collect();
    let mut ran = run::run(Checker::Tsc, &commands, root, top, time);
    let names = one_line(&left_out.join(", "), MAX_NAMES);
    if checked.is_empty() {
        ran.state = State::Failed;
        let others = if left_out.is_empty() {
            "it refers to no other configuration".to_owned()
        } else {
            format!("these aren't in its folder: {names}")
        };
        ran.detail = Some(format!("tsconfig.json has no files, and {others}"));
    } else if !left_out.is_empty() && ran.state == State::Ran {
        ran.detail = Some(format!("these configurations were left out: {names}"));
    }
    ran
}

/// The failure if no checker fits.
fn nothing_fits(
    folder: &Path,
    top: &Path,
    tried: &[Checker],
    others: &(Vec<Other>, bool),
) -> Failure {
    let languages = project::languages(folder, top, tried);
    let files: Vec<String> = tried
        .iter()
        .filter(|checker| languages.is_empty() || languages.contains(&checker.language()))
        .map(|checker| format!("{} ({})", checker.looks_for(), checker.name()))
        .collect();
    let looked_for = if files.is_empty() {
        "no checker is on".to_owned()
    } else {
        format!("it has none of: {}", files.join(", "))
    };
    let failure = Failure::permanent(
        "nothing-fits",
        format!("no checker fits {}: {looked_for}", folder.display()),
    )
    .with_suggestion("Set path to the folder of a project.");
    if others.0.is_empty() {
        return failure;
    }
    // The names are untrusted.
    let named = project::named(others);
    failure.with_content(Content::untrusted(format!("Projects below: {named}.\n")))
}

/// The failure if no checker could check anything. The output of a checker is a part that is
/// marked.
fn failure(ran: &[report::Ran]) -> Failure {
    let mut details = Vec::new();
    let mut written = String::new();
    for ran in ran {
        let name = ran.checker.name();
        let detail = ran.detail.as_deref().unwrap_or_default();
        let what = match ran.state {
            State::Missing => "isn't installed",
            State::Refused => "was not run",
            State::Cut | State::Timeout => "didn't finish",
            State::Ran | State::Failed => {
                let hint = ran.hint.map(|hint| format!(". {hint}")).unwrap_or_default();
                details.push(format!("{name} failed{hint}"));
                written += &format!("{name}: {detail}\n");
                continue;
            }
        };
        let hint = ran.hint.map(|hint| format!(" {hint}")).unwrap_or_default();
        details.push(format!("{name} {what}: {detail}{hint}"));
    }
    let is_refused = ran.iter().any(|ran| ran.state == State::Refused);
    let code = if is_refused { "not-permitted" } else { "not-checked" };
    let failure = Failure::permanent(code, details.join("\n"));
    if written.is_empty() { failure } else { failure.with_content(Content::untrusted(written)) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use serde_json::{Value, json};
    use tempfile::TempDir;
    use toolhold_sdk::testing;

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
        write_program(&dir.path().join("node_modules/.bin/tsc"), script);
    }

    /// Another process writes it: a process that another test starts meanwhile would have this
    /// one's handle, and a program that is open for writing can't be started.
    fn write_program(path: &Path, script: &str) {
        let mut install = Command::new("install");
        let install = install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
        let mut install = install.spawn().unwrap();
        let text = format!("#!/bin/sh\n{script}\n");
        install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(install.wait().unwrap().success());
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
        // The first call of another level is compared with the last one too.
        let output = call(&dir, json!({ "level": "clippy", "only_new": true })).unwrap();
        assert_eq!(output.joined_text(), "No new diagnostics (tsc).\n");
        assert!(output.content.iter().all(|part| !part.untrusted), "nobody else wrote it");
        assert_eq!(output.structured.unwrap()["total"], 0);
    }

    #[test]
    fn checker_that_fails_says_nothing_of_the_project() {
        let dir = project("echo 'what went wrong' >&2; exit 3");
        let failure = call(&dir, json!({})).unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("not-checked"));
        assert_eq!(failure.message, "tsc failed", "nothing says that a grant is missing");
        assert_eq!(failure.joined_text(), "tsc: exit code 3: what went wrong\n");
        assert!(failure.content[0].untrusted, "a program of the project wrote it");
        write(&dir, "echo 'x: No such file or directory' >&2; exit 3");
        let failure = call(&dir, json!({})).unwrap_err();
        let grant =
            "tsc failed. Commands see only granted files: unless it is set, `presets = [\"node\"]`";
        assert!(failure.message.starts_with(grant), "{failure}");
        write(&dir, "exec no-such-program-anywhere");
        let failure = call(&dir, json!({})).unwrap_err();
        assert!(failure.joined_text().contains("bin/tsc or its interpreter can't be seen"));
        assert!(failure.message.contains("`presets = [\"node\"]` in [tools.shell]"), "{failure}");
    }

    #[test]
    fn checker_that_says_nothing_is_no_clean_project() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join(".venv/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(dir.path().join("a.py"), "").unwrap();
        let run = |script: &str, timeout: u32| {
            write_program(&bin.join("ruff"), script);
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
    fn referenced_configurations_are_checked_one_after_the_other() {
        let script = "while [ $# -gt 0 ]; do [ \"$1\" = -p ] && C=$2; shift; done
                      echo \"$C\" >> ran; echo \"${C%.json}.ts(1,1): error TS1: no\"; exit 2";
        let dir = project(script);
        let references = |files, names: &[&str]| {
            let named = names.iter().map(|name| format!("{{\"path\":\"{name}\"}}"));
            let named = named.collect::<Vec<_>>().join(",");
            let text = format!("{{{files}\"references\":[{named}]}}");
            fs::write(dir.path().join("tsconfig.json"), text).unwrap();
        };
        let ran = || fs::read_to_string(dir.path().join("ran")).unwrap_or_default();
        references("\"files\":[],", &["./a.json", "b.json", "../outside"]);
        let text = call(&dir, json!({})).unwrap().joined_text();
        assert_eq!(ran(), "a.json\nb.json\n");
        assert!(text.contains("2 errors, 0 warnings (tsc)."), "{text}");
        assert!(text.contains("outside/tsconfig.json") && text.contains("only a part"), "{text}");
        fs::remove_file(dir.path().join("ran")).unwrap();
        references("", &["b.json"]);
        call(&dir, json!({})).unwrap();
        assert_eq!(ran(), "tsconfig.json\nb.json\n");
        // A name with a space is one word for the program, and quoted where it is shown.
        fs::remove_file(dir.path().join("ran")).unwrap();
        references("\"files\":[],", &["my app"]);
        let output = call(&dir, json!({})).unwrap();
        assert_eq!(ran(), "my app/tsconfig.json\n");
        let answer = output.structured.unwrap();
        let command = answer["checkers"][0]["command"].as_str().unwrap();
        assert!(command.ends_with("-p 'my app/tsconfig.json'"), "{command}");
        fs::remove_file(dir.path().join("ran")).unwrap();
        references("\"files\":[],", &["../outside"]);
        let failure = call(&dir, json!({})).unwrap_err();
        assert_eq!((failure.code.as_deref(), &*ran()), (Some("not-checked"), ""));
        assert!(failure.joined_text().contains("outside/tsconfig.json"), "{failure:?}");
        // Nothing to check is no clean project.
        for (files, names) in [("\"files\":[],", &[][..]), ("\"files\":[],", &["."])] {
            references(files, names);
            let failure = call(&dir, json!({})).unwrap_err();
            assert_eq!((failure.code.as_deref(), &*ran()), (Some("not-checked"), ""));
            assert!(failure.joined_text().contains("no other configuration"), "{failure:?}");
        }
        // The operator's own configuration is the only one.
        references("\"files\":[],", &["b.json"]);
        testing::set_config(json!({ "arguments": { "tsc": ["-p", "own.json"] } }));
        call(&dir, json!({})).unwrap();
        assert_eq!(ran(), "own.json\n");
    }

    #[test]
    fn projects_below_are_named() {
        let dir = project("exit 0");
        fs::create_dir(dir.path().join("back")).unwrap();
        fs::write(dir.path().join("back/go.mod"), "").unwrap();
        let output = call(&dir, json!({})).unwrap();
        let text = output.joined_text();
        assert!(
            text.starts_with("No diagnostics (tsc).\n") && text.contains("back (go)"),
            "{text}"
        );
        assert!(output.content.iter().all(|part| part.untrusted), "the project names its folders");
        assert_eq!(output.structured.unwrap()["unchecked"][0]["checkers"], json!(["go"]));
        fs::remove_file(dir.path().join("tsconfig.json")).unwrap();
        let failure = call(&dir, json!({})).unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("nothing-fits"));
        assert!(failure.joined_text().contains("back (go)"), "{failure:?}");
        assert!(failure.content[0].untrusted);
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
