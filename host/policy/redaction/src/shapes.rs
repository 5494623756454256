//! Finds credentials by their form. Issuers give their credentials a prefix, a set of characters
//! and a length.
//!
//! A shape is as narrow as its issuer allows, so that it doesn't match names and hashes in source
//! code.

use super::found::{Found, count_examined};

/// The characters of a run.
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

/// A part of a shape after its prefix.
#[derive(Clone, Copy)]
enum Part {
    /// Characters of a class, with their least and greatest number. If a further character of the
    /// class follows, the shape doesn't match.
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

/// Longest part of credentials without a fixed length.
const LONG: usize = 2048;

/// Characters of a long part that decide whether it is a credential.
const SAMPLE: usize = 256;

/// The shapes, sorted by their prefixes. If one prefix is the start of another, the longer prefix
/// comes later and is tried first.
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

/// The range of indexes in [`SHAPES`] for each first byte.
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

/// For each first byte, the second, third and fourth bytes of the prefixes, as bits. Most words
/// with the first byte of a prefix differ in these bytes. After a shorter prefix, any byte may
/// follow.
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

/// Returns the prefix of the shape with this index.
pub(super) const fn prefix(index: usize) -> Option<&'static [u8]> {
    if index < SHAPES.len() { Some(SHAPES[index].prefix.as_bytes()) } else { None }
}

/// Returns the credential whose prefix starts at `at`.
pub(super) fn at(text: &[u8], at: usize) -> Option<Found> {
    let first_byte = text[at] as usize;
    let (first, end) = *BY_FIRST.get(first_byte)?;
    let next_bytes = text.get(at + 1..text.len().min(at + 4))?;
    for (byte, known_bits) in next_bytes.iter().zip(&NEXT[first_byte]) {
        let is_known = known_bits >> (byte & 127) & 1 == 1;
        if !is_known {
            return None;
        }
    }
    // A longer prefix comes later, and is tried first.
    let mut shapes = SHAPES[first as usize..end as usize].iter().rev();
    shapes.find_map(|shape| match_shape(text, at, shape))
}

/// Returns the credential with the prefix of `shape` at `at`.
fn match_shape(text: &[u8], at: usize, shape: &Shape) -> Option<Found> {
    let prefix = shape.prefix.as_bytes();
    // Most prefixes differ in the second byte, so the second byte is compared first.
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
    if !begins(text, start) {
        return None;
    }
    let mut end = at + shape.prefix.len();
    let mut secret = end;
    for (index, part) in shape.parts.iter().enumerate() {
        match *part {
            Is(literal) => {
                if !text[end..].starts_with(literal.as_bytes()) {
                    return None;
                }
                end += literal.len();
                secret = end;
            }
            Run(class, least, most) => {
                let is_last = index + 1 == shape.parts.len();
                // A long last part is read to its end only if the credential is valid.
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
    if !varied(&text[secret..end]) {
        return None;
    }
    if let Some(Run(class, _, LONG)) = shape.parts.last() {
        end += text[end..].iter().take_while(|byte| class.has(**byte) && **byte != b'.').count();
    }
    Some(Found { start, end, kind: shape.kind })
}

/// Checks whether a credential can start here. A credential can't start in the middle of a word. A
/// JSON or URL escape before it isn't part of a word.
pub(super) fn begins(text: &[u8], at: usize) -> bool {
    match text[..at] {
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => true,
        [.., b'\\', b'n' | b't' | b'r'] => true,
        [.., before] => !before.is_ascii_alphanumeric() && before != b'_',
        [] => true,
    }
}

/// Checks whether characters look random instead of like a name or a placeholder. Random characters
/// include letters and digits (or both cases), and enough different characters.
pub(super) fn varied(secret: &[u8]) -> bool {
    let sample = &secret[..secret.len().min(256)];
    let mut is_seen = [false; 128];
    for byte in sample.iter().filter(|byte| byte.is_ascii()) {
        is_seen[*byte as usize] = true;
    }
    let different = is_seen.iter().filter(|is_seen| **is_seen).count();
    if different < 10.min(secret.len() / 3 + 2) {
        return false;
    }

    let has_upper = sample.iter().any(u8::is_ascii_uppercase);
    let has_lower = sample.iter().any(u8::is_ascii_lowercase);
    let has_digit = sample.iter().any(u8::is_ascii_digit);
    if has_digit {
        return has_upper || has_lower;
    }
    // The ID of an AWS key has 16 characters, which may all be upper case.
    has_upper && (has_lower || secret.len() == 16)
}

/// Returns a JSON Web Token (RFC 7519) or an encrypted token (RFC 7516). Both start with `eyJ`,
/// which is `{"` in base64.
pub(super) fn jwt(text: &[u8], at: usize) -> Option<Found> {
    // After a dash, the word started earlier and was examined from its start.
    if !begins(text, at) || text[..at].ends_with(b"-") {
        return None;
    }
    let mut parts = [(at, at); 5];
    let mut count = 0;
    let mut from = at;
    for part in &mut parts {
        let length = text[from..].iter().take_while(|byte| Url.has(**byte)).count();
        count_examined(length);
        *part = (from, from + length);
        count += 1;
        from += length;
        if text.get(from) != Some(&b'.') {
            break;
        }
        from += 1;
    }
    let lengths = parts.map(|(start, end)| end - start);
    if lengths[0] < 16 {
        return None;
    }
    let is_object = text[parts[1].0..].starts_with(b"eyJ");
    let last = match count {
        3.. if is_object && lengths[1] >= 10 && lengths[2] >= 16 => 2,
        5 if lengths[2] >= 8 && lengths[3] >= 8 && lengths[4] >= 8 => 4,
        _ => return None,
    };
    Some(Found { start: at, end: parts[last].1, kind: "jwt" })
}

/// Returns a Telegram bot's token. The `:AA` inside the token is at `at`.
pub(super) fn telegram(text: &[u8], at: usize) -> Option<Found> {
    let digits = text[..at].iter().rev().take(11).take_while(|byte| byte.is_ascii_digit()).count();
    let length = text[at + 1..].iter().take(36).take_while(|byte| Url.has(**byte)).count();
    let start = at - digits;
    let end = at + 36;
    // In the URL of a request, `bot` comes before the token.
    let has_begin = text[..start].ends_with(b"bot") || begins(text, start);
    if !has_begin || length != 35 || !(8..=10).contains(&digits) {
        return None;
    }
    varied(&text[at + 1..end]).then_some(Found { start, end, kind: "telegram-token" })
}

/// Returns a Discord bot's token: an ID in base64, a time, and a signature.
pub(super) fn discord(text: &[u8], at: usize) -> Option<Found> {
    if !begins(text, at) {
        return None;
    }
    let mut end = at;
    for (least, most, has_dot) in [(23, 28, true), (6, 6, true), (27, 40, false)] {
        let length = text[end..].iter().take(most + 1).take_while(|byte| Url.has(**byte)).count();
        if length < least || length > most {
            return None;
        }
        end += length;
        if has_dot {
            if text.get(end) != Some(&b'.') {
                return None;
            }
            end += 1;
        }
    }
    Some(Found { start: at, end, kind: "discord-token" })
}

/// Checks whether these three bytes start a Discord bot's token.
pub(super) fn begins_discord(three: [u8; 3]) -> bool {
    DISCORD.iter().zip(three).all(|(known, byte)| known.contains(&byte))
}

/// The first three characters of a Discord bot's token. They are the first digits of an ID in
/// base64.
pub(super) const DISCORD: [&[u8]; 3] = [b"MNO", b"DTjz", b"AEIMQUYcgk"];

/// Returns a Google refresh token, `1//0…`.
pub(super) fn google_refresh(text: &[u8], at: usize) -> Option<Found> {
    let start = at + 3;
    let length = text[start..].iter().take(201).take_while(|byte| Url.has(**byte)).count();
    let end = start + length;
    let has_form =
        begins(text, at) && text.get(start) == Some(&b'0') && (40..=200).contains(&length);
    if !has_form || !varied(&text[start..end]) {
        return None;
    }
    Some(Found { start: at, end, kind: "google-token" })
}

/// Returns a Mailchimp key. The `-us` near the end of the key is at `at`.
pub(super) fn mailchimp(text: &[u8], at: usize) -> Option<Found> {
    let start = at.checked_sub(32)?;
    if !text[start..at].iter().all(|byte| Hex.has(*byte)) {
        return None;
    }
    let digits = text[at + 3..].iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    let is_key = begins(text, start) && (1..=2).contains(&digits) && varied(&text[start..at]);
    is_key.then_some(Found { start, end: at + 3 + digits, kind: "mailchimp-key" })
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
