//! Tests with recorded outputs of real commands. Each lists the lines that a model needs.

use std::collections::BTreeMap;
use std::fs;

use filters::Engine;
use serde::Deserialize;
use tiktoken_rs::CoreBPE;
use toolhold_sdk::filter::Filters as _;

mod support;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    command: String,
    exit: i32,
    kind: String,
    keep: Vec<String>,
    subject: Option<String>,
    #[serde(rename = "origin")]
    _origin: String,
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    text: String,
}

impl Case {
    fn subject(&self) -> String {
        self.subject.clone().unwrap_or_else(|| support::subject(&self.command))
    }
}

/// Whether a case belongs to the third that rules aren't written for. It shows what they do with
/// outputs that nobody looked at.
fn is_held_out(name: &str) -> bool {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The outputs of these families were made for rules.
    let is_made = name.starts_with("asked/") || name.starts_with("unknown/");
    hash.is_multiple_of(3) && !is_made
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for family in fs::read_dir(support::corpus())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
    {
        for file in fs::read_dir(&family).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let mut case: Case =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            case.name = format!(
                "{}/{}",
                family.file_name().unwrap().display(),
                file.file_stem().unwrap().display()
            );
            let output = fs::read(file.with_extension("out")).unwrap();
            case.text = support::clean(&String::from_utf8_lossy(&output));
            cases.push(case);
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() >= 130, "{} cases", cases.len());
    cases
}

/// The output after all matching rules, and their names.
fn filtered(
    engine: &mut Engine,
    matchers: &support::Matchers,
    case: &Case,
) -> (String, Vec<String>) {
    let subject = case.subject();
    let rules: Vec<String> = matchers.fitting(&subject).into_iter().map(str::to_owned).collect();
    let text = rules.iter().fold(case.text.clone(), |text, rule| {
        support::apply(engine, rule, &subject, case.exit, &text)
    });
    (text, rules)
}

/// Whether `text` still has `kept`: unchanged, or with the place separated from its message.
fn survives(kept: &str, text: &str) -> bool {
    if text.contains(kept) {
        return true;
    }
    let split = |at: usize, length: usize| {
        text.contains(kept[..at].trim()) && text.contains(kept[at + length..].trim())
    };
    // The forms are `place: message`, or `place severity message` below a file's name.
    [": ", " - ", "  "]
        .iter()
        .any(|sign| kept.match_indices(sign).any(|(at, _)| split(at, sign.len())))
        || kept.split_once(' ').is_some_and(|(place, message)| {
            place.contains(':') && text.contains(place) && text.contains(message.trim())
        })
}

#[test]
fn needed_lines_stay_and_enough_is_left_out() {
    let tokens: CoreBPE = tiktoken_rs::o200k_base().unwrap();
    let count = |text: &str| tokens.encode_ordinary(text).len();
    let mut engine = Engine::new(None).unwrap();
    let matchers = support::Matchers::new(&engine);
    let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut lost = Vec::new();
    for case in cases() {
        let (text, rules) = filtered(&mut engine, &matchers, &case);
        assert!(text.len() <= case.text.len(), "{}: it grew", case.name);
        for kept in case
            .keep
            .iter()
            .filter(|kept| case.text.contains(kept.as_str()) && !survives(kept, &text))
        {
            lost.push(format!("{} ({}): {kept:?}", case.name, rules.join(", ")));
        }
        let (before, after) = (count(&case.text), count(&text));
        println!(
            "{:44} {:11} {:24} {before:6} {after:6} {:4}%",
            case.name,
            case.kind,
            rules.join(","),
            percent(before, after)
        );
        let mut add = |kind: String| {
            let sum = kinds.entry(kind).or_default();
            *sum = (sum.0 + before, sum.1 + after);
        };
        if is_held_out(&case.name) {
            add(format!("{} (held out)", case.kind));
        }
        add(case.kind);
    }
    for (kind, (before, after)) in &kinds {
        println!("{kind:24} {before:8} {after:8} {:3}%", percent(*before, *after));
    }
    assert!(lost.is_empty(), "{} lost:\n{}", lost.len(), lost.join("\n"));
    for (kind, least) in [
        ("tests-fail", 50),
        ("tests-pass", 85),
        ("build-pass", 70),
        ("listing", 50),
        ("log", 75),
        ("unknown", 40),
    ] {
        let (before, after) = kinds[kind];
        assert!(percent(before, after) >= least, "{kind}: {}%", percent(before, after));
    }
}

fn percent(before: usize, after: usize) -> usize {
    100 - (after * 100).checked_div(before).unwrap_or(100).min(100)
}

/// Lines that report a failure, as many programs write them.
const PLANTED: [&str; 18] = [
    "error[E0277]: the trait bound `Planted: Clone` is not satisfied",
    "error: linking with `cc` failed: exit status: 1 (planted)",
    "src/planted.c:31:7: error: 'planted' undeclared (first use in this function)",
    "src/planted.c:99: undefined reference to `planted_symbol'",
    "ValueError: planted is not a number",
    "planted.py:17: AssertionError",
    "./planted.go:12:5: undefined: plantedName",
    "panic: runtime error: index out of range [7] with length 3 (planted)",
    "--- FAIL: TestPlanted (0.00s)",
    "Exception in thread \"main\" java.lang.IllegalStateException: planted",
    "[ERROR] Failed to execute goal org.planted:plugin:1.0",
    "src/planted.ts(12,34): error TS2304: Cannot find name 'planted'.",
    "2026-01-02 10:11:12 ERROR [planted] the queue is gone",
    "fatal: planted is not a git repository",
    "thread 'main' panicked at src/planted.rs:4:5:",
    "npm error code EPLANTED",
    "make: *** [Makefile:7: planted] Error 2",
    "bash: planted: command not found",
];

#[test]
fn errors_survive_at_every_position() {
    check_survival(|lines| {
        let planted = PLANTED.iter().enumerate().flat_map(|(number, planted)| {
            // Each line is planted at every second place only.
            let places = [0, lines.len() / 3, lines.len() * 2 / 3, lines.len()]
                .into_iter()
                .skip(number % 2)
                .step_by(2);
            places.map(move |at| {
                (at, [&lines[..at], &[*planted], &lines[at..]].concat().join("\n"), *planted)
            })
        });
        planted.collect()
    });
}

/// Checks that the rules for each case keep planted lines. `plant` gets the lines of a case. For
/// each planted text, it returns its position, the whole output and the planted text.
fn check_survival(plant: impl Fn(&[&str]) -> Vec<(usize, String, &'static str)>) {
    let mut engine = Engine::new(None).unwrap();
    let matchers = support::Matchers::new(&engine);
    let mut lost = Vec::new();
    for case in cases() {
        let subject = case.subject();
        let rules: Vec<String> =
            matchers.fitting(&subject).into_iter().map(str::to_owned).collect();
        let lines: Vec<&str> = case.text.lines().collect();
        for (at, text, planted) in plant(&lines) {
            for exit in [0, 1] {
                let apply = |text: String, rule: &String| {
                    support::apply(&mut engine, rule, &subject, exit, &text)
                };
                let text = rules.iter().fold(text.clone(), apply);
                for line in planted.lines().filter(|line| !line.is_empty() && !text.contains(*line))
                {
                    lost.push(format!(
                        "{} ({}), line {at}, exit {exit}: {line}",
                        case.name,
                        rules.join(", ")
                    ));
                }
            }
        }
    }
    assert!(lost.is_empty(), "{} lost:\n{}", lost.len(), lost.join("\n"));
}

/// Errors with the lines that belong to them, as many programs write them.
const BLOCKS: [&str; 8] = [
    "error[E0308]: mismatched types (planted)
  --> src/planted.rs:12:5
   |
11 | fn f() -> u32 {
   |           --- expected `u32` because of return type
12 |     \"x\"
   |     ^^^ expected `u32`, found `&str`
   |
   = note: planted
help: try this
",
    "src/planted.c: In function 'planted':
src/planted.c:31:7: error: 'total' undeclared (first use in this function)
   31 |       total = 3;
      |       ^~~~~
",
    "Traceback (most recent call last):
  File \"planted.py\", line 3, in <module>
    planted([1])
  File \"planted.py\", line 2, in planted
    return one[3]
IndexError: list index out of range
",
    "Exception in thread \"main\" java.lang.IllegalStateException: planted
\tat org.example.Planted.one(Planted.java:9)
\tat org.example.Planted.main(Planted.java:3)
Caused by: java.io.IOException: planted
\tat org.example.Planted.two(Planted.java:19)
",
    "panic: planted

goroutine 1 [running]:
main.main()
\t/home/u/planted.go:4 +0x1d
",
    "thread 'main' (7) panicked at src/planted.rs:4:5:
assertion `left == right` failed: planted
  left: 1
 right: 2
",
    "E       AssertionError: planted
E       assert 3 == 4
",
    "TypeError: planted is not a function
    at Object.<anonymous> (/home/u/planted.js:3:1)
    at Module._compile (node:internal/modules/cjs/loader:1554:14)
",
];

#[test]
fn context_of_an_error_survives() {
    check_survival(|lines| {
        let planted = BLOCKS.iter().enumerate().map(|(number, block)| {
            let at = lines.len() * (1 + number % 3) / 4;
            (
                at,
                format!("{}\n\n{block}\n{}\n", lines[..at].join("\n"), lines[at..].join("\n")),
                *block,
            )
        });
        planted.collect()
    });
}

/// A small pseudorandom generator with a fixed seed.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end.max(1) as u64).unwrap()
    }
}

#[test]
fn random_output_makes_no_rule_fail_or_grow() {
    let mut engine = Engine::new(None).unwrap();
    let rules: Vec<String> =
        engine.list().filters.iter().map(|filter| filter.name.to_string()).collect();
    let texts: Vec<String> = cases().into_iter().map(|case| case.text).collect();
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for round in 0..1200 {
        let rule = &rules[round % rules.len()];
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(3) {
            match random.below(8) {
                0 => (0..random.below(2000))
                    .for_each(|_| bytes.push(u8::try_from(random.below(256)).unwrap())),
                1 => bytes
                    .extend(std::iter::repeat_n(b" x:|(1"[random.below(6)], random.below(60_000))),
                2 => (0..random.below(300)).for_each(|_| {
                    bytes.extend(["\n", "\t", ": ", "1:", "--", "@@"][random.below(6)].as_bytes());
                }),
                _ => {
                    let text = texts[random.below(texts.len())].as_bytes();
                    let (from, to) = (random.below(text.len()), random.below(text.len()));
                    bytes.extend(&text[from.min(to)..from.max(to)]);
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let exit = i32::try_from(random.below(2)).unwrap();
        let shorter = support::apply(&mut engine, rule, "x", exit, &text);
        assert!(shorter.len() <= text.len(), "{rule}: it grew");
    }
}

#[test]
fn hostile_output_makes_no_rule_fail_or_grow() {
    let mut engine = Engine::new(None).unwrap();
    // Every strategy is in one of them.
    let rules = [
        "cargo-test",
        "cargo-clippy",
        "git-status",
        "git-diff",
        "git-transfer",
        "log-dedup",
        "similar-lines",
        "grep-rg",
        "make",
    ];
    let many = 20_000;
    let texts = [
        "error".repeat(many),
        "0 errors, ".repeat(many),
        "Error ".repeat(many),
        "exit ".repeat(many),
        "\n".repeat(many),
        " \n\t\n".repeat(many),
        "a\nb\n".repeat(many),
        "    at f (a.js:1:1)\n".repeat(many),
        "error: no\n  --> a.rs:1:1\n".repeat(many),
        "a.c:1:1: warning: no\n".repeat(many),
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n+a\n".repeat(many / 4),
        "\tmodified: a\nUntracked files:\n".repeat(many),
        "test a ... ok\n---- a stdout ----\n".repeat(many),
        "        FAIL [   0.028s] a b\n    failures:\n".repeat(many),
        "{\"type\":\"test\",\"event\":\"ok\"}\n".repeat(many),
        "{\"Action\":\"output\",\"Output\":\"a\\n\"}\n".repeat(many),
        "{\"reason\":\"compiler-message\",\"message\":{\"rendered\":\"a\"}}\n".repeat(many),
        format!("[{}", "{\"filePath\":\"a\",\"messages\":[".repeat(many)),
        format!("[{}0]", "{\"filePath\":\"a\",\"messages\":[]},\n".repeat(many)),
        "[".repeat(many),
        "  File \"/lib/python3/a.py\", line 1, in f\n    g()\n".repeat(many),
        "_ _ _ _\n    f()\n\na/site-packages/b.py:1: \n".repeat(many),
        "a.b(c)\n\t/usr/lib/go/a.go:1\n".repeat(many),
        "/a.js\n  1:1  error  no  rule\n".repeat(many),
        "x/a.txt of the site\nx/b.txt of the site\n".repeat(many),
        (0..many).map(|at| format!("copied site/{at:x}/{at}.txt\n")).collect(),
        (0..many).map(|at| format!("step {}\nof the site\n\n", at % 7)).collect(),
        format!("{}\n", "site/".repeat(150)).repeat(many / 10),
    ];
    for rule in rules {
        for text in &texts {
            let shorter = support::apply(&mut engine, rule, "x", 1, text);
            assert!(shorter.len() <= text.len(), "{rule} on {:?}: it grew", &text[..20]);
        }
    }
}
