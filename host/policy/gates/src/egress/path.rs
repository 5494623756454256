//! Patterns for the paths of requests.

use std::fmt;

/// Bytes of the longest pattern. A longer pattern is refused.
const MAX_PATTERN: usize = 1024;

/// The segment that matches any single segment, and the last segment that matches all paths below.
const ANY_SEGMENT: &str = "*";
const ALL_BELOW: &str = "**";

/// A fault of a pattern for paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// The pattern has another form.
    #[error(
        "a path pattern isn't valid; write a path, as in \"/repos/me/**\": letters, digits and \
         signs, without `..`, `%` and `?`, and of at most {MAX_PATTERN} bytes"
    )]
    Form,
    /// A wildcard is only a part of a segment, or `**` isn't the last segment.
    #[error(
        "in a path pattern, `*` stands for one whole segment, and `**` for all paths below, at the \
         end: \"/repos/*/issues\", \"/repos/me/**\""
    )]
    Wildcard,
}

/// A pattern for the paths of requests, which is compared by whole segments: `/repos/*/issues`, or
/// `/repos/me/**` for all paths below `/repos/me`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(String);

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// Returns the fault of the pattern.
    pub fn new(written: &str) -> Result<Self, PathPatternError> {
        let has_valid_bytes =
            written.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#%\\\"<>;".contains(&byte));
        let has_valid_length = written.len() <= MAX_PATTERN;
        let Some(relative) = written.strip_prefix('/') else { return Err(PathPatternError::Form) };
        let has_dots = written.split('/').any(|segment| matches!(segment, "." | ".."));
        if !has_valid_bytes || !has_valid_length || has_dots || written.contains("//") {
            return Err(PathPatternError::Form);
        }
        let mut segments = relative.split('/').peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            let is_wildcard = segment == ANY_SEGMENT || (segment == ALL_BELOW && is_last);
            if segment.contains('*') && !is_wildcard {
                return Err(PathPatternError::Wildcard);
            }
        }
        Ok(Self(written.to_owned()))
    }

    /// Returns the pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks whether a path matches. A query isn't compared. Returns false for a path that servers
    /// read in different ways.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        !is_ambiguous(path) && self.matches_segments(path)
    }

    /// Checks whether the pattern matches all paths of another pattern.
    pub fn covers(&self, other: &Self) -> bool {
        // The other pattern is compared like a path. Its wildcards are segments that only the
        // wildcards of this pattern match.
        self.matches_segments(&other.0)
    }

    fn matches_segments(&self, path: &str) -> bool {
        let mut segments = path.split('/');
        for own in self.0.split('/') {
            let Some(segment) = segments.next() else { return false };
            match own {
                ALL_BELOW => return true,
                ANY_SEGMENT if segment.is_empty() || segment == ALL_BELOW => return false,
                ANY_SEGMENT => {}
                own if own == segment => {}
                _ => return false,
            }
        }
        segments.next().is_none()
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks whether servers may read a path in different ways: it has `..`, an escaped `/` or an
/// escaped `.`.
pub(super) fn is_ambiguous(path: &str) -> bool {
    let has_unclear_separator = path.contains(['\\', ';']) || path.contains("//");
    let has_dot_segment = path.split('/').any(|segment| matches!(segment, "." | ".."));
    // An escape such as `%2e` has three bytes.
    let has_unclear_escape = path.as_bytes().windows(3).any(is_unclear_escape);
    has_unclear_separator || has_dot_segment || has_unclear_escape
}

fn is_unclear_escape(three: &[u8]) -> bool {
    let codes = [b"2e", b"2f", b"5c", b"25", b"3b", b"00"];
    three[0] == b'%' && codes.iter().any(|code| three[1..].eq_ignore_ascii_case(*code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(written: &str) -> PathPattern {
        PathPattern::new(written).expect("a pattern")
    }

    #[test]
    fn pattern_matches_whole_segments() {
        let cases = [
            ("/repos/me/**", "/repos/me/x", true),
            ("/repos/me/**", "/repos/me/x/y?z=1", true),
            ("/repos/me/**", "/repos/me", false),
            ("/repos/me/**", "/repos/mex/y", false),
            ("/repos/me/**", "/repos/me/../you", false),
            ("/repos/me/**", "/repos/me/%2e%2E/you", false),
            ("/repos/me/**", "/repos/me/..%2fyou", false),
            ("/repos/me/**", "/repos/me//you", false),
            ("/repos/me/**", "/repos/me/x;/y", false),
            ("/repos/me/**", "/repos/me\\..\\you", false),
            ("/repos/*/issues", "/repos/you/issues", true),
            ("/repos/*/issues", "/repos//issues", false),
            ("/repos/*/issues", "/repos/a/b/issues", false),
            ("/repos/*/issues", "/repos/a/issues/1", false),
            ("/graphql", "/graphql?query=1", true),
            ("/graphql", "/graphql/", false),
            ("/graphql", "/Graphql", false),
            ("/**", "/", true),
            ("/**", "", false),
            ("/", "/", true),
            ("/", "", false),
        ];
        for (written, path, matches) in cases {
            assert_eq!(pattern(written).matches(path), matches, "{written}: {path}");
        }
    }

    #[test]
    fn invalid_pattern_is_refused() {
        for written in ["", "repos", "/a/../b", "/a?b", "/%2e", "/a//b", "/a b", "/ä", "/a;b"] {
            assert_eq!(PathPattern::new(written), Err(PathPatternError::Form), "{written}");
        }
        for written in ["/a*", "/**/b", "/a/***"] {
            assert_eq!(PathPattern::new(written), Err(PathPatternError::Wildcard), "{written}");
        }
        assert!(PathPattern::new(&format!("/{}", "a".repeat(MAX_PATTERN))).is_err());
    }

    #[test]
    fn pattern_covers_narrower_patterns() {
        let cases = [
            ("/**", "/a/**", true),
            ("/a/**", "/a/b", true),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/*", true),
            ("/a/*", "/a/**", false),
            ("/a/b", "/a/*", false),
            ("/a/**", "/a", false),
            ("/a/**", "/b/**", false),
        ];
        for (one, other, covers) in cases {
            assert_eq!(pattern(one).covers(&pattern(other)), covers, "{one}: {other}");
        }
    }
}
