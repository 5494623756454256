//! Asks the parsers of languages, which are parts of this plugin.

use std::time::Instant;

use berth_sdk::parts;
use code_model::{Language, Parsed, ParserQuestion};

/// Bytes that are parsed in one call of the host.
const TOGETHER: usize = 2 << 20;

/// What is known of one source.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// What its parser found.
    Parsed(Parsed),
    /// The parser failed on it, and why.
    Failed(String),
    /// No parser knows its language.
    Unknown,
    /// The time of the call was over before it.
    Unreached,
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
/// What is wrong with the parser, for people.
pub(crate) fn availability(language: Language) -> Result<(), String> {
    match parts::run(language.part(), vec![Vec::new()]).pop() {
        // A parser that fails is there.
        Some(Err(error)) if !["failed", "limit", "budget"].contains(&&*error.code) => {
            Err(error.message)
        }
        _ => Ok(()),
    }
}

/// Parses sources, until `until`: the first use of a parser compiles it. The answers are in their
/// order.
pub(crate) fn parse_all(
    sources: &[Option<(Language, &[u8])>],
    question: ParserQuestion,
    until: Instant,
) -> Vec<Answer> {
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
            if Instant::now() >= until {
                now.iter().for_each(|place| answers[*place] = Answer::Unreached);
                continue;
            }
            let inputs =
                now.iter().filter_map(|place| Some(question.encode(sources[*place]?.1))).collect();
            let results = parts::run(language.part(), inputs);
            for (place, result) in now.iter().zip(results) {
                answers[*place] = match result {
                    Ok(bytes) => Parsed::decode(&bytes)
                        .map_or_else(|error| Answer::Failed(error.to_string()), Answer::Parsed),
                    Err(error) if error.code == "failed" || error.code == "limit" => {
                        Answer::Failed(error.message)
                    }
                    Err(error) if error.code == "budget" => Answer::Unreached,
                    Err(_) => Answer::Missing,
                };
            }
        }
    }
    answers
}
