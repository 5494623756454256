//! `delegate`: gives a part of a task to a sub-agent with its own context.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::json;
use toolhold_core::config::{Config, Folders};
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{
    Annotations, Approver, BoxFuture, Call, Category, Definition, Events, Failure, Host, Outcome,
    Output, ParentCall, Phase, Progress, Question, Reply, Role, ToolArgument, ToolSource,
};
use toolhold_models::Part;
use toolhold_models::choice::ChosenModel;

use crate::AgentError;
use crate::agent::Agent;
use crate::budget::{CONFIGURED_TURNS, TaskBudget, TaskClock};
use crate::conversation::Conversation;
use crate::desk::{DelegateRegistry, ParentAgent};
use crate::ending::{EndKind, Spent, TaskEnd};
use crate::environment::{AgentEnvironment, AllowedCalls, AskedModels};
use crate::events::{RunEvent, RunEvents};
use crate::record::{Began, Delegated, FORMAT_VERSION, SessionEntry, SessionFile, SessionStore};
use crate::settings::AgentSettings;
use crate::start::{AgentStart, MIB};
use crate::waiting::MeasuringApprover;

const DELEGATE: &str = "delegate";

const DESCRIPTION: &str = "Hands a part of your task to another agent, which works in its own \
                           context with your tools and answers you at the end. Use this tool for a \
                           search through much text, or for independent parts of the task: several \
                           calls with access \"read\" run at the same time. The other agent knows \
                           nothing of this conversation, so give all information that the agent \
                           needs, and say what its answer must contain.";

/// The instructions to a sub-agent, after the system text of its parent.
const SYSTEM: &str = "\
You work for another agent, which gave you this task and reads nothing but your last message. Put into it everything that the task asks for, with the \
paths and lines where you found it. Nobody answers questions: if something is missing, say what.";

/// Most bytes of a task. Longer tasks are refused.
const MAX_TASK: usize = 256 * 1024;

const MAX_TOOLS: usize = 256;

const USUAL_SECS: u64 = 600;

/// Most bytes of a tool's name in an error message.
const MAX_SHOWN_NAME: usize = 64;

/// Most characters of a progress message.
const MAX_PROGRESS: usize = 200;

/// The tool `delegate`. A front end adds the tool to its host builder, and calls [`Self::attach`]
/// with the built host.
pub struct Delegates {
    tool: Arc<Definition>,
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    folders: Folders,
    directory: PathBuf,
    front_end: &'static str,
    host: OnceLock<Weak<Host>>,
    registry: Arc<DelegateRegistry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Access {
    Read,
    Act,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    task: String,
    #[serde(default = "read")]
    access: Access,
    tools: Option<Vec<String>>,
    // The host already limits the call by this value.
    #[serde(default, rename = "timeout")]
    _timeout: Option<f64>,
}

const fn read() -> Access {
    Access::Read
}

impl Delegates {
    /// Makes the tool `delegate` for a front end. Returns `None` if `max_depth` in
    /// `[agent.delegate]` is 0.
    pub fn new(
        config: &Config,
        folders: &Folders,
        directory: impl Into<PathBuf>,
        front_end: &'static str,
    ) -> Option<Arc<Self>> {
        if config.values.agent.delegate.max_depth.get() == 0 {
            return None;
        }
        let shared = Shared {
            config: config.clone(),
            folders: folders.clone(),
            directory: directory.into(),
            front_end,
            host: OnceLock::new(),
            registry: Arc::new(DelegateRegistry::new(config.values.agent.delegate.at_once.get())),
        };
        Some(Arc::new(Self { tool: Arc::new(definition()), shared: Arc::new(shared) }))
    }

    /// Sets the host whose tools sub-agents get. Calls of `delegate` fail until the host is set.
    pub fn attach(&self, host: &Arc<Host>) {
        let _ = self.shared.host.set(Arc::downgrade(host));
    }

    /// Lets an agent delegate work. The agent pays for the tokens of its sub-agents.
    pub fn join(&self, agent: &mut Agent) {
        agent.enable_delegation(Arc::clone(&self.shared.registry));
    }
}

fn definition() -> Definition {
    let schema = json!({
        "type": "object",
        "properties": {
            "task": {
                "type": "string", "minLength": 1,
                "description": "What to do, with everything that the other agent has to know",
            },
            "access": {
                "type": "string", "enum": ["read", "act"], "default": "read",
                "description": "\"read\": the agent only reads. \"act\": the agent may do what you may do",
            },
            "tools": {
                "type": "array", "items": { "type": "string" }, "minItems": 1,
                "maxItems": MAX_TOOLS,
                "description": "The names of the tools that the other agent gets; by default, all \
                                your tools",
            },
            "timeout": {
                "type": "number", "minimum": 1, "default": USUAL_SECS,
                "description": "The time limit in seconds",
            },
        },
        "required": ["task"],
        "additionalProperties": false,
    });
    let access = ToolArgument {
        name: "access".to_owned(),
        read_only_values: vec![json!("read")],
        ..ToolArgument::default()
    };
    Definition {
        title: Some("Hand on a task".to_owned()),
        annotations: Annotations {
            read_only: false,
            // The policy decides on each call of the sub-agent, so delegating itself does no harm.
            destructive: false,
            idempotent: false,
            // The sub-agent may repeat text of web pages or files in its answer.
            open_world: true,
            cacheable: false,
        },
        arguments: vec![access, ToolArgument::with_role("timeout", Role::Timeout)],
        ..Definition::new(DELEGATE, DESCRIPTION, schema)
    }
}

impl ToolSource for Delegates {
    fn name(&self) -> &str {
        DELEGATE
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        vec![Arc::clone(&self.tool)]
    }

    fn makes_calls(&self) -> bool {
        true
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.delegate(&call).await })
    }
}

impl Shared {
    async fn delegate(&self, call: &Call) -> Outcome {
        let Some(host) = self.host.get().and_then(Weak::upgrade) else {
            return Err(failed("this front end starts no agents"));
        };
        let Some(outer) = host.outer_call(&call.id) else {
            return Err(failed("the call has already ended"));
        };
        let arguments = parse_arguments(call)?;
        let delegator = match self.registry.find(&call.session, outer.caller.as_deref()) {
            Some(delegator) => delegator,
            None => {
                let parent = self.parent_for_client(Arc::clone(&host), &outer).await;
                Arc::new(parent.map_err(unable)?)
            }
        };
        let settings = &self.config.values.agent.delegate;
        let depth = delegator.environment.depth + 1;
        if depth > settings.max_depth.get() {
            let most = settings.max_depth.get();
            return Err(failed(&format!(
                "the task was already delegated {most} times, the limit (`max_depth` in \
                 [agent.delegate])"
            ))
            .with_suggestion("Do the task yourself."));
        }
        let permit = call.cancel.run_until_cancelled(delegator.permits.acquire()).await;
        let Some(Ok(_permit)) = permit else { return Err(cancelled()) };

        let may_delegate = depth < settings.max_depth.get();
        let tools = chosen_tools(&host, &delegator, arguments.tools.as_deref(), may_delegate)?;
        let read_only = outer.read_only || matches!(arguments.access, Access::Read);
        let allowed = AllowedCalls { tools, read_only };
        let time = call.time.unwrap_or(Duration::from_secs(USUAL_SECS));
        let created = self.create_sub_agent(host, &outer, &delegator, depth, allowed, time).await;
        let (mut agent, id) = created.map_err(unable)?;
        self.join(&mut agent);

        let budget = Arc::clone(&delegator.budget);
        let mut watcher = Watcher { events: Arc::clone(&call.events), answer: String::new() };
        // The sub-agent must also stop if the caller drops this future.
        let cancel = call.cancel.child_token();
        let _guard = cancel.clone().drop_guard();
        let task = vec![Part::Text(arguments.task)];
        let ending = agent.run_within(Some(budget), task, &mut watcher, &cancel).await;
        delegator.finish(Delegated { session: id, spent: agent.spent() });
        outcome_of(&ending, watcher.answer)
    }

    fn join(&self, agent: &mut Agent) {
        agent.enable_delegation(Arc::clone(&self.registry));
    }

    /// Makes a parent for a client's call of `delegate`, because a client has no agent. Each call
    /// has the limits of a whole task.
    async fn parent_for_client(
        &self,
        host: Arc<Host>,
        outer: &ParentCall,
    ) -> Result<ParentAgent, AgentError> {
        let start = self.start();
        let models = start.models(start.choose().await?).await?;
        let settings = start.settings(&models, start.system()).await;
        let environment = Arc::new(environment_within(host, outer, models));
        let offered = environment.offered()?;
        let tool_names = offered.iter().map(|tool| tool.definition.name.clone()).collect();
        let budget = Arc::new(TaskBudget::new(&settings, CONFIGURED_TURNS));
        let clock = TaskClock::start(settings.max_time, environment.waited());
        let permits = self.registry.permits_of_client(outer.session.name());
        Ok(ParentAgent::new(environment, settings, tool_names, budget, clock, permits))
    }

    /// Returns the inputs for an agent with the model in `[agent.delegate]`, or with the usual
    /// model.
    fn start(&self) -> AgentStart<'_> {
        let provider = self.config.values.agent.delegate.provider.as_str();
        AgentStart {
            config: &self.config,
            folders: &self.folders,
            directory: &self.directory,
            model: if provider.is_empty() { None } else { Some(provider) },
            session: None,
            phase: Phase::Executor,
            front_end: self.front_end,
            instructions: &[],
            // `load_skill` lists the skills in its own description.
            skills: "",
        }
    }

    async fn create_sub_agent(
        &self,
        host: Arc<Host>,
        outer: &ParentCall,
        delegator: &ParentAgent,
        depth: u64,
        allowed: AllowedCalls,
        time: Duration,
    ) -> Result<(Agent, String), AgentError> {
        let parent_settings = &delegator.settings;
        let mut system = parent_settings.system.clone();
        // If the parent is a sub-agent, its system text already contains these instructions.
        let is_parent_sub_agent = delegator.environment.depth > 0;
        if !is_parent_sub_agent {
            system = format!("{system}\n\n{SYSTEM}");
        }

        let uses_parent_model = self.config.values.agent.delegate.provider.is_empty();
        let (models, mut settings) = if uses_parent_model {
            let settings = AgentSettings { system, ..parent_settings.clone() };
            (delegator.environment.models.clone(), settings)
        } else {
            let start = self.start();
            let chosen: ChosenModel = start.choose().await?;
            let models = start.models(chosen).await?;
            let system = models.model.endpoint().hide_keys(&system);
            let settings = start.settings(&models, system).await;
            (models, settings)
        };
        let parent_time_left = delegator.time_left().unwrap_or(Duration::ZERO);
        settings.max_time = time.min(parent_time_left);

        let (file, id) = self.create_session(outer).await?;
        let mut environment = environment_within(host, outer, models);
        environment.caller = Some(format!("{DELEGATE} {id}"));
        environment.depth = depth;
        environment.allowed = Some(allowed);
        let conversation = Conversation::default();
        let agent =
            Agent::new(settings, Arc::new(environment), file, conversation, Spent::default());
        Ok((agent, id))
    }

    /// Creates the session file of a sub-agent, and records the start. Also returns the session's
    /// ID.
    async fn create_session(
        &self,
        outer: &ParentCall,
    ) -> Result<(SessionFile, String), AgentError> {
        let store = SessionStore::new(&self.folders);
        let max_bytes = self.config.values.agent.session_mib.get() * MIB;
        let creating = tokio::task::spawn_blocking(move || store.create(max_bytes)).await;
        let created =
            creating.map_err(|error| toolhold_core::HostError::Engine(error.to_string()))?;
        let (file, id) = created?;
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began = Began {
            version: FORMAT_VERSION,
            id: id.clone(),
            directory: self.directory.display().to_string(),
            at: at.as_secs(),
            within: Some(outer.session.name().to_string()),
        };
        file.append(&SessionEntry::Began(began)).await?;
        Ok((file, id))
    }
}

fn parse_arguments(call: &Call) -> Result<Arguments, Failure> {
    let arguments = Arguments::deserialize(&*call.arguments)
        .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))?;
    let length = arguments.task.len();
    if length > MAX_TASK {
        let message = format!("`task` is {length} bytes; the limit is {MAX_TASK}");
        return Err(Failure::new(Category::InvalidParameters, message)
            .with_suggestion("Put the text into a file, and name the file."));
    }
    Ok(arguments)
}

/// Returns the environment of an agent that works within an outer call. If the outer call has no
/// approver, calls that need approval are denied.
fn environment_within(
    host: Arc<Host>,
    outer: &ParentCall,
    models: AskedModels,
) -> AgentEnvironment {
    let approver = outer.approver.clone().unwrap_or_else(|| Arc::new(NobodyAsks));
    AgentEnvironment {
        host,
        session: outer.session.clone(),
        caller: outer.caller.clone(),
        depth: 0,
        phase: outer.phase,
        trust: outer.trust,
        allowed: None,
        models,
        approver: Arc::new(MeasuringApprover::new(approver)),
    }
}

/// Returns the tools that a sub-agent may call: `wanted`, or all tools of its parent.
///
/// # Errors
///
/// Fails if a wanted tool isn't a tool of the parent.
fn chosen_tools(
    host: &Host,
    delegator: &ParentAgent,
    wanted: Option<&[String]>,
    may_delegate: bool,
) -> Result<BTreeSet<String>, Failure> {
    let mut tools = match wanted {
        Some(wanted) => wanted_tools(host, delegator, wanted)?,
        None => delegator.tools.clone(),
    };
    if !may_delegate {
        tools.remove(DELEGATE);
    }
    Ok(tools)
}

fn wanted_tools(
    host: &Host,
    delegator: &ParentAgent,
    wanted: &[String],
) -> Result<BTreeSet<String>, Failure> {
    let mut tools = BTreeSet::new();
    for name in wanted {
        match host.tool(name) {
            Some(tool) if delegator.tools.contains(&tool.name) => {
                tools.insert(tool.name.clone());
            }
            _ => {
                let message = format!("`{}` isn't one of your tools", cut(name, MAX_SHOWN_NAME));
                return Err(Failure::new(Category::InvalidParameters, message)
                    .with_suggestion("Name tools of your own, or leave `tools` out."));
            }
        }
    }
    Ok(tools)
}

/// Returns the result of the delegating call. A failure also contains `text`, the last text of the
/// sub-agent.
fn outcome_of(ending: &TaskEnd, text: String) -> Outcome {
    let (code, summary) = match ending.kind {
        EndKind::Done => return Ok(Output::text(text)),
        EndKind::Cancelled => return Err(cancelled()),
        EndKind::GaveUp => ("gave_up", "the other agent gave up"),
        EndKind::Denied => ("denied", "a rule denied a call that the other agent needed"),
        EndKind::Budget => ("budget", "the other agent reached a limit"),
        EndKind::Error => ("model", "the other agent failed"),
    };
    let message = if ending.reason.is_empty() {
        summary.to_owned()
    } else {
        format!("{summary}: {}", ending.reason)
    };
    let mut failure = failed(&message).with_code(code);
    if !text.trim().is_empty() {
        failure.content = Output::text(text).content;
    }
    Err(failure)
}

fn failed(message: &str) -> Failure {
    Failure::new(Category::PermanentFailure, message)
}

fn cancelled() -> Failure {
    Failure::new(Category::Cancelled, "the call was cancelled")
}

fn unable(error: AgentError) -> Failure {
    failed(&format!("the other agent can't start: {error}"))
}

/// Keeps the last text of an agent, and reports its calls and notices as progress.
struct Watcher {
    events: Arc<dyn Events>,
    answer: String,
}

impl RunEvents for Watcher {
    fn event(&mut self, event: RunEvent) {
        let message = match event {
            RunEvent::Answer { text, .. } => {
                if !text.trim().is_empty() {
                    self.answer = text;
                }
                return;
            }
            RunEvent::Call { tool, arguments, .. } => format!("{tool} {arguments}"),
            RunEvent::Notice { text } => text,
            // The parent doesn't get other events.
            _ => return,
        };
        let message = neutral_line(cut(&message, MAX_PROGRESS));
        self.events.progress(Progress { fraction: None, message, untrusted: true });
    }
}

struct NobodyAsks;

impl Approver for NobodyAsks {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Reply> {
        let why = "nobody can be asked to approve this call".to_owned();
        Box::pin(std::future::ready(Reply::Unasked(why)))
    }

    fn waits(&self) -> bool {
        false
    }
}
