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
    /// Starts without rules. `file` is the file that a new rule goes into, for remedies.
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

    /// Returns the names of tools that have rules.
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

    /// Returns the lists of a tool. Each has the name under which it was added, and its index among
    /// the lists of that name.
    pub(crate) fn named_lists<'p, 'n>(
        &'p self,
        tool: &'n str,
        aliases: &'n [String],
    ) -> impl Iterator<Item = (&'n str, usize, &'p [Permission])> + use<'p, 'n> {
        let names = std::iter::once(tool).chain(aliases.iter().map(String::as_str));
        let known_names = names.filter_map(move |name| Some((name, self.tools.get(name)?)));
        known_names.flat_map(|(name, lists)| {
            lists.iter().enumerate().map(move |(index, list)| (name, index, list.as_slice()))
        })
    }

    /// Returns a list by its name and index.
    pub(crate) fn list(&self, name: &str, index: usize) -> &[Permission] {
        self.tools.get(name).and_then(|lists| lists.get(index)).map_or(&[], Vec::as_slice)
    }

    /// Checks whether a list denies every call of the tool.
    pub(crate) fn denies_all(&self, tool: &str, aliases: &[String]) -> bool {
        self.lists(tool, aliases).any(|list| {
            let mut first_denials =
                list.iter().take_while(|permission| permission.verdict == Verdict::Deny);
            first_denials.any(|permission| permission.pattern.is_all())
        })
    }

    /// Returns the rule that decides on a call. Returns `None` if no rule matches one of its
    /// subjects, and no rule denies or asks for the others. `commands`: the analysed command
    /// subjects, in their order.
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

        let permission = matches.most_severe?;
        let allows = permission.verdict == Verdict::Allow;
        // A rule that allows one subject doesn't allow another one.
        if allows && matches.has_unmatched {
            return None;
        }
        Some(PermissionMatch { permission, exactly: allows && matches.exactly })
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
    /// Returns the most severe rule of those that match first in each list.
    fn first(&self, matches: &impl Fn(&Pattern) -> bool) -> Option<&'p Permission> {
        let first_matches = self
            .lists
            .iter()
            .filter_map(|list| list.iter().find(|permission| matches(&permission.pattern)));
        first_matches.fold(None, more_severe)
    }

    /// Adds the rules for a subject whose patterns are those that `matches`.
    fn add_match(&mut self, matches: impl Fn(&Pattern) -> bool) {
        match self.first(&matches) {
            Some(permission) => self.most_severe = more_severe(self.most_severe, permission),
            None => self.has_unmatched = true,
        }
    }

    /// Adds the rules for a command. It is allowed if each of its parts is allowed, or if a rule
    /// without a wildcard allows the whole text.
    fn add_command(&mut self, text: &str, command: Option<&Command>) {
        let whole_match = self.first(&|pattern| pattern.matches_text(text));
        if let Some(permission) = whole_match {
            let allows = permission.verdict == Verdict::Allow;
            let allows_exactly = allows && permission.pattern.is_exactly(text);
            if allows_exactly || !allows {
                self.most_severe = more_severe(self.most_severe, permission);
            }
            if allows_exactly {
                return;
            }
        }
        self.exactly = false;

        for (program, spellings) in command.into_iter().flat_map(Command::spellings) {
            for spelling in spellings {
                self.add_spelling(program, spelling);
            }
        }
        match command.map(|command| command.texts.as_slice()) {
            None | Some([]) if whole_match.is_none() => self.has_unmatched = true,
            None | Some([]) => {}
            Some(parts) => {
                for part in parts {
                    self.add_match(|pattern| pattern.matches_text(part));
                }
            }
        }
    }
}

impl<'p> SubjectMatches<'p> {
    /// Adds the rules for another spelling of a command. They can only deny it or ask for it:
    /// options that the spelling lacks may change what the command does. A rule for the command as
    /// written comes first as usual.
    fn add_spelling(&mut self, text: &str, spelling: &str) {
        for list in &self.lists {
            let first_match = list.iter().find(|permission| {
                let is_severe = permission.verdict > Verdict::Allow;
                permission.pattern.matches_text(text)
                    || (is_severe && permission.pattern.matches_text(spelling))
            });
            if let Some(permission) = first_match
                && permission.verdict > Verdict::Allow
            {
                self.most_severe = more_severe(self.most_severe, permission);
            }
        }
    }
}

fn more_severe<'p>(known: Option<&'p Permission>, next: &'p Permission) -> Option<&'p Permission> {
    match known {
        Some(known) if known.verdict >= next.verdict => Some(known),
        _ => Some(next),
    }
}

impl Permissions {
    /// Returns the decision of this gate by the rule that matched.
    pub(crate) fn decide(&self, matched: PermissionMatch<'_>, action: &Action<'_>) -> Decision {
        let Permission { verdict, rule, place, .. } = matched.permission;
        let remedy: Cow<'static, str> = match verdict {
            Verdict::Allow => "To be asked, put a rule with `action = \"ask\"` before it.".into(),
            Verdict::Ask | Verdict::Deny => place.remedy(|| {
                let list_name = self.list_name(matched.permission).unwrap_or(action.tool);
                remedy_before(action, list_name)
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

    /// Returns the name of the list that holds a rule: the tool's, or an alias of it. A new rule
    /// has to go into the same list to come before this one.
    fn list_name(&self, permission: &Permission) -> Option<&str> {
        for (name, lists) in &self.tools {
            if lists.iter().flatten().any(|listed| std::ptr::eq(listed, permission)) {
                return Some(name);
            }
        }
        None
    }

    /// Returns the lines of the configuration that would allow this call, and no other.
    pub(crate) fn to_allow(&self, action: &Action<'_>) -> String {
        let tool = action.tool;
        let beginning = match self.overriding_source(tool) {
            Some(source) => format!(
                "To allow it without asking, leave out {source}, which replaces the rules of {}, and",
                self.file
            ),
            None => "To allow it without asking,".to_owned(),
        };
        match rules_for(action, tool) {
            Some(rules) => format!("{beginning} add to {}:\n{rules}", self.file),
            None => format!(
                "{beginning} give the tool a rule that matches it, [[tools.permissions.{tool}]], in {}.",
                self.file
            ),
        }
    }

    /// Returns the flag or variable that replaces the list of the user's own file for a tool.
    fn overriding_source(&self, tool: &str) -> Option<String> {
        self.tools.get(tool)?.iter().flatten().find_map(|permission| match &permission.place.kind {
            OriginKind::Flag(text) => Some(format!("`{text}`")),
            OriginKind::Variable(name) => Some(format!("the variable {name}")),
            _ => None,
        })
    }
}

/// Returns the rules that would allow exactly this call, for the list `name`. They can be added to
/// the end of any file. Returns `None` if the subjects are too long.
fn rules_for(action: &Action<'_>, name: &str) -> Option<String> {
    let texts: Vec<Cow<'_, str>> = if action.subjects.is_empty() || !action.subjects_trusted {
        vec![format!("{} {}", action.tool, canonical(action.arguments)).into()]
    } else {
        action.subjects.iter().map(|subject| subject.text.as_str().into()).collect()
    };
    let length: usize = texts.iter().map(|text| text.len()).sum();
    if length > MAX_SHOWN {
        return None;
    }
    let mut rules = Vec::new();
    for text in texts {
        let pattern = toml(&text);
        rules.push(format!(
            "[[tools.permissions.{name}]]\npattern = {pattern}\nexact = true\naction = \"allow\""
        ));
    }
    Some(rules.join("\n"))
}

/// Returns the remedy that puts a rule before the one of the list `name` that decided.
fn remedy_before(action: &Action<'_>, name: &str) -> String {
    match rules_for(action, name) {
        Some(rules) => format!("To allow it, put before it:\n{rules}"),
        None => format!(
            "To allow it, put a rule that matches it and has `action = \"allow\"` before it in [[tools.permissions.{name}]]."
        ),
    }
}
