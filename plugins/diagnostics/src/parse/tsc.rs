//! Parses `tsc --pretty false`: `FILE(LINE,COLUMN): error TS2322: MESSAGE`, with more lines of a
//! message indented.

use super::Parser;
use crate::finding::{Collector, Severity, Written};

pub(crate) const PARSER: Parser = Parser { object: |_, _| {}, line };

fn line(collector: &mut Collector, line: &str) {
    let Some(at) = line.find("error TS") else { return };
    let before = &line[..at];
    let rest = &line[at + "error ".len()..];
    let Some((code, message)) = rest.split_once(": ") else { return };
    let place = before
        .strip_suffix(": ")
        .and_then(|place| place.strip_suffix(')'))
        .and_then(|place| place.rsplit_once('('))
        .and_then(|(path, position)| Some((path, position.split_once(',')?)));
    if place.is_none() && !before.is_empty() {
        return;
    }
    let unbuilt = "build what it refers to first: run `tsc --build` with bash";
    collector.add(Written {
        path: place.map(|(path, _)| path),
        line: place.and_then(|(_, (line, _))| line.parse().ok()),
        column: place.and_then(|(_, (_, column))| column.parse().ok()),
        severity: Severity::Error,
        code: Some(code),
        message,
        suggestion: (code == "TS6305").then(|| unbuilt.to_owned()),
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn place_and_code_are_read() {
        let output = "src/a(1).ts(3,5): error TS2322: Type 'x' is not assignable.\n  Because.\n\
                      error TS18003: No inputs were found.\na.ts(1,2): error TS6305: Not built.\nVersion 5\nnot error TS1: x\n";
        let expected = [
            "src/a(1).ts:3:5: error: Type 'x' is not assignable. [TS2322]",
            "error: No inputs were found. [TS18003]",
            "a.ts:1:2: error: Not built. [TS6305]\n    build what it refers to first: run `tsc --build` with bash",
        ];
        assert_eq!(found(PARSER, output), expected);
    }
}
