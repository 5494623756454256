//! Decides which of many similar lines stay, and says how the others differ.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use super::template::Slot;
use crate::text::FOLD_MARK;

/// The greatest number of different values that are listed one by one.
const FEW: usize = 16;
/// The greatest number of zeros that each stand alone.
const FEW_ZEROS: usize = 3;
/// The greatest number of lines that stay because of the values in one place.
const MOST_ALONE: usize = 20;
/// The greatest length of a list of values, in bytes.
const LONGEST_LIST: usize = 160;
/// The greatest length of the text that is shown next to a value, in bytes.
const LONGEST_LABEL: usize = 24;
/// The greatest length of the text about differences, in bytes.
const LONGEST_TEXT: usize = 320;
/// The same for lines that aren't entries of a log, whose ids may be important.
const LONGEST_WITH_IDS: usize = 2000;

/// Similar pieces of an output. A piece is a line or a block of lines.
pub(super) struct Pieces<'a> {
    /// The lines of each piece.
    pub(super) lines: Vec<Vec<&'a str>>,
    /// The parts of each line of a piece that may differ. Pieces have equally many.
    pub(super) slots: Vec<Vec<&'a [Slot]>>,
    /// The pieces that stay for another reason.
    pub(super) stays: Vec<bool>,
    /// Whether they are entries of a log. Of entries, many ids are counted. Of others, they are
    /// listed.
    pub(super) are_entries: bool,
}

/// The rest of similar pieces.
pub(super) struct Folded {
    /// Whether each piece stays.
    pub(super) stays: Vec<bool>,
    /// The line that stands for the others.
    pub(super) mark: String,
}

/// Leaves out pieces that tell nothing of their own: the first and the last piece stay, and pieces
/// with unusual values. `None` if too little would be left out.
pub(super) fn fold(pieces: Pieces<'_>) -> Option<Folded> {
    let many = pieces.lines.len();
    let is_repeated = pieces.lines.iter().all(|lines| *lines == pieces.lines[0]);
    let mut stays = pieces.stays.clone();
    stays[0] = true;
    // A repeated piece says nothing new. Of other pieces, the last one says how far something came.
    stays[many - 1] |= !is_repeated;
    let columns = columns(&pieces);
    columns.iter().for_each(|column| keep_unusual(column, &mut stays));
    let left_out: Vec<usize> = (0..many).filter(|at| !stays[*at]).collect();
    let bytes: usize =
        left_out.iter().flat_map(|at| &pieces.lines[*at]).map(|line| line.len() + 1).sum();
    if left_out.is_empty() {
        return None;
    }
    let mark = describe(&pieces, &left_out);
    (bytes > mark.len() + mark.len() / 2).then_some(Folded { stays, mark })
}

/// The values in one place of each piece.
type Column<'a> = Vec<&'a str>;

/// The places that differ. Times don't count.
fn columns<'a>(pieces: &Pieces<'a>) -> Vec<Column<'a>> {
    let mut columns = Vec::new();
    for line in 0..pieces.lines[0].len() {
        for slot in 0..pieces.slots[0][line].len() {
            if pieces.slots[0][line][slot].is_time {
                continue;
            }
            let column: Column<'a> = pieces
                .lines
                .iter()
                .zip(&pieces.slots)
                .map(|(lines, slots)| &lines[line][slots[line][slot].place.clone()])
                .collect();
            if column.iter().any(|value| *value != column[0]) {
                columns.push(column);
            }
        }
    }
    columns
}

/// The number of pieces with each value.
fn count<'a>(column: &[&'a str]) -> HashMap<&'a str, usize> {
    let mut counts = HashMap::new();
    column.iter().for_each(|value| *counts.entry(*value).or_insert(0) += 1);
    counts
}

/// Keeps the pieces whose value differs in a way that a reader has to know.
fn keep_unusual(column: &[&str], stays: &mut [bool]) {
    let many = column.len();
    let counts = count(column);
    let usual = counts.values().copied().max().unwrap_or(0);
    // Seldom enough that it isn't how things usually are.
    let seldom = (many / 50).max(1);
    if usual * 2 > many {
        // Almost always the same value: every other one is an exception.
        let exceptions = many - usual;
        let are_all_kept = exceptions <= (many / 8).clamp(3, MOST_ALONE);
        keep_first_of_each(column, stays, |value| counts[value] < usual, are_all_kept);
    } else if counts.len() <= FEW && many >= 2 * counts.len() {
        keep_first_of_each(column, stays, |value| counts[value] <= seldom, false);
    }
    keep_outliers(column, stays, &counts);
}

/// Keeps pieces with a chosen value: all of them, or the first one of each value.
fn keep_first_of_each(
    column: &[&str],
    stays: &mut [bool],
    is_chosen: impl Fn(&str) -> bool,
    all: bool,
) {
    let mut seen = HashSet::new();
    for (at, value) in column.iter().enumerate().filter(|(_, value)| is_chosen(value)) {
        if all || seen.len() < MOST_ALONE && seen.insert(value) {
            stays[at] = true;
        }
    }
}

/// Keeps pieces with a number far from the others, and few zeros among other numbers.
fn keep_outliers(column: &[&str], stays: &mut [bool], counts: &HashMap<&str, usize>) {
    let Some(numbers) = column.iter().map(|value| number(value)).collect::<Option<Vec<f64>>>()
    else {
        return;
    };
    // A counter may be anywhere, but a jump of it is unusual.
    let is_counter = counts.len() > FEW && numbers.is_sorted();
    let mut far = if is_counter {
        let steps: Vec<f64> =
            std::iter::once(0.0).chain(numbers.windows(2).map(|two| two[1] - two[0])).collect();
        far_from_others(&steps)
    } else {
        far_from_others(&numbers)
    };
    far.truncate(MOST_ALONE);
    far.into_iter().for_each(|at| stays[at] = true);
    for at in 0..numbers.len() {
        if numbers[at] == 0.0 && counts.get(column[at]).is_some_and(|count| *count <= FEW_ZEROS) {
            stays[at] = true;
        }
    }
}

/// The indices of numbers far from the others, the farthest first. Numbers of a usual spread lie
/// within three times the middle half on each side of it.
fn far_from_others(numbers: &[f64]) -> Vec<usize> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let low = sorted[sorted.len() / 4];
    let high = sorted[sorted.len() * 3 / 4];
    let usual = low - 3.0 * (high - low)..=high + 3.0 * (high - low);
    let mut far: Vec<usize> =
        (0..numbers.len()).filter(|at| distance(numbers[*at], &usual) > 0.0).collect();
    far.sort_by(|a, b| distance(numbers[*b], &usual).total_cmp(&distance(numbers[*a], &usual)));
    far
}

/// The distance of a number from a range. Positive: the number is outside.
fn distance(number: f64, range: &RangeInclusive<f64>) -> f64 {
    (range.start() - number).max(number - range.end())
}

/// The value of a number. `None` for an address, a version or an identifier.
fn number(text: &str) -> Option<f64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
        && text.bytes().filter(|byte| *byte == b'.').count() <= 1;
    if !is_number {
        return None;
    }
    if text.contains(',') { text.replace(',', "").parse().ok() } else { text.parse().ok() }
}

/// Writes the mark for the pieces that are left out: how many there are, and how they differ.
fn describe(pieces: &Pieces<'_>, left_out: &[usize]) -> String {
    let length = pieces.lines[0].len();
    let mut mark = format!("... ({}{FOLD_MARK}", left_out.len());
    // Writing to a string doesn't fail.
    let _ = match length {
        1 => write!(mark, "this"),
        _ => write!(mark, "these {length} lines"),
    };
    let mut separator = ": ";
    for line in 0..length {
        let text = differences(pieces, left_out, line);
        if !text.is_empty() {
            mark.push_str(separator);
            mark.push_str(&text);
            separator = "; ";
        }
    }
    mark.push_str(") ...");
    mark
}

/// The words of a line that differ in the pieces that are left out, with all values or their range.
fn differences(pieces: &Pieces<'_>, left_out: &[usize], line: usize) -> String {
    let first = left_out[0];
    let text = pieces.lines[first][line];
    let slots = &pieces.slots[first][line];
    let mut out = String::new();
    let mut written = 0;
    for (number, slot) in slots.iter().enumerate().filter(|(_, slot)| !slot.is_time) {
        let column: Vec<&str> = left_out
            .iter()
            .map(|at| &pieces.lines[*at][line][pieces.slots[*at][line][number].place.clone()])
            .collect();
        // The first piece stays, so what is the same in it is known.
        let known = &pieces.lines[0][line][pieces.slots[0][line][number].place.clone()];
        if column.iter().all(|value| *value == known) {
            continue;
        }
        let start = slot.place.start;
        let label = label_start(text, start);
        if written > 0 && start - written <= LONGEST_LABEL {
            out.push_str(&text[written..start]);
        } else {
            if written > 0 {
                out.push_str(&text[written..unit_end(text, written).min(label)]);
                out.push_str(" … ");
            }
            out.push_str(&text[label..start]);
        }
        out.push_str(&values(&column, pieces.are_entries));
        written = slot.place.end;
        let most = if pieces.are_entries { LONGEST_TEXT } else { 2 * LONGEST_WITH_IDS };
        if out.len() > most {
            out.push_str(" …");
            return out;
        }
    }
    if written > 0 {
        out.push_str(&text[written..unit_end(text, written)]);
    }
    out
}

/// The start of the name of the value at `at`: the beginning of its word, or of the word before it
/// if the value is a word of its own.
fn label_start(text: &str, at: usize) -> usize {
    let least = text.ceil_char_boundary(at.saturating_sub(LONGEST_LABEL));
    let before = &text[least..at];
    let words = if before.ends_with(' ') { before.trim_end() } else { before };
    words.rfind([' ', '\t', ',', '{', '&', '?', ';']).map_or(least, |sign| least + sign + 1)
}

/// The end of the text that belongs to the value before `at`: the rest of its word, or of the next
/// word if its word ends here. The next word may be a unit.
fn unit_end(text: &str, at: usize) -> usize {
    let most = text.floor_char_boundary((at + LONGEST_LABEL).min(text.len()));
    let start = if text[at..most].starts_with(' ') { at + 1 } else { at };
    text[start..most].find([' ', '\t']).map_or(most, |end| start + end)
}

/// The values of a place: a list, a range of numbers, or how many there are.
fn values(column: &[&str], are_entries: bool) -> String {
    let counts = count(column);
    if counts.len() == 1 {
        return column[0].to_owned();
    }
    let numbers: Option<Vec<f64>> = column.iter().map(|value| number(value)).collect();
    let least = (0..column.len())
        .min_by(|a, b| by_value(numbers.as_deref(), *a, *b))
        .map_or("", |at| column[at]);
    let most = (0..column.len())
        .max_by(|a, b| by_value(numbers.as_deref(), *a, *b))
        .map_or("", |at| column[at]);
    // Numbers that follow each other are all said by their range.
    let is_dense = match (least.parse::<u64>(), most.parse::<u64>()) {
        (Ok(least), Ok(most)) if numbers.is_some() => {
            most.checked_sub(least).is_some_and(|span| span < counts.len() as u64)
        }
        _ => false,
    };
    let bytes: usize = counts.keys().map(|value| value.len() + 2).sum();
    if is_dense && counts.len() > 2 {
        return format!("{least}..{most}");
    }
    // Values that repeat are a choice of few. Others are listed only if the list is short.
    let most_bytes = if column.len() >= 2 * counts.len() { LONGEST_LIST } else { LONGEST_LIST / 3 };
    let is_short = counts.len() <= FEW && bytes <= most_bytes;
    if is_short || numbers.is_none() && !are_entries && bytes <= LONGEST_WITH_IDS {
        let mut seen = HashSet::new();
        let list: Vec<&str> = column.iter().copied().filter(|value| seen.insert(*value)).collect();
        return format!("{{{}}}", list.join(", "));
    }
    match numbers {
        Some(_) => format!("{least}..{most}"),
        None => format!("{{{} different}}", counts.len()),
    }
}

/// The order of two places of a column. Without numbers, all places are equal.
fn by_value(numbers: Option<&[f64]>, a: usize, b: usize) -> Ordering {
    numbers.map_or(Ordering::Equal, |numbers| numbers[a].total_cmp(&numbers[b]))
}
