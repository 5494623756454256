//! Judges whether a word in a line reports a failure.

use Kind::{
    Always, Bounded, Cannot, CausedBy, Count, Exit, Field, Killed, Severity, Status, Warning,
    Weakly,
};

/// The meaning of a word in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    /// The word reports a failure.
    Strong,
    /// The word reports a failure if the command failed.
    Weak,
    /// The word reports a warning.
    Warning,
    /// The word reports nothing.
    Nothing,
}

/// How a word is judged.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// `error` and similar words: by the text around them.
    Severity,
    /// The word always counts.
    Always,
    /// The text counts if it is a whole word, or the start of a word.
    Bounded,
    /// The word counts if the command failed.
    Weakly,
    /// `cannot` and similar words.
    Cannot,
    CausedBy,
    Killed,
    /// `exit code 2`, not `exit code 0`.
    Exit,
    /// `"status":503`, `status=503`.
    Field,
    /// `HTTP/1.1" 503`, not `HTTP/1.1" 200`.
    Status,
    Warning,
    /// The word counts if its number isn't 0: `3 vulnerabilities`.
    Count,
}

/// The words in lower case. The search ignores case, but some of the kinds don't.
pub(super) const WORDS: &[(&str, Kind)] = &[
    ("error", Severity),
    ("fatal", Severity),
    ("fail", Severity),
    ("panic", Severity),
    ("exception", Severity),
    ("critical", Severity),
    ("severe", Severity),
    ("emerg", Severity),
    ("fault", Severity),
    ("timeout", Severity),
    ("interrupt", Severity),
    ("warn", Warning),
    ("traceback (most", Always),
    ("caused by", CausedBy),
    ("err!", Always),
    ("err_", Bounded),
    ("err:", Bounded),
    ("erro[", Always),
    ("[e]", Always),
    ("alert:", Bounded),
    ("sqlstate", Bounded),
    ("*** [", Always),
    ("sigsegv", Bounded),
    ("sigkill", Bounded),
    ("sigabrt", Bounded),
    ("sigill", Bounded),
    ("sigbus", Bounded),
    ("segfault", Bounded),
    ("core dumped", Always),
    ("bus error", Bounded),
    ("out of memory", Bounded),
    ("oom", Killed),
    ("stack overflow", Bounded),
    ("data race", Bounded),
    ("killed", Killed),
    ("aborted", Killed),
    ("denied", Bounded),
    ("not permitted", Bounded),
    ("not found", Bounded),
    ("no such", Bounded),
    ("no matching", Bounded),
    ("does not exist", Bounded),
    ("doesn't exist", Bounded),
    ("undefined reference", Bounded),
    ("undefined symbol", Bounded),
    ("undefined:", Bounded),
    ("not defined", Bounded),
    ("multiple definition", Bounded),
    ("unresolved", Bounded),
    ("cannot", Cannot),
    ("can't", Cannot),
    ("could not", Cannot),
    ("couldn't", Cannot),
    ("unable to", Cannot),
    ("refused", Bounded),
    ("rejected", Bounded),
    ("timed out", Bounded),
    ("unauthorized", Bounded),
    ("forbidden", Bounded),
    ("uncaught", Bounded),
    ("unhandled", Bounded),
    ("conflict", Killed),
    ("assertion", Bounded),
    ("non-zero", Bounded),
    ("http/", Status),
    ("status", Field),
    ("exit", Exit),
    ("returned ", Exit),
    ("rustsec-", Bounded),
    ("cve-", Bounded),
    ("vulnerabilit", Count),
    ("invalid", Weakly),
    ("missing", Weakly),
    ("mismatch", Weakly),
    ("unexpected", Weakly),
    ("unknown", Weakly),
    ("already exists", Weakly),
    ("expected", Weakly),
    ("duplicate", Weakly),
    ("overflow", Weakly),
    ("deadlock", Weakly),
    ("corrupt", Weakly),
    ("illegal", Weakly),
    ("malformed", Weakly),
    ("incompatible", Weakly),
    ("unsupported", Weakly),
    ("not supported", Weakly),
    ("not allowed", Weakly),
    ("interrupted", Weakly),
    ("terminated", Weakly),
    ("unreachable", Weakly),
    ("assert", Weakly),
    ("unsatisf", Weakly),
];

/// The meaning of the word at `start..end` of `line`.
pub(super) fn judge(word: usize, line: &str, start: usize, end: usize) -> Hit {
    let place = Place::new(line, start, end);
    match WORDS[word].1 {
        Always => Hit::Strong,
        Severity => severity(&place),
        Bounded if place.begins_word() && !place.is_name() => Hit::Strong,
        Weakly if place.begins_word() && !place.is_name() => Hit::Weak,
        Cannot if place.begins_word() && !place.is_name() && !place.continues() => Hit::Strong,
        CausedBy if place.is_first() => Hit::Strong,
        CausedBy => Hit::Weak,
        Killed
            if place.begins_word()
                && !place.is_name()
                && !place.word().starts_with(|first: char| first.is_lowercase()) =>
        {
            Hit::Strong
        }
        Killed if place.begins_word() && !place.is_name() => Hit::Weak,
        Exit => exit(shorten(&line[start..])),
        Status => status(shorten(&line[end..])),
        Field => field(shorten(&line[end..])),
        Warning => warning(&place),
        Count if place.count() != Some(0) => Hit::Warning,
        Bounded | Weakly | Cannot | Killed | Count => Hit::Nothing,
    }
}

/// The number of bytes before and after a word that are checked. A line may be a whole output full
/// of such words.
const AROUND: usize = 256;

fn shorten(text: &str) -> &str {
    &text[..text.floor_char_boundary(AROUND)]
}

/// A word in a line: the text that was found, and the whole word around it.
struct Place<'a> {
    line: &'a str,
    /// The start of the text that was found.
    start: usize,
    /// The start of the whole word, which has letters, digits and `_`.
    word_start: usize,
    /// The end of the whole word.
    word_end: usize,
}

impl<'a> Place<'a> {
    fn new(line: &'a str, start: usize, end: usize) -> Self {
        let bytes = line.as_bytes();
        let before =
            bytes[..start].iter().rev().take(AROUND).take_while(|byte| is_word(**byte)).count();
        // The text that was found may be several words. The end of the last word counts.
        let after = if is_word(bytes[end - 1]) {
            bytes[end..].iter().take(AROUND).take_while(|byte| is_word(**byte)).count()
        } else {
            0
        };
        Self { line, start, word_start: start - before, word_end: end + after }
    }

    fn word(&self) -> &'a str {
        &self.line[self.word_start..self.word_end]
    }

    fn before(&self) -> &'a str {
        &self.line
            [self.line.floor_char_boundary(self.word_start.saturating_sub(AROUND))..self.word_start]
    }

    fn after(&self) -> &'a str {
        shorten(&self.line[self.word_end..])
    }

    fn byte_before(&self) -> u8 {
        self.before().bytes().next_back().unwrap_or(b' ')
    }

    fn byte_after(&self) -> u8 {
        self.after().bytes().next().unwrap_or(b'\n')
    }

    /// Whether the text that was found is at the start of a word.
    fn begins_word(&self) -> bool {
        self.word_start == self.start
    }

    /// Whether the word continues after the text that was found.
    fn continues(&self) -> bool {
        self.byte_after() == b'_'
    }

    /// Whether it is the first word of the line, apart from a prefix such as a time, a level in
    /// brackets or a bullet.
    fn is_first(&self) -> bool {
        self.word_start <= 40 && self.before().bytes().all(|byte| !byte.is_ascii_lowercase())
    }

    /// Whether it is part of a path, of a name with dots, dashes or colons, or of a call:
    /// `src/error.rs`, `fail-fast`, `error::Kind`.
    fn is_name(&self) -> bool {
        let after = self.after().as_bytes();
        let next = after.get(1).copied().unwrap_or(b' ');
        let joins = match self.byte_after() {
            b'/' | b'\\' => true,
            b'.' | b'-' | b'@' | b'#' | b'$' => next.is_ascii_alphanumeric() || next == b'_',
            b':' => next == b':',
            b'(' => {
                self.word().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                    && !self.after().starts_with("(s)")
            }
            b'=' => self.word().bytes().all(|byte| byte.is_ascii_lowercase()) && next == b'=',
            _ => false,
        };
        joins
            || match self.byte_before() {
                b'/' | b'\\' | b'@' | b'$' | b'_' => true,
                b'.' | b'#' | b'-' | b'&' => self
                    .before()
                    .bytes()
                    .rev()
                    .nth(1)
                    .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
                b':' => self.before().ends_with("::"),
                _ => false,
            }
    }

    /// The number of failures: `3 errors`, `0 tests failed`, `Errors: 0`, `failed=2`, `no errors`.
    fn count(&self) -> Option<u64> {
        self.count_after().or_else(|| self.count_before())
    }

    fn count_before(&self) -> Option<u64> {
        let mut words = self.before().trim_end().rsplit([' ', '\t', '(', '[', ',', '|']);
        for _ in 0..3 {
            let word = words.next()?;
            if matches!(word, "no" | "No" | "without" | "zero") {
                return Some(0);
            }
            if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) {
                // A number that is too large for a `u64` isn't 0.
                return Some(word.parse().unwrap_or(u64::MAX));
            }
            // `0 tests failed`, but not `0 passed, 3 things that failed`.
            if word.is_empty()
                || !matches!(
                    word,
                    "test"
                        | "tests"
                        | "suites"
                        | "unexpected"
                        | "known"
                        | "fixable"
                        | "new"
                        | "total"
                        | "of"
                )
            {
                return None;
            }
        }
        None
    }

    fn count_after(&self) -> Option<u64> {
        let after = self.after();
        let singular = after.strip_prefix("(s)").unwrap_or(after);
        let rest = singular.strip_prefix('"').unwrap_or(singular);
        let number = rest.strip_prefix([':', '=']).map(str::trim_start).or_else(|| {
            // In `# fail 0`, the number is the last word on the line.
            let number = rest.strip_prefix(' ')?.trim();
            number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
        })?;
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        let ends = number[digits..].bytes().next().is_none_or(|byte| {
            !byte.is_ascii_alphanumeric() && !matches!(byte, b'.' | b':' | b'-')
        });
        let ends = ends || number[digits..].starts_with(". ") || &number[digits..] == ".";
        (digits > 0 && ends).then(|| number[..digits].parse().unwrap_or(u64::MAX))
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Words that may report a failure.
const SEVERE: [&str; 20] = [
    "error",
    "errors",
    "fatal",
    "fail",
    "failed",
    "fails",
    "failing",
    "failure",
    "failures",
    "panic",
    "panics",
    "panicked",
    "exception",
    "exceptions",
    "critical",
    "severe",
    "emerg",
    "emergency",
    "errored",
    "fault",
];

/// Judges `error`, `failed`, `ValueError`, `FATAL` and similar words.
fn severity(place: &Place<'_>) -> Hit {
    let word = place.word();
    if !place.begins_word() {
        return exception(place, word);
    }
    let lower = word.bytes().all(|byte| byte.is_ascii_lowercase());
    let upper = word.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_one_of(word, &SEVERE) {
        return exception(place, word);
    }
    if place.is_name() {
        return Hit::Nothing;
    }
    if let Some(count) = place.count() {
        return if count == 0 { Hit::Nothing } else { Hit::Strong };
    }
    if is_one_of(word, &["fault"]) {
        return if place.before().to_ascii_lowercase().ends_with("segmentation ") {
            Hit::Strong
        } else {
            Hit::Weak
        };
    }
    if upper {
        return Hit::Strong;
    }
    let before = place.before();
    let after = place.after();
    // `"error": null` doesn't report an error.
    let value = after
        .strip_prefix('"')
        .unwrap_or(after)
        .strip_prefix([':', '='])
        .map(|value| value.trim_start().trim_end_matches([',', '}']));
    if let Some("null" | "false" | "none" | "None" | "nil" | "\"\"" | "[]" | "{}" | "undefined") =
        value
    {
        return Hit::Nothing;
    }
    if is_one_of(word, &["panicked"]) || is_one_of(word, &["fatal"]) && after.starts_with(" error")
    {
        return Hit::Strong;
    }
    match place.byte_after() {
        b':' => return Hit::Strong,
        b'[' if is_one_of(word, &["error"]) => return Hit::Strong,
        b']' if before.ends_with('[') => return Hit::Strong,
        b'"' if before.ends_with('"') && value.is_some() => return Hit::Strong,
        b'\n' | b',' | b';' | b'!' | b')' if is_one_of(word, &["failed"]) => return Hit::Strong,
        b'.' if is_one_of(word, &["failed", "failing", "failure"]) => return Hit::Strong,
        b'\n'
            if is_one_of(word, &["failing", "failures", "errors", "failure"])
                && !before.is_empty() =>
        {
            return Hit::Strong;
        }
        _ => {}
    }
    // `level=error`, `"severity":"error"`.
    let key = before.trim_end_matches(['"', '=', ':', ' ']);
    if key.len() < before.len()
        && ["level", "lvl", "severity", "Level", "LEVEL"].iter().any(|name| key.ends_with(name))
    {
        return Hit::Strong;
    }
    let leads = after.trim_start();
    if before == "npm " && is_one_of(word, &["error"]) {
        return Hit::Strong;
    }
    if after.starts_with(' ') {
        // `error TS2304`, `error C2065`, `  3:5  error  message`, `failed to`, `failed with`,
        // `error occurred`.
        let code = leads.bytes().take_while(u8::is_ascii_uppercase).count();
        let has_code =
            (1..=8).contains(&code) && leads.as_bytes().get(code).is_some_and(u8::is_ascii_digit);
        let said = [
            "to ", "with ", "because ", "due ", "occurred", "in ", "at ", "while ", "when ",
            "after ", "on ", "-- ",
        ];
        if has_code
            || after.starts_with("  ") && before.ends_with("  ")
            || said[..4].iter().any(|said| leads.starts_with(said))
        {
            return Hit::Strong;
        }
        if is_one_of(word, &["error", "failed", "failure"]) && leads.starts_with("occurred")
            || place.is_first() && !lower
        {
            return Hit::Strong;
        }
        if before.trim().is_empty()
            && (before.is_empty() || said.iter().any(|said| leads.starts_with(said)))
        {
            return Hit::Strong;
        }
    }
    Hit::Weak
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|other| word.eq_ignore_ascii_case(other))
}

/// Judges names such as `ValueError: …` and `java.lang.IllegalStateException`.
fn exception(place: &Place<'_>, word: &str) -> Hit {
    let named = ["Error", "Exception", "Failure", "Fault", "Panic", "Timeout", "Interrupt"]
        .iter()
        .any(|suffix| {
            word.strip_suffix(suffix).is_some_and(|stem| {
                stem.bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric())
            })
        });
    if !named || matches!(place.byte_before(), b'/' | b'\\' | b'$' | b'@') {
        return Hit::Nothing;
    }
    match place.byte_after() {
        b':' if !place.after().starts_with("::") => Hit::Strong,
        b'\n'
            if place.before().bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b' ' | b'\t' | b':')
            }) =>
        {
            Hit::Strong
        }
        b' ' | b',' | b'\n' | b'[' => Hit::Weak,
        _ => Hit::Nothing,
    }
}

/// Judges a status in a field: `":503`, `=503`, `_code: 503`.
fn field(after: &str) -> Hit {
    let value =
        after.trim_start_matches("_code").trim_start_matches("Code").trim_start_matches('"');
    match value.strip_prefix([':', '=']).map(str::trim_start) {
        Some(code)
            if code.starts_with('5')
                && code.bytes().take_while(u8::is_ascii_digit).count() == 3 =>
        {
            Hit::Strong
        }
        _ => Hit::Nothing,
    }
}

/// Judges the status of a request: `1.1" 503`, `2 404`.
fn status(after: &str) -> Hit {
    let code = after
        .trim_start_matches(|first: char| first.is_ascii_digit() || first == '.')
        .trim_start_matches(['"', ' ']);
    let digits = code.bytes().take_while(u8::is_ascii_digit).count();
    match code.as_bytes() {
        [b'5', ..] if digits == 3 => Hit::Strong,
        [b'4', ..] if digits == 3 => Hit::Weak,
        _ => Hit::Nothing,
    }
}

fn warning(place: &Place<'_>) -> Hit {
    let word = place.word();
    // Python writes `DeprecationWarning: …`.
    if word.ends_with("Warning") && word.len() > 7 && place.byte_after() == b':' {
        return Hit::Warning;
    }
    if !place.begins_word()
        || place.is_name()
        || !["warn", "warning", "warnings"].iter().any(|other| word.eq_ignore_ascii_case(other))
    {
        return Hit::Nothing;
    }
    if let Some(count) = place.count() {
        return if count == 0 { Hit::Nothing } else { Hit::Warning };
    }
    let before = place.before();
    let after = place.after();
    let is_label = matches!(place.byte_after(), b':' | b'[' | b']')
        || before.ends_with("npm ")
        || before.ends_with('=');
    if is_label
        || word.bytes().all(|byte| byte.is_ascii_uppercase())
        || before.ends_with("  ") && after.starts_with("  ")
    {
        return Hit::Warning;
    }
    // `warning TS6133`, ` warning CS0168:`.
    let code = after.strip_prefix(' ').is_some_and(|code| {
        let letters = code.bytes().take_while(u8::is_ascii_uppercase).count();
        letters > 0 && code.as_bytes().get(letters).is_some_and(u8::is_ascii_digit)
    });
    if code { Hit::Warning } else { Hit::Nothing }
}

/// Judges an exit code: `exit code 2`, `exited with code 1`, `exit status: 101`, `returned 1 exit
/// status`.
fn exit(text: &str) -> Hit {
    let mut words = text
        .split([' ', ':', '=', '(', ')', ',', ';', '.', '"', '/'])
        .filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return Hit::Nothing };
    if !["exit", "exited", "exits", "returned", "exiting"]
        .iter()
        .any(|word| first.eq_ignore_ascii_case(word))
    {
        return Hit::Nothing;
    }
    for word in words.take(5) {
        if let Ok(code) = word.parse::<i64>() {
            return if code == 0 { Hit::Nothing } else { Hit::Strong };
        }
        if !["with", "code", "status", "was", "returned", "abnormally", "value", "exited"]
            .iter()
            .any(|other| word.eq_ignore_ascii_case(other))
        {
            return Hit::Nothing;
        }
    }
    Hit::Nothing
}
