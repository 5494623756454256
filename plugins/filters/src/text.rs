//! Splits an output into lines, and joins the lines that stay, with marks for those that were left
//! out.

use std::fmt::Write as _;

/// The lines of `text`, without their ends.
pub fn lines(text: &str) -> Vec<&str> {
    // The lines are counted first, since growing a list of 100,000 lines copies it many times.
    let mut lines = Vec::with_capacity(memchr::memchr_iter(b'\n', text.as_bytes()).count() + 1);
    lines.extend(text.lines());
    lines
}

/// Whether a line has only white space.
pub fn is_blank(line: &str) -> bool {
    line.bytes().all(|byte| byte.is_ascii_whitespace())
}

/// The number of bytes of white space at the start of a line.
pub fn indent(line: &str) -> usize {
    line.bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

const MARK_START: &str = "... (";
/// The text after the number in the mark of folded lines.
pub const FOLD_MARK: &str = " more like ";
const MARK_ENDS: [&str; 2] = [" lines left out) ...", " line left out) ..."];

/// Writes the mark for `count` lines that were left out.
pub fn push_mark(out: &mut String, count: usize) {
    let end = MARK_ENDS[usize::from(count == 1)];
    // Writing to a string doesn't fail.
    let _ = write!(out, "{MARK_START}{count}{end}");
}

/// The number of lines that this mark replaced, if the line is a mark.
pub fn parse_mark(line: &str) -> Option<usize> {
    let rest = line.strip_prefix(MARK_START)?;
    MARK_ENDS.iter().find_map(|end| rest.strip_suffix(end))?.parse().ok()
}

/// Whether a line stands for lines that are like the one above, and says how they differ.
pub fn is_fold_mark(line: &str) -> bool {
    line.strip_prefix(MARK_START).is_some_and(|rest| {
        rest.trim_start_matches(|first: char| first.is_ascii_digit()).starts_with(FOLD_MARK)
    })
}

/// Joins the lines with a true in `keep`. A gap gets a mark, unless all of its lines were blank. If
/// the mark would be about as long as the lines of the gap, these lines stay. So the result is
/// never longer than the input.
pub fn assemble(lines: &[&str], keep: &[bool]) -> String {
    let mut out = String::with_capacity(
        lines.iter().zip(keep).filter(|(_, keep)| **keep).map(|(line, _)| line.len() + 1).sum(),
    );
    let mut at = 0;
    while at < lines.len() {
        // Blank lines next to a gap belong to it.
        let run = lines[at..]
            .iter()
            .zip(&keep[at..])
            .take_while(|(line, keep)| !**keep || is_blank(line))
            .count();
        let end = at + run.max(1);
        if keep[at..end].contains(&false) {
            push_gap(&mut out, &lines[at..end], &keep[at..end]);
        } else {
            lines[at..end].iter().for_each(|line| push_line(&mut out, line));
        }
        at = end;
    }
    out
}

fn push_gap(out: &mut String, lines: &[&str], keep: &[bool]) {
    let mut mark = String::new();
    let mut left_out = 0;
    let mut bytes = 0;
    for (line, keep) in lines.iter().zip(keep) {
        if !is_blank(line) {
            left_out =
                usize::saturating_add(left_out, parse_mark(line).unwrap_or(usize::from(!keep)));
            bytes += line.len() + 1;
        }
    }
    push_mark(&mut mark, left_out);
    if bytes > mark.len() + mark.len() / 2 {
        push_line(out, &mark);
    } else {
        lines.iter().filter(|line| !is_blank(line)).for_each(|line| push_line(out, line));
    }
}

/// Merges each run of marks into one mark. `None` if there is no run. Runs come from later steps,
/// which left out the lines between the marks.
pub fn merge_marks(text: &str) -> Option<String> {
    memchr::memmem::find_iter(text.as_bytes(), MARK_START).nth(1)?;
    let mut out = String::with_capacity(text.len());
    let mut pending: Option<usize> = None;
    let mut merged = false;
    for line in text.split_inclusive('\n') {
        let own = parse_mark(line.trim_end_matches('\n'));
        match (&mut pending, own) {
            (Some(sum), Some(own)) => {
                *sum = sum.saturating_add(own);
                merged = true;
            }
            (None, Some(own)) => pending = Some(own),
            (Some(sum), None) => {
                push_mark(&mut out, *sum);
                out.push('\n');
                out.push_str(line);
                pending = None;
            }
            (None, None) => out.push_str(line),
        }
    }
    if let Some(sum) = pending {
        push_mark(&mut out, sum);
        out.push('\n');
    }
    merged.then_some(out)
}

/// Writes a line and its end.
pub fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

/// The number at the start of a text.
pub fn leading_number(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok()
}

/// Divides `budget` among `wanted`. An entry that wants less than an equal share gets all of it.
/// The others share the rest.
pub fn share(budget: usize, wanted: &[usize]) -> Vec<usize> {
    if budget < wanted.len() {
        // The first entries get one each, independent of how much they want.
        return wanted
            .iter()
            .enumerate()
            .map(|(at, wanted)| usize::from(at < budget && *wanted > 0))
            .collect();
    }
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| wanted[*at]);
    let mut shares = vec![0; wanted.len()];
    let mut left = budget;
    let mut waiting = wanted.len();
    for at in order {
        shares[at] = wanted[at].min(left.div_ceil(waiting));
        left -= shares[at];
        waiting -= 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[&str], keep: &str, expect: &str) {
        let keep: Vec<bool> = keep.bytes().map(|byte| byte == b'k').collect();
        assert_eq!(assemble(lines, &keep), expect);
    }

    #[test]
    fn gap_is_marked_at_its_place() {
        let long = "a line that is longer than the mark for it, so a mark is used";
        check(
            &["a", long, long, "b", long, "c"],
            "k..k.k",
            "a\n... (2 lines left out) ...\nb\n... (1 line left out) ...\nc\n",
        );
        check(&[long, "a"], ".k", "... (1 line left out) ...\na\n");
        check(&["a", long], "k.", "a\n... (1 line left out) ...\n");
    }

    #[test]
    fn gap_shorter_than_its_mark_stays() {
        check(&["a", "b", "c"], "k.k", "a\nb\nc\n");
        check(&["a", "", "b"], "k.k", "a\nb\n");
    }

    #[test]
    fn blank_lines_belong_to_the_gap_next_to_them() {
        let long = "a line that is longer than the mark for it, so a mark is used";
        check(&["a", "", long, "", long, "", "b"], "kk.k.kk", "a\n... (2 lines left out) ...\nb\n");
        check(&["a", "", "b"], "kkk", "a\n\nb\n");
    }

    #[test]
    fn marks_add_up() {
        let long = "a line that is longer than the mark for it, so a mark is used";
        check(
            &["a", "... (7 lines left out) ...", long, "b"],
            "k..k",
            "a\n... (8 lines left out) ...\nb\n",
        );
        assert_eq!(merge_marks("... (1 line left out) ...\na\n"), None);
        let runs = "... (1 line left out) ...\n... (2 lines left out) ...\na\n... (1 line left out) ...\n... (2 lines left out) ...";
        assert_eq!(
            merge_marks(runs).as_deref(),
            Some("... (3 lines left out) ...\na\n... (3 lines left out) ...\n")
        );
        assert_eq!(parse_mark("... (1 line left out) ..."), Some(1));
        assert_eq!(parse_mark("... (x lines left out) ..."), None);
    }

    #[test]
    fn shares_are_equal_if_all_want_more() {
        assert_eq!(share(10, &[100, 2, 100]), [4, 2, 4]);
        assert_eq!(share(0, &[3, 0]), [0, 0]);
        assert_eq!(share(2, &[9, 1, 1]), [1, 1, 0]);
        assert_eq!(share(5, &[]), <[usize; 0]>::default());
    }
}
