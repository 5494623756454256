//! The filters of a host's plugins, in the order in which they get an answer, and the matchers that
//! select them.

use std::sync::{Arc, OnceLock};

use berth_contract::{FilterDefinition, Pattern, Purpose};
use berth_policy::{TextGlob, commands, last_command};
use berth_runtime::{Origin, Plugin};
use regex::{Regex, RegexBuilder};

/// Most bytes of one compiled pattern of a built-in filter.
const MAX_COMPILED: usize = 1 << 20;

/// The same for third-party filters. There may be thousands of them.
const MAX_COMPILED_UNTRUSTED: usize = 32 << 10;

/// The filters of one moment.
#[derive(Default)]
pub struct Chain {
    links: Vec<Link>,
    /// A configured plugin that doesn't serve, and the reason.
    missing: Option<(String, String)>,
}

/// A filter and its plugin.
pub struct Link {
    /// `PLUGIN/FILTER`. A built-in filter has its own name only.
    pub name: String,
    /// The filter's plugin.
    pub plugin: Plugin,
    /// The filter's own definition.
    pub definition: Arc<FilterDefinition>,
    matchers: Vec<(Tools, Subjects)>,
    /// Whether the filter gets only outputs that no other filter matches.
    pub is_fallback: bool,
}

impl Chain {
    /// The filters of `plugins`, in their order. `missing`: a configured plugin that doesn't serve,
    /// and the reason.
    pub fn new<'p>(
        plugins: impl IntoIterator<Item = &'p Plugin>,
        missing: Option<(String, String)>,
    ) -> Self {
        let links_of = |plugin: &'p Plugin| {
            plugin.filters().iter().map(|definition| Link::new(plugin, definition))
        };
        Self { links: plugins.into_iter().flat_map(links_of).collect(), missing }
    }

    /// A configured plugin that doesn't serve, and the reason. It may have security filters.
    pub fn missing(&self) -> Option<&(String, String)> {
        self.missing.as_ref()
    }

    /// The filters, in the order in which they get an answer.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The filters that make an answer of `tool` that acts on `subject` shorter. A fallback is one
    /// of them only if what wrote the answer is known and no other filter matches.
    pub fn cosmetic(&self, tool: &str, subject: Option<&str>) -> Vec<&Link> {
        let fits =
            |link: &&Link| link.definition.purpose == Purpose::Cosmetic && link.fits(tool, subject);
        let (fallbacks, links): (Vec<&Link>, Vec<&Link>) =
            self.links.iter().filter(fits).partition(|link| link.is_fallback);
        if links.is_empty() && subject.is_some() { fallbacks } else { links }
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
        let size = if built_in { MAX_COMPILED } else { MAX_COMPILED_UNTRUSTED };
        let matcher = |matcher: &berth_contract::Matcher| {
            (Tools::new(&matcher.tool), Subjects::new(&matcher.subject, security, size))
        };
        let matchers = definition.matchers.iter().map(matcher).collect();
        let is_fallback = !security && definition.fallback;
        Self {
            name,
            plugin: plugin.clone(),
            definition: Arc::clone(definition),
            matchers,
            is_fallback,
        }
    }

    /// Whether the filter matches a call of `tool` that acts on `subject`.
    pub fn fits(&self, tool: &str, subject: Option<&str>) -> bool {
        self.matchers.iter().any(|(tools, subjects)| tools.fit(tool) && subjects.fit(subject))
    }

    /// The same for a security filter and a command line: whether the filter matches any command of
    /// the line. True as well if the commands of the line can't be resolved.
    pub fn fits_any(&self, tool: &str, line: &str) -> bool {
        let analysis = commands::analyze(line);
        let texts = || analysis.commands.iter().map(|simple| simple.text.as_str()).chain([line]);
        let last = last_command(line).map(|last| last.line);
        self.matchers.iter().any(|(tools, subjects)| {
            tools.fit(tool)
                && (analysis.unresolved.is_some()
                    || texts().chain(last.as_deref()).any(|text| subjects.fit(Some(text))))
        })
    }
}

/// A matcher for names of tools.
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

/// A matcher for the subjects of calls.
enum Subjects {
    Any,
    Exact(String),
    Prefix(String),
    /// Compiled on first use: otherwise a process that makes one call would wait for all patterns.
    Regex {
        pattern: String,
        /// The literal prefix of every text that can match.
        literal_prefix: String,
        compiled: OnceLock<Option<Regex>>,
        /// Whether everything matches if the pattern can't be compiled. True for a security filter,
        /// which fails closed.
        fallback: bool,
        /// Most bytes of the compiled pattern.
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
                literal_prefix: literal_prefix(text).to_owned(),
                compiled: OnceLock::new(),
                fallback: security,
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
            Self::Regex { pattern, literal_prefix, compiled, fallback, size } => {
                if !subject.starts_with(literal_prefix.as_str()) {
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
                compiled.as_ref().map_or(*fallback, |regex| regex.is_match(subject))
            }
        }
    }
}

/// The literal prefix of every text that a pattern matches. Empty unless the pattern starts with
/// `^`.
fn literal_prefix(pattern: &str) -> &str {
    let Some(rest) = pattern.strip_prefix('^') else { return "" };
    let letters = rest
        .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, ' ' | '-' | '_'))
        .unwrap_or(rest.len());
    // A repeated last letter may be missing from the text. A `|` ends the scope of `^`.
    let repeated = rest[letters..].starts_with(['?', '*', '{', '+']);
    let prefix = if repeated { &rest[..letters.saturating_sub(1)] } else { &rest[..letters] };
    if has_outer_choice(rest) { "" } else { prefix }
}

/// Whether a `|` is outside all brackets.
fn has_outer_choice(pattern: &str) -> bool {
    let (mut depth, mut escaped) = (0_usize, false);
    // In a character class, brackets are literals. This function doesn't parse classes, so a
    // pattern with a class and a `|` counts as a choice.
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
    fn subjects_match_as_contract_defines() {
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
    fn invalid_pattern_matches_for_security_filters_only() {
        assert!(!fits(Pattern::Regex("(".into()), "x"));
        assert!(Subjects::new(&Pattern::Regex("(".into()), true, MAX_COMPILED).fit(Some("x")));
    }

    #[test]
    fn literal_prefix_holds_for_every_match() {
        for (pattern, expected) in [
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
            assert_eq!(literal_prefix(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn tool_names_match_as_globs() {
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
