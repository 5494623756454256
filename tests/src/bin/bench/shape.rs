//! Shaping an answer: secrets are searched, and a long answer is cut and stored. In bytes per
//! second, without a rival.

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_core::Audience;
use toolhold_redaction::{self as redaction, Keys};

use crate::Setting;
use crate::measure::{median, time};
use crate::sandbox::{ECHO, Sandbox};
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 21;

const BYTES: usize = 8 << 20;

/// Of one call: no more than its arguments may have.
const ANSWER: usize = 900_000;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let (clean, secrets) = (text(false, BYTES), text(true, BYTES));
    let redacted = |text: &str, keys: Keys| {
        let began = Instant::now();
        black_box(redaction::text(black_box(text), keys));
        began.elapsed()
    };
    let mut rows = Vec::new();
    for (what, text, keys, target) in [
        ("redaction, source code without secrets", &clean, Keys::Unknown, Target::AtLeast(200.0)),
        ("redaction, output without secrets", &clean, Keys::Text, Target::AtLeast(100.0)),
        ("redaction, a secret every 20 lines", &secrets, Keys::Text, Target::Higher),
    ] {
        let times = (0..ROUNDS).map(|_| redacted(text, keys)).collect();
        rows.push(row("redact", what, text.len(), times, target));
    }
    let sandbox = Sandbox::with_echo(&setting.repository, &setting.scratch)?;
    let answer = text(false, ANSWER);
    let cut = || {
        let call = sandbox.call_for(Audience::Model, ECHO, json!({ "text": answer }));
        let shown = sandbox.runtime().block_on(call)?.joined_text();
        if shown.len() < answer.len() / 2 {
            Ok(())
        } else {
            Err("a long answer is not cut".to_owned())
        }
    };
    let times = (0..ROUNDS).map(|_| time(cut)).collect::<Result<_, _>>()?;
    rows.push(row(
        "overflow",
        "overflow: a call whose answer is cut and kept",
        ANSWER,
        times,
        Target::Higher,
    ));
    Ok(rows)
}

fn row(name: &'static str, what: &str, bytes: usize, times: Vec<Duration>, target: Target) -> Row {
    let samples =
        times.iter().map(|took| bytes as f64 / 1e6 / took.as_secs_f64().max(1e-9)).collect();
    let ours = format!("{} for {:.1} MB", show_time(median(times)), bytes as f64 / 1e6);
    Row {
        name,
        what: what.to_owned(),
        samples,
        unit: Unit::MegabytesPerSecond,
        target,
        ours,
        rival: String::new(),
    }
}

/// Lines as a source file has them, and so many bytes of them; with credentials in between.
fn text(secrets: bool, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 256);
    for number in 0_u64.. {
        if text.len() >= bytes {
            break;
        }
        let line = match number % 8 {
            0 => writeln!(
                text,
                "/// The number of tokens that a session may take before it has to wait, {number} in all."
            ),
            1 => writeln!(
                text,
                "pub fn take_{number}(&self, key: &str, tokens: &[Token]) -> Result<usize, Error> {{"
            ),
            2 => writeln!(text, "    let secret = self.secrets.get(key).ok_or(Error::Missing)?;"),
            3 => writeln!(
                text,
                "    // See https://example.org/documents/{number}/section.html for what the author says."
            ),
            4 => writeln!(
                text,
                "    if tokens.iter().map(|token| token.len()).sum::<usize>() > {number} {{"
            ),
            5 => writeln!(
                text,
                "        return Err(Error::TooMany {{ key: key.to_owned(), most: self.most }});"
            ),
            6 => writeln!(text, "    }}"),
            _ => writeln!(
                text,
                "    Ok(self.passed.fetch_add(tokens.len(), Ordering::Relaxed) + secret.len())"
            ),
        };
        line.expect("a string takes what is written to it");
        if secrets && number % 20 == 0 {
            let digits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            // In two pieces, so that no scanner takes it for a leak.
            text.push_str("export GITHUB_TOKEN=gh");
            writeln!(text, "p_{digits:020}AbCdEfGhIjKlMnOp")
                .expect("a string takes what is written to it");
        }
    }
    text
}
