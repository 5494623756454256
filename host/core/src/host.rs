//! The host as a program sees it.

use std::sync::Arc;
use std::time::Duration;

use berth_answers::FilterCounts;
use berth_answers::Results;
use berth_answers::Shaper;
use berth_catalogue::plugins::{FilterRulesState, PluginState, Plugins, Watch};
use berth_catalogue::subjects::Lookups;
use berth_catalogue::{Audience, Link};
use berth_contract::{
    CancellationToken, Category, Content, Definition, Events, Failure, FilterDefinition,
    FilterInput, FilterVerdict, HostError, NoEvents,
};
use berth_policy::{Phase, Trust};
use berth_runtime::PluginInfo;
use serde::Serialize;
use serde_json::Value;

use crate::approvals::{ApprovalDesk, Approver};
use crate::audit::Audit;
use crate::dependencies::{self, OfferedTool};
use crate::governor::{Governor, Rules};
use crate::retry::Retry;
use crate::session::Session;

/// Offers tools and runs calls of them. To be shared by the tasks of a program, put it in an
/// [`Arc`].
///
/// It belongs to the tokio runtime that it was built on. Dropping it ends what it watches.
pub struct Host {
    pub(crate) plugins: Arc<Plugins>,
    /// Ends the watching with the host.
    pub(crate) _watch: Option<Watch>,
    pub(crate) settings: Settings,
    pub(crate) lookups: Lookups,
    /// The session of calls that name none.
    pub(crate) session: Session,
    pub(crate) governor: Arc<Governor>,
    pub(crate) asking: ApprovalDesk,
    pub(crate) audit: Audit,
    pub(crate) shaping: Shaper,
    pub(crate) results: Results,
    pub(crate) retry: Retry,
}

/// What holds for every call.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) max_call: Duration,
    /// Bytes of arguments as JSON text.
    pub(crate) arguments: usize,
}

/// What a program gives the host: which tool, with what, for whom, and where to tell.
#[derive(Clone)]
pub struct Request {
    /// A tool's name or alias.
    pub tool: String,
    /// A JSON object; the tool's schema says what belongs in it. At most 1 MiB as JSON text.
    pub arguments: Value,
    /// Larger or binary arguments, which the JSON names `{"$attachment": 0}`, by their place here.
    pub attachments: Vec<Content>,
    /// Who calls, where that is not the primary agent.
    pub caller: Option<String>,
    /// The session that the call belongs to. None: the one of the host.
    pub session: Option<Session>,
    /// In which part of an agent's work the call is asked for; rules may say what each may do.
    pub phase: Option<Phase>,
    /// How far what asks for the call is trusted: a skill that nobody has looked at, say. What the
    /// plugin is trusted less counts too.
    pub trust: Trust,
    /// Whom the answer is for.
    pub audience: Audience,
    /// How a person is asked, where the rules say so. None: nobody is.
    pub approver: Option<Arc<dyn Approver>>,
    /// Where progress and partial output go.
    pub events: Arc<dyn Events>,
    /// Cancelled by the program when nobody waits any more. Dropping the call's future does as
    /// well.
    pub cancel: CancellationToken,
}

impl Request {
    /// A call of `tool` with `arguments`, and nobody who listens.
    pub fn new(tool: impl Into<String>, arguments: Value) -> Self {
        Self {
            tool: tool.into(),
            arguments,
            attachments: Vec::new(),
            caller: None,
            session: None,
            phase: None,
            trust: Trust::default(),
            audience: Audience::default(),
            approver: None,
            events: Arc::new(NoEvents),
            cancel: CancellationToken::new(),
        }
    }
}

/// Exchanges what calls are decided by, and what the next questions offer.
///
/// # Errors
///
/// [`HostError::Config`] for a rule that can't be used. The old rules hold on then.
pub(crate) fn exchange_rules(
    governor: &Governor,
    asking: &ApprovalDesk,
    config: &berth_config::Loaded,
) -> Result<(), HostError> {
    governor.exchange(Rules::from_config(config)?);
    asking.exchange(config.clone());
    Ok(())
}

/// A filter of a host, and how it fares.
#[derive(Clone, Debug, Serialize)]
pub struct FilterState {
    /// Its name: that of a built-in plugin's filter, else the plugin's and the filter's, with a `/`
    /// between them.
    pub name: String,
    /// The plugin that it is one of.
    pub plugin: String,
    /// What it says of itself.
    #[serde(flatten)]
    pub definition: Arc<FilterDefinition>,
    /// What it did since the host started.
    pub counts: FilterCounts,
}

impl Host {
    /// The tools as they are now: those of plugins first, then those of other providers, each in
    /// its own order. Aliases are not among them, nor is what the configuration switches off, nor
    /// are tools of which the rules deny every call; who calls one gets the denial.
    pub fn tools(&self) -> Vec<Arc<Definition>> {
        dependencies::listed(&self.governor.rules(), &self.plugins.catalogue())
    }

    /// The tools as `session` may see them now: those of [`tools`](Self::tools), without those that
    /// wait for others (`[tools.dependencies]`). Where all of them would wait, none does.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`]: what the session has done can't be read.
    pub fn tools_for(&self, session: &Session) -> Result<Vec<OfferedTool>, HostError> {
        let (rules, catalogue) = (self.governor.rules(), self.plugins.catalogue());
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
            let offered = tools
                .into_iter()
                .filter(|tool| deadlocked || dependencies.decide(&tool.name, completed).is_ok());
            offered
                .map(|definition| OfferedTool {
                    boost: dependencies.boost(&definition.name, completed),
                    definition,
                })
                .collect()
        })
    }

    /// The tool that a name or an alias stands for, now. `None`: a call of it would fail with
    /// [`ToolNotFound`](crate::Category::ToolNotFound).
    pub fn tool(&self, name: &str) -> Option<Arc<Definition>> {
        self.plugins.catalogue().resolve(name).ok().map(|tool| Arc::clone(&tool.definition))
    }

    /// Names of tools that look like `name`, the closest first, at most three.
    pub fn similar_tools(&self, name: &str) -> Vec<String> {
        self.plugins.catalogue().similar(name)
    }

    /// The plugins that there are and how they fare, those that are held back or failed included.
    /// Other providers are none.
    pub fn plugins(&self) -> Vec<PluginState> {
        self.plugins.states()
    }

    /// What the configuration names as a tool or a plugin and there isn't, each with its place: a
    /// rule about a name that is misspelt protects nothing.
    pub fn unknown_names(&self) -> Vec<String> {
        self.plugins.unknown_names().into_iter().map(|unknown| unknown.message).collect()
    }

    /// Looks at the plugin folder and at the plugins' files again, now, also at those that failed
    /// before.
    ///
    /// It returns when everything has been loaded or refused; [`plugins`](Self::plugins) says
    /// which. A host that was built to [`watch`](crate::HostBuilder::watch) does so by itself when
    /// something changes there.
    pub async fn reload_plugins(&self) {
        self.plugins.reload(true).await;
    }

    /// Exchanges the rules that calls are decided by for those of a configuration that was loaded
    /// anew: permissions, policies, autonomy, trust, switches, quotas and dependencies. It is one
    /// exchange: no call is decided by some of the old rules and some of the new. What a call was
    /// decided by holds for that call; one that waits for a person is decided on once more when the
    /// answer comes.
    ///
    /// What plugins are granted, their limits, and which there are stays as it was built.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`](crate::HostError::Config) for a rule that can't be used. The old rules
    /// hold on then.
    pub fn reload_rules(&self, config: &berth_config::Loaded) -> Result<(), HostError> {
        exchange_rules(&self.governor, &self.asking, config)
    }

    /// The filters that answers go through, in their order.
    pub fn filters(&self) -> Vec<FilterState> {
        let catalogue = self.plugins.catalogue();
        let state = |link: &Link| FilterState {
            name: link.name.clone(),
            plugin: link.plugin.info().manifest.name.clone(),
            definition: Arc::clone(&link.definition),
            counts: self.shaping.filtering.counts.get(&link.name),
        };
        catalogue.filters.links().iter().map(state).collect()
    }

    /// The operator's own rules for filters: where they stand, and what is wrong with them. None
    /// where the built-in filters are not there.
    pub fn filter_rules(&self) -> Option<FilterRulesState> {
        self.plugins.filter_rules()
    }

    /// Asks one filter, by its name in [`filters`](Self::filters), about an output, whatever it
    /// matches. It gets the output as it is given: what a terminal would show of a program's is
    /// [`text::shown`](crate::text::shown). No call is made, nothing is counted, and what it says
    /// is neither looked at nor recorded.
    ///
    /// # Errors
    ///
    /// Where there is no such filter, or it fails.
    pub async fn try_filter(
        &self,
        name: &str,
        input: FilterInput,
    ) -> Result<FilterVerdict, Failure> {
        let catalogue = self.plugins.catalogue();
        let link = catalogue.filters.links().iter().find(|link| link.name == name);
        let link = link.ok_or_else(|| {
            Failure::new(Category::ToolNotFound, format!("no filter is named `{name}`"))
        })?;
        link.plugin
            .filter(&link.definition, self.session.name(), input, &CancellationToken::new())
            .await
    }

    /// The names of the filters that look at the output of a tool that acts on `subject`: of a
    /// command line, on the command whose output its output is.
    pub fn fitting_filters(&self, tool: &str, subject: Option<&str>) -> Vec<String> {
        let catalogue = self.plugins.catalogue();
        catalogue
            .filters
            .links()
            .iter()
            .filter(|link| link.fits(tool, subject))
            .map(|link| link.name.clone())
            .collect()
    }

    /// Tells whenever a plugin comes, changes, goes, is held back or fails: [`tools`](Self::tools)
    /// and [`plugins`](Self::plugins) may say something else then. The number is that of the
    /// changes so far. The receiver ends with the host.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.plugins.changes()
    }

    /// The plugin that offers a tool, where a plugin does.
    pub fn plugin_of(&self, tool: &str) -> Option<Arc<PluginInfo>> {
        let catalogue = self.plugins.catalogue();
        Some(Arc::clone(catalogue.resolve(tool).ok()?.plugin.as_ref()?.info()))
    }

    /// The directories that the plugin of a tool is granted, by their real paths, and the most that
    /// may be done there. Empty for tools of other providers, and where there is no such tool.
    pub fn directories_of(&self, tool: &str) -> Vec<(std::path::PathBuf, berth_contract::Access)> {
        let catalogue = self.plugins.catalogue();
        let Some(plugin) = catalogue.resolve(tool).ok().and_then(|tool| tool.plugin.as_ref())
        else {
            return Vec::new();
        };
        let roots = plugin.policy().files.iter().flat_map(|grants| grants.roots());
        roots.map(|root| (root.path.clone(), root.access)).collect()
    }
}
