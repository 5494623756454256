//! `[tools.permissions.TOOL]`: what each tool may do without asking, only with a yes, or not at
//! all.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use berth_commands::Command;
use berth_contract::SubjectKind;
use berth_contract::text::toml;

use crate::action::Action;
use crate::canonical::canonical;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::{Origin, OriginKind};
use crate::pattern::Pattern;

/// Bytes of a subject that stands whole in a remedy. A longer one would hide the rule that it is
/// part of.
const MAX_SHOWN: usize = 256;

/// One rule of a tool.
#[derive(Clone, Debug)]
pub struct Permission {
    /// What it is about.
    pub pattern: Pattern,
    /// What becomes of that.
    pub verdict: Verdict,
    /// As it is written: `pattern = "src/**", action = "allow"`.
    pub rule: String,
    /// Where it stands.
    pub place: Origin,
}

/// The rules of all tools.
///
/// The rules of one tool that come from one place are a list: the first that matches decides. Where
/// there are several lists (the operator's, and that of a stranger's file), the most severe of
/// their answers counts, so that no list undoes what another one denies.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    tools: HashMap<String, Vec<Vec<Permission>>>,
}

/// What the rules say of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermissionMatch<'p> {
    pub(crate) permission: &'p Permission,
    /// Whether a person has allowed exactly these commands: by rules without a wildcard.
    pub(crate) exactly: bool,
}

impl Permissions {
    /// Adds a list for the tool of a name or an alias. The first rule that matches decides.
    pub fn add(&mut self, tool: impl Into<String>, list: Vec<Permission>) {
        if !list.is_empty() {
            self.tools.entry(tool.into()).or_default().push(list);
        }
    }

    /// The names of tools that there are rules for.
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

    /// The lists of a tool, each with the name that it stands under and its number among those of
    /// that name.
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

    /// One of these lists.
    pub(crate) fn list(&self, name: &str, index: usize) -> &[Permission] {
        self.tools.get(name).and_then(|lists| lists.get(index)).map_or(&[], Vec::as_slice)
    }

    /// Whether there is a list for the tool that denies whatever it is called with.
    pub(crate) fn denies_all(&self, tool: &str, aliases: &[String]) -> bool {
        self.lists(tool, aliases).any(|list| {
            let denials = list.iter().take_while(|permission| permission.verdict == Verdict::Deny);
            denials.clone().any(|permission| permission.pattern.is_all())
        })
    }

    /// What the rules say of a call; None where they say nothing of something that it acts on, and
    /// deny and ask for nothing else. `commands`: its command subjects, looked into, in their
    /// order.
    pub(crate) fn answer(
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
        let mut answer = Answer { lists, worst: None, silent: false, exactly: true };
        let mut commands = commands.iter();
        for subject in action.subjects {
            match subject.kind {
                SubjectKind::Path | SubjectKind::Name => {
                    answer.add_match(|pattern| pattern.matches_path(&subject.text));
                }
                SubjectKind::Command => {
                    answer.add_command(&subject.text, commands.next().map(|command| &**command));
                }
                SubjectKind::Url | SubjectKind::Text => {
                    answer.add_match(|pattern| pattern.matches_text(&subject.text));
                }
            }
        }
        if action.subjects.is_empty() || !action.subjects_believed {
            let text = format!("{} {}", action.tool, canonical(action.arguments));
            answer.add_match(|pattern| pattern.matches_text(&text));
        }
        let Answer { worst, silent, exactly, .. } = answer;
        let permission = worst.filter(|worst| !silent || worst.verdict > Verdict::Allow)?;
        Some(PermissionMatch {
            permission,
            exactly: exactly && permission.verdict == Verdict::Allow,
        })
    }
}

/// Collects what the rules say of everything that a call acts on.
struct Answer<'p> {
    lists: Vec<&'p [Permission]>,
    /// The most severe rule that matched, the first of those.
    worst: Option<&'p Permission>,
    /// Whether no rule matches something.
    silent: bool,
    exactly: bool,
}

impl<'p> Answer<'p> {
    /// The most severe of the first rules that match in each list.
    fn first(&self, matches: &impl Fn(&Pattern) -> bool) -> Option<&'p Permission> {
        let of_each = self
            .lists
            .iter()
            .filter_map(|list| list.iter().find(|permission| matches(&permission.pattern)));
        of_each.fold(None, more_severe)
    }

    fn add_match(&mut self, matches: impl Fn(&Pattern) -> bool) {
        let first = self.first(&matches);
        self.silent |= first.is_none();
        self.worst = first.into_iter().fold(self.worst, more_severe);
    }

    /// A command is allowed where all that it consists of is, or where the whole is by the letter.
    fn add_command(&mut self, text: &str, command: Option<&Command>) {
        let whole = self.first(&|pattern| pattern.matches_text(text));
        match whole {
            Some(permission)
                if permission.verdict == Verdict::Allow && permission.pattern.is_exactly(text) =>
            {
                self.worst = more_severe(self.worst, permission);
                return;
            }
            Some(permission) if permission.verdict > Verdict::Allow => {
                self.worst = more_severe(self.worst, permission);
            }
            _ => {}
        }
        self.exactly = false;
        match command.map(|command| command.texts.as_slice()) {
            None | Some([]) => self.silent |= whole.is_none(),
            Some(texts) => {
                texts.iter().for_each(|text| self.add_match(|pattern| pattern.matches_text(text)));
            }
        }
    }
}

fn more_severe<'p>(worst: Option<&'p Permission>, next: &'p Permission) -> Option<&'p Permission> {
    worst.filter(|worst| worst.verdict >= next.verdict).or(Some(next))
}

impl Permissions {
    /// What this gate says.
    pub(crate) fn say(&self, permitted: PermissionMatch<'_>, action: &Action<'_>) -> Decision {
        let Permission { verdict, rule, place, .. } = permitted.permission;
        let remedy: Cow<'static, str> = match verdict {
            Verdict::Allow => {
                "To have it ask, put a rule with `action = \"ask\"` before it.".into()
            }
            Verdict::Ask | Verdict::Deny => place.remedy(|| {
                before(action, self.name_over(permitted.permission).unwrap_or(action.tool))
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

    /// The name that a rule stands under: the tool's, or an alias of it. The first of another list
    /// comes before no rule of this one.
    fn name_over(&self, permission: &Permission) -> Option<&str> {
        let holds = |lists: &Vec<Vec<Permission>>| {
            lists.iter().flatten().any(|one| std::ptr::eq(one, permission))
        };
        self.tools.iter().find(|(_, lists)| holds(lists)).map(|(name, _)| name.as_str())
    }

    /// The lines of the configuration that would allow exactly this call, and no other.
    pub(crate) fn to_allow(&self, action: &Action<'_>) -> String {
        let tool = action.tool;
        let first = || match self.in_the_way(tool) {
            Some(what) => format!(
                "To allow it without asking, leave out {what}, in whose place the rules of berth.toml don't count, and"
            ),
            None => "To allow it without asking,".to_owned(),
        };
        match rules_for(action, tool) {
            Some(rules) => format!("{} add to berth.toml:\n{rules}", first()),
            None => format!(
                "{} give the tool a rule that matches it: [[tools.permissions.{tool}]].",
                first()
            ),
        }
    }

    /// The flag or variable that has taken the place of the list that the user's own file has for a
    /// tool, or would have.
    fn in_the_way(&self, tool: &str) -> Option<String> {
        self.tools.get(tool)?.iter().flatten().find_map(|permission| match &permission.place.kind {
            OriginKind::Flag(text) => Some(format!("`{text}`")),
            OriginKind::Variable(name) => Some(format!("the variable {name}")),
            _ => None,
        })
    }
}

/// The rules that would allow exactly this call, in the list under `name`, in the form that can be
/// added to a file whatever stands in it before.
fn rules_for(action: &Action<'_>, name: &str) -> Option<String> {
    let tool_and_arguments;
    let texts: Vec<&str> = if action.subjects.is_empty() || !action.subjects_believed {
        tool_and_arguments = format!("{} {}", action.tool, canonical(action.arguments));
        vec![&tool_and_arguments]
    } else {
        action.subjects.iter().map(|subject| subject.text.as_str()).collect()
    };
    let too_long = texts.iter().map(|text| text.len()).sum::<usize>() > MAX_SHOWN;
    if too_long {
        return None;
    }
    let rule = |text: &&str| {
        format!(
            "[[tools.permissions.{name}]]\npattern = {}\nexact = true\naction = \"allow\"",
            toml(text)
        )
    };
    Some(texts.iter().map(rule).collect::<Vec<_>>().join("\n"))
}

fn before(action: &Action<'_>, name: &str) -> String {
    match rules_for(action, name) {
        Some(rules) => format!("To allow it, put before it:\n{rules}"),
        None => format!(
            "To allow it, put a rule that matches it and has `action = \"allow\"` before it in [[tools.permissions.{name}]]."
        ),
    }
}
