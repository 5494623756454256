//! `[tools.permissions.TOOL]`: decides which calls of a tool are allowed, need approval, or are
//! denied.

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
use crate::suggestion::wide_pattern;
use crate::tool_glob::ToolGlob;

/// Most bytes of the subjects in a remedy. Longer subjects would make the rule hard to read.
const MAX_SHOWN: usize = 256;

/// One rule of a tool.
#[derive(Clone, Debug)]
pub struct Permission {
    /// Pattern for the subjects of the tool.
    pub pattern: Pattern,
    /// Verdict on a call that matches.
    pub verdict: Verdict,
    /// The rule as written: `pattern = "src/**", action = "allow"`.
    pub rule: String,
    /// Place of the rule in the configuration.
    pub place: Origin,
}

/// The rules of all tools.
///
/// The rules of one name from one place are a list. In a list, the first rule that matches decides.
/// If there are several lists for a tool (of the operator and of a project's file; of its name, an
/// alias and a glob), the most severe of their verdicts counts. So no list can allow what another
/// one denies.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    tools: HashMap<String, Vec<Vec<Permission>>>,
    globs: Vec<(ToolGlob, Vec<Permission>)>,
    /// The file that a new rule goes into, for remedies.
    file: ConfigFile,
}

/// A list of rules that applies to a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermissionList<'p> {
    /// The name under which it was added.
    pub(crate) name: &'p str,
    pub(crate) id: ListId,
    pub(crate) rules: &'p [Permission],
}

/// Where a list is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListId {
    /// Its index among the lists of its name.
    OfName(usize),
    /// Its index among the lists of globs.
    OfGlob(usize),
}

impl<'p> PermissionList<'p> {
    /// Returns the rules that apply to a call. A glob doesn't name the tools that it matches, so
    /// its rules never allow a tool that says that it may destroy something.
    fn applying(self, says_destructive: bool) -> impl Iterator<Item = &'p Permission> {
        let skips_allow = says_destructive && matches!(self.id, ListId::OfGlob(_));
        self.rules.iter().filter(move |rule| !skips_allow || rule.verdict > Verdict::Allow)
    }
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

    /// Adds a list for the tool with this name or alias. In this list, the first rule that matches
    /// decides.
    pub fn add(&mut self, tool: impl Into<String>, list: Vec<Permission>) {
        if !list.is_empty() {
            self.tools.entry(tool.into()).or_default().push(list);
        }
    }

    /// Adds a list for all tools that a glob matches.
    pub fn add_glob(&mut self, glob: ToolGlob, list: Vec<Permission>) {
        if !list.is_empty() {
            self.globs.push((glob, list));
        }
    }

    /// Returns the lists that apply to a tool of a plugin or provider.
    pub(crate) fn lists(
        &self,
        provider: &str,
        tool: &str,
        aliases: &[String],
    ) -> Vec<PermissionList<'_>> {
        let mut applying = Vec::new();
        for called in std::iter::once(tool).chain(aliases.iter().map(String::as_str)) {
            let Some((name, lists)) = self.tools.get_key_value(called) else { continue };
            for (index, rules) in lists.iter().enumerate() {
                applying.push(PermissionList { name, id: ListId::OfName(index), rules });
            }
        }
        for (index, (glob, rules)) in self.globs.iter().enumerate() {
            if glob.matches(provider, tool, aliases) {
                applying.push(PermissionList {
                    name: glob.name(),
                    id: ListId::OfGlob(index),
                    rules,
                });
            }
        }
        applying
    }

    /// Returns a list by its name and place.
    pub(crate) fn list(&self, name: &str, id: ListId) -> &[Permission] {
        let list = match id {
            ListId::OfName(index) => self.tools.get(name).and_then(|lists| lists.get(index)),
            ListId::OfGlob(index) => self.globs.get(index).map(|(_, list)| list),
        };
        list.map_or(&[], Vec::as_slice)
    }

    /// Checks whether a list denies every call of the tool.
    pub(crate) fn denies_all(&self, provider: &str, tool: &str, aliases: &[String]) -> bool {
        self.lists(provider, tool, aliases).iter().any(|list| {
            let mut first_denials =
                list.rules.iter().take_while(|permission| permission.verdict == Verdict::Deny);
            first_denials.any(|permission| permission.pattern.is_all())
        })
    }

    /// Returns the rule that decides on a call. Returns `None` if one of its subjects has no
    /// matching rule, and if the rules for the other subjects neither deny nor ask. `commands` are
    /// the analysed command subjects, in their order.
    pub(crate) fn find(
        &self,
        action: &Action<'_>,
        commands: &[Arc<Command>],
    ) -> Option<PermissionMatch<'_>> {
        if self.tools.is_empty() && self.globs.is_empty() {
            return None;
        }
        let lists = self.lists(action.provider, action.tool, action.aliases);
        if lists.is_empty() {
            return None;
        }
        let mut matches = SubjectMatches {
            lists,
            says_destructive: action.says_destructive,
            most_severe: None,
            has_unmatched: false,
            exactly: true,
        };
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
        // A rule that allows one subject doesn't allow other subjects.
        if allows && matches.has_unmatched {
            return None;
        }
        Some(PermissionMatch { permission, exactly: allows && matches.exactly })
    }
}

/// Collects the rules that match the subjects of a call.
struct SubjectMatches<'p> {
    lists: Vec<PermissionList<'p>>,
    says_destructive: bool,
    /// The first of the most severe rules that matched.
    most_severe: Option<&'p Permission>,
    /// Whether a subject has no matching rule.
    has_unmatched: bool,
    exactly: bool,
}

impl<'p> SubjectMatches<'p> {
    /// Returns the most severe of the rules that match first in each list.
    fn first(&self, matches: &impl Fn(&Pattern) -> bool) -> Option<&'p Permission> {
        let mut most_severe = None;
        for list in &self.lists {
            let mut rules = list.applying(self.says_destructive);
            if let Some(first) = rules.find(|permission| matches(&permission.pattern)) {
                most_severe = more_severe(most_severe, first);
            }
        }
        most_severe
    }

    /// Adds the rules for a subject. `matches` decides whether a pattern matches the subject.
    fn add_match(&mut self, matches: impl Fn(&Pattern) -> bool) {
        match self.first(&matches) {
            Some(permission) => self.most_severe = more_severe(self.most_severe, permission),
            None => self.has_unmatched = true,
        }
    }

    /// Adds the rules for a command. The command is allowed if each of its parts is allowed, or if
    /// a rule without a wildcard allows the whole text.
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
    /// Adds the rules for another spelling of a command. These rules can only deny the command or
    /// ask for it, because the other spelling may lack options that change the effect of the
    /// command. A rule for the original spelling comes first, as usual.
    fn add_spelling(&mut self, text: &str, spelling: &str) {
        for list in &self.lists {
            let mut rules = list.applying(self.says_destructive);
            let first_match = rules.find(|permission| {
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

    /// Returns the name of the list that contains a rule: the name of the tool, or an alias. To
    /// come before this rule, a new rule must be added to the same list.
    fn list_name(&self, permission: &Permission) -> Option<&str> {
        for (name, lists) in &self.tools {
            if lists.iter().flatten().any(|listed| std::ptr::eq(listed, permission)) {
                return Some(name);
            }
        }
        for (glob, list) in &self.globs {
            if list.iter().any(|listed| std::ptr::eq(listed, permission)) {
                return Some(glob.name());
            }
        }
        None
    }

    /// Returns the lines of the configuration that would allow this call, as a person would write
    /// them.
    pub(crate) fn to_allow(&self, action: &Action<'_>) -> String {
        let tool = action.tool;
        let beginning = match self.overriding_source(tool) {
            Some(source) => format!(
                "To allow it without asking, leave out {source}, which replaces the rules of {}, and",
                self.file
            ),
            None => "To allow it without asking,".to_owned(),
        };
        let rules = match wide_pattern(action) {
            Some(pattern) => Some(allow_rule(tool, &pattern, false)),
            None => rules_for(action, tool),
        };
        match rules {
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

/// Returns rules for the list `name` that would allow exactly this call. They can be added to the
/// end of any file. Returns `None` if the subjects are too long.
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
    let rules: Vec<String> = texts.iter().map(|text| allow_rule(name, text, true)).collect();
    Some(rules.join("\n"))
}

/// Writes a rule that allows, for the list `name`.
fn allow_rule(name: &str, pattern: &str, is_exact: bool) -> String {
    let header = list_header(name);
    let exact = if is_exact { "exact = true\n" } else { "" };
    format!("{header}\npattern = {}\n{exact}action = \"allow\"", toml(pattern))
}

/// Returns the header of a rule of the list `name`. A glob is quoted, as TOML wants it.
pub(crate) fn list_header(name: &str) -> String {
    if name.contains(['*', '?']) {
        format!("[[tools.permissions.{}]]", toml(name))
    } else {
        format!("[[tools.permissions.{name}]]")
    }
}

/// Returns the remedy that adds a rule before the deciding rule of the list `name`.
fn remedy_before(action: &Action<'_>, name: &str) -> String {
    if action.says_destructive && name.contains(['*', '?']) {
        return "The tool says that it may destroy something, and a rule of a glob never allows \
                such a tool. To allow it, make this rule match less."
            .to_owned();
    }
    match rules_for(action, name) {
        Some(rules) => format!("To allow it, put before it:\n{rules}"),
        None => format!(
            "To allow it, put a rule that matches it and has `action = \"allow\"` before it \
             in {}.",
            list_header(name)
        ),
    }
}
