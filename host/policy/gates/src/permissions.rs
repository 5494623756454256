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

/// Bytes of the subjects in a remedy. A remedy for longer subjects has no rule.
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
/// The rules for one name in one file are a list. In a list, the first rule that matches decides.
/// Several lists can apply to a tool: for its name, for an alias, for a glob, and from several
/// files. The most severe of their verdicts applies. So no list can allow a call that another list
/// denies.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    tools: HashMap<String, Vec<Vec<Permission>>>,
    globs: Vec<(ToolGlob, Vec<Permission>)>,
    /// The file for new rules, named in remedies.
    file: ConfigFile,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PermissionList<'p> {
    /// The name or glob for which the list was added.
    pub(crate) name: &'p str,
    pub(crate) id: ListId,
    pub(crate) rules: &'p [Permission],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListId {
    /// The index among the lists for the same name.
    OfName(usize),
    /// The index among the lists for globs.
    OfGlob(usize),
}

impl<'p> PermissionList<'p> {
    /// Returns the rules that apply to a call. A glob never allows a tool that says that it may
    /// destroy something, because the writer of a glob may not know all tools that it matches.
    fn applying(self, says_destructive: bool) -> impl Iterator<Item = &'p Permission> {
        let skips_allow = says_destructive && matches!(self.id, ListId::OfGlob(_));
        self.rules.iter().filter(move |rule| !skips_allow || rule.verdict > Verdict::Allow)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PermissionMatch<'p> {
    pub(crate) permission: &'p Permission,
    /// Whether each command is allowed by a rule that matches only this command.
    pub(crate) exactly: bool,
}

impl Permissions {
    /// Starts without rules. `file` is the file for new rules, named in remedies.
    pub fn new(file: ConfigFile) -> Self {
        Self { file, ..Self::default() }
    }

    /// Adds a list for the tool with this name or alias. In the list, the first rule that matches
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

    /// Returns the lists of permissions that apply to a tool: the lists of its name and its
    /// aliases, and the lists of the globs that match it.
    pub(crate) fn lists(
        &self,
        provider: &str,
        tool: &str,
        aliases: &[String],
    ) -> Vec<PermissionList<'_>> {
        let mut applying = Vec::new();
        let tool_and_aliases = std::iter::once(tool).chain(aliases.iter().map(String::as_str));
        for tool_name in tool_and_aliases {
            let Some((name, lists)) = self.tools.get_key_value(tool_name) else { continue };
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

    pub(crate) fn list(&self, name: &str, id: ListId) -> &[Permission] {
        let list = match id {
            ListId::OfName(index) => self.tools.get(name).and_then(|lists| lists.get(index)),
            ListId::OfGlob(index) => self.globs.get(index).map(|(_, list)| list),
        };
        list.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn denies_all(&self, provider: &str, tool: &str, aliases: &[String]) -> bool {
        self.lists(provider, tool, aliases).iter().any(|list| {
            let mut first_denials =
                list.rules.iter().take_while(|permission| permission.verdict == Verdict::Deny);
            first_denials.any(|permission| permission.pattern.is_all())
        })
    }

    /// Returns the most severe rule that matches a subject of a call. Returns `None` if this rule
    /// allows, and another subject has no matching rule. `commands` are the command subjects, in
    /// their order.
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
                    let command = commands.next().map(AsRef::as_ref);
                    matches.add_command(&subject.text, command);
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
        // A rule that allows one subject doesn't allow the other subjects.
        if allows && matches.has_unmatched {
            return None;
        }
        Some(PermissionMatch { permission, exactly: allows && matches.exactly })
    }
}

struct SubjectMatches<'p> {
    lists: Vec<PermissionList<'p>>,
    says_destructive: bool,
    /// The most severe rule that matched a subject. If several are equal, the first.
    most_severe: Option<&'p Permission>,
    has_unmatched: bool,
    exactly: bool,
}

impl<'p> SubjectMatches<'p> {
    /// Finds the first matching rule of each list, and returns the most severe of these rules.
    fn most_severe_match(&self, matches: &impl Fn(&Pattern) -> bool) -> Option<&'p Permission> {
        let mut most_severe = None;
        for list in &self.lists {
            let mut rules = list.applying(self.says_destructive);
            if let Some(first) = rules.find(|permission| matches(&permission.pattern)) {
                most_severe = more_severe(most_severe, first);
            }
        }
        most_severe
    }

    fn add_match(&mut self, matches: impl Fn(&Pattern) -> bool) {
        match self.most_severe_match(&matches) {
            Some(permission) => self.most_severe = more_severe(self.most_severe, permission),
            None => self.has_unmatched = true,
        }
    }

    /// Adds the rules for a command. The command is allowed if each of its parts is allowed, or if
    /// a rule without a wildcard allows the whole text.
    fn add_command(&mut self, text: &str, command: Option<&Command>) {
        let whole_match = self.most_severe_match(&|pattern| pattern.matches_text(text));
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
        // No rule allows exactly this text, so the rules for its parts decide.
        self.exactly = false;

        let mut has_parts = false;
        if let Some(command) = command {
            has_parts = !command.texts.is_empty();
            self.add_parts(command);
        }
        // Without known parts, only a rule for the whole text can match.
        if !has_parts && whole_match.is_none() {
            self.has_unmatched = true;
        }
    }

    /// Adds the rules for the parts of a command, and for other spellings of its programs.
    fn add_parts(&mut self, command: &Command) {
        for (program, spellings) in command.spellings() {
            for spelling in spellings {
                self.add_spelling(program, |pattern| pattern.matches_text(spelling));
            }
        }
        for (program, flag_words) in command.flag_words() {
            for words in flag_words {
                self.add_spelling(program, |pattern| pattern.matches_flags(words));
            }
        }
        for part in &command.texts {
            self.add_match(|pattern| pattern.matches_text(part));
        }
    }
}

impl<'p> SubjectMatches<'p> {
    /// Adds the rules that deny or ask about another spelling of the command `text`. A rule can't
    /// allow a spelling, because the spelling may lack options that change the command's effect.
    fn add_spelling(&mut self, text: &str, matches_spelling: impl Fn(&Pattern) -> bool) {
        for list in &self.lists {
            let mut rules = list.applying(self.says_destructive);
            let first_match = rules.find(|permission| {
                let denies_or_asks = permission.verdict > Verdict::Allow;
                permission.pattern.matches_text(text)
                    || (denies_or_asks && matches_spelling(&permission.pattern))
            });
            // If a rule that allows `text` comes first, the later rules of the list don't apply.
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
    /// Returns the decision of a permission that matches a call, with its remedy.
    pub(crate) fn decide(&self, matched: PermissionMatch<'_>, action: &Action<'_>) -> Decision {
        let Permission { verdict, rule, place, .. } = matched.permission;
        let remedy: Cow<'static, str> = match verdict {
            Verdict::Allow => {
                "To be asked for approval, put a rule with `action = \"ask\"` before this rule."
                    .into()
            }
            Verdict::Ask | Verdict::Deny => place.remedy(|| {
                // A matching rule is always in a list.
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

    /// Returns the name, alias or glob of the list that contains a rule. Compares the addresses of
    /// rules, because several lists may contain equal rules.
    fn list_name(&self, permission: &Permission) -> Option<&str> {
        for (name, lists) in &self.tools {
            if lists.iter().flatten().any(|listed| std::ptr::eq(listed, permission)) {
                return Some(name);
            }
        }
        for (glob, rules) in &self.globs {
            if rules.iter().any(|listed| std::ptr::eq(listed, permission)) {
                return Some(glob.name());
            }
        }
        None
    }

    pub(crate) fn to_allow(&self, action: &Action<'_>) -> String {
        let tool = action.tool;
        let beginning = match self.overriding_source(tool) {
            Some(source) => format!(
                "To allow it without asking, leave out {source}, which replaces the rules of {}, and",
                self.file
            ),
            None if action.says_destructive => format!(
                "The tool declares that it may destroy something, so a rule with a glob of tools \
                 doesn't allow its calls. To allow all of them: `toolhold allow --tool {tool}`\n\
                 To allow this call without asking,"
            ),
            None => "To allow it without asking,".to_owned(),
        };
        let is_exact = false;
        let rules = match wide_pattern(action) {
            Some(pattern) => Some(allow_rule(tool, &pattern, is_exact)),
            None => rules_for(action, tool),
        };
        match rules {
            Some(rules) => format!("{beginning} add to {}:\n{rules}", self.file),
            None => format!(
                "{beginning} add a rule that matches the call, [[tools.permissions.{tool}]], in \
                 {}.",
                self.file
            ),
        }
    }

    fn overriding_source(&self, tool: &str) -> Option<String> {
        self.tools.get(tool)?.iter().flatten().find_map(|permission| match &permission.place.kind {
            OriginKind::Flag(text) => Some(format!("`{text}`")),
            OriginKind::Variable(name) => Some(format!("the variable {name}")),
            _ => None,
        })
    }
}

/// Returns rules for the list `name` that allow exactly this call. The rules can be added to the
/// end of any file. Returns `None` if the subjects are too long.
fn rules_for(action: &Action<'_>, name: &str) -> Option<String> {
    let mut texts: Vec<Cow<'_, str>> = Vec::new();
    if action.subjects_trusted {
        for subject in action.subjects {
            texts.push(Cow::Borrowed(&subject.text));
        }
    }
    // Without trusted subjects, a permission is compared with the tool and its arguments.
    if texts.is_empty() {
        texts.push(format!("{} {}", action.tool, canonical(action.arguments)).into());
    }
    let length: usize = texts.iter().map(|text| text.len()).sum();
    if length > MAX_SHOWN {
        return None;
    }

    let is_exact = true;
    let mut rules = Vec::new();
    for text in &texts {
        rules.push(allow_rule(name, text, is_exact));
    }
    Some(rules.join("\n"))
}

fn allow_rule(name: &str, pattern: &str, is_exact: bool) -> String {
    let header = list_header(name);
    let exact = if is_exact { "exact = true\n" } else { "" };
    format!("{header}\npattern = {}\n{exact}action = \"allow\"", toml(pattern))
}

/// Returns the header of a rule of the list `name`. In TOML, a glob must be quoted.
pub(crate) fn list_header(name: &str) -> String {
    if name.contains(['*', '?']) {
        format!("[[tools.permissions.{}]]", toml(name))
    } else {
        format!("[[tools.permissions.{name}]]")
    }
}

/// Returns the remedy that puts a rule for the call before the deciding rule of the list `name`.
fn remedy_before(action: &Action<'_>, name: &str) -> String {
    if action.says_destructive && name.contains(['*', '?']) {
        return "The tool says that its calls may destroy something, and a rule for a glob of tools \
                never allows such a tool. To allow the call, make this rule match less."
            .to_owned();
    }
    match rules_for(action, name) {
        Some(rules) => format!("To allow it, put this rule before the deciding rule:\n{rules}"),
        None => format!(
            "To allow it, put a rule that matches the call, with `action = \"allow\"`, before the \
             deciding rule in {}.",
            list_header(name)
        ),
    }
}
