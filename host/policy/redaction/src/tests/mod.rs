//! Credentials of many kinds in typical texts, and texts that only look like credentials.
//!
//! The tests build the credentials at run time, so that a secret scanner doesn't report this file.

mod private_keys;
mod random;
mod settings;

use serde_json::json;

use super::found::EXAMINED;
use super::*;

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &str = "0123456789abcdef";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Characters of an alphabet in a fixed sequence that looks random.
fn random_text(alphabet: &str, length: usize) -> String {
    let state = 0x2545_F491_4F6C_DD1D_u64 ^ length as u64;
    let mut state = state;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(alphabet.as_bytes()[state as usize % alphabet.len()])
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn to_base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for place in 0..4 {
            out.push(if place > three.len() {
                '='
            } else {
                char::from(ALPHABET[(bits >> (18 - 6 * place) & 63) as usize])
            });
        }
    }
    out
}

fn to_percent(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn pem(label: &str) -> String {
    let lines: Vec<String> = (0..6).map(|line| random_text(ALNUM, 64 - line / 5 * 20)).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn jwt() -> String {
    let part = |value: &str| to_base64(value).trim_end_matches('=').to_owned();
    format!(
        "{}.{}.{}",
        part(r#"{"alg":"HS256","typ":"JWT"}"#),
        part(r#"{"sub":"1234567890","admin":true}"#),
        random_text(ALNUM, 43)
    )
}

/// Credentials that are found by their form, with their kinds.
fn issued() -> Vec<(&'static str, String)> {
    let token = |kind, pieces: [&str; 2], alphabet: &str, length: usize| {
        (kind, format!("{}{}{}", pieces[0], pieces[1], random_text(alphabet, length)))
    };
    let mut all = vec![
        token("github-token", ["gh", "p_"], ALNUM, 36),
        token("github-token", ["gh", "o_"], ALNUM, 36),
        token("github-token", ["gh", "s_"], ALNUM, 36),
        token("github-token", ["gh", "u_"], ALNUM, 36),
        token("github-token", ["gh", "r_"], ALNUM, 76),
        token("github-token", ["github", "_pat_"], ALNUM, 82),
        token("gitlab-token", ["gl", "pat-"], ALNUM, 20),
        token("gitlab-token", ["gl", "dt-"], ALNUM, 20),
        token("gitlab-token", ["gl", "rt-"], ALNUM, 20),
        token("slack-token", ["xo", "xb-"], ALNUM, 48),
        token("slack-token", ["xo", "xp-"], ALNUM, 60),
        token("slack-token", ["xa", "pp-"], ALNUM, 60),
        token("aws-key-id", ["AK", "IA"], UPPER, 16),
        token("aws-key-id", ["AS", "IA"], UPPER, 16),
        token("google-key", ["AI", "za"], ALNUM, 35),
        token("google-token", ["ya", "29."], ALNUM, 80),
        token("google-secret", ["GOC", "SPX-"], ALNUM, 28),
        token("google-token", ["1/", "/0"], ALNUM, 60),
        token("openai-key", ["sk", "-"], ALNUM, 48),
        token("openai-key", ["sk-", "proj-"], ALNUM, 120),
        token("openai-key", ["sk-", "svcacct-"], ALNUM, 120),
        token("anthropic-key", ["sk-", "ant-api03-"], ALNUM, 93),
        token("openrouter-key", ["sk-", "or-v1-"], HEX, 64),
        token("groq-key", ["gs", "k_"], ALNUM, 52),
        token("xai-key", ["xa", "i-"], ALNUM, 80),
        token("huggingface-token", ["h", "f_"], ALNUM, 34),
        token("replicate-token", ["r", "8_"], ALNUM, 37),
        token("perplexity-key", ["pp", "lx-"], ALNUM, 48),
        token("nvidia-key", ["nv", "api-"], ALNUM, 64),
        token("stripe-key", ["sk_", "live_"], ALNUM, 24),
        token("stripe-key", ["sk_", "test_"], ALNUM, 99),
        token("stripe-key", ["rk_", "live_"], ALNUM, 24),
        token("webhook-secret", ["wh", "sec_"], ALNUM, 32),
        token("shopify-token", ["shp", "at_"], HEX, 32),
        token("square-token", ["sq0", "atp-"], ALNUM, 22),
        token("twilio-key", ["S", "K"], HEX, 32),
        token("mailgun-key", ["ke", "y-"], HEX, 32),
        token("npm-token", ["np", "m_"], ALNUM, 36),
        token("pypi-token", ["pypi-", "AgEIcHlwaS5vcmc"], ALNUM, 120),
        token("rubygems-token", ["ruby", "gems_"], HEX, 48),
        token("crates-io-token", ["ci", "o"], ALNUM, 32),
        token("docker-token", ["dckr", "_pat_"], ALNUM, 27),
        token("digitalocean-token", ["dop", "_v1_"], HEX, 64),
        token("atlassian-token", ["AT", "ATT3"], ALNUM, 180),
        token("linear-key", ["lin", "_api_"], ALNUM, 40),
        token("notion-token", ["secret", "_"], ALNUM, 43),
        token("notion-token", ["nt", "n_"], ALNUM, 46),
        token("figma-token", ["fi", "gd_"], ALNUM, 40),
        token("databricks-token", ["da", "pi"], HEX, 32),
        token("newrelic-key", ["NR", "AK-"], UPPER, 27),
        token("grafana-token", ["gl", "c_"], ALNUM, 80),
        token("planetscale-token", ["pscale", "_tkn_"], ALNUM, 43),
        token("supabase-key", ["sb", "p_"], HEX, 40),
        token("vault-token", ["hv", "s."], ALNUM, 90),
        token("doppler-token", ["dp.", "pt."], ALNUM, 43),
        token("pulumi-token", ["pu", "l-"], HEX, 40),
        token("age-key", ["AGE-SECRET", "-KEY-1"], UPPER, 58),
        token("postman-key", ["PM", "AK-0123456789abcdef01234567-"], HEX, 34),
        token(
            "discord-webhook",
            ["https://discord.com/api", "/webhooks/123456789012345678/"],
            ALNUM,
            68,
        ),
        token("telegram-token", ["123456789", ":AA"], ALNUM, 33),
        token("url-signature", ["X-Amz-", "Signature="], HEX, 64),
        token("alibaba-key-id", ["LT", "AI"], ALNUM, 20),
    ];
    all.push((
        "sendgrid-key",
        format!("S{}.{}.{}", "G", random_text(ALNUM, 22), random_text(ALNUM, 43)),
    ));
    all.push((
        "grafana-token",
        format!("gl{}_{}_{}", "sa", random_text(ALNUM, 32), random_text(HEX, 8)),
    ));
    all.push((
        "airtable-token",
        format!("pa{}{}.{}", "t", random_text(ALNUM, 14), random_text(HEX, 64)),
    ));
    all.push(("mailchimp-key", format!("{}-{}", random_text(HEX, 32), "us12")));
    all.push((
        "slack-webhook",
        format!(
            "https://hooks.slack{}/T{}/B{}/{}",
            ".com/services",
            random_text(UPPER, 9),
            random_text(UPPER, 9),
            random_text(ALNUM, 24)
        ),
    ));
    all.push((
        "discord-token",
        format!(
            "{}.{}.{}",
            &to_base64("123456789012345678")[..24],
            random_text(ALNUM, 6),
            random_text(ALNUM, 38)
        ),
    ));
    all.push(("azure-secret", format!("{}8Q~{}", random_text(ALNUM, 3), random_text(ALNUM, 34))));
    all.push((
        "dynatrace-token",
        format!("dt0{}.{}.{}", "c01", random_text(UPPER, 24), random_text(UPPER, 64)),
    ));
    all.push(("jwt", jwt()));
    for label in [
        "RSA PRIVATE KEY",
        "PRIVATE KEY",
        "EC PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ] {
        all.push(("private-key", pem(label).trim_end().to_owned()));
    }
    all
}

/// Texts around a credential, where `@` stands for it.
const AROUND: [&str; 12] = [
    "@",
    "your token is @.",
    "$ curl -H 'X-Thing: @' https://api.host.test/v1",
    "{\"value\": \"@\", \"next\": 1}",
    "  12\tconst T: &str = \"@\";",
    "src/main.rs:7: let t = '@';",
    "error: 401 with (@), try again",
    "größe → @ ✓",
    "https://host.test/x?y=@&z=1",
    "+    t = @\n-    t = none",
    "line one\n@\nline three",
    "{\\\"text\\\":\\\"a\\n@\\\"}",
];

#[track_caller]
fn check_redacted(text: &str, secret: &str, keys: Keys) -> String {
    let redacted = super::text(text, keys);
    // Only the first characters of a secret may stay.
    let core = &secret[secret.len() / 4 + 1..];
    assert!(!redacted.contains(core), "{secret} is still in {redacted}");
    assert!(redacted.contains("[REDACTED:"), "{redacted}");
    assert_eq!(super::text(&redacted, keys), redacted, "a second pass changes nothing");
    redacted.into_owned()
}

#[test]
fn issued_credentials_are_found_in_every_text() {
    let all = issued();
    assert!(all.len() >= 60, "only {} credentials", all.len());
    for (kind, secret) in all {
        for around in AROUND {
            let text = around.replace('@', &secret);
            let redacted = check_redacted(&text, &secret, Keys::Unknown);
            assert!(redacted.contains(&format!("[REDACTED:{kind} ")), "{kind}: {redacted}");
            let (before, after) = around.split_once('@').expect("a placeholder");
            let scheme = if kind.ends_with("webhook") { "https" } else { "" };
            assert!(
                redacted.starts_with(&format!("{before}{scheme}")) && redacted.ends_with(after),
                "{kind}: {redacted}"
            );
        }
    }
}

#[test]
fn encoded_credentials_are_found() {
    for (kind, secret) in issued() {
        let hidden = to_base64(&format!("the thing is {secret}, keep it"));
        check_redacted(&format!("data: {hidden}\n"), &hidden, Keys::Unknown);
        let twice = to_base64(&hidden);
        check_redacted(&format!("data: {twice}\n"), &twice, Keys::Unknown);
        let quoted = to_percent(&format!("x={secret}&y=1"));
        let redacted = super::text(&quoted, Keys::Unknown);
        assert!(redacted.contains("[REDACTED:"), "{kind}: {redacted}");
    }
}

#[test]
fn texts_similar_to_credentials_stay() {
    for (kind, secret) in issued() {
        if matches!(kind, "private-key" | "jwt" | "url-signature") {
            continue;
        }
        // A credential that is too short, or that is masked.
        let head = secret.find(|c: char| c.is_ascii_digit()).map_or(3, |at| at.clamp(2, 4));
        let short = &secret[..head + 4];
        assert_eq!(super::text(short, Keys::Unknown), short, "{kind}");
        let masked: String = secret
            .chars()
            .enumerate()
            .map(|(at, c)| {
                if at < secret.len() / 2 && at < 10 || !c.is_ascii_alphanumeric() { c } else { 'x' }
            })
            .collect();
        if !kind.contains("webhook")
            && !matches!(kind, "discord-token" | "mailchimp-key" | "telegram-token")
        {
            assert_eq!(super::text(&masked, Keys::Unknown), masked, "{kind}");
        }
    }
    for text in [
        "the task-list-of-things-that-have-to-be-done-by-somebody-at-some-time",
        "sk-learn-is-not-a-key-but-a-very-long-name-of-a-package-of-python",
        "checksum = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"",
        "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "550e8400-e29b-41d4-a716-446655440000",
        "\"integrity\": \"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==\"",
        "ASIAPACIFICREGIONNORTH",
        "AKIA is what the ids of keys begin with",
        "ghp_short",
        "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwJd1zV0mQ9b3\n-----END CERTIFICATE-----",
        "const BEGIN: &str = \"-----BEGIN PRIVATE KEY-----\";\nconst END: &str = \"-----END PRIVATE KEY-----\";\n",
        "eyJ is how a token begins; eyJhbGciOiJIUzI1NiJ9 alone is a header",
        "https://docs.rs/serde_json/latest/serde_json/value/enum.Value.html#method.pointer",
        "postgres://user:password@localhost/db, postgres://$USER:$PASS@host/db, https://user@host/x, ssh://git@host:22/x",
        "Authorization: Bearer {token}",
        "Bearer authentication-is-described-in-the-section-below",
        "the basic authentication of HTTP",
        "let password = read_password(&mut stdin)?;",
        "fn token(&self) -> Option<Token>",
        "--------------------------------------------------------------------------------",
        "aVeryLongIdentifierThatSomebodyWroteInCamelCaseBecauseTheyCould",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    ] {
        assert_eq!(super::text(text, Keys::Unknown), text);
        assert_eq!(super::text(text, Keys::Text), text);
    }
}

#[test]
fn values_of_secret_keys_are_found() {
    let secret = "Tr0ub4dor&3x";
    for around in [
        "DB_PASSWORD=@",
        "export API_KEY=@",
        "   3\tPASSWORD=@",
        "password: @",
        "password: '@'",
        "  \"password\": \"@\",",
        "{\"db\":{\"password\":\"@\",\"port\":1}}",
        "{\\\"password\\\":\\\"@\\\"}",
        "client_secret = \"@\"",
        "let password: &str = \"@\";",
        "spring.datasource.password=@",
        "<password>@</password>",
        "config['secret'] = '@'",
        "mysql --password=@ -u root",
        "tool --token @ run",
        "Server=db;User Id=sa;Password=@;Encrypt=true",
        "//registry.host.test/:_authToken=@",
        "machine host.test login me password @",
        "AccountName=x;AccountKey=@;EndpointSuffix=core",
        "passwörter: x\napi-key: @",
        "postgres://app:@@db.internal:5432/app",
        "redis://:@@cache/0",
        "url = https://me:@@git.internal/x.git",
    ] {
        let text = match around.rsplit_once("@@") {
            Some((before, after)) => format!("{before}{secret}@{after}"),
            None => around.replace('@', secret),
        };
        let redacted = check_redacted(&text, secret, Keys::Text);
        let (before, after) = text.split_once(secret).expect("the secret");
        assert!(redacted.starts_with(before), "{redacted}");
        assert!(redacted.ends_with(after), "{redacted}");
    }
    let token = random_text(ALNUM, 40);
    for around in [
        "Authorization: Bearer @",
        "curl -H \"Authorization: Bearer @\" https://host.test",
        "headers = {'Authorization': 'token @'}",
        "{\"authorization\": \"Bearer @\"}",
        "Set-Cookie: session=@; Path=/; HttpOnly",
        "cookie: theme=dark; sid=@",
        "X-Api-Key: @",
        "GET /x?access_token=@&page=2 HTTP/1.1",
        "GET /x?next=%2Fy%3Faccess_token%3D@%26page%3D2 HTTP/1.1",
        "aws_secret_access_key = @",
    ] {
        check_redacted(&around.replace('@', &token), &token, Keys::Text);
    }
    let hidden = to_base64(&format!("password={secret}\nuser=me\n"));
    check_redacted(&format!("  config.env: {hidden}"), &hidden, Keys::Unknown);
    let basic = to_base64(&format!("admin:{secret}"));
    check_redacted(&format!("curl -H 'authorization: basic {basic}' x"), &basic, Keys::Unknown);
}

#[test]
fn placeholders_and_references_stay() {
    for text in [
        "password = ${DB_PASSWORD}",
        "PASSWORD=$PASSWORD",
        "password: {{ vault.password }}",
        "password: <your password here>",
        "password: changeme",
        "password: \"your-password\"",
        "password=********",
        "token: xxxxxxxxxxxxxxxx",
        "api_key = os.environ[\"API_KEY\"]",
        "api_key = get_key(name)",
        "secret: !vault secret",
        "let token = self.next_token()?;",
        "token: TokenStream,",
        "secret = config.secret",
        "password_file = /run/secrets/db",
        "secret: /run/secrets/db",
        "token=short",
        "token_count = 123456789",
        "max_tokens: 100000000",
        "access_key_id = something-else",
        "if password == \"letmein12\" {}",
        "public_key: AAAAB3NzaC1yc2EAAAADAQABAAAB",
        "password is required and has at least 12 characters",
        "error: \"password\": \"must not be empty\"",
        "api_key=api_key,",
    ] {
        assert_eq!(super::text(text, Keys::Text), text);
    }
}

#[test]
fn keys_in_source_code_do_not_count() {
    for text in [
        "let password = \"Tr0ub4dor&3x\";",
        "token = \"abcdef123456\"",
        "\"secret\": \"s3cr3ts3cr3t\"",
    ] {
        assert_eq!(super::text(text, Keys::Unknown), text);
    }
}

#[test]
fn base64_is_found_after_signs_and_paths() {
    let hidden = to_base64(&issued()[0].1);
    for around in
        ["DATA=@", "x --tok=@ y", "/a?blob=@&c=1", "path/to/@", "a=b=@", "data:text/plain;base64,@"]
    {
        for keys in [Keys::Unknown, Keys::Settings] {
            check_redacted(&around.replace('@', &hidden), &hidden, keys);
        }
    }
}

#[test]
fn text_after_a_mark_keeps_the_kind_of_its_place() {
    let text = "a Tr0ub4dor&3x password=hunter2hunter2\nb password=hunter2hunter2\n";
    let second = text.find('\n').expect("a line");
    let redacted =
        text_where(text, &|offset| if offset < second { Keys::Text } else { Keys::Unknown });
    assert_eq!(
        redacted,
        "a Tr0ub4dor&3x password=[REDACTED:password hun…]\nb password=hunter2hunter2\n"
    );
}

#[test]
fn json_is_redacted_by_its_keys() {
    let value = json!({
        "user": "me", "password": "correct horse", "apiKey": ["one-is-a-key", "two-is-a-key"], "tokens": 5, "token": { "value": "x", "password": "hunter22" },
        "env": [{ "name": "DB_PASSWORD", "value": "hunter22" }, { "name": "HOME", "value": "/home/u" }],
        "note": format!("see {}", issued()[0].1),
    });
    let redacted = super::json(value, Keys::Text);
    assert_eq!(redacted["password"], "[REDACTED:password cor…]");
    assert_eq!(redacted["apiKey"], json!(["[REDACTED:key one…]", "[REDACTED:key two…]"]));
    assert_eq!(redacted["token"], json!({ "value": "x", "password": "[REDACTED:password hu…]" }));
    assert_eq!(redacted["env"][0]["value"], "[REDACTED:password hu…]");
    assert_eq!(redacted["env"][1]["value"], "/home/u");
    assert_eq!(redacted["note"], "see [REDACTED:github-token ghp_…]");
    assert_eq!(super::json(redacted.clone(), Keys::Text), redacted);
}

#[test]
fn secret_over_several_parts_is_found() {
    let (_, secret) = &issued()[0];
    for size in [1, 7, 20] {
        let mut pieces: Vec<String> = secret
            .as_bytes()
            .chunks(size)
            .map(|piece| String::from_utf8_lossy(piece).into_owned())
            .collect();
        pieces.insert(0, "before ".to_owned());
        pieces.push(" after".to_owned());
        across(&mut pieces.iter_mut().collect::<Vec<_>>(), Keys::Text);
        assert_eq!(pieces.concat(), "before [REDACTED:github-token ghp_…] after");
    }
    // The key may be in one part, and the value in the next.
    for (keys, is_visible) in [(Keys::Text, false), (Keys::Settings, false), (Keys::Unknown, true)]
    {
        let mut pieces = ["{\"password\": \"".to_owned(), "Tr0ub4dor&3x\"}".to_owned()];
        across(&mut pieces.iter_mut().collect::<Vec<_>>(), keys);
        assert_eq!(pieces.concat().contains("Tr0ub4dor&3x"), is_visible, "{pieces:?}");
    }
}

#[test]
fn every_field_of_a_part_is_redacted() {
    let (_, secret) = &issued()[0];
    let meta = Some(json!({ "k": secret }));
    for body in [
        Body::Text(secret.clone()),
        Body::Link(format!("https://x.test/{secret}")),
        Body::Bytes(secret.clone().into_bytes()),
    ] {
        let part = content(
            Content { body, media_type: Some(secret.clone()), meta: meta.clone() },
            Keys::Unknown,
        );
        assert!(!format!("{part:?}").contains(&secret[8..]), "{part:?}");
    }
    let image =
        Content { body: Body::Bytes(b"\x89PNG\xff".to_vec()), media_type: None, meta: None };
    assert_eq!(content(image.clone(), Keys::Text), image);
}

#[test]
fn time_is_linear_for_hostile_texts() {
    // Each piece starts something that never ends.
    for piece in [
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAA\n",
        "password=\"",
        "pwd='\"",
        "cookie:$",
        "cookie: a",
        "-eyJ",
        "eyJ.",
        "ATATT3",
        "-ATATT3",
        "%3D",
        "%3D ",
        "pwd%3D123456&",
        "://",
        "://a:b",
        "token",
        "key=",
        "secret=\\\"",
        "MTIz.",
        "a\\",
        "AAAA",
        "[REDACTED:",
        "login password ",
        "<password>",
        "sk-",
        "1//0",
        ":AA",
        "\\n",
        "Bearer ",
        // The next pieces have neither an end nor a line end.
        "-BEGIN PRIVATE KEY---- ",
        "-BEGIN PRIVATE KEY---- : \n",
        "-END PRIVATE KEY---- ",
        "AAAAAAAAAAAAAAAAAAAA\n-END PRIVATE KEY---- ",
        "%20%ff",
        "-bearer",
        "/basic",
        "password=x1",
        "login passwordpassword",
        "MIIEogIBAAKCAQEAwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ",
        "MIIEogIBAAKCAQEAwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
        "MIIEogIBAAKC ",
        "pwd: |\n",
        "pwd: |\n  pwd: |\n    ",
        "pwd:\n  ",
        "pwd:\n\n",
        "token:\n- ",
        "token: [",
        "token: [\"a1b2c3d4e5\" ",
        "pwd=\"\"\"a",
        "pwd='''b",
        "pwd=\"abc1234\n",
        "\"\\u0070",
        "\"pwd\" value=",
        "- pwd:\n- changeme\n",
        "pwd: [${A}, \"changeme\", ",
        "pwds: [\"${A}\",\n",
        "abcdefgh/",
        "ZXhhbXBs/",
        "ZXhhbXBsZSBleGFtcGxl/",
        "pwd=\"a[REDACTED:password hu…]\n",
    ] {
        let mut text = piece.repeat((1 << 16) / piece.len());
        // A mark at the end, since it could end a secret.
        text.push_str("[REDACTED:password hu…]");
        for keys in [Keys::Unknown, Keys::Text, Keys::Settings, Keys::PrivateKey] {
            EXAMINED.set(0);
            super::text(&text, keys);
            let times = EXAMINED.get() / text.len();
            assert!(times <= 100, "each byte of {piece:?} was examined {times} times");
        }
    }
}
