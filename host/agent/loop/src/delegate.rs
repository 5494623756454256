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
use crate::budget::{TaskBudget, TaskClock};
use crate::conversation::Conversation;
use crate::desk::{DelegateRegistry, ParentAgent};
use crate::ending::{EndKind, Spent, TaskEnd};
use crate::environment::{AgentEnvironment, AllowedCalls, AskedModels};
use crate::events::{RunEvent, RunEvents};
use crate::record::{Began, Delegated, SessionEntry, SessionFile, SessionStore};
use crate::settings::AgentSettings;
use crate::start::AgentStart;
use crate::waiting::MeasuringApprover;

const NAME: &str = "delegate";

const DESCRIPTION: &str = "\
Hands a part of your task to another agent, which works on it in a context of its own, with your tools, and answers you in the end. Use it for \
a search through much text, or for parts that don't need each other: several calls with access \"read\" work at the same time. It knows nothing of \
this conversation, so say all that it needs, and what its answer must contain.";

/// The instructions to a sub-agent. They follow the system text of its parent.
const SYSTEM: &str = "\
You work for another agent, which gave you this task and reads nothing but your last message. Put into it everything that the task asks for, with the \
paths and lines where you found it. Nobody answers questions: if something is missing, say what.";

/// Bytes of a task.
const MAX_TASK: usize = 256 * 1024;

/// Tools that a call may name.
const MAX_TOOLS: usize = 256;

/// Seconds for a task without a `timeout`.
const USUAL_SECS: u64 = 600;

/// Characters of a progress message.
const MAX_PROGRESS: usize = 200;

/// The tool `delegate`. A front end adds the tool to its host builder, and then attaches the host
/// to the tool.
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
    // The host reads the timeout and limits the call.
    #[serde(default, rename = "timeout")]
    _timeout: Option<f64>,
}

const fn read() -> Access {
    Access::Read
}

impl Delegates {
    /// Makes the tool of a front end. Returns `None` if `max_depth` in `[agent.delegate]` is 0.
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

    /// Lets an agent delegate work. The tokens and costs of that work are added to the agent's.
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
                "description": "The names of the only tools that it gets; all of yours by default",
            },
            "timeout": {
                "type": "number", "minimum": 1, "default": USUAL_SECS,
                "description": "Seconds after which it has to be done",
            },
        },
        "required": ["task"],
        "additionalProperties": false,
    });
    let access = ToolArgument {
        name: "access".to_owned(),
        reads_with: vec![json!("read")],
        ..ToolArgument::default()
    };
    Definition {
        title: Some("Hand on a task".to_owned()),
        annotations: Annotations {
            read_only: false,
            // The policy decides on each call of the sub-agent separately.
            destructive: false,
            idempotent: false,
            // The sub-agent's answer consists of text that it read.
            open_world: true,
            cacheable: false,
        },
        arguments: vec![access, ToolArgument::with_role("timeout", Role::Timeout)],
        ..Definition::new(NAME, DESCRIPTION, schema)
    }
}

impl ToolSource for Delegates {
    fn name(&self) -> &str {
        NAME
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
            return Err(failed("the call isn't running any more"));
        };
        let arguments = parse_arguments(call)?;
        let delegator = match self.registry.find(&call.session, outer.caller.as_deref()) {
            Some(delegator) => delegator,
            None => Arc::new(self.client(Arc::clone(&host), &outer).await.map_err(unable)?),
        };
        let settings = &self.config.values.agent.delegate;
        let depth = delegator.environment.depth + 1;
        if depth > settings.max_depth.get() {
            let most = settings.max_depth.get();
            return Err(failed(&format!(
                "the task was handed on {most} times already, the limit: `max_depth` in [agent.delegate]"
            ))
            .with_suggestion("Do it yourself."));
        }
        let place = call.cancel.run_until_cancelled(delegator.places.acquire()).await;
        let Some(Ok(_place)) = place else { return Err(cancelled()) };

        let may_hand_on = depth < settings.max_depth.get();
        let tools = chosen_tools(&host, &delegator, arguments.tools.as_deref(), may_hand_on)?;
        let read_only = outer.read_only || matches!(arguments.access, Access::Read);
        let allowed = AllowedCalls { tools, read_only };
        let time = call.time.unwrap_or(Duration::from_secs(USUAL_SECS));
        let (mut agent, id) =
            self.agent(host, &outer, &delegator, depth, allowed, time).await.map_err(unable)?;
        self.join(&mut agent);

        let budget = Arc::clone(&delegator.budget);
        let mut watcher = Watcher { events: Arc::clone(&call.events), answer: String::new() };
        // The sub-agent's calls end with this call, also if nobody waits for this call any more.
        let cancel = call.cancel.child_token();
        let _guard = cancel.clone().drop_guard();
        let task = vec![Part::Text(arguments.task)];
        let ending = agent.run_within(Some(budget), task, &mut watcher, &cancel).await;
        delegator.finish(Delegated { session: id, spent: agent.spent() });
        answer(&ending, watcher.answer)
    }

    fn join(&self, agent: &mut Agent) {
        agent.enable_delegation(Arc::clone(&self.registry));
    }

    /// Makes a parent agent for a client of the host. The limits are the limits of one task.
    async fn client(&self, host: Arc<Host>, outer: &ParentCall) -> Result<ParentAgent, AgentError> {
        let start = self.start();
        let models = start.models(start.choose().await?).await?;
        let settings = start.settings(&models, start.system()).await;
        let environment = Arc::new(environment_within(host, outer, models));
        let offered = environment.offered()?;
        let tools = offered.iter().map(|tool| tool.definition.name.clone()).collect();
        let budget = Arc::new(TaskBudget::new(&settings));
        let clock = TaskClock::start(settings.max_time, environment.waited());
        let places = self.registry.places_of_client(outer.session.name());
        Ok(ParentAgent::new(environment, settings, tools, budget, clock, places))
    }

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
            // `load_skill` lists the skills itself in this case.
            skills: "",
        }
    }

    /// Makes the sub-agent. Also returns the ID of its session.
    async fn agent(
        &self,
        host: Arc<Host>,
        outer: &ParentCall,
        delegator: &ParentAgent,
        depth: u64,
        allowed: AllowedCalls,
        time: Duration,
    ) -> Result<(Agent, String), AgentError> {
        let parent_settings = &delegator.settings;
        let system = match delegator.environment.depth {
            0 => format!("{}\n\n{SYSTEM}", parent_settings.system),
            // The system text of a sub-agent has the instructions already.
            _ => parent_settings.system.clone(),
        };
        let (models, mut settings) = if self.config.values.agent.delegate.provider.is_empty() {
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
        settings.max_time = time.min(delegator.time_left().unwrap_or_default());

        let (file, id) = self.create_session(outer).await?;
        let mut environment = environment_within(host, outer, models);
        environment.caller = Some(format!("{NAME} {id}"));
        environment.depth = depth;
        environment.allowed = Some(allowed);
        let conversation = Conversation::default();
        let agent =
            Agent::new(settings, Arc::new(environment), file, conversation, Spent::default());
        Ok((agent, id))
    }

    /// Creates the session of the sub-agent. Returns the session file and the ID.
    async fn create_session(
        &self,
        outer: &ParentCall,
    ) -> Result<(SessionFile, String), AgentError> {
        let store = SessionStore::new(&self.folders);
        let limit = self.config.values.agent.session_mib.get() * 1024 * 1024;
        let created = tokio::task::spawn_blocking(move || store.create(limit)).await;
        let (file, id) =
            created.map_err(|error| toolhold_core::HostError::Engine(error.to_string()))??;
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began = Began {
            version: 1,
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
        let message = format!("task is {length} bytes; the limit is {MAX_TASK}");
        return Err(Failure::new(Category::InvalidParameters, message)
            .with_suggestion("Put the text into a file, and name that."));
    }
    Ok(arguments)
}

/// Makes the environment of an agent that works within a call.
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

/// Returns the names of the tools that a sub-agent may call. These are the tools of its parent,
/// limited to the tools that the call names, if any.
fn chosen_tools(
    host: &Host,
    delegator: &ParentAgent,
    wanted: Option<&[String]>,
    may_hand_on: bool,
) -> Result<BTreeSet<String>, Failure> {
    let mut tools = delegator.tools.clone();
    if let Some(wanted) = wanted {
        let mut chosen = BTreeSet::new();
        for name in wanted {
            match host.tool(name) {
                Some(tool) if tools.contains(&tool.name) => {
                    chosen.insert(tool.name.clone());
                }
                _ => {
                    let message = format!("`{}` isn't one of your tools", cut(name, 64));
                    return Err(Failure::new(Category::InvalidParameters, message)
                        .with_suggestion("Name tools of your own, or leave `tools` out."));
                }
            }
        }
        tools = chosen;
    }
    if !may_hand_on {
        tools.remove(NAME);
    }
    Ok(tools)
}

/// Returns the answer to the parent agent.
fn answer(ending: &TaskEnd, text: String) -> Outcome {
    let (code, what) = match ending.kind {
        EndKind::Done => return Ok(Output::text(text)),
        EndKind::Cancelled => return Err(cancelled()),
        EndKind::GaveUp => ("gave_up", "the other agent gave up"),
        EndKind::Denied => ("denied", "the other agent was denied what it needed"),
        EndKind::Budget => ("budget", "the other agent reached a limit"),
        EndKind::Error => ("model", "the other agent failed"),
    };
    let message = if ending.reason.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {}", ending.reason)
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

/// Returns the failure of a call whose agent couldn't start.
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
            _ => return,
        };
        let message = neutral_line(cut(&message, MAX_PROGRESS));
        self.events.progress(Progress { fraction: None, message, untrusted: true });
    }
}

/// The approver of a call if nobody can be asked.
struct NobodyAsks;

impl Approver for NobodyAsks {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Reply> {
        let why = "nobody can be asked in this call".to_owned();
        Box::pin(std::future::ready(Reply::Unasked(why)))
    }

    fn waits(&self) -> bool {
        false
    }
}
