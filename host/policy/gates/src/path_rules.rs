//! Applies the rules about calls to all paths that a call reaches, and not only to those that it
//! names.
//!
//! A call that names a folder reaches everything in it. So the rules for all tools and the
//! permissions of its tool decide on each path as if the call had named it. An approval of a path
//! covers everything below the path, by the same rule. Paths without a rule are left to the grants.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_contract::text::{cut, toml};
use toolhold_contract::{Access, Denial, PathRefusal, PathRules};

use crate::action::Action;
use crate::decision::{Gate, Verdict};
use crate::pattern::literal;
use crate::permissions::Permission;
use crate::policy::Policy;
use crate::rules::{Effect, Rule, RuleSet};

/// Bytes of a path that a denial shows.
const MAX_SHOWN: usize = 1024;

/// Bytes of a path that a remedy contains.
const MAX_IN_REMEDY: usize = 256;

/// The rules that decide on the paths of one call. A [`Policy`] makes them for a call that it
/// allows.
#[derive(Debug)]
pub struct ReachedPaths {
    policy: Arc<Policy>,
    tool: String,
    sets: Vec<MatchingSet>,
    lists: Vec<MatchingList>,
    reasons: Vec<Reason>,
    /// The paths that the call names.
    named: Vec<(PathBuf, Access)>,
    /// Approved paths, each with the index of the reason that asked. An approval covers everything
    /// below the path.
    approved: Vec<(PathBuf, usize)>,
}

/// The rules of one set that apply to the call, each with the index of its reason.
#[derive(Debug)]
struct MatchingSet {
    index: usize,
    denying: Vec<(usize, usize)>,
    /// The rules that allow, if a path needs one of them, and the index of their reason.
    allowing: Option<(Vec<usize>, usize)>,
}

/// A list of permissions, and the index of the reason of its first rule.
#[derive(Debug)]
struct MatchingList {
    name: String,
    index: usize,
    first_reason: usize,
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Denied { set: usize, rule: usize },
    NotAllowed { set: usize },
    Permission { list: usize, rule: usize },
}

impl Policy {
    /// The rules for the paths that an allowed call reaches. `None` if no rule is about paths that
    /// the call doesn't name.
    pub fn reached(self: &Arc<Self>, action: &Action<'_>) -> Option<Arc<ReachedPaths>> {
        let named = action.subjects.iter().filter(|subject| subject.kind.is_path());
        let mut reached = ReachedPaths {
            policy: Arc::clone(self),
            tool: action.tool.to_owned(),
            sets: Vec::new(),
            lists: Vec::new(),
            reasons: Vec::new(),
            named: Vec::new(),
            approved: Vec::new(),
        };
        let trust = self.trusted.least(action);
        for index in 0..self.sets() {
            let rules = &self.set(index).2.rules;
            let about: Vec<(usize, &Rule)> = rules
                .iter()
                .enumerate()
                .filter(|(_, rule)| {
                    rule.matches(action, trust)
                        && (action.acts() || rule.access != Some(Access::Write))
                })
                .collect();
            let denying = about
                .iter()
                .filter(|(_, rule)| rule.effect == Effect::Deny && rule.is_about_paths())
                .map(|(rule, _)| {
                    (*rule, reached.add_reason(Reason::Denied { set: index, rule: *rule }))
                })
                .collect::<Vec<_>>();
            let allowing: Vec<&(usize, &Rule)> =
                about.iter().filter(|(_, rule)| rule.effect == Effect::Allow).collect();
            // If no allowing rule applies to the call, the call needs none.
            let is_bounded = !allowing.is_empty()
                && allowing.iter().all(|(_, rule)| rule.paths.is_some() || rule.access.is_some());
            let allowing = is_bounded.then(|| {
                let rules = allowing.iter().map(|(rule, _)| *rule).collect();
                (rules, reached.add_reason(Reason::NotAllowed { set: index }))
            });
            if !denying.is_empty() || allowing.is_some() {
                reached.sets.push(MatchingSet { index, denying, allowing });
            }
        }
        // Permissions match the subjects of the tool. If the subjects are commands, the permissions
        // are about commands and not about paths.
        if named.clone().next().is_some() {
            for (name, index, list) in self.permissions.named_lists(action.tool, action.aliases) {
                if list.iter().any(|permission| permission.verdict > Verdict::Allow) {
                    let first_reason = reached.reasons.len();
                    reached.lists.push(MatchingList { name: name.to_owned(), index, first_reason });
                    let list = reached.lists.len() - 1;
                    let rules = self.permissions.list(name, index).len();
                    reached
                        .reasons
                        .extend((0..rules).map(|rule| Reason::Permission { list, rule }));
                }
            }
        }
        if reached.reasons.is_empty() {
            return None;
        }
        reached.named =
            named.map(|subject| (PathBuf::from(&subject.text), subject.access)).collect();
        reached.approved = reached.approved_paths();
        Some(Arc::new(reached))
    }

    fn sets(&self) -> usize {
        self.ceiling.len() + 1
    }

    /// A set of rules with its gate and its name.
    fn set(&self, index: usize) -> (Gate, &'static str, &RuleSet) {
        match self.ceiling.get(index) {
            Some(rules) => (Gate::Ceiling, "the ceiling", rules),
            None => (Gate::Policy, "[tools.policy]", &self.policy),
        }
    }
}

impl ReachedPaths {
    /// A text that differs for different rules of the same policy. Cached answers of calls with
    /// other rules may differ.
    pub fn identity(&self) -> String {
        format!("{:?}", (&self.reasons, &self.named, &self.approved))
    }

    fn add_reason(&mut self, reason: Reason) -> usize {
        self.reasons.push(reason);
        self.reasons.len() - 1
    }

    fn permissions(&self, list: &MatchingList) -> &[Permission] {
        self.policy.permissions.list(&list.name, list.index)
    }

    /// The first rule of each list that `is_included` and matches a path, with the index of its
    /// reason.
    fn first_matches<'r>(
        &'r self,
        path: &'r str,
        is_included: fn(&Permission) -> bool,
    ) -> impl Iterator<Item = (&'r Permission, usize)> {
        self.lists.iter().filter_map(move |list| {
            let mut rules = self.permissions(list).iter().enumerate();
            let (rule, permission) = rules.find(|(_, permission)| {
                is_included(permission) && permission.pattern.matches_path(path)
            })?;
            Some((permission, list.first_reason + rule))
        })
    }

    /// The approved paths: those that the call names and that a rule asks about. The call runs, so
    /// a person has approved it: now, or earlier by a rule for exactly this path before the rule
    /// that asks.
    fn approved_paths(&self) -> Vec<(PathBuf, usize)> {
        let mut approved = Vec::new();
        for (path, _) in &self.named {
            let text = path.to_string_lossy();
            let asked = self.first_matches(&text, |permission| !permission.pattern.is_exact());
            for (permission, reason) in
                asked.filter(|(permission, _)| permission.verdict == Verdict::Ask)
            {
                // A rule that asks about every call is about the call, and not about a path.
                approved.push((
                    if permission.pattern.is_all() { PathBuf::from("/") } else { path.clone() },
                    reason,
                ));
            }
        }
        approved
    }

    fn set_decides(
        &self,
        set: &MatchingSet,
        path: &Path,
        access: Access,
        is_parent: bool,
    ) -> Result<(), usize> {
        let rules = &self.policy.set(set.index).2.rules;
        if let Some((_, reason)) =
            set.denying.iter().find(|(rule, _)| rules[*rule].denies_path(path, access))
        {
            return Err(*reason);
        }
        match &set.allowing {
            Some((allowing, reason))
                if !is_parent
                    && !allowing.iter().any(|rule| rules[*rule].allows_path(path, access)) =>
            {
                Err(*reason)
            }
            _ => Ok(()),
        }
    }
}

impl PathRules for ReachedPaths {
    fn decide(&self, path: &Path, access: Access) -> Result<(), PathRefusal> {
        // A call enters or makes the folders above a named path to get there. A rule of a set that
        // denies such a folder denies the named path too. A permission does so only if no earlier
        // one matches the named path.
        let is_parent =
            self.named.iter().any(|(named, _)| named != path && named.starts_with(path));
        for set in &self.sets {
            self.set_decides(set, path, access, is_parent)
                .map_err(|rule| PathRefusal { rule, asks: false })?;
        }
        if is_parent {
            return Ok(());
        }
        let mut asks = None;
        for (permission, rule) in self.first_matches(&path.to_string_lossy(), |_| true) {
            match permission.verdict {
                Verdict::Deny => return Err(PathRefusal { rule, asks: false }),
                Verdict::Ask
                    if !self
                        .approved
                        .iter()
                        .any(|(folder, reason)| *reason == rule && path.starts_with(folder)) =>
                {
                    asks = asks.or(Some(rule));
                }
                Verdict::Ask | Verdict::Allow => {}
            }
        }
        asks.map_or(Ok(()), |rule| Err(PathRefusal { rule, asks: true }))
    }

    fn rights(&self) -> String {
        // The address of the policy tells it from others. A path that a call names adds nothing to
        // what it may reach, unless it was approved.
        format!("{:p} {:?}", Arc::as_ptr(&self.policy), (&self.reasons, &self.approved))
    }

    fn explain(&self, refusal: PathRefusal, path: &Path, access: Access) -> Denial {
        let verb = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let shown = path.display().to_string();
        let action = format!("{verb} {}", cut(&shown, MAX_SHOWN));
        // The glob matches the path and everything below it, also with special characters in it.
        let glob = Some(literal(&shown))
            .filter(|text| text.len() <= MAX_IN_REMEDY)
            .map(|text| toml(&text));
        let (gate, rule, place, remedy) = match self.reasons[refusal.rule] {
            Reason::Denied { set, rule } => {
                let (gate, table, rules) = self.policy.set(set);
                let rule = &rules.rules[rule];
                (gate, rule.rule.clone(), rule.place.text.clone(), rule.remedy(table))
            }
            Reason::NotAllowed { set } => {
                let (gate, table, rules) = self.policy.set(set);
                let place = rules
                    .rules
                    .iter()
                    .find(|rule| rule.effect == Effect::Allow)
                    .map(|rule| rule.place.clone())
                    .unwrap_or_default();
                let paths = glob.map(|text| format!("\npaths = [{text}]")).unwrap_or_default();
                let remedy = crate::rules::to_allow(&place, table, &self.tool, &paths);
                (gate, crate::rules::none_allows(table), place.text, remedy)
            }
            Reason::Permission { list, rule } => {
                let list = &self.lists[list];
                let permission = &self.permissions(list)[rule];
                let name = &list.name;
                let remedy = permission.place.remedy(|| match glob {
                    Some(text) => {
                        format!("To allow it, put before it:\n[[tools.permissions.{name}]]\npattern = {text}\naction = \"allow\"")
                    }
                    None => format!(
                        "To allow it, put a rule that matches it and has `action = \"allow\"` before it in [[tools.permissions.{name}]]."
                    ),
                });
                let remedy = if refusal.asks {
                    Cow::Owned(format!("A call that names the path needs approval. {remedy}"))
                } else {
                    remedy
                };
                let place = permission.place.text.clone();
                (Gate::Permissions, permission.rule.clone(), place, remedy)
            }
        };
        Denial {
            capability: gate.as_str().to_owned(),
            action,
            rule,
            place: place.into_owned(),
            remedy: remedy.into_owned(),
        }
    }

    fn written_in(&self, folder: &Path) -> Option<&Path> {
        let written = self
            .named
            .iter()
            .rev()
            .filter(|(_, access)| *access == Access::Write)
            .map(|(path, _)| path.as_path());
        written.into_iter().find(|path| path.parent() == Some(folder))
    }

    fn anchors(&self) -> Vec<PathBuf> {
        let denying = self.sets.iter().flat_map(|set| {
            let rules = &self.policy.set(set.index).2.rules;
            set.denying.iter().filter_map(move |(rule, _)| rules[*rule].paths.as_ref())
        });
        denying.flat_map(crate::files::PathGlobs::folders).collect()
    }
}
