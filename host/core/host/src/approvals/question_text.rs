//! Writes the text of a question. The text shows the whole action, without characters that control
//! the terminal or hide a part.

use std::fmt::Write;

use serde_json::Value;
use toolhold_config::inline;
use toolhold_contract::text::{neutral, neutral_line};
use toolhold_contract::{Access, SubjectKind};
use toolhold_policy::commands::{Explanation, Risk, analyze};
use toolhold_policy::egress::Target;
use toolhold_policy::{Gate, ResolvedSubject};

use super::{Always, AttachmentSummary, Preview, Question};

/// Bytes of an argument that a person reads at a glance.
const SHORT: usize = 200;

/// The role of a part of a question's text, for front ends that use colours.
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
    /// A character that would steer the terminal or hide text, shown as an escape.
    Warning,
}

impl Question {
    /// Returns the action that an approval would allow, and the reason why approval is needed, as
    /// plain text.
    pub fn to_text(&self) -> String {
        self.to_text_with(&|_, text| text.to_owned())
    }

    /// Returns the text of [`to_text`](Self::to_text), with its parts marked by `mark`.
    pub fn to_text_with(&self, mark: &dyn Fn(Mark, &str) -> String) -> String {
        let title = format!("{} needs approval", mark(Mark::Strong, &neutral_line(&self.tool)));
        let mut words = Words { text: title, mark };
        if self.provider != self.tool {
            let provider = format!("({})", neutral_line(&self.provider));
            words.text.push(' ');
            words.text.push_str(&mark(Mark::Faint, &provider));
        }
        words.text.push('\n');
        if let Some(caller) = &self.caller {
            words.field("asked by", &neutral_line(caller));
        }
        self.write_subjects(&mut words);
        self.write_arguments(&mut words);
        for (index, part) in self.attachments.iter().enumerate() {
            words.attachment(index, part);
        }
        if let Some(preview) = &self.preview {
            words.preview(preview);
        }
        self.write_reason(&mut words);
        words.text
    }

    /// Writes the addresses, the secrets, and the subjects that no argument shows.
    fn write_subjects(&self, words: &mut Words<'_>) {
        // Addresses come first, since headers and a body can be longer than a person reads.
        for url in self.subjects.iter().filter(|subject| subject.kind == SubjectKind::Url) {
            words.target(&url.text);
        }
        if !self.secrets.is_empty() {
            let names: Vec<_> = self.secrets.iter().map(|name| neutral_line(name)).collect();
            words.field("with your secret", &names.join(", "));
        }
        for subject in self.subjects.iter().filter(|subject| !self.is_an_argument(subject)) {
            let text = inline(&Value::String(subject.text.clone()));
            words.field("acts on", &format!("{} {text}", action(subject)));
        }
    }

    /// Writes the arguments and the commands in them. Short arguments and subjects come first.
    fn write_arguments(&self, words: &mut Words<'_>) {
        let mut arguments: Vec<_> = self.shown_arguments().collect();
        arguments.sort_by_key(|(_, value)| (!self.is_acted_on(value), is_long(value)));
        for (name, value) in arguments {
            match value {
                Value::String(lines) if lines.contains('\n') => {
                    words.block(&neutral_line(name), lines, |_| None);
                }
                value => words.field(&neutral_line(name), &inline(value)),
            }
        }
        for command in self.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command) {
            words.commands(&analyze(&command.text).explain());
        }
    }

    /// Writes the parts that rules don't check, and the rule that requires approval.
    fn write_reason(&self, words: &mut Words<'_>) {
        if self.foreign {
            let unchecked = if self.subjects.is_empty() {
                "path rules can't see the files that this tool uses"
            } else {
                "path rules can't see the other files that this tool uses"
            };
            words.field(
                "not checked",
                &format!("{unchecked}; the tool can use everything that its plugin was granted"),
            );
        }
        let rule = neutral_line(&self.decision.rule);
        let place = neutral_line(&self.decision.place);
        words.field("why", &format!("{rule}, {place}"));
        if self.decision.gate == Gate::Hosts {
            let tool = neutral_line(&self.tool);
            words.field(
                "for the session",
                &format!("`session` also allows later requests of {tool} to this host"),
            );
        }
    }

    /// Returns the rule that a permanent approval would write, or the reason why a permanent
    /// approval isn't possible, as text.
    pub fn always_to_text_with(&self, mark: &dyn Fn(Mark, &str) -> String) -> String {
        let mut words = Words { text: String::new(), mark };
        match &self.always {
            Always::Writes(proposal) => {
                let label = format!("always writes into {}", neutral_line(&proposal.file));
                words.block(&label, &proposal.text(), |_| None);
            }
            Always::Unavailable(reason) => {
                words.field("always", &format!("not available: {}", neutral_line(reason)));
            }
        }
        if let Some(wider) = &self.wider {
            words.field("wider", &wider.in_words(&self.tool, self.source()));
        }
        words.text
    }

    fn is_an_argument(&self, subject: &ResolvedSubject) -> bool {
        self.shown_arguments().any(|(_, value)| value.as_str() == Some(&subject.text))
    }

    fn is_acted_on(&self, value: &Value) -> bool {
        self.subjects.iter().any(|subject| value.as_str() == Some(&subject.text))
    }
}

/// Checks whether a value takes more than two lines.
fn is_long(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n') || text.len() > SHORT,
        value => value.to_string().len() > SHORT,
    }
}

/// Returns the action on a subject, in a word or two.
fn action(subject: &ResolvedSubject) -> &'static str {
    match (subject.kind, subject.access) {
        (SubjectKind::Command, _) => "runs",
        (SubjectKind::Url, Access::Read) => "gets",
        (SubjectKind::Url, Access::Write) => "sends to",
        (_, Access::Read) => "reads",
        (_, Access::Write) => "writes",
    }
}

struct Words<'m> {
    text: String,
    mark: &'m dyn Fn(Mark, &str) -> String,
}

impl Words<'_> {
    fn field(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.text, "  {}: {value}", (self.mark)(Mark::Strong, name));
    }

    /// Writes several lines, each after a bar, so that a line can't look like text of Toolhold.
    /// `line_mark` returns the mark of a line.
    fn block(&mut self, name: &str, lines: &str, line_mark: impl Fn(&str) -> Option<Mark>) {
        let _ = writeln!(self.text, "  {}:", (self.mark)(Mark::Strong, name));
        for line in lines.split_inclusive('\n') {
            let mark = line_mark(line);
            self.text.push_str("  │ ");
            self.line(line.strip_suffix('\n').unwrap_or(line), mark);
            self.text.push('\n');
        }
    }

    /// Writes the change of a file.
    fn preview(&mut self, preview: &Preview) {
        if preview.diff.is_empty() {
            self.field("change", "none: the file has this content already");
            return;
        }
        self.block("change", &preview.diff, |line| match line.as_bytes().first()? {
            b'+' => Some(Mark::Added),
            b'-' => Some(Mark::Removed),
            b'@' => Some(Mark::Faint),
            _ => None,
        });
    }

    /// Writes the commands of a command line, and marks the risky ones.
    fn commands(&mut self, explanations: &[Explanation]) {
        if explanations.is_empty() {
            return;
        }
        let _ = writeln!(self.text, "  {}:", (self.mark)(Mark::Strong, "it runs"));
        for Explanation { class, text } in explanations {
            self.text.push_str("  │ ");
            let mark = match class {
                Some(Risk::Low) => Mark::Faint,
                Some(Risk::Medium) => Mark::Strong,
                Some(Risk::High) | None => Mark::Warning,
            };
            let class = format!("{:6}", class.map_or("", Risk::as_str));
            self.text.push_str(&(self.mark)(mark, &class));
            self.text.push(' ');
            self.line(text, None);
            self.text.push('\n');
        }
    }

    /// Writes a line, and escapes characters that control a terminal or hide text.
    fn line(&mut self, line: &str, mark: Option<Mark>) {
        let mut remaining = line;
        while let Some((start, unsafe_char)) = remaining.char_indices().find(|(_, c)| steers(*c)) {
            let escape = format!("\\u{{{:x}}}", u32::from(unsafe_char));
            self.part(&remaining[..start], mark);
            self.part(&escape, Some(Mark::Warning));
            remaining = &remaining[start + unsafe_char.len_utf8()..];
        }
        self.part(remaining, mark);
    }

    fn part(&mut self, text: &str, mark: Option<Mark>) {
        match mark {
            Some(mark) if !text.is_empty() => self.text.push_str(&(self.mark)(mark, text)),
            _ => self.text.push_str(text),
        }
    }

    /// Writes the target of a URL: its host in the form of the DNS, and its unusual parts.
    fn target(&mut self, url: &str) {
        let Ok(target) = Target::parse(url) else { return };
        let oddities = target.oddities();
        if oddities.is_empty() {
            self.field("goes to", &target.to_string());
            return;
        }
        let warning = (self.mark)(Mark::Warning, &oddities.join("; "));
        self.field("goes to", &format!("{target} ({warning})"));
    }

    fn attachment(&mut self, index: usize, part: &AttachmentSummary) {
        let media_type = neutral_line(part.media_type.as_deref().unwrap_or("no type"));
        let sha256 = neutral_line(&part.sha256);
        let name = format!("attachment {index}");
        self.field(&name, &format!("{media_type}, {} bytes, SHA-256 {sha256}", part.bytes));
        if let Some(content) = &part.text {
            self.block(&name, content, |_| None);
        }
    }
}

/// Checks whether a character steers a terminal or hides text.
fn steers(c: char) -> bool {
    let mut buffer = [0; 4];
    let text: &str = c.encode_utf8(&mut buffer);
    c != '\t' && neutral(text) != text
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
             │ low    cd x\n  │ medium git push --force (needs the network, it overwrites commits that others may have)\n  \
             │ high   rm -rf \"$D\" (it deletes files)\n  │ medium > log\u{fffd}\n  │        and something unknown: a program's name is only known at run time\n  \
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
                "  for the session: `session` also allows later requests of write to this host\n"
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
