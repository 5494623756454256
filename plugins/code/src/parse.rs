//! Asks the parsers of languages, which are parts of this plugin.

use code_model::{Language, Parsed};

/// Bytes that are parsed in one call of the host.
const TOGETHER: usize = 2 << 20;

/// What is known of one source.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// What its parser found. A source on which the parser fails has nothing.
    Parsed(Parsed),
    /// No parser knows its language.
    Unknown,
    /// The parser of its language is missing.
    Missing,
}

/// Whether the parser of a language is there.
pub(crate) fn is_available(language: Language) -> bool {
    availability(language).is_ok()
}

/// Why the parser of a language can't be used.
///
/// # Errors
///
/// Where the parser would have to be, for people.
pub(crate) fn availability(language: Language) -> Result<(), String> {
    engine::run(language, &[b""]).map(drop)
}

/// Parses sources. The answers are in their order.
pub(crate) fn parse_all(sources: &[Option<(Language, &[u8])>]) -> Vec<Answer> {
    let mut answers = vec![Answer::Unknown; sources.len()];
    for language in Language::ALL {
        let of_language =
            |source: &Option<(Language, &[u8])>| source.is_some_and(|(one, _)| one == language);
        let places: Vec<usize> =
            (0..sources.len()).filter(|place| of_language(&sources[*place])).collect();
        let mut rest = &places[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|place| {
                bytes += sources[**place].map_or(0, |(_, source)| source.len());
                bytes <= TOGETHER
            });
            let (now, later) = rest.split_at(fit.count().max(1));
            rest = later;
            let inputs: Vec<&[u8]> =
                now.iter().filter_map(|place| Some(sources[*place]?.1)).collect();
            match engine::run(language, &inputs) {
                Ok(parsed) => now
                    .iter()
                    .zip(parsed)
                    .for_each(|(place, parsed)| answers[*place] = Answer::Parsed(parsed)),
                Err(_) => now.iter().for_each(|place| answers[*place] = Answer::Missing),
            }
        }
    }
    answers
}

#[cfg(target_arch = "wasm32")]
mod engine {
    use code_model::{Language, Parsed};

    pub(super) fn run(_: Language, _: &[&[u8]]) -> Result<Vec<Parsed>, String> {
        Err("not yet".to_owned())
    }
}

/// The stand-in for the parsers in unit tests: a line `fn NAME` defines a function, other words are
/// references, and C has no parser.
#[cfg(not(target_arch = "wasm32"))]
mod engine {
    use code_model::{Definition, Kind, Language, Parsed, Reference};

    pub(super) fn run(language: Language, inputs: &[&[u8]]) -> Result<Vec<Parsed>, String> {
        if language == Language::C {
            return Err("c.wasm is missing".to_owned());
        }
        Ok(inputs.iter().map(|input| parse(&String::from_utf8_lossy(input))).collect())
    }

    fn parse(text: &str) -> Parsed {
        let mut parsed = Parsed::default();
        for (line, number) in text.lines().zip(1..) {
            let trimmed = line.trim_start();
            if trimmed.starts_with("//") {
                continue;
            }
            let column = |word: &str| u32::try_from(line.find(word).unwrap_or(0)).unwrap_or(0);
            let mut words = crate::words::identifiers(line);
            if trimmed.starts_with("fn ") {
                let name = words.nth(1).unwrap_or_default();
                parsed.definitions.push(Definition {
                    name: name.to_owned(),
                    kind: Kind::Function,
                    container: String::new(),
                    start: number,
                    end: number,
                    line: number,
                    column: column(name),
                });
            }
            parsed.references.extend(words.map(|word| Reference {
                name: word.to_owned(),
                line: number,
                column: column(word),
            }));
        }
        parsed
    }
}
