//! What the rules about calls say of the paths that a call reaches, and not only of those that it
//! names.
//!
//! A call names a folder, and reaches what lies in it. So the rules over all tools and the
//! permissions of its tool are asked about each path as if the call had named it. What lies below
//! what a person has agreed to is agreed to by the same rule; what no rule is about stays the
//! affair of the grants.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::text::{cut, toml};
use berth_contract::{Access, Denial, PathRefusal, PathRules};

use crate::action::Action;
use crate::decision::{Gate, Verdict};
use crate::origin::Origin;
use crate::pattern::literal;
use crate::permissions::Permission;
use crate::policy::Policy;
use crate::rules::{Effect, Rule, RuleSet};

/// Bytes of a path that a denial shows, and of one that stands whole in a remedy.
const MAX_SHOWN: usize = 1024;
const MAX_WHOLE: usize = 256;

/// The rules that decide on the paths of one call. Made from a [`Policy`] for a call that it lets
/// pass.
#[derive(Debug)]
pub struct ReachedPaths {
    policy: Arc<Policy>,
    tool: String,
    sets: Vec<Set>,
    lists: Vec<List>,
    reasons: Vec<Reason>,
    /// The paths that the call names.
    named: Vec<(PathBuf, Access)>,
    /// What a person has agreed to: below which path, and the rule that asked.
    agreed: Vec<(PathBuf, usize)>,
}

/// The rules of one set that are about the call, each with the number of its reason.
#[derive(Debug)]
struct Set {
    index: usize,
    denying: Vec<(usize, usize)>,
    /// Those that allow, where nothing passes that none of them matches.
    allowing: Option<(Vec<usize>, usize)>,
}

/// A list of permissions, and the number of its first rule's reason.
#[derive(Debug)]
struct List {
    name: String,
    index: usize,
    first: usize,
}

/// Why a path is not let pass.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Denied { set: usize, rule: usize },
    NotAllowed { set: usize },
    Permission { list: usize, rule: usize },
}

impl Policy {
    /// What the rules say of the paths that a call reaches which they let pass. `None` where no
    /// rule says anything of paths that the call doesn't name.
    pub fn reached(self: &Arc<Self>, action: &Action<'_>) -> Option<Arc<ReachedPaths>> {
        let named = || action.subjects.iter().filter(|subject| subject.kind.is_path());
        let mut reached = ReachedPaths {
            policy: Arc::clone(self),
            tool: action.tool.to_owned(),
            sets: Vec::new(),
            lists: Vec::new(),
            reasons: Vec::new(),
            named: Vec::new(),
            agreed: Vec::new(),
        };
        let trust = self.trusted.least(action);
        for index in 0..self.sets() {
            let applies = |(_, rule): &(usize, &Rule)| {
                rule.matches(action, trust) && (action.acts() || rule.access != Some(Access::Write))
            };
            let rules = &self.set(index).2.rules;
            let about: Vec<(usize, &Rule)> = rules.iter().enumerate().filter(applies).collect();
            let denying = about
                .iter()
                .filter(|(_, rule)| rule.effect == Effect::Deny && rule.is_about_paths());
            let denying = denying
                .map(|(rule, _)| {
                    (*rule, reached.because(Reason::Denied { set: index, rule: *rule }))
                })
                .collect::<Vec<_>>();
            let allowing: Vec<&(usize, &Rule)> =
                about.iter().filter(|(_, rule)| rule.effect == Effect::Allow).collect();
            // Where none is about the call, it is one that needs none.
            let is_bounded = !allowing.is_empty()
                && allowing.iter().all(|(_, rule)| rule.paths.is_some() || rule.access.is_some());
            let allowing = is_bounded.then(|| {
                let rules = allowing.iter().map(|(rule, _)| *rule).collect();
                (rules, reached.because(Reason::NotAllowed { set: index }))
            });
            if !denying.is_empty() || allowing.is_some() {
                reached.sets.push(Set { index, denying, allowing });
            }
        }
        // Permissions are compared with what the tool acts on: those of a tool that acts on
        // commands are about commands.
        if named().next().is_some() {
            for (name, index, list) in self.permissions.named_lists(action.tool, action.aliases) {
                if list.iter().any(|permission| permission.verdict > Verdict::Allow) {
                    let first = reached.reasons.len();
                    reached.lists.push(List { name: name.to_owned(), index, first });
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
            named().map(|subject| (PathBuf::from(&subject.text), subject.access)).collect();
        reached.agreed = reached.agreed_to();
        Some(Arc::new(reached))
    }

    fn sets(&self) -> usize {
        self.ceiling.len() + 2
    }

    /// A set of rules, with its gate and its name.
    fn set(&self, index: usize) -> (Gate, &'static str, &RuleSet) {
        match index.checked_sub(self.ceiling.len()) {
            None => (Gate::Ceiling, "the ceiling", &self.ceiling[index]),
            Some(0) => (Gate::Policy, "[tools.policy]", &self.policy),
            Some(_) => (Gate::Authorization, "[tools.authorization]", &self.authorization),
        }
    }
}

impl ReachedPaths {
    /// What tells these rules from others of the same policy: answers that were made under others
    /// may say something else.
    pub fn identity(&self) -> String {
        format!("{:?}", (&self.reasons, &self.named, &self.agreed))
    }

    fn because(&mut self, reason: Reason) -> usize {
        self.reasons.push(reason);
        self.reasons.len() - 1
    }

    fn permissions(&self, list: &List) -> &[Permission] {
        self.policy.permissions.list(&list.name, list.index)
    }

    /// The first rule of each list that matches a path, of those that are `looked_at`, with the
    /// number of its reason.
    fn first<'r>(
        &'r self,
        path: &'r str,
        looked_at: fn(&Permission) -> bool,
    ) -> impl Iterator<Item = (&'r Permission, usize)> {
        self.lists.iter().filter_map(move |list| {
            let mut rules = self.permissions(list).iter().enumerate();
            let (rule, permission) = rules.find(|(_, permission)| {
                looked_at(permission) && permission.pattern.matches_path(path)
            })?;
            Some((permission, list.first + rule))
        })
    }

    /// What was asked about the paths that the call names: it runs, so somebody has agreed, just
    /// now or for good, by a rule that allows exactly that path and stands before the one that
    /// asks.
    fn agreed_to(&self) -> Vec<(PathBuf, usize)> {
        let mut agreed = Vec::new();
        for (path, _) in &self.named {
            let text = path.to_string_lossy();
            let asked = self.first(&text, |permission| !permission.pattern.is_exact());
            for (permission, reason) in
                asked.filter(|(permission, _)| permission.verdict == Verdict::Ask)
            {
                // One that asks about every call is about the call, and not about a path.
                agreed.push((
                    if permission.pattern.is_all() { PathBuf::from("/") } else { path.clone() },
                    reason,
                ));
            }
        }
        agreed
    }

    fn set_decides(
        &self,
        set: &Set,
        path: &Path,
        access: Access,
        above: bool,
    ) -> Result<(), usize> {
        let rules = &self.policy.set(set.index).2.rules;
        if let Some((_, reason)) =
            set.denying.iter().find(|(rule, _)| rules[*rule].denies_path(path, access))
        {
            return Err(*reason);
        }
        match &set.allowing {
            Some((allowing, reason))
                if !above
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
        // A folder above a named path is entered, and made, to get there. A rule that denies the
        // folder denies what was named as well; a permission, only where none before it is about
        // that.
        let above = self.named.iter().any(|(named, _)| named != path && named.starts_with(path));
        for set in &self.sets {
            self.set_decides(set, path, access, above)
                .map_err(|rule| PathRefusal { rule, asks: false })?;
        }
        if above {
            return Ok(());
        }
        let mut asks = None;
        for (permission, rule) in self.first(&path.to_string_lossy(), |_| true) {
            match permission.verdict {
                Verdict::Deny => return Err(PathRefusal { rule, asks: false }),
                Verdict::Ask
                    if !self
                        .agreed
                        .iter()
                        .any(|(below, agreed)| *agreed == rule && path.starts_with(below)) =>
                {
                    asks = asks.or(Some(rule));
                }
                Verdict::Ask | Verdict::Allow => {}
            }
        }
        asks.map_or(Ok(()), |rule| Err(PathRefusal { rule, asks: true }))
    }

    fn explain(&self, refusal: PathRefusal, path: &Path, access: Access) -> Denial {
        let verb = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let shown = path.display().to_string();
        let action = format!("{verb} {}", cut(&shown, MAX_SHOWN));
        let denial = |gate: Gate, rule: String, place: &Origin, remedy: String| Denial {
            capability: gate.as_str().to_owned(),
            action: action.clone(),
            rule,
            place: place.text.clone().into_owned(),
            remedy,
        };
        // It matches the path and what is below, whatever characters are in it.
        let whole =
            Some(literal(&shown)).filter(|text| text.len() <= MAX_WHOLE).map(|text| toml(&text));
        match self.reasons[refusal.rule] {
            Reason::Denied { set, rule } => {
                let (gate, table, rules) = self.policy.set(set);
                let rule = &rules.rules[rule];
                denial(gate, rule.rule.clone(), &rule.place, rule.remedy(table).into_owned())
            }
            Reason::NotAllowed { set } => {
                let (gate, table, rules) = self.policy.set(set);
                let place = rules
                    .rules
                    .iter()
                    .find(|rule| rule.effect == Effect::Allow)
                    .map(|rule| rule.place.clone())
                    .unwrap_or_default();
                let paths = whole.map(|text| format!("\npaths = [{text}]")).unwrap_or_default();
                let remedy = crate::rules::to_allow(&place, table, &self.tool, &paths);
                denial(gate, crate::rules::none_allows(table), &place, remedy.into_owned())
            }
            Reason::Permission { list, rule } => {
                let list = &self.lists[list];
                let permission = &self.permissions(list)[rule];
                let name = &list.name;
                let remedy = permission.place.remedy(|| match whole {
                    Some(text) => {
                        format!("To allow it, put before it:\n[[tools.permissions.{name}]]\npattern = {text}\naction = \"allow\"")
                    }
                    None => format!(
                        "To allow it, put a rule that matches it and has `action = \"allow\"` before it in [[tools.permissions.{name}]]."
                    ),
                });
                let remedy = match refusal.asks {
                    true => format!("A call that names it asks for it. {remedy}"),
                    false => remedy.into_owned(),
                };
                denial(Gate::Permissions, permission.rule.clone(), &permission.place, remedy)
            }
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
