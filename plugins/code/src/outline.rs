//! Lists the definitions of a file, in its order (the outline).

use std::path::Path;
use std::time::Instant;

use code_model::{Language, Parsed, ParserQuestion};
use toolhold_sdk::{Failure, Output, add_notice};

use crate::files::{self, MAX_FILE, Text};
use crate::hit::{Found, Hit, one_line};
use crate::parse::{self, Answer, PARSERS, Pace};
use crate::paths::PathShortener;

/// Definitions that are shown.
const MOST: usize = 1_000;

/// Reads the file and lists its definitions.
///
/// # Errors
///
/// The file can't be read, is no text, or has no parser.
pub(crate) fn of_file(
    path: &str,
    paths: &PathShortener,
    until: Instant,
) -> Result<Output, Failure> {
    let bytes = files::begin_of(path).map_err(|error| {
        let advice = if Path::new(path).is_dir() {
            "An outline is of one file. Use query or symbol, with this as path."
        } else {
            "Use find_path to find the file."
        };
        Failure::io(format!("reading {path}"), &error).with_suggestion(advice)
    })?;
    let shown = paths.show(path);
    if memchr::memchr(0, &bytes).is_some() {
        let failure =
            Failure::permanent("binary", format!("{shown} is binary, so it has no outline"));
        return Err(failure.with_suggestion("Name a file of source code."));
    }
    let Some(language) = Language::detect(path, &bytes) else {
        let failure =
            Failure::permanent("language", format!("no parser knows the language of {shown}"));
        return Err(failure.with_suggestion("Use read to see it, or grep to find lines in it."));
    };
    let source = [Some((language, bytes.as_slice()))];
    let mut pace = Pace::default();
    let parsed = match parse::parse_all(&source, ParserQuestion::Chunks, until, &mut pace).pop() {
        Some(Answer::Parsed(parsed)) => parsed,
        Some(Answer::Failed(why)) => {
            let failure = Failure::permanent("parser", format!("{shown} can't be parsed: {why}"));
            return Err(failure.with_suggestion("Use read to see it."));
        }
        _ => {
            let why = parse::availability(language).err().unwrap_or_default();
            let failure = Failure::permanent(
                "no-parser",
                format!("the parser of {} is missing: {why}", language.name()),
            );
            let advice = format!("Use grep to find lines in the file. {PARSERS}");
            return Err(failure.with_suggestion(advice));
        }
    };
    let text = Text::new(String::from_utf8_lossy(&bytes).into_owned());
    describe(&shown, &parsed, &text, bytes.len() >= MAX_FILE)
}

fn describe(path: &str, parsed: &Parsed, text: &Text, cut: bool) -> Result<Output, Failure> {
    let mut answer = String::new();
    let mut found = Found { complete: !cut && !parsed.limited, ..Found::default() };
    // The definitions around the next one: their last lines, and their names with their containers.
    let mut around: Vec<(u32, String)> = Vec::new();
    for definition in parsed.definitions.iter().take(MOST) {
        let hit =
            Hit::of_definition(path, definition, text.line(definition.line).unwrap_or_default());
        around.retain(|(end, _)| *end >= definition.start);
        let range = format!("{}-{}", definition.start, definition.end);
        let name = hit.name.as_deref().unwrap_or_default();
        let container = &definition.container;
        let whole = if container.is_empty() {
            name.to_owned()
        } else {
            one_line(&format!("{container}.{name}")).into_owned()
        };
        let (depth, shown) = match around.iter().rposition(|(_, outer)| outer == container) {
            Some(outer) => (outer + 1, name),
            // A method of a type that is defined elsewhere has its whole name.
            None => (around.iter().filter(|(end, _)| *end > definition.start).count(), &*whole),
        };
        around.truncate(depth);
        let kind = definition.kind.name();
        let indent = "  ".repeat(depth.min(8));
        answer.push_str(&format!("{range:>11} {indent}{kind} {shown}\n"));
        around.push((definition.end, whole));
        found.hits.push(hit);
    }
    if parsed.definitions.is_empty() {
        answer = format!("{path} defines nothing that an outline shows.\n");
    }
    if parsed.definitions.len() > MOST {
        found.complete = false;
        add_notice(
            &mut answer,
            &format!(
                "Only the first {MOST} of {} definitions are shown.",
                parsed.definitions.len()
            ),
        );
    }
    if parsed.has_errors {
        add_notice(&mut answer, "A part of the file isn't valid in its language.");
    }
    if cut || parsed.limited {
        add_notice(&mut answer, "The file is too large, so definitions near its end are missing.");
    }
    Output::text(answer).with_structured(&found)
}

#[cfg(test)]
mod tests {
    use code_model::{Definition, Kind};

    use super::*;

    #[test]
    fn methods_stand_below_their_type_or_name_it() {
        let definition = |name: &str, kind, container: &str, (start, end)| Definition {
            name: name.to_owned(),
            kind,
            container: container.to_owned(),
            line: start,
            column: 0,
            start,
            end,
        };
        let parsed = Parsed {
            definitions: vec![
                definition("Runner", Kind::Interface, "", (1, 1)),
                definition("run", Kind::Method, "Runner", (1, 1)),
                definition("stop", Kind::Method, "Runner", (1, 1)),
                definition("Server", Kind::Struct, "", (1, 2)),
                definition("run", Kind::Method, "Server", (4, 6)),
                definition("inner", Kind::Function, "Server.run", (5, 5)),
                definition("tests", Kind::Module, "", (8, 20)),
                definition("new", Kind::Method, "tests.Fake", (9, 9)),
            ],
            ..Parsed::default()
        };
        let output = describe("a.rs", &parsed, &Text::new(String::new()), false).unwrap();
        let text = output.joined_text();
        let shown: Vec<&str> = text.lines().map(|line| &line[12..]).collect();
        assert_eq!(
            shown,
            [
                "interface Runner",
                "  method run",
                "  method stop",
                "struct Server",
                "method Server.run",
                "  function inner",
                "module tests",
                "  method tests.Fake.new",
            ]
        );
    }
}
