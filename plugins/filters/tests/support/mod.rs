//! A stand-in for the host: it finds the rules for a command, and prepares an output for a rule.

use std::path::{Path, PathBuf};

use filters::Engine;
use regex::Regex;
use toolhold_sdk::filter::{Filters as _, Input, Pattern, Verdict};

/// The subject that matchers are compared with: the last command of the line, without pipes,
/// redirections, variables and commands that only start it.
pub(crate) fn subject(command: &str) -> String {
    let words = words(command);
    let last = words
        .rsplit(|word| matches!(word.as_str(), "&&" | ";" | "||"))
        .find(|words| !words.is_empty())
        .unwrap_or_default();
    let first = last.split(|word| word == "|").next().unwrap_or_default();
    let mut kept: Vec<&str> = Vec::new();
    let mut words = first.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let is_variable = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        match word {
            ">" | ">>" | "2>" | "<" | "&>" => drop(words.next()),
            _ if word.contains(">&") || word.starts_with('>') || word.starts_with("2>") => {}
            _ if kept.is_empty()
                && (is_variable
                    || matches!(word, "sudo" | "env" | "time" | "nohup" | "nice" | "xvfb-run")) => {
            }
            "timeout" if kept.is_empty() => drop(words.next()),
            _ if kept.is_empty() => kept.push(if word.starts_with("./") {
                word
            } else {
                word.rsplit('/').next().unwrap_or(word)
            }),
            _ => kept.push(word),
        }
    }
    kept.join(" ")
}

/// The words of a line, with their quotes. Operators are separate words.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for character in command.chars() {
        let last = words.last_mut().expect("the list is never empty");
        match character {
            '"' | '\'' if quote.is_none() => quote = Some(character),
            _ if quote == Some(character) => quote = None,
            ';' if quote.is_none() => words.extend([";".to_owned(), String::new()]),
            '|' if quote.is_none() && last == "|" => last.push('|'),
            '|' if quote.is_none() => words.push("|".to_owned()),
            ' ' if quote.is_none() => words.push(String::new()),
            _ => last.push(character),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// An output without colours and without text that a carriage return overwrites. Several blank
/// lines become one.
pub(crate) fn clean(output: &str) -> String {
    let escapes =
        Regex::new(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][0-9A-B]|[=>78MDEHc])|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]")
            .expect("the expression compiles");
    let text = escapes.replace_all(output, "");
    let mut clean = String::new();
    let mut was_blank = false;
    for line in text.split_inclusive('\n') {
        let line = line.trim_end_matches(['\n', '\r']);
        let line = line.rsplit('\r').next().unwrap_or(line);
        let is_blank = line.trim().is_empty();
        if !(is_blank && was_blank) {
            clean.push_str(line);
            clean.push('\n');
        }
        was_blank = is_blank;
    }
    if !output.ends_with('\n') {
        clean.pop();
    }
    clean
}

/// The matchers of all rules, which find the rules for a command as the host does.
pub(crate) struct Matchers(Vec<(String, Matcher)>);

enum Matcher {
    /// Fits what no other does.
    Fallback,
    Exact(String),
    Prefix(String),
    Regex(Regex),
}

impl Matchers {
    pub(crate) fn new(engine: &Engine) -> Self {
        let matchers = engine.list().filters.into_iter().map(|filter| {
            let matcher = match &filter.matchers[0].subject {
                Pattern::Any => Matcher::Fallback,
                Pattern::Exact(text) => Matcher::Exact(text.to_string()),
                Pattern::Prefix(text) => Matcher::Prefix(text.to_string()),
                Pattern::Regex(text) => Matcher::Regex(
                    Regex::new(text).unwrap_or_else(|error| panic!("{}: {error}", filter.name)),
                ),
            };
            (filter.name.into_owned(), matcher)
        });
        Self(matchers.collect())
    }

    pub(crate) fn fitting(&self, subject: &str) -> Vec<&str> {
        let fits = |matcher: &Matcher| match matcher {
            Matcher::Fallback => false,
            Matcher::Exact(text) => text == subject,
            Matcher::Prefix(text) => subject
                .strip_prefix(text.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')),
            Matcher::Regex(regex) => regex.is_match(subject),
        };
        let names = |fits: &dyn Fn(&Matcher) -> bool| -> Vec<&str> {
            let fitting = self.0.iter().filter(|(_, matcher)| fits(matcher));
            fitting.map(|(name, _)| name.as_str()).collect()
        };
        let fitting = names(&fits);
        if fitting.is_empty() {
            return names(&|matcher| matches!(matcher, Matcher::Fallback));
        }
        fitting
    }
}

/// The result of a rule for a text.
pub(crate) fn apply(
    engine: &mut Engine,
    rule: &str,
    subject: &str,
    exit: i32,
    text: &str,
) -> String {
    match engine
        .apply(rule, &Input::command(subject, exit, [text]))
        .unwrap_or_else(|what| panic!("{rule}: {what}"))
    {
        Verdict::Keep => text.to_owned(),
        verdict @ Verdict::Replace(_) => verdict.joined_text().unwrap_or_default(),
        Verdict::Block(_) => unreachable!("no rule is a security filter"),
    }
}

/// The folder of the recorded outputs.
#[allow(dead_code, reason = "the example doesn't use it")]
pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}
