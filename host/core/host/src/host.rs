//! `Host`: the public interface of this crate, except calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Map, Value, json};
use toolhold_answers::{Answer, FilterCounts, FilterSummary, Results, Shaper};
use toolhold_catalogue::Tasks;
use toolhold_catalogue::plugins::{FilterRulesState, PluginState, Plugins, Watch};
use toolhold_catalogue::subjects::Lookups;
use toolhold_contract::{
    CallId, CancellationToken, Category, Definition, Failure, FilterDefinition, FilterInput,
    FilterVerdict, HostError, Offers, Pattern, Purpose,
};
use toolhold_engine::PluginInfo;
use toolhold_jobs::JobState;
use toolhold_policy::{Decision, source_name};

use crate::approvals::{ApprovalDesk, PostedQuestion, Questions, Reply};
use crate::audit::{self, Audit, EntryOrigin, User};
use crate::dependencies::{self, OfferedTool};
use crate::governor::{Governor, Rules};
use crate::jobs::HostJobs;
use crate::outer::{OuterCalls, ParentCall};
use crate::request::Request;
use crate::retry::Retry;
use crate::review::Reviews;
use crate::session::Session;
use crate::undo::Undo;

/// Offers tools and runs their calls. To share a host between tasks, put it in an [`Arc`].
///
/// A host uses the tokio runtime on which it was built. A drop ends the host's file watch.
pub struct Host {
    pub(crate) plugins: Arc<Plugins>,
    /// Closed when all plugins that existed at the start have been loaded or refused.
    pub(crate) ready: tokio::sync::watch::Receiver<()>,
    pub(crate) _watch: Option<Watch>,
    pub(crate) settings: Settings,
    pub(crate) lookups: Lookups,
    /// The session of requests without a session.
    pub(crate) session: Session,
    pub(crate) governor: Arc<Governor>,
    pub(crate) asking: ApprovalDesk,
    pub(crate) reviews: Reviews,
    pub(crate) audit: Arc<Audit>,
    pub(crate) shaping: Shaper,
    pub(crate) results: Results,
    pub(crate) retry: Retry,
    /// The data for undo. `None` means that changes aren't saved.
    pub(crate) undo: Option<Arc<Undo>>,
    pub(crate) jobs: Arc<HostJobs>,
    pub(crate) offers: Vec<Offers>,
    pub(crate) observer: Option<Arc<dyn CallObserver>>,
    pub(crate) outer: OuterCalls,
    pub(crate) tasks: Tasks,
    /// The reason why all further calls are denied.
    pub(crate) refusal: std::sync::OnceLock<String>,
}

/// Observes all calls of a host.
///
/// The functions run on the thread of the call, before the answer leaves the host, and must not
/// block.
pub trait CallObserver: Send + Sync + 'static {
    /// Called when a call ends with an answer.
    fn called(&self, call: &ObservedCall<'_>);

    /// Called when a call ends without an answer, because its future was dropped. `tool` is the
    /// tool's full name, if the tool was found.
    fn dropped(&self, tool: Option<&str>, took: Duration) {
        let _ = (tool, took);
    }

    /// Called when the host has been built. `plugins` counts the plugins by their state: `running`,
    /// `loading`, `held` or `failed`. The counts are empty after the host is dropped.
    fn built(&self, plugins: CountPlugins) {
        drop(plugins);
    }
}

/// Counts the plugins of a host by their state.
pub type CountPlugins = Box<dyn Fn() -> BTreeMap<&'static str, u64> + Send + Sync>;

/// A call that ended, for a [`CallObserver`].
#[derive(Debug)]
pub struct ObservedCall<'a> {
    /// The arguments, converted to the tool's schema if possible.
    pub arguments: &'a Value,
    /// The metadata next to the arguments, such as `traceparent`.
    pub meta: Option<&'a Map<String, Value>>,
    /// The session's name.
    pub session: &'a str,
    /// The user. `None` means that several users share the host.
    pub user: Option<&'a User>,
    /// The answer.
    pub answer: &'a Answer,
    /// The start time.
    pub started_at: SystemTime,
    /// The duration of the call.
    pub took: Duration,
    /// The time spent waiting for a person.
    pub waited: Duration,
    /// The number of runs of the tool.
    pub attempts: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) max_call: Duration,
    /// Maximum length of the arguments as JSON in bytes. Larger arguments are refused.
    pub(crate) max_arguments: usize,
    pub(crate) project: Arc<str>,
}

/// Replaces the rules for calls and for the permanent approvals in questions.
///
/// # Errors
///
/// [`HostError::Config`] if a rule is invalid. The old rules then stay active.
pub(crate) fn exchange_rules(
    governor: &Governor,
    asking: &ApprovalDesk,
    config: &toolhold_config::Config,
) -> Result<(), HostError> {
    governor.exchange(Rules::from_config(config)?);
    asking.exchange(config.clone());
    Ok(())
}

/// A filter with its counts.
#[derive(Clone, Debug, Serialize)]
pub struct FilterState {
    /// The name of the filter: `PLUGIN/FILTER`, or `FILTER` for a built-in filter.
    pub name: String,
    /// The plugin of the filter.
    pub plugin: String,
    /// The definition from the filter's plugin.
    #[serde(flatten)]
    pub definition: Arc<FilterDefinition>,
    /// The counts since the host started.
    pub counts: FilterCounts,
}

impl Host {
    /// Lists the current tools. Tools of plugins come first.
    ///
    /// Omits aliases, disabled tools, and tools that the rules always deny.
    pub fn tools(&self) -> Vec<Arc<Definition>> {
        dependencies::listed(&self.governor.rules(), &self.plugins.catalogue())
    }

    /// Lists the tools for `session`. Tools with a higher boost come first.
    ///
    /// Omits tools that are blocked by their dependencies (`[tools.dependencies]`). Dependencies
    /// that block every tool don't apply.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the session can't be read.
    pub fn tools_for(&self, session: &Session) -> Result<Vec<OfferedTool>, HostError> {
        let rules = self.governor.rules();
        let catalogue = self.plugins.catalogue();
        let tools = dependencies::listed(&rules, &catalogue);
        let mut offered = Vec::new();
        let Some(dependencies) = &rules.dependencies else {
            for definition in tools {
                offered.push(OfferedTool { definition, boost: 0.0 });
            }
            return Ok(offered);
        };
        session.read(|state| {
            let completed = &state.completed;
            let are_all_blocked =
                dependencies.deadlocked(tools.iter().map(|tool| &*tool.name), completed);
            for definition in tools {
                let name = &definition.name;
                if are_all_blocked || dependencies.decide(name, completed).is_ok() {
                    let boost = dependencies.boost(name, completed);
                    offered.push(OfferedTool { definition, boost });
                }
            }
            offered.sort_by(|a, b| b.boost.total_cmp(&a.boost));
            offered
        })
    }

    /// Returns the prompts and resources of sources that aren't plugins. Omits offers that the
    /// rules always deny.
    pub fn offers(&self) -> Vec<Offers> {
        let tools = dependencies::reachable(&self.governor.rules(), &self.plugins.catalogue());
        let mut all_offers = self.offers.clone();
        for offers in &mut all_offers {
            // A call of `prompter` reads a prompt, and a call of `reader` reads a resource.
            let has_prompter = tools.iter().any(|tool| tool.name == offers.prompter);
            let has_reader = tools.iter().any(|tool| tool.name == offers.reader);
            if !has_prompter {
                offers.prompts.clear();
            }
            if !has_reader {
                offers.resources.clear();
            }
        }
        all_offers
    }

    /// Finds the tool with this name or alias. `None` means that a call fails with
    /// [`ToolNotFound`](crate::Category::ToolNotFound).
    pub fn tool(&self, name: &str) -> Option<Arc<Definition>> {
        self.plugins.catalogue().resolve(name).ok().map(|tool| Arc::clone(&tool.definition))
    }

    /// Returns the configuration rule that disables a tool, or `None` if the tool is enabled or
    /// doesn't exist.
    pub fn switched_off(&self, name: &str) -> Option<Decision> {
        let catalogue = self.plugins.catalogue();
        let tool = catalogue.resolve(name).ok()?;
        let rules = self.governor.rules();
        rules.switches.refusal(tool.provider.name(), &tool.definition.name).cloned()
    }

    /// Lists the names and globs in [`Inputs::only_tools`](toolhold_config::Inputs::only_tools)
    /// that match no tool. A plugin that is still loading has no tools.
    pub fn unmatched_tools(&self) -> Vec<String> {
        let catalogue = self.plugins.catalogue();
        let names = catalogue.tools().iter().map(|tool| &*tool.definition.name);
        let rules = self.governor.rules();
        rules.switches.unmatched(names).into_iter().map(str::to_owned).collect()
    }

    /// Finds at most three similar tool names, the most similar first.
    pub fn similar_tools(&self, name: &str) -> Vec<String> {
        self.plugins.catalogue().similar(name)
    }

    /// Returns the data that inner calls inherit from their running outer call. Returns `None` if
    /// the outer call has ended, or if its [`ToolSource`](crate::ToolSource) [makes no
    /// calls](crate::ToolSource::makes_calls).
    pub fn outer_call(&self, id: &CallId) -> Option<ParentCall> {
        self.outer.find(id)
    }

    /// Lists all plugins with their state, including held and failed plugins.
    pub fn plugins(&self) -> Vec<PluginState> {
        self.plugins.states()
    }

    /// Lists names in the configuration that no tool or plugin has, with their place. A rule with a
    /// misspelt name protects nothing.
    pub fn unknown_names(&self) -> Vec<String> {
        self.plugins.unknown_names().into_iter().map(|unknown| unknown.message).collect()
    }

    /// Lists the plugins with a configured `source` that aren't installed, with their place and the
    /// command that installs them.
    pub fn uninstalled_plugins(&self) -> Vec<String> {
        self.plugins.uninstalled_plugins().into_iter().map(|plugin| plugin.message).collect()
    }

    /// Returns the names of plugins that are loading for the first time
    /// ([`load_in_background`](crate::HostBuilder::load_in_background)).
    pub fn loading(&self) -> Vec<String> {
        self.plugins.loading()
    }

    /// Waits until all plugins that existed at the start have been loaded or refused.
    pub async fn ready(&self) {
        // The sender sends no value, so the loop ends when the sender is dropped.
        while self.ready.clone().changed().await.is_ok() {}
    }

    /// Reads all plugin files again, including files that failed before.
    ///
    /// Returns when every plugin has been loaded or refused. A host that was built with
    /// [`watch`](crate::HostBuilder::watch) reloads changed files automatically.
    pub async fn reload_plugins(&self) {
        let retry_failed = true;
        self.plugins.reload(retry_failed).await;
    }

    /// Denies all further calls with `reason`. The reason of the first call of this function stays.
    /// Call it if the rules are outdated and the new rules can't be read. Running calls continue.
    pub fn refuse_calls(&self, reason: &str) {
        self.refusal.get_or_init(|| reason.to_owned());
    }

    /// Replaces the rules with the rules of a newly loaded configuration: permissions, policies,
    /// autonomy, trust, disabled tools, quotas, dependencies and reviews.
    /// All rules are replaced at once. A decision stays valid for its call. If a call waits for
    /// approval, the new rules decide again after the answer. Plugins, their grants and their
    /// limits don't change.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`](crate::HostError::Config) if a rule is invalid. The old rules then
    /// stay active.
    pub fn reload_rules(&self, config: &toolhold_config::Config) -> Result<(), HostError> {
        exchange_rules(&self.governor, &self.asking, config)
    }

    /// Records an answer to one of `questions` by a person whose name nobody knows, and stores the
    /// answer for the call. Blocks.
    ///
    /// # Errors
    ///
    /// * [`HostError::Config`](crate::HostError::Config) if the question isn't open.
    /// * [`HostError::Io`](crate::HostError::Io) if the answer can't be recorded or stored.
    pub fn answer_question(
        &self,
        questions: &Questions,
        posted: &PostedQuestion,
        reply: Reply,
        front_end: &'static str,
    ) -> Result<(), HostError> {
        let config = self.asking.config();
        let folders = &self.asking.folders;
        let origin = EntryOrigin { front_end: front_end.into(), user: None };
        audit::record_answer(&config, folders, &posted.question, &reply, origin)?;
        let lasting = Duration::from_secs(config.values.approvals.expire_secs.get());
        questions.answer(posted, reply, lasting)
    }

    /// Returns the filters for answers, in their order.
    pub fn filters(&self) -> Vec<FilterState> {
        let catalogue = self.plugins.catalogue();
        let mut states = Vec::new();
        for filter in catalogue.filters.links() {
            states.push(FilterState {
                name: filter.name.clone(),
                plugin: filter.plugin.info().manifest.name.clone(),
                definition: Arc::clone(&filter.definition),
                counts: self.shaping.filtering.counts.get(&filter.name),
            });
        }
        states
    }

    /// Returns the file of the user's filter rules, and their problems, or `None` without the
    /// built-in filters.
    pub fn filter_rules(&self) -> Option<FilterRulesState> {
        self.plugins.filter_rules()
    }

    /// Runs the filter with this name on an output, even if the filter isn't for such outputs.
    ///
    /// First use [`text::shown`](crate::text::shown) to convert a program's output to text as a
    /// terminal shows it. Nothing is counted or recorded, and the result isn't checked.
    ///
    /// # Errors
    ///
    /// Returns an error if the filter doesn't exist or fails.
    pub async fn try_filter(
        &self,
        name: &str,
        input: FilterInput,
    ) -> Result<FilterVerdict, Failure> {
        let catalogue = self.plugins.catalogue();
        let mut filters = catalogue.filters.links().iter();
        let Some(filter) = filters.find(|filter| filter.name == name) else {
            let message = format!("no filter is named `{name}`");
            return Err(Failure::new(Category::ToolNotFound, message));
        };
        let session = self.session.name();
        let never_cancelled = CancellationToken::new();
        filter.plugin.filter(&filter.definition, session, input, &never_cancelled).await
    }

    /// Returns the text of a command's output as a model gets it, and the effect of filters.
    /// Nothing runs, and nothing is recorded or stored.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no `bash` tool, or if a filter withholds the answer.
    pub async fn preview_output(
        &self,
        command: &str,
        output: &str,
        exit_code: i32,
    ) -> Result<(String, Option<FilterSummary>), Failure> {
        let catalogue = self.plugins.catalogue();
        let tool = Arc::clone(catalogue.resolve("bash")?);
        let request = Request::new("bash", json!({ "command": command }));
        let (mut context, ..) = request.begin(&self.session);
        context.tool = Some(tool);
        self.shaping.preview(&catalogue.filters, &context, output, exit_code).await
    }

    /// Checks whether a filter for specific commands matches the output of a command.
    pub fn knows_output(&self, command: &str) -> bool {
        let catalogue = self.plugins.catalogue();
        catalogue.filters.links().iter().any(|filter| {
            let fits_any_command =
                filter.definition.matchers.iter().any(|matcher| matcher.subject == Pattern::Any);
            filter.fits("bash", Some(command)) && !fits_any_command
        })
    }

    /// Returns the names of the filters that match the output of a call of `tool`. For a command
    /// line, `subject` is the command that wrote the output.
    pub fn fitting_filters(&self, tool: &str, subject: Option<&str>) -> Vec<String> {
        let catalogue = self.plugins.catalogue();
        let mut names = Vec::new();
        for filter in catalogue.filters.links() {
            if filter.definition.purpose == Purpose::Security && filter.fits(tool, subject) {
                names.push(filter.name.clone());
            }
        }
        for filter in catalogue.filters.cosmetic(tool, subject) {
            names.push(filter.name.clone());
        }
        names
    }

    /// Returns the user of the host. `None` means that several users share it.
    pub fn user(&self) -> Option<&User> {
        self.audit.user()
    }

    /// Checks whether no job runs. Jobs end with their host and with the hosts that replace it.
    pub fn is_idle(&self) -> bool {
        !self.jobs.jobs.list().iter().any(|job| job.state == JobState::Running)
    }

    /// Returns a receiver that is notified when a plugin is added, changed, removed or held, or
    /// when it fails. The value counts the changes. The receiver closes with the host.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.plugins.changes()
    }

    /// Returns the plugin of a tool, or `None` if the tool's source isn't a plugin.
    pub fn plugin_of(&self, tool: &str) -> Option<Arc<PluginInfo>> {
        let catalogue = self.plugins.catalogue();
        Some(Arc::clone(catalogue.resolve(tool).ok()?.plugin.as_ref()?.info()))
    }

    /// Returns the name of the plugin or upstream server of a tool, or `None` for other sources.
    pub fn source_of(&self, tool: &str) -> Option<String> {
        let catalogue = self.plugins.catalogue();
        let tool = catalogue.resolve(tool).ok()?;
        let is_of_plugin_or_server = tool.plugin.is_some() || tool.provider.is_third_party();
        if !is_of_plugin_or_server {
            return None;
        }
        Some(source_name(tool.provider.name()).to_owned())
    }

    /// Returns the real paths of the directories that the plugin of a tool may use, with the
    /// access. The list is empty for unknown tools and for sources that aren't plugins.
    pub fn directories_of(
        &self,
        tool: &str,
    ) -> Vec<(std::path::PathBuf, toolhold_contract::Access)> {
        let catalogue = self.plugins.catalogue();
        let Ok(tool) = catalogue.resolve(tool) else { return Vec::new() };
        let Some(plugin) = &tool.plugin else { return Vec::new() };
        let Some(grants) = &plugin.policy().files else { return Vec::new() };
        grants.roots().iter().map(|root| (root.path.clone(), root.access)).collect()
    }
}
