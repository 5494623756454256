//! Recognises lines of tests that passed or start. A test may have any name, even that of an error.

/// Whether the line only reports that a test passed, was skipped or starts.
pub fn is_passing(line: &str) -> bool {
    let trimmed = line.trim();
    let Some(&first) = trimmed.as_bytes().first() else { return false };
    match first {
        // ✓ ✔ √ ✅, and the marks of skipped tests.
        0xe2 => {
            return starts(trimmed, &["✓ ", "✔ ", "√ ", "✅ ", "○ ", "↓ ", "✓\u{a0}"]);
        }
        b'=' if starts(trimmed, &["=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "]) => {
            return true;
        }
        b'-' if starts(trimmed, &["--- PASS: ", "--- SKIP: "]) => return true,
        b'o' if starts(trimmed, &["ok ", "ok\t"]) => return !trimmed.contains("FAIL"),
        b'P' if starts(trimmed, &["PASS ", "PASS [", "PASS\t", "PASSED ", "Passed "]) => {
            return true;
        }
        b'S' if starts(trimmed, &["SKIP ", "SKIP [", "SKIPPED ", "Skipped "]) => return true,
        b'[' if starts(trimmed, &["[       OK ]", "[ RUN      ]", "[  PASSED  ]", "[ OK ]"]) => {
            return true;
        }
        b'T' if trimmed.starts_with("Test Case ") || trimmed.starts_with("Test Suite ") => {
            return trimmed.contains(" passed") || trimmed.contains(" started");
        }
        _ => {}
    }
    if let Some((name, result)) = trimmed.rsplit_once(" ... ") {
        // `... ok`, `... ignored, needs a server`, `... ok (0.01s)`. If output of the test follows,
        // the line has to stay.
        return matches!(result, "ok" | "ignored" | "skipped" | "should panic") && !name.is_empty()
            || result.starts_with("ignored, ")
            || result.starts_with("skipped ")
            || result.starts_with("ok (") && result.ends_with(')');
    }
    // Maven prints skipped tests as warnings.
    if trimmed.contains("Failures: 0, Errors: 0,") && trimmed.contains("Time elapsed") {
        return true;
    }
    // pytest -v: `tests/test_a.py::test_error PASSED   [ 12%]`; gradle: `FooTest > name() PASSED`.
    let name = trimmed.trim_end_matches(|last: char| {
        matches!(last, ']' | '[' | '%' | ' ') || last.is_ascii_digit()
    });
    ["PASSED", "SKIPPED", "XFAIL"].iter().any(|word| name.ends_with(word))
        && (trimmed.contains("::") || trimmed.contains(" > "))
}

fn starts(text: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| text.starts_with(start))
}
