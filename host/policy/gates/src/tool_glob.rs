//! Globs for names of tools in `[tools.permissions]`: `git__*` matches the tools of `git`.

use crate::pattern::{PatternLengthError, TextGlob};

/// A glob that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolGlobError {
    /// The part before `__` is missing or has a wildcard.
    #[error(
        "`{0}` may match tools of any plugin or server; write a name before the wildcard, as in \
         \"git__*\". Rules for all tools belong in [tools.policy]"
    )]
    AnySource(String),
    /// The glob is too long.
    #[error(transparent)]
    Length(#[from] PatternLengthError),
}

/// A glob for the tools of one plugin or server.
///
/// The part before `__` has no wildcard. So the glob matches neither a built-in tool nor a tool of
/// another source whose name begins with the same letters.
#[derive(Clone, Debug)]
pub struct ToolGlob {
    name: String,
    source: String,
    tools: TextGlob,
}

impl ToolGlob {
    /// Reads a glob for tools of one source, such as `github__*`. Returns `None` for a name without
    /// a wildcard.
    ///
    /// # Errors
    ///
    /// Returns an error if the glob doesn't begin with a source, or is too long.
    pub fn new(name: &str) -> Result<Option<Self>, ToolGlobError> {
        if !has_wildcard(name) {
            return Ok(None);
        }
        let Some((source, _)) = name.split_once("__") else {
            return Err(ToolGlobError::AnySource(name.to_owned()));
        };
        if source.is_empty() || has_wildcard(source) {
            return Err(ToolGlobError::AnySource(name.to_owned()));
        }
        let tools = TextGlob::new(name)?;
        Ok(Some(Self { name: name.to_owned(), source: source.to_owned(), tools }))
    }

    /// Returns the glob as written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the plugin or server whose tools the glob matches.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Checks whether the glob matches a tool of `source`, by its full name or an alias.
    pub fn matches(&self, source: &str, tool: &str, aliases: &[String]) -> bool {
        if source_name(source) != self.source {
            return false;
        }
        self.tools.matches(tool) || aliases.iter().any(|alias| self.tools.matches(alias))
    }
}

/// Returns the text before `__` in the names of a source's tools. For an upstream server `git`, the
/// source is `mcp.git` and the text is `git`.
pub fn source_name(source: &str) -> &str {
    source.strip_prefix("mcp.").unwrap_or(source)
}

fn has_wildcard(name: &str) -> bool {
    name.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_matches_tools_of_its_own_source_only() {
        let glob = ToolGlob::new("git__git_*").expect("it is valid").expect("it has a wildcard");
        assert!(glob.matches("git", "git__git_status", &[]));
        assert!(glob.matches("mcp.git", "git__git_status", &[]));
        assert!(!glob.matches("mcp.git-evil", "git__git_status", &[]));
        assert!(glob.matches("git", "git__x", &["git__git_x".to_owned()]));
        for (source, tool) in [
            ("git", "git__status"),
            ("git-evil", "git-evil__git_status"),
            ("git-evil", "git__git_status"),
            ("git__git_x", "git__git_x__y"),
            ("shell", "bash"),
        ] {
            assert!(!glob.matches(source, tool, &[]), "{source} {tool}");
        }
    }

    #[test]
    fn glob_without_a_source_is_refused() {
        for name in ["*", "git*", "g*t__x", "__*", "b?sh", "*__delete"] {
            let refused = ToolGlob::new(name).expect_err(name);
            assert_eq!(refused, ToolGlobError::AnySource(name.to_owned()));
        }
        assert!(ToolGlob::new("git__status").expect("it is valid").is_none());
        ToolGlob::new(&format!("git__{}*", "x".repeat(2000))).expect_err("it is too long");
    }
}
