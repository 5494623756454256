//! Writes the text of a question. It shows the whole action. Characters that control a terminal or
//! hide text are escaped.

use std::fmt::Write;

use serde_json::Value;
use toolhold_config::inline;
use toolhold_contract::text::{neutral, neutral_line};
use toolhold_contract::{Access, SubjectKind, WantedHost};
use toolhold_policy::commands::{Explanation, Risk, analyze};
use toolhold_policy::egress::{ProgramTarget, Target};
use toolhold_policy::{Gate, ResolvedSubject};

use super::{Always, AttachmentSummary, Preview, Question};

/// Maximum length of a short argument in bytes. Longer arguments are shown last.
const SHORT: usize = 200;

/// The width of the longest risk name, `medium`, in characters.
const RISK_WIDTH: usize = 6;

/// The role of a part of the text, for front ends with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A name.
    Strong,
    /// A detail.
    Faint,
    /// An added line.
    Added,
    /// A removed line.
    Removed,
    /// An escape for a character that would control a terminal or hide text.
    Warning,
}

impl Question {
    /// Returns the action and the reason why it needs approval, as plain text.
    pub fn to_text(&self) -> String {
        self.to_text_with(&|_, text| text.to_owned())
    }

    /// Returns the question as text. `mark` formats each part of the text, such as a name, for its
    /// role.
    pub fn to_text_with(&self, mark: &dyn Fn(Mark, &str) -> String) -> String {
        let mut title = match &self.host {
            Some(WantedHost { entry, program }) => {
                let entry = mark(Mark::Strong, &neutral_line(entry));
                format!("{} wants {entry}: {}", neutral_line(program), neutral_line(&self.tool))
            }
            None => format!("{} needs approval", mark(Mark::Strong, &neutral_line(&self.tool))),
        };
        if self.provider != self.tool {
            let provider = format!("({})", neutral_line(&self.provider));
            title.push(' ');
            title.push_str(&mark(Mark::Faint, &provider));
        }
        title.push('\n');

        let mut writer = TextWriter { text: title, mark };
        if let Some(caller) = &self.caller {
            writer.field("asked by", &neutral_line(caller));
        }
        if let Some(host) = &self.host {
            writer.host(host);
        }
        self.write_subjects(&mut writer);
        self.write_arguments(&mut writer);
        for (index, part) in self.attachments.iter().enumerate() {
            writer.attachment(index, part);
        }
        if let Some(preview) = &self.preview {
            writer.preview(preview);
        }
        self.write_reason(&mut writer);
        writer.text
    }

    /// Writes the URLs, the secrets, and the subjects that aren't arguments.
    fn write_subjects(&self, writer: &mut TextWriter<'_>) {
        // URLs come first, because headers and a body can be longer than a person reads.
        for url in self.subjects.iter().filter(|subject| subject.kind == SubjectKind::Url) {
            writer.url_target(&url.text);
        }
        if !self.secrets.is_empty() {
            let names: Vec<_> = self.secrets.iter().map(|name| neutral_line(name)).collect();
            writer.field("with your secret", &names.join(", "));
        }
        for subject in self.subjects.iter().filter(|subject| !self.is_an_argument(subject)) {
            let verb = action_verb(subject);
            let text = inline(&Value::String(subject.text.clone()));
            writer.field("acts on", &format!("{verb} {text}"));
        }
    }

    /// Writes the arguments, and then the analyzed commands. The arguments on which the call acts
    /// come first. Long arguments come after short arguments.
    fn write_arguments(&self, writer: &mut TextWriter<'_>) {
        let mut arguments: Vec<_> = self.shown_arguments().collect();
        // `false` sorts before `true`.
        arguments.sort_by_key(|(_, value)| (!self.is_acted_on(value), is_long(value)));
        for (name, value) in arguments {
            match value {
                Value::String(lines) if lines.contains('\n') => {
                    writer.block(&neutral_line(name), lines, no_mark);
                }
                _ => writer.field(&neutral_line(name), &inline(value)),
            }
        }
        for command in self.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command) {
            writer.commands(&analyze(&command.text).explain());
        }
    }

    /// Writes which rules don't check the call, and why the call needs approval.
    fn write_reason(&self, writer: &mut TextWriter<'_>) {
        if self.foreign {
            let unchecked = if self.subjects.is_empty() {
                "rules about paths don't check the files that this tool uses"
            } else {
                "rules about paths don't check the other files that this tool uses"
            };
            let source = neutral_line(self.source());
            writer.field(
                "not checked",
                &format!("{unchecked}; the tool can use everything that {source} was granted"),
            );
        }
        let rule = neutral_line(&self.decision.rule);
        let place = neutral_line(&self.decision.place);
        writer.field("why", &format!("{rule}, {place}"));
        if self.host.is_some() {
            let effect = "`session` also approves later connections of all commands to this host";
            writer.field("for the session", effect);
        } else if self.decision.gate == Gate::Hosts {
            let tool = neutral_line(&self.tool);
            writer.field(
                "for the session",
                &format!("`session` also approves later requests of {tool} to this host"),
            );
        }
    }

    /// Describes the rule of a permanent approval, or the reason why no rule is possible.
    pub fn always_to_text_with(&self, mark: &dyn Fn(Mark, &str) -> String) -> String {
        let mut writer = TextWriter { text: String::new(), mark };
        match &self.always {
            Always::Writes(proposal) => {
                let label = format!("always writes into {}", neutral_line(&proposal.file));
                writer.block(&label, &proposal.text(), no_mark);
            }
            Always::Unavailable(reason) => {
                writer.field("always", &format!("not available: {}", neutral_line(reason)));
            }
        }
        if let Some(wider) = &self.wider {
            writer.field("wider", &wider.describe(&self.tool, self.source()));
        }
        writer.text
    }

    fn is_an_argument(&self, subject: &ResolvedSubject) -> bool {
        self.shown_arguments().any(|(_, value)| value.as_str() == Some(&subject.text))
    }

    fn is_acted_on(&self, value: &Value) -> bool {
        self.subjects.iter().any(|subject| value.as_str() == Some(&subject.text))
    }
}

fn is_long(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n') || text.len() > SHORT,
        value => value.to_string().len() > SHORT,
    }
}

/// Returns the verb for the call's action on the subject.
fn action_verb(subject: &ResolvedSubject) -> &'static str {
    match (subject.kind, subject.access) {
        (SubjectKind::Command, _) => "runs",
        (SubjectKind::Url, Access::Read) => "gets",
        (SubjectKind::Url, Access::Write) => "sends to",
        (_, Access::Read) => "reads",
        (_, Access::Write) => "writes",
    }
}

struct TextWriter<'m> {
    text: String,
    mark: &'m dyn Fn(Mark, &str) -> String,
}

impl TextWriter<'_> {
    fn field(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.text, "  {}: {value}", (self.mark)(Mark::Strong, name));
    }

    /// Writes several lines. A bar before each line distinguishes the lines from Toolhold's own
    /// text. `line_mark` returns the role of a line.
    fn block(&mut self, name: &str, lines: &str, line_mark: impl Fn(&str) -> Option<Mark>) {
        let _ = writeln!(self.text, "  {}:", (self.mark)(Mark::Strong, name));
        for line_with_end in lines.split_inclusive('\n') {
            let mark = line_mark(line_with_end);
            // The last line may have no line end.
            let line = line_with_end.strip_suffix('\n').unwrap_or(line_with_end);
            self.text.push_str("  │ ");
            self.line(line, mark);
            self.text.push('\n');
        }
    }

    fn preview(&mut self, preview: &Preview) {
        if preview.diff.is_empty() {
            self.field("change", "none: the file has this content already");
            return;
        }
        self.block("change", &preview.diff, diff_mark);
    }

    /// Writes the commands of a command line, each with its risk.
    fn commands(&mut self, explanations: &[Explanation]) {
        if explanations.is_empty() {
            return;
        }
        let _ = writeln!(self.text, "  {}:", (self.mark)(Mark::Strong, "it runs"));
        for Explanation { class: risk, text } in explanations {
            self.text.push_str("  │ ");
            let mark = match risk {
                Some(Risk::Low) => Mark::Faint,
                Some(Risk::Medium) => Mark::Strong,
                Some(Risk::High) | None => Mark::Warning,
            };
            let risk_name = risk.map_or("", Risk::as_str);
            let padded_name = format!("{risk_name:RISK_WIDTH$}");
            self.text.push_str(&(self.mark)(mark, &padded_name));
            self.text.push(' ');
            self.line(text, None);
            self.text.push('\n');
        }
    }

    /// Writes a line, and escapes characters that control a terminal or hide text.
    fn line(&mut self, line: &str, mark: Option<Mark>) {
        let mut remaining = line;
        while let Some(start) = remaining.find(is_unsafe_char) {
            let (safe, unsafe_and_rest) = remaining.split_at(start);
            self.part(safe, mark);
            let mut chars = unsafe_and_rest.chars();
            if let Some(unsafe_char) = chars.next() {
                let escape = format!("\\u{{{:x}}}", u32::from(unsafe_char));
                self.part(&escape, Some(Mark::Warning));
            }
            remaining = chars.as_str();
        }
        self.part(remaining, mark);
    }

    fn part(&mut self, text: &str, mark: Option<Mark>) {
        match mark {
            Some(mark) if !text.is_empty() => self.text.push_str(&(self.mark)(mark, text)),
            _ => self.text.push_str(text),
        }
    }

    /// Writes the host of a URL, and a warning about unusual parts of the URL.
    fn url_target(&mut self, url: &str) {
        // An invalid URL has no host to show. Its call fails later.
        let Ok(target) = Target::parse(url) else { return };
        let oddities = target.oddities();
        if oddities.is_empty() {
            self.field("goes to", &target.to_string());
            return;
        }
        let warning = (self.mark)(Mark::Warning, &oddities.join("; "));
        self.field("goes to", &format!("{target} ({warning})"));
    }

    /// Writes the host that a program connects to.
    fn host(&mut self, host: &WantedHost) {
        match ProgramTarget::from_entry(&host.entry) {
            Ok(target) if !target.is_other_protocol => self.url_target(&target.target.origin()),
            _ => self.field("goes to", &format!("{} over TCP", neutral_line(&host.entry))),
        }
        let program = neutral_line(&host.program);
        self.field("program", &format!("{program} (a program chooses this name itself)"));
    }

    fn attachment(&mut self, index: usize, attachment: &AttachmentSummary) {
        let media_type = neutral_line(attachment.media_type.as_deref().unwrap_or("no type"));
        let bytes = attachment.bytes;
        let sha256 = neutral_line(&attachment.sha256);
        let name = format!("attachment {index}");
        self.field(&name, &format!("{media_type}, {bytes} bytes, SHA-256 {sha256}"));
        if let Some(text) = &attachment.text {
            self.block(&name, text, no_mark);
        }
    }
}

fn no_mark(_line: &str) -> Option<Mark> {
    None
}

/// Returns the role of a line of a diff. Returns `None` for an unchanged line.
fn diff_mark(line: &str) -> Option<Mark> {
    match line.as_bytes().first() {
        Some(b'+') => Some(Mark::Added),
        Some(b'-') => Some(Mark::Removed),
        Some(b'@') => Some(Mark::Faint),
        _ => None,
    }
}

/// Checks whether a character controls a terminal or hides text.
fn is_unsafe_char(c: char) -> bool {
    let mut buffer = [0; 4];
    let text: &str = c.encode_utf8(&mut buffer);
    // `neutral` replaces exactly these characters.
    neutral(text) != text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question() -> Question {
        let decision = json!({ "verdict": "ask", "gate": "permissions", "rule": "a rule", "place": "a place", "remedy": "" });
        let subject = json!({ "kind": "path", "access": "write", "text": "/w/real" });
        let question = json!({
            "id": "1", "session": "s", "fingerprint": "0".repeat(64), "tool": "write", "provider": "file", "subjects": [subject],
            "arguments": { "path": "/w/link", "content": "one\ntwo\u{9b}31m", "list": [1, "\u{202e}"] }, "decision": decision,
            "preview": { "file": "/w/real", "sha256": "", "diff": "@@\n-a\u{1b}b\n+c\n", "shows": ["list"] },
            "attachments": [{ "media_type": "text/plain", "bytes": 3, "sha256": "ab", "text": "att" }], "always": { "unavailable": "no" },
        });
        serde_json::from_value(question).expect("it is a question")
    }

    #[test]
    fn question_shows_the_whole_action_without_control_characters() {
        assert_eq!(
            question().to_text(),
            "write needs approval (file)\n  acts on: writes \"/w/real\"\n  path: \"/w/link\"\n  content:\n  │ one\n  │ two\\u{9b}31m\n  \
             attachment 0: text/plain, 3 bytes, SHA-256 ab\n  attachment 0:\n  │ att\n  change:\n  │ @@\n  │ -a\\u{1b}b\n  │ +c\n  \
             why: a rule, a place\n"
        );
    }

    #[test]
    fn question_shows_each_command_with_its_class() {
        let mut question = question();
        let text = "cd x && git push --force; rm -rf \"$D\" > log\u{1b}; $X".to_owned();
        question.subjects = vec![ResolvedSubject {
            kind: SubjectKind::Command,
            access: Access::Write,
            text: text.clone(),
        }];
        question.arguments = json!({ "command": text });
        question.preview = None;
        question.attachments.clear();
        assert_eq!(
            question.to_text(),
            "write needs approval (file)\n  command: \"cd x && git push --force; rm -rf \\\"$D\\\" > log\\u001b; $X\"\n  it runs:\n  \
             │ low    cd x\n  │ medium git push --force (needs the network, overwrites commits that others may have)\n  \
             │ high   rm -rf \"$D\" (deletes files)\n  │ medium > log\u{fffd}\n  │        and an unknown part: a program's name is only known at run time\n  \
             why: a rule, a place\n"
        );
    }

    #[test]
    fn question_shows_the_host_of_a_url_and_what_is_unusual() {
        let asked = |url: &str, gate: &str| {
            let mut question = question();
            question.subjects = vec![ResolvedSubject {
                kind: SubjectKind::Url,
                access: Access::Read,
                text: url.to_owned(),
            }];
            question.arguments = json!({ "url": url });
            question.decision.gate = serde_json::from_value(json!(gate)).expect("a gate");
            question.to_text()
        };
        let words = asked("https://xn--pple-43d.com:8443/x", "hosts");
        assert!(
            words.contains(
                "  goes to: https://xn--pple-43d.com:8443 (letters of other scripts, which can look like Latin letters; an unusual port)\n"
            ),
            "{words}"
        );
        assert!(
            words.ends_with(
                "  for the session: `session` also approves later requests of write to this host\n"
            ),
            "{words}"
        );
        let words = asked("https://example.com/x", "autonomy");
        assert!(
            words.contains("  goes to: https://example.com\n")
                && words.ends_with("  why: a rule, a place\n"),
            "{words}"
        );
    }

    #[test]
    fn question_shows_url_and_secrets_before_headers_and_body() {
        let mut question = question();
        let url = "https://example.com/x";
        question.subjects = vec![ResolvedSubject {
            kind: SubjectKind::Url,
            access: Access::Write,
            text: url.to_owned(),
        }];
        question.arguments =
            json!({ "body": "a\nb", "headers": { "x": "y" }, "method": "POST", "url": url });
        question.preview = None;
        question.attachments.clear();
        question.secrets = vec!["github".to_owned(), "other".to_owned()];
        assert_eq!(
            question.to_text(),
            "write needs approval (file)\n  goes to: https://example.com\n  with your secret: github, other\n  url: \"https://example.com/x\"\n  \
             headers: { x = \"y\" }\n  method: \"POST\"\n  body:\n  │ a\n  │ b\n  why: a rule, a place\n"
        );
    }

    #[test]
    fn only_added_removed_and_escaped_text_is_marked() {
        let marked = question().to_text_with(&|mark, text| format!("<{mark:?} {text}>"));
        for part in [
            "  │ <Removed -a><Warning \\u{1b}><Removed b>\n",
            "  │ <Added +c>\n",
            "  │ two<Warning \\u{9b}>31m\n",
            "<Strong write>",
        ] {
            assert!(marked.contains(part), "{part} is not in {marked}");
        }
        assert_eq!(
            question().always_to_text_with(&|_, text| text.to_owned()),
            "  always: not available: no\n"
        );
    }
}
