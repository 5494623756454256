//! Hostile texts: work grows with their length and no faster.

use super::scan::Scanner;
use super::*;

/// Texts that would cost a careless reader the square of their length.
fn hostile(length: usize) -> Vec<String> {
    let repeat = |text: &str| text.repeat(length / text.len());
    vec![
        repeat("<tool_call>"),
        repeat("<tool_call>\n"),
        repeat("<tool_call>{\"a\":\n"),
        repeat("<tool_call>{\"</tool_call>\n"),
        repeat("<tool_call>{}\n"),
        repeat("<tools>"),
        repeat("</tool_call>"),
        repeat("<invoke name=\"bash\">\n"),
        repeat("<invoke name=\"bash\"><parameter name=\"a\">"),
        repeat("<tool_call><function=bash>"),
        repeat("<think>"),
        repeat("</think>"),
        repeat("</think"),
        repeat("<think>\n</think>\n"),
        repeat("<tool_result>"),
        repeat("</tool_result"),
        repeat("```bash\n"),
        repeat("```rust\n"),
        repeat("```\n"),
        repeat("`"),
        repeat("~"),
        repeat("`\n"),
        repeat(" "),
        repeat("\n"),
        repeat("   <"),
        repeat("<"),
        repeat("< "),
        repeat("a<"),
        repeat("bash/command>"),
        repeat("bash/\n"),
        repeat("read/{\"path\":"),
        repeat("bash"),
        format!("<tool_call>{}", repeat("[")),
        format!("<tool_call>{}", repeat("{\"a\":")),
        format!("<tool_call>\"{}", repeat("\\")),
        format!("<tool_call>{{\"{}", repeat("\\\"")),
        format!("```bash\n{}", repeat("``\n")),
        format!("```tool_call\n{}\n```", repeat("{}")),
        format!("```tool_call\n{}\n```", repeat("[")),
        format!("```text\n{}", repeat("~~~\n")),
        format!("<pre>{}", repeat("</pr")),
        format!("bash/command>{}", repeat("x")),
    ]
}

#[test]
fn work_grows_with_the_text() {
    let offered = offered();
    for length in [30_000, 300_000] {
        for text in hostile(length) {
            let mut scanner = Scanner::new(&offered, true);
            scanner.push(&text);
            scanner.finish();
            let name = cut(&text, 40);
            assert!(
                scanner.scanned_bytes <= 4 * text.len() + 4096,
                "{} for {}: {name}",
                scanner.scanned_bytes,
                text.len()
            );
        }
    }
}

#[test]
fn hostile_texts_have_bounded_results() {
    let offered = offered();
    for text in hostile(100_000) {
        let found = find(&text, &offered, &FindOptions::default());
        assert!(found.calls.len() <= MAX_CALLS && found.rejected.len() <= MAX_REJECTED);
        let shown: usize = found.rejected.iter().map(|one| one.why.len() + one.excerpt.len()).sum();
        assert!(shown < 10_000, "{shown}");
        assert!(found.text_without_calls.len() + found.thoughts.len() <= text.len());
    }
}

#[test]
fn many_tags_in_small_pieces_are_read() {
    let offered = offered();
    let text = "<tool_call>".repeat(100_000);
    let mut splitter = CallSplitter::new(&offered, false);
    for piece in text.as_bytes().chunks(7) {
        splitter.push(str::from_utf8(piece).unwrap());
    }
    let (_, found) = splitter.finish(&FindOptions::default());
    assert_eq!((found.calls.len(), found.rejected.len()), (0, 1));
    assert_eq!(found.text_without_calls.len(), text.len());
}

#[test]
fn number_of_calls_is_limited() {
    let call = "<tool_call>{\"name\":\"undo\"}</tool_call>\n";
    let found = found(&call.repeat(MAX_CALLS + 3));
    assert_eq!(found.calls.len(), MAX_CALLS);
    assert_eq!(found.rejected.len(), 3);
    assert!(found.rejected[0].why.contains("the limit is 16"), "{:?}", found.rejected);
    let list = format!("<tool_call>[{}{{}}]</tool_call>", "{\"name\":\"undo\"},".repeat(MAX_CALLS));
    check_rejected(&list, "the limit is 16");
}

#[test]
fn comparing_with_long_earlier_texts_is_bounded() {
    let letters: serde_json::Map<String, Value> =
        (0..500).map(|index| (format!("a{index}"), json!("a"))).collect();
    let message =
        format!("<tool_call>{}</tool_call>", json!({ "name": "bash", "arguments": letters }));
    let earlier = earlier_texts(&[&"name bash a".repeat(50_000)]);
    let options = FindOptions { earlier: Some(&earlier), ..FindOptions::default() };
    let found = find(&message, &offered(), &options);
    assert_eq!(found.calls.len(), 1);
    assert!(!found.calls[0].is_echo);
}

#[test]
fn every_call_is_an_echo_once_texts_were_too_long_to_keep() {
    let mut earlier = EarlierTexts::with_room(10_000);
    let is_echo = |earlier: &EarlierTexts| {
        let options = FindOptions { earlier: Some(earlier), ..FindOptions::default() };
        find("```bash\nls\n```", &offered(), &options).calls[0].is_echo
    };
    earlier.add(&"word ".repeat(2_500));
    assert!(!is_echo(&earlier));
    earlier.add("word");
    assert!(is_echo(&earlier));
}

#[test]
fn path_is_found_in_the_texts_that_were_read() {
    let mut earlier = EarlierTexts::default();
    earlier.add("found: /w/src/main.rs:12\n");
    earlier.add_message("look at docs/a b.md");
    for (path, named) in [
        ("src/main.rs", true),
        ("/w/src/main.rs", true),
        ("docs/a b.md", true),
        ("src/x.rs", false),
    ] {
        assert_eq!(earlier.contain_path(path), named, "{path}");
    }
    // Who doesn't know all of it points nothing out.
    earlier.lose();
    assert!(earlier.contain_path("src/x.rs"));
}
