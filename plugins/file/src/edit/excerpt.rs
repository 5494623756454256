//! Shows the lines that `edit` changed as a small diff with line numbers.

use std::fmt::Write as _;
use std::ops::Range;

use super::substitute::Substitution;
use crate::cut::without_unfinished;

/// The number of lines that are shown before and after a change.
const CONTEXT: usize = 2;

/// The greatest number of changes that are shown.
const MAX_CHANGES: usize = 5;

/// The greatest number of lines that are shown of one side of a change.
const MAX_LINES: usize = 20;

/// The greatest number of characters that are shown of a line.
const MAX_LINE: usize = 200;

/// The number, from 1, of the line that contains the byte `at` of `text`.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() + 1
}

/// The line, cut if it is too long to be shown.
pub(super) fn cut_line(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE) {
        Some((at, _)) => format!(
            "{} [...]",
            &line[..without_unfinished(&line.as_bytes()[..at], &line.as_bytes()[at..])]
        ),
        None => line.to_owned(),
    }
}

/// Appends the diff of `old` and `new`. Lines with `-` have the numbers in `old`, lines with `+`
/// those in `new`.
pub(super) fn append(answer: &mut String, old: &str, new: &str, found: &Substitution) {
    let (before, after): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let hunks = hunks(old, new, found, &before, &after);
    // Context lines and their numbers come from the new content. No line is shown twice.
    let mut shown = 0;
    for (index, hunk) in hunks.iter().take(MAX_CHANGES).enumerate() {
        let from = hunk.after.0.saturating_sub(CONTEXT).max(shown);
        if index > 0 && from > shown {
            answer.push_str("  ...\n");
        }
        show(answer, ' ', &after, from..hunk.after.0);
        side(answer, '-', hunk.before, &before);
        side(answer, '+', hunk.after, &after);
        let next = hunks.get(index + 1).map_or(after.len(), |next| next.after.0);
        shown = (hunk.after.1 + CONTEXT).min(next);
        show(answer, ' ', &after, hunk.after.1..shown);
    }
    if hunks.len() > MAX_CHANGES {
        let _ = writeln!(answer, "[{} more changes are not shown.]", hunks.len() - MAX_CHANGES);
    }
}

/// The lines of one change, before and after it: the first line, from 0, and the end (excluded).
struct Hunk {
    before: (usize, usize),
    after: (usize, usize),
}

/// The changes, without equal lines at their edges. Changes in the same line become one.
fn hunks(old: &str, new: &str, found: &Substitution, before: &[&str], after: &[&str]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut old_at = Position::default();
    let mut new_at = Position::default();
    let mut shift = 0_isize;
    for place in &found.places {
        let replacement = found.replacement(place);
        let range = &place.range;
        let start = range.start.saturating_add_signed(shift).min(new.len());
        let end = (start + replacement.len()).min(new.len());
        let mut hunk = Hunk {
            before: (old_at.line(old, range.start), old_at.line(old, range.end) + 1),
            after: (new_at.line(new, start), new_at.line(new, end) + 1),
        };
        shift += replacement.len() as isize - range.len() as isize;
        hunk.before.1 = hunk.before.1.min(before.len());
        hunk.after.1 = hunk.after.1.min(after.len());
        match hunks.last_mut() {
            Some(last) if hunk.before.0 < last.before.1 => {
                last.before.1 = hunk.before.1;
                last.after.1 = hunk.after.1;
            }
            _ => hunks.push(hunk),
        }
    }
    for hunk in &mut hunks {
        let b = &mut hunk.before;
        let a = &mut hunk.after;
        while b.0 < b.1 && a.0 < a.1 && before[b.0] == after[a.0] {
            b.0 += 1;
            a.0 += 1;
        }
        while b.0 < b.1 && a.0 < a.1 && before[b.1 - 1] == after[a.1 - 1] {
            b.1 -= 1;
            a.1 -= 1;
        }
    }
    hunks
}

/// Counts lines forward, so that all changes need only one pass.
#[derive(Default)]
struct Position {
    at: usize,
    line: usize,
}

impl Position {
    /// The line, from 0, that contains the byte `at`. `at` must not decrease between calls.
    fn line(&mut self, text: &str, at: usize) -> usize {
        if at > self.at {
            self.line += memchr::memchr_iter(b'\n', &text.as_bytes()[self.at..at]).count();
            self.at = at;
        }
        self.line
    }
}

fn side(answer: &mut String, mark: char, (start, end): (usize, usize), lines: &[&str]) {
    show(answer, mark, lines, start..end.min(start + MAX_LINES));
    if end > start + MAX_LINES {
        let _ = writeln!(answer, "{mark}  ... {} more lines", end - start - MAX_LINES);
    }
}

fn show(answer: &mut String, mark: char, lines: &[&str], range: Range<usize>) {
    for (line, number) in lines[range.clone()].iter().zip(range.start + 1..) {
        let _ = writeln!(answer, "{mark} {number:4}\t{}", cut_line(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(text: &str, old: &str, new: &str) -> String {
        let found = Substitution::find(text, old, new);
        let mut answer = String::new();
        append(&mut answer, text, &found.apply(text), &found);
        answer
    }

    #[test]
    fn only_changed_lines_are_marked() {
        assert_eq!(
            excerpt("a\nb\nc\nd\ne\n", "b\nc\nd", "b\nC\nC2\nd"),
            "     1\ta\n     2\tb\n-    3\tc\n+    3\tC\n+    4\tC2\n     5\td\n     6\te\n"
        );
        assert_eq!(excerpt("a\nb\nc\n", "b\n", ""), "     1\ta\n-    2\tb\n     2\tc\n");
        assert_eq!(excerpt("a\n", "a\n", ""), "-    1\ta\n");
    }

    #[test]
    fn changes_in_one_line_become_one() {
        assert_eq!(excerpt("a a a\n", "a", "b"), "-    1\ta a a\n+    1\tb b b\n");
        let apart = excerpt("x\n1\n2\n3\n4\n5\nx\n", "x", "y");
        assert_eq!(
            apart,
            "-    1\tx\n+    1\ty\n     2\t1\n     3\t2\n  ...\n     5\t4\n     6\t5\n-    7\tx\n+    7\ty\n"
        );
    }

    #[test]
    fn near_changes_share_their_context() {
        assert_eq!(
            excerpt("x\nx\n1\nx\n", "x", "y"),
            "-    1\tx\n+    1\ty\n-    2\tx\n+    2\ty\n     3\t1\n-    4\tx\n+    4\ty\n"
        );
        assert_eq!(
            excerpt("x\n1\n2\n3\nx\n", "x", "y\nz"),
            "-    1\tx\n+    1\ty\n+    2\tz\n     3\t1\n     4\t2\n     5\t3\n-    5\tx\n+    6\ty\n+    7\tz\n"
        );
    }

    #[test]
    fn every_shown_line_is_exact_and_shown_once() {
        // Every text of up to seven of these letters.
        let letters = ["x", "\n", "1"];
        for number in 0..3_usize.pow(7) {
            let text: String =
                (0..7).map(|place| letters[number / 3_usize.pow(place) % 3]).collect();
            for (old, new) in [
                ("x", "y"),
                ("x", "y\nz"),
                ("x\n", ""),
                ("\n", ""),
                ("\nx", "y\n"),
                ("1\nx", "1\ny"),
            ] {
                let found = Substitution::find(&text, old, new);
                if found.places.is_empty() {
                    continue;
                }
                let changed = found.apply(&text);
                let lines: Vec<&str> = changed.lines().collect();
                let answer = excerpt(&text, old, new);
                let mut last = 0;
                for shown in answer
                    .lines()
                    .filter(|line| line.starts_with("+ ") || line.starts_with("     "))
                {
                    let (number, line) = shown[1..].trim_start().split_once('\t').unwrap();
                    let number: usize = number.parse().unwrap();
                    assert!(
                        number > last && lines[number - 1] == line,
                        "{text:?} {old:?} {new:?}: {answer}"
                    );
                    last = number;
                }
            }
        }
    }

    #[test]
    fn long_excerpt_is_cut() {
        let many = "x\n-\n".repeat(50);
        assert!(excerpt(&many, "x", "y").ends_with("[45 more changes are not shown.]\n"));
        let long = excerpt("a\n", "a", &"b\n".repeat(100));
        assert!(long.contains("+  ... 81 more lines"), "{long}");
        assert!(excerpt(&"w".repeat(1000), "w", "v").len() < 1000);
    }
}
