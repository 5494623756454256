//! `[tools.permissions.TOOL]`: decides what each tool may do without asking, with an approval, or
//! not at all.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use toolhold_contract::SubjectKind;
use toolhold_contract::text::toml;
use toolhold_shell_commands::Command;

use crate::action::Action;
use crate::canonical::canonical;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::{ConfigFile, Origin, OriginKind};
use crate::pattern::Pattern;

/// Bytes of the subjects that a remedy shows. Longer ones would make the rule in it hard to read.
const MAX_SHOWN: usize = 256;

/// One rule of a tool.
#[derive(Clone, Debug)]
pub struct Permission {
    /// Pattern for the subjects of the tool.
    pub pattern: Pattern,
    /// Verdict on a call that matches.
    pub verdict: Verdict,
    /// The rule as it is written: `pattern = "src/**", action = "allow"`.
    pub rule: String,
    /// Place of the rule in the configuration.
    pub place: Origin,
}

/// The rules of all tools.
///
/// The rules of one tool from one place are a list. In a list, the first rule that matches decides.
/// If there are several lists (the operator's, and that of a project's file), the most severe of
/// their verdicts counts. So no list can allow what another one denies.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    tools: HashMap<String, Vec<Vec<Permission>>>,
    /// The file that a new rule goes into, for remedies.
    file: ConfigFile,
}

/// The rule that decides on a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermissionMatch<'p> {
    pub(crate) permission: &'p Permission,
    /// Whether rules without a wildcard allow exactly these commands.
    pub(crate) exactly: bool,
}

impl Permissions {
    /// No rules yet. `file`: the file that a new rule goes into, for remedies.
    pub fn new(file: ConfigFile) -> Self {
        Self { file, ..Self::default() }
    }

    /// Adds a list for the tool with this name or alias. In it, the first rule that matches
    /// decides.
    pub fn add(&mut self, tool: impl Into<String>, list: Vec<Permission>) {
        if !list.is_empty() {
            self.tools.entry(tool.into()).or_default().push(list);
        }
    }

    /// The names of tools that have rules.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    fn lists<'p, 'n>(
        &'p self,
        tool: &'n str,
        aliases: &'n [String],
    ) -> impl Iterator<Item = &'p [Permission]> + use<'p, 'n> {
        self.named_lists(tool, aliases).map(|(_, _, list)| list)
    }

    /// The lists of a tool. Each has the name under which it was added, and its index among the
    /// lists of that name.
    pub(crate) fn named_lists<'p, 'n>(
        &'p self,
        tool: &'n str,
        aliases: &'n [String],
    ) -> impl Iterator<Item = (&'n str, usize, &'p [Permission])> + use<'p, 'n> {
        let names = std::iter::once(tool).chain(aliases.iter().map(String::as_str));
        let lists = names.filter_map(move |name| Some((name, self.tools.get(name)?)));
        lists.flat_map(|(name, lists)| {
            lists.iter().enumerate().map(move |(index, list)| (name, index, list.as_slice()))
        })
    }

    /// A list by its name and index.
    pub(crate) fn list(&self, name: &str, index: usize) -> &[Permission] {
        self.tools.get(name).and_then(|lists| lists.get(index)).map_or(&[], Vec::as_slice)
    }

    /// Whether a list denies every call of the tool.
    pub(crate) fn denies_all(&self, tool: &str, aliases: &[String]) -> bool {
        self.lists(tool, aliases).any(|list| {
            let denials = list.iter().take_while(|permission| permission.verdict == Verdict::Deny);
            denials.clone().any(|permission| permission.pattern.is_all())
        })
    }

    /// The rule that decides on a call. `None` if no rule matches one of its subjects, and no rule
    /// denies or asks for the others. `commands`: the analysed command subjects, in their order.
    pub(crate) fn find(
        &self,
        action: &Action<'_>,
        commands: &[Arc<Command>],
    ) -> Option<PermissionMatch<'_>> {
        if self.tools.is_empty() {
            return None;
        }
        let lists: Vec<&[Permission]> = self.lists(action.tool, action.aliases).collect();
        if lists.is_empty() {
            return None;
        }
        let mut matches =
            SubjectMatches { lists, most_severe: None, has_unmatched: false, exactly: true };
        let mut commands = commands.iter();
        for subject in action.subjects {
            match subject.kind {
                SubjectKind::Path | SubjectKind::Name => {
                    matches.add_match(|pattern| pattern.matches_path(&subject.text));
                }
                SubjectKind::Command => {
                    matches.add_command(&subject.text, commands.next().map(|command| &**command));
                }
                SubjectKind::Url | SubjectKind::Text => {
                    matches.add_match(|pattern| pattern.matches_text(&subject.text));
                }
            }
        }
        if action.subjects.is_empty() || !action.subjects_trusted {
            let text = format!("{} {}", action.tool, canonical(action.arguments));
            matches.add_match(|pattern| pattern.matches_text(&text));
        }
        let SubjectMatches { most_severe, has_unmatched, exactly, .. } = matches;
        let permission =
            most_severe.filter(|rule| !has_unmatched || rule.verdict > Verdict::Allow)?;
        Some(PermissionMatch {
            permission,
            exactly: exactly && permission.verdict == Verdict::Allow,
        })
    }
}

/// Collects the rules that match the subjects of a call.
struct SubjectMatches<'p> {
    lists: Vec<&'p [Permission]>,
    /// The first of the most severe rules that matched.
    most_severe: Option<&'p Permission>,
    /// Whether a subject has no matching rule.
    has_unmatched: bool,
    exactly: bool,
}

impl<'p> SubjectMatches<'p> {
    /// The most severe rule of those that match first in each list.
    fn first(&self, matches: &impl Fn(&Pattern) -> bool) -> Option<&'p Permission> {
        let first_matches = self
            .lists
            .iter()
            .filter_map(|list| list.iter().find(|permission| matches(&permission.pattern)));
        first_matches.fold(None, more_severe)
    }

    fn add_match(&mut self, matches: impl Fn(&Pattern) -> bool) {
        let first = self.first(&matches);
        self.has_unmatched |= first.is_none();
        self.most_severe = first.into_iter().fold(self.most_severe, more_severe);
    }

    /// A command is allowed if each of its parts is allowed, or if a rule without a wildcard allows
    /// the whole text.
    fn add_command(&mut self, text: &str, command: Option<&Command>) {
        let whole = self.first(&|pattern| pattern.matches_text(text));
        match whole {
            Some(permission)
                if permission.verdict == Verdict::Allow && permission.pattern.is_exactly(text) =>
            {
                self.most_severe = more_severe(self.most_severe, permission);
                return;
            }
            Some(permission) if permission.verdict > Verdict::Allow => {
                self.most_severe = more_severe(self.most_severe, permission);
            }
            _ => {}
        }
        self.exactly = false;
        for (text, spellings) in command.into_iter().flat_map(Command::spellings) {
            spellings.iter().for_each(|spelling| self.add_spelling(text, spelling));
        }
        match command.map(|command| command.texts.as_slice()) {
            None | Some([]) => self.has_unmatched |= whole.is_none(),
            Some(texts) => {
                texts.iter().for_each(|text| self.add_match(|pattern| pattern.matches_text(text)));
            }
        }
    }
}

impl<'p> SubjectMatches<'p> {
    /// Another spelling of a command can only be denied or asked for: options that it lacks may
    /// change what the command does. A rule for the command as written comes first as usual.
    fn add_spelling(&mut self, text: &str, spelling: &str) {
        let first = self.lists.iter().filter_map(|list| {
            list.iter().find(|permission| {
                permission.pattern.matches_text(text)
                    || permission.verdict > Verdict::Allow
                        && permission.pattern.matches_text(spelling)
            })
        });
        let severe = first.filter(|permission| permission.verdict > Verdict::Allow);
        self.most_severe = severe.fold(self.most_severe, more_severe);
    }
}

fn more_severe<'p>(known: Option<&'p Permission>, next: &'p Permission) -> Option<&'p Permission> {
    known.filter(|known| known.verdict >= next.verdict).or(Some(next))
}

impl Permissions {
    /// The decision of this gate by the rule that matched.
    pub(crate) fn decide(&self, matched: PermissionMatch<'_>, action: &Action<'_>) -> Decision {
        let Permission { verdict, rule, place, .. } = matched.permission;
        let remedy: Cow<'static, str> = match verdict {
            Verdict::Allow => "To be asked, put a rule with `action = \"ask\"` before it.".into(),
            Verdict::Ask | Verdict::Deny => place.remedy(|| {
                remedy_before(action, self.list_name(matched.permission).unwrap_or(action.tool))
            }),
        };
        Decision {
            verdict: *verdict,
            gate: Gate::Permissions,
            rule: rule.clone().into(),
            place: place.text.clone(),
            remedy,
        }
    }

    /// The name of the list that holds a rule: the tool's, or an alias of it. A new rule has to go
    /// into the same list to come before this one.
    fn list_name(&self, permission: &Permission) -> Option<&str> {
        let list = self
            .tools
            .iter()
            .find(|(_, lists)| lists.iter().flatten().any(|one| std::ptr::eq(one, permission)));
        list.map(|(name, _)| name.as_str())
    }

    /// The lines of the configuration that would allow this call, and no other.
    pub(crate) fn to_allow(&self, action: &Action<'_>) -> String {
        let tool = action.tool;
        let first = match self.overriding_source(tool) {
            Some(what) => format!(
                "To allow it without asking, leave out {what}, which replaces the rules of {}, and",
                self.file
            ),
            None => "To allow it without asking,".to_owned(),
        };
        match rules_for(action, tool) {
            Some(rules) => format!("{first} add to {}:\n{rules}", self.file),
            None => format!(
                "{first} give the tool a rule that matches it, [[tools.permissions.{tool}]], in {}.",
                self.file
            ),
        }
    }

    /// The flag or variable that replaces the list of the user's own file for a tool.
    fn overriding_source(&self, tool: &str) -> Option<String> {
        self.tools.get(tool)?.iter().flatten().find_map(|permission| match &permission.place.kind {
            OriginKind::Flag(text) => Some(format!("`{text}`")),
            OriginKind::Variable(name) => Some(format!("the variable {name}")),
            _ => None,
        })
    }
}

/// The rules that would allow exactly this call, for the list `name`. They can be added to the end
/// of any file. `None` if the subjects are too long.
fn rules_for(action: &Action<'_>, name: &str) -> Option<String> {
    let tool_and_arguments;
    let texts: Vec<&str> = if action.subjects.is_empty() || !action.subjects_trusted {
        tool_and_arguments = format!("{} {}", action.tool, canonical(action.arguments));
        vec![&tool_and_arguments]
    } else {
        action.subjects.iter().map(|subject| subject.text.as_str()).collect()
    };
    let too_long = texts.iter().map(|text| text.len()).sum::<usize>() > MAX_SHOWN;
    if too_long {
        return None;
    }
    let rules: Vec<_> = texts
        .iter()
        .map(|text| {
            format!(
                "[[tools.permissions.{name}]]\npattern = {}\nexact = true\naction = \"allow\"",
                toml(text)
            )
        })
        .collect();
    Some(rules.join("\n"))
}

fn remedy_before(action: &Action<'_>, name: &str) -> String {
    match rules_for(action, name) {
        Some(rules) => format!("To allow it, put before it:\n{rules}"),
        None => format!(
            "To allow it, put a rule that matches it and has `action = \"allow\"` before it in [[tools.permissions.{name}]]."
        ),
    }
}
