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

/// Offers tools and runs their calls. To share it between the tasks of a program, put it in an
/// [`Arc`].
///
/// A host belongs to the tokio runtime that it was built on. Dropping it ends its watching.
pub struct Host {
    pub(crate) plugins: Arc<Plugins>,
    /// Ends when all plugins that were there at the start have been loaded or refused.
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
    /// `None`: changes aren't saved.
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

/// Sees the calls of a host, whichever front end makes them.
///
/// Its functions are called on the thread of the call, before the answer leaves, so they must not
/// block.
pub trait CallObserver: Send + Sync + 'static {
    /// A call ended.
    fn called(&self, call: &ObservedCall<'_>);

    /// A call ended without an answer, since its future was dropped. `tool`: its full name, if it
    /// was found.
    fn dropped(&self, tool: Option<&str>, took: Duration) {
        let _ = (tool, took);
    }

    /// The host was built. `plugins` counts its plugins by their state: `running`, `loading`,
    /// `held` or `failed`. After the host's end, it counts none.
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
    /// The metadata that the caller sent next to the arguments, such as `traceparent`.
    pub meta: Option<&'a Map<String, Value>>,
    /// The session's name.
    pub session: &'a str,
    /// The answer.
    pub answer: &'a Answer,
    /// When the call began.
    pub started_at: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// How long of that it waited for a person.
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

/// Exchanges the rules, for calls and for the offers of the next questions.
///
/// # Errors
///
/// [`HostError::Config`] for an invalid rule. The old rules stay then.
pub(crate) fn exchange_rules(
    governor: &Governor,
    asking: &ApprovalDesk,
    config: &toolhold_config::Config,
) -> Result<(), HostError> {
    governor.exchange(Rules::from_config(config)?);
    asking.exchange(config.clone());
    Ok(())
}

/// A filter of a host with its figures.
#[derive(Clone, Debug, Serialize)]
pub struct FilterState {
    /// Its name: of a built-in plugin the filter's, otherwise the plugin's and the filter's with a
    /// `/` between them.
    pub name: String,
    /// The plugin that it belongs to.
    pub plugin: String,
    /// Its own description.
    #[serde(flatten)]
    pub definition: Arc<FilterDefinition>,
    /// Its figures since the host started.
    pub counts: FilterCounts,
}

impl Host {
    /// Lists the current tools: the tools of plugins first, then the tools of other providers, each
    /// in its own order. Leaves out aliases, disabled tools, and tools of which the rules deny
    /// every call; a call of such a tool gets the denial.
    pub fn tools(&self) -> Vec<Arc<Definition>> {
        dependencies::listed(&self.governor.rules(), &self.plugins.catalogue())
    }

    /// Lists the tools for `session`: those of [`tools`](Self::tools) without the tools that are
    /// blocked by their dependencies (`[tools.dependencies]`). If all tools would be blocked, no
    /// tool is. Tools with a higher boost come first.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`]: the session can't be read.
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

    /// Returns the prompts and resources of providers other than plugins, without those that the
    /// rules deny altogether.
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

    /// Finds the current tool of a name or an alias. Returns `None` if a call of it would fail with
    /// [`ToolNotFound`](crate::Category::ToolNotFound).
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

    /// Returns the context for the calls that a running call makes, if its
    /// [`ToolSource`](crate::ToolSource) [makes calls](crate::ToolSource::makes_calls). Returns
    /// `None` for calls of other sources, and for calls that have ended.
    pub fn outer_call(&self, id: &CallId) -> Option<ParentCall> {
        self.outer.find(id)
    }

    /// Lists all plugins and their state, including those that are held back or failed. Other
    /// providers aren't plugins.
    pub fn plugins(&self) -> Vec<PluginState> {
        self.plugins.states()
    }

    /// Lists the tools and plugins that the configuration names and that don't exist, each with its
    /// place: a rule with a misspelt name protects nothing.
    pub fn unknown_names(&self) -> Vec<String> {
        self.plugins.unknown_names().into_iter().map(|unknown| unknown.message).collect()
    }

    /// Returns the names of plugins that are being loaded for the first time
    /// ([`load_in_background`](crate::HostBuilder::load_in_background)).
    pub fn loading(&self) -> Vec<String> {
        self.plugins.loading()
    }

    /// Returns once all plugins that were there at the start have been loaded or refused.
    pub async fn ready(&self) {
        // The sender never sends: it only ends.
        while self.ready.clone().changed().await.is_ok() {}
    }

    /// Reads the plugin folder and the plugins' files again, also the files that failed before.
    ///
    /// Returns when everything has been loaded or refused; [`plugins`](Self::plugins) says which. A
    /// host that was built to [`watch`](crate::HostBuilder::watch) does this by itself when
    /// something changes there.
    pub async fn reload_plugins(&self) {
        self.plugins.reload(true).await;
    }

    /// Refuses all further calls, with the reason: this host's rules no longer apply, and the rules
    /// that would apply instead can't be read. Running calls end by the rules that they started
    /// with.
    pub fn refuse_calls(&self, reason: &str) {
        self.refusal.get_or_init(|| reason.to_owned());
    }

    /// Exchanges the rules for those of a newly loaded configuration: permissions, policies,
    /// autonomy, trust, disabled tools, quotas, dependencies and policies for a reviewer. It is
    /// one exchange: no call is decided by a mix of old and new rules. A decision stays for its
    /// call; a call that waits for approval is decided on once more when the answer comes.
    ///
    /// The grants and limits of plugins, and the list of plugins, stay as they were built.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`](crate::HostError::Config) for an invalid rule. The old rules stay
    /// then.
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

    /// Returns the operator's own rules for filters: their file and its error. Returns `None`
    /// without the built-in filters.
    pub fn filter_rules(&self) -> Option<FilterRulesState> {
        self.plugins.filter_rules()
    }

    /// Runs one filter, by its name in [`filters`](Self::filters), on an output, whether it matches
    /// or not. It gets the output as given; [`text::shown`](crate::text::shown) makes what a
    /// terminal would show of a program's output. No call is made, nothing is counted, and the
    /// result is neither checked nor recorded.
    ///
    /// # Errors
    ///
    /// There is no such filter, or it fails.
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

    /// Checks whether a filter for certain commands matches the output of a command. Filters for
    /// all outputs don't count.
    pub fn knows_output(&self, command: &str) -> bool {
        let catalogue = self.plugins.catalogue();
        catalogue.filters.links().iter().any(|link| {
            let matches_all =
                link.definition.matchers.iter().any(|matcher| matcher.subject == Pattern::Any);
            link.fits("bash", Some(command)) && !matches_all
        })
    }

    /// Returns the names of the filters that match the output of a tool that acts on `subject`. The
    /// subject of a command line is the command whose output it is.
    pub fn fitting_filters(&self, tool: &str, subject: Option<&str>) -> Vec<String> {
        let catalogue = self.plugins.catalogue();
        let links = catalogue.filters.links().iter();
        let security = links.filter(|link| {
            link.definition.purpose == Purpose::Security && link.fits(tool, subject)
        });
        let matching = security.chain(catalogue.filters.cosmetic(tool, subject));
        matching.map(|link| link.name.clone()).collect()
    }

    /// Returns a receiver that changes whenever a plugin is added, changed, removed, held back or
    /// fails: [`tools`](Self::tools) and [`plugins`](Self::plugins) may return something else then.
    /// The value counts the changes. The receiver closes with the host.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.plugins.changes()
    }

    /// Returns the plugin of a tool, or `None` if another provider offers the tool.
    pub fn plugin_of(&self, tool: &str) -> Option<Arc<PluginInfo>> {
        let catalogue = self.plugins.catalogue();
        Some(Arc::clone(catalogue.resolve(tool).ok()?.plugin.as_ref()?.info()))
    }

    /// Returns the directories that the plugin of a tool is granted, by their real paths, with
    /// their access. The list is empty for tools of other providers, and if there is no such tool.
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
