//! Streams that are cut anywhere, and streams that are broken anywhere.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Streams of each format, with all that is in their documents.
fn stream(format: usize) -> (WireFormat, String) {
    let format = FORMATS[format % FORMATS.len()];
    (format, requests::documented(format))
}

fn cut<'s>(bytes: &'s [u8], at: &[prop::sample::Index]) -> Vec<&'s [u8]> {
    let mut at: Vec<usize> = at.iter().map(|index| index.index(bytes.len() + 1)).collect();
    at.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for to in at.into_iter().chain([bytes.len()]) {
        pieces.push(&bytes[from..to]);
        from = to;
    }
    pieces
}

/// A way to break a stream.
#[derive(Clone, Debug)]
enum Break {
    Remove(usize),
    Insert(Vec<u8>),
    Repeat(usize),
    End,
}

/// What parsers stumble over.
const PIECES: [&str; 16] = [
    "null", "{", "}", "[]", "\"", "\\", "\\ud83d", ":", "\r", "\n\n", "data: ", "-1", "1e999",
    "\u{0}", "\u{feff}", "\u{202e}",
];

fn breaks() -> impl Strategy<Value = Vec<(prop::sample::Index, Break)>> {
    let one = prop_oneof![
        (1..40usize).prop_map(Break::Remove),
        prop::sample::select(&PIECES[..]).prop_map(|piece| Break::Insert(piece.into())),
        vec(any::<u8>(), 1..4).prop_map(Break::Insert),
        (1..400usize).prop_map(Break::Repeat),
        Just(Break::End),
    ];
    vec((any::<prop::sample::Index>(), one), 1..6)
}

fn broken(stream: &str, breaks: &[(prop::sample::Index, Break)]) -> Vec<u8> {
    let mut bytes = stream.as_bytes().to_vec();
    for (at, how) in breaks {
        let at = at.index(bytes.len() + 1);
        let end = |length: &usize| (at + length).min(bytes.len());
        match how {
            Break::Remove(length) => drop(bytes.drain(at..end(length))),
            Break::Insert(piece) => drop(bytes.splice(at..at, piece.iter().copied())),
            Break::Repeat(length) => {
                let again = bytes[at..end(length)].to_vec();
                bytes.splice(at..at, again);
            }
            // Seldom all of it.
            Break::End => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes
}

/// Many cases where time doesn't matter.
fn cases(few: u32) -> ProptestConfig {
    let cases = if std::env::var_os("TOOLHOLD_SOAK").is_some() { few * 100 } else { few };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn every_cut_into_two_gives_the_same() {
    for format in 0..FORMATS.len() {
        let (format, stream) = stream(format);
        let whole = decode(format, &stream);
        assert!(whole.1.is_ok());
        let step = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 1 } else { 3 };
        for at in (0..stream.len()).step_by(step) {
            let (one, two) = stream.as_bytes().split_at(at);
            assert_eq!(
                decode_pieces(format, &[one, two], WireCaps::default()),
                whole,
                "cut at {at}"
            );
        }
    }
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let one = prop_oneof![
        "[a-z\"\\\\\\n\u{0}é ]{0,6}".prop_map(Part::Text),
        "[A-Za-z+/]{4}".prop_map(|data| image(&data)),
    ];
    vec(one, 0..3)
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let own = || {
        prop::option::of("[a-z]{1,4}")
            .prop_map(|it| it.map(|it| raw(&format!("{{\"{it}\" : 1.0}}"))))
    };
    let one = prop_oneof![
        ("[a-z\" ]{0,6}", own()).prop_map(|(text, raw)| Block::Text { text, raw }),
        ("[a-z]{0,6}", own()).prop_map(|(text, raw)| Block::Thinking { text, raw }),
        own().prop_map(|it| Block::Opaque(it.unwrap_or_else(|| raw("{}")))),
        ("[a-z:é]{1,50}", "[a-z]{1,5}", "[{}a\":]{0,6}", own()).prop_map(
            |(id, name, arguments, raw)| { Block::Call(ModelCall { id, name, arguments, raw }) }
        ),
    ];
    vec(one, 0..4)
}

/// A message of any kind, of this provider or another one.
fn message() -> impl Strategy<Value = TurnMessage> {
    prop_oneof![
        parts().prop_map(TurnMessage::User),
        (any::<bool>(), 0..4usize, blocks()).prop_map(|(is_own, format, blocks)| {
            TurnMessage::Model(ModelAnswer {
                provider: if is_own { PROVIDER } else { "other" }.to_owned(),
                format: FORMATS[format],
                model: "m".to_owned(),
                blocks,
                stop: toolhold_models::FinishReason::End,
                usage: TokenUsage::default(),
            })
        }),
        vec(("[a-z:é]{1,50}", parts(), any::<bool>()), 0..3).prop_map(|results| {
            let result = |(call, content, failed)| CallResult {
                call,
                name: "t".to_owned(),
                content,
                failed,
            };
            TurnMessage::Results(results.into_iter().map(result).collect())
        }),
    ]
}

proptest! {
    #![proptest_config(cases(200))]

    /// Any conversation is JSON in each format, and begins with the bytes that it had when it was
    /// shorter.
    #[test]
    fn conversations_only_grow(messages in vec(message(), 1..6)) {
        for format in FORMATS {
            let mut turn = turn();
            let mut before = body_text(format, &turn, &options());
            for message in &messages {
                turn.messages.push(message.clone());
                let after = body_text(format, &turn, &options());
                let parsed: Result<Value, _> = serde_json::from_str(&after);
                prop_assert!(parsed.is_ok(), "{:?}: {}", parsed, after);
                let beginning = before.strip_suffix("]}").expect("the messages are last");
                prop_assert!(after.starts_with(beginning), "{}\n{}", before, after);
                before = after;
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn every_cut_gives_the_same(format in 0..4usize, at in vec(any::<prop::sample::Index>(), 0..40)) {
        let (format, stream) = stream(format);
        let whole = decode(format, &stream);
        let pieces = cut(stream.as_bytes(), &at);
        prop_assert_eq!(decode_pieces(format, &pieces, WireCaps::default()), whole);
    }
}

proptest! {
    #![proptest_config(cases(800))]

    /// Whatever comes, cuts don't matter, the caps hold, and what can be used can go back.
    #[test]
    fn broken_streams_do_no_harm(
        format in 0..4usize,
        breaks in breaks(),
        at in vec(any::<prop::sample::Index>(), 0..10),
        as_other in 0..4usize,
    ) {
        let (format, stream) = stream(format);
        let bytes = broken(&stream, &breaks);
        let caps = WireCaps { event: 700, arguments: 40, answer: 5_000, stream: 8_000, blocks: 9, calls: 4 };
        // Now and then it is the stream of another format.
        let read_as = if as_other == 0 { FORMATS[bytes.len() % 4] } else { format };
        let whole = decode_pieces(read_as, &[&bytes], caps);
        prop_assert_eq!(&decode_pieces(read_as, &cut(&bytes, &at), caps), &whole);
        if let Ok(answer) = whole.1 {
            prop_assert!(answer.blocks.len() <= 9 && answer.calls().count() <= 4);
            prop_assert!(answer.calls().all(|call| call.arguments.len() <= 700));
            prop_assert!(serde_json::to_string(&answer).is_ok_and(|text| text.len() < 40_000));
            let next = next_turn(&turn(), &answer);
            for format in FORMATS {
                let body = body_text(format, &next, &options());
                let body: Result<Value, _> = serde_json::from_str(&body);
                // Such a number is JSON, and goes back as it came.
                let is_large = |error: &serde_json::Error| error.to_string().contains("out of range");
                prop_assert!(body.as_ref().err().is_none_or(is_large), "{:?}", body);
            }
            let kept = serde_json::to_string(&next).expect("it is kept");
            prop_assert_eq!(serde_json::from_str::<Turn>(&kept).expect("it is read"), next);
        }
    }
}
