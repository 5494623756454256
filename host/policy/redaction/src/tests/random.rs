//! Random texts of pieces that secrets and their keys are made of.

use proptest::prelude::*;

use super::super::*;
use super::issued;
use crate::find::{next_trigger, scan};

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

#[test]
fn scan_stops_at_each_trigger_in_random_bytes() {
    let mut groups: Vec<Vec<u8>> = Vec::new();
    for word in keys::WORDS.into_iter().chain(["bearer", "basic"]) {
        let cases = |byte: u8| [byte, byte.to_ascii_uppercase()];
        let word = word.as_bytes();
        for first in cases(word[0]) {
            for second in cases(word[1]) {
                groups.extend(cases(word[2]).map(|third| vec![first, second, third]));
            }
        }
    }
    for prefix in (0..).map_while(shapes::prefix) {
        let ends: &[u8] = if prefix.len() == 2 { b"0123456789abcdefABCDEF" } else { &prefix[2..3] };
        groups.extend(ends.iter().map(|end| vec![prefix[0], prefix[1], *end]));
    }
    groups.extend(blocks::BEGINNINGS.map(|word| word.as_bytes()[..3].to_vec()));
    let [first, second, third] = shapes::DISCORD;
    for first in first {
        for second in second {
            groups.extend(third.iter().map(|third| vec![*first, *second, *third]));
        }
    }
    let others = "\\u0 :// -BE -EN :AA 1// -us eyJ [RE %3D %3d %3A %3a %20 %2F %2f %22 %40";
    groups.extend(others.split(' ').map(|group| group.as_bytes().to_vec()));
    assert!(groups.len() > 300 && groups.iter().all(|group| group.len() == 3));

    // Bytes of which many are in triggers, and each trigger somewhere among them.
    let letters: Vec<u8> = groups.iter().flatten().copied().chain(0..=255).collect();
    let mut state = 7_u64;
    let mut next = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut bytes = Vec::new();
    for group in groups.iter().cycle().take(20 * groups.len()) {
        let around = next(12);
        bytes.extend((0..around).map(|_| letters[next(letters.len())]));
        bytes.extend_from_slice(group);
    }
    let triggers = bytes.windows(3).enumerate();
    let expected: Vec<usize> = triggers
        .filter(|(_, three)| groups.iter().any(|group| group == three))
        .map(|(at, _)| at)
        .collect();
    let (mut stops, mut at) = (Vec::new(), 0);
    while let Some(stop) = next_trigger(&bytes, at) {
        stops.push(stop);
        at = stop + 1;
    }
    let missed = expected.iter().find(|at| stops.binary_search(at).is_err());
    assert_eq!(missed, None, "of {} triggers", expected.len());
    // It stops in vain too, but not often, and at nothing in most texts.
    assert!(
        expected.len() > 20 * groups.len() && stops.len() < 3 * expected.len(),
        "{} stops",
        stops.len()
    );
    assert_eq!(next_trigger(&b"    \t\n  0123456789 (x, y) => z; ".repeat(100), 0), None);
    for length in 0..12 {
        assert_eq!(next_trigger(&[&b"zzzzzzzzzzzz"[..length], b"ghp"].concat(), 0), Some(length));
        assert_eq!(next_trigger(&[&b"zzzzzzzzzzzz"[..length], b"gh"].concat(), 0), None);
    }
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
    fn scan_of_the_triggers_finds_what_a_scan_of_every_place_finds(pieces in proptest::collection::vec(piece(), 0..40), from in 0_usize..70) {
        let text = pieces.concat();
        let text = &text[text.ceil_char_boundary(from.min(text.len()))..];
        let every_place = |bytes: &[u8], at: usize| (at + 2 < bytes.len()).then_some(at);
        for keys in [Keys::Unknown, Keys::Text, Keys::Settings] {
            let expected = scan(text, &|_| keys, 0, every_place);
            prop_assert_eq!(scan(text, &|_| keys, 0, next_trigger), expected, "{:?}", text);
        }
    }

    #[test]
    fn runs_of_base64_are_those_that_are_found_byte_by_byte(text in "([A-Za-z0-9+/_-]{0,70}[ .=é\n]){0,12}[A-Za-z0-9]{0,70}", from in 0_usize..70) {
        let bytes = &text.as_bytes()[from.min(text.len())..];
        let (mut expected, mut start) = (Vec::new(), 0);
        for at in 0..=bytes.len() {
            let inside = bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte));
            if !inside {
                if at - start >= 22 {
                    expected.push((start, at));
                }
                start = at + 1;
            }
        }
        let mut found: Vec<(usize, usize)> = Vec::new();
        while let Some(run) = encoded::next_run(bytes, found.last().map_or(0, |run| run.1)) {
            found.push(run);
        }
        prop_assert_eq!(found, expected, "{:?}", text);
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
