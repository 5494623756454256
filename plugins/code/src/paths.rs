//! Shortens paths in the answers of `search_code`, and resolves those in its arguments.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use toolhold_sdk::{Failure, working_directory};

use crate::hit::one_line;
use crate::project::below;

/// The working directory.
///
/// # Errors
///
/// No directory is granted, or its name isn't UTF-8.
pub(crate) fn directory() -> Result<String, Failure> {
    working_directory()?.into_os_string().into_string().map_err(|_| {
        Failure::permanent("invalid-name", "the working directory's name is not UTF-8")
    })
}

/// A path without `.` and `..`. One that leaves a link by `..` stays as it is: what is above
/// depends on where the link leads.
pub(crate) fn without_dots(path: String) -> String {
    let mut plain = PathBuf::new();
    for part in Path::new(&path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.is_symlink() => return path,
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain.into_os_string().into_string().unwrap_or(path)
}

/// Shows paths below the working directory without it. They mean the same in the next call.
#[derive(Debug)]
pub(crate) struct PathShortener {
    from: Option<String>,
}

impl PathShortener {
    pub(crate) fn new(from: Option<String>) -> Self {
        Self { from }
    }

    pub(crate) fn show<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let rest = self.from.as_deref().and_then(|from| below(from, path));
        one_line(rest.filter(|rest| !rest.is_empty()).unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_the_working_directory_are_short_and_steer_nothing() {
        let paths = PathShortener::new(Some("/a".to_owned()));
        assert_eq!(
            (&*paths.show("/a/b\n\u{202e}c"), &*paths.show("/b")),
            ("b\u{fffd}\u{fffd}c", "/b")
        );
    }
}
