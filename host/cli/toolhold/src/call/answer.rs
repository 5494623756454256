//! Prints the answer of `toolhold call`, its output on stdout and everything about it on stderr,
//! and decides the exit code.

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

/// Prints the answer as `call` asks for it. A terminal that has `shown` all of it during the call
/// doesn't get it again.
pub(crate) fn show(call: &CallArguments, answer: &Answer, shown: &Shown) -> Result<Exit, Error> {
    let mut exit = answer.outcome.as_ref().err().map_or(Exit::Success, Exit::for_failure);
    if call.exit_code
        && let Some(code) = command_code(answer)
    {
        exit = Exit::Command(code);
    }
    if call.json {
        writeln!(io::stdout().lock(), "{}", object(call, answer))?;
        return Ok(exit);
    }
    let (content, structured) = match &answer.outcome {
        Ok(output) => (&output.content, &output.structured),
        Err(failure) => (&failure.content, &failure.structured),
    };
    match &call.output {
        None if io::stdout().is_terminal() && is_shown(content, structured.as_ref(), shown) => {}
        Some(path) if !content.is_empty() => keep(path, content)?,
        _ => print(&mut io::stdout().lock(), content, io::stdout().is_terminal())?,
    }
    if let Err(failure) = &answer.outcome {
        write!(anstream::stderr(), "{}", explain(failure))?;
    }
    if let Some(filtered) =
        answer.filtered.as_ref().filter(|filtered| filtered.lines[1] < filtered.lines[0])
    {
        writeln!(
            anstream::stderr(),
            "{FAINT}[{}] {filtered}{FAINT:#}",
            neutral_line(answer.provider.as_deref().unwrap_or_default())
        )?;
    }
    if call.verbose {
        write!(anstream::stderr(), "{}", steps(&answer.id.to_string(), &answer.steps))?;
    }
    Ok(exit)
}

/// The exit code of the command that a call ran, if it ran one to its end.
fn command_code(answer: &Answer) -> Option<u8> {
    let structured = match &answer.outcome {
        Ok(output) => output.structured.as_ref(),
        Err(failure) => failure.structured.as_ref(),
    };
    u8::try_from(structured?.get("exit_code")?.as_u64()?).ok()
}

/// The answer as one JSON object.
fn object(call: &CallArguments, answer: &Answer) -> Value {
    let mut object = Map::new();
    object.insert("id".to_owned(), answer.id.to_string().into());
    object.insert("tool".to_owned(), answer.tool.as_deref().unwrap_or(&call.tool).into());
    object.insert("ok".to_owned(), answer.outcome.is_ok().into());
    match &answer.outcome {
        Ok(output) => object.insert("output".to_owned(), json!(output)),
        Err(failure) => {
            object.insert("failure".to_owned(), json!(failure));
            // The feedback for a model, so that every program passes it on in one form.
            object.insert("feedback".to_owned(), failure.feedback().into())
        }
    };
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

/// Whether the whole answer was shown: its text, or the two outputs of a command, which have no
/// labels while it runs.
fn is_shown(content: &[Content], structured: Option<&Value>, shown: &Shown) -> bool {
    const LABELS: &str = "stdout:\n\n\nstderr:\n";
    let texts: Option<Vec<&str>> = content.iter().map(Content::as_text).collect();
    let Some(texts) = texts else { return false };
    if shown.is_all_of(&texts) {
        return true;
    }
    let Some(structured) = structured else { return false };
    let Some(stdout) = structured["stdout"].as_str() else { return false };
    let Some(stderr) = structured["stderr"].as_str() else { return false };
    // Nothing else, such as a notice of a cut.
    let is_all = texts.concat().len() <= stdout.len() + stderr.len() + LABELS.len();
    is_all && shown.is_all_of(&[stdout, stderr])
}

/// The parts in order: text as the tool gave it, with a line end behind it, and a description of
/// other content. An answer of only bytes goes into a pipe or a file unchanged.
fn print(out: &mut impl Write, content: &[Content], terminal: bool) -> io::Result<()> {
    if let ([Content { body: Body::Bytes(bytes), .. }], false) = (content, terminal) {
        out.write_all(bytes)?;
        return out.flush();
    }
    let mut ended = true;
    for (index, part) in content.iter().enumerate() {
        if index > 0 && !ended {
            out.write_all(b"\n")?;
        }
        let text = match &part.body {
            Body::Text(text) => neutral(text).into_owned(),
            Body::Link(uri) => neutral_line(uri),
            Body::Bytes(bytes) => describe(part, bytes.len()),
        };
        out.write_all(text.as_bytes())?;
        // A line end separates parts, as in every front end; one that the text has is enough.
        ended = text.ends_with('\n');
    }
    if !ended {
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn describe(part: &Content, length: usize) -> String {
    let media_type = part.media_type.as_deref().unwrap_or("application/octet-stream");
    format!("[{}, {length} bytes; --output FILE writes it to a file]", neutral_line(media_type))
}

/// Writes the answer to a file: its bytes, or otherwise its text.
fn keep(path: &Path, content: &[Content]) -> Result<(), Error> {
    let mut bytes: Vec<&[u8]> = content
        .iter()
        .filter_map(
            |part| if let Body::Bytes(bytes) = &part.body { Some(bytes.as_slice()) } else { None },
        )
        .collect();
    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
    let text = texts.join("\n");
    if bytes.is_empty() {
        bytes.push(text.as_bytes());
    } else if !text.is_empty() {
        writeln!(anstream::stderr(), "{}", neutral(&text))?;
    }
    if bytes.len() > 1 {
        return Err(Error::Usage(format!(
            "the answer has {} binary parts, but --output writes only one; use --json",
            bytes.len()
        )));
    }
    fs::write(path, bytes.concat())
        .map_err(toolhold_core::HostError::io(format!("writing {}", path.display())))?;
    Ok(())
}

/// A failure for a person: what failed, by which rule, and what to do.
pub(crate) fn explain(failure: &Failure) -> String {
    let code =
        failure.code.as_deref().map(|code| format!("/{}", neutral_line(code))).unwrap_or_default();
    let head = format!("{BAD}error[{}{code}]{BAD:#}", failure.category.as_str());
    let mut lines = Vec::new();
    match &failure.denial {
        Some(denial) => {
            // Rule, place and remedy have lines of their own, after the rest of the message.
            let said = match failure.message.strip_prefix(&denial.to_string()) {
                Some(rest) => {
                    format!("{} is refused{}", neutral_line(&denial.action), neutral(rest))
                }
                None => neutral(&failure.message).into_owned(),
            };
            lines.push(format!("{head}: {said}"));
            lines.push(field("rule", &denial.rule));
            lines.push(field("place", &denial.place));
            // No line of it looks like a field.
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
    let total: Duration = steps.iter().map(|step| step.time).sum();
    let mut text = format!("{FAINT}call {id}\n");
    for (name, time) in steps.iter().map(|step| (step.name, step.time)).chain([("total", total)]) {
        text += &format!("  {name:<10} {:>10.3} ms\n", time.as_secs_f64() * 1e3);
    }
    text + &format!("{FAINT:#}")
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
            remedy: "To allow it, take it out.".into(),
        };
        let text =
            anstream::adapter::strip_str(&explain(&Failure::denied(denial.clone()))).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "error[policy_blocked]: read /w/.env is refused");
        assert_eq!(lines[1], "  rule: deny_read = \"**/.env\"");
        assert_eq!(lines[2], "  place: [tools.file] in /c/toolhold.toml, line 2");
        assert_eq!(lines[3], "  remedy: To allow it, take it out.");
        let more = Failure {
            message: format!("{denial} (The tool said: no)"),
            ..Failure::denied(denial.clone())
        };
        let text = anstream::adapter::strip_str(&explain(&more)).to_string();
        assert_eq!(
            text.lines().next(),
            Some("error[policy_blocked]: read /w/.env is refused (The tool said: no)")
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
