//! Prints the answer of `toolhold call`, and chooses the exit code. Only output goes to stdout.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolhold_core::text::{in_words, neutral, neutral_line};
use toolhold_core::{Answer, Body, Content, Failure, Step};

use crate::arguments::CallArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::style::{BAD, FAINT, STRONG};
use toolhold_terminal::live::Shown;

/// Prints `answer` as the command line requires, and returns the exit code. Text that the terminal
/// has already shown is left out.
pub(crate) fn show(call: &CallArguments, answer: &Answer, shown: &Shown) -> Result<Exit, Error> {
    let mut exit = match &answer.outcome {
        Ok(_) => Exit::Success,
        Err(failure) => Exit::for_failure(failure),
    };
    if call.exit_code
        && let Some(code) = command_code(answer)
    {
        exit = Exit::Command(code);
    }
    if call.json {
        writeln!(io::stdout().lock(), "{}", object(call, answer))?;
        return Ok(exit);
    }

    write_content(call, answer, shown)?;
    if let Err(failure) = &answer.outcome {
        write!(anstream::stderr(), "{}", explain(failure))?;
    }
    if let Some(filtered) = &answer.filtered {
        let [before, after] = filtered.lines;
        if after < before {
            let provider = neutral_line(answer.provider.as_deref().unwrap_or_default());
            writeln!(anstream::stderr(), "{FAINT}[{provider}] {filtered}{FAINT:#}")?;
        }
    }
    if call.verbose {
        write!(anstream::stderr(), "{}", steps(&answer.id.to_string(), &answer.steps))?;
    }
    Ok(exit)
}

/// Writes the answer's content to the file of `--output` or to stdout, unless the terminal has
/// already shown the content.
fn write_content(call: &CallArguments, answer: &Answer, shown: &Shown) -> Result<(), Error> {
    let (content, structured) = match &answer.outcome {
        Ok(output) => (&output.content, &output.structured),
        Err(failure) => (&failure.content, &failure.structured),
    };
    if let Some(path) = &call.output
        && !content.is_empty()
    {
        return write_to_file(path, content);
    }
    let is_terminal = io::stdout().is_terminal();
    if call.output.is_none() && is_terminal && is_shown(content, structured.as_ref(), shown) {
        return Ok(());
    }
    print(&mut io::stdout().lock(), content, is_terminal)?;
    Ok(())
}

/// Returns the exit code of the command that the call ran, if a command ended with a code.
fn command_code(answer: &Answer) -> Option<u8> {
    let structured = match &answer.outcome {
        Ok(output) => output.structured.as_ref(),
        Err(failure) => failure.structured.as_ref(),
    };
    let code = structured?.get("exit_code")?.as_u64()?;
    u8::try_from(code).ok()
}

/// Returns the JSON object that `--json` prints.
fn object(call: &CallArguments, answer: &Answer) -> Value {
    let mut object = Map::new();
    object.insert("id".to_owned(), answer.id.to_string().into());
    object.insert("tool".to_owned(), answer.tool.as_deref().unwrap_or(&call.tool).into());
    object.insert("ok".to_owned(), answer.outcome.is_ok().into());
    match &answer.outcome {
        Ok(output) => {
            object.insert("output".to_owned(), json!(output));
        }
        Err(failure) => {
            object.insert("failure".to_owned(), json!(failure));
            // After a failure, models of Toolhold's agent get the same text.
            object.insert("feedback".to_owned(), failure.feedback().into());
        }
    }
    if let Some(filtered) = &answer.filtered {
        object.insert("filtered".to_owned(), json!(filtered));
    }
    if answer.truncated {
        object.insert("truncated".to_owned(), true.into());
    }
    if answer.untrusted {
        object.insert("untrusted".to_owned(), true.into());
    }
    if !answer.notices.is_empty() {
        object.insert("notices".to_owned(), json!(answer.notices));
    }
    if let Some(rest) = &answer.rest {
        object.insert("rest".to_owned(), json!(rest));
    }
    if call.verbose {
        object.insert("steps".to_owned(), json!(answer.steps));
    }
    Value::Object(object)
}

/// Checks whether the terminal has shown the whole answer during the call. For a command, the
/// terminal shows stdout and stderr, without the labels before them.
fn is_shown(content: &[Content], structured: Option<&Value>, shown: &Shown) -> bool {
    const LABELS: &str = "stdout:\n\n\nstderr:\n";
    let texts: Option<Vec<&str>> = content.iter().map(Content::as_text).collect();
    let Some(texts) = texts else { return false };
    if shown.has_exactly_the_lines_of(&texts) {
        return true;
    }
    let Some(structured) = structured else { return false };
    let Some(stdout) = structured["stdout"].as_str() else { return false };
    let Some(stderr) = structured["stderr"].as_str() else { return false };
    // A longer answer has more content, such as a notice that the output was cut.
    let has_only_output = texts.concat().len() <= stdout.len() + stderr.len() + LABELS.len();
    has_only_output && shown.has_exactly_the_lines_of(&[stdout, stderr])
}

/// Prints the parts in order, each on a new line. A single binary part is written unchanged if
/// stdout isn't a terminal.
fn print(out: &mut impl Write, content: &[Content], is_terminal: bool) -> io::Result<()> {
    if !is_terminal && let [Content { body: Body::Bytes(bytes), .. }] = content {
        out.write_all(bytes)?;
        return out.flush();
    }
    let mut is_line_ended = true;
    for part in content {
        if !is_line_ended {
            out.write_all(b"\n")?;
        }
        let text = match &part.body {
            Body::Text(text) => neutral(text).into_owned(),
            Body::Link(uri) => neutral_line(uri),
            Body::Bytes(bytes) => describe(part, bytes.len()),
        };
        out.write_all(text.as_bytes())?;
        is_line_ended = text.ends_with('\n');
    }
    if !is_line_ended {
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn describe(part: &Content, length: usize) -> String {
    let media_type = part.media_type.as_deref().unwrap_or("application/octet-stream");
    format!("[{}, {length} bytes; --output FILE writes it to a file]", neutral_line(media_type))
}

/// Writes the binary part to a file, and the text to stderr. If there is no binary part, writes the
/// text to the file. Refuses several binary parts.
fn write_to_file(path: &Path, content: &[Content]) -> Result<(), Error> {
    let mut binary_parts: Vec<&[u8]> = Vec::new();
    for part in content {
        if let Body::Bytes(bytes) = &part.body {
            binary_parts.push(bytes);
        }
    }
    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
    let text = texts.join("\n");
    if !binary_parts.is_empty() && !text.is_empty() {
        writeln!(anstream::stderr(), "{}", neutral(&text))?;
    }
    let bytes = match binary_parts[..] {
        [] => text.as_bytes(),
        [bytes] => bytes,
        _ => {
            return Err(Error::Usage(format!(
                "the answer has {} binary parts, but --output writes only one; use --json",
                binary_parts.len()
            )));
        }
    };
    fs::write(path, bytes)
        .map_err(toolhold_core::HostError::io(format!("writing {}", path.display())))?;
    Ok(())
}

pub(crate) fn explain(failure: &Failure) -> String {
    let code = match &failure.code {
        Some(code) => format!("/{}", neutral_line(code)),
        None => String::new(),
    };
    let head = format!("{BAD}error[{}{code}]{BAD:#}", failure.category.as_str());
    let mut lines = Vec::new();
    match &failure.denial {
        Some(denial) => {
            // The rule, the place and the remedy get lines of their own, so they are removed from
            // the message.
            let message = match failure.message.strip_prefix(&denial.to_string()) {
                Some(after_denial) => {
                    let action = neutral_line(&denial.action);
                    format!("{action} is denied{}", neutral(after_denial))
                }
                None => neutral(&failure.message).into_owned(),
            };
            lines.push(format!("{head}: {message}"));
            lines.push(field("rule", &denial.rule));
            lines.push(field("place", &denial.place));
            // Later lines of the remedy are indented, because they must not look like fields.
            lines.push(field("remedy", &denial.remedy.replace('\n', "\n    ")));
        }
        None => lines.push(format!("{head}: {}", neutral(&failure.message))),
    }
    if let Some(suggestion) = &failure.suggestion {
        lines.push(field("try", suggestion));
    }
    if let Some(wait) = failure.retry_after {
        lines.push(field("again in", &in_words(wait)));
    }
    lines.join("\n") + "\n"
}

fn field(name: &str, text: &str) -> String {
    format!("  {STRONG}{name}{STRONG:#}: {}", neutral(text))
}

fn steps(id: &str, steps: &[Step]) -> String {
    let mut text = format!("{FAINT}call {id}\n");
    for step in steps {
        text += &step_line(step.name, step.time);
    }
    text += &step_line("total", steps.iter().map(|step| step.time).sum());
    text + &format!("{FAINT:#}")
}

fn step_line(name: &str, time: Duration) -> String {
    format!("  {name:<10} {:>10.3} ms\n", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use toolhold_core::{Category, Denial};

    use super::*;

    fn bytes(bytes: &[u8]) -> Content {
        Content {
            body: Body::Bytes(bytes.to_vec()),
            media_type: Some("image/png".to_owned()),
            meta: None,
        }
    }

    #[track_caller]
    fn check(content: &[Content], terminal: bool, expected: &str) {
        let mut out = Vec::new();
        print(&mut out, content, terminal).expect("a vector takes everything");
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn text_is_exact_and_ends_with_a_line_end() {
        check(&[Content::text("a\r\nb")], false, "a\r\nb\n");
        check(&[Content::text("a\n")], false, "a\n");
        check(&[Content::text("a")], true, "a\n");
        check(&[Content::text("a\n")], true, "a\n");
        check(&[Content::text("a"), Content::text("b\n"), Content::text("c")], false, "a\nb\nc\n");
        check(&[Content::text("\u{1b}]0;x\u{7}")], true, "\u{fffd}]0;x\u{fffd}\n");
        check(&[], true, "");
    }

    #[test]
    fn bytes_are_described_except_alone_in_a_pipe() {
        check(&[bytes(b"\x1b[2J")], false, "\x1b[2J");
        check(
            &[bytes(b"12345")],
            true,
            "[image/png, 5 bytes; --output FILE writes it to a file]\n",
        );
        check(
            &[Content::text("a"), bytes(b"12345")],
            false,
            "a\n[image/png, 5 bytes; --output FILE writes it to a file]\n",
        );
    }

    #[test]
    fn denial_names_rule_place_and_remedy() {
        let denial = Denial {
            capability: "files".into(),
            action: "read /w/.env".into(),
            rule: "deny_read = \"**/.env\"".into(),
            place: "[tools.file] in /c/toolhold.toml, line 2".into(),
            remedy: "To allow it, remove it.".into(),
        };
        let text =
            anstream::adapter::strip_str(&explain(&Failure::denied(denial.clone()))).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "error[policy_blocked]: read /w/.env is denied");
        assert_eq!(lines[1], "  rule: deny_read = \"**/.env\"");
        assert_eq!(lines[2], "  place: [tools.file] in /c/toolhold.toml, line 2");
        assert_eq!(lines[3], "  remedy: To allow it, remove it.");
        let more = Failure {
            message: format!("{denial} (The tool said: no)"),
            ..Failure::denied(denial.clone())
        };
        let text = anstream::adapter::strip_str(&explain(&more)).to_string();
        assert_eq!(
            text.lines().next(),
            Some("error[policy_blocked]: read /w/.env is denied (The tool said: no)")
        );
        let own = Failure { message: "can't\u{1b}[2J".into(), ..Failure::denied(denial) };
        let text = anstream::adapter::strip_str(&explain(&own)).to_string();
        assert!(text.starts_with("error[policy_blocked]: can't\u{fffd}[2J\n"), "{text}");
    }

    #[test]
    fn failure_has_code_and_suggestion() {
        let failure = Failure::new(Category::PermanentFailure, "no such file")
            .with_code("not-found")
            .with_suggestion("READ.md");
        let text = anstream::adapter::strip_str(&explain(&failure)).to_string();
        assert_eq!(text, "error[permanent_failure/not-found]: no such file\n  try: READ.md\n");
    }
}
