//! The acts of `toolhold demo`: its tasks and attacks, and the check of each result.

use serde_json::{Value, json};
use thiserror::Error;
use toolhold_core::{Failure, Outcome};

use crate::demo::scene::{README, Scene};

/// The reason why an act failed.
#[derive(Debug, Error, PartialEq)]
pub(crate) enum ActError {
    #[error("{}", reason(.0))]
    Failed(Box<Failure>),
    #[error("not the right answer: {0}")]
    WrongAnswer(String),
    #[error("took {0} s")]
    Late(u64),
    #[error("the call was allowed")]
    Allowed,
    #[error("the file outside was changed")]
    OutsideChanged,
    #[error("the file was changed")]
    FileChanged,
    #[error("the secret was sent")]
    Leaked,
    #[error("Toolhold grew to {0} MiB")]
    Memory(u64),
    #[error("{0} bytes got through")]
    Flooded(usize),
}

/// One call and the check of its result.
pub(crate) struct Act {
    /// The title of the act.
    pub(crate) title: &'static str,
    /// The tool that is called.
    pub(crate) tool: &'static str,
    /// The arguments of the call.
    pub(crate) arguments: fn(&Scene) -> Value,
    /// Checks the effect. Returns the part of the answer to show.
    pub(crate) judge: fn(&Scene, &Outcome) -> Result<String, ActError>,
}

/// The ordinary tasks: real tools on real files. The second task runs again after the attacks.
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

/// The attacks of a hostile plugin.
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
            // The sandbox has 64 MiB. Toolhold itself needs much less than the rest of this limit.
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
            // The sandbox may answer with 1 MiB. Escapes in JSON make the answer longer.
            if kept > 4 << 20 {
                Err(ActError::Flooded(kept))
            } else {
                Ok(format!("{kept} bytes got through"))
            }
        },
    },
];

/// Returns the answer's text if `right` accepts it.
fn answered(outcome: &Outcome, right: impl Fn(&str) -> bool) -> Result<String, ActError> {
    let output = outcome.as_ref().map_err(|failure| ActError::Failed(failure.clone().into()))?;
    let text = output.joined_text();
    if right(&text) { Ok(text) } else { Err(ActError::WrongAnswer(text)) }
}

/// Returns the rule or the limit that stopped a call. A successful call is an error.
fn failure_of(outcome: &Outcome) -> Result<String, ActError> {
    let failure = outcome.as_ref().err().ok_or(ActError::Allowed)?;
    let rule = failure.denial.as_ref().map(|denial| &denial.rule);
    Ok(rule.or(failure.code.as_ref()).cloned().unwrap_or_else(|| reason(failure)))
}

/// Checks that no part of the answer contains the secret.
fn nothing_leaked(scene: &Scene, outcome: &Outcome) -> Result<String, ActError> {
    let whole = match outcome {
        Ok(output) => format!("{output:?}"),
        Err(failure) => format!("{failure:?}"),
    };
    if whole.contains(&scene.secret) { Err(ActError::Leaked) } else { failure_of(outcome) }
}

fn reason(failure: &Failure) -> String {
    if let Some(denial) = &failure.denial {
        return format!(
            "{}: {} is refused: {}",
            failure.category.as_str(),
            denial.action,
            denial.rule
        );
    }
    let code = failure.code.as_deref().map(|code| format!("/{code}")).unwrap_or_default();
    format!("{}{code}: {}", failure.category.as_str(), failure.message)
}

/// Peak memory of this process in MiB.
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
