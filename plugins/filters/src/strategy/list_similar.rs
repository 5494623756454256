//! `list_similar`: joins lines with the same beginning and end as the one before into one, which
//! lists what differs.

use std::collections::HashSet;

use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::dedup::is_row;
use super::{Outcome, Part, Run};
use crate::guard::is_passing;
use crate::text::{FOLD_MARK, is_blank, is_fold_mark, parse_mark, push_line};

/// The smallest number of similar lines that are listed together.
const MIN_LINES: usize = 4;
/// The smallest number of bytes that such lines have in common.
const MIN_COMMON: usize = 8;
/// The greatest number of lines of a block that is listed.
const LONGEST_BLOCK: usize = 6;
/// The smallest length of a name that is said twice, in bytes.
const MIN_TWICE: usize = 3;
/// The greatest length of a line that is listed, in bytes.
const LONGEST_LINE: usize = 1000;
/// The greatest number of spaces in what differs. A list of sentences is hard to read.
const MAX_SPACES: usize = 3;
/// The length of a list, in bytes, after which a new one starts.
const LONGEST_LIST: usize = 4000;

/// Parameters of `list_similar`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSimilar {
    /// Whether only lines of tests that passed are listed. What tests printed stays as it is.
    #[serde(default)]
    passing_only: bool,
}

impl ListSimilar {
    #[expect(clippy::unnecessary_wraps, reason = "as the other strategies")]
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        Ok(Box::new(Lister { passing_only: self.passing_only }))
    }
}

/// Lists what differs in lines that follow each other and have the same beginning and end. The
/// first of them stays.
struct Lister {
    passing_only: bool,
}

impl Run for Lister {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let may_be_listed: Vec<bool> =
            (0..part.lines.len()).map(|at| self.may_be_listed(part, at)).collect();
        let mut out = String::new();
        let mut at = 0;
        let mut lists = false;
        while at < part.lines.len() {
            let many = may_be_listed[at..].iter().take_while(|may| **may).count();
            let end = at + many.max(1);
            while at < end {
                let SimilarLines { length, list } = self.similar(&part.lines[at..end]);
                let shown = list.as_ref().map_or(length, |(shown, _)| *shown);
                part.lines[at..at + shown].iter().for_each(|line| push_line(&mut out, line));
                list.iter().for_each(|(_, list)| push_line(&mut out, list));
                lists |= list.is_some();
                at += length;
            }
        }
        if lists { Outcome::Text(out, Confidence::Full) } else { Outcome::Unchanged }
    }
}

impl Lister {
    fn may_be_listed(&self, part: &Part<'_>, at: usize) -> bool {
        let line = part.lines[at];
        !part.is_notable(at)
            && !is_blank(line)
            && line.len() <= LONGEST_LINE
            && !is_fold_mark(line)
            && parse_mark(line).is_none()
            && !line.ends_with(',')
            && !is_row(line)
            && (!self.passing_only || is_passing(line))
    }
}

/// Similar lines, or blocks of lines, that follow each other.
struct SimilarLines {
    /// The number of lines. They are looked at once, whether they are listed or not.
    length: usize,
    /// How many of them stay, and what stands for the others, if that is shorter.
    list: Option<(usize, String)>,
}

impl Lister {
    /// The similar lines at the start of `lines`.
    fn similar(&self, lines: &[&str]) -> SimilarLines {
        // The first two lines have more in common than all, so their list is shorter.
        [(1, 2), (1, MIN_LINES)]
            .into_iter()
            .chain((2..=LONGEST_BLOCK).map(|block| (block, 2)))
            .find_map(|(block, first)| self.blocks(lines, block, first))
            .unwrap_or(SimilarLines { length: 1, list: None })
    }

    /// The similar blocks of `block` lines. The first ones decide what they have in common.
    fn blocks(&self, lines: &[&str], block: usize, first: usize) -> Option<SimilarLines> {
        let shown = lines.get(..block * first)?;
        let common: Vec<Common<'_>> = (0..block)
            .map(|line| {
                let same: Vec<&str> = shown.iter().skip(line).step_by(block).copied().collect();
                Common::find(&same)
            })
            .collect::<Option<_>>()?;
        let mut names = Vec::new();
        let mut bytes = 0;
        let mut left_out = 0;
        for piece in lines[block..].chunks_exact(block) {
            let name: Option<Vec<&str>> =
                common.iter().zip(piece).map(|(common, line)| common.name(line)).collect();
            let Some(mut name) = name else { break };
            if bytes > LONGEST_LIST {
                break;
            }
            name.retain(|name| !name.is_empty());
            if name.is_empty() {
                break;
            }
            // The name of the whole block is said once.
            name.dedup();
            left_out += piece.iter().map(|line| line.len() + 1).sum::<usize>();
            let name = name.join(" … ");
            bytes += name.len();
            names.push(name);
        }
        if names.len() + 1 < MIN_LINES {
            return None;
        }
        let length = (names.len() + 1) * block;
        if !self.passing_only && differ_in_numbers(&names) {
            return Some(SimilarLines { length, list: None });
        }
        let many = names.len();
        let list = match &common[..] {
            [common] => format!(
                "... ({many}{FOLD_MARK}this: {}{{{}}}{}{}) ...",
                common.label(),
                names.join(", "),
                common.again.map(|between| format!("{between}{{the same}}")).unwrap_or_default(),
                common.end
            ),
            _ => {
                format!("... ({many}{FOLD_MARK}these {block} lines: {{{}}}) ...", names.join(", "))
            }
        };
        let is_shorter = list.len() + list.len() / 4 < left_out;
        Some(SimilarLines { length, list: is_shorter.then_some((block, list)) })
    }
}

/// Whether most names differ only in their numbers. `dedup` folds such lines, and keeps those that
/// have to stand alone.
fn differ_in_numbers(names: &[String]) -> bool {
    let different: HashSet<String> = names
        .iter()
        .map(|name| name.chars().filter(|character| !character.is_ascii_digit()).collect())
        .collect();
    different.len() * 2 < names.len()
}

/// The common parts of lines: their beginning, after a counter, and their end.
struct Common<'a> {
    start: &'a str,
    end: &'a str,
    /// If the differing part is there twice, the text between: `a.txt -> /tmp/a.txt`.
    again: Option<&'a str>,
}

impl<'a> Common<'a> {
    fn find(lines: &[&'a str]) -> Option<Self> {
        let first = without_counter(lines[0]);
        if lines.iter().all(|line| without_counter(line) == first) {
            return Some(Self { start: first, end: "", again: None });
        }
        let others = &lines[1..];
        let start = others
            .iter()
            .map(|line| count_equal(first.bytes(), without_counter(line).bytes()))
            .min()
            .map_or(0, |start| word_start(first, start));
        let rest = &first[start..];
        let end = others
            .iter()
            .map(|line| {
                count_equal(rest.bytes().rev(), without_counter(line)[start..].bytes().rev())
            })
            .min()
            .map_or(rest.len(), |end| word_end(rest, rest.len() - end));
        // `a.txt (12%` would be hard to read.
        let end = match rest[end..].find([')', ']', '}']) {
            Some(close) if is_open(&rest[..end]) => end + close + 1,
            _ => end,
        };
        let name = &rest[..end];
        let again = twice(name).filter(|between| {
            others.iter().all(|line| {
                let other = without_counter(line);
                let name = &other[start..other.len() - (rest.len() - end)];
                split_twice(name, between).is_some()
            })
        });
        let common = Self { start: &first[..start], end: &rest[end..], again };
        (common.start.trim().len() + common.end.len() >= MIN_COMMON).then_some(common)
    }

    /// The differing part of a line. `None` if the line isn't like the others.
    fn name<'b>(&self, line: &'b str) -> Option<&'b str> {
        let name = without_counter(line).strip_prefix(self.start)?.strip_suffix(self.end)?;
        let name = match self.again {
            Some(between) => split_twice(name, between)?,
            None => name,
        };
        let is_name =
            !name.contains(", ") && name.bytes().filter(|byte| *byte == b' ').count() <= MAX_SPACES;
        is_name.then_some(name)
    }

    /// The last word of the beginning.
    fn label(&self) -> &'a str {
        let words = self.start.trim_end();
        &self.start[words.rfind(' ').map_or(0, |at| at + 1)..]
    }
}

/// The number of equal bytes at the start of two texts.
fn count_equal(a: impl Iterator<Item = u8>, b: impl Iterator<Item = u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// The text between if a name says the same twice.
fn twice(name: &str) -> Option<&str> {
    (MIN_TWICE..name.len() / 2)
        .rev()
        .filter(|length| name.is_char_boundary(*length))
        .find(|length| name.ends_with(&name[..*length]))
        .map(|length| &name[length..name.len() - length])
}

/// The text that a name has twice, with `between` between the two.
fn split_twice<'a>(name: &'a str, between: &str) -> Option<&'a str> {
    let length = name.len().checked_sub(between.len())? / 2;
    let (said, rest) = name.split_at_checked(length)?;
    (rest.strip_prefix(between) == Some(said)).then_some(said)
}

/// The line without the number of its step: `[3/40] `, `(3/40) `, `3/40 `, `[ 12%] `, or ` [ 12%]`
/// at its end, where pytest has it.
fn without_counter(line: &str) -> &str {
    if let Some((text, share)) = line.strip_suffix("%]").and_then(|line| line.rsplit_once(" ["))
        && share.bytes().all(|byte| byte.is_ascii_digit() || byte == b' ')
    {
        return text.trim_end();
    }
    let rest = line.trim_start_matches(['[', '(', ' ']);
    let number = rest.trim_start_matches(|first: char| first.is_ascii_digit());
    if number.len() == rest.len() {
        return line;
    }
    let after = match number.strip_prefix('/') {
        Some(all) => all.trim_start_matches(|first: char| first.is_ascii_digit()),
        None => number.strip_prefix('%').unwrap_or(number),
    };
    let after_bracket = after.trim_start_matches([']', ')']);
    if after.len() < number.len() && after_bracket.starts_with(' ') { after_bracket } else { line }
}

/// Whether a bracket is opened and not closed.
fn is_open(name: &str) -> bool {
    ["()", "[]", "{}"]
        .iter()
        .any(|pair| name.matches(&pair[..1]).count() > name.matches(&pair[1..]).count())
}

/// The end of the last whole word in the first `length` bytes. A dot in a number is part of it.
fn word_start(text: &str, length: usize) -> usize {
    let length = text.floor_char_boundary(length);
    text[..length]
        .rmatch_indices([' ', '/', '.', ':', '=', '(', '[', '{', '"', '\'', '\t'])
        .find(|(at, sign)| {
            *sign != "." || !text[..*at].ends_with(|before: char| before.is_ascii_digit())
        })
        .map_or(0, |(at, _)| at + 1)
}

/// The start of the first whole word from `at` on.
fn word_end(text: &str, at: usize) -> usize {
    let at = text.ceil_char_boundary(at);
    let sign = text[at..].find([' ', '/', ':', ')', ']', '}', '"', '\'', '.', ',', ';']);
    sign.map_or(text.len(), |sign| at + sign)
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    const LIST: &str = "{ type = 'list_similar' }";

    #[test]
    fn what_tests_print_stays_if_only_passing_ones_are_listed() {
        let prints: String = ["anna", "bert", "cleo", "dora", "emil"]
            .iter()
            .map(|name| format!("the rows of {name}: 500\n"))
            .collect();
        check(
            "{ type = 'list_similar', passing_only = true }",
            false,
            &prints,
            "",
            Confidence::Full,
        );
    }

    #[test]
    fn every_name_stays() {
        let text = "\
copying docs/guide/first.md to the site
copying docs/guide/second.md to the site
copying docs/guide/third.md to the site
copying docs/guide/fourth.md to the site
copying docs/guide/fifth.txt to the site
done
";
        let expect = "\
copying docs/guide/first.md to the site
... (3 more like this: docs/guide/{second, third, fourth}.md to the site) ...
copying docs/guide/fifth.txt to the site
done
";
        check(LIST, false, text, expect, Confidence::Full);
    }

    #[test]
    fn steps_are_counted_and_not_compared() {
        let text = "\
[1/5] Building the library alpha
[2/5] Building the library beta
[3/5] Building the library gamma
[4/5] Building the library delta
[5/5] Building the library epsilon
";
        let expect = "\
[1/5] Building the library alpha
... (4 more like this: library {beta, gamma, delta, epsilon}) ...
";
        check(LIST, false, text, expect, Confidence::Full);
    }

    #[test]
    fn name_that_is_said_twice_is_listed_once() {
        let line = |name: &str| format!("'docs/{name}.md' -> '/srv/site/docs/{name}.md'\n");
        let names = ["first", "second", "third", "fourth", "fifth"];
        let text: String = names.iter().map(|name| line(name)).collect();
        let expect = "\
'docs/first.md' -> '/srv/site/docs/first.md'
... (4 more like this: 'docs/{second, third, fourth, fifth}.md' -> '/srv/site/docs/{the same}.md') ...
";
        check(LIST, false, &text, expect, Confidence::Full);
    }

    #[test]
    fn names_of_blocks_are_listed() {
        let block = |name: &str| {
            format!("compiling the module {name}\nreading its sources\nwrote target/{name}.o\n")
        };
        let names = ["anna", "bert", "cleo", "dora", "emil"];
        let text: String = names.iter().map(|name| block(name)).collect();
        let expect = "\
compiling the module anna
reading its sources
wrote target/anna.o
... (4 more like these 3 lines: {bert, cleo, dora, emil}) ...
";
        check(LIST, false, &text, expect, Confidence::Full);
    }

    #[test]
    fn names_of_tests_are_listed() {
        let text = "\
tests/test_cart.py::test_adds PASSED                                     [ 25%]
tests/test_cart.py::test_removes PASSED                                  [ 50%]
tests/test_cart.py::test_total[many] PASSED                              [ 75%]
tests/test_cart.py::test_empty PASSED                                    [100%]
";
        let expect = "\
tests/test_cart.py::test_adds PASSED                                     [ 25%]
... (3 more like this: tests/test_cart.py::{test_removes, test_total[many], test_empty} PASSED) ...
";
        check(LIST, false, text, expect, Confidence::Full);
    }

    #[test]
    fn lines_that_differ_in_numbers_stand_alone() {
        let lines: String =
            (1..9).map(|at| format!("epoch {at} of the training has loss {}\n", at * at)).collect();
        check(LIST, false, &lines, "", Confidence::Full);
    }

    #[test]
    fn line_with_another_result_stands_alone() {
        let line = |name: &str, result: &str| format!("checking the schema of {name}: {result}\n");
        let names = ["anna", "bert", "cleo", "dora", "emil", "fred"];
        let same: String = names.iter().map(|name| line(name, "fine")).collect();
        let text = format!("{same}{}{same}", line("gina", "empty"));
        let expect = "\
checking the schema of anna: fine
... (5 more like this: of {bert, cleo, dora, emil, fred}: fine) ...
checking the schema of gina: empty
... (6 more like this: of {anna: fine, bert: fine, cleo: fine, dora: fine, emil: fine, fred: fine}) ...
";
        check(LIST, false, &text, expect, Confidence::Full);
    }

    #[test]
    fn failures_rows_and_sentences_are_not_listed() {
        let warning = "warning: the file is old: a\nwarning: the file is old: b\n".repeat(4);
        let rows = "customer | anna | 17\ncustomer | bert | 18\n".repeat(4);
        let sentences =
            "the worker says that it is so, and more\nthe worker says that it isn't, or less\n"
                .repeat(4);
        for text in [warning, rows, sentences] {
            check(LIST, false, &text, "", Confidence::Full);
        }
    }
}
