//! Refuses the names of new plugins that look like other plugins' names.

use thiserror::Error;
use toolhold_terminal::nearest::look_alike;

#[derive(Debug, Error, PartialEq)]
pub(crate) enum NameError {
    #[error("`{0}` is the name of a built-in plugin, which an installed plugin can't replace")]
    BuiltIn(String),
    #[error(
        "the name `{name}` looks like `{other}`, the name of another plugin; to install this \
         plugin, remove `{other}` first"
    )]
    LooksLike { name: String, other: String },
}

/// Checks that a name doesn't look like a name in `built_in` or `others`, and isn't a name in
/// `built_in`.
pub(crate) fn check_name<'a>(
    name: &str,
    built_in: impl IntoIterator<Item = &'a str>,
    others: impl IntoIterator<Item = &'a str>,
) -> Result<(), NameError> {
    let built_in: Vec<&str> = built_in.into_iter().collect();
    if built_in.contains(&name) {
        return Err(NameError::BuiltIn(name.to_owned()));
    }
    match look_alike(name, built_in.into_iter().chain(others)) {
        None => Ok(()),
        Some(other) => Err(NameError::LooksLike { name: name.to_owned(), other: other.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_are_refused() {
        let check = |name| check_name(name, ["file", "shell"], ["github", "mem-tools"]);
        for name in ["weather", "github", "files", "web-search"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        assert!(check("file").unwrap_err().to_string().contains("built-in"));
        for (name, other) in [
            ("f1le", "file"),
            ("flle", "file"),
            ("she11", "shell"),
            ("g1thub", "github"),
            ("git-hub", "github"),
            ("memtools", "mem-tools"),
            ("mern-tools", "mem-tools"),
            ("mem-t00ls", "mem-tools"),
            ("m3m-7ools", "mem-tools"),
        ] {
            let refused = check(name).unwrap_err().to_string();
            assert!(refused.contains(&format!("looks like `{other}`")), "{name}: {refused}");
        }
    }
}
