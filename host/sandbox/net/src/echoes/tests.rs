//! Tests of echoes: secrets are found in every encoding of servers, in pieces of any size.

use toolhold_policy::spelling::DEPTH;

use super::*;

const SECRET: &str = "s3cr&t/Value~+42\"x";

fn echoes() -> Echoes {
    Echoes::from_secrets([("token", SECRET)]).expect("a secret")
}

/// The characters that the usual percent encoders leave unchanged beside letters and digits, and
/// whether they write a space as `+`. In this order: RFC 3986, HTML forms, PHP, JavaScript for a
/// component and for a whole URL, Python, an encoder of everything but letters and digits, and an
/// encoder of everything.
const UNENCODED: [(&str, bool); 9] = [
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

/// A secret in the encodings of other programs: HTML forms, JavaScript, Python, Go's JSON and HTML,
/// and programs that escape more than necessary.
fn encodings(secret: &str) -> Vec<String> {
    let percent = |unencoded: &str, space: bool, upper: bool| -> String {
        let one = |byte: u8| match byte {
            b' ' if space => "+".to_owned(),
            byte if unencoded.as_bytes().contains(&byte)
                || !unencoded.is_empty() && byte.is_ascii_alphanumeric() =>
            {
                char::from(byte).to_string()
            }
            byte if upper => format!("%{byte:02X}"),
            byte => format!("%{byte:02x}"),
        };
        secret.bytes().map(one).collect()
    };
    let json = serde_json::Value::from(secret).to_string();
    let json = json.trim_matches('"').to_owned();
    let escaped = |special: &str, escape: fn(u32) -> String| -> String {
        secret
            .chars()
            .map(|c| if special.contains(c) { escape(u32::from(c)) } else { c.to_string() })
            .collect()
    };
    let html = secret
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;");
    let again = serde_json::Value::from(json.replace('/', "\\/")).to_string();
    let mut all = vec![
        json.replace('/', "\\/"),
        json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"),
        json,
        again,
        escaped("&<>'", |c| format!("\\u{c:04x}")),
        escaped("&<>'\"+/=", |c| format!("\\u{c:04X}")),
        escaped("&<>'\"+/=", |c| format!("\\\\u{c:04X}")),
        html.replace('\'', "&#39;"),
        html.replace('\'', "&#x27;"),
        html.replace('+', "&plus;").replace('/', "&sol;").replace('~', "&#x7E;"),
        html.replace('&', "&amp;"),
        escaped("&<>'\"+/=`", |c| format!("&#{c};")),
        escaped("&<>'\"+/=`", |c| format!("&#x{c:x};")),
        escaped("&<>'\"+/=`", |c| format!("&#x{c:X};")),
        escaped("&+\"~/", |c| format!("%25{c:02X}")),
        escaped("&+\"~/", |c| format!("={c:02X}")),
        escaped("&+\"~/", |c| format!("\\x{c:02x}")),
        escaped("&+\"~/_", |c| format!("\\{}", char::from_u32(c).unwrap_or_default())),
        secret.chars().map(|c| format!("&#{};", u32::from(c))).collect(),
        secret.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect(),
        secret.chars().map(|c| format!("\\\\u{:04x}", u32::from(c))).collect(),
        secret.chars().map(|c| format!("&amp;#x{:X};", u32::from(c))).collect(),
    ];
    for upper in [true, false] {
        all.extend(UNENCODED.iter().map(|(unencoded, space)| percent(unencoded, *space, upper)));
    }
    all
}

#[test]
fn secret_is_found_in_the_encodings_of_servers() {
    let echoes = echoes();
    let mut all: Vec<Vec<u8>> = forms(SECRET)
        .into_iter()
        .chain(encodings(SECRET).into_iter().map(String::into_bytes))
        .collect();
    all.extend((0..7).flat_map(|before| {
        let text = format!("{}{SECRET} and more", "u".repeat(before));
        [
            STANDARD.encode(&text).into_bytes(),
            URL_SAFE.encode(&text).into_bytes(),
            STANDARD.encode(&text).replace('/', "\\/").into_bytes(),
        ]
    }));
    for form in all {
        assert!(echoes.contains(&form), "{}", String::from_utf8_lossy(&form));
        let whole = echoes
            .redact(&[b"before ", &form[..], b" behind"].concat())
            .expect("a secret is found");
        let whole = String::from_utf8_lossy(&whole);
        assert!(
            whole.starts_with("before ")
                && whole.ends_with(" behind")
                && whole.contains("[REDACTED:token]"),
            "{whole}"
        );
    }
    assert!(!echoes.contains(b"a page about secrets"));
    let spaced = Echoes::from_secrets([("token", "two words & more")]).expect("a secret");
    for form in encodings("two words & more") {
        assert!(spaced.contains(form.as_bytes()), "{form}");
    }
}

#[test]
fn secret_that_looks_like_an_escape_is_found() {
    for secret in [
        "x%41%42\\u0041&amp;y",
        "\\\\server\\share",
        "100%25&lt;3",
        "a\\nb\\tc=3D",
        "%%%%%%%%",
        "&&&&\\\\\\\\",
    ] {
        let echoes = Echoes::from_secrets([("token", secret)]).expect("a secret");
        assert!(echoes.contains(secret.as_bytes()), "{secret}");
        for form in encodings(secret) {
            let whole = echoes.redact(format!("before {form} behind").as_bytes());
            assert!(whole.is_some(), "{secret} as {form}");
        }
    }
}

#[test]
fn pieces_of_any_size_lose_the_secret_and_nothing_else() {
    let echoes = echoes();
    let text = format!(
        "before {SECRET} between {} {SECRET}{SECRET} s3cr& s3cr\\u0026 {} behind s3cr&t/Value~+42\"",
        STANDARD.encode(SECRET),
        encodings(SECRET).join(" | "),
    );
    let whole = echoes.redact(text.as_bytes()).expect("a secret is found");
    assert!(!String::from_utf8_lossy(&whole).contains(SECRET));
    for size in (1..40).chain([100, 255, 256, 257, 1000, text.len()]) {
        let mut redactor = EchoRedactor::default();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            out.extend(redactor.redact_piece(&echoes, piece, false));
        }
        out.extend(redactor.redact_piece(&echoes, b"", true));
        assert_eq!(
            String::from_utf8_lossy(&out),
            String::from_utf8_lossy(&whole),
            "in pieces of {size}"
        );
    }
}

#[test]
fn longest_match_of_several_secrets_is_redacted() {
    let echoes =
        Echoes::from_secrets([("short", "abcdef"), ("long", "abcdefghij"), ("other", "cdefgh123")])
            .expect("there are some");
    let without = |text: &str| {
        String::from_utf8_lossy(&echoes.redact(text.as_bytes()).unwrap_or_default()).into_owned()
    };
    assert_eq!(without("1abcdefghij2"), "1[REDACTED:long]2");
    assert_eq!(without("1abcdefghi2"), "1[REDACTED:short]ghi2");
    // Overlapping matches share one mark.
    assert_eq!(without("1abcdefgh1234"), "1[REDACTED:short]4");
    assert_eq!(without("abcdefabcdef"), "[REDACTED:short][REDACTED:short]");
}

/// Random numbers. The same seed gives the same numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap_or(usize::MAX) % bound
    }

    fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length).map(|_| char::from(alphabet[self.below(alphabet.len())])).collect()
    }

    /// Escapes a text as one of several programs does: the characters that it must escape, and
    /// `percentage` percent of the others.
    fn escape(&mut self, text: &str, program: usize, percentage: usize) -> String {
        let mut out = String::new();
        for c in text.chars() {
            let code = u32::from(c);
            let extra = self.below(100) < percentage;
            out += &match program {
                0 | 1 if c == '\\' && !extra => "\\\\".to_owned(),
                0 if c == '"' && !extra => "\\\"".to_owned(),
                0 if extra => format!("\\u{code:04x}"),
                1 if extra && c.is_ascii_punctuation() => format!("\\{c}"),
                2 if c == '&' && !extra => "&amp;".to_owned(),
                2 if extra => {
                    [format!("&#{code};"), format!("&#x{code:x};"), format!("&#x{code:04X};")]
                        [self.below(3)]
                    .clone()
                }
                3 if extra || c == '%' => {
                    [format!("%{code:02X}"), format!("%{code:02x}")][self.below(2)].clone()
                }
                4 if extra || c == '=' => format!("={code:02X}"),
                _ => c.to_string(),
            };
        }
        out
    }
}

/// The seed: that of `TOOLHOLD_SEED`, a new one in each soak run, otherwise a fixed one.
fn seed() -> u64 {
    std::env::var("TOOLHOLD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        match std::env::var_os("TOOLHOLD_SOAK") {
            Some(_) => {
                std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64 | 1)
            }
            None => 0x2545_f491_4f6c_dd1d,
        }
    })
}

fn rounds(few: usize, many: usize) -> usize {
    if std::env::var_os("TOOLHOLD_SOAK").is_some() { many } else { few }
}

const PRINTABLE: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 !#$()*+,-./:;<>?@[]^_`{|}~'\"=&%\\\\&&%%==";

#[test]
fn soak_random_escapes_in_random_pieces_are_found() {
    let seed = seed();
    let mut random = Random(seed);
    for round in 0..rounds(150, 20_000) {
        let (length, depth) = (8 + random.below(30), random.below(DEPTH + 1));
        let secret = random.text(PRINTABLE, length) + "z";
        // After three rounds of escaping, a backslash of the secret and the text after it can look
        // like an escape.
        let secret = if depth > 2 { secret.replace('\\', "/") } else { secret };
        // The text beside the secret can't form an escape with it, so the expected rest is known.
        let lengths = (random.below(60), random.below(60));
        let mut parts = [
            random.text(PRINTABLE, lengths.0) + " Z",
            secret.clone(),
            "Z ".to_owned() + &random.text(PRINTABLE, lengths.1),
        ];
        for _ in 0..depth {
            // At greater depth, only what must be escaped is escaped, as by programs that pass on
            // the output of others. If any character can be escaped, nested escapes are ambiguous
            // and not always found.
            let program = if depth == 1 { random.below(5) } else { [0, 2, 3][random.below(3)] };
            let percentage = if depth > 2 { 0 } else { [0, 20, 100][random.below(3)] };
            parts = parts.map(|part| random.escape(&part, program, percentage));
        }
        let echoes = Echoes::from_secrets([("token", &*secret)]).expect("a secret");
        let text = parts.concat();
        let (mut redactor, mut out, mut rest) =
            (EchoRedactor::default(), Vec::new(), text.as_bytes());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + random.below(rest.len().min(40)));
            out.extend(redactor.redact_piece(&echoes, piece, false));
            rest = after;
        }
        out.extend(redactor.redact_piece(&echoes, b"", true));
        let expected = format!("{}[REDACTED:token]{}", parts[0], parts[2]);
        assert_eq!(
            String::from_utf8_lossy(&out),
            expected,
            "round {round} of TOOLHOLD_SEED={seed}: {secret:?} in {text:?}"
        );
    }
}

#[test]
fn soak_text_without_a_secret_stays_unchanged() {
    let seed = seed();
    let mut random = Random(seed);
    for round in 0..rounds(100, 20_000) {
        let secrets = [random.text(PRINTABLE, 12), random.text(b"ab\\%&", 12)];
        let echoes = Echoes::from_secrets([("one", &*secrets[0]), ("two", &*secrets[1])])
            .expect("there are two");
        let length = random.below(2000);
        let alphabet: &[u8] =
            [PRINTABLE, b"ab\\%&;#x25u0", b"\\", &[0, 255, b'%', 0x80, b'a']][random.below(4)];
        let text: Vec<u8> = (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect();
        let (mut redactor, mut out, mut rest) = (EchoRedactor::default(), Vec::new(), &text[..]);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + random.below(rest.len().min(300)));
            out.extend(redactor.redact_piece(&echoes, piece, false));
            rest = after;
        }
        out.extend(redactor.redact_piece(&echoes, b"", true));
        assert!(
            out == text,
            "round {round} of TOOLHOLD_SEED={seed}: {:?} of {:?}",
            String::from_utf8_lossy(&out),
            String::from_utf8_lossy(&text)
        );
        // Nothing is held back at the end.
        assert!(redactor.buffer.is_empty());
        assert!(redactor.partial.is_empty() && redactor.later.is_empty());
    }
}
