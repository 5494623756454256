//! Parses the text of `mypy`: `FILE:LINE:COLUMN: error: MESSAGE  [CODE]`. Its text is the same in
//! all versions, and only newer ones have JSON.

use super::Parser;
use super::split_position;
use crate::finding::{Collector, Severity, Written};

pub(crate) const PARSER: Parser = Parser { object: |_, _| {}, line };

fn line(collector: &mut Collector, line: &str) {
    let Some((path, number, column, rest)) = split_position(line) else { return };
    let Some((word, message)) = rest.split_once(": ") else { return };
    let severity = match word {
        "error" => Severity::Error,
        "warning" => Severity::Warning,
        "note" => Severity::Note,
        _ => return,
    };
    let code = message.strip_suffix(']').and_then(|message| message.rsplit_once("  ["));
    let (message, code) = match code {
        Some((message, code)) => (message, Some(code)),
        None => (message, None),
    };
    collector.add(Written {
        path: Some(path),
        line: Some(number),
        column,
        severity,
        code,
        message,
        suggestion: None,
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn place_severity_and_code_are_read() {
        let output = "a.py:2:5: error: Incompatible types in assignment (got \"list[int]\")  [assignment]\n\
                      a.py:3: note: See here\nSuccess: no issues found\na.py:1: odd: x\n";
        let expected = [
            "a.py:2:5: error: Incompatible types in assignment (got \"list[int]\") [assignment]",
            "a.py:3: note: See here",
        ];
        assert_eq!(found(PARSER, output), expected);
    }
}
