//! Parses `ruff check --output-format json`: an array with an object for each diagnostic.

use serde::Deserialize;

use super::Parser;
use crate::finding::{Collector, Severity, Written};

pub(crate) const PARSER: Parser = Parser { object, line: |_, _| {} };

#[derive(Deserialize)]
struct Diagnostic {
    code: Option<String>,
    message: String,
    filename: String,
    location: Option<Location>,
    fix: Option<Fix>,
}

#[derive(Deserialize)]
struct Location {
    row: u32,
    column: u32,
}

#[derive(Deserialize)]
struct Fix {
    message: Option<String>,
}

fn object(collector: &mut Collector, object: &[u8]) {
    let Ok(found) = serde_json::from_slice::<Diagnostic>(object) else { return };
    // Only what isn't Python has no rule.
    let is_syntax = found.code.as_deref().is_none_or(|code| code == "invalid-syntax");
    collector.add(Written {
        path: Some(&found.filename),
        line: found.location.as_ref().map(|location| location.row),
        column: found.location.as_ref().map(|location| location.column),
        severity: if is_syntax { Severity::Error } else { Severity::Warning },
        code: found.code.as_deref(),
        message: &found.message,
        suggestion: found.fix.and_then(|fix| fix.message),
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn rule_is_a_warning_and_syntax_an_error() {
        let output = r#"[
  {"cell":null,"code":"F401","fix":{"applicability":"safe","edits":[],"message":"Remove unused import: `os`"},"filename":"/w/a.py","location":{"column":8,"row":1},"message":"`os` imported but unused"},
  {"code":null,"filename":"/w/a.py","location":{"column":1,"row":2},"message":"SyntaxError: no","fix":null}
]"#;
        let expected = [
            "a.py:1:8: warning: `os` imported but unused [F401]\n    Remove unused import: `os`",
            "a.py:2:1: error: SyntaxError: no",
        ];
        assert_eq!(found(PARSER, output), expected);
    }
}
