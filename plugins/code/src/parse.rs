//! Asks the parsers of languages, which are parts of this plugin, and sends slow sources a few at a
//! time.

use std::time::{Duration, Instant};

use code_model::{Language, Parsed, ParserQuestion};
use toolhold_sdk::parts;

/// Bytes that are parsed in one call of the host.
const TOGETHER: usize = 2 << 20;

/// Sources in one call of the host, at most and at first.
const MANY: usize = 128;
const FEW: usize = 2;

/// Where to read more about missing parsers.
pub(crate) const PARSERS: &str = "Run `toolhold doctor` to see which parsers are missing, and why.";

/// A call of the host that takes longer is followed by one with few sources.
const LONG: Duration = Duration::from_secs(1);

/// The number of sources that are parsed in one call of the host. A hostile source may take
/// seconds, and a call of the host that doesn't end in time has no answers at all.
#[derive(Debug)]
pub(crate) struct Pace(usize);

/// The result for one source.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The results of its parser.
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

impl Default for Pace {
    fn default() -> Self {
        Self(FEW)
    }
}

impl Pace {
    fn adapt(&mut self, took: Duration) {
        self.0 = if took > LONG { FEW } else { (2 * self.0).min(MANY) };
    }
}

/// Whether the parser of a language is there.
pub(crate) fn is_available(language: Language) -> bool {
    availability(language).is_ok()
}

/// Why the parser of a language can't be used.
///
/// # Errors
///
/// The fault of the parser, for people.
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
    pace: &mut Pace,
) -> Vec<Answer> {
    let mut answers = vec![Answer::Unknown; sources.len()];
    for language in Language::ALL {
        let places: Vec<usize> = (0..sources.len())
            .filter(|place| sources[*place].is_some_and(|(one, _)| one == language))
            .collect();
        let mut rest = &places[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take(pace.0).take_while(|place| {
                bytes += sources[**place].map_or(0, |(_, source)| source.len());
                bytes <= TOGETHER
            });
            let (now, later) = rest.split_at(fit.count().max(1));
            rest = later;
            let started = Instant::now();
            if started >= until {
                now.iter().for_each(|place| answers[*place] = Answer::Unreached);
                continue;
            }
            let inputs =
                now.iter().filter_map(|place| Some(question.encode(sources[*place]?.1))).collect();
            let results = parts::run(language.part(), inputs);
            pace.adapt(started.elapsed());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_sources_come_few_at_a_time() {
        let mut pace = Pace::default();
        let mut after = |seconds: &[u64]| {
            seconds.iter().for_each(|seconds| pace.adapt(Duration::from_secs(*seconds)));
            pace.0
        };
        assert_eq!((after(&[]), after(&[0, 1]), after(&[0; 9]), after(&[2])), (2, 8, 128, 2));
    }
}
