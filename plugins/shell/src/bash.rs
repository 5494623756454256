//! `bash`: runs a command line, or starts it as a job.

use std::time::{Duration, Instant};

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use toolhold_sdk::process::Command;
use toolhold_sdk::{Access, Call, Content, Failure, Output, Promises, Subject, SubjectKind, Tool};

use crate::envelope::Envelope;
use crate::failure;

/// Runs a command line.
pub(crate) struct Bash;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    command: String,
    /// Seconds. Default: 30; in the background, as long as a job may run.
    #[schemars(range(min = 1, max = 86_400))]
    timeout: Option<u32>,
    /// True asks for the whole network, which may need approval.
    #[expect(dead_code, reason = "the host reads it, and decides")]
    network: Option<bool>,
    /// For a server, or a command that takes minutes: it goes on as a job, and the answer is its id
    /// for job_output and job_stop. Later commands reach a server in it at 127.0.0.1.
    background: Option<bool>,
    /// What it is for, in a few words.
    #[expect(dead_code, reason = "it is for people who read the call")]
    description: Option<String>,
}

impl Tool for Bash {
    const NAME: &str = "bash";
    const TITLE: Option<&str> = Some("Run a command");
    const DESCRIPTION: &str = "\
        Runs a command line with bash in a sandbox: it starts in the working directory, sees \
        granted paths, and has the network only if that is allowed. Each call is a new shell: no \
        directory, variable or process outlives it, and /tmp is private to it. No terminal, no \
        input. An exit code other than 0 is a failure. Use read, grep, find_path and edit for \
        files: they are faster, and need approval less often.";
    const PROMISES: Promises = Promises::NONE;
    const SUBJECTS: &[Subject] = &[Subject::new("/command", SubjectKind::Command, Access::Write)];
    const ALIASES: &[&str] = &["shell"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] =
        &[("command", &["cmd", "script", "shell_command", "bash", "sh"])];
    const TIMEOUT_ARGUMENT: Option<&str> = Some("timeout");
    const NETWORK_ARGUMENT: Option<&str> = Some("network");
    const BARE_ARGUMENT: Option<&str> = Some("command");
    const FENCE: Option<&str> = Some("bash");
    const ANSWERS_IN_TEXT: bool = true;
    type Arguments = Arguments;

    fn output_schema() -> Option<Schema> {
        Some(toolhold_sdk::schema::for_type::<Envelope>())
    }

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        if arguments.command.trim().is_empty() {
            return Err(Failure::invalid("command is empty")
                .with_suggestion("Set command to the command line to run."));
        }
        if arguments.background == Some(true) {
            return start_job(arguments);
        }
        let started_at = Instant::now();
        // The text must not change: the host decided on exactly this text.
        let finished = Command::shell(arguments.command).live().run()?;
        let took = started_at.elapsed();
        let envelope = Envelope::new(&finished);
        let mut text = envelope.text();
        if finished.success() {
            failure::add_notices(&mut text, &finished.notices);
        }
        // An empty text makes no part, since models should get no empty parts.
        let content = if text.is_empty() { Vec::new() } else { vec![Content::text(text)] };
        if finished.success() {
            return Output { content, ..Output::default() }.with_structured(&envelope);
        }
        let failure = Failure { content, ..failure::from_finished(&finished, took) };
        Err(failure.with_structured(serde_json::to_value(&envelope)?))
    }
}

/// Starts the command as a job.
fn start_job(arguments: Arguments) -> Result<Output, Failure> {
    let mut command = Command::shell(arguments.command);
    if let Some(seconds) = arguments.timeout {
        command = command.timeout(Duration::from_secs(seconds.into()));
    }
    let id = command.background()?;
    let text = format!(
        "Started as job {id}. job_output shows its output and how it ends, job_stop stops it. It ends with this session at the latest.\n"
    );
    let content = vec![Content::text(text)];
    Output { content, ..Output::default() }.with_structured(&Envelope::of_job(id))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use toolhold_sdk::{Category, testing};

    use super::*;

    fn run(command: &str) -> Result<Output, Failure> {
        testing::call::<Bash>(json!({ "command": command }))
    }

    #[track_caller]
    fn check_failure(command: &str, message: &str, text: &str, envelope: Value) {
        let failure = run(command).unwrap_err();
        assert_eq!(
            (failure.category, failure.code.as_deref()),
            (Category::PermanentFailure, Some("exit-status")),
            "{failure:?}"
        );
        assert_eq!((failure.message.as_str(), failure.joined_text().as_str()), (message, text));
        assert_eq!(failure.structured.as_deref(), Some(&envelope));
    }

    #[test]
    fn answer_has_text_and_envelope() {
        let output = run("echo hi").unwrap();
        assert_eq!(output.joined_text(), "hi\n");
        assert_eq!(
            output.structured,
            Some(json!({ "stdout": "hi\n", "stderr": "", "exit_code": 0, "truncated": false }))
        );
        let quiet = run("true").unwrap();
        assert_eq!(quiet.joined_text(), "");
        assert_eq!(quiet.structured.unwrap()["exit_code"], 0);
        assert_eq!(
            run("echo out; echo no >&2").unwrap().joined_text(),
            "stdout:\nout\n\nstderr:\nno\n"
        );
    }

    #[test]
    fn nonzero_exit_code_is_a_failure_with_all_output() {
        let envelope = |stdout, stderr, code| json!({ "stdout": stdout, "stderr": stderr, "exit_code": code, "truncated": false });
        check_failure("echo out; exit 3", "Exit code: 3", "out\n", envelope("out\n", "", 3));
        check_failure(
            "echo no >&2; kill -9 $$",
            "Exit code: 137",
            "no\n",
            envelope("", "no\n", 137),
        );
        check_failure("exit 126", "Exit code: 126", "", envelope("", "", 126));
        let failure = run("no-such-command-anywhere").unwrap_err();
        assert_eq!(failure.message, "Exit code: 127");
        assert!(failure.suggestion.is_some_and(|suggestion| suggestion.contains("not found")));
    }

    #[test]
    fn empty_command_is_refused() {
        for blank in ["", " ", "\n\t"] {
            assert_eq!(run(blank).unwrap_err().category, Category::InvalidParameters);
        }
    }

    #[test]
    fn definition_has_names_arguments_and_schemas() {
        let definition = testing::definition::<Bash>();
        assert_eq!(
            definition["subjects"],
            json!([{ "pointer": "/command", "kind": "command", "access": "write" }])
        );
        assert_eq!(
            (&definition["aliases"], &definition["fence"]),
            (&json!(["shell"]), &json!("bash"))
        );
        let arguments = &definition["arguments"];
        let names = json!(["cmd", "script", "shell_command", "bash", "sh"]);
        assert_eq!(arguments[0]["aliases"], names);
        let roles = arguments.as_array().unwrap().iter();
        let roles: Vec<_> = roles.map(|argument| (&argument["name"], &argument["roles"])).collect();
        assert_eq!(
            json!(roles),
            json!([["command", ["text"]], ["timeout", ["timeout"]], ["network", ["network"]]])
        );
        assert_eq!(definition["promises"], json!([]));
        let schema = &definition["input_schema"];
        assert_eq!(
            (&schema["required"], &schema["additionalProperties"]),
            (&json!(["command"]), &json!(false))
        );
        assert!(
            schema["properties"]
                .as_object()
                .unwrap()
                .iter()
                .all(|(name, property)| name == "command" || property["description"].is_string()),
            "{schema}"
        );
        let answer = &definition["output_schema"];
        assert_eq!(answer["required"], json!(["stdout", "stderr", "exit_code", "truncated"]));
    }
}
