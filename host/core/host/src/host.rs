//! `Host`: the public interface by which a program lists tools. Calls are in `journey`.

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
use toolhold_policy::Decision;

use crate::approvals::ApprovalDesk;
use crate::audit::Audit;
use crate::dependencies::{self, OfferedTool};
use crate::governor::{Governor, Rules};
use crate::jobs::HostJobs;
use crate::outer::{OuterCalls, ParentCall};
use crate::request::Request;
use crate::retry::Retry;
use crate::review::Reviews;
use crate::session::Session;
use crate::undo::Undo;

/// Offers tools and runs their calls. To share a host between the tasks of a program, put it in an
/// [`Arc`].
///
/// A host belongs to the tokio runtime on which it was built. Dropping the host ends its file
/// watch.
pub struct Host {
    pub(crate) plugins: Arc<Plugins>,
    /// Ends when all plugins that existed at the start have been loaded or refused.
    pub(crate) ready: tokio::sync::watch::Receiver<()>,
    /// Ends the watching when the host is dropped.
    pub(crate) _watch: Option<Watch>,
    pub(crate) settings: Settings,
    pub(crate) lookups: Lookups,
    /// The session of calls that name no session.
    pub(crate) session: Session,
    pub(crate) governor: Arc<Governor>,
    pub(crate) asking: ApprovalDesk,
    pub(crate) reviews: Reviews,
    pub(crate) audit: Arc<Audit>,
    pub(crate) shaping: Shaper,
    pub(crate) results: Results,
    pub(crate) retry: Retry,
    /// The store for undo. `None` means that changes aren't saved.
    pub(crate) undo: Option<Arc<Undo>>,
    /// The commands in the background.
    pub(crate) jobs: Arc<HostJobs>,
    /// The prompts and resources of the providers.
    pub(crate) offers: Vec<Offers>,
    pub(crate) observer: Option<Arc<dyn CallObserver>>,
    pub(crate) outer: OuterCalls,
    /// The maker of calls at a later time.
    pub(crate) tasks: Tasks,
    /// Why no further call runs.
    pub(crate) refusal: std::sync::OnceLock<String>,
}

/// Observes all calls of a host, for every front end.
///
/// Its functions are called on the thread of the call, before the answer leaves the host, so they
/// must not block.
pub trait CallObserver: Send + Sync + 'static {
    /// A call ended.
    fn called(&self, call: &ObservedCall<'_>);

    /// Called when a call ends without an answer, because its future was dropped. `tool` is its
    /// full name, if the tool was found.
    fn dropped(&self, tool: Option<&str>, took: Duration) {
        let _ = (tool, took);
    }

    /// Called when the host has been built. `plugins` counts its plugins by their state: `running`,
    /// `loading`, `held` or `failed`. After the host's end, the counts are empty.
    fn built(&self, plugins: CountPlugins) {
        drop(plugins);
    }
}

/// Counts the plugins of a host by their state.
pub type CountPlugins = Box<dyn Fn() -> BTreeMap<&'static str, u64> + Send + Sync>;

/// A call that ended, for a [`CallObserver`].
#[derive(Debug)]
pub struct ObservedCall<'a> {
    /// The arguments in the form that the tool got, or would have got.
    pub arguments: &'a Value,
    /// The metadata that the caller sent in addition to the arguments, such as `traceparent`.
    pub meta: Option<&'a Map<String, Value>>,
    /// The session's name.
    pub session: &'a str,
    /// The answer.
    pub answer: &'a Answer,
    /// When the call began.
    pub started_at: SystemTime,
    /// The duration of the call.
    pub took: Duration,
    /// The part of the duration for which the call waited for a person.
    pub waited: Duration,
    /// How often the tool ran.
    pub attempts: u32,
}

/// Settings that apply to every call.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) max_call: Duration,
    /// Largest size of the arguments as JSON text, in bytes.
    pub(crate) max_arguments: usize,
    /// The opaque name of the working directory.
    pub(crate) project: Arc<str>,
}

/// Replaces the rules, for calls and for the permanent approvals that the next questions offer.
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

/// A filter of a host with its counts.
#[derive(Clone, Debug, Serialize)]
pub struct FilterState {
    /// The name of the filter. For a built-in plugin, this is the filter's own name. Otherwise the
    /// plugin's name and a `/` come before it.
    pub name: String,
    /// The plugin of the filter.
    pub plugin: String,
    /// The filter's own declaration.
    #[serde(flatten)]
    pub definition: Arc<FilterDefinition>,
    /// The counts since the host started.
    pub counts: FilterCounts,
}

impl Host {
    /// Lists the current tools: the tools of plugins first, then the tools of other providers, each
    /// in its own order.
    ///
    /// Omits aliases, disabled tools, and tools of which the rules deny every call. A call of an
    /// omitted tool gets the denial.
    pub fn tools(&self) -> Vec<Arc<Definition>> {
        dependencies::listed(&self.governor.rules(), &self.plugins.catalogue())
    }

    /// Lists the tools for `session`: the tools of [`tools`](Self::tools) without tools that are
    /// blocked by their dependencies (`[tools.dependencies]`). If all tools would be blocked, none
    /// is. Tools with a higher boost come first.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the session can't be read.
    pub fn tools_for(&self, session: &Session) -> Result<Vec<OfferedTool>, HostError> {
        let rules = self.governor.rules();
        let catalogue = self.plugins.catalogue();
        let tools = dependencies::listed(&rules, &catalogue);
        let Some(dependencies) = &rules.dependencies else {
            return Ok(tools
                .into_iter()
                .map(|definition| OfferedTool { definition, boost: 0.0 })
                .collect());
        };
        session.look(|state| {
            let completed = &state.completed;
            let deadlocked =
                dependencies.deadlocked(tools.iter().map(|tool| &*tool.name), completed);
            let mut offered: Vec<OfferedTool> = tools
                .into_iter()
                .filter(|tool| deadlocked || dependencies.decide(&tool.name, completed).is_ok())
                .map(|definition| OfferedTool {
                    boost: dependencies.boost(&definition.name, completed),
                    definition,
                })
                .collect();
            // The highest boost comes first.
            offered.sort_by(|a, b| b.boost.total_cmp(&a.boost));
            offered
        })
    }

    /// Returns the prompts and resources of providers other than plugins, without offers that the
    /// rules always deny.
    pub fn offers(&self) -> Vec<Offers> {
        let listed = dependencies::reachable(&self.governor.rules(), &self.plugins.catalogue());
        let mut all = self.offers.clone();
        for offers in &mut all {
            if !listed.iter().any(|tool| tool.name == offers.prompter) {
                offers.prompts.clear();
            }
            if !listed.iter().any(|tool| tool.name == offers.reader) {
                offers.resources.clear();
            }
        }
        all
    }

    /// Finds the current tool with a name or an alias. Returns `None` if a call of it would fail
    /// with [`ToolNotFound`](crate::Category::ToolNotFound).
    pub fn tool(&self, name: &str) -> Option<Arc<Definition>> {
        self.plugins.catalogue().resolve(name).ok().map(|tool| Arc::clone(&tool.definition))
    }

    /// Finds the rule of the configuration that disables a tool. Returns `None` if the tool is
    /// enabled or doesn't exist.
    pub fn switched_off(&self, name: &str) -> Option<Decision> {
        let catalogue = self.plugins.catalogue();
        let tool = catalogue.resolve(name).ok()?;
        let rules = self.governor.rules();
        rules.switches.refusal(tool.provider.name(), &tool.definition.name).cloned()
    }

    /// Lists the names and globs of [`Inputs::only_tools`](toolhold_config::Inputs::only_tools)
    /// that match no tool. A plugin that is being loaded has no tools yet.
    pub fn unmatched_tools(&self) -> Vec<String> {
        let catalogue = self.plugins.catalogue();
        let names = catalogue.tools().iter().map(|tool| &*tool.definition.name);
        let rules = self.governor.rules();
        rules.switches.unmatched(names).into_iter().map(str::to_owned).collect()
    }

    /// Finds at most three names of tools that resemble `name`, the closest first.
    pub fn similar_tools(&self, name: &str) -> Vec<String> {
        self.plugins.catalogue().similar(name)
    }

    /// Returns the context of a running call for the calls that it makes. Returns `None` if the
    /// call has ended, or if its [`ToolSource`](crate::ToolSource) never [makes
    /// calls](crate::ToolSource::makes_calls).
    pub fn outer_call(&self, id: &CallId) -> Option<ParentCall> {
        self.outer.find(id)
    }

    /// Lists all plugins with their state, including held and failed plugins. Other providers
    /// aren't plugins.
    pub fn plugins(&self) -> Vec<PluginState> {
        self.plugins.states()
    }

    /// Lists the tools and plugins that the configuration names but that don't exist, each with its
    /// place. A rule with a misspelt name protects nothing.
    pub fn unknown_names(&self) -> Vec<String> {
        self.plugins.unknown_names().into_iter().map(|unknown| unknown.message).collect()
    }

    /// Returns the names of plugins that are being loaded for the first time
    /// ([`load_in_background`](crate::HostBuilder::load_in_background)).
    pub fn loading(&self) -> Vec<String> {
        self.plugins.loading()
    }

    /// Waits until all plugins that existed at the start have been loaded or refused.
    pub async fn ready(&self) {
        // The sender never sends a value, so this loop ends when the sender is dropped.
        while self.ready.clone().changed().await.is_ok() {}
    }

    /// Reads the plugin folder and the plugins' files again, including files that failed before.
    ///
    /// Returns when every plugin has been loaded or refused. [`plugins`](Self::plugins) then has
    /// the states. A host that was built with [`watch`](crate::HostBuilder::watch) reloads
    /// automatically when a file changes.
    pub async fn reload_plugins(&self) {
        self.plugins.reload(true).await;
    }

    /// Denies all further calls with `reason`. A caller uses this function if this host's rules no
    /// longer apply and the new rules can't be read. Running calls end under the rules with which
    /// they started.
    pub fn refuse_calls(&self, reason: &str) {
        self.refusal.get_or_init(|| reason.to_owned());
    }

    /// Replaces the rules with those of a newly loaded configuration: permissions, policies,
    /// autonomy, trust, disabled tools, quotas, dependencies and policies for a reviewer.
    ///
    /// All rules are replaced at once, so no decision mixes old and new rules. A decision stays
    /// valid for its call. For a call that waits for approval, the new rules decide again when the
    /// answer comes. The list of plugins and their grants and limits don't change.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`](crate::HostError::Config) if a rule is invalid. The old rules then
    /// stay active.
    pub fn reload_rules(&self, config: &toolhold_config::Config) -> Result<(), HostError> {
        exchange_rules(&self.governor, &self.asking, config)
    }

    /// Returns the filters for answers, in their order.
    pub fn filters(&self) -> Vec<FilterState> {
        let catalogue = self.plugins.catalogue();
        let links = catalogue.filters.links().iter();
        links
            .map(|link| FilterState {
                name: link.name.clone(),
                plugin: link.plugin.info().manifest.name.clone(),
                definition: Arc::clone(&link.definition),
                counts: self.shaping.filtering.counts.get(&link.name),
            })
            .collect()
    }

    /// Returns the file of the operator's own filter rules, and its error. Returns `None` without
    /// the built-in filters.
    pub fn filter_rules(&self) -> Option<FilterRulesState> {
        self.plugins.filter_rules()
    }

    /// Runs one filter on an output, even if the filter doesn't match it. The filter has its name
    /// in [`filters`](Self::filters).
    ///
    /// The filter gets the output as given. [`text::shown`](crate::text::shown) converts a
    /// program's output to what a terminal would show. No call is made, nothing is counted, and the
    /// result is neither checked nor recorded.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such filter, or if it fails.
    pub async fn try_filter(
        &self,
        name: &str,
        input: FilterInput,
    ) -> Result<FilterVerdict, Failure> {
        let catalogue = self.plugins.catalogue();
        let Some(link) = catalogue.filters.links().iter().find(|link| link.name == name) else {
            let message = format!("no filter is named `{name}`");
            return Err(Failure::new(Category::ToolNotFound, message));
        };
        link.plugin
            .filter(&link.definition, self.session.name(), input, &CancellationToken::new())
            .await
    }

    /// Returns the text that a model would get of the output of a command, and a summary of the
    /// filters. As in a call, the output is shown as by a terminal, redacted and filtered. Nothing
    /// runs, and nothing is recorded or stored.
    ///
    /// # Errors
    ///
    /// No tool runs commands, or a filter withholds the answer.
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

    /// Checks whether a filter for specific commands matches the output of a command. Filters for
    /// all outputs are ignored.
    pub fn knows_output(&self, command: &str) -> bool {
        let catalogue = self.plugins.catalogue();
        catalogue.filters.links().iter().any(|link| {
            let matches_all =
                link.definition.matchers.iter().any(|matcher| matcher.subject == Pattern::Any);
            link.fits("bash", Some(command)) && !matches_all
        })
    }

    /// Returns the names of the filters that match the output of a call of `tool` with the subject
    /// `subject`. For a command line, the subject is the command that wrote the output.
    pub fn fitting_filters(&self, tool: &str, subject: Option<&str>) -> Vec<String> {
        let catalogue = self.plugins.catalogue();
        let links = catalogue.filters.links().iter();
        let security = links.filter(|link| {
            link.definition.purpose == Purpose::Security && link.fits(tool, subject)
        });
        let matching = security.chain(catalogue.filters.cosmetic(tool, subject));
        matching.map(|link| link.name.clone()).collect()
    }

    /// Returns a receiver that changes when a plugin is added, changed, removed or held, or when it
    /// fails. After a change, [`tools`](Self::tools) and [`plugins`](Self::plugins) may return
    /// different values. The value counts the changes. The receiver closes with the host.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.plugins.changes()
    }

    /// Returns the plugin of a tool, or `None` if another provider offers the tool.
    pub fn plugin_of(&self, tool: &str) -> Option<Arc<PluginInfo>> {
        let catalogue = self.plugins.catalogue();
        Some(Arc::clone(catalogue.resolve(tool).ok()?.plugin.as_ref()?.info()))
    }

    /// Returns the real paths of the directories that the plugin of a tool may use, with their
    /// access. The list is empty for tools of other providers, and if there is no such tool.
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
