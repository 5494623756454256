//! Where a text that isn't there may have been meant to be.

use std::collections::HashSet;

/// How many lines of a file are compared.
const MAX_LINES: usize = 20_000;

/// Of longer lines only so much is compared, in bytes.
const MAX_LINE: usize = 300;

/// How many lines of one place are shown.
const MAX_SHOWN: usize = 5;

/// How many places are shown.
const MAX_PLACES: usize = 3;

/// From which likeness on, from 0 to 1, a line is worth showing.
const MIN_LIKENESS: f32 = 0.6;

/// What to say about `old`, which is not in `text`: a sentence and the closest lines, or nothing
/// where no line is like it.
pub(super) fn hint(text: &str, old: &str) -> String {
    let lines: Vec<&str> = text.lines().take(MAX_LINES).collect();
    let wanted: Vec<&str> = old.lines().collect();
    if let Some(start) = without_white_space(&lines, &wanted) {
        let which = if wanted.len() == 1 {
            format!("Line {} differs", start + 1)
        } else {
            format!("Lines {}-{} differ", start + 1, start + wanted.len())
        };
        return format!(
            " {which} from it only in white space:\n{}",
            show(&lines, start, wanted.len())
        );
    }
    // Numbers in front of every line are read's, not the file's.
    if let Some(bare) = without_numbers(&wanted)
        && text.contains(&bare)
    {
        return " It is there without the line numbers, which are not part of the file.".to_owned();
    }
    let places = similar(&lines, &wanted);
    if places.is_empty() {
        return String::new();
    }
    let shown: Vec<String> =
        places.into_iter().map(|start| show(&lines, start, wanted.len())).collect();
    format!(" The closest lines are:\n{}", shown.join("  ...\n"))
}

/// Where the lines stand that are the same but for white space.
fn without_white_space(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let same = |a: &str, b: &str| a.split_whitespace().eq(b.split_whitespace());
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return None;
    }
    lines
        .windows(wanted.len())
        .position(|window| window.iter().zip(wanted).all(|(a, b)| same(a, b)))
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
    // Of lines that are equally long the first counts, hence backwards.
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

/// The pairs of neighbouring bytes.
fn letter_pairs(line: &str) -> HashSet<[u8; 2]> {
    let line = line.trim().as_bytes();
    line[..line.len().min(MAX_LINE)].windows(2).map(|pair| [pair[0], pair[1]]).collect()
}

/// The share of pairs that both have (Sørensen and Dice).
fn likeness(a: &HashSet<[u8; 2]>, b: &HashSet<[u8; 2]>) -> f32 {
    let all = a.len() + b.len();
    // Lines of very different length can't be alike; most are sorted out here.
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
    fn white_space_alone_is_told() {
        let hint = hint(TEXT, "fn second(b: u32) -> u32 {\n\tb + 2");
        assert!(
            hint.starts_with(" Lines 5-6 differ from it only in white space:\n   5\tfn second"),
            "{hint}"
        );
    }

    #[test]
    fn numbers_of_read_are_told() {
        assert!(
            hint(TEXT, "   1\tfn first(a: u32) -> u32 {\n   2\t    a + 1")
                .contains("without the line numbers")
        );
    }

    #[test]
    fn the_closest_lines_are_shown() {
        let hint = hint(TEXT, "fn secnd(b: u32) -> u32 {\n    b + 3");
        assert!(
            hint.starts_with(
                " The closest lines are:\n   5\tfn second(b: u32) -> u32 {\n   6\t    b + 2\n"
            ),
            "{hint}"
        );
    }

    #[test]
    fn a_short_line_that_is_the_same_counts() {
        assert_eq!(hint("a\nb\n", "b\nc"), " The closest lines are:\n   2\tb\n");
    }

    #[test]
    fn where_nothing_is_like_it_nothing_is_said() {
        assert_eq!(hint(TEXT, "impl Display for Something"), "");
        assert_eq!(hint("", "a"), "");
        assert_eq!(hint(TEXT, "\n\n\n"), "");
    }
}
