//! Splits an answer into texts for filters, and puts the filtered texts back.

use serde_json::{Map, Value};
use toolhold_contract::{Body, Content, Outcome};

/// The fields of a structured answer that contain a command's output.
const OUTPUTS: [&str; 2] = ["stdout", "stderr"];

/// The parts of an answer. For a command, the parts are standard output and standard error, if they
/// aren't empty.
pub(super) struct Streams {
    pub(super) parts: Vec<Content>,
    of_command: bool,
}

impl Streams {
    /// Splits an outcome into its texts. `of_shell` says whether the built-in shell tool made the
    /// answer. In the answers of other tools, a field such as `stdout` may mean something else.
    pub(super) fn from_outcome(outcome: &Outcome, of_shell: bool) -> Self {
        let (content, structured) = match outcome {
            Ok(output) => (&output.content, &output.structured),
            Err(failure) => (&failure.content, &failure.structured),
        };
        let is_all_text = content.iter().all(|part| part.as_text().is_some());
        match outputs(structured.as_ref()) {
            Some(outputs) if of_shell && is_all_text => {
                let texts = outputs.into_iter().filter(|text| !text.is_empty());
                Self { parts: texts.map(Content::text).collect(), of_command: true }
            }
            _ => Self { parts: content.clone(), of_command: false },
        }
    }

    /// Returns these streams with other parts. Empty texts are omitted.
    pub(super) fn with_parts(&self, parts: &[Content]) -> Self {
        let mut full_parts = Vec::new();
        for part in parts {
            match &part.body {
                Body::Text(text) if text.is_empty() => {}
                _ => full_parts.push(part.clone()),
            }
        }
        Self { parts: full_parts, of_command: self.of_command }
    }

    pub(super) fn text(&self) -> String {
        let texts: Vec<&str> = self.parts.iter().filter_map(Content::as_text).collect();
        match (self.of_command, texts.as_slice()) {
            (true, [stdout, stderr]) => labelled(stdout, stderr),
            (_, texts) => texts.join("\n"),
        }
    }

    /// Returns the structured answer as an additional part. Returns `None` if there is no
    /// structured answer, or if the parts already come from its fields.
    pub(super) fn value(&self, outcome: &Outcome) -> Option<Content> {
        if self.of_command {
            return None;
        }
        let value = Self::structured(outcome)?;
        Some(Content {
            media_type: Some("application/json".to_owned()),
            ..Content::text(value.to_string())
        })
    }

    pub(super) fn structured(outcome: &Outcome) -> Option<&Value> {
        match outcome {
            Ok(output) => output.structured.as_ref(),
            Err(failure) => failure.structured.as_ref(),
        }
    }

    pub(super) fn exit_code(outcome: &Outcome) -> Option<i32> {
        let code = Self::structured(outcome)?.get("exit_code")?.as_i64()?;
        i32::try_from(code).ok()
    }

    /// Replaces the parts of an outcome with `parts`, and its structured answer with `value`.
    pub(super) fn replace(self, parts: Vec<Content>, value: Option<Value>, outcome: &mut Outcome) {
        let (content, structured) = match outcome {
            Ok(output) => (&mut output.content, &mut output.structured),
            Err(failure) => (&mut failure.content, &mut failure.structured),
        };
        let replaced = self.with_parts(&parts);
        if !self.of_command {
            *content = replaced.parts;
            if value.is_some() {
                *structured = value;
            }
            return;
        }

        // The shell tool has built the text from the outputs of the command and its own notes.
        // Build the text again from the filtered outputs and the same notes.
        let old_text = content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n");
        let last_output = self.parts.last().and_then(Content::as_text).unwrap_or_default();
        let notes = trailing_notes(&old_text, last_output);
        if let Some(Value::Object(fields)) = structured {
            replace_outputs(fields, &parts);
        }
        let mut text = replaced.text();
        if !notes.is_empty() && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&notes);
        *content = if text.is_empty() { Vec::new() } else { vec![Content::text(text)] };
    }
}

/// Returns the lines in brackets that the shell tool added after the output. If the output itself
/// ends with these lines, they are no notes of the tool.
fn trailing_notes(text: &str, last_output: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines().rev() {
        let is_note = line.starts_with('[') && line.ends_with(']');
        if !is_note {
            break;
        }
        lines.push(line);
    }
    let notes: String = lines.into_iter().rev().flat_map(|line| [line, "\n"]).collect();
    if last_output.trim_end().ends_with(notes.trim_end()) { String::new() } else { notes }
}

/// Replaces the outputs of a command with `parts`, the texts of its outputs.
fn replace_outputs(fields: &mut Map<String, Value>, parts: &[Content]) {
    let mut texts = parts.iter().map(|part| part.as_text().unwrap_or_default().to_owned());
    for name in OUTPUTS {
        replace_output(fields, name, &mut texts);
    }
    if let Some(Value::Bool(is_truncated)) = fields.get_mut("truncated") {
        *is_truncated = true;
    }
}

/// Replaces the output `name` with the next text. An empty output is skipped, because it has no
/// text.
fn replace_output(
    fields: &mut Map<String, Value>,
    name: &str,
    texts: &mut impl Iterator<Item = String>,
) {
    if let Some(Value::String(output)) = fields.get_mut(name)
        && !output.is_empty()
        && let Some(text) = texts.next()
    {
        *output = text;
    }
}

fn outputs(structured: Option<&Value>) -> Option<[&str; 2]> {
    let fields = structured?.as_object()?;
    let [stdout, stderr] = OUTPUTS.map(|name| fields.get(name).and_then(Value::as_str));
    Some([stdout?, stderr?])
}

/// Returns both outputs with labels, in the format of the shell tool.
fn labelled(stdout: &str, stderr: &str) -> String {
    let end = if stdout.ends_with('\n') { "" } else { "\n" };
    format!("stdout:\n{stdout}{end}\nstderr:\n{stderr}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_contract::Output;

    fn of_command(stdout: &str, stderr: &str, text: &str) -> Outcome {
        let structured =
            json!({ "stdout": stdout, "stderr": stderr, "exit_code": 3, "truncated": false });
        Ok(Output { structured: Some(structured), ..Output::text(text) })
    }

    fn replaced(mut outcome: Outcome, texts: &[&str]) -> Output {
        let streams = Streams::from_outcome(&outcome, true);
        assert_eq!(streams.parts.len(), texts.len());
        streams.replace(texts.iter().copied().map(Content::text).collect(), None, &mut outcome);
        outcome.expect("is an output")
    }

    #[test]
    fn both_outputs_are_replaced_in_text_and_value() {
        let outcome = of_command("a\n", "b\n", "stdout:\na\n\nstderr:\nb\n[note]\n");
        assert_eq!(Streams::exit_code(&outcome), Some(3));
        let output = replaced(outcome, &["A\n", "B\n"]);
        assert_eq!(output.joined_text(), "stdout:\nA\n\nstderr:\nB\n[note]\n");
        assert_eq!(
            output.structured,
            Some(json!({ "stdout": "A\n", "stderr": "B\n", "exit_code": 3, "truncated": true }))
        );
    }

    #[test]
    fn tool_notes_stay_and_program_lines_count_as_output() {
        // In the complete text, one empty line stays between the outputs.
        let output = replaced(
            of_command("a\n\n", "b\n", "stdout:\na\n\nstderr:\nb\n[one]\n[two]\n"),
            &["A\n", "B\n"],
        );
        assert_eq!(output.joined_text(), "stdout:\nA\n\nstderr:\nB\n[one]\n[two]\n");
        let output = replaced(of_command("a\n[no note]\n", "", "a\n[no note]\n"), &["A\n"]);
        assert_eq!(output.joined_text(), "A\n");
    }

    #[test]
    fn single_output_has_no_label() {
        let output = replaced(of_command("", "b", "b"), &["B"]);
        assert_eq!(output.joined_text(), "B");
        assert_eq!(output.structured.expect("has one")["stderr"], "B");
        let output = replaced(of_command("a\n", "b\n", "stdout:\na\n\nstderr:\nb\n"), &["", "B\n"]);
        assert_eq!(output.joined_text(), "B\n");
    }

    #[test]
    fn other_answers_are_filtered_by_part() {
        let picture = Content { body: Body::Bytes(vec![1]), media_type: None, meta: None };
        let outcome =
            Ok(Output { content: vec![Content::text("a"), picture.clone()], ..Output::default() });
        let streams = Streams::from_outcome(&outcome, true);
        assert_eq!((streams.text().as_str(), streams.parts.len()), ("a", 2));
        let mut outcome = outcome;
        streams.replace(vec![Content::text(""), picture.clone()], None, &mut outcome);
        assert_eq!(outcome.expect("is an output").content, [picture]);
    }
}
