//! Random texts of pieces that secrets and their keys are made of.

use proptest::prelude::*;

use super::super::*;
use super::issued;

/// Pieces of secrets, of their keys, and of texts that look like them.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "password",
        "token=",
        "api_key: ",
        "\"secret\": \"",
        "Authorization: Bearer ",
        "Cookie: a=",
        "://",
        "user:",
        "@host",
        "gh",
        "p_",
        "sk-",
        "AKIA",
        "eyJ",
        "-----BEGIN ",
        "-----END ",
        "RSA PRIVATE KEY-----",
        "\n",
        "\\n",
        " ",
        "\"",
        "'",
        "\\\"",
        "%3D",
        "%22",
        "%",
        "=",
        ":",
        "=>",
        ";",
        ",",
        "$",
        "{",
        "[REDACTED:",
        "[REDACTED:password hu…]",
        "…]",
        "é",
        "漢",
        "\u{1f600}",
        "\t",
        "<password>",
        "</",
        "login me password ",
        "1//0",
        "-us12",
        ":AA",
        "8Q~",
        "MTIz",
        "xxxxxxxx",
        "hunter2hunter2",
        "dXNlcj1tZQpwYXNzd29yZD1odW50ZXIyMg",
        "password: |\n  ",
        "\n  - ",
        "\"pass\\u0077ord\": ",
        "[",
        "]",
        "\"\"\"",
        "\" value=\"",
        "\n   3\t",
    ];
    prop_oneof![
        4 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        2 => "[A-Za-z0-9]{1,40}",
        1 => "[A-Za-z0-9+/=_.-]{16,80}",
        1 => "\\PC{0,6}",
    ]
}

/// `text` with a NUL for each mark. No piece has a NUL.
fn without_marks(text: &str) -> String {
    let mut out = String::new();
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let mark = mark::length(&text.as_bytes()[at..]);
        out.push(if mark > 0 { '\0' } else { next });
        at += if mark > 0 { mark } else { next.len_utf8() };
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn redaction_is_bounded_and_idempotent_without_panic(pieces in proptest::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        for keys in [Keys::Unknown, Keys::Text, Keys::Settings, Keys::PrivateKey] {
            let once = crate::text(&text, keys);
            prop_assert!(once.len() <= 8 * text.len(), "{text:?} grows to {once:?}");
            let twice = crate::text(&once, keys).into_owned();
            prop_assert_eq!(&twice, &*once, "{:?}", text);
        }
        let mut parts = pieces.clone();
        across(&mut parts.iter_mut().collect::<Vec<_>>(), Keys::Settings);
        prop_assert_eq!(parts.len(), pieces.len());
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            json(value, Keys::Text);
        }
    }

    #[test]
    fn parts_of_a_text_hold_no_secret_of_the_whole(pieces in proptest::collection::vec(piece(), 0..40), at in 0_usize..2000) {
        let text = pieces.concat();
        let at = text.floor_char_boundary(at);
        for keys in [Keys::Unknown, Keys::Text, Keys::Settings] {
            let found = find(&text, &|_| keys, 0);
            let once = put_marks(&text, &found, &mut Vec::new());
            let parts = part(&text, 0, at, keys) + &part(&text, at, text.len(), keys);
            // A mark isn't text of a secret, also where its characters complete one.
            let once_without_marks = without_marks(&once);
            let parts_without_marks = without_marks(&parts);
            for secret in found.iter().map(|found| &text[found.start..found.end]) {
                let left = parts_without_marks.contains(secret);
                prop_assert!(!left || once_without_marks.contains(secret), "{} at {}", text, at);
            }
            if found.is_empty() && crate::text(&text[..at], keys) == text[..at] && crate::text(&text[at..], keys) == text[at..] {
                prop_assert_eq!(&parts, &text);
            }
        }
    }

    #[test]
    fn credential_is_found_at_every_place(pieces in proptest::collection::vec(piece(), 0..12), at in 0_usize..12) {
        let (_, secret) = &issued()[0];
        let mut pieces = pieces;
        pieces.insert(at.min(pieces.len()), format!(" {secret} "));
        let redacted = crate::text(&pieces.concat(), Keys::Text).into_owned();
        prop_assert!(!redacted.contains(&secret[8..]), "{redacted}");
    }
}
