//! Secrets that come back: taken out of answers, in the forms in which servers repeat what they were sent.

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// Finds the secrets of one plugin, each in its encodings: as it is, in base64 wherever it stands in what was encoded, in hexadecimal, with
/// percent signs, and as JSON and HTML write it.
#[derive(Debug)]
pub(super) struct Echoes {
    patterns: AhoCorasick,
    /// What stands for each pattern's secret.
    marks: Vec<String>,
    /// Bytes of the longest pattern.
    longest: usize,
    /// How many secrets they are.
    pub(super) secrets: usize,
}

/// Bytes of a secret's encoding that are enough to tell it from other text.
const LEAST: usize = 6;

impl Echoes {
    /// Of secrets, each by its name.
    pub(super) fn of<'s>(secrets: impl IntoIterator<Item = (&'s str, &'s str)>) -> Option<Self> {
        let mut patterns: Vec<Vec<u8>> = Vec::new();
        let mut marks = Vec::new();
        let mut count = 0;
        for (name, secret) in secrets {
            count += 1;
            for form in forms(secret).into_iter().filter(|form| form.len() >= LEAST) {
                if !patterns.contains(&form) {
                    patterns.push(form);
                    marks.push(format!("[REDACTED:{name}]"));
                }
            }
        }
        let longest = patterns.iter().map(Vec::len).max()?;
        let patterns = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns).ok()?;
        Some(Self { patterns, marks, longest, secrets: count })
    }

    /// Whether one of them is in there.
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        self.patterns.is_match(bytes)
    }

    /// `bytes` without them. None where nothing was found.
    pub(super) fn without(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut done = 0;
        for found in self.patterns.find_iter(bytes) {
            out.extend_from_slice(&bytes[done..found.start()]);
            out.extend_from_slice(self.marks[found.pattern().as_usize()].as_bytes());
            done = found.end();
        }
        if done == 0 {
            return None;
        }
        out.extend_from_slice(&bytes[done..]);
        Some(out)
    }
}

/// Takes secrets out of something that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// What may be the beginning of one.
    kept: Vec<u8>,
}

impl Pieces {
    /// What of all that has come can go out: everything but what may be the beginning of a secret, unless there is no more (`end`).
    pub(super) fn next(&mut self, echoes: &Echoes, piece: &[u8], end: bool) -> Vec<u8> {
        self.kept.extend_from_slice(piece);
        let sure = if end { self.kept.len() } else { self.kept.len().saturating_sub(echoes.longest - 1) };
        let mut out = Vec::with_capacity(sure);
        let mut done = 0;
        for found in echoes.patterns.find_iter(&self.kept) {
            // One that begins later may be the beginning of a longer one.
            if found.start() >= sure {
                break;
            }
            out.extend_from_slice(&self.kept[done..found.start()]);
            out.extend_from_slice(echoes.marks[found.pattern().as_usize()].as_bytes());
            done = found.end();
        }
        if done < sure {
            out.extend_from_slice(&self.kept[done..sure]);
            done = sure;
        }
        self.kept.drain(..done);
        out
    }
}

/// What the usual encoders with percent signs leave as it is beside letters and digits, and whether they write a space as `+`: those of
/// RFC 3986, of forms, of PHP, of JavaScript for a part and for a whole address, of Python, one that leaves letters and digits alone, and one
/// that leaves nothing.
const LEFT_PLAIN: [(&str, bool); 9] = [
    ("-_.~", false),
    ("-_.~", true),
    ("-_.*", true),
    ("-_.", true),
    ("-_.!~*'()", false),
    ("-_.!~*'();,/?:@&=+$#", false),
    ("-_.~/", false),
    ("0", false),
    ("", false),
];

/// The forms of one secret.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let bytes = secret.as_bytes();
    let hex =
        |upper: bool| -> String { bytes.iter().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect() };
    let percent = |kept: &str, space: bool, upper: bool| -> String {
        let one = |byte: &u8| match byte {
            b' ' if space => "+".to_owned(),
            byte if kept.as_bytes().contains(byte) || !kept.is_empty() && byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
            byte if upper => format!("%{byte:02X}"),
            byte => format!("%{byte:02x}"),
        };
        bytes.iter().map(one).collect()
    };
    let json = serde_json::Value::from(secret).to_string();
    let json = json.trim_matches('"').to_owned();
    // As servers write it that escape more than they have to, each in its own way.
    let escaped = |special: &str, as_what: fn(u32) -> String| -> String {
        secret.chars().map(|c| if special.contains(c) { as_what(u32::from(c)) } else { c.to_string() }).collect()
    };
    let named = |apostrophe: &str| {
        let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        html.replace('\'', apostrophe)
    };
    let mut forms = vec![
        secret.to_owned(),
        secret.to_ascii_lowercase(),
        secret.to_ascii_uppercase(),
        hex(false),
        hex(true),
        json.replace('/', "\\/"),
        json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"),
        json,
        escaped("&<>'", |c| format!("\\u{c:04x}")),
        escaped("&<>'\"+/=", |c| format!("\\u{c:04x}")),
        escaped("&<>'\"+/=", |c| format!("\\u{c:04X}")),
        named("'"),
        named("&#39;"),
        named("&#x27;"),
        named("&apos;"),
        escaped("&<>'\"+", |c| format!("&#{c};")),
        escaped("&<>'\"+/=`", |c| format!("&#{c};")),
        escaped("&<>'\"+/=`", |c| format!("&#x{c:x};")),
        escaped("&<>'\"+/=`", |c| format!("&#x{c:X};")),
        named("&#39;").replace('+', "&#43;"),
        named("&#39;").replace("&quot;", "&#34;").replace('+', "&#43;"),
        secret.chars().map(|c| format!("&#{};", u32::from(c))).collect(),
    ];
    for upper in [true, false] {
        forms.extend(LEFT_PLAIN.iter().map(|(kept, space)| percent(kept, *space, upper)));
    }
    // What is base64 itself says something by what it stands for: a name and a password.
    let decoded = STANDARD.decode(secret).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some(decoded) = decoded.filter(|text| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() || c == ' ')) {
        forms.extend(decoded.split_once(':').map(|(_, password)| password.to_owned()).filter(|password| password.len() >= LEAST));
        forms.push(decoded);
    }
    // In base64, three bytes are four characters: where a secret stands behind one or two others, other characters come out, of which the
    // first and the last depend on its neighbours.
    for before in 0..3 {
        let mut padded = vec![0; before];
        padded.extend_from_slice(bytes);
        let (skipped, whole) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for engine in [&STANDARD, &URL_SAFE] {
            let encoded = engine.encode(&padded);
            forms.extend(encoded.get(skipped..whole).map(str::to_owned));
        }
    }
    let wide = |order: fn(u16) -> [u8; 2]| secret.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let wide = [wide(u16::to_le_bytes), wide(u16::to_be_bytes)];
    forms.into_iter().map(String::into_bytes).chain(wide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cr&t/Value~+42\"x";

    fn echoes() -> Echoes {
        Echoes::of([("token", SECRET)]).expect("there is one")
    }

    #[test]
    fn a_secret_is_found_in_each_of_its_forms() {
        let echoes = echoes();
        let mut all = forms(SECRET);
        // As others write it: forms, JavaScript, Python, Go's JSON and HTML.
        let others = ["s3cr%26t%2FValue%7E%2B42%22x", "s3cr%26t%2FValue~%2B42%22x", "s3cr%26t/Value~%2B42%22x", "s3cr&t/Value~+42%22x"];
        all.extend(others.into_iter().map(Vec::from));
        all.extend(["s3cr\\u0026t/Value~+42\\\"x", "s3cr&amp;t/Value~&#43;42&quot;x"].into_iter().map(Vec::from));
        all.extend((0..7).flat_map(|before| {
            let text = format!("{}{SECRET} and more", "u".repeat(before));
            [STANDARD.encode(&text).into_bytes(), URL_SAFE.encode(&text).into_bytes()]
        }));
        for form in all {
            assert!(echoes.is_in(&form), "{}", String::from_utf8_lossy(&form));
        }
        assert!(!echoes.is_in(b"a page about secrets"));
    }

    #[test]
    fn pieces_of_any_size_are_without_it_and_lose_nothing_else() {
        let echoes = echoes();
        let text = format!("before {SECRET} between {} {SECRET}{SECRET} s3cr& behind s3cr&t/Value~+42\"", STANDARD.encode(SECRET));
        let whole = echoes.without(text.as_bytes()).expect("it is in there");
        assert!(!String::from_utf8_lossy(&whole).contains(SECRET));
        for size in 1..text.len() {
            let mut pieces = Pieces::default();
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                out.extend(pieces.next(&echoes, piece, false));
            }
            out.extend(pieces.next(&echoes, b"", true));
            assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&whole), "in pieces of {size}");
        }
    }
}
