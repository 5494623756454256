//! Stores the rules of the configuration, and passes them to the gates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use toolhold_catalogue::{CallContext, CommandGate, Tool};
use toolhold_config::Config;
use toolhold_contract::{Definition, HostError};
use toolhold_policy::{Decision, Dependencies, Policy, ReachedPaths, Switches, Verdict};

use crate::counting::{QuotaCounter, QuotaRefusal, QuotaReservation};
use crate::review::ReviewRules;
use crate::session::Session;

/// Decides on calls. All its rules are replaced together.
#[derive(Debug)]
pub(crate) struct Governor {
    rules: RwLock<Arc<Rules>>,
}

/// The rules that calls are decided by.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Arc<Policy>,
    /// The version of the rules: a number that no other version has.
    pub(crate) generation: u64,
    pub(crate) switches: Switches,
    /// Whether commands start with the shell state of earlier commands of their session.
    pub(crate) carries_state: bool,
    pub(crate) dependencies: Option<Dependencies>,
    /// The rules for the review by a model. `None` means that calls aren't reviewed.
    pub(crate) review: Option<ReviewRules>,
    pub(crate) counting: QuotaCounter,
}

impl Rules {
    /// Creates the rules of a configuration.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if a rule is invalid.
    pub(crate) fn from_config(config: &Config) -> Result<Self, HostError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let policy = Arc::new(config.policy()?);
        let generation = NEXT.fetch_add(1, Ordering::Relaxed);
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

    /// Checks whether every call of a tool would be denied, whatever its arguments are.
    pub(crate) fn hide(&self, tool: &Tool) -> bool {
        let Definition { name, aliases, .. } = &*tool.definition;
        let annotations = tool.annotations;
        self.policy.denies_all(&toolhold_policy::Definition {
            name,
            aliases,
            provider: tool.provider.name(),
            // If some calls of the tool only read, these calls aren't denied.
            acts: !annotations.read_only && !tool.definition.reads_with_some(),
            harmless: annotations.read_only && !annotations.open_world,
        })
    }
}

/// The rules for resources that a call may reach although its arguments don't contain them.
#[derive(Debug)]
pub(crate) struct ReachRules {
    pub(crate) paths: Arc<ReachedPaths>,
    generation: u64,
}

impl ReachRules {
    /// Returns the version of the rules. An answer that was made under other rules can't be used
    /// again.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.generation, self.paths.identity())
    }
}

impl Governor {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules: RwLock::new(Arc::new(rules)) }
    }

    /// Exchanges the rules. A decision that has begun ends by the old rules.
    pub(crate) fn exchange(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// Decides on a call with resolved subjects.
    ///
    /// With `confirmed`, the call was approved and needs no approval, and all other gates decide as
    /// usual. For a call that may run, the result also has the rules for resources that its
    /// arguments don't contain.
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
        let reached = rules
            .policy
            .reached(&action)
            .map(|paths| ReachRules { paths, generation: rules.generation });
        (decision, reached)
    }

    /// Adds the key for job servers to the denial of a call that may be meant for a job server.
    pub(crate) fn add_remedy_by_jobs(&self, context: &CallContext, refused: &mut Decision) {
        let Some(action) = context.action() else { return };
        let Some(more) = self.rules().policy.remedy_by_jobs(&action, refused) else { return };
        let remedy = refused.remedy.to_mut();
        // A line for a file is separated from other text.
        remedy.push(if remedy.contains('\n') { '\n' } else { ' ' });
        remedy.push_str(&more);
    }

    /// Checks whether a call may run only because its changes can be undone.
    pub(crate) fn relies_on_undo(&self, context: &CallContext, decision: &Decision) -> bool {
        context.action().is_some_and(|action| self.rules().policy.relies_on_undo(&action, decision))
    }

    /// Makes the decision to ask about a call that relies on undo, and changes something that can't
    /// be saved.
    pub(crate) fn not_undoable(&self, context: &CallContext, what: &str) -> Option<Decision> {
        context.action().map(|action| self.rules().policy.not_undoable(&action, what))
    }

    /// Returns the denial if a command of a call is on the blocklist. This check comes before all
    /// other checks, including checks of paths.
    pub(crate) fn blocked<'c>(
        &self,
        commands: impl IntoIterator<Item = &'c str>,
    ) -> Option<Decision> {
        self.rules().policy.blocked(commands)
    }

    /// Checks whether the processes of a call reach the network.
    pub(crate) fn reaches_network(&self, context: &CallContext) -> bool {
        context.action().is_some_and(|action| self.rules().policy.reaches_network(&action))
    }

    /// Counts a call that is about to run in its session's quota and rate. The call runs only if
    /// both have room.
    ///
    /// # Errors
    ///
    /// Returns the limit that has been reached.
    pub(crate) fn count(
        &self,
        context: &CallContext,
        session: &Session,
    ) -> Result<Option<QuotaReservation>, Box<QuotaRefusal>> {
        self.rules().counting.take(session, context.acts(), &context.requested_tool)
    }

    /// Returns the current rules.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Checks whether the plugin of a call can use files, itself or with its processes.
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
