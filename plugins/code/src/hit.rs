//! Describes the hits of a search, and decides which come first.

use std::borrow::Cow;

use code_model::Definition;
use schemars::JsonSchema;
use serde::Serialize;

/// Characters of a line that are shown.
const MAX_SHOWN: usize = 240;

/// The answer for programs.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Found {
    /// The places, the surest first. An outline has them in the order of the file.
    pub(crate) hits: Vec<Hit>,
    /// Whether everything was searched.
    pub(crate) complete: bool,
    /// The number of files in the index of the project.
    pub(crate) indexed_files: usize,
    /// The number of files that aren't indexed yet, or not as they are now. The next call goes on.
    pub(crate) waiting_files: usize,
    /// Names like the symbol, if it is defined nowhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) did_you_mean: Vec<String>,
    /// What a language server says about the symbol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hover: Option<String>,
}

/// How sure a way of finding is. Only hits of one way are ranked among each other by more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum FoundBy {
    Definition,
    ServerDefinition,
    ServerReference,
    Reference,
    Meaning,
    Words,
    Text,
}

impl FoundBy {
    pub(crate) fn score(self) -> f64 {
        match self {
            Self::Definition => 0.98,
            Self::ServerDefinition | Self::ServerReference => 0.95,
            Self::Reference => 0.9,
            Self::Meaning => 0.75,
            Self::Words | Self::Text => 0.45,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::ServerDefinition => "server_definition",
            Self::ServerReference => "server_reference",
            Self::Reference => "reference",
            Self::Meaning => "meaning",
            Self::Words => "words",
            Self::Text => "text",
        }
    }
}

/// A place that was found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Hit {
    /// The file, as the next call takes it.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: u32,
    /// The last line of what was found.
    pub(crate) end_line: u32,
    /// The byte of the line, from 1, where the name stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u32>,
    /// What is defined there: function, method, class and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    /// The name that is defined there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The definitions that it stands in, from the outside in, with dots between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<String>,
    /// How sure the hit is, from 0 to 1.
    pub(crate) score: f64,
    /// Why it was found, the surest reason first.
    pub(crate) found_by: Vec<FoundBy>,
    /// The line as it is now.
    pub(crate) text: String,
}

impl Hit {
    /// Whether a definition stands there, as the index knows it.
    pub(crate) fn is_definition(&self) -> bool {
        self.found_by.contains(&FoundBy::Definition)
    }

    /// The hit of a definition.
    pub(crate) fn of_definition(path: &str, definition: &Definition, line: &str) -> Self {
        let Definition { name, kind, container, line: number, column, end, .. } = definition;
        Self {
            path: path.to_owned(),
            line: *number,
            end_line: *end,
            column: Some(column + 1),
            kind: Some(kind.name()),
            name: Some(one_line(name).into_owned()),
            container: text_or_none(container),
            score: FoundBy::Definition.score(),
            found_by: vec![FoundBy::Definition],
            text: shown(line),
        }
    }

    /// The same hit, found in another way.
    pub(crate) fn because(self, found_by: FoundBy) -> Self {
        Self { score: found_by.score(), found_by: vec![found_by], ..self }
    }

    /// Whether a language server named it.
    fn is_confirmed(&self) -> bool {
        self.found_by
            .iter()
            .any(|one| matches!(one, FoundBy::ServerDefinition | FoundBy::ServerReference))
    }

    /// The hit of a line, inside of the innermost of `definitions`.
    pub(crate) fn of_line(
        path: &str,
        number: u32,
        line: &str,
        found_by: FoundBy,
        definitions: &[Definition],
    ) -> Self {
        let inside = definitions
            .iter()
            .filter(|one| (one.start..=one.end).contains(&number))
            .min_by_key(|one| one.end - one.start);
        let container = inside.map(|one| match &*one.container {
            "" => one.name.clone(),
            outer => format!("{outer}.{}", one.name),
        });
        Self {
            path: path.to_owned(),
            line: number,
            end_line: number,
            column: None,
            kind: None,
            name: None,
            container: container.as_deref().and_then(text_or_none),
            score: found_by.score(),
            found_by: vec![found_by],
            text: shown(line),
        }
    }

    /// One line that says where it is, what it is and why it was found, and the line itself.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{}:{}", self.path, self.line);
        if let (Some(kind), Some(name)) = (self.kind, &self.name) {
            text.push_str(&format!(" {kind} {name}"));
        }
        if let Some(container) = &self.container {
            text.push_str(&format!(" in {container}"));
        }
        let why: Vec<&str> = self.found_by.iter().map(|one| one.name()).collect();
        format!("{text} ({})\n    {}\n", why.join(", "), self.text)
    }
}

/// Puts the surest hits first, and each line of a file once: a second hit there only adds its
/// reason.
pub(crate) fn ranked(hits: Vec<Hit>, most: usize) -> Vec<Hit> {
    let mut sorted = hits;
    // Stable: the order of one source stays.
    sorted.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut ranked: Vec<Hit> = Vec::new();
    for hit in sorted {
        let place =
            ranked.iter().position(|known| (&known.path, known.line) == (&hit.path, hit.line));
        let Some(place) = place else {
            if ranked.len() < most {
                ranked.push(hit);
            }
            continue;
        };
        let reasons = &mut ranked[place].found_by;
        for reason in hit.found_by {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    // Of equally sure hits, the hits that a server knows too come first.
    ranked
        .sort_by(|a, b| b.score.total_cmp(&a.score).then(b.is_confirmed().cmp(&a.is_confirmed())));
    ranked
}

/// A line as it is shown: without indentation and a byte order mark, cut, and without characters
/// that steer a terminal.
pub(crate) fn shown(line: &str) -> String {
    let line = line.trim_start_matches('\u{feff}').trim();
    let Some((end, _)) = line.char_indices().nth(MAX_SHOWN) else {
        return one_line(line).into_owned();
    };
    // The beginning of a credential wouldn't be recognised as a secret.
    let end = line[..end].rfind(char::is_whitespace).unwrap_or(0);
    format!("{}…", one_line(&line[..end]))
}

fn text_or_none(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| one_line(text).into_owned())
}

/// A text without control characters and without those that change the direction of text.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if text.contains(steers) { text.replace(steers, "\u{fffd}").into() } else { text.into() }
}

fn steers(char: char) -> bool {
    char.is_control() && char != '\t'
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(path: &str, line: u32, found_by: FoundBy) -> Hit {
        Hit::of_line(path, line, "", found_by, &[])
    }

    #[test]
    fn surest_hits_come_first_and_each_place_once() {
        let hits = vec![
            hit("b", 3, FoundBy::Words),
            hit("b", 9, FoundBy::Words),
            hit("a", 1, FoundBy::Reference),
            hit("b", 3, FoundBy::Definition),
        ];
        let ranked = ranked(hits, 3);
        let places: Vec<_> = ranked.iter().map(|hit| (&*hit.path, hit.line)).collect();
        assert_eq!(places, [("b", 3), ("a", 1), ("b", 9)]);
        assert_eq!(ranked[0].found_by, [FoundBy::Definition, FoundBy::Words]);
    }

    #[test]
    fn what_a_server_names_stands_between_definitions_and_references() {
        let hits = vec![
            hit("a", 1, FoundBy::Definition),
            hit("b", 2, FoundBy::Definition),
            hit("c", 3, FoundBy::Reference),
            hit("d", 4, FoundBy::ServerReference),
            hit("b", 2, FoundBy::ServerDefinition),
        ];
        let ranked = ranked(hits, 9);
        let places: Vec<_> = ranked.iter().map(|hit| &*hit.path).collect();
        assert_eq!(places, ["b", "a", "d", "c"], "the one that both know is the first");
        assert_eq!(ranked[0].found_by, [FoundBy::Definition, FoundBy::ServerDefinition]);
    }

    #[test]
    fn hit_tells_what_it_stands_in() {
        let definition = |name: &str, start, end| Definition {
            name: name.to_owned(),
            kind: code_model::Kind::Function,
            container: if name == "outer" { String::new() } else { "outer".to_owned() },
            start,
            end,
            line: start,
            column: 0,
        };
        let definitions = [definition("outer", 1, 20), definition("inner", 5, 8)];
        let at = |line| {
            Hit::of_line("a", line, "  call();", FoundBy::Reference, &definitions).describe()
        };
        assert_eq!(at(6), "a:6 in outer.inner (reference)\n    call();\n");
        assert_eq!(at(9), "a:9 in outer (reference)\n    call();\n");
        assert_eq!(at(30), "a:30 (reference)\n    call();\n");
    }

    #[test]
    fn lines_are_cut_and_steer_nothing() {
        let shown = |line: &str| Hit::of_line("a", 1, line, FoundBy::Text, &[]).text;
        assert_eq!(shown("  \u{1b}[2J\u{202e}x\t"), "\u{fffd}[2J\u{fffd}x");
        let (words, secret) = ("word ".repeat(40), "x".repeat(100));
        assert_eq!(shown(&format!("{words}{secret}")), format!("{}…", words.trim_end()));
        assert_eq!(shown(&secret.repeat(3)), "…");
    }
}
