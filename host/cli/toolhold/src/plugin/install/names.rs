//! Refuses the name of a new plugin that could be taken for another plugin's.

use thiserror::Error;
use toolhold_terminal::nearest::look_alike;

/// A new name that could be taken for another plugin's.
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

/// Refuses a new name that another plugin has, or that looks like another plugin's name.
///
/// # Errors
///
/// The name could be taken for another plugin's.
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
