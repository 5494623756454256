//! Finds credentials by their form. Issuers give credentials a prefix, a set of characters and a
//! length.
//!
//! A shape is as narrow as the issuer allows, because a wider shape would match names and hashes in
//! source code.

use std::ops::{Range, RangeInclusive};

use super::found::{Found, count_examined};

#[derive(Clone, Copy)]
enum Class {
    /// `A-Z a-z 0-9`.
    Alnum,
    /// `A-Z a-z 0-9 _`.
    Word,
    /// URL-safe base64: `A-Z a-z 0-9 _ -`.
    Url,
    /// URL-safe base64 with `.` and `=`.
    Loose,
    /// `0-9 a-f A-F`.
    Hex,
    /// `A-Z 0-9`.
    Upper,
    /// `0-9`.
    Digit,
    /// Base64 with `+`, `/` and `=`.
    Base64,
}

impl Class {
    const fn has(self, byte: u8) -> bool {
        let alnum = byte.is_ascii_alphanumeric();
        match self {
            Self::Alnum => alnum,
            Self::Word => alnum || byte == b'_',
            Self::Url => alnum || byte == b'_' || byte == b'-',
            Self::Loose => alnum || matches!(byte, b'_' | b'-' | b'.' | b'='),
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Digit => byte.is_ascii_digit(),
            Self::Base64 => alnum || matches!(byte, b'+' | b'/' | b'='),
        }
    }
}

#[derive(Clone, Copy)]
enum Part {
    /// Between the least and the greatest number of characters of a class. The shape doesn't match
    /// if a further character of the class follows.
    Run(Class, usize, usize),
    /// Exactly this text.
    Is(&'static str),
}

struct Shape {
    prefix: &'static str,
    kind: &'static str,
    parts: &'static [Part],
}

const fn shape(prefix: &'static str, kind: &'static str, parts: &'static [Part]) -> Shape {
    Shape { prefix, kind, parts }
}

use Class::{Alnum, Base64, Digit, Hex, Loose, Upper, Url, Word};
use Part::{Is, Run};

/// Bytes of the longest part without a fixed length.
const LONG: usize = 2048;

/// Least number of different characters in random text. A short text may have fewer.
const MIN_DIFFERENT: usize = 10;

/// Characters of the ID of an AWS key.
const AWS_ID_LENGTH: usize = 16;

/// Bytes of a long part that decide whether it is a credential.
const SAMPLE: usize = 256;

/// The shapes, sorted by their prefixes. They are tried backwards, so `sk-ant-` is tried before
/// `sk-`.
static SHAPES: &[Shape] = &[
    shape("8Q~", "azure-secret", &[Run(Loose, 31, 34)]),
    shape("ABIA", "aws-key-id", &[Run(Upper, 16, 16)]),
    shape("ACCA", "aws-key-id", &[Run(Upper, 16, 16)]),
    shape("AGE-SECRET-KEY-1", "age-key", &[Run(Upper, 58, 58)]),
    shape("AIza", "google-key", &[Run(Url, 35, 35)]),
    shape("AKIA", "aws-key-id", &[Run(Upper, 16, 16)]),
    shape("AKID", "tencent-key-id", &[Run(Alnum, 32, 32)]),
    shape("APKA", "aws-key-id", &[Run(Upper, 16, 16)]),
    shape("ASIA", "aws-key-id", &[Run(Upper, 16, 16)]),
    shape("ATATT3", "atlassian-token", &[Run(Loose, 60, LONG)]),
    shape("ATBB", "bitbucket-token", &[Run(Alnum, 32, 32)]),
    shape("ATCTT3", "atlassian-token", &[Run(Loose, 60, LONG)]),
    shape("EAACEdEose0cBA", "facebook-token", &[Run(Alnum, 20, LONG)]),
    shape("FlyV1 ", "fly-token", &[Run(Base64, 2, 4), Is("_"), Run(Base64, 40, LONG)]),
    shape("GOCSPX-", "google-secret", &[Run(Url, 28, 28)]),
    shape("HRKU-", "heroku-key", &[Run(Url, 36, 70)]),
    shape("LTAI", "alibaba-key-id", &[Run(Alnum, 16, 26)]),
    shape("NRAK-", "newrelic-key", &[Run(Upper, 27, 27)]),
    shape("PMAK-", "postman-key", &[Run(Hex, 24, 24), Is("-"), Run(Hex, 34, 34)]),
    shape("SG.", "sendgrid-key", &[Run(Url, 16, 32), Is("."), Run(Url, 32, 64)]),
    shape("SK", "twilio-key", &[Run(Hex, 32, 32)]),
    shape("X-Amz-Signature=", "url-signature", &[Run(Hex, 64, 64)]),
    shape("api/webhooks/", "discord-webhook", &[Run(Digit, 16, 22), Is("/"), Run(Url, 50, 90)]),
    shape("cio", "crates-io-token", &[Run(Alnum, 32, 32)]),
    shape("csk-", "cerebras-key", &[Run(Alnum, 40, 60)]),
    shape("dapi", "databricks-token", &[Run(Hex, 32, 32)]),
    shape("dckr_oat_", "docker-token", &[Run(Url, 20, 64)]),
    shape("dckr_pat_", "docker-token", &[Run(Url, 20, 64)]),
    shape("doo_v1_", "digitalocean-token", &[Run(Hex, 64, 64)]),
    shape("dop_v1_", "digitalocean-token", &[Run(Hex, 64, 64)]),
    shape("dor_v1_", "digitalocean-token", &[Run(Hex, 64, 64)]),
    shape("dp.pt.", "doppler-token", &[Run(Alnum, 40, 48)]),
    shape("dp.st.", "doppler-token", &[Run(Loose, 40, 80)]),
    shape("dt0c01.", "dynatrace-token", &[Run(Upper, 24, 24), Is("."), Run(Upper, 64, 64)]),
    shape("figd_", "figma-token", &[Run(Url, 36, 64)]),
    shape("fo1_", "fly-token", &[Run(Url, 40, 64)]),
    shape("ghe_", "github-token", &[Run(Alnum, 36, 255)]),
    shape("gho_", "github-token", &[Run(Alnum, 36, 255)]),
    shape("ghp_", "github-token", &[Run(Alnum, 36, 255)]),
    shape("ghr_", "github-token", &[Run(Alnum, 36, 255)]),
    shape("ghs_", "github-token", &[Run(Alnum, 36, 255)]),
    shape("ghu_", "github-token", &[Run(Alnum, 36, 255)]),
    shape("github_pat_", "github-token", &[Run(Word, 36, 255)]),
    shape("glagent-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("glc_", "grafana-token", &[Run(Base64, 32, 400)]),
    shape("glcbt-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("gldt-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("glffct-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("glft-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("glimt-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("gloas-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("glpat-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("glptt-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("glrt-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("glsa_", "grafana-token", &[Run(Alnum, 32, 32), Is("_"), Run(Hex, 8, 8)]),
    shape("glsoat-", "gitlab-token", &[Run(Loose, 20, 120)]),
    shape("gsk_", "groq-key", &[Run(Alnum, 20, 120)]),
    shape("hf_", "huggingface-token", &[Run(Alnum, 30, 60)]),
    shape(
        "hooks.slack.com/services/T",
        "slack-webhook",
        &[Run(Alnum, 6, 16), Is("/B"), Run(Alnum, 6, 16), Is("/"), Run(Alnum, 16, 48)],
    ),
    shape("hvb.", "vault-token", &[Run(Url, 24, 400)]),
    shape("hvs.", "vault-token", &[Run(Url, 24, 400)]),
    shape("jina_", "jina-key", &[Run(Url, 40, 80)]),
    shape("key-", "mailgun-key", &[Run(Hex, 32, 32)]),
    shape("lin_api_", "linear-key", &[Run(Alnum, 32, 64)]),
    shape("lsv2_pt_", "langsmith-key", &[Run(Hex, 32, 32), Is("_"), Run(Hex, 10, 10)]),
    shape("lsv2_sk_", "langsmith-key", &[Run(Hex, 32, 32), Is("_"), Run(Hex, 10, 10)]),
    shape("mfa.", "discord-token", &[Run(Url, 80, 100)]),
    shape("nfp_", "netlify-token", &[Run(Alnum, 36, 60)]),
    shape("npm_", "npm-token", &[Run(Alnum, 36, 36)]),
    shape("ntn_", "notion-token", &[Run(Alnum, 40, 60)]),
    shape("nvapi-", "nvidia-key", &[Run(Url, 50, 90)]),
    shape("ops_eyJ", "1password-token", &[Run(Url, 100, LONG)]),
    shape("pat", "airtable-token", &[Run(Alnum, 14, 14), Is("."), Run(Hex, 64, 64)]),
    shape("phx_", "posthog-key", &[Run(Alnum, 40, 60)]),
    shape("pk_live_", "stripe-key", &[Run(Alnum, 24, 255)]),
    shape("pk_test_", "stripe-key", &[Run(Alnum, 24, 255)]),
    shape("pplx-", "perplexity-key", &[Run(Alnum, 40, 64)]),
    shape("pscale_oauth_", "planetscale-token", &[Run(Loose, 32, 64)]),
    shape("pscale_pw_", "planetscale-token", &[Run(Loose, 32, 64)]),
    shape("pscale_tkn_", "planetscale-token", &[Run(Loose, 32, 64)]),
    shape("pul-", "pulumi-token", &[Run(Hex, 40, 40)]),
    shape("pypi-AgE", "pypi-token", &[Run(Url, 50, LONG)]),
    shape("r8_", "replicate-token", &[Run(Alnum, 37, 37)]),
    shape("rk_live_", "stripe-key", &[Run(Alnum, 24, 255)]),
    shape("rk_test_", "stripe-key", &[Run(Alnum, 24, 255)]),
    shape("rubygems_", "rubygems-token", &[Run(Hex, 48, 48)]),
    shape("sb_secret_", "supabase-key", &[Run(Url, 24, 64)]),
    shape("sbp_", "supabase-key", &[Run(Hex, 40, 40)]),
    shape("secret_", "notion-token", &[Run(Alnum, 43, 43)]),
    shape("shpat_", "shopify-token", &[Run(Hex, 32, 32)]),
    shape("shpca_", "shopify-token", &[Run(Hex, 32, 32)]),
    shape("shppa_", "shopify-token", &[Run(Hex, 32, 32)]),
    shape("shpss_", "shopify-token", &[Run(Hex, 32, 32)]),
    shape("sk-", "openai-key", &[Run(Alnum, 32, 64)]),
    shape("sk-admin-", "openai-key", &[Run(Url, 40, 255)]),
    shape("sk-ant-", "anthropic-key", &[Run(Url, 32, 255)]),
    shape("sk-or-v1-", "openrouter-key", &[Run(Hex, 64, 64)]),
    shape("sk-proj-", "openai-key", &[Run(Url, 40, 255)]),
    shape("sk-svcacct-", "openai-key", &[Run(Url, 40, 255)]),
    shape("sk.eyJ", "mapbox-token", &[Run(Url, 40, 255), Is("."), Run(Url, 16, 64)]),
    shape("sk_live_", "stripe-key", &[Run(Alnum, 24, 255)]),
    shape("sk_test_", "stripe-key", &[Run(Alnum, 24, 255)]),
    shape("sntrys_", "sentry-token", &[Run(Base64, 40, LONG), Is("_"), Run(Base64, 30, 60)]),
    shape("sntryu_", "sentry-token", &[Run(Hex, 64, 64)]),
    shape("sq0atp-", "square-token", &[Run(Url, 22, 22)]),
    shape("sq0csp-", "square-token", &[Run(Url, 43, 43)]),
    shape("tvly-", "tavily-key", &[Run(Url, 32, 60)]),
    shape("vercel_blob_rw_", "vercel-token", &[Run(Word, 30, 80)]),
    shape("whsec_", "webhook-secret", &[Run(Base64, 32, 90)]),
    shape("xai-", "xai-key", &[Run(Alnum, 70, 90)]),
    shape("xapp-", "slack-token", &[Run(Url, 24, 255)]),
    shape("xkeysib-", "brevo-key", &[Run(Hex, 64, 64), Is("-"), Run(Alnum, 16, 16)]),
    shape("xoxa-", "slack-token", &[Run(Url, 20, 255)]),
    shape("xoxb-", "slack-token", &[Run(Url, 20, 255)]),
    shape("xoxe-", "slack-token", &[Run(Url, 20, 400)]),
    shape("xoxe.xoxb-", "slack-token", &[Run(Url, 20, 400)]),
    shape("xoxe.xoxp-", "slack-token", &[Run(Url, 20, 400)]),
    shape("xoxp-", "slack-token", &[Run(Url, 20, 255)]),
    shape("xoxr-", "slack-token", &[Run(Url, 20, 255)]),
    shape("xoxs-", "slack-token", &[Run(Url, 20, 255)]),
    shape("xwfp-", "slack-token", &[Run(Url, 20, 255)]),
    shape("ya29.", "google-token", &[Run(Url, 30, LONG)]),
];

/// For each first byte, the range of the shapes whose prefixes begin with this byte.
static BY_FIRST: [(u8, u8); 128] = {
    let mut ranges = [(0, 0); 128];
    let mut index = 0;
    while index < SHAPES.len() {
        let first = SHAPES[index].prefix.as_bytes()[0] as usize;
        if ranges[first].1 == 0 {
            ranges[first].0 = index as u8;
        }
        ranges[first].1 = index as u8 + 1;
        index += 1;
    }
    ranges
};

/// For each first byte, the possible second, third and fourth bytes of prefixes, as bits. This
/// check rejects most words before any shape is tried. After the end of a shorter prefix, any byte
/// is possible.
static NEXT: [[u128; 3]; 128] = {
    let mut next = [[0; 3]; 128];
    let mut index = 0;
    while index < SHAPES.len() {
        let prefix = SHAPES[index].prefix.as_bytes();
        let mut at = 1;
        while at < 4 {
            next[prefix[0] as usize][at - 1] |=
                if at < prefix.len() { 1 << prefix[at] } else { u128::MAX };
            at += 1;
        }
        index += 1;
    }
    next
};

pub(super) const fn prefix(index: usize) -> Option<&'static [u8]> {
    if index < SHAPES.len() { Some(SHAPES[index].prefix.as_bytes()) } else { None }
}

/// Returns the secret at `at`, if the secret begins with a known prefix.
pub(super) fn with_known_prefix(text: &[u8], at: usize) -> Option<Found> {
    let first_byte = text[at] as usize;
    let (first_shape, shapes_end) = *BY_FIRST.get(first_byte)?;
    let next_bytes = text[at + 1..].iter();
    for (byte, possible_bytes) in next_bytes.zip(&NEXT[first_byte]) {
        // `possible_bytes` has one bit for each ASCII byte. The shapes are compared afterwards, so
        // another byte may be treated as an ASCII byte here.
        let bit = byte & 127;
        let is_possible = possible_bytes >> bit & 1 == 1;
        if !is_possible {
            return None;
        }
    }
    let shapes = &SHAPES[first_shape as usize..shapes_end as usize];
    shapes.iter().rev().find_map(|shape| match_shape(text, at, shape))
}

fn match_shape(text: &[u8], at: usize, shape: &Shape) -> Option<Found> {
    let prefix = shape.prefix.as_bytes();
    // Most prefixes differ in the second byte, so it is compared first.
    if text.get(at + 1) != prefix.get(1) || !text[at..].starts_with(prefix) {
        return None;
    }
    let mut start = at;
    if shape.prefix == "8Q~" {
        // This prefix is inside the credential, after three other characters.
        start = at.checked_sub(3)?;
        if !text[start..at].iter().all(|byte| Loose.has(*byte)) {
            return None;
        }
    }
    if !may_begin(text, start) {
        return None;
    }
    let mut end = at + shape.prefix.len();
    let mut random_start = end;
    for (index, part) in shape.parts.iter().enumerate() {
        match *part {
            Is(literal) => {
                if !text[end..].starts_with(literal.as_bytes()) {
                    return None;
                }
                end += literal.len();
                random_start = end;
            }
            Run(class, least, most) => {
                let is_last = index + 1 == shape.parts.len();
                // A long last part is read to its end only after its first bytes are valid.
                let sample_length = if is_last && most == LONG { SAMPLE } else { most };
                let sample = &text[end..text.len().min(end + sample_length + 1)];
                let run_length = sample.iter().take_while(|byte| class.has(**byte)).count();
                count_examined(run_length);
                // A full stop at the end may belong to the sentence.
                let last = sample[..run_length].iter().rposition(|byte| *byte != b'.');
                let length = last.map_or(0, |last| last + 1);
                let is_too_long = most != LONG && length > most;
                if length < least || is_too_long {
                    return None;
                }
                end += length.min(sample_length);
            }
        }
    }
    if !looks_random(&text[random_start..end]) {
        return None;
    }
    if let Some(Run(class, _, LONG)) = shape.parts.last() {
        end += text[end..].iter().take_while(|byte| class.has(**byte) && **byte != b'.').count();
    }
    Some(Found { start, end, kind: shape.kind })
}

/// Checks whether a credential may start at `at`. A credential can't start in the middle of a word.
/// A JSON or URL escape before the credential isn't part of a word.
pub(super) fn may_begin(text: &[u8], at: usize) -> bool {
    match text[..at] {
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => true,
        [.., b'\\', b'n' | b't' | b'r'] => true,
        [.., last] => !last.is_ascii_alphanumeric() && last != b'_',
        [] => true,
    }
}

/// Checks whether characters look random, and not like a name or a placeholder. Random characters
/// include letters and digits, or both cases, and enough different characters.
pub(super) fn looks_random(secret: &[u8]) -> bool {
    let sample = &secret[..secret.len().min(SAMPLE)];
    let mut is_seen = [false; 128];
    for byte in sample.iter().filter(|byte| byte.is_ascii()) {
        is_seen[*byte as usize] = true;
    }
    let different = is_seen.iter().filter(|seen| **seen).count();
    // A short secret may repeat more of its characters.
    let min_different = MIN_DIFFERENT.min(secret.len() / 3 + 2);
    if different < min_different {
        return false;
    }

    let has_upper = sample.iter().any(u8::is_ascii_uppercase);
    let has_lower = sample.iter().any(u8::is_ascii_lowercase);
    let has_digit = sample.iter().any(u8::is_ascii_digit);
    if has_digit {
        return has_upper || has_lower;
    }
    // The ID of an AWS key has no lower case.
    has_upper && (has_lower || secret.len() == AWS_ID_LENGTH)
}

/// Returns a JSON Web Token (RFC 7519) or an encrypted token (RFC 7516). The first part of such a
/// token is a JSON object, and `{"` is `eyJ` in base64.
pub(super) fn jwt(text: &[u8], at: usize) -> Option<Found> {
    const MIN_HEADER: usize = 16;
    const MIN_CLAIMS: usize = 10;
    const MIN_SIGNATURE: usize = 16;
    const MIN_ENCRYPTED: usize = 8;
    // Tokens contain dashes, so a `-` before `at` means that `at` is inside a word.
    if text[..at].ends_with(b"-") || !may_begin(text, at) {
        return None;
    }
    let [header, second, third, fourth, fifth] = dotted_parts(text, at);
    if header.len() < MIN_HEADER {
        return None;
    }
    // A signed token is a header, an object with claims, and a signature.
    let has_claims = second.len() >= MIN_CLAIMS && text[second.start..].starts_with(b"eyJ");
    if has_claims && third.len() >= MIN_SIGNATURE {
        return Some(Found { start: at, end: third.end, kind: "jwt" });
    }
    // An encrypted token has five parts. Its second part, an encrypted key, may be empty.
    let encrypted_parts = [&third, &fourth, &fifth];
    let is_encrypted = encrypted_parts.iter().all(|part| part.len() >= MIN_ENCRYPTED);
    if is_encrypted { Some(Found { start: at, end: fifth.end, kind: "jwt" }) } else { None }
}

/// Returns up to five parts of a token, with dots between them. A missing part is an empty range.
fn dotted_parts(text: &[u8], at: usize) -> [Range<usize>; 5] {
    let mut parts = [at..at, at..at, at..at, at..at, at..at];
    let mut start = at;
    for part in &mut parts {
        let length = text[start..].iter().take_while(|byte| Url.has(**byte)).count();
        count_examined(length);
        let end = start + length;
        *part = start..end;
        if text.get(end) != Some(&b'.') {
            break;
        }
        start = end + 1;
    }
    parts
}

/// Returns the token of a Telegram bot: the number of the bot, a colon and a random text. The `:AA`
/// in the token is at `at`.
pub(super) fn telegram(text: &[u8], at: usize) -> Option<Found> {
    const DIGITS: RangeInclusive<usize> = 8..=10;
    const TEXT_LENGTH: usize = 35;
    // One further character is counted on each side, so that a longer number or text is rejected.
    let before = text[..at].iter().rev().take(DIGITS.end() + 1);
    let digits = before.take_while(|byte| byte.is_ascii_digit()).count();
    let text_start = at + b":".len();
    let after = text[text_start..].iter().take(TEXT_LENGTH + 1);
    let text_length = after.take_while(|byte| Url.has(**byte)).count();
    if text_length != TEXT_LENGTH || !DIGITS.contains(&digits) {
        return None;
    }

    let start = at - digits;
    let end = text_start + text_length;
    // In the URL of a request, `bot` comes before the token.
    let is_after_bot = text[..start].ends_with(b"bot");
    if !is_after_bot && !may_begin(text, start) {
        return None;
    }
    if !looks_random(&text[text_start..end]) {
        return None;
    }
    Some(Found { start, end, kind: "telegram-token" })
}

/// Returns the token of a Discord bot: an ID in base64, a time, and a signature, with dots between
/// them.
pub(super) fn discord(text: &[u8], at: usize) -> Option<Found> {
    const PART_LENGTHS: [RangeInclusive<usize>; 3] = [23..=28, 6..=6, 27..=40];
    if !may_begin(text, at) {
        return None;
    }
    let mut end = at;
    for lengths in PART_LENGTHS {
        let is_first = end == at;
        if !is_first {
            if text.get(end) != Some(&b'.') {
                return None;
            }
            end += 1;
        }
        // One further character is counted, so that a longer part is rejected.
        let part = text[end..].iter().take(lengths.end() + 1);
        let length = part.take_while(|byte| Url.has(**byte)).count();
        if !lengths.contains(&length) {
            return None;
        }
        end += length;
    }
    Some(Found { start: at, end, kind: "discord-token" })
}

pub(super) fn begins_discord(three: [u8; 3]) -> bool {
    DISCORD.iter().zip(three).all(|(known, byte)| known.contains(&byte))
}

/// The first three characters of the token of a Discord bot: the first digits of an ID, in base64.
pub(super) const DISCORD: [&[u8]; 3] = [b"MNO", b"DTjz", b"AEIMQUYcgk"];

/// Returns a Google refresh token, `1//0…`. The `1//` is at `at`.
pub(super) fn google_refresh(text: &[u8], at: usize) -> Option<Found> {
    const LENGTHS: RangeInclusive<usize> = 40..=200;
    let start = at + b"1//".len();
    if !may_begin(text, at) || text.get(start) != Some(&b'0') {
        return None;
    }
    // One further character is counted, so that a longer token is rejected.
    let token = text[start..].iter().take(LENGTHS.end() + 1);
    let length = token.take_while(|byte| Url.has(**byte)).count();
    let end = start + length;
    if !LENGTHS.contains(&length) || !looks_random(&text[start..end]) {
        return None;
    }
    Some(Found { start: at, end, kind: "google-token" })
}

/// Returns a Mailchimp key. The `-us` near the end of the key is at `at`. The number of a data
/// center follows.
pub(super) fn mailchimp(text: &[u8], at: usize) -> Option<Found> {
    const HEX_LENGTH: usize = 32;
    const MAX_DIGITS: usize = 2;
    let start = at.checked_sub(HEX_LENGTH)?;
    let hex = &text[start..at];
    if !may_begin(text, start) || !hex.iter().all(|byte| Hex.has(*byte)) {
        return None;
    }
    // One further digit is counted, so that a longer number is rejected.
    let digits_start = at + b"-us".len();
    let after = text[digits_start..].iter().take(MAX_DIGITS + 1);
    let digits = after.take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=MAX_DIGITS).contains(&digits) || !looks_random(hex) {
        return None;
    }
    Some(Found { start, end: digits_start + digits, kind: "mailchimp-key" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_sorted_by_prefix() {
        for pair in SHAPES.windows(2) {
            assert!(
                pair[0].prefix < pair[1].prefix,
                "{} comes before {}",
                pair[1].prefix,
                pair[0].prefix
            );
        }
        assert!(
            SHAPES.len() < 256
                && SHAPES.iter().all(|shape| shape.prefix.len() >= 2 && shape.prefix.is_ascii())
        );
    }
}
