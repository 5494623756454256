//! Paths in arguments and answers.

use berth_sdk::{Failure, working_directory};

/// The path of an argument, or the working directory where it was left out.
pub(crate) fn or_working_directory(path: Option<String>) -> Result<String, Failure> {
    if let Some(path) = path {
        return Ok(path);
    }
    let directory = working_directory()?;
    directory.into_os_string().into_string().map_err(|_| Failure::permanent("invalid-name", "the working directory's name is not UTF-8"))
}

/// `path` without `root` and the slash behind it.
pub(crate) fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(root.trim_end_matches('/'))?.strip_prefix('/')
}

/// Shows paths as short as they can be: from the working directory where they are below it. They mean the same in the next call.
pub(crate) struct Shortened {
    from: Option<String>,
}

impl Shortened {
    pub(crate) fn new() -> Self {
        Self { from: or_working_directory(None).ok() }
    }

    pub(crate) fn show<'a>(&self, path: &'a str) -> &'a str {
        self.from.as_deref().and_then(|from| below(from, path)).unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_is_shown_from_there() {
        assert_eq!(below("/a/b", "/a/b/c/d"), Some("c/d"));
        assert_eq!(below("/a/b/", "/a/b/c"), Some("c"));
        assert_eq!(below("/", "/a"), Some("a"));
        assert_eq!(below("/a/b", "/a/bc"), None);
        assert_eq!(below("/a/b", "/a/b"), None);
        let paths = Shortened { from: Some("/a".into()) };
        assert_eq!((paths.show("/a/b"), paths.show("/b")), ("b", "/b"));
    }
}
