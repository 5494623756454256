//! `test_summary`: leaves out tests that passed, and keeps failures and the summary.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Run};
use crate::guard::{Level, is_passing};
use crate::text::{indent, is_blank, leading_number};

/// The number of passing lines that make an output without a summary a test run.
const MIN_PASSING: usize = 3;
/// The number of lines that stay of each failure after the first ones.
const LATER_LINES: usize = 15;

/// Parameters of `test_summary`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestSummary {
    #[serde(default = "ten")]
    max_failures: usize,
    #[serde(default = "fifty")]
    truncate_stack_trace: usize,
}

fn ten() -> usize {
    10
}

fn fifty() -> usize {
    50
}

impl TestSummary {
    #[expect(clippy::unnecessary_wraps, reason = "as the other strategies")]
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        Ok(Box::new(Summary {
            max_failures: self.max_failures,
            max_lines: self.truncate_stack_trace,
        }))
    }
}

struct Summary {
    max_failures: usize,
    max_lines: usize,
}

/// The kind of a line in the output of a test runner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A test passed or starts.
    Passing,
    /// The result of the run.
    Summary,
    /// Any other line.
    Other,
}

/// Signs of failed tests. They count even if the exit code of the command line is 0: `pytest ||
/// true`, `jest | tail`.
static FAILURES: LazyLock<Regex> = LazyLock::new(|| {
    let forms = r"\b[1-9][0-9]* (tests? )?(failed|failing|failures?|errors?)\b|\b(failed|failures|errors|failing): ?[1-9]|(?-i:FAILURES!|--- FAIL|FAILED)|^not ok [0-9]";
    RegexBuilder::new(forms)
        .unicode(false)
        .case_insensitive(true)
        .build()
        .unwrap_or_else(|error| unreachable!("a test compiles it: {error}"))
});

/// Whether the text shows a failure although the exit code doesn't.
fn shows_failure(part: &Part<'_>, kinds: &[Kind]) -> bool {
    let mut lines = part.lines.iter().zip(kinds).zip(&part.levels);
    lines.any(|((line, kind), level)| {
        *kind != Kind::Passing && (*level == Level::Error || FAILURES.is_match(line.as_bytes()))
    })
}

impl Run for Summary {
    fn run(&self, part: &Part<'_>) -> Outcome {
        if !part.failed {
            let kinds: Vec<Kind> = part.lines.iter().map(|line| kind(line)).collect();
            if shows_failure(part, &kinds) {
                return self.run(&Part::new(part.lines, true));
            }
        }
        let kinds: Vec<Kind> = part.lines.iter().map(|line| kind(line)).collect();
        let passing = kinds.iter().filter(|kind| **kind == Kind::Passing).count();
        let has_summary = kinds.contains(&Kind::Summary);
        if !has_summary && passing < MIN_PASSING {
            return Outcome::Unknown;
        }
        let mut keep: Vec<bool> = kinds.iter().map(|kind| *kind != Kind::Passing).collect();
        if part.failed {
            self.limit_failures(part, &kinds, &mut keep);
            if !has_summary {
                keep_unfinished(part, &mut keep);
            }
        } else if has_summary {
            keep = kinds.iter().map(|kind| *kind == Kind::Summary).collect();
        }
        drop_empty_runs(part, &kinds, &mut keep);
        let mut keep: Vec<bool> =
            keep.iter().enumerate().map(|(at, keep)| *keep || part.is_notable(at)).collect();
        keep_names(part, &mut keep);
        drop_nextest_frame(part.lines, &mut keep);
        drop_doubled_summary(part.lines, &mut keep);
        drop_repeats(part.lines, &kinds, &mut keep);
        if keep.iter().all(|keep| *keep) {
            Outcome::Unchanged
        } else {
            Outcome::Lines(keep, Confidence::Full)
        }
    }
}

impl Summary {
    /// Limits the lines of each failure, more strictly after the first failures.
    fn limit_failures(&self, part: &Part<'_>, kinds: &[Kind], keep: &mut [bool]) {
        let mut failures = 0;
        let mut lines = 0;
        for (at, line) in part.lines.iter().enumerate() {
            if is_failure_header(line) {
                failures += 1;
                lines = 0;
                continue;
            }
            if kinds[at] != Kind::Other || is_blank(line) {
                continue;
            }
            lines += 1;
            let most = if failures > self.max_failures {
                self.max_lines.min(LATER_LINES)
            } else {
                self.max_lines
            };
            if failures > 0 && lines > most {
                keep[at] = false;
            }
        }
    }
}

/// Keeps the number of tests and the last lines of a run that ended before its summary. They show
/// how far it came.
fn keep_unfinished(part: &Part<'_>, keep: &mut [bool]) {
    let many = keep.len();
    for (at, line) in part.lines.iter().enumerate() {
        let counts = line.starts_with("running ")
            || line.contains("collected ")
            || line.trim_start().starts_with("Starting ");
        keep[at] |= counts || at + 5 >= many;
    }
}

/// Leaves out the summaries of empty runs: cargo prints one for each crate without tests.
fn drop_empty_runs(part: &Part<'_>, kinds: &[Kind], keep: &mut [bool]) {
    let has_other = kinds
        .iter()
        .zip(part.lines)
        .any(|(kind, line)| *kind == Kind::Summary && !is_empty_run(line));
    if has_other {
        part.lines
            .iter()
            .zip(keep)
            .filter(|(line, _)| is_empty_run(line))
            .for_each(|(_, keep)| *keep = false);
    }
}

fn is_empty_run(line: &str) -> bool {
    line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured;")
}

/// Leaves out what cargo-nextest shows of the test binary around the output of a failed test: its
/// own header names the test already.
fn drop_nextest_frame(lines: &[&str], keep: &mut [bool]) {
    let mut name = None;
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim();
        if HEADERS_OF_NEXTEST.is_match(line.as_bytes()) {
            name = trimmed.rsplit(' ').next();
            continue;
        }
        let Some(name) = name else { continue };
        if !line.starts_with("    ") {
            continue;
        }
        let is_frame = matches!(trimmed, "running 1 test" | "failures:")
            || trimmed == name
            || trimmed.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
                == Some(name)
            || trimmed.starts_with("test result: FAILED. 0 passed; 1 failed; ");
        if is_frame {
            keep[at] = false;
        }
    }
}

static HEADERS_OF_NEXTEST: LazyLock<Regex> = LazyLock::new(|| {
    RegexBuilder::new(r"^ +(TRY \d+ )?FAIL \[ *[0-9.]+s\] ")
        .unicode(false)
        .build()
        .unwrap_or_else(|error| unreachable!("the unit tests compile it: {error}"))
});

/// Leaves out what pytest repeats below its short summary with `-vv`: the lines of a comparison,
/// which the report of the test has already.
fn drop_doubled_summary(lines: &[&str], keep: &mut [bool]) {
    let Some(start) = lines
        .iter()
        .position(|line| line.starts_with("====") && line.contains(" short test summary info "))
    else {
        return;
    };
    let said: HashSet<&str> =
        lines[..start].iter().filter_map(|line| line.strip_prefix("E ")).map(str::trim).collect();
    for at in start + 1..lines.len() {
        if lines[at].starts_with("====") {
            break;
        }
        let is_result = ["FAILED ", "ERROR ", "SKIPPED ", "XFAIL ", "XPASS ", "PASSED "]
            .iter()
            .any(|result| lines[at].starts_with(result));
        if !is_result && said.contains(lines[at].trim()) {
            keep[at] = false;
        }
    }
}

/// Leaves out reports of failures that the output has already, word for word: jest and
/// cargo-nextest can print each failure when it happens, and again at the end.
fn drop_repeats(lines: &[&str], kinds: &[Kind], keep: &mut [bool]) {
    let mut seen: HashSet<(&str, Vec<&str>)> = HashSet::new();
    let mut headers = HashSet::new();
    let mut at = 0;
    let mut file = "";
    while at < lines.len() {
        if is_file(lines[at]) {
            file = lines[at];
        }
        if !is_failure_header(lines[at]) {
            at += 1;
            continue;
        }
        let is_nextest = HEADERS_OF_NEXTEST.is_match(lines[at].as_bytes());
        let end = (at + 1..lines.len())
            .find(|&next| {
                let ends_nextest = !is_blank(lines[next])
                    && (indent(lines[next]) < 2 || lines[next].starts_with("  Cancel"));
                is_nextest && ends_nextest
                    || kinds[next] != Kind::Other && indent(lines[next]) < 4
                    || is_failure_header(lines[next])
                    || is_file(lines[next])
                    || lines[next].starts_with("Summary of all")
                    || lines[next].starts_with("───")
            })
            .unwrap_or(lines.len());
        let block: Vec<&str> =
            lines[at..end].iter().copied().filter(|line| !is_blank(line)).collect();
        // At its end, cargo-nextest may only name what failed.
        let is_named = is_nextest && !headers.insert(lines[at]) && block.len() == 1;
        if !seen.insert((file, block)) || is_named {
            keep[at..end].fill(false);
        }
        at = end;
    }
}

fn is_file(line: &str) -> bool {
    line.starts_with("FAIL ") || line.starts_with("PASS ")
}

/// Keeps the name of the binary or file in which a test failed. Cargo prints it before the tests.
fn keep_names(part: &Part<'_>, keep: &mut [bool]) {
    let mut name = None;
    for (at, line) in part.lines.iter().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("Running ") || trimmed.starts_with("Doc-tests ") {
            name = Some(at);
        } else if part.levels[at] == Level::Error
            && part.failed
            && line.starts_with("test result: FAILED")
        {
            name.into_iter().for_each(|name| keep[name] = true);
        }
    }
}

fn kind(line: &str) -> Kind {
    let trimmed = line.trim();
    if trimmed.is_empty() {
        return Kind::Other;
    }
    if SUMMARIES.is_match(line.as_bytes()) {
        return Kind::Summary;
    }
    if is_passing(line) || is_progress(trimmed) || PASSING.is_match(line.as_bytes()) {
        Kind::Passing
    } else {
        Kind::Other
    }
}

/// Whether a line is a row of progress: `....s..x [ 45%]`, with or without a file before it. A row
/// with a failure doesn't count, since its position matters.
fn is_progress(trimmed: &str) -> bool {
    let row = trimmed.trim_end_matches(|last: char| {
        matches!(last, ']' | '[' | '%' | ' ' | '(' | ')' | '/') || last.is_ascii_digit()
    });
    let marks = row.rsplit(' ').next().unwrap_or_default();
    let is_row = !marks.is_empty()
        && marks.bytes().all(|byte| {
            matches!(
                byte,
                b'.' | b's' | b'x' | b'X' | b'S' | b'*' | b',' | b'-' | b'\xc2' | b'\xb7'
            )
        });
    if !is_row || !marks.contains(['.', '·', 's', ',']) || marks == "..." {
        return false;
    }
    marks.len() == row.len()
        || row.split(' ').count() == 2 && (row.contains(".py") || row.contains("::"))
}

static PASSING: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        // cargo and nextest.
        r"^running \d+ tests?$",
        r"^ +(Running|Doc-tests|Compiling|Finished|Starting|Nextest run) ",
        r"^ +(PASS|SKIP|LEAK) \[",
        // go.
        r"^\?\s+\S+\s+\[no test files\]$",
        r"^PASS$",
        r"^(=== (RUN|PAUSE|CONT|NAME)\s|\s*--- (PASS|SKIP): )",
        r"^ok\s+\S+\s+(\(cached\)|[\d.]+s)\s*(\[no tests to run\])$",
        // JavaScript.
        r"^\s*(✓|✔|√|○|↓) ",
        r"^\s*PASS\s+\S",
        r"^\s*\[\d+/\d+\] ",
        r"^\s*ok \d+ ",
        r"^# Subtest: ",
        r"^\s+(duration_ms|type|\.\.\.|---)",
        // Python.
        r"^\S+ (PASSED|SKIPPED|XFAIL|XPASS)\b.*\[ *\d+%\]$",
        r"^(platform|rootdir|configfile|plugins|cachedir|testpaths|asyncio|collecting|collected \d+ items?$)\b",
        r"^=+ test session starts =+$",
        r"^\S+( \(\S+\))?.* \.\.\. (ok|skipped .*|expected failure)$",
        // Other test runners.
        r"^\s*Passed \S.*\[[\d< ]+.*s\]$",
        r"^Test (Case|Suite) .* (passed|started)",
        r"^(◇|✔) (Test|Suite) ",
        r"^\[INFO\] (Running |Tests run: \d+, Failures: 0, Errors: 0, Skipped: \d+, Time elapsed)",
        r"^Tests run: \d+, Failures: 0, Errors: 0, Skipped: \d+, Time elapsed",
        r"^Running \S+(Test|Tests|IT|Spec)$",
        r"^\S+ > .* PASSED$",
        r"^\s+\d+/\d+ Test +#\d+: .* Passed ",
        r"^\s*Start +\d+: ",
        r"^[.sSRIWND*,]{2,} +\d+ / \d+ \( *\d+%\)$",
        r"^> Task :\S+( (UP-TO-DATE|NO-SOURCE|FROM-CACHE|SKIPPED))?$",
    ])
});

static SUMMARIES: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        // cargo and nextest.
        r"^test result: ",
        r"^\s+Summary \[",
        r"^\s+(TRY \d+ |FLAKY |SLOW |TERMINATING |TIMEOUT |ABORT |SIG[A-Z]+ )",
        // pytest and unittest.
        r"^=+ .*\b\d+ (passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?)\b.* =+$",
        r"^=+ .*no tests ran.* =+$",
        r"^\d+ (passed|failed|skipped|errors?)\b.* in [\d.]+s",
        r"^Ran \d+ tests? in ",
        r"^(OK|FAILED)( \(.*\))?$",
        r"^(SKIPPED|XFAIL|XPASS|ERROR|FAILED) ",
        // go.
        r"^ok\s+\S+\s+(\(cached\)|[\d.]+s)(\s+coverage: .*)?$",
        r"^FAIL(\s+\S+\s+[\d.]+s)?$",
        r"^coverage: ",
        r"^Benchmark\S+\s+\d+\s",
        // Lines that no test reached.
        r"^(TOTAL|All files)\s",
        r"^\S+\.\w+\s+\d+\s+[1-9]\d*(\s+\d+)*\s+\d?\d%",
        r"^\s*\S+\.\w+ +\|.*\| +\d[\d,.-]*\s*$",
        // JavaScript.
        r"^\s*(Tests|Test Suites|Snapshots|Test Files|Type Errors|Time|Duration|Start at)(:| ) ",
        r"^\s*(Tests|Test Suites|Snapshots|Time):",
        r"^\s+\d+ (passing|failing|pending|passed|failed|flaky|skipped|did not run)\b",
        r"^(#|ℹ) (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) ",
        r"^\s*\d+ (pass|fail|skip|todo)$",
        r"^Ran \d+ tests? across ",
        r"^ok \| \d+ passed",
        // Other test runners.
        r"^\d+ (examples?|tests?|doctests?|scenarios?|assertions?), ",
        r"^\d+ doctests?, \d+ tests?",
        r"^Finished in ",
        r"^OK \(\d+ tests?",
        r"^OK, but ",
        r"^Tests: \d+, Assertions: ",
        r"^\s*Executed \d+ tests?, with ",
        r"^(✔|✘) Test run with ",
        r"^\S* ?Test run with \d+ tests? ",
        r"^(Passed|Failed)!  - ",
        r"^Test Run (Successful|Failed)\.",
        r"^(Total tests|\s+Passed|\s+Failed|\s+Skipped|\s*Total time): ",
        r"^Test summary: ",
        r"^(\[\w+\] )?Tests run: \d+, Failures: \d+, Errors: \d+, Skipped: \d+$",
        r"^\[INFO\] (BUILD SUCCESS|Total time: )",
        r"^BUILD (SUCCESSFUL|FAILED) in ",
        r"^\d+ tests completed",
        r"^\d+ actionable tasks?: ",
        r"^\d+% tests passed, ",
        r"^Total Test time",
    ])
});

/// Compiles expressions for bytes. Unicode classes would take ten times as long, in every instance.
fn set(expressions: &[&str]) -> RegexSet {
    let set = RegexSetBuilder::new(expressions).unicode(false).build();
    set.unwrap_or_else(|error| unreachable!("the unit tests compile them: {error}"))
}

static HEADERS: LazyLock<Regex> = LazyLock::new(|| {
    let headers = [
        r"^---- .* stdout ----$",
        r"^_{3,} .* _{3,}$",
        r"^\s*--- FAIL: ",
        r"^  ● .* › |^  ● ",
        r"^\s*\d+\) ",
        r"^(FAIL|ERROR): ",
        r"^ FAIL  ",
        r"^\s+FAIL \[",
        r"^There (was|were) \d+ (failure|error)",
        r"^\s+Failed \S.*\[",
    ];
    RegexBuilder::new(&headers.join("|"))
        .unicode(false)
        .build()
        .unwrap_or_else(|error| unreachable!("the unit tests compile it: {error}"))
});

/// Whether a line starts the report of one failure.
fn is_failure_header(line: &str) -> bool {
    HEADERS.is_match(line.as_bytes())
        && !(indent(line) == 0 && leading_number(line).is_some() && !line.contains(") "))
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    const SUMMARY: &str = "{ type = 'test_summary' }";

    #[test]
    fn passed_run_keeps_only_its_summary() {
        let text = "\
running 3 tests
test a::error_handling ... ok
test a::fails_when_asked ... ok
test b::panics - should panic ... ok

test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let expect = "\
... (4 lines left out) ...
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
... (2 lines left out) ...
";
        check(SUMMARY, false, text, expect, Confidence::Full);
    }

    #[test]
    fn failed_run_loses_only_passed_tests() {
        let text = "\
running 4 tests
test a::the_first_of_them_adds_up ... ok
test a::two ... FAILED
test a::the_third_of_them_adds_up ... ok
test a::the_fourth_of_them_adds_up ... ok

failures:

---- a::two stdout ----
what the test printed
thread 'a::two' panicked at src/a.rs:3:5:
assertion `left == right` failed
  left: 1
 right: 2

failures:
    a::two

test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let expect = text.replace("running 4 tests\ntest a::the_first_of_them_adds_up ... ok\n", "... (2 lines left out) ...\n").replace(
            "test a::the_third_of_them_adds_up ... ok\ntest a::the_fourth_of_them_adds_up ... ok\n\n",
            "... (2 lines left out) ...\n",
        );
        check(SUMMARY, true, text, &expect, Confidence::Full);
    }

    #[test]
    fn nextest_failure_names_its_test_once() {
        let text = "────────────
        FAIL [   0.028s] (10/60) shop graph::tests::keeps_the_order
  stdout ───

    running 1 test
    test graph::tests::keeps_the_order ... FAILED

    failures:

    failures:
        graph::tests::keeps_the_order

    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 60 filtered out; finished in 0.01s

  stderr ───
    thread 'graph::tests::keeps_the_order' (32129) panicked at src/graph.rs:23:28:
    order is descending

";
        let summary =
            "────────────\n     Summary [   0.132s] 60 tests run: 59 passed, 1 failed, 0 skipped\n";
        let expect = "────────────
        FAIL [   0.028s] (10/60) shop graph::tests::keeps_the_order
  stdout ───
... (6 lines left out) ...
  stderr ───
    thread 'graph::tests::keeps_the_order' (32129) panicked at src/graph.rs:23:28:
    order is descending

";
        check(
            SUMMARY,
            true,
            &format!("{text}{summary}{text}error: test run failed\n"),
            &format!(
                "{expect}{summary}────────────\n... (11 lines left out) ...\nerror: test run failed\n"
            ),
            Confidence::Full,
        );
        // By default, the end only names it.
        let header = text.lines().nth(1).unwrap();
        check(
            SUMMARY,
            true,
            &format!("{text}{summary}{header}\nerror: test run failed\n"),
            &format!("{expect}{summary}... (1 line left out) ...\nerror: test run failed\n"),
            Confidence::Full,
        );
    }

    #[test]
    fn failure_that_differs_in_one_word_is_no_repeat() {
        let block = |value: u32| {
            format!(
                "  ● cart › totals\n\n    expect(received).toBe(expected)\n\n    Expected: 4\n    Received: {value}\n\n      at Object.toBe (a.test.js:4:113)\n\n"
            )
        };
        let text = |second| {
            format!(
                "FAIL a.test.js\n{}Summary of all failing tests\nFAIL a.test.js\n{}Tests:       1 failed, 12 passed, 13 total\n",
                block(3),
                block(second)
            )
        };
        assert!(
            super::super::run(&super::super::testing::steps(SUMMARY).unwrap(), &text(5), true)
                .is_none()
        );
        let expect = format!(
            "FAIL a.test.js\n{}Summary of all failing tests\nFAIL a.test.js\n... (5 lines left out) ...\nTests:       1 failed, 12 passed, 13 total\n",
            block(3)
        );
        check(SUMMARY, true, &text(3), &expect, Confidence::Full);
        // The same report for another file is a failure of its own.
        let other = text(3).replacen("FAIL a.test.js", "FAIL b.test.js", 1);
        assert!(
            super::super::run(&super::super::testing::steps(SUMMARY).unwrap(), &other, true)
                .is_none()
        );
    }

    #[test]
    fn comparison_of_pytest_is_shown_once() {
        let text = "\
E       AssertionError: assert [1, 2] == [1, 3]
E         At index 1 diff: 2 != 3
E         Full diff of the two lists, with all their items in it:

tests/test_a.py:8: AssertionError
=========================== short test summary info ============================
FAILED tests/test_a.py::test_total - AssertionError: assert [1, 2] == [1, 3]
  At index 1 diff: 2 != 3
  Full diff of the two lists, with all their items in it:
  a line that only the summary has
========================= 1 failed, 2 passed in 0.03s ==========================
";
        let expect = text.replace(
            "  At index 1 diff: 2 != 3\n  Full diff of the two lists, with all their items in it:\n  a line",
            "... (2 lines left out) ...\n  a line",
        );
        check(SUMMARY, true, text, &expect, Confidence::Full);
    }

    #[test]
    fn other_output_is_not_taken_for_a_test_run() {
        check(SUMMARY, false, "a\nb\nc\n", "", Confidence::Full);
        let text =
            format!("{}error: it broke\n{}", "noise\n".repeat(60), "more noise\n".repeat(60));
        let expect = format!(
            "{}... (40 lines left out) ...\nerror: it broke\nmore noise\n... (19 lines left out) ...\n{}",
            "noise\n".repeat(20),
            "more noise\n".repeat(40)
        );
        check(SUMMARY, true, &text, &expect, Confidence::Fallback);
    }

    #[test]
    fn rows_of_dots_are_progress_unless_a_test_failed() {
        for row in [
            "....",
            "..s.x..  [ 45%]",
            "tests/test_a.py ......  [ 12%]",
            "tests/test_a.py .",
            "·····",
        ] {
            assert!(is_progress(row), "{row}");
        }
        for row in [
            "...",
            "..F..",
            "tests/test_a.py ..F. [ 12%]",
            "Loading ...",
            "done",
            "E..",
            "a ... b",
            "see x.",
        ] {
            assert!(!is_progress(row), "{row}");
        }
    }

    #[test]
    fn expressions_compile() {
        assert!(
            PASSING.len() > 20
                && SUMMARIES.len() > 20
                && !HEADERS.as_str().is_empty()
                && !FAILURES.as_str().is_empty()
                && !HEADERS_OF_NEXTEST.as_str().is_empty()
        );
    }
}
