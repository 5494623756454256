//! Shortens and cleans paths in the answers of the file tools, and explains a file that can't be
//! opened.

use std::borrow::Cow;
use std::io::{self, ErrorKind};

use toolhold_sdk::{Failure, working_directory};

/// The path of an argument, or the working directory if the argument was left out.
pub(crate) fn or_working_directory(path: Option<String>) -> Result<String, Failure> {
    if let Some(path) = path {
        return Ok(path);
    }
    let directory = working_directory()?;
    directory.into_os_string().into_string().map_err(|_| {
        Failure::permanent("invalid-name", "the working directory's name is not UTF-8")
    })
}

/// `path` without `root` and the slash after it. `None` if it isn't below `root`.
pub(crate) fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(root.trim_end_matches('/'))?.strip_prefix('/')
}

/// The failure for a file at `path` that can't be opened.
pub(crate) fn open_failure(doing: &str, path: &str, error: &io::Error) -> Failure {
    // The host doesn't open FIFOs, sockets and devices, since they could block or act.
    if error.kind() == ErrorKind::Unsupported {
        return Failure::permanent(
            "not-a-file",
            format!("{path} is neither a file nor a directory"),
        );
    }
    Failure::io(format!("{doing} {path}"), error)
}

/// A name without control characters, so that a file's name can't add lines to a listing.
pub(crate) fn one_line(name: &str) -> Cow<'_, str> {
    if name.contains(char::is_control) {
        name.replace(char::is_control, "\u{fffd}").into()
    } else {
        name.into()
    }
}

/// Shows paths below the working directory without it. They mean the same in the next call.
pub(crate) struct PathShortener {
    from: Option<String>,
}

impl PathShortener {
    pub(crate) fn new() -> Self {
        Self { from: or_working_directory(None).ok() }
    }

    pub(crate) fn show<'a>(&self, path: &'a str) -> Cow<'a, str> {
        one_line(self.from.as_deref().and_then(|from| below(from, path)).unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_below_working_directory_is_shortened() {
        assert_eq!(below("/a/b", "/a/b/c/d"), Some("c/d"));
        assert_eq!(below("/a/b/", "/a/b/c"), Some("c"));
        assert_eq!(below("/", "/a"), Some("a"));
        assert_eq!(below("/a/b", "/a/bc"), None);
        assert_eq!(below("/a/b", "/a/b"), None);
        let paths = PathShortener { from: Some("/a".into()) };
        assert_eq!((&*paths.show("/a/b"), &*paths.show("/b")), ("b", "/b"));
    }

    #[test]
    fn open_failure_names_special_files() {
        let failure = open_failure("reading", "/a", &ErrorKind::Unsupported.into());
        assert_eq!(
            (failure.code.as_deref(), &*failure.message),
            (Some("not-a-file"), "/a is neither a file nor a directory")
        );
        assert!(
            open_failure("reading", "/a", &ErrorKind::NotFound.into())
                .message
                .starts_with("reading /a: ")
        );
    }

    #[test]
    fn name_with_control_characters_stays_on_one_line() {
        let paths = PathShortener { from: None };
        assert_eq!(paths.show("/a\n[All of it]\r\u{1b}"), "/a\u{fffd}[All of it]\u{fffd}\u{fffd}");
    }
}
