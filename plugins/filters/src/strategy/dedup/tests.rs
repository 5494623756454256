//! Tests of `dedup`: which similar lines fold, and which stay.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::super::testing::{check, steps};
use super::super::{Step, run};
use super::*;

const DEDUP: &str = "{ type = 'dedup' }";

/// What `dedup` leaves of a text.
fn deduplicate(text: &str) -> String {
    let steps: Vec<Step> = steps(DEDUP).unwrap();
    run(&steps, text, false).map_or_else(|| text.to_owned(), |(shorter, _)| shorter)
}

#[test]
fn similar_entries_leave_the_first_the_last_and_what_differs() {
    let text = "\
2026-01-02T10:00:00.123Z INFO request 550e8400-e29b-41d4-a716-446655440000 from 10.0.0.1:5123 took 12 ms
2026-01-02T10:00:01.456Z INFO request 123e4567-e89b-12d3-a456-426614174000 from 10.0.0.27:5123 took 8 ms
2026-01-02T10:00:01.856Z INFO request 123e4567-e89b-12d3-a456-426614174009 from 10.0.0.1:5123 took 19 ms
2026-01-02T10:00:02.456Z INFO request 123e4567-e89b-12d3-a456-426614174001 from 10.0.0.27:5123 took 14 ms
2026-01-02T10:00:03Z INFO stopping
";
    let expect = "\
2026-01-02T10:00:00.123Z INFO request 550e8400-e29b-41d4-a716-446655440000 from 10.0.0.1:5123 took 12 ms
... (2 more like this: request {2 different} from {10.0.0.27, 10.0.0.1}:5123 took {8, 19} ms) ...
2026-01-02T10:00:02.456Z INFO request 123e4567-e89b-12d3-a456-426614174001 from 10.0.0.27:5123 took 14 ms
2026-01-02T10:00:03Z INFO stopping
";
    check(DEDUP, false, text, expect, Confidence::Full);
}

#[test]
fn entries_of_a_log_fold_although_others_are_between_them() {
    let mut text = String::new();
    for second in 0..40 {
        let _ = writeln!(text, "10:00:{second:02} INFO worker-{} took job {second}", second % 3);
        let _ = writeln!(text, "10:00:{second:02} DEBUG cache has {} entries", 100 + second * 7);
    }
    let expect = "\
10:00:00 INFO worker-0 took job 0
... (38 more like this: worker-0..2 took job 1..38) ...
10:00:00 DEBUG cache has 100 entries
... (38 more like this: has 107..366 entries) ...
10:00:39 INFO worker-0 took job 39
10:00:39 DEBUG cache has 373 entries
";
    check(DEDUP, false, &text, expect, Confidence::Full);
}

#[test]
fn lines_without_a_time_fold_only_where_they_follow_each_other() {
    let text = "\
the server has a port: 81
the client has a name
the server has a port: 82
a server of another kind
the server has a port: 83
the server has a port: 84
";
    check(DEDUP, false, text, "", Confidence::Full);
}

#[test]
fn entry_after_a_long_pause_stays() {
    let text: String = (0..300)
        .map(|at| (at, if at < 120 { at } else { at + 600 }))
        .map(|(at, time)| format!("10:{:02}:{:02} INFO heartbeat {at}\n", time / 60, time % 60))
        .collect();
    let expect = "\
10:00:00 INFO heartbeat 0
... (297 more like this: heartbeat 1..298) ...
10:12:00 INFO heartbeat 120
10:14:59 INFO heartbeat 299
";
    check(DEDUP, false, &text, expect, Confidence::Full);
}

#[test]
fn entries_before_a_failure_stay() {
    let mut text = String::new();
    (0..60).for_each(|second| {
        let _ = writeln!(text, "10:00:{second:02} INFO worker took job {second} of the queue");
    });
    text.push_str("10:01:00 ERROR the queue is gone\n10:01:01 INFO worker stops\n");
    let expect = "\
10:00:00 INFO worker took job 0 of the queue
... (56 more like this: job 1..56 of) ...
10:00:57 INFO worker took job 57 of the queue
10:00:58 INFO worker took job 58 of the queue
10:00:59 INFO worker took job 59 of the queue
10:01:00 ERROR the queue is gone
10:01:01 INFO worker stops
";
    check(DEDUP, false, &text, expect, Confidence::Full);
}

#[test]
fn errors_fold_only_if_they_differ_in_time() {
    let errors: String =
        (1..6).map(|second| format!("10:00:0{second} ERROR job 17 failed\n")).collect();
    let text = format!(
        "{errors}10:00:07 ERROR job 18 failed\nsrc/a.c:3:4: warning: unused\nsrc/a.c:9:4: warning: unused\n"
    );
    let expect = "\
10:00:01 ERROR job 17 failed
... (3 more like this) ...
10:00:05 ERROR job 17 failed
10:00:07 ERROR job 18 failed
src/a.c:3:4: warning: unused
src/a.c:9:4: warning: unused
";
    check(DEDUP, false, &text, expect, Confidence::Full);
}

#[test]
fn data_does_not_fold() {
    for row in [
        // Figures.
        "17 17.5 10.0.0.1\n",
        // Tables.
        " 17 | completed | 2026-01-02 | 99.50\n",
        "17\tcompleted\t99.50\n",
        "17,completed,2026-01-02,99.50\n",
        "completed      17      99.50      yes   \n",
    ] {
        let rows: String = (10..60).map(|number| row.replace("17", &number.to_string())).collect();
        assert_eq!(deduplicate(&rows), rows);
    }
}

#[test]
fn exact_comparison_folds_only_lines_that_are_the_same() {
    let toml = "{ type = 'dedup', exact = true }";
    let numbered: String = (0..50).map(|at| format!("the loss of step {at} is 3\n")).collect();
    check(toml, false, &numbered, "", Confidence::Full);
    let frames = "  File \"<string>\", line 2, in f\n  File \"<string>\", line 3, in g\n";
    let expect = format!("{frames}... (99 more like these 2 lines) ...\n");
    check(toml, false, &frames.repeat(100), &expect, Confidence::Full);
}

#[test]
fn separated_lines_do_not_fold() {
    let text = "a long line that is there twice\nanother\na long line that is there twice\n";
    check(DEDUP, false, text, "", Confidence::Full);
}

#[test]
fn repeated_blocks_fold() {
    let text = "connecting to 10.0.0.1\nno answer yet\n".repeat(5) + "connected\n";
    let expect =
        "connecting to 10.0.0.1\nno answer yet\n... (4 more like these 2 lines) ...\nconnected\n";
    check(DEDUP, false, &text, expect, Confidence::Full);
    // A block with another value stays as a whole.
    let block = |ms: u32| format!("connecting to the server\nanswered after {ms} ms\n");
    let text: String = [5, 6, 5, 7, 30_017, 6, 5, 6, 7, 5, 6].into_iter().map(block).collect();
    let expect = format!(
        "{}... (8 more like these 2 lines: after 5..7 ms) ...\n{}{}",
        block(5),
        block(30_017),
        block(6)
    );
    check(DEDUP, false, &text, &expect, Confidence::Full);
}

#[test]
fn operator_can_add_patterns_to_ignore() {
    let toml = "{ type = 'dedup', normalize = [{ pattern = 'user=\\w+', replacement = 'user=' }] }";
    let text = "login of user=anna from here\nlogin of user=bert from here\nlogin of user=cleo from here\n";
    let expect = "login of user=anna from here\n... (2 more like this) ...\n";
    check(toml, false, text, expect, Confidence::Full);
    assert!(
        steps("{ type = 'dedup', normalize = [{ pattern = 'a', replacement = '$1' }] }").is_err()
    );
}

/// Checks that `line` stays as it is among 10,000 lines that `usual` makes.
#[track_caller]
fn check_alone(usual: impl Fn(usize) -> String, line: &str) {
    for place in [0, 1, 137, 5_000, 9_998, 9_999] {
        let mut lines: Vec<String> = (0..10_000).map(&usual).collect();
        lines[place] = line.to_owned();
        let shorter = deduplicate(&(lines.join("\n") + "\n"));
        let found = shorter.lines().filter(|other| *other == line).count();
        assert_eq!(found, 1, "{line:?} at {place}:\n{shorter}");
        assert!(shorter.lines().count() < 12, "{line}:\n{shorter}");
    }
}

#[test]
fn one_other_value_among_thousands_of_lines_stands_alone() {
    check_alone(|_| "wrote 500 rows".to_owned(), "wrote 0 rows");
    check_alone(|at| format!("wrote {} rows", 400 + at % 200), "wrote 0 rows");
    check_alone(|_| "query took 5 ms".to_owned(), "query took 30017 ms");
    check_alone(|at| format!("query took {} ms", 3 + at * 7 % 9), "query took 30017 ms");
    check_alone(|at| format!("query took {}.{} ms", 3 + at % 9, at % 10), "query took 30017.5 ms");
    check_alone(|at| format!("query {at} took {} ms", at % 40), "query 5 took 30017 ms");
    check_alone(|_| "disk usage is 45%".to_owned(), "disk usage is 100%");
    check_alone(|at| format!("disk usage is {}%", 44 + at % 3), "disk usage is 100%");
    check_alone(|at| format!("node{} runs version 1.4.2", at % 50), "node7 runs version 1.4.1");
    check_alone(|at| format!("copied part {at}, checksum fine"), "copied part 7, checksum bad");
    check_alone(|at| format!("row {at} ok=1 bad=0 of table"), "row 99 ok=0 bad=1 of table");
    check_alone(
        |at| format!("10:{:02}:{:02} INFO heartbeat of worker {}", at / 60 % 60, at % 60, at % 4),
        "10:07:09 INFO heartbeat of worker 11",
    );
    check_alone(
        |at| format!("request {} has status=200", at * 31 % 977),
        "request 5 has status=404",
    );
    check_alone(
        |_| "commit 1a2b3c4d5e6f is deployed".to_owned(),
        "commit 9f8e7d6c5b4a is deployed",
    );
}

#[test]
fn ids_outside_of_a_log_are_all_listed() {
    let ids: Vec<String> = (0..40).map(|at| format!("i-0a{:06x}", 0x1f2e3d + at * 7919)).collect();
    let text: String = ids.iter().map(|id| format!("instance {id} is running\n")).collect();
    let shorter = deduplicate(&text);
    assert!(shorter.len() * 2 < text.len(), "{shorter}");
    ids.iter().for_each(|id| assert!(shorter.contains(&id[2..]), "{id}:\n{shorter}"));
}

#[test]
fn jump_of_a_counter_stands_alone() {
    let text: String = (0..200)
        .map(|at| format!("received the packet {}\n", if at < 120 { at } else { at + 5_000 }))
        .collect();
    let shorter = deduplicate(&text);
    assert!(shorter.contains("\nreceived the packet 5120\n"), "{shorter}");
    assert!(shorter.lines().count() <= 4, "{shorter}");
}

/// A small pseudorandom generator with a fixed seed.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn every_value_of_a_choice_of_few_survives() {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for round in 0..300 {
        let many = 40 + random.below(400);
        let choice: Vec<u64> =
            (0..2 + random.below(12)).map(|_| random.below(1 << (3 + round % 30))).collect();
        let mut text = String::new();
        let mut used = Vec::new();
        for at in 0..many {
            // Some values are seldom.
            let bound = 1 + random.below(choice.len() as u64);
            let value = choice[usize::try_from(random.below(bound)).unwrap()];
            used.push(value);
            let _ = match round % 3 {
                0 => writeln!(text, "the shard {value} of node{} is ready", random.below(9_000)),
                1 => writeln!(text, "10:00:{:02} shard {value} is synced in {at} ms", at % 60),
                _ => writeln!(text, "begin of the shard {value}\nthe shard has {at} rows"),
            };
        }
        let shorter = deduplicate(&text);
        let words: Vec<&str> = shorter
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        // A range of numbers that follow each other has all of them.
        let is_in_range = |value: u64| {
            words.windows(2).any(|two| {
                let bounds = [two[0], two[1]].map(|word| word.parse::<u64>().ok());
                matches!(bounds, [Some(low), Some(high)] if low <= value && value <= high
                    && shorter.contains(&format!("shard {low}..{high}"))
                    && (low..=high).all(|between| used.contains(&between)))
            })
        };
        for value in used.iter().copied() {
            let shown = value.to_string();
            assert!(
                words.contains(&shown.as_str()) || is_in_range(value),
                "round {round}: {value} is lost of:\n{shorter}"
            );
        }
    }
}

#[test]
fn work_grows_with_the_output_only() {
    // Each form would take hours if some step looked at all lines for each line.
    let many = 60_000;
    let numbered = |form: &dyn Fn(usize) -> String| (0..many).map(form).collect::<String>();
    let texts = [
        numbered(&|at| format!("10:00:00 INFO the entry {at} of {}\n", at * 7)),
        numbered(&|at| format!("10:00:00 INFO {} has no other like it\n", "x".repeat(at % 97))),
        numbered(&|at| format!("a{}\n", ["the line", "another", "a third"][at % 3])),
        numbered(&|at| format!("the block {} begins\nand ends\n\n", at % 5)),
        "1 ".repeat(1_000_000),
        "[1] the number\n".repeat(many),
        format!("{}\n", "word 1 ".repeat(500)).repeat(300),
        numbered(&|at| "a\nb\n".repeat(at % 3) + "c\n"),
        "2026-01-02T10:00:00Z ERROR no\n".repeat(many),
    ];
    let started = Instant::now();
    for text in &texts {
        assert!(deduplicate(text).len() <= text.len());
    }
    // This tells a hang from an end, on a busy machine too.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}
