//! The names with wildcards in `[tools.permissions]`: `git__*` is about the tools of `git`.

use crate::pattern::{PatternLengthError, TextGlob};

/// A name with wildcards that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolGlobError {
    /// The part before `__` is missing, or has a wildcard itself.
    #[error(
        "`{0}` may match tools of any source; write the plugin or server before the wildcard, as \
         in \"git__*\", and rules for all tools into [tools.policy]"
    )]
    AnySource(String),
    /// The name is too long.
    #[error(transparent)]
    Length(#[from] PatternLengthError),
}

/// A name with wildcards: some tools of one plugin or server.
///
/// The source is written out, so the glob matches neither a built-in tool nor a tool of another
/// source whose name begins with the same letters.
#[derive(Clone, Debug)]
pub struct ToolGlob {
    /// The name as it is written.
    name: String,
    /// The plugin or server: the part before the first `__`.
    source: String,
    tools: TextGlob,
}

impl ToolGlob {
    /// Reads a name. Returns `None` if it has no wildcard, and so is the name of one tool.
    ///
    /// # Errors
    ///
    /// [`ToolGlobError`] if it doesn't begin with a source, or is too long.
    pub fn new(name: &str) -> Result<Option<Self>, ToolGlobError> {
        if !has_wildcard(name) {
            return Ok(None);
        }
        let source = name.split_once("__").map_or("", |(source, _)| source);
        if source.is_empty() || has_wildcard(source) {
            return Err(ToolGlobError::AnySource(name.to_owned()));
        }
        let tools = TextGlob::new(name)?;
        Ok(Some(Self { name: name.to_owned(), source: source.to_owned(), tools }))
    }

    /// Returns the name as it is written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the plugin or server whose tools it matches.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Checks whether it matches a tool, by its full name or an alias.
    pub fn matches(&self, source: &str, tool: &str, aliases: &[String]) -> bool {
        if source_name(source) != self.source {
            return false;
        }
        self.tools.matches(tool) || aliases.iter().any(|alias| self.tools.matches(alias))
    }
}

/// Returns the name of a source that stands before `__` in the names of its tools. An upstream
/// server `git` is the source `mcp.git`.
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
