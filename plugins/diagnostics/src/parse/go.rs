//! Parses `go vet -json`: for each package an object with the diagnostics of each analyzer. What
//! the compiler says comes as text: `vet: FILE:LINE:COLUMN: MESSAGE`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Parser;
use super::split_position;
use crate::finding::{Collector, Severity, Written};

pub(crate) const PARSER: Parser = Parser { object, line };

#[derive(Deserialize)]
#[serde(untagged)]
enum Analyzed {
    Diagnostics(Vec<Diagnostic>),
    Error { error: String },
}

#[derive(Deserialize)]
struct Diagnostic {
    posn: String,
    message: String,
}

fn object(collector: &mut Collector, object: &[u8]) {
    let Ok(packages) =
        serde_json::from_slice::<BTreeMap<String, BTreeMap<String, Analyzed>>>(object)
    else {
        return;
    };
    for (analyzer, analyzed) in packages.into_values().flatten() {
        match analyzed {
            Analyzed::Error { error } => add(collector, &error, Severity::Error, Some(&analyzer)),
            Analyzed::Diagnostics(found) => {
                for Diagnostic { posn, message } in found {
                    let text = format!("{posn}: {message}");
                    add(collector, &text, Severity::Warning, Some(&analyzer));
                }
            }
        }
    }
}

fn line(collector: &mut Collector, line: &str) {
    let text = line.strip_prefix("vet: ").unwrap_or(line);
    if split_position(text).is_some_and(|(path, ..)| path.ends_with(".go")) {
        add(collector, text, Severity::Error, None);
    }
}

fn add(collector: &mut Collector, text: &str, severity: Severity, code: Option<&str>) {
    let place = split_position(text);
    collector.add(Written {
        path: place.map(|(path, ..)| path),
        line: place.map(|(_, line, ..)| line),
        column: place.and_then(|(_, _, column, _)| column),
        severity,
        code,
        message: place.map_or(text, |(.., message)| message),
        suggestion: None,
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn analyzers_and_the_compiler_are_read() {
        let output = "# example.com/a\n{\n\t\"example.com/a\": {\n\t\t\"printf\": [\n\t\t\t{\"posn\": \"/w/a.go:5:2\", \"message\": \"Printf: wrong\"}\n\t\t]\n\t}\n}\n\
                      # example.com/b\nvet: ./b.go:3:9: undefined: x\nexit status 1\n";
        let expected =
            ["a.go:5:2: warning: Printf: wrong [printf]", "b.go:3:9: error: undefined: x"];
        assert_eq!(found(PARSER, output), expected);
    }
}
