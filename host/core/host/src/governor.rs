//! Stores the rules of the configuration, and decides on calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use toolhold_catalogue::{CallContext, CommandGate, Tool};
use toolhold_config::Config;
use toolhold_contract::{Definition, HostError};
use toolhold_policy::{Decision, Dependencies, Policy, ReachedPaths, Switches, Verdict};

use crate::counting::{QuotaCounter, QuotaRefusal, QuotaReservation};
use crate::review::ReviewRules;
use crate::session::Session;

/// Decides on calls. All rules are replaced together.
#[derive(Debug)]
pub(crate) struct Governor {
    rules: RwLock<Arc<Rules>>,
}

#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Arc<Policy>,
    /// The version of the rules, unique in this process.
    pub(crate) generation: u64,
    pub(crate) switches: Switches,
    /// Whether commands start with the shell state of earlier commands of their session.
    pub(crate) carries_state: bool,
    pub(crate) dependencies: Option<Dependencies>,
    pub(crate) review: Option<ReviewRules>,
    pub(crate) counting: QuotaCounter,
}

impl Rules {
    /// Creates the rules of a configuration. Newer rules have a higher generation.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if a rule is invalid.
    pub(crate) fn from_config(config: &Config) -> Result<Self, HostError> {
        static NEXT_GENERATION: AtomicU64 = AtomicU64::new(0);
        let policy = Arc::new(config.policy()?);
        let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            policy,
            generation,
            switches: config.switches(),
            carries_state: config.values.tools.shell.session,
            dependencies: config.dependencies(),
            review: ReviewRules::from_config(config)?,
            counting: QuotaCounter::from_config(config),
        })
    }

    /// Checks whether the rules deny every call of a tool.
    pub(crate) fn always_deny(&self, tool: &Tool) -> bool {
        let Definition { name, aliases, .. } = &*tool.definition;
        let annotations = tool.annotations;
        self.policy.denies_all(&toolhold_policy::Definition {
            name,
            aliases,
            provider: tool.provider.name(),
            // A tool with read-only calls isn't hidden, because these calls aren't denied.
            acts: !annotations.read_only && !tool.definition.has_read_only_calls(),
            harmless: annotations.read_only && !annotations.open_world,
        })
    }
}

#[derive(Debug)]
pub(crate) struct ReachRules {
    pub(crate) paths: Arc<ReachedPaths>,
    generation: u64,
}

impl ReachRules {
    /// Returns the version of the rules. Answers under other rules aren't reused.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.generation, self.paths.identity())
    }
}

impl Governor {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules: RwLock::new(Arc::new(rules)) }
    }

    /// Replaces the rules. A running decision still uses the old rules.
    pub(crate) fn exchange(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// Decides on a call with resolved subjects. Also returns the rules for paths that an allowed
    /// call opens while it runs.
    ///
    /// `confirmed` means that the call was approved and needs no further approval. All other rules
    /// still apply.
    pub(crate) fn decide(
        &self,
        context: &CallContext,
        confirmed: bool,
    ) -> (Decision, Option<ReachRules>) {
        let Some(action) = context.action() else { return (toolhold_policy::undecided(), None) };
        let rules = self.rules();
        let decision = rules.policy.decide(&action, confirmed);
        if decision.verdict != Verdict::Allow || !reaches_files(context) {
            return (decision, None);
        }
        let Some(paths) = rules.policy.reached(&action) else { return (decision, None) };
        (decision, Some(ReachRules { paths, generation: rules.generation }))
    }

    /// If the denied request may have been for a server that runs as a job of the session, adds to
    /// the denial how such a server can be reached.
    pub(crate) fn add_job_remedy(&self, context: &CallContext, denial: &mut Decision) {
        let Some(action) = context.action() else { return };
        let Some(job_remedy) = self.rules().policy.remedy_by_jobs(&action, denial) else {
            return;
        };
        let remedy = denial.remedy.to_mut();
        // A remedy of several lines contains configuration, so the addition gets its own line.
        let separator = if remedy.contains('\n') { '\n' } else { ' ' };
        remedy.push(separator);
        remedy.push_str(&job_remedy);
    }

    /// Checks whether a call may run only because its changes can be undone.
    pub(crate) fn relies_on_undo(&self, context: &CallContext, decision: &Decision) -> bool {
        context.action().is_some_and(|action| self.rules().policy.relies_on_undo(&action, decision))
    }

    /// Returns the decision that requires approval because a change of the call can't be saved for
    /// undo.
    pub(crate) fn not_undoable(&self, context: &CallContext, what: &str) -> Option<Decision> {
        context.action().map(|action| self.rules().policy.not_undoable(&action, what))
    }

    /// Returns the denial if a command is on the blocklist. This check comes before all other
    /// checks.
    pub(crate) fn blocked<'c>(
        &self,
        commands: impl IntoIterator<Item = &'c str>,
    ) -> Option<Decision> {
        self.rules().policy.blocked(commands)
    }

    pub(crate) fn reaches_network(&self, context: &CallContext) -> bool {
        context.action().is_some_and(|action| self.rules().policy.reaches_network(&action))
    }

    /// Counts a call in the quota and the rate of its session, directly before the call runs.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is reached.
    pub(crate) fn count(
        &self,
        context: &CallContext,
        session: &Session,
    ) -> Result<Option<QuotaReservation>, Box<QuotaRefusal>> {
        self.rules().counting.take(session, context.acts(), &context.requested_tool)
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Checks whether the plugin of a call can use files, directly or with processes.
fn reaches_files(context: &CallContext) -> bool {
    let Some(tool) = &context.tool else { return false };
    let Some(plugin) = &tool.plugin else { return false };
    let policy = plugin.policy();
    policy.files.is_some() || policy.capabilities.process.is_some()
}

impl CommandGate for Governor {
    fn check_command(&self, line: &str) -> Option<Decision> {
        self.rules().policy.line_refusal(line)
    }
}
