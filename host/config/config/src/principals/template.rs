//! Placeholders in the directories of a principal's table: `/srv/work/{sub}`.

use std::path::{Component, Path};

use crate::Who;

/// Most bytes of a name that replaces a placeholder.
const MAX_NAME: usize = 64;

/// A part of a path that is replaced by a name of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placeholder {
    Subject,
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    #[error("braces are only for `{{sub}}` and `{{client}}`, each as a whole part of the path")]
    Braces,
    #[error("a path with a placeholder can't have the part `..`")]
    Parent,
    #[error(
        "the {} can't be part of a path: it may have {} letters, digits and ._@+-, the first a \
         letter or a digit",
        .0.meaning(),
        MAX_NAME
    )]
    Name(Placeholder),
}

impl Placeholder {
    const ALL: [Self; 2] = [Self::Subject, Self::Client];

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Subject => "{sub}",
            Self::Client => "{client}",
        }
    }

    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Client => "client",
        }
    }

    fn from_part(part: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|placeholder| placeholder.text() == part)
    }
}

/// Returns the placeholders in a path.
pub(super) fn placeholders(path: &str) -> impl Iterator<Item = Placeholder> {
    path.split('/').filter_map(Placeholder::from_part)
}

/// Checks the placeholders of a path.
pub(super) fn check(path: &str) -> Result<(), TemplateError> {
    let mut parts = path.split('/');
    if parts.any(|part| part.contains(['{', '}']) && Placeholder::from_part(part).is_none()) {
        return Err(TemplateError::Braces);
    }
    let has_placeholder = placeholders(path).next().is_some();
    if has_placeholder && path.split('/').any(|part| part == "..") {
        return Err(TemplateError::Parent);
    }
    Ok(())
}

/// Returns the part of a path before its first placeholder.
pub(super) fn fixed_part(path: &str) -> &str {
    let mut end = 0;
    for part in path.split('/') {
        if Placeholder::from_part(part).is_some() {
            let fixed = path[..end].trim_end_matches('/');
            // A path that begins with a placeholder starts at the working directory.
            return match (fixed, path.starts_with('/')) {
                ("", true) => "/",
                ("", false) => ".",
                (fixed, _) => fixed,
            };
        }
        end += part.len() + 1;
    }
    path
}

/// Checks whether the last part of a path is a placeholder.
pub(super) fn ends_in_placeholder(path: &str) -> bool {
    let last = path.trim_end_matches('/').rsplit('/').next();
    last.is_some_and(|part| Placeholder::from_part(part).is_some())
}

/// Checks whether two paths with placeholders may lead two callers to the same directory, or one
/// caller into the directory of another. A caller whose name is a part of another path isn't found
/// here if its directory would contain the whole part before the first placeholder.
pub(super) fn may_share(path: &str, other: &str, is_same_issuer: bool) -> bool {
    let (path, other) = (parts(path), parts(other));
    let mut differ = false;
    for (part, other_part) in path.iter().zip(&other) {
        match (Placeholder::from_part(part), Placeholder::from_part(other_part)) {
            (Some(one), Some(two)) => differ |= one != two,
            (None, None) if part != other_part => return false,
            _ => {}
        }
    }
    let is_found_later = path.len() <= fixed_count(&other) || other.len() <= fixed_count(&path);
    !is_found_later && (differ || !is_same_issuer)
}

fn parts(path: &str) -> Vec<&str> {
    let components = Path::new(path).components().filter(|part| *part != Component::CurDir);
    components.filter_map(|part| part.as_os_str().to_str()).collect()
}

/// Counts the parts before the first placeholder.
fn fixed_count(parts: &[&str]) -> usize {
    parts.iter().take_while(|part| Placeholder::from_part(part).is_none()).count()
}

/// Replaces the placeholders of a path.
pub(super) fn fill(path: &str, who: &Who) -> Result<String, TemplateError> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        let Some(placeholder) = Placeholder::from_part(part) else {
            parts.push(part);
            continue;
        };
        let name = match placeholder {
            Placeholder::Subject => who.subject.as_str(),
            Placeholder::Client => who.client.as_deref().unwrap_or_default(),
        };
        if !is_name(name) {
            return Err(TemplateError::Name(placeholder));
        }
        parts.push(name);
    }
    Ok(parts.join("/"))
}

/// Checks whether a name from a token can be a part of a path.
fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._@+-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(subject: &str, client: Option<&str>) -> Who {
        Who {
            issuer: "https://login.example.org".to_owned(),
            subject: subject.to_owned(),
            groups: Vec::new(),
            client: client.map(str::to_owned),
            token: None,
        }
    }

    #[test]
    fn placeholders_are_whole_parts() {
        for (path, expected) in [
            ("/srv/{sub}", Ok(())),
            ("/srv/{client}/{sub}/x", Ok(())),
            ("../shared", Ok(())),
            ("/srv/{sub}x", Err(TemplateError::Braces)),
            ("/srv/{subject}", Err(TemplateError::Braces)),
            ("/srv/a}", Err(TemplateError::Braces)),
            ("/srv/{sub}/../x", Err(TemplateError::Parent)),
        ] {
            assert_eq!(check(path), expected, "{path}");
        }
    }

    #[test]
    fn fixed_part_ends_before_the_placeholder() {
        for (path, expected) in [
            ("/srv/work/{sub}", "/srv/work"),
            ("/{sub}", "/"),
            ("{sub}/x", "."),
            ("~/{client}", "~"),
            ("/srv", "/srv"),
        ] {
            assert_eq!(fixed_part(path), expected, "{path}");
        }
    }

    #[test]
    fn two_callers_share_no_directory() {
        for (path, other, other_issuer, same_issuer) in [
            ("/srv/{sub}", "/srv/{sub}", true, false),
            ("/srv/{sub}", "//srv/./{sub}/", true, false),
            ("/srv/{sub}", "/srv/{sub}/x", true, false),
            ("/srv/{sub}", "/srv/{client}", true, true),
            ("/srv/{sub}", "/srv/{client}/{sub}", true, true),
            ("/srv/{client}/{sub}", "/srv/ide/{sub}", true, false),
            ("/srv/{sub}", "/srv/bots/{sub}", false, false),
            ("/srv/{sub}", "/data/{sub}", false, false),
            ("{sub}", "/{sub}", false, false),
        ] {
            for (path, other) in [(path, other), (other, path)] {
                assert_eq!(may_share(path, other, false), other_issuer, "{path} {other}");
                assert_eq!(may_share(path, other, true), same_issuer, "{path} {other}");
            }
        }
    }

    #[test]
    fn hostile_names_are_no_parts_of_a_path() {
        let long = "a".repeat(65);
        for name in
            ["", ".", "..", "../etc", "a/b", "-rf", "~", "a b", "a\n", "a\0", "{sub}", "ä", &long]
        {
            let filled = fill("/srv/{sub}", &who(name, None));
            assert_eq!(filled, Err(TemplateError::Name(Placeholder::Subject)), "{name}");
        }
        assert!(fill("/srv/{client}", &who("anna", None)).is_err());
        let filled = fill("/srv/{client}/{sub}", &who("anna@example.org", Some("ide")));
        assert_eq!(filled.as_deref(), Ok("/srv/ide/anna@example.org"));
    }
}
