//! Orders the filters of all plugins, and selects the filters for an answer by tool and command.

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::Look;
use regex_syntax::hir::literal::Extractor;
use toolhold_contract::{FilterDefinition, Pattern, Purpose};
use toolhold_engine::{Origin, Plugin};
use toolhold_policy::{TextGlob, commands, last_command};

/// Maximum size of a compiled pattern of a built-in filter, in bytes.
const MAX_COMPILED: usize = 1 << 20;

/// Maximum size of a compiled pattern of a third-party filter, in bytes. A plugin may have
/// thousands of patterns.
const MAX_COMPILED_UNTRUSTED: usize = 32 << 10;

/// The filters of a catalogue.
#[derive(Default)]
pub struct Chain {
    links: Vec<Link>,
    /// The first plugin of the configured chain that doesn't run, and the reason.
    missing: Option<(String, String)>,
}

/// A filter with its plugin.
pub struct Link {
    /// The name `PLUGIN/FILTER`. For a built-in filter, the name is `FILTER`.
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
    /// Creates the chain from the filters of `plugins`, in their order. `missing` is a plugin of
    /// the configured chain that doesn't run, and the reason.
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

    /// Returns a plugin of the configured chain that doesn't run, and the reason. The plugin may
    /// have security filters.
    pub fn missing(&self) -> Option<&(String, String)> {
        self.missing.as_ref()
    }

    /// Returns all filters, in the order in which they run.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the cosmetic filters for an answer. Matching fallback filters are returned only if
    /// no other filter matches and the subject is known.
    pub fn cosmetic(&self, tool: &str, subject: Option<&str>) -> Vec<&Link> {
        let mut fallbacks = Vec::new();
        let mut others = Vec::new();
        for link in &self.links {
            if link.definition.purpose != Purpose::Cosmetic || !link.fits(tool, subject) {
                continue;
            }
            if link.is_fallback {
                fallbacks.push(link);
            } else {
                others.push(link);
            }
        }
        let uses_fallbacks = others.is_empty() && subject.is_some();
        if uses_fallbacks { fallbacks } else { others }
    }
}

impl Link {
    fn new(plugin: &Plugin, definition: &Arc<FilterDefinition>) -> Self {
        let is_built_in = plugin.info().origin == Origin::BuiltIn;
        let name = if is_built_in {
            definition.name.clone()
        } else {
            format!("{}/{}", plugin.info().manifest.name, definition.name)
        };
        let is_security = definition.purpose == Purpose::Security;
        let max_size = if is_built_in { MAX_COMPILED } else { MAX_COMPILED_UNTRUSTED };
        let mut matchers = Vec::new();
        for matcher in &definition.matchers {
            let tools = ToolPattern::new(&matcher.tool);
            let subjects = SubjectPattern::new(&matcher.subject, is_security, max_size);
            matchers.push((tools, subjects));
        }
        let is_fallback = !is_security && definition.fallback;
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

    /// Checks whether a security filter matches any command of a command line. Unresolved commands
    /// match every filter.
    pub fn fits_any(&self, tool: &str, line: &str) -> bool {
        let analysis = commands::analyze(line);
        let has_unknown_commands = analysis.unresolved.is_some();
        let last = last_command(line).map(|last| last.line);
        // Patterns can describe the whole line, each command, or the usual form of the last
        // command.
        let mut texts = vec![line];
        texts.extend(analysis.commands.iter().map(|command| command.text.as_str()));
        texts.extend(last.as_deref());
        for (tools, subjects) in &self.matchers {
            if !tools.matches(tool) {
                continue;
            }
            if has_unknown_commands || texts.iter().any(|&text| subjects.matches(Some(text))) {
                return true;
            }
        }
        false
    }
}

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

enum SubjectPattern {
    Any,
    Exact(String),
    Prefix(String),
    /// The pattern is compiled at its first use, because most processes need few patterns.
    Regex {
        pattern: String,
        /// The possible first bytes of matching texts. A first byte excludes most subjects quickly,
        /// so few patterns are ever compiled.
        first: OnceLock<FirstBytes>,
        compiled: OnceLock<Option<Regex>>,
        /// The result for a pattern that can't be compiled: `true` for security filters, because
        /// they fail closed.
        matches_if_invalid: bool,
        max_size: usize,
    },
}

impl SubjectPattern {
    /// Creates the pattern of a filter. `max_size` is the maximum size of a compiled expression in
    /// bytes.
    fn new(pattern: &Pattern, is_security: bool, max_size: usize) -> Self {
        match pattern {
            Pattern::Any => Self::Any,
            Pattern::Exact(text) => Self::Exact(text.clone()),
            Pattern::Prefix(text) => Self::Prefix(text.clone()),
            Pattern::Regex(text) => Self::Regex {
                pattern: text.clone(),
                first: OnceLock::new(),
                compiled: OnceLock::new(),
                matches_if_invalid: is_security,
                max_size,
            },
        }
    }

    fn matches(&self, subject: Option<&str>) -> bool {
        let Some(subject) = subject else { return matches!(self, Self::Any) };
        match self {
            Self::Any => true,
            Self::Exact(text) => text == subject,
            // A prefix ends at a word end: `git` isn't a prefix of `gitk`.
            Self::Prefix(words) => match subject.strip_prefix(words.as_str()) {
                Some(remainder) => remainder.is_empty() || remainder.starts_with(' '),
                None => false,
            },
            Self::Regex { pattern, first, compiled, matches_if_invalid, max_size } => {
                let first_bytes = first.get_or_init(|| FirstBytes::of_matches(pattern));
                if !first_bytes.may_begin(subject) {
                    return false;
                }
                match compiled.get_or_init(|| compile(pattern, *max_size)) {
                    Some(regex) => regex.is_match(subject),
                    None => *matches_if_invalid,
                }
            }
        }
    }
}

fn compile(pattern: &str, max_size: usize) -> Option<Regex> {
    match RegexBuilder::new(pattern).size_limit(max_size).build() {
        Ok(regex) => Some(regex),
        Err(error) => {
            tracing::warn!("a filter's pattern can't be used: {error}");
            None
        }
    }
}

/// Number of bits in a word of [`FirstBytes`].
const WORD_BITS: u8 = 64;

/// A set of bytes, with one bit for each byte in ascending order.
struct FirstBytes([u64; 4]);

impl FirstBytes {
    const ALL: Self = Self([u64::MAX; 4]);

    /// Returns the possible first bytes of matching texts. All bytes are possible unless the
    /// pattern is anchored at the start of the text and begins with literals.
    fn of_matches(pattern: &str) -> Self {
        let Ok(parsed) = regex_syntax::parse(pattern) else { return Self::ALL };
        let is_anchored = parsed.properties().look_set_prefix().contains(Look::Start);
        if !is_anchored {
            return Self::ALL;
        }
        let prefixes = Extractor::new().extract(&parsed);
        let Some(literals) = prefixes.literals() else { return Self::ALL };
        let mut bytes = Self([0; 4]);
        for literal in literals {
            // An empty literal doesn't restrict the first byte.
            let Some(&first) = literal.as_bytes().first() else { return Self::ALL };
            bytes.insert(first);
        }
        bytes
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte / WORD_BITS)] |= 1 << (byte % WORD_BITS);
    }

    /// Checks by the first byte whether the pattern may match `text`. Returns `true` for an empty
    /// text.
    fn may_begin(&self, text: &str) -> bool {
        match text.as_bytes().first() {
            Some(&byte) => self.contains(byte),
            None => true,
        }
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte / WORD_BITS)] & (1 << (byte % WORD_BITS)) != 0
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
