//! The filters of a host's plugins, in the order in which an answer goes through them, and which of
//! them look at it.

use std::sync::{Arc, OnceLock};

use berth_contract::{FilterDefinition, Pattern, Purpose};
use berth_policy::{TextGlob, commands, last_command};
use berth_runtime::{Origin, Plugin};
use regex::{Regex, RegexBuilder};

/// Bytes that one compiled pattern may take: of what is built in, and of a stranger's, of which
/// there may be thousands.
const MAX_COMPILED: usize = 1 << 20;
const MAX_STRANGE: usize = 32 << 10;

/// The filters of one moment, as the catalogue is the tools of it.
#[derive(Default)]
pub struct Chain {
    links: Vec<Link>,
    /// The plugin that should be among them and doesn't serve, and why.
    missing: Option<(String, String)>,
}

/// A filter in its place.
pub struct Link {
    /// What it is called beside the filters of other plugins: built in, by its own name.
    pub name: String,
    /// The plugin that it belongs to.
    pub plugin: Plugin,
    /// What it says of itself.
    pub definition: Arc<FilterDefinition>,
    matchers: Vec<(Tools, Subjects)>,
}

impl Chain {
    /// The filters of `plugins`, one after the other. `missing`: one that doesn't serve, and why.
    pub fn new<'p>(
        plugins: impl IntoIterator<Item = &'p Plugin>,
        missing: Option<(String, String)>,
    ) -> Self {
        let of = |plugin: &'p Plugin| {
            plugin.filters().iter().map(|definition| Link::new(plugin, definition))
        };
        Self { links: plugins.into_iter().flat_map(of).collect(), missing }
    }

    /// The plugin that should filter and doesn't serve, and why. It may be one that keeps something
    /// back.
    pub fn missing(&self) -> Option<&(String, String)> {
        self.missing.as_ref()
    }

    /// The filters, in the order in which they look at an answer.
    pub fn links(&self) -> &[Link] {
        &self.links
    }
}

impl Link {
    fn new(plugin: &Plugin, definition: &Arc<FilterDefinition>) -> Self {
        let built_in = plugin.info().origin == Origin::BuiltIn;
        let name = if built_in {
            definition.name.clone()
        } else {
            format!("{}/{}", plugin.info().manifest.name, definition.name)
        };
        let security = definition.purpose == Purpose::Security;
        let size = if built_in { MAX_COMPILED } else { MAX_STRANGE };
        let matcher = |matcher: &berth_contract::Matcher| {
            (Tools::new(&matcher.tool), Subjects::new(&matcher.subject, security, size))
        };
        let matchers = definition.matchers.iter().map(matcher).collect();
        Self { name, plugin: plugin.clone(), definition: Arc::clone(definition), matchers }
    }

    /// Whether it looks at the answer of a call of `tool` that acts on `subject`.
    pub fn fits(&self, tool: &str, subject: Option<&str>) -> bool {
        self.matchers.iter().any(|(tools, subjects)| tools.fit(tool) && subjects.fit(subject))
    }

    /// The same of a filter for security and a command line: whether it fits any command in it, or
    /// may.
    pub fn fits_any(&self, tool: &str, line: &str) -> bool {
        let looked = commands::analyze(line);
        let texts = || looked.commands.iter().map(|simple| simple.text.as_str()).chain([line]);
        let last = last_command(line).map(|last| last.line);
        self.matchers.iter().any(|(tools, subjects)| {
            tools.fit(tool)
                && (looked.unresolved.is_some()
                    || texts().chain(last.as_deref()).any(|text| subjects.fit(Some(text))))
        })
    }
}

/// Names of tools.
enum Tools {
    All,
    One(String),
    Glob(TextGlob),
    None,
}

impl Tools {
    fn new(glob: &str) -> Self {
        match TextGlob::new(glob) {
            Ok(all) if all.is_all() => Self::All,
            Ok(_) if !glob.contains(['*', '?', '\\']) => Self::One(glob.to_owned()),
            Ok(glob) => Self::Glob(glob),
            Err(_) => Self::None,
        }
    }

    fn fit(&self, tool: &str) -> bool {
        match self {
            Self::All => true,
            Self::One(name) => name == tool,
            Self::Glob(glob) => glob.matches(tool),
            Self::None => false,
        }
    }
}

/// What a call has to act on.
enum Subjects {
    Any,
    Exact(String),
    Prefix(String),
    /// Compiled when it is needed: a process that makes one call would wait for all of them.
    Regex {
        pattern: String,
        /// What a text begins with that it can match.
        begins: String,
        compiled: OnceLock<Option<Regex>>,
        /// Whether it fits everything where it can't be compiled: what keeps something back fails
        /// closed.
        otherwise: bool,
        /// Bytes that it may take.
        size: usize,
    },
}

impl Subjects {
    fn new(pattern: &Pattern, security: bool, size: usize) -> Self {
        match pattern {
            Pattern::Any => Self::Any,
            Pattern::Exact(text) => Self::Exact(text.clone()),
            Pattern::Prefix(text) => Self::Prefix(text.clone()),
            Pattern::Regex(text) => Self::Regex {
                pattern: text.clone(),
                begins: beginning(text).to_owned(),
                compiled: OnceLock::new(),
                otherwise: security,
                size,
            },
        }
    }

    fn fit(&self, subject: Option<&str>) -> bool {
        let Some(subject) = subject else { return matches!(self, Self::Any) };
        match self {
            Self::Any => true,
            Self::Exact(text) => text == subject,
            Self::Prefix(words) => subject
                .strip_prefix(words.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')),
            Self::Regex { pattern, begins, compiled, otherwise, size } => {
                if !subject.starts_with(begins.as_str()) {
                    return false;
                }
                let compile = || RegexBuilder::new(pattern).size_limit(*size).build();
                let compiled = compiled.get_or_init(|| {
                    compile()
                        .map_err(|error| {
                            tracing::warn!("a filter's pattern can't be used: {error}");
                        })
                        .ok()
                });
                compiled.as_ref().map_or(*otherwise, |regex| regex.is_match(subject))
            }
        }
    }
}

/// The letters with which everything begins that an expression matches, where it says so at its own
/// beginning.
fn beginning(pattern: &str) -> &str {
    let Some(rest) = pattern.strip_prefix('^') else { return "" };
    let letters = rest
        .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, ' ' | '-' | '_'))
        .unwrap_or(rest.len());
    // The last one may be there any number of times, and a `|` ends what the sign at the beginning
    // is for.
    let counted = rest[letters..].starts_with(['?', '*', '{', '+']);
    let known = if counted { &rest[..letters.saturating_sub(1)] } else { &rest[..letters] };
    if has_outer_choice(rest) { "" } else { known }
}

/// Whether a `|` stands outside of all brackets.
fn has_outer_choice(pattern: &str) -> bool {
    let (mut depth, mut escaped) = (0_usize, false);
    // In a class, brackets are letters; how far one reaches is not told here.
    pattern.contains('[') && pattern.contains('|')
        || pattern.bytes().any(|byte| {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.saturating_sub(1),
                b'|' => return depth == 0,
                _ => {}
            }
            false
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: Pattern, subject: &str) -> bool {
        Subjects::new(&pattern, false, MAX_COMPILED).fit(Some(subject))
    }

    #[test]
    fn subjects_are_compared_as_the_contract_says() {
        assert!(
            fits(Pattern::Any, "x") && Subjects::new(&Pattern::Any, false, MAX_COMPILED).fit(None)
        );
        assert!(
            fits(Pattern::Exact("ls".into()), "ls") && !fits(Pattern::Exact("ls".into()), "ls -l")
        );
        assert!(
            fits(Pattern::Prefix("make".into()), "make -j4")
                && !fits(Pattern::Prefix("make".into()), "makepkg")
        );
        assert!(
            fits(Pattern::Regex("b$".into()), "a b")
                && !Subjects::new(&Pattern::Regex("b".into()), false, MAX_COMPILED).fit(None)
        );
    }

    #[test]
    fn what_can_t_be_compiled_fits_nothing_but_what_fails_closed() {
        assert!(!fits(Pattern::Regex("(".into()), "x"));
        assert!(Subjects::new(&Pattern::Regex("(".into()), true, MAX_COMPILED).fit(Some("x")));
    }

    #[test]
    fn a_beginning_is_only_what_must_stand_there() {
        for (pattern, begins) in [
            ("^cargo( \\+\\S+)? test", "cargo"),
            ("^npm? x", "np"),
            ("^go|make", ""),
            ("^(a|b)", ""),
            ("cargo", ""),
            ("^git log$", "git log"),
            ("^x[|]y", ""),
            ("^safe[(]|other", ""),
            ("^a{2}", ""),
        ] {
            assert_eq!(beginning(pattern), begins, "{pattern}");
        }
    }

    #[test]
    fn names_of_tools_are_globs() {
        for (glob, name, fit) in [
            ("*", "x", true),
            ("bash", "bash", true),
            ("bash", "bash2", false),
            ("x__*", "x__y", true),
            ("", "x", false),
        ] {
            assert_eq!(Tools::new(glob).fit(name), fit, "{glob} {name}");
        }
    }
}
