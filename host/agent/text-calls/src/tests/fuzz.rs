//! Any message of a model: pieces don't matter, bounds apply, and what is quoted is no call.

use toolhold_fuzz::{Result, Target, Unstructured, json, json_text};

use super::streaming::{TOKENS, stream};
use super::*;

#[test]
fn soak_any_message_is_searched_for_calls() {
    let target = Target {
        name: "text-calls",
        test: "tests::fuzz::soak_any_message_is_searched_for_calls",
        tokens: &TOKENS,
        generate: message,
        read: |entry| entry,
        cases: 200,
    };
    target.run(|input| check(&String::from_utf8_lossy(input)));
}

fn check(text: &str) {
    let earlier = earlier_texts(&[cut(text, 500), "<tool_call>{\"name\":\"undo\"}</tool_call>"]);
    for options in [
        FindOptions::default(),
        FindOptions {
            is_lenient: true,
            is_loopback: true,
            earlier: Some(&earlier),
            ..FindOptions::default()
        },
    ] {
        let whole = find(text, &offered(), &options);
        for size in [1, 7, 300] {
            let (screen, found) = stream(&pieces(text, size), &options);
            assert_eq!(found, whole, "in pieces of {size}");
            assert_eq!(screen, whole.text_without_calls, "in pieces of {size}");
        }
        assert!(whole.calls.len() <= MAX_CALLS && whole.rejected.len() <= MAX_REJECTED);
        assert!(whole.calls.iter().all(|call| call.arguments.is_object()));
        assert!(whole.text_without_calls.len() <= text.len());
    }
    let quoted: String = text.split('\n').map(|line| format!("> {line}\n")).collect();
    assert_eq!(found(&quoted).calls, [], "it is quoted");
    let fenced = format!("~~~~~text\n{}\n~~~~~", text.replace("~~~", "~"));
    assert_eq!(found(&fenced).calls, [], "it is in a block of another kind");
}

/// The text in pieces of about this number of bytes.
fn pieces(mut text: &str, size: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.ceil_char_boundary(size));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

/// Prose, with calls in every form.
fn message(random: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const KEYS: [&str; 8] =
        ["name", "arguments", "parameters", "function", "tool", "path", "command", "type"];
    const PROSE: [&str; 8] =
        ["I look.\n", "\n", "> quoted\n", "- item\n", "text ", "    code\n", "| a |\n", "é 漢\n"];
    let mut message = String::new();
    for _ in 0..random.int_in_range(1..=6)? {
        let name = *random.choose(&["read", "bash", "undo", "nothing"])?;
        let value = json(random, &KEYS, 3)?;
        let call = match random.int_in_range(0..=2)? {
            0 => value.clone(),
            _ => format!(r#"{{"name":{},"arguments":{value}}}"#, json_text(name)),
        };
        message += &match random.int_in_range(0..=9)? {
            0 => format!("<tool_call>\n{call}\n</tool_call>\n"),
            1 => format!("<tool_call>{call}"),
            2 => format!("```tool_call\n{call}\n```\n"),
            3 => format!("```tool {name}\n{value}\n```\n"),
            4 => format!(
                "<invoke name=\"{name}\"><parameter name=\"path\">{value}</parameter></invoke>\n"
            ),
            5 => format!("<function={name}><parameter=path>\n{value}\n</parameter></function>\n"),
            6 => format!("```{name}\nls -l\n```\n"),
            7 => format!("{name}/{value}\n"),
            8 => format!("```json\n[{call},{call}]\n```\n"),
            _ => (*random.choose(&TOKENS)?).to_owned(),
        };
        message += random.choose(&PROSE)?;
    }
    Ok(message.into_bytes())
}
