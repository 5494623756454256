//! Orders the filters of a host's plugins, and selects the filters for an answer by its tool and
//! command.

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::Look;
use regex_syntax::hir::literal::Extractor;
use toolhold_contract::{FilterDefinition, Pattern, Purpose};
use toolhold_engine::{Origin, Plugin};
use toolhold_policy::{TextGlob, commands, last_command};

/// Maximum size of a compiled pattern of a built-in filter, in bytes.
const MAX_COMPILED: usize = 1 << 20;

/// Maximum size of a compiled pattern of a third-party filter, in bytes. There may be thousands of
/// these patterns.
const MAX_COMPILED_UNTRUSTED: usize = 32 << 10;

/// The filters at one moment.
#[derive(Default)]
pub struct Chain {
    links: Vec<Link>,
    /// A configured plugin that doesn't serve, and the reason.
    missing: Option<(String, String)>,
}

/// A filter with its plugin.
pub struct Link {
    /// The name, as `PLUGIN/FILTER`. A built-in filter has only its own name.
    pub name: String,
    /// The filter's plugin.
    pub plugin: Plugin,
    /// The filter's own definition.
    pub definition: Arc<FilterDefinition>,
    matchers: Vec<(ToolPattern, SubjectPattern)>,
    /// Whether the filter gets only outputs that no other filter matches.
    pub is_fallback: bool,
}

impl Chain {
    /// Creates the chain from the filters of `plugins`, in their order. `missing` is a configured
    /// plugin that doesn't run, with the reason.
    pub fn new<'p>(
        plugins: impl IntoIterator<Item = &'p Plugin>,
        missing: Option<(String, String)>,
    ) -> Self {
        let mut links = Vec::new();
        for plugin in plugins {
            let filters = plugin.filters().iter();
            links.extend(filters.map(|definition| Link::new(plugin, definition)));
        }
        Self { links, missing }
    }

    /// Returns a configured plugin that doesn't run, with the reason. The plugin may have security
    /// filters.
    pub fn missing(&self) -> Option<&(String, String)> {
        self.missing.as_ref()
    }

    /// Returns the filters in the order in which an answer passes them.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the filters that shorten an answer of `tool` with the subject `subject`. A fallback
    /// filter is included only if the subject is known and no other filter matches.
    pub fn cosmetic(&self, tool: &str, subject: Option<&str>) -> Vec<&Link> {
        let matches = self.links.iter().filter(|link| {
            link.definition.purpose == Purpose::Cosmetic && link.fits(tool, subject)
        });
        let (fallbacks, links): (Vec<&Link>, Vec<&Link>) =
            matches.partition(|link| link.is_fallback);
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
        let mut matchers = Vec::new();
        for matcher in &definition.matchers {
            let tools = ToolPattern::new(&matcher.tool);
            let subjects = SubjectPattern::new(&matcher.subject, security, size);
            matchers.push((tools, subjects));
        }
        let is_fallback = !security && definition.fallback;
        Self {
            name,
            plugin: plugin.clone(),
            definition: Arc::clone(definition),
            matchers,
            is_fallback,
        }
    }

    /// Checks whether the filter matches a call of `tool` that acts on `subject`.
    pub fn fits(&self, tool: &str, subject: Option<&str>) -> bool {
        self.matchers
            .iter()
            .any(|(tools, subjects)| tools.matches(tool) && subjects.matches(subject))
    }

    /// Checks whether a security filter matches any command of a command line that `tool` runs. If
    /// the commands of the line can't be resolved, the filter matches.
    pub fn fits_any(&self, tool: &str, line: &str) -> bool {
        let analysis = commands::analyze(line);
        let last = last_command(line).map(|last| last.line);
        for (tools, subjects) in &self.matchers {
            if !tools.matches(tool) {
                continue;
            }
            let commands = analysis.commands.iter().map(|simple| simple.text.as_str());
            let mut texts = commands.chain([line]).chain(last.as_deref());
            if analysis.unresolved.is_some() || texts.any(|text| subjects.matches(Some(text))) {
                return true;
            }
        }
        false
    }
}

/// A matcher for names of tools.
enum ToolPattern {
    All,
    One(String),
    Glob(TextGlob),
    None,
}

impl ToolPattern {
    fn new(glob: &str) -> Self {
        match TextGlob::new(glob) {
            Ok(all) if all.is_all() => Self::All,
            Ok(_) if !glob.contains(['*', '?', '\\']) => Self::One(glob.to_owned()),
            Ok(glob) => Self::Glob(glob),
            Err(_) => Self::None,
        }
    }

    fn matches(&self, tool: &str) -> bool {
        match self {
            Self::All => true,
            Self::One(name) => name == tool,
            Self::Glob(glob) => glob.matches(tool),
            Self::None => false,
        }
    }
}

/// A matcher for the subjects of calls.
enum SubjectPattern {
    Any,
    Exact(String),
    Prefix(String),
    /// The pattern, which is compiled at its first use. A process that makes one call doesn't need
    /// all patterns.
    Regex {
        pattern: String,
        /// The first bytes of all texts that can match. Most patterns are for commands, and most
        /// subjects are paths, so few patterns are ever compiled.
        first: OnceLock<FirstBytes>,
        compiled: OnceLock<Option<Regex>>,
        /// Whether everything matches if the pattern can't be compiled. A security filter has
        /// `true`, because it fails closed.
        fallback: bool,
        /// Most bytes of the compiled pattern.
        size: usize,
    },
}

impl SubjectPattern {
    fn new(pattern: &Pattern, security: bool, size: usize) -> Self {
        match pattern {
            Pattern::Any => Self::Any,
            Pattern::Exact(text) => Self::Exact(text.clone()),
            Pattern::Prefix(text) => Self::Prefix(text.clone()),
            Pattern::Regex(text) => Self::Regex {
                pattern: text.clone(),
                first: OnceLock::new(),
                compiled: OnceLock::new(),
                fallback: security,
                size,
            },
        }
    }

    fn matches(&self, subject: Option<&str>) -> bool {
        let Some(subject) = subject else { return matches!(self, Self::Any) };
        match self {
            Self::Any => true,
            Self::Exact(text) => text == subject,
            Self::Prefix(words) => match subject.strip_prefix(words.as_str()) {
                Some(remainder) => remainder.is_empty() || remainder.starts_with(' '),
                None => false,
            },
            Self::Regex { pattern, first, compiled, fallback, size } => {
                let first_bytes = first.get_or_init(|| FirstBytes::of_matches(pattern));
                if !first_bytes.may_begin(subject) {
                    return false;
                }
                match compiled.get_or_init(|| compile(pattern, *size)) {
                    Some(regex) => regex.is_match(subject),
                    None => *fallback,
                }
            }
        }
    }
}

/// Compiles a pattern to at most `size` bytes. If this fails, logs the reason and returns `None`.
fn compile(pattern: &str, size: usize) -> Option<Regex> {
    match RegexBuilder::new(pattern).size_limit(size).build() {
        Ok(regex) => Some(regex),
        Err(error) => {
            tracing::warn!("a filter's pattern can't be used: {error}");
            None
        }
    }
}

/// A set of bytes. Bit `b % 64` of word `b / 64` says whether the set contains `b`.
struct FirstBytes([u64; 4]);

impl FirstBytes {
    const ALL: Self = Self([u64::MAX; 4]);

    /// Returns the first bytes of all texts that the pattern can match. The set contains all bytes
    /// unless the pattern is anchored at the start of the text and begins with one of a few
    /// literals.
    fn of_matches(pattern: &str) -> Self {
        let Ok(parsed) = regex_syntax::parse(pattern) else { return Self::ALL };
        if !parsed.properties().look_set_prefix().contains(Look::Start) {
            return Self::ALL;
        }
        let prefixes = Extractor::new().extract(&parsed);
        let Some(literals) = prefixes.literals() else { return Self::ALL };
        let mut bytes = Self([0; 4]);
        for literal in literals {
            let Some(&first) = literal.as_bytes().first() else { return Self::ALL };
            bytes.0[usize::from(first / 64)] |= 1 << (first % 64);
        }
        bytes
    }

    /// Checks whether the pattern may match a text with this beginning. The result for an empty
    /// text is `true`.
    fn may_begin(&self, text: &str) -> bool {
        match text.as_bytes().first() {
            Some(&byte) => self.contains(byte),
            None => true,
        }
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] & (1 << (byte % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: Pattern, subject: &str) -> bool {
        SubjectPattern::new(&pattern, false, MAX_COMPILED).matches(Some(subject))
    }

    #[test]
    fn subjects_match_as_contract_defines() {
        assert!(
            fits(Pattern::Any, "x")
                && SubjectPattern::new(&Pattern::Any, false, MAX_COMPILED).matches(None)
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
                && !SubjectPattern::new(&Pattern::Regex("b".into()), false, MAX_COMPILED)
                    .matches(None)
        );
    }

    #[test]
    fn invalid_pattern_matches_for_security_filters_only() {
        assert!(!fits(Pattern::Regex("(".into()), "x"));
        assert!(
            SubjectPattern::new(&Pattern::Regex("(".into()), true, MAX_COMPILED).matches(Some("x"))
        );
    }

    #[test]
    fn first_bytes_hold_for_every_match() {
        for (pattern, bytes) in [
            ("^cargo( \\+\\S+)? test", Some("c")),
            ("^(n?px |bun )?jest", Some("npbj")),
            ("^n?px", Some("np")),
            ("^(?i:go|make)", Some("gGmM")),
            ("^[x]|^y", Some("xy")),
            ("^\u{e9}", Some("\u{c3}")),
            ("^go|make", None),
            ("cargo", None),
            ("^a*", None),
            ("^(a|)", None),
            ("^\\S+ test", None),
            ("(?m)^a", None),
            ("(", None),
        ] {
            let first = FirstBytes::of_matches(pattern);
            for byte in 0..=u8::MAX {
                let expected = bytes.is_none_or(|bytes| bytes.contains(char::from(byte)));
                assert_eq!(first.contains(byte), expected, "{pattern} {byte}");
            }
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
            assert_eq!(ToolPattern::new(glob).matches(name), fit, "{glob} {name}");
        }
    }
}
