//! Finds lines of output that are important for security. If a filter removes such a line, the line
//! is added again.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};

/// Patterns of important lines, in six groups: compiler warnings about safety, runtime errors,
/// access control, cryptography, injection, and advisories about dependencies.
const PATTERNS: [&str; 20] = [
    r"unused \W?\w*Result\b",
    r"\bmust[ -]be[ -]used\b",
    r"\bunsafe (block|code|fn|function|impl|operation|trait)\b|\b(call|use|usage|declaration|dereference) (to|of) (an? )?\W?unsafe\b",
    r"\bpanicked at\b",
    r"\bdereferenc\w* (of )?(a |an )?(raw|null|dangling) pointer",
    r"\bauthentication (has )?failed|\bfail\w* to authenticate|\bauthentication failure",
    r"\bunauthori[sz]ed\b",
    r"\bpermission denied\b",
    r"\b40[13]\b\W{1,3}(unauthori[sz]ed|forbidden)",
    r"\bweak (cipher|key|hash|crypto)",
    r"\bdeprecated (algorithm|cipher|protocol|hash)",
    r"\binsecure (hash|algorithm|cipher|protocol|random)",
    r"\bcertificate (has )?(expired|is not trusted|verify failed)|\bself[- ]signed certificate",
    r"\bsql injection\b",
    r"\bunsafe (sql |raw )?quer(y|ies)\b",
    r"\b(command|code|prompt) injection\b",
    r"\bRUSTSEC-\d{4}-\d{4}\b",
    r"\b(CVE-\d{4}-\d{4,}|GHSA(-[0-9a-z]{4}){3})\b",
    r"\bsecurity advisor(y|ies)\b",
    r"\bvulnerabilit(y|ies) (was |were )?(detected|found)|\b[1-9]\d* (low|moderate|high|critical|known)? ?(severity )?vulnerabilit(y|ies)\b",
];

/// Bytes of the compiled patterns. Patterns that need more are refused.
const MAX_COMPILED: usize = 4 << 20;

/// A pattern of the operator that can't be matched.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SecurityLinesError {
    /// The engine can't read the pattern, or the pattern takes too much memory.
    #[error("`{pattern}`: {}", last_line(.source))]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The explanation of the engine.
        source: regex::Error,
    },
    /// All patterns together take too much memory.
    #[error("{}", last_line(.0))]
    Together(#[source] regex::Error),
}

/// Returns the last line of an engine's error. The other lines repeat the whole expression.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().next_back().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

/// Finds lines that are important for security.
///
/// The default has the built-in patterns. They are compiled for the first text, because most
/// processes that make one call have no text to search.
#[derive(Clone, Debug, Default)]
pub struct SecurityLines(Option<Regex>);

impl SecurityLines {
    /// Compiles the built-in patterns, and the regular expressions in `extra`. The operator
    /// configures these expressions.
    ///
    /// # Errors
    ///
    /// Returns an error if an expression is invalid, or if all expressions together take too much
    /// memory.
    pub fn with<'e>(extra: impl IntoIterator<Item = &'e str>) -> Result<Self, SecurityLinesError> {
        let extra_patterns: Vec<&str> = extra.into_iter().collect();
        if extra_patterns.is_empty() {
            return Ok(Self::default());
        }
        // Each expression is first compiled alone, so that the error names the invalid expression.
        for pattern in &extra_patterns {
            compile(std::iter::once(*pattern)).map_err(|source| SecurityLinesError::Pattern {
                pattern: (*pattern).to_owned(),
                source,
            })?;
        }
        let all_patterns = PATTERNS.into_iter().chain(extra_patterns);
        let regex = compile(all_patterns).map_err(SecurityLinesError::Together)?;
        Ok(Self(Some(regex)))
    }

    fn regex(&self) -> &Regex {
        static KNOWN: LazyLock<Regex> = LazyLock::new(|| {
            compile(PATTERNS.into_iter())
                .unwrap_or_else(|_| unreachable!("a test compiles these constant patterns"))
        });
        self.0.as_ref().unwrap_or_else(|| &KNOWN)
    }

    /// Returns the byte ranges of the important lines, in their order and without line ends.
    pub fn find<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        let mut search_start = 0;
        std::iter::from_fn(move || {
            let match_start = self.regex().find_at(text, search_start)?.start();
            let line_start = match text[..match_start].rfind('\n') {
                Some(line_end_before) => line_end_before + 1,
                None => 0,
            };
            let line_end = match text[match_start..].find('\n') {
                Some(length) => match_start + length,
                None => text.len(),
            };
            // The last line may have no line end after it.
            search_start = text.len().min(line_end + 1);
            Some(line_start..line_end)
        })
    }
}

fn compile<'p>(patterns: impl Iterator<Item = &'p str>) -> Result<Regex, regex::Error> {
    let all = patterns.map(|pattern| format!("(?:{pattern})")).collect::<Vec<_>>().join("|");
    RegexBuilder::new(&all).case_insensitive(true).size_limit(MAX_COMPILED).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_pattern_is_named_alone() {
        let Err(why) = SecurityLines::with(["fine", "("]) else { panic!("it is wrong") };
        assert_eq!(why.to_string(), "`(`: unclosed group");
    }

    fn found_lines(text: &str) -> Vec<&str> {
        SecurityLines::default().find(text).map(|range| &text[range]).collect()
    }

    #[test]
    fn security_line_is_found_whole_and_once() {
        for line in [
            "warning: unused `Result` that must be used",
            "warning: usage of an `unsafe` block",
            "thread 'main' panicked at src/main.rs:2:5:",
            "error: dereference of raw pointer is unsafe",
            "remote: Authentication failed for user u",
            "HTTP/1.1 401 Unauthorized",
            "cat: x: Permission denied",
            "403 Forbidden",
            "weak cipher in use",
            "deprecated algorithm ssh-rsa",
            "insecure hash md5",
            "possible SQL injection in query()",
            "unsafe query built from input",
            "ID: RUSTSEC-2024-0001",
            "security advisory published",
            "3 vulnerabilities found",
            "found 2 high severity vulnerabilities",
            "fixes CVE-2024-12345",
        ] {
            let text = format!("before\n{line} {line}\nafter");
            assert_eq!(found_lines(&text), [format!("{line} {line}")], "{line}");
        }
    }

    #[test]
    fn other_lines_are_not_found() {
        let text = "Compiling unsafe-libyaml v0.2.11\ntest permissions ... ok\nfound 0 vulnerabilities\n200 OK\nan expression of type Result\n";
        assert_eq!(found_lines(text), Vec::<&str>::new());
    }

    #[test]
    fn operator_adds_patterns() {
        let lines = SecurityLines::with(["license violation"]).expect("a valid pattern");
        assert_eq!(lines.find("a\nLICENSE violation: x\nb").next(), Some(2..22));
        assert!(SecurityLines::with(["("]).is_err());
        assert_eq!(lines.find("é\n401 unauthorized é").count(), 1);
    }
}
