//! Applies the rules about calls to all paths that a call reaches. The call doesn't name all of
//! these paths.
//!
//! A call that names a folder reaches all paths in it. For this reason, the rules for all tools and
//! the permissions of the call's tool decide on each path as if the call had named it. An approval
//! of a path applies to all paths below it too. Only grants decide on paths without a rule.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_contract::text::{cut, toml};
use toolhold_contract::{Access, Denial, PathRefusal, PathRules};

use crate::action::Action;
use crate::decision::{Gate, Verdict};
use crate::pattern::literal;
use crate::permissions::{ListId, Permission, list_header};
use crate::policy::Policy;
use crate::rules::{Effect, Rule, RuleSet};

/// Bytes of a path that a denial shows.
const MAX_SHOWN: usize = 1024;

/// Bytes of a path that a remedy contains.
const MAX_IN_REMEDY: usize = 256;

/// The rules that decide on the paths of one call. A [`Policy`] makes them for an allowed call.
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

/// The rules of one set that apply to the call. Each has the index of its reason.
#[derive(Debug)]
struct MatchingSet {
    index: usize,
    denying: Vec<(usize, usize)>,
    /// The rules that allow paths, and the index of their reason. Set if a path needs one of these
    /// rules.
    allowing: Option<(Vec<usize>, usize)>,
}

/// A list of permissions, and the index of the reason of its first rule.
#[derive(Debug)]
struct MatchingList {
    id: ListId,
    name: String,
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
    /// Returns the rules for the paths that an allowed call reaches. Returns `None` if the rules
    /// are only about paths that the call names.
    pub fn reached(self: &Arc<Self>, action: &Action<'_>) -> Option<Arc<ReachedPaths>> {
        let mut reached = ReachedPaths {
            policy: Arc::clone(self),
            tool: action.tool.to_owned(),
            sets: Vec::new(),
            lists: Vec::new(),
            reasons: Vec::new(),
            named: Vec::new(),
            approved: Vec::new(),
        };
        for index in 0..self.sets() {
            reached.add_set(index, action);
        }
        // Permissions match the subjects of the tool. If the subjects are commands, the permissions
        // are about commands and not about paths.
        let named = action.subjects.iter().filter(|subject| subject.kind.is_path());
        if named.clone().next().is_some() {
            reached.add_permissions(action);
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

    /// Returns a set of rules with its gate and its name.
    fn set(&self, index: usize) -> (Gate, &'static str, &RuleSet) {
        match self.ceiling.get(index) {
            Some(rules) => (Gate::Ceiling, "the ceiling", rules),
            None => (Gate::Policy, "[tools.policy]", &self.policy),
        }
    }
}

impl ReachedPaths {
    /// Returns a text that differs for different rules of the same policy. Calls with different
    /// rules may have different cached answers.
    pub fn identity(&self) -> String {
        format!("{:?}", (&self.reasons, &self.named, &self.approved))
    }

    /// Adds the rules of a set that apply to the paths of a call.
    fn add_set(&mut self, index: usize, action: &Action<'_>) {
        let policy = Arc::clone(&self.policy);
        let trust = policy.trusted.least(action);
        let mut denying = Vec::new();
        let mut allowing_rules: Vec<(usize, &Rule)> = Vec::new();
        for (rule_index, rule) in policy.set(index).2.rules.iter().enumerate() {
            if !rule.matches(action, trust) {
                continue;
            }
            if rule.access == Some(Access::Write) && !action.acts() {
                continue;
            }
            match rule.effect {
                Effect::Allow => allowing_rules.push((rule_index, rule)),
                Effect::Deny if rule.is_about_paths() => {
                    let reason = self.add_reason(Reason::Denied { set: index, rule: rule_index });
                    denying.push((rule_index, reason));
                }
                Effect::Deny => {}
            }
        }

        // If no allowing rule applies to the call, paths need no allowing rule.
        let is_bounded = !allowing_rules.is_empty()
            && allowing_rules.iter().all(|(_, rule)| rule.paths.is_some() || rule.access.is_some());
        let mut allowing = None;
        if is_bounded {
            let rule_indexes = allowing_rules.iter().map(|(rule_index, _)| *rule_index).collect();
            allowing = Some((rule_indexes, self.add_reason(Reason::NotAllowed { set: index })));
        }
        if !denying.is_empty() || allowing.is_some() {
            self.sets.push(MatchingSet { index, denying, allowing });
        }
    }

    /// Adds the lists of permissions of the called tool that don't only allow.
    fn add_permissions(&mut self, action: &Action<'_>) {
        let policy = Arc::clone(&self.policy);
        for list in policy.permissions.lists(action.provider, action.tool, action.aliases) {
            let rules = list.rules;
            let only_allows = rules.iter().all(|permission| permission.verdict == Verdict::Allow);
            if only_allows {
                continue;
            }
            let first_reason = self.reasons.len();
            let list_index = self.lists.len();
            for rule in 0..rules.len() {
                self.reasons.push(Reason::Permission { list: list_index, rule });
            }
            self.lists.push(MatchingList { id: list.id, name: list.name.to_owned(), first_reason });
        }
    }

    /// Adds a reason, and returns its index.
    fn add_reason(&mut self, reason: Reason) -> usize {
        self.reasons.push(reason);
        self.reasons.len() - 1
    }

    fn permissions(&self, list: &MatchingList) -> &[Permission] {
        self.policy.permissions.list(&list.name, list.id)
    }

    /// Returns the first rule of each list that `is_included` accepts and that matches a path. Each
    /// rule has the index of its reason.
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

    /// Returns the approved paths. These are paths that the call names and that need approval by a
    /// rule. The call runs, so a person has approved the path now, or earlier by a rule for exactly
    /// this path before the other rule.
    fn approved_paths(&self) -> Vec<(PathBuf, usize)> {
        let mut approved = Vec::new();
        for (path, _) in &self.named {
            let text = path.to_string_lossy();
            let matches = self.first_matches(&text, |permission| !permission.pattern.is_exact());
            for (permission, reason) in matches {
                if permission.verdict != Verdict::Ask {
                    continue;
                }
                // A rule that asks about every call is about the call, and not about a path.
                let is_about_call = permission.pattern.is_all();
                let folder = if is_about_call { PathBuf::from("/") } else { path.clone() };
                approved.push((folder, reason));
            }
        }
        approved
    }

    /// Checks whether the rule with this reason asked about a path, and was approved.
    fn is_approved(&self, path: &Path, asking: usize) -> bool {
        self.approved.iter().any(|(folder, reason)| *reason == asking && path.starts_with(folder))
    }

    /// Checks a path against the rules of a set. The error is the index of the reason.
    fn check_set(
        &self,
        set: &MatchingSet,
        path: &Path,
        access: Access,
        is_parent: bool,
    ) -> Result<(), usize> {
        let rules = &self.policy.set(set.index).2.rules;
        let denying = set.denying.iter().find(|(rule, _)| rules[*rule].denies_path(path, access));
        if let Some((_, reason)) = denying {
            return Err(*reason);
        }
        if is_parent {
            return Ok(());
        }
        let Some((allowing, reason)) = &set.allowing else { return Ok(()) };
        if allowing.iter().any(|rule| rules[*rule].allows_path(path, access)) {
            return Ok(());
        }
        Err(*reason)
    }
}

impl PathRules for ReachedPaths {
    fn decide(&self, path: &Path, access: Access) -> Result<(), PathRefusal> {
        // A call enters or creates the folders above a named path. If a rule of a set denies such a
        // folder, it also denies the named path. A permission does so only if no earlier permission
        // matches the named path.
        let is_parent =
            self.named.iter().any(|(named, _)| named != path && named.starts_with(path));
        for set in &self.sets {
            self.check_set(set, path, access, is_parent)
                .map_err(|rule| PathRefusal { rule, asks: false })?;
        }
        if is_parent {
            return Ok(());
        }
        let mut first_asking = None;
        for (permission, rule) in self.first_matches(&path.to_string_lossy(), |_| true) {
            match permission.verdict {
                Verdict::Deny => return Err(PathRefusal { rule, asks: false }),
                Verdict::Ask if !self.is_approved(path, rule) => {
                    first_asking = first_asking.or(Some(rule));
                }
                Verdict::Ask | Verdict::Allow => {}
            }
        }
        match first_asking {
            Some(rule) => Err(PathRefusal { rule, asks: true }),
            None => Ok(()),
        }
    }

    fn rights(&self) -> String {
        // The policy's address distinguishes it from other policies. A path that a call names has
        // no effect on the paths that the call may reach, unless the path was approved.
        format!("{:p} {:?}", Arc::as_ptr(&self.policy), (&self.reasons, &self.approved))
    }

    fn explain(&self, refusal: PathRefusal, path: &Path, access: Access) -> Denial {
        let verb = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let shown = path.display().to_string();
        let action = format!("{verb} {}", cut(&shown, MAX_SHOWN));
        // The glob matches the path and all paths below it, even if the path contains special
        // characters.
        let literal_glob = literal(&shown);
        let is_short = literal_glob.len() <= MAX_IN_REMEDY;
        let glob = is_short.then(|| toml(&literal_glob));
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
                let header = list_header(&list.name);
                let remedy = permission.place.remedy(|| match glob {
                    Some(text) => {
                        format!("To allow it, put before it:\n{header}\npattern = {text}\naction = \"allow\"")
                    }
                    None => format!(
                        "To allow it, put a rule that matches it and has `action = \"allow\"` before it in {header}."
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
        for (path, access) in self.named.iter().rev() {
            if *access == Access::Write && path.parent() == Some(folder) {
                return Some(path);
            }
        }
        None
    }

    fn anchors(&self) -> Vec<PathBuf> {
        let denying = self.sets.iter().flat_map(|set| {
            let rules = &self.policy.set(set.index).2.rules;
            set.denying.iter().filter_map(move |(rule, _)| rules[*rule].paths.as_ref())
        });
        denying.flat_map(crate::files::PathGlobs::folders).collect()
    }
}
