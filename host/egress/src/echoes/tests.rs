use berth_policy::spelling::DEPTH;

use super::*;

const SECRET: &str = "s3cr&t/Value~+42\"x";

fn echoes() -> Echoes {
    Echoes::from_secrets([("token", SECRET)]).expect("there is one")
}

/// What the usual encoders with percent signs leave as it is beside letters and digits, and whether
/// they write a space as `+`: those of RFC 3986, of forms, of PHP, of JavaScript for a part and for
/// a whole address, of Python, one that leaves letters and digits alone, and one that leaves
/// nothing.
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

/// A secret as others write it: forms, JavaScript, Python, Go's JSON and HTML, and programs that
/// escape more than they have to.
fn written(secret: &str) -> Vec<String> {
    let percent = |kept: &str, space: bool, upper: bool| -> String {
        let one = |byte: u8| match byte {
            b' ' if space => "+".to_owned(),
            byte if kept.as_bytes().contains(&byte)
                || !kept.is_empty() && byte.is_ascii_alphanumeric() =>
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
    let escaped = |special: &str, as_what: fn(u32) -> String| -> String {
        secret
            .chars()
            .map(|c| if special.contains(c) { as_what(u32::from(c)) } else { c.to_string() })
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
        all.extend(LEFT_PLAIN.iter().map(|(kept, space)| percent(kept, *space, upper)));
    }
    all
}

#[test]
fn secret_is_found_as_servers_write_it() {
    let echoes = echoes();
    let mut all: Vec<Vec<u8>> = forms(SECRET)
        .into_iter()
        .chain(written(SECRET).into_iter().map(String::into_bytes))
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
        assert!(echoes.is_in(&form), "{}", String::from_utf8_lossy(&form));
        let whole =
            echoes.without(&[b"before ", &form[..], b" behind"].concat()).expect("it is in there");
        let whole = String::from_utf8_lossy(&whole);
        assert!(
            whole.starts_with("before ")
                && whole.ends_with(" behind")
                && whole.contains("[REDACTED:token]"),
            "{whole}"
        );
    }
    assert!(!echoes.is_in(b"a page about secrets"));
    let spaced = Echoes::from_secrets([("token", "two words & more")]).expect("there is one");
    for form in written("two words & more") {
        assert!(spaced.is_in(form.as_bytes()), "{form}");
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
        let echoes = Echoes::from_secrets([("token", secret)]).expect("there is one");
        assert!(echoes.is_in(secret.as_bytes()), "{secret}");
        for form in written(secret) {
            let whole = echoes.without(format!("before {form} behind").as_bytes());
            assert!(whole.is_some(), "{secret} as {form}");
        }
    }
}

#[test]
fn pieces_of_any_size_are_without_it_and_lose_nothing_else() {
    let echoes = echoes();
    let text = format!(
        "before {SECRET} between {} {SECRET}{SECRET} s3cr& s3cr\\u0026 {} behind s3cr&t/Value~+42\"",
        STANDARD.encode(SECRET),
        written(SECRET).join(" | "),
    );
    let whole = echoes.without(text.as_bytes()).expect("it is in there");
    assert!(!String::from_utf8_lossy(&whole).contains(SECRET));
    for size in (1..40).chain([100, 255, 256, 257, 1000, text.len()]) {
        let mut pieces = Pieces::default();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            out.extend(pieces.next(&echoes, piece, false));
        }
        out.extend(pieces.next(&echoes, b"", true));
        assert_eq!(
            String::from_utf8_lossy(&out),
            String::from_utf8_lossy(&whole),
            "in pieces of {size}"
        );
    }
}

#[test]
fn longest_of_several_secrets_counts() {
    let echoes =
        Echoes::from_secrets([("short", "abcdef"), ("long", "abcdefghij"), ("other", "cdefgh123")])
            .expect("there are some");
    let without = |text: &str| {
        String::from_utf8_lossy(&echoes.without(text.as_bytes()).unwrap_or_default()).into_owned()
    };
    assert_eq!(without("1abcdefghij2"), "1[REDACTED:long]2");
    assert_eq!(without("1abcdefghi2"), "1[REDACTED:short]ghi2");
    // Overlapping ones go together.
    assert_eq!(without("1abcdefgh1234"), "1[REDACTED:short]4");
    assert_eq!(without("abcdefabcdef"), "[REDACTED:short][REDACTED:short]");
}

/// Random numbers, the same for one seed.
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

    /// Writes a text as one of many programs would: what they have to escape, and some of the rest.
    fn escape(&mut self, text: &str, program: usize, percentage: usize) -> String {
        let mut out = String::new();
        for c in text.chars() {
            let code = u32::from(c);
            let more = self.below(100) < percentage;
            out += &match program {
                0 | 1 if c == '\\' && !more => "\\\\".to_owned(),
                0 if c == '"' && !more => "\\\"".to_owned(),
                0 if more => format!("\\u{code:04x}"),
                1 if more && c.is_ascii_punctuation() => format!("\\{c}"),
                2 if c == '&' && !more => "&amp;".to_owned(),
                2 if more => {
                    [format!("&#{code};"), format!("&#x{code:x};"), format!("&#x{code:04X};")]
                        [self.below(3)]
                    .clone()
                }
                3 if more || c == '%' => {
                    [format!("%{code:02X}"), format!("%{code:02x}")][self.below(2)].clone()
                }
                4 if more || c == '=' => format!("={code:02X}"),
                _ => c.to_string(),
            };
        }
        out
    }
}

/// A seed of its own in each long run, which `BERTH_SEED` repeats.
fn seed() -> u64 {
    std::env::var("BERTH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        match std::env::var_os("BERTH_SOAK") {
            Some(_) => {
                std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64 | 1)
            }
            None => 0x2545_f491_4f6c_dd1d,
        }
    })
}

fn rounds(few: usize, many: usize) -> usize {
    if std::env::var_os("BERTH_SOAK").is_some() { many } else { few }
}

const PRINTABLE: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 !#$()*+,-./:;<>?@[]^_`{|}~'\"=&%\\\\&&%%==";

#[test]
fn soak_random_spellings_in_random_pieces_are_found() {
    let seed = seed();
    let mut random = Random(seed);
    for round in 0..rounds(150, 20_000) {
        let (length, depth) = (8 + random.below(30), random.below(DEPTH + 1));
        let secret = random.text(PRINTABLE, length) + "z";
        // Three times over, a backslash of the secret's own and what comes behind it may be taken
        // for an escape.
        let secret = if depth > 2 { secret.replace('\\', "/") } else { secret };
        // Nothing that begins or ends an escape with what stands beside it, so that what has to be
        // left over is known.
        let lengths = (random.below(60), random.below(60));
        let mut parts = [
            random.text(PRINTABLE, lengths.0) + " Z",
            secret.clone(),
            "Z ".to_owned() + &random.text(PRINTABLE, lengths.1),
        ];
        for _ in 0..depth {
            // Deeper ones are of what has to be escaped alone, as programs write it that hand on
            // what others wrote. What escapes any sign leaves open what was meant; within others it
            // is not told apart each time.
            let program = if depth == 1 { random.below(5) } else { [0, 2, 3][random.below(3)] };
            let percentage = if depth > 2 { 0 } else { [0, 20, 100][random.below(3)] };
            parts = parts.map(|part| random.escape(&part, program, percentage));
        }
        let echoes = Echoes::from_secrets([("token", &*secret)]).expect("there is one");
        let text = parts.concat();
        let (mut pieces, mut out, mut rest) = (Pieces::default(), Vec::new(), text.as_bytes());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(1 + random.below(rest.len().min(40)));
            out.extend(pieces.next(&echoes, piece, false));
            rest = behind;
        }
        out.extend(pieces.next(&echoes, b"", true));
        let expected = format!("{}[REDACTED:token]{}", parts[0], parts[2]);
        assert_eq!(
            String::from_utf8_lossy(&out),
            expected,
            "round {round} of BERTH_SEED={seed}: {secret:?} in {text:?}"
        );
    }
}

#[test]
fn soak_texts_without_a_secret_stay_as_they_are() {
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
        let (mut pieces, mut out, mut rest) = (Pieces::default(), Vec::new(), &text[..]);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(1 + random.below(rest.len().min(300)));
            out.extend(pieces.next(&echoes, piece, false));
            rest = behind;
        }
        out.extend(pieces.next(&echoes, b"", true));
        assert!(
            out == text,
            "round {round} of BERTH_SEED={seed}: {:?} of {:?}",
            String::from_utf8_lossy(&out),
            String::from_utf8_lossy(&text)
        );
        // Little of it is held back at any time.
        assert!(pieces.kept.is_empty() && pieces.begun.is_empty() && pieces.later.is_empty());
    }
}
