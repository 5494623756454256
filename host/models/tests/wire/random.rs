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
    let cases = if std::env::var_os("BERTH_SOAK").is_some() { few * 500 } else { few };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn every_cut_into_two_gives_the_same() {
    for format in 0..FORMATS.len() {
        let (format, stream) = stream(format);
        let whole = decode(format, &stream);
        assert!(whole.1.is_ok());
        let step = if std::env::var_os("BERTH_SOAK").is_some() { 1 } else { 3 };
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
