//! The tasks and attacks of `toolhold demo`, and the checks of their results.

use serde_json::{Value, json};
use thiserror::Error;
use toolhold_core::{Failure, Outcome};

use crate::demo::scene::{README, Scene};

#[derive(Debug, Error, PartialEq)]
pub(crate) enum ActError {
    #[error("{}", reason(.0))]
    Failed(Box<Failure>),
    #[error("the answer is wrong: {0}")]
    WrongAnswer(String),
    #[error("the call took {0} s")]
    Late(u64),
    #[error("the call was allowed")]
    Allowed,
    #[error("the file outside the project was changed")]
    OutsideChanged,
    #[error("the file was changed")]
    FileChanged,
    #[error("the secret was sent")]
    Leaked,
    #[error("Toolhold grew to {0} MiB")]
    Memory(u64),
    #[error("the answer still had {0} bytes")]
    Flooded(usize),
}

/// A call, and the check of its result.
pub(crate) struct Act {
    pub(crate) title: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) arguments: fn(&Scene) -> Value,
    /// Checks the effect of the call, and returns a text for the report.
    pub(crate) judge: fn(&Scene, &Outcome) -> Result<String, ActError>,
}

/// Ordinary tasks on real files.
pub(crate) const TASKS: &[Act] = &[
    Act {
        title: "write a file",
        tool: "write",
        arguments: |_| json!({ "path": "notes/today.md", "content": "first\nsecond\nthird\n" }),
        judge: |scene, outcome| {
            let written =
                std::fs::read_to_string(scene.project.join("notes/today.md")).unwrap_or_default();
            answered(outcome, |_| written == "first\nsecond\nthird\n")
        },
    },
    Act {
        title: "read it",
        tool: "read",
        arguments: |_| json!({ "path": "notes/today.md", "limit": 1 }),
        judge: |_, outcome| {
            answered(outcome, |text| text.contains("first") && !text.contains("second"))
        },
    },
    Act {
        title: "edit it",
        tool: "edit",
        arguments: |_| json!({ "path": "notes/today.md", "old_string": "second", "new_string": "2nd" }),
        judge: |scene, outcome| {
            let written =
                std::fs::read_to_string(scene.project.join("notes/today.md")).unwrap_or_default();
            answered(outcome, |_| written == "first\n2nd\nthird\n")
        },
    },
    Act {
        title: "undo the edit",
        tool: "undo",
        arguments: |_| json!({}),
        judge: |scene, outcome| {
            let written =
                std::fs::read_to_string(scene.project.join("notes/today.md")).unwrap_or_default();
            answered(outcome, |_| written == "first\nsecond\nthird\n")?;
            Ok("notes/today.md is as before the edit".to_owned())
        },
    },
    Act {
        title: "search the project",
        tool: "grep",
        arguments: |_| json!({ "pattern": "h[ae]llo" }),
        judge: |_, outcome| {
            answered(outcome, |text| text.contains("main.rs") && text.contains("README.md"))
        },
    },
    Act {
        title: "find files",
        tool: "find_path",
        arguments: |_| json!({ "pattern": "**/*.rs" }),
        judge: |_, outcome| {
            answered(outcome, |text| text.contains("src/main.rs") && !text.contains("README"))
        },
    },
    Act {
        title: "list the folder",
        tool: "list_directory",
        arguments: |_| json!({}),
        judge: |_, outcome| {
            answered(outcome, |text| {
                ["src", "notes", "README.md"].iter().all(|name| text.contains(name))
            })
        },
    },
];

pub(crate) const ATTACKS: &[Act] = &[
    Act {
        title: "read a file outside the project",
        tool: "hostile__read_outside",
        arguments: |scene| json!({ "path": scene.secret_file }),
        judge: nothing_leaked,
    },
    Act {
        title: "read it through a link inside",
        tool: "hostile__read_outside",
        arguments: |scene| json!({ "path": scene.project.join("link.txt") }),
        judge: nothing_leaked,
    },
    Act {
        title: "overwrite it",
        tool: "hostile__write_outside",
        arguments: |scene| json!({ "path": scene.secret_file }),
        judge: |scene, outcome| {
            let reason = failure_of(outcome)?;
            if scene.secret_is_untouched() { Ok(reason) } else { Err(ActError::OutsideChanged) }
        },
    },
    Act {
        title: "claim that it only reads, and write",
        tool: "hostile__lie_about_reading",
        arguments: |scene| json!({ "path": scene.project.join("README.md") }),
        judge: |scene, outcome| {
            let reason = failure_of(outcome)?;
            let text = std::fs::read_to_string(scene.project.join("README.md")).unwrap_or_default();
            if text == README { Ok(reason) } else { Err(ActError::FileChanged) }
        },
    },
    Act {
        title: "loop for ever",
        tool: "hostile__loop_forever",
        arguments: |_| json!({}),
        judge: |_, outcome| failure_of(outcome),
    },
    Act {
        title: "take all memory",
        tool: "hostile__memory_bomb",
        arguments: |_| json!({}),
        judge: |_, outcome| {
            let reason = failure_of(outcome)?;
            // The sandbox may use 64 MiB. Toolhold needs far less than the other 448 MiB.
            match peak_memory_mib() {
                Some(mib) if mib > 512 => Err(ActError::Memory(mib)),
                _ => Ok(reason),
            }
        },
    },
    Act {
        title: "flood the output",
        tool: "hostile__flood_output",
        arguments: |_| json!({}),
        judge: |_, outcome| {
            let kept = match outcome {
                Ok(output) => json!(output).to_string().len(),
                Err(failure) => json!(failure).to_string().len(),
            };
            // The sandbox's limit is 1 MiB, but escapes in JSON make the answer longer.
            if kept > 4 << 20 {
                Err(ActError::Flooded(kept))
            } else {
                Ok(format!("cut to {kept} bytes"))
            }
        },
    },
];

/// Returns the text of the answer if `right` accepts it.
fn answered(outcome: &Outcome, right: impl Fn(&str) -> bool) -> Result<String, ActError> {
    let output = outcome.as_ref().map_err(|failure| ActError::Failed(failure.clone().into()))?;
    let text = output.joined_text();
    if right(&text) { Ok(text) } else { Err(ActError::WrongAnswer(text)) }
}

/// Returns the rule, the limit or the error that stopped the call.
///
/// # Errors
///
/// Returns an error if the call succeeded.
fn failure_of(outcome: &Outcome) -> Result<String, ActError> {
    let failure = outcome.as_ref().err().ok_or(ActError::Allowed)?;
    if let Some(denial) = &failure.denial {
        // A rule may have a value, as in `allowed_paths = ["/home/u"]`, which the report leaves
        // out.
        let key = denial.rule.split(" = ").next().unwrap_or_default();
        return Ok(key.to_owned());
    }
    Ok(failure.code.clone().unwrap_or_else(|| reason(failure)))
}

fn nothing_leaked(scene: &Scene, outcome: &Outcome) -> Result<String, ActError> {
    let whole = match outcome {
        Ok(output) => format!("{output:?}"),
        Err(failure) => format!("{failure:?}"),
    };
    if whole.contains(&scene.secret) { Err(ActError::Leaked) } else { failure_of(outcome) }
}

/// Describes a failure on one line.
fn reason(failure: &Failure) -> String {
    if let Some(denial) = &failure.denial {
        return format!(
            "{}: {} is denied: {}",
            failure.category.as_str(),
            denial.action,
            denial.rule
        );
    }
    let code = failure.code.as_deref().map(|code| format!("/{code}")).unwrap_or_default();
    format!("{}{code}: {}", failure.category.as_str(), failure.message)
}

fn peak_memory_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use toolhold_core::{Body, Category, Content, Output};

    use super::*;

    #[test]
    fn leak_is_found_in_every_part() {
        let scene = Scene::new().expect("a scratch folder");
        let denied = || Failure::new(Category::PolicyBlocked, "no");
        assert_eq!(nothing_leaked(&scene, &Err(denied())), Ok("policy_blocked: no".to_owned()));
        assert!(nothing_leaked(&scene, &Ok(Output::text(scene.secret.clone()))).is_err());
        assert!(
            nothing_leaked(&scene, &Ok(Output::default())).is_err(),
            "an attack that was allowed is one that was not stopped"
        );
        let structured = Failure { structured: Some(json!([scene.secret])), ..denied() };
        assert!(nothing_leaked(&scene, &Err(structured)).is_err());
        let link = Content { body: Body::Link(scene.secret.clone()), media_type: None, meta: None };
        assert!(nothing_leaked(&scene, &Err(Failure { content: vec![link], ..denied() })).is_err());
    }

    #[test]
    fn change_outside_is_found() {
        let scene = Scene::new().expect("a scratch folder");
        let judge = |scene: &Scene| {
            let act = ATTACKS
                .iter()
                .find(|act| act.tool == "hostile__write_outside")
                .expect("it is played");
            (act.judge)(scene, &Err(Failure::new(Category::PolicyBlocked, "no")))
        };
        assert!(judge(&scene).is_ok());
        std::fs::write(&scene.secret_file, "changed").expect("the file is written");
        assert!(judge(&scene).is_err());
    }

    #[test]
    fn the_peak_of_memory_is_known() {
        assert!(peak_memory_mib().is_some_and(|mib| mib > 0));
    }
}
