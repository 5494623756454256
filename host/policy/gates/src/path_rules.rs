//! Applies the rules for calls to all paths that a call reaches.
//!
//! A call that names a folder reaches all paths in the folder. The rules for all tools and the
//! permissions of the called tool decide on each of these paths as if the call had named it. An
//! approval of a path also applies to all paths below it. If no rule matches a path, only the
//! grants decide.

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

/// Bytes of a path that a denial shows. A longer path is cut.
const MAX_SHOWN: usize = 1024;

/// Bytes of a path that a remedy contains. A remedy for a longer path has no rule.
const MAX_IN_REMEDY: usize = 256;

/// The rules for the paths that one call reaches. A [`Policy`] makes them for an allowed call.
#[derive(Debug)]
pub struct ReachedPaths {
    policy: Arc<Policy>,
    tool: String,
    sets: Vec<MatchingSet>,
    lists: Vec<MatchingList>,
    reasons: Vec<Reason>,
    named: Vec<(PathBuf, Access)>,
    /// Approved paths, each with the index of its reason in `reasons`.
    approved: Vec<(PathBuf, usize)>,
}

/// The rules of one set that apply to the call. Each rule has the index of its reason.
#[derive(Debug)]
struct MatchingSet {
    index: usize,
    denying: Vec<(usize, usize)>,
    /// The allowing rules, and the index of the reason for denying other paths. If this is set,
    /// each path must match one of these rules.
    allowing: Option<(Vec<usize>, usize)>,
}

#[derive(Debug)]
struct MatchingList {
    id: ListId,
    name: String,
    first_reason: usize,
}

#[derive(Clone, Copy, Debug)]
enum Reason {
    Denied { set: usize, rule: usize },
    NotAllowed { set: usize },
    Permission { list: usize, rule: usize },
}

impl Policy {
    /// Returns the rules for the paths that an allowed call reaches. Returns `None` if all rules
    /// are about the call itself.
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
        // Permissions match the subjects of a call. If the subjects are commands, the permissions
        // aren't about paths.
        let path_subjects: Vec<_> =
            action.subjects.iter().filter(|subject| subject.kind.is_path()).collect();
        if !path_subjects.is_empty() {
            reached.add_permissions(action);
        }
        if reached.reasons.is_empty() {
            return None;
        }
        for subject in path_subjects {
            reached.named.push((PathBuf::from(&subject.text), subject.access));
        }
        reached.approved = reached.approved_paths();
        Some(Arc::new(reached))
    }

    fn sets(&self) -> usize {
        self.ceiling.len() + 1
    }

    /// Returns the set of rules with this index. The ceilings come first, and `[tools.policy]`
    /// comes last.
    fn set(&self, index: usize) -> (Gate, &'static str, &RuleSet) {
        match self.ceiling.get(index) {
            Some(rules) => (Gate::Ceiling, "the ceiling", rules),
            None => (Gate::Policy, "[tools.policy]", &self.policy),
        }
    }
}

impl ReachedPaths {
    /// Returns a text that is different for different rules. Calls with different rules may not
    /// share a cached answer.
    pub fn identity(&self) -> String {
        format!("{:?}", (&self.reasons, &self.named, &self.approved))
    }

    /// Adds the rules of the set `index` that match the call and depend on paths.
    fn add_set(&mut self, index: usize, action: &Action<'_>) {
        let policy = Arc::clone(&self.policy);
        let trust = policy.trusted.trust_in(action);
        let mut denying = Vec::new();
        let mut allowing_rules: Vec<(usize, &Rule)> = Vec::new();
        let (_, _, set) = policy.set(index);
        for (rule_index, rule) in set.rules.iter().enumerate() {
            if !rule.matches(action, trust) {
                continue;
            }
            // A call that only reads writes no paths.
            if rule.access == Some(Access::Write) && !action.acts() {
                continue;
            }
            match rule.effect {
                Effect::Allow => allowing_rules.push((rule_index, rule)),
                Effect::Deny if rule.is_about_paths() => {
                    let reason = self.add_reason(Reason::Denied { set: index, rule: rule_index });
                    denying.push((rule_index, reason));
                }
                // A rule without paths was checked before the call was allowed.
                Effect::Deny => {}
            }
        }

        let allowing = self.add_allowing(index, &allowing_rules);
        if !denying.is_empty() || allowing.is_some() {
            self.sets.push(MatchingSet { index, denying, allowing });
        }
    }

    /// Adds the allowing rules of the set `set` that match the call. Returns their indexes, and the
    /// index of the reason for denying other paths. Returns `None` if they allow every path.
    fn add_allowing(
        &mut self,
        set: usize,
        allowing_rules: &[(usize, &Rule)],
    ) -> Option<(Vec<usize>, usize)> {
        // A set without an allowing rule for this call allows every path that it doesn't deny.
        if allowing_rules.is_empty() {
            return None;
        }
        let mut indexes = Vec::new();
        for (rule_index, rule) in allowing_rules {
            let allows_every_path = rule.paths.is_none() && rule.access.is_none();
            if allows_every_path {
                return None;
            }
            indexes.push(*rule_index);
        }
        Some((indexes, self.add_reason(Reason::NotAllowed { set })))
    }

    /// Adds the permissions of the called tool. A list that only allows has no effect on paths.
    fn add_permissions(&mut self, action: &Action<'_>) {
        let policy = Arc::clone(&self.policy);
        for list in policy.permissions.lists(action.provider, action.tool, action.aliases) {
            let rules = list.rules;
            let only_allows = rules.iter().all(|permission| permission.verdict == Verdict::Allow);
            if only_allows {
                continue;
            }
            // The reason of the rule at index `i` of the list has the index `first_reason + i`.
            let first_reason = self.reasons.len();
            let list_index = self.lists.len();
            for rule in 0..rules.len() {
                self.reasons.push(Reason::Permission { list: list_index, rule });
            }
            self.lists.push(MatchingList { id: list.id, name: list.name.to_owned(), first_reason });
        }
    }

    fn add_reason(&mut self, reason: Reason) -> usize {
        self.reasons.push(reason);
        self.reasons.len() - 1
    }

    fn permissions(&self, list: &MatchingList) -> &[Permission] {
        self.policy.permissions.list(&list.name, list.id)
    }

    /// Returns the first rule of each list that matches `path`, and the index of its reason. Skips
    /// the rules for which `is_included` returns false.
    fn first_matches<'r>(
        &'r self,
        path: &'r str,
        is_included: fn(&Permission) -> bool,
    ) -> impl Iterator<Item = (&'r Permission, usize)> {
        self.lists.iter().filter_map(move |list| {
            let mut rules = self.permissions(list).iter().enumerate();
            let (rule_index, permission) = rules.find(|(_, permission)| {
                is_included(permission) && permission.pattern.matches_path(path)
            })?;
            Some((permission, list.first_reason + rule_index))
        })
    }

    /// Returns the named paths for which a rule asks, and the index of the reason of each. The call
    /// runs, so a person has approved these paths. Rules for exactly one path are skipped, because
    /// they are earlier approvals.
    fn approved_paths(&self) -> Vec<(PathBuf, usize)> {
        let mut approved = Vec::new();
        for (path, _) in &self.named {
            let text = path.to_string_lossy();
            let matches = self.first_matches(&text, |permission| !permission.pattern.is_exact());
            for (permission, reason) in matches {
                if permission.verdict != Verdict::Ask {
                    continue;
                }
                // If the rule asks about every call, the approval covers every path.
                let is_about_call = permission.pattern.is_all();
                let approved_path = if is_about_call { PathBuf::from("/") } else { path.clone() };
                approved.push((approved_path, reason));
            }
        }
        approved
    }

    /// Checks whether a person approved `path` or a folder above it, when the rule with the reason
    /// `asking` asked.
    fn is_approved(&self, path: &Path, asking: usize) -> bool {
        self.approved.iter().any(|(folder, reason)| *reason == asking && path.starts_with(folder))
    }

    /// Checks the rules of a set for a path. `is_parent` means that the path is a folder above a
    /// named path. Only denying rules apply to such a folder.
    ///
    /// # Errors
    ///
    /// Returns the index of the reason for the denial.
    fn check_set(
        &self,
        set: &MatchingSet,
        path: &Path,
        access: Access,
        is_parent: bool,
    ) -> Result<(), usize> {
        let (_, _, rule_set) = self.policy.set(set.index);
        let rules = &rule_set.rules;
        for (rule_index, reason) in &set.denying {
            if rules[*rule_index].denies_path(path, access) {
                return Err(*reason);
            }
        }
        if is_parent {
            return Ok(());
        }
        let Some((allowing, reason)) = &set.allowing else { return Ok(()) };
        if allowing.iter().any(|rule_index| rules[*rule_index].allows_path(path, access)) {
            return Ok(());
        }
        Err(*reason)
    }

    fn decide_by_permissions(&self, path: &Path) -> Result<(), PathRefusal> {
        let mut first_asking = None;
        for (permission, reason) in self.first_matches(&path.to_string_lossy(), |_| true) {
            match permission.verdict {
                Verdict::Deny => return Err(PathRefusal { rule: reason, asks: false }),
                Verdict::Ask if !self.is_approved(path, reason) => {
                    if first_asking.is_none() {
                        first_asking = Some(reason);
                    }
                }
                Verdict::Ask | Verdict::Allow => {}
            }
        }
        match first_asking {
            Some(reason) => Err(PathRefusal { rule: reason, asks: true }),
            None => Ok(()),
        }
    }
}

impl PathRules for ReachedPaths {
    /// Decides on a path that an allowed call reaches. A denial takes precedence over a rule that
    /// asks.
    fn decide(&self, path: &Path, access: Access) -> Result<(), PathRefusal> {
        // A call enters or creates the folders above a named path. For such a folder, only the
        // denying rules of sets are checked. Allowing rules and permissions are checked for the
        // named path.
        let is_parent =
            self.named.iter().any(|(named, _)| named != path && named.starts_with(path));
        for set in &self.sets {
            self.check_set(set, path, access, is_parent)
                .map_err(|reason| PathRefusal { rule: reason, asks: false })?;
        }
        if is_parent {
            return Ok(());
        }
        self.decide_by_permissions(path)
    }

    fn rights(&self) -> String {
        // The address distinguishes this policy from other policies. The named paths are left out,
        // because they have no effect on the paths that the call may reach unless they were
        // approved.
        format!("{:p} {:?}", Arc::as_ptr(&self.policy), (&self.reasons, &self.approved))
    }

    fn explain(&self, refusal: PathRefusal, path: &Path, access: Access) -> Denial {
        let verb = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let shown = path.display().to_string();
        let action = format!("{verb} {}", cut(&shown, MAX_SHOWN));
        // A path may contain special characters of globs, so they are escaped.
        let literal_glob = literal(&shown);
        let is_short = literal_glob.len() <= MAX_IN_REMEDY;
        let glob = is_short.then(|| toml(&literal_glob));
        let (gate, rule, place, remedy) =
            match self.reasons[refusal.rule] {
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
                        format!("To allow it, put this rule before the deciding rule:\n{header}\n\
                                 pattern = {text}\naction = \"allow\"")
                    }
                    None => format!(
                        "To allow it, put a rule that matches the path, with `action = \"allow\"`, \
                         before the deciding rule in {header}."
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

    /// Returns the last path in `folder` that the call names for writing.
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
            let (_, _, rule_set) = self.policy.set(set.index);
            let denying_rules = set.denying.iter().map(move |(index, _)| &rule_set.rules[*index]);
            denying_rules.filter_map(|rule| rule.paths.as_ref())
        });
        denying.flat_map(crate::files::PathGlobs::folders).collect()
    }
}
