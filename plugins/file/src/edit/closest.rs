//! Hints at the lines that are most similar to a text that `edit` doesn't find in a file.

use std::collections::HashSet;

/// The greatest number of lines of a file that are compared.
const MAX_LINES: usize = 20_000;

/// The greatest number of bytes of a line that are compared.
const MAX_LINE: usize = 300;

/// The greatest number of lines that are shown of one place.
const MAX_SHOWN: usize = 5;

/// The greatest number of places that are shown.
const MAX_PLACES: usize = 3;

/// The lowest likeness, from 0 to 1, of a line that is shown.
const MIN_LIKENESS: f32 = 0.6;

/// A hint for `old`, which is missing in `text`: a sentence and the closest lines. Empty if no line
/// is similar.
pub(super) fn hint(text: &str, old: &str) -> String {
    let lines: Vec<&str> = text.lines().take(MAX_LINES).collect();
    let wanted: Vec<&str> = old.lines().collect();
    if let Some(start) = without_white_space(&lines, &wanted) {
        let which = if wanted.len() == 1 {
            format!("Line {} differs", start + 1)
        } else {
            format!("Lines {}-{} differ", start + 1, start + wanted.len())
        };
        let found = first_difference(&lines[start..], &wanted)
            .unwrap_or_else(|| "The file ends there, without a line end.".to_owned());
        return format!(
            " {which} from it only in white space or in characters that look alike. {found}\n{}",
            show(&lines, start, wanted.len())
        );
    }
    // Numbers before every line come from the tool `read`, not from the file.
    if let Some(bare) = without_numbers(&wanted)
        && text.contains(&bare)
    {
        return " The file has it without the line numbers, which are not part of the file."
            .to_owned();
    }
    let places = similar(&lines, &wanted);
    if places.is_empty() {
        return String::new();
    }
    let shown: Vec<String> =
        places.into_iter().map(|start| show(&lines, start, wanted.len())).collect();
    format!(" The closest lines are:\n{}", shown.join("  ...\n"))
}

/// The index of the first line of a place that differs from `wanted` only in white space or in
/// characters that look alike.
fn without_white_space(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return None;
    }
    let wanted: Vec<String> = wanted.iter().map(|line| plain(line)).collect();
    lines
        .windows(wanted.len())
        .position(|window| window.iter().zip(&wanted).all(|(line, wanted)| plain(line) == *wanted))
}

/// A line with plain quotes and dashes, single blanks, and nothing invisible.
fn plain(line: &str) -> String {
    let line: String = line.chars().filter_map(plain_character).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn plain_character(c: char) -> Option<char> {
    match c {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => Some('\''),
        '\u{201c}'..='\u{201f}' | '\u{2033}' => Some('"'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Some('-'),
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{ad}' => None,
        c => Some(c),
    }
}

/// The first character in which lines of the file differ from the wanted ones.
fn first_difference(lines: &[&str], wanted: &[&str]) -> Option<String> {
    let (line, wanted) = lines.iter().zip(wanted).find(|(line, wanted)| line != wanted)?;
    let mut there = line.chars();
    let mut asked = wanted.chars();
    let mut column = 1;
    loop {
        match (there.next(), asked.next()) {
            (one, other) if one == other => column += 1,
            (one, other) => {
                return Some(format!(
                    "At character {column} the file has {}, and the old text has {}.",
                    describe_character(one),
                    describe_character(other)
                ));
            }
        }
    }
}

fn describe_character(c: Option<char>) -> String {
    match c {
        None => "the line's end".to_owned(),
        Some('\t') => "a tab".to_owned(),
        Some(' ') => "a blank".to_owned(),
        Some(c) if c.is_ascii_graphic() => format!("`{c}`"),
        Some(c) => format!("U+{:04X}", u32::from(c)),
    }
}

fn without_numbers(wanted: &[&str]) -> Option<String> {
    let bare: Option<Vec<&str>> = wanted
        .iter()
        .map(|line| {
            let (number, rest) = line.split_once('\t')?;
            number.trim().parse::<u64>().ok().map(|_| rest)
        })
        .collect();
    Some(bare?.join("\n"))
}

/// Finds the lines that are most like the wanted ones. Only the longest wanted line is compared: it
/// is the most specific.
fn similar(lines: &[&str], wanted: &[&str]) -> Vec<usize> {
    // Reversed, so that the first of several equally long lines counts.
    let Some((anchor, line)) =
        wanted.iter().enumerate().rev().max_by_key(|(_, line)| line.trim().len())
    else {
        return Vec::new();
    };
    let pairs = letter_pairs(line);
    let mut near: Vec<(f32, usize)> = lines
        .iter()
        .enumerate()
        .map(|(index, other)| {
            let same = !other.trim().is_empty() && other.trim() == line.trim();
            (if same { 1.0 } else { likeness(&pairs, &letter_pairs(other)) }, index)
        })
        .filter(|(likeness, _)| *likeness >= MIN_LIKENESS)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    near.into_iter().take(MAX_PLACES).map(|(_, index)| index.saturating_sub(anchor)).collect()
}

/// The pairs of neighbouring bytes of a line.
fn letter_pairs(line: &str) -> HashSet<[u8; 2]> {
    let line = line.trim().as_bytes();
    line[..line.len().min(MAX_LINE)].windows(2).map(|pair| [pair[0], pair[1]]).collect()
}

/// The share of common pairs (Sørensen–Dice coefficient).
fn likeness(a: &HashSet<[u8; 2]>, b: &HashSet<[u8; 2]>) -> f32 {
    let all = a.len() + b.len();
    // Lines of very different length can't be similar. This skips most lines.
    if all == 0 || a.len().min(b.len()) * 3 < a.len().max(b.len()) {
        return 0.0;
    }
    2.0 * a.intersection(b).count() as f32 / all as f32
}

fn show(lines: &[&str], start: usize, count: usize) -> String {
    let end = (start + count.clamp(1, MAX_SHOWN)).min(lines.len());
    (start..end)
        .map(|index| format!("{:4}\t{}\n", index + 1, super::excerpt::cut_line(lines[index])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "fn first(a: u32) -> u32 {\n    a + 1\n}\n\nfn second(b: u32) -> u32 {\n    b + 2\n}\n";

    #[test]
    fn white_space_difference_is_named() {
        let hint = hint(TEXT, "fn second(b: u32) -> u32 {\n\tb + 2");
        assert!(
            hint.starts_with(
                " Lines 5-6 differ from it only in white space or in characters that look alike. At character 1 the file has a blank, and the old text has a tab.\n   5\tfn second"
            ),
            "{hint}"
        );
    }

    #[test]
    fn characters_that_look_alike_are_named() {
        for (text, old, found) in [
            ("a\u{a0}b\n", "a b", "2 the file has U+00A0, and the old text has a blank"),
            ("a\u{200b}b\n", "ab", "2 the file has U+200B, and the old text has `b`"),
            ("say \u{201c}Hi\u{201d} now\n", "say \"Hi\" now", "5 the file has U+201C"),
            ("one - two\n", "one \u{2013} two", "5 the file has `-`, and the old text has U+2013"),
            ("a b\n", "a b ", "4 the file has the line's end, and the old text has a blank"),
        ] {
            let hint = hint(text, old);
            assert!(hint.contains(&format!("At character {found}")), "{hint}");
        }
        let hint = hint("alpha\nbeta", "beta\n");
        assert!(hint.contains("The file ends there, without a line end."), "{hint}");
    }

    #[test]
    fn line_numbers_of_read_are_recognised() {
        assert!(
            hint(TEXT, "   1\tfn first(a: u32) -> u32 {\n   2\t    a + 1")
                .contains("without the line numbers")
        );
    }

    #[test]
    fn closest_lines_are_shown() {
        let hint = hint(TEXT, "fn secnd(b: u32) -> u32 {\n    b + 3");
        assert!(
            hint.starts_with(
                " The closest lines are:\n   5\tfn second(b: u32) -> u32 {\n   6\t    b + 2\n"
            ),
            "{hint}"
        );
    }

    #[test]
    fn equal_short_line_is_shown() {
        assert_eq!(hint("a\nb\n", "b\nc"), " The closest lines are:\n   2\tb\n");
    }

    #[test]
    fn no_similar_line_gives_no_hint() {
        assert_eq!(hint(TEXT, "impl Display for Something"), "");
        assert_eq!(hint("", "a"), "");
        assert_eq!(hint(TEXT, "\n\n\n"), "");
    }
}
