//! Habits that make Rust code hard to read. Each is fine now and then, so each has a limit.

use super::code::lines_without_tests;
use super::source::Source;
use super::tree::{File, Tree};
use super::{Violation, at};

struct Habit {
    name: &'static str,
    /// The most places per 1,000 lines of host without tests. ripgrep, Spin, uv and wasmtime have
    /// fewer of most habits.
    limit: f64,
    advice: &'static str,
    /// Whether the words begin with the habit.
    is_at: fn(&[&str]) -> bool,
}

const HABITS: [Habit; 6] = [
    Habit { name: "named closure", limit: 0.5, advice: "write a function", is_at: is_closure },
    Habit { name: "double binding", limit: 0.1, advice: "write two lines", is_at: is_double },
    Habit { name: "name bound again", limit: 0.1, advice: "write one chain", is_at: is_rebinding },
    Habit { name: "blind filter", limit: 0.05, advice: "write `if`", is_at: is_blind_filter },
    Habit { name: "string error", limit: 0.3, advice: "write an enum", is_at: is_string_error },
    Habit { name: "pronoun first", limit: 0.375, advice: "begin with the noun", is_at: is_pronoun },
];

/// First words of documentation that name no thing.
const PRONOUNS: [&str; 9] =
    ["It", "None", "That", "These", "They", "Those", "What", "Who", "Whoever"];

pub(crate) fn habits_that_make_code_hard_to_read_are_rare(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (habit, places, rate) in count(tree) {
        if rate > habit.limit {
            let Habit { name, limit, advice, .. } = habit;
            let message = format!("{name}: {advice}; {rate:.2} per 1,000 lines, at most {limit}");
            found.extend(places.iter().map(|(file, line)| at(file, *line, message.clone())));
        }
    }
    // Sort by file, and so by crate.
    found.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    found
}

/// How often each habit occurs per 1,000 lines.
pub(crate) fn rates(tree: &Tree) -> String {
    let rates = count(tree).map(|(habit, _, rate)| format!("{} {rate:.2}", habit.name));
    rates.join(", ")
}

/// A habit, the places that have it, and their number per 1,000 lines.
type Counted<'a> = (Habit, Vec<(&'a File, usize)>, f64);

fn count(tree: &Tree) -> [Counted<'_>; 6] {
    let mut counted = HABITS.map(|habit| (habit, Vec::new(), 0.0));
    for (file, source) in tree.rust(&["host/"]) {
        let (words, lines) = words(source);
        for (start, line) in lines.iter().enumerate() {
            for (habit, places, _) in &mut counted {
                if (habit.is_at)(&words[start..]) && !file.is_test(*line) {
                    places.push((file, *line));
                }
            }
        }
    }
    let lines = lines_without_tests(tree) as f64;
    for (_, places, rate) in &mut counted {
        *rate = places.len() as f64 * 1_000.0 / lines;
    }
    counted
}

/// The words and signs of the code, and the line of each. A documentation comment is `///` and its
/// first word.
fn words(source: &Source) -> (Vec<&str>, Vec<usize>) {
    let mut words = Vec::new();
    let mut lines = Vec::new();
    let mut is_documentation = false;
    for (number, (code, comment)) in source.code.lines().zip(source.comments.lines()).enumerate() {
        let follows = is_documentation;
        let comment = comment.trim_start();
        is_documentation = comment.starts_with("///") || comment.starts_with("//!");
        if is_documentation && !follows {
            words.extend(["///", split_word(comment[3..].trim_start()).0]);
        }
        let mut rest = code.trim_start();
        while !rest.is_empty() {
            let (word, after) = split_word(rest);
            words.push(word);
            rest = after.trim_start();
        }
        lines.resize(words.len(), number + 1);
    }
    (words, lines)
}

/// The first word or sign, and the rest.
fn split_word(text: &str) -> (&str, &str) {
    let length = match text.find(|c: char| !c.is_alphanumeric() && c != '_') {
        Some(0) if text.starts_with("->") => 2,
        Some(0) => text.chars().next().map_or(0, char::len_utf8),
        Some(end) => end,
        None => text.len(),
    };
    text.split_at(length)
}

fn is_closure(words: &[&str]) -> bool {
    let Some((_, value)) = binding(words) else { return false };
    value.iter().find(|word| !["&", "async", "move", "mut"].contains(word)) == Some(&"|")
}

fn is_double(words: &[&str]) -> bool {
    let ["let", "(", pattern @ ..] = words else { return false };
    let Some(["(", value @ ..]) = after(pattern, ")").and_then(assigned) else { return false };
    after(value, ")").is_some_and(|rest| rest.starts_with(&[";"]))
}

fn is_rebinding(words: &[&str]) -> bool {
    let Some((name, value)) = binding(words) else { return false };
    let next = after(value, ";").and_then(binding);
    matches!(next, Some((again, [first, "." | "?", ..])) if again == name && *first == name)
}

fn is_blind_filter(words: &[&str]) -> bool {
    matches!(words, [".", "filter", "(", "|", "_", "|", ..])
}

fn is_string_error(words: &[&str]) -> bool {
    let ["Result", "<", types @ ..] = words else { return false };
    let Some(rest) = after(types, ">") else { return false };
    let types = &types[..types.len() - rest.len()];
    matches!(types, [.., ",", "String", ">"] | [.., ",", "String", ",", ">"])
}

fn is_pronoun(words: &[&str]) -> bool {
    matches!(words, ["///", first, ..] if PRONOUNS.contains(first))
}

/// The name that a `let` binds, and the words from its value on.
fn binding<'w, 's>(words: &'w [&'s str]) -> Option<(&'s str, &'w [&'s str])> {
    match words {
        ["let", "mut", name, rest @ ..] | ["let", name, rest @ ..] => Some((name, assigned(rest)?)),
        _ => None,
    }
}

/// The words after `=`, or after a type and `=`.
fn assigned<'w, 's>(words: &'w [&'s str]) -> Option<&'w [&'s str]> {
    match words {
        ["=", value @ ..] => Some(value),
        [":", rest @ ..] => after(rest, "="),
        _ => None,
    }
}

/// The words after the first `end` outside brackets, in the same statement.
fn after<'w, 's>(words: &'w [&'s str], end: &str) -> Option<&'w [&'s str]> {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate() {
        match *word {
            word if depth == 0 && word == end => return Some(&words[at + 1..]),
            ";" if depth == 0 => return None,
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            // `<` is a bracket only in a type, which ends with `>`. In a value, `<` compares.
            "<" if end == ">" => depth += 1,
            ">" if end == ">" => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}
