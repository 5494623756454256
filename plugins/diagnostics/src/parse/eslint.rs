//! Parses `eslint --format json`: an array with an object for each file.

use serde::Deserialize;

use super::Parser;
use crate::finding::{Collector, Severity, Written};

pub(crate) const PARSER: Parser = Parser { object, line: |_, _| {} };

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    file_path: String,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    rule_id: Option<String>,
    severity: u8,
    message: String,
    line: Option<u32>,
    column: Option<u32>,
    fix: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    suggestions: Vec<Suggestion>,
}

#[derive(Deserialize)]
struct Suggestion {
    desc: String,
}

fn object(collector: &mut Collector, object: &[u8]) {
    let Ok(File { file_path, messages }) = serde_json::from_slice(object) else { return };
    for message in &messages {
        let suggestion = message.suggestions.first().map(|suggestion| suggestion.desc.clone());
        let fix = message.fix.is_some().then(|| "`eslint --fix` fixes it".to_owned());
        collector.add(Written {
            path: Some(&file_path),
            line: message.line,
            column: message.column,
            severity: if message.severity == 2 { Severity::Error } else { Severity::Warning },
            code: message.rule_id.as_deref(),
            message: &message.message,
            suggestion: suggestion.or(fix),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn messages_of_each_file_are_read() {
        let output = r#"[{"filePath":"/w/a.js","messages":[{"ruleId":"no-undef","severity":2,"message":"'x' is not defined.","line":1,"column":2},{"ruleId":null,"severity":1,"message":"odd","fix":{"range":[0,1],"text":""}}],"source":"x { ]"},{"filePath":"/w/b.js","messages":[]}]"#;
        let expected = [
            "a.js:1:2: error: 'x' is not defined. [no-undef]",
            "a.js: warning: odd\n    `eslint --fix` fixes it",
        ];
        assert_eq!(found(PARSER, output), expected);
    }
}
