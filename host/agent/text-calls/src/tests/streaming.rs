//! Messages that arrive in pieces.

use proptest::prelude::*;

use super::*;

/// Parts of calls, and of texts that look like them.
pub(super) const TOKENS: [&str; 63] = [
    "```bash\n",
    "```",
    "\n```\n",
    "````",
    "~~~",
    "```json\n",
    "```tool_call\n",
    "```tool read\n",
    "```rust\n",
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "<toolcall>",
    "<minimax:tool_call>",
    "<tools>",
    "</tools>",
    "<invoke name=\"bash\">",
    "</invoke>",
    "<parameter name=\"command\">",
    "</parameter>",
    "<function=read>",
    "<parameter=path>",
    "</function>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "<think>",
    "</think>",
    "<tool_result name=\"x\">",
    "</tool_result>",
    "<pre>",
    "</pre>",
    "<blockquote>",
    "<external-data tool=\"x\" key=\"1\">",
    "</external-data key=\"1\">",
    "{\"name\":\"read\",\"arguments\":{\"path\":\"a\"}}",
    "{\"name\":",
    "bash/command>ls\n",
    "read/{\"path\":\"a\"}\n",
    "\n",
    "\r\n",
    "    ",
    "\t",
    "> ",
    "- ",
    "| ",
    "<",
    "\\",
    "{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "read/{\"path\": \"a\"}\n",
    "bash",
    " ",
    ">",
    "</",
    "a",
    "é",
    "漢",
    "text ",
];

/// Pieces of a message.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(&TOKENS[..]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => Just("x".repeat(299)),
        1 => Just(" ".repeat(301)),
        1 => Just(format!("```{}", " ".repeat(297))),
    ]
}

/// What a screen shows if the message arrives in these pieces, and what is found.
pub(super) fn stream(pieces: &[&str], options: &FindOptions<'_>) -> (String, FoundCalls) {
    let offered = offered();
    let mut splitter = CallSplitter::new(&offered, options.is_lenient);
    let mut screen = String::new();
    let mut show = |shown: ShownText| {
        if shown.was_thoughts {
            screen.clear();
        }
        screen.push_str(&shown.text);
    };
    for piece in pieces {
        show(splitter.push(piece));
    }
    let (shown, found) = splitter.finish(options);
    show(shown);
    (screen, found)
}

fn split<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn every_split_gives_the_same(
        pieces in prop::collection::vec(piece(), 0..30),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        is_lenient in any::<bool>(),
    ) {
        let text = pieces.concat();
        let options = FindOptions {
            is_lenient,
            is_loopback: true,
            ..FindOptions::default()
        };
        let whole = find(&text, &offered(), &options);
        let (screen, found) = stream(&split(&text, &cuts), &options);
        prop_assert_eq!(&found, &whole);
        prop_assert_eq!(&screen, &whole.text_without_calls);
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        let (screen, found) = stream(&bytes.iter().map(String::as_str).collect::<Vec<_>>(), &options);
        prop_assert_eq!(&found, &whole);
        prop_assert_eq!(&screen, &whole.text_without_calls);
        prop_assert!(whole.calls.len() <= MAX_CALLS);
        prop_assert!(whole.calls.iter().all(|call| call.arguments.is_object()));
    }

    #[test]
    fn text_in_a_foreign_fence_is_never_a_call(pieces in prop::collection::vec(piece(), 0..30)) {
        let inside = pieces.concat().replace("~~~", "~");
        let found = found(&format!("~~~~~text\n{inside}\n~~~~~"));
        prop_assert_eq!(found.calls, []);
    }

    #[test]
    fn quoted_text_is_never_a_call(pieces in prop::collection::vec(piece(), 0..30)) {
        let quoted: String = pieces.concat().split('\n').map(|line| format!("> {line}\n")).collect();
        let found = found(&quoted);
        prop_assert_eq!(found.calls, []);
    }
}

#[test]
fn marks_at_the_limits_are_read_the_same_in_pieces() {
    let call = "<tool_call>{\"name\":\"undo\"}</tool_call>\n";
    let spaces = |count: usize| " ".repeat(count);
    let mut texts = Vec::new();
    for length in 290..310 {
        texts.push(format!("~~~text\n~~~{}\n{call}", spaces(length)));
        texts.push(format!("~~~text\n~~~{}", spaces(length)));
        texts.push(format!("```{}\n{call}```\n{call}", spaces(length)));
        texts.push(format!("```bash{}\n{call}```\n{call}", spaces(length)));
        texts.push(format!("{call}{}{call}", spaces(length)).replace(">\n ", ">"));
        texts.push(format!("<invoke name=\"{}\">\n</invoke>\n{call}", "x".repeat(length)));
        texts.push(format!("a</think{}>\n{call}", spaces(length)));
        texts.push(format!("{}\n{call}", "`".repeat(length)));
    }
    for length in 16_365..16_390 {
        texts.push(format!("bash/command>{}\n{call}", "x".repeat(length)));
        texts.push(format!("  bash/command>{}", "x".repeat(length)));
    }
    for text in &texts {
        let options = FindOptions::default();
        let whole = find(text, &offered(), &options);
        for size in [1, 7, 299, 16_384] {
            let pieces: Vec<&str> =
                text.as_bytes().chunks(size).map(|piece| str::from_utf8(piece).unwrap()).collect();
            let (screen, found) = stream(&pieces, &options);
            assert_eq!(found, whole, "{} in pieces of {size}", cut(text, 80));
            assert_eq!(screen, whole.text_without_calls);
        }
    }
}

#[test]
fn block_of_json_behind_thoughts_is_held_back() {
    let earlier = EarlierTexts::default();
    let options = FindOptions {
        is_lenient: true,
        is_loopback: true,
        earlier: Some(&earlier),
        ..FindOptions::default()
    };
    let block = "```json\n{\"name\": \"undo\", \"arguments\": {}}\n```";
    for thoughts in ["", "<think>I undo it.</think>\n", "I undo it.\n</think>\n"] {
        let text = format!("{thoughts}{block}\n");
        let pieces: Vec<String> = text.chars().map(String::from).collect();
        let (screen, found) =
            stream(&pieces.iter().map(String::as_str).collect::<Vec<_>>(), &options);
        assert_eq!((found.calls.len(), screen.trim()), (1, ""), "{text}");
        let (screen, found) = stream(&[&text, "Done."], &options);
        assert_eq!((found.calls.len(), screen.trim()), (0, &*format!("{block}\nDone.")), "{text}");
    }
}

#[test]
fn block_of_a_call_is_never_shown() {
    let offered = offered();
    let text = "I look.\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>\n```bash\nls\n```\nDone";
    let mut splitter = CallSplitter::new(&offered, false);
    let mut screen = String::new();
    for c in text.chars() {
        screen.push_str(&splitter.push(c.encode_utf8(&mut [0; 4])).text);
        assert!("I look.\n\nDone".starts_with(&screen), "{screen}");
    }
    let (shown, found) = splitter.finish(&FindOptions::default());
    assert_eq!((screen + &shown.text, found.calls.len()), ("I look.\n\nDone".to_owned(), 2));
}

#[test]
fn prose_is_shown_at_once() {
    let offered = offered();
    let mut splitter = CallSplitter::new(&offered, true);
    for word in [
        "Hello ",
        "a <b ",
        "and `code` ",
        "x < y\n",
        "Next ",
        "**line**",
        "\n```rust\nfn ",
        "main() ",
        "{}\n",
        "  body",
    ] {
        assert_eq!(splitter.push(word).text, word, "{word}");
    }
    let (shown, _) = splitter.finish(&FindOptions::default());
    assert_eq!(shown, ShownText::default());
}

#[test]
fn white_space_is_not_held_for_ever() {
    let offered = offered();
    let mut splitter = CallSplitter::new(&offered, false);
    let spaces = " ".repeat(400);
    assert_eq!(splitter.push(&spaces).text, spaces);
}

#[test]
fn thoughts_arrive_apart() {
    let offered = offered();
    let mut splitter = CallSplitter::new(&offered, false);
    assert_eq!(splitter.push("<think>Let me").thoughts, "Let me");
    let shown = splitter.push(" see</think>Yes");
    assert_eq!((shown.thoughts.as_str(), shown.text.as_str()), (" see", "Yes"));
    let shown = splitter.push(", but</think>No");
    assert_eq!((shown.was_thoughts, shown.text.as_str()), (true, "No"));
    assert_eq!(shown.thoughts, ", but");
    let (_, found) = splitter.finish(&FindOptions::default());
    assert_eq!(
        (found.text_without_calls.as_str(), found.thoughts.as_str()),
        ("No", "Let me seeYes, but")
    );
}
