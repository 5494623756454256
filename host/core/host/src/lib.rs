//! Toolhold as a library: it offers a program the tools of plugins, each call in a sandbox of its
//! own, and the program's own tools next to them.
//!
//! A program builds a [`Host`] with [`Host::builder`], lists its [`tools`](Host::tools) and
//! [`call`](Host::call)s them. There is no other way to a tool, so no program can skip a check that
//! another makes.
//!
//! # From nothing to a call
//!
//! Toolhold runs on Linux, x86-64 or arm64. Your `Cargo.toml` names the crates in your clone of
//! Toolhold's repository; `docs/library.md` has the lines. `toolhold-builtins` has the built-in
//! plugins inside. A program calls [`helper_hook`] first in `main`, before there is a second
//! thread, and then builds its host on a reactor with time:
//!
//! ```no_run
//! use toolhold_core::{Builtin, Host, Request};
//! use serde_json::json;
//!
//! # async fn read(builtins: &[Builtin]) -> Result<(), toolhold_core::HostError> {
//! // `builtins`: `toolhold_builtins::all()`.
//! let host = Host::builder().builtins(builtins).build().await?;
//! let answer = host.call(Request::new("read", json!({ "path": "Cargo.toml" }))).await;
//! match answer.outcome {
//!     Ok(output) => println!("{}", output.joined_text()),
//!     Err(failure) => println!("{}: {}", failure.category.as_str(), failure.message),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The program prints your `Cargo.toml`, read in a sandbox that reaches the working directory and
//! nothing else. With `/etc/passwd` instead, it prints the rule that refuses the call, where that
//! rule is written, and how to change it.
//!
//! Two programs in `host/core/builtins/examples` do more: `embed.rs` is an agent's side of a host,
//! `provider.rs` adds a tool of the program's own.
//!
//! # Configuration and folders
//!
//! A host has a configuration ([`HostBuilder::config`]), folders for what Toolhold stores
//! ([`HostBuilder::folders`]) and a working directory ([`HostBuilder::working_directory`]). By
//! default the configuration has default values, *not* the user's `toolhold.toml`; the folders are
//! the user's, with the plugins in them; and the working directory is the process's. Set them by
//! whose host it is:
//!
//! ```
//! use toolhold_core::config::{self, Folders, Inputs, PathAccess};
//! # fn hosts() -> Result<(), toolhold_core::HostError> {
//!
//! // The user's: as `toolhold` has it, with `toolhold.toml`, the one in the working directory that narrows it, and the `TOOLHOLD_*` variables.
//! let folders = Folders::from_environment()?;
//! let users = config::load(&folders, &Inputs::from_environment()?)?;
//!
//! // The program's own: nothing is shared with `toolhold`. Settings are `key=value`, the value in TOML, and checked like a file.
//! let folders = Folders::inside("/var/lib/my-agent".as_ref());
//! let own = config::load(&folders, &Inputs {
//!     settings: vec![r#"tools.file.deny_read=["**/.env"]"#.into(), "tools.call=10".into()],
//!     allow: vec![("/srv/docs".into(), PathAccess::Read)],
//!     ..Inputs::default()
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! The first grants whatever the user granted; the second grants the working directory and
//! `/srv/docs`, since its folders hold no `toolhold.toml` with more. [`config::ConfigValues`] documents
//! every key. No tool reaches Toolhold's own folders, whatever is granted, so none can change the
//! configuration.
//!
//! An organisation's [ceiling](config::Ceiling) limits the first. A program with its own
//! configuration names the ceiling in [`Inputs::ceiling`](config::Inputs::ceiling) if it has to
//! apply there too.
//!
//! # Which tools there are
//!
//! [`Host::tools`] has the [`Definition`]s: name, description, JSON Schema of the arguments, and
//! the tool's behaviour. A model's API takes the same fields under slightly different names:
//!
//! ```
//! # fn tools(host: &toolhold_core::Host) -> serde_json::Value {
//! host.tools()
//!     .iter()
//!     .map(|tool| serde_json::json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema }))
//!     .collect()
//! # }
//! ```
//!
//! The list leaves out tools that the configuration disables, and tools that its rules deny
//! altogether. [`Host::tools_for`] also leaves out tools that are blocked by another tool in a
//! [`Session`]. [`Host::check`] says what would happen to a call, and by which rule, without
//! making it.
//!
//! | source | name | what it may reach |
//! |---|---|---|
//! | plugins in the program: [`HostBuilder::builtins`] | `read` | what `[tools.file]` grants: the working directory by default |
//! | files that the program names: [`HostBuilder::plugin_file`] | `plugin__tool` | what `[plugins.NAME]` grants: nothing by default |
//! | `path` in `[plugins.NAME]`, and the plugin folder | `plugin__tool` | the same, after a person has [approved](PluginApprovals) them |
//! | code of the program: [`HostBuilder::provider`] | any | what the program may reach |
//!
//! # Calls
//!
//! A [`Request`] names the tool, the arguments and the session. The [`Answer`] has an [`Outcome`]:
//! an [`Output`] or a [`Failure`]. Every call gets an answer, and the answer is for the model: a
//! failure says what was wrong and what to try. Its [`Category`] is for the program:
//!
//! | category | what happened | what a program does |
//! |---|---|---|
//! | [`ToolNotFound`](Category::ToolNotFound), [`InvalidParameters`](Category::InvalidParameters), [`TypeMismatch`](Category::TypeMismatch) | the call itself was wrong | tells the model |
//! | [`PolicyBlocked`](Category::PolicyBlocked) | a rule refused it; [`Failure::denial`] says which | tells the model and shows the person |
//! | [`ConfirmationRequired`](Category::ConfirmationRequired) | a person has to approve it first | asks one |
//! | [`RateLimited`](Category::RateLimited) | too much at once, or in one hour | waits for [`Failure::retry_after`], then tries again |
//! | [`Timeout`](Category::Timeout) | it took too long and was stopped; what it had done is done | tells the model |
//! | [`Cancelled`](Category::Cancelled) | the program said so | nothing |
//! | [`ServerError`](Category::ServerError), [`NetworkError`](Category::NetworkError) | another side failed, or was not reached | may try again |
//! | [`PermanentFailure`](Category::PermanentFailure) | it would fail again, or ran into a bound: [`Failure::code`] is `cpu_budget`, `memory_limit`, `result_limit` or `crash` then, or `audit` or `host` where the host itself failed | tells the model; of the host's own failures ([`Failure::is_of_host`]) a person |
//!
//! [`Failure::feedback`] is the one text form of a failure for a model. If another server failed,
//! the host has already tried the call again where that is safe: `[tools.retry]` says how often.
//!
//! A reading call may be answered from an earlier run if nothing that the answer was made of has
//! changed: [`Answer::cached`] says so, and [`Session::clear_cache`] forgets such answers.
//! [`Repetition`] detects an agent that repeats itself; an agent's program asks it about each call,
//! the host itself doesn't.
//!
//! A [`Denial`] is complete: the action, the rule, where the rule is written, and the line that
//! would change it. Only a person can change a rule, so show it to one.
//!
//! With `[tools.adversarial_policy]`, a model judges each call before it runs. The program says who
//! that is ([`HostBuilder::reviewer`]); if nobody is, the calls are refused.
//!
//! Calls have limits: by default 30 s, 10 s of processor time, 256 MiB of memory, 1 MiB of
//! arguments, 8 MiB of answer ([`Limits`]); larger arguments travel as [`Request::attachments`].
//! Text in an answer holds no characters that steer a terminal.
//!
//! # The record
//!
//! Every call is recorded in the folder `audit` of [`Folders::data`](config::Folders::data): before
//! it runs if it can act, and before its answer leaves. [`audit::Trail`] reads and verifies the
//! record; [`HostBuilder::front_end`] sets the program's name in it. A program with a record of its
//! own switches it off with `audit.enabled=false`.
//!
//! # Progress and cancellation
//!
//! [`Request::events`] receives the progress and the partial output of a call. [`Request::cancel`]
//! ends the call, as does dropping its future. Child tokens end all calls of a model's turn at
//! once:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use toolhold_core::{CancellationToken, Content, Events, Host, Progress, Request};
//!
//! struct Screen;
//!
//! impl Events for Screen {
//!     fn progress(&self, progress: Progress) {
//!         println!("… {}", progress.message);
//!     }
//!
//!     fn emitted(&self, part: &Content) {
//!         println!("… {}", part.as_text().unwrap_or_default());
//!     }
//! }
//!
//! # async fn example(host: &Host, turn: &CancellationToken, arguments: serde_json::Value) {
//! let request = Request { cancel: turn.child_token(), events: Arc::new(Screen), ..Request::new("grep", arguments) };
//! let answer = host.call(request).await;
//! # }
//! ```
//!
//! A call that is cancelled or stopped at a limit answers with what it had emitted, in
//! [`Failure::content`].
//!
//! # Plugins that come and go
//!
//! A host that was built to [`watch`](HostBuilder::watch) follows its plugins' files: it loads new
//! ones, swaps changed ones and drops removed ones. A running call keeps the version that it began
//! with. [`Host::changes`] says when to list the tools again:
//!
//! ```no_run
//! # async fn example(host: &toolhold_core::Host) {
//! let mut changes = host.changes();
//! while changes.changed().await.is_ok() {
//!     for plugin in host.plugins() {
//!         let why = plugin.waiting.as_ref().map_or("", |waiting| &waiting.reason);
//!         println!("{} is {}. {why}", plugin.name, plugin.word());
//!     }
//! }
//! # }
//! ```
//!
//! A component that nobody has approved doesn't run: it is held back, and the approved version
//! before it goes on serving. After a person has inspected it ([`PluginInspection`],
//! [`Difference`]), [`PluginApprovals::approve`] lets it in. `reload = "trust"` in the configuration
//! needs no approval.
//!
//! # Tools of the program's own
//!
//! A [`ToolSource`] offers tools that are Rust code of the program. The host resolves, validates and
//! shapes their calls like any other, but doesn't confine them: the provider is responsible for
//! deadline, cancellation and access. Make the schema from the type of the arguments, as in
//! `host/core/builtins/examples/provider.rs`, so that the two can't differ.
//!
//! # The helper
//!
//! A component that is new to this machine is compiled by another process that can only compute,
//! since a compiler is a lot of code to run on an untrusted file. That process is this program,
//! started again with `__compile`, if its `main` begins with [`helper_hook`]; or another program
//! that does, such as `toolhold` itself, by [`HostBuilder::helper`]. Without either, only compiled
//! components load, and the error says so. The code is stored in the folder
//! [`cache`](config::Folders::cache).
//!
//! # Threads and the runtime
//!
//! [`HostBuilder::build`] and [`Host::call`] run on tokio, on one thread or many, and need its time
//! driver (`enable_time`): without it they panic. If plugins make requests, they need its I/O
//! driver too (`enable_all`): without it, their calls fail.
//!
//! * A `Host` is `Send` and `Sync`; put it in an [`Arc`](std::sync::Arc). Calls run at once, as
//!   many as `[tools] max_concurrent` says; one more waits for a place until its deadline, and is
//!   answered `busy` then.
//! * A call of a plugin with directories runs on a thread of tokio's blocking pool. Any other
//!   begins on the thread that polls it, and moves there when it takes more than about 2 ms. So no
//!   plugin keeps a runtime from its work for longer.
//! * [`config::load`], [`Candidate::file`], [`candidate`], [`PluginApprovals`] and [`ask_hosts`] are not
//!   asynchronous: they read files, or wait for other processes. Call them before the runtime
//!   starts, or with `spawn_blocking`.
//! * A call that hangs in a system call (a dead network file system) is answered all the same, but
//!   its thread stays. End the runtime with `shutdown_background`, which doesn't wait for it.
//! * A host that watches has a thread of its own that uses the runtime: drop the host first.
//! * Calls can hold hundreds of descriptors each: raise the soft `RLIMIT_NOFILE` where many run at
//!   once, as `toolhold` does.
//!
//! Events beyond the answers (a plugin that is held back, a crash, a plugin's log) go to the
//! `tracing` crate.
//!
//! # Errors
//!
//! A [`Failure`] is a tool's and is for the model. A [`HostError`] is the host's own (a wrong
//! configuration, a plugin that doesn't load) and is for the person who runs the program: building
//! and inspecting return it, a call never does. A plugin of the configuration or of the plugin
//! folder that doesn't load is no error, since the others serve: [`Host::plugins`] says why.

mod approvals;
mod approve;
pub mod audit;
mod builder;
mod call_inputs;
mod caller_names;
mod checking;
mod counting;
mod dependencies;
pub mod doctor;
mod door;
mod fingerprint;
mod governor;
mod host;
mod inquiries;
pub mod jobs;
mod journey;
mod outer;
mod planned_task;
mod programs;
mod record;
mod request;
mod retry;
mod review;
mod session;
pub mod undo;

pub use approvals::{
    Always, Approver, AttachmentSummary, Mark, PostedQuestion, PostingApprover, Preview, Proposal,
    Question, Questions, Reply, Wider,
};
pub use audit::Trail;
pub use builder::HostBuilder;
pub use caller_names::{project_id, session_id, user_id};
pub use checking::{Check, GateAnswer, GateCheck};
pub use dependencies::OfferedTool;
pub use door::door;
pub use fingerprint::Fingerprint;
pub use host::{CallObserver, CountPlugins, FilterState, Host, ObservedCall};
pub use outer::ParentCall;
pub use programs::provider_states;
pub use request::Request;
pub use review::{CallReviewer, ReviewVerdict, ReviewedCall};
pub use session::Session;
pub use toolhold_answers::{
    Answer, Approval, CacheSummary, FilterCounts, FilterSummary, Remainder, Scope, Step, fenced,
    structured_schema, without_fence_keys,
};
pub use toolhold_catalogue::Audience;
pub use toolhold_catalogue::plugins::control::{Ask, HostPlugins, ask_hosts};
pub use toolhold_catalogue::plugins::{
    AdmissionError, ApprovedPlugin, Change, Difference, FilePlace, FilterRulesState, HeldVersion,
    LockedPlugin, NewPlugin, PluginApprovals, PluginInspection, PluginPlace, PluginSource,
    PluginState, SandboxAdvisor, ServerPlaces, SignerChange, ToolChange, candidate, check_signed,
    check_source, compare_versions, config_schema, grant_in_words, memory, server_places,
};
pub use toolhold_catalogue::schema::{InvalidSchemaError, compile as compile_schema};
pub use toolhold_config as config;
pub use toolhold_contract::{
    Access, Annotations, Body, BoxFuture, Call, CallCommands, CallId, CallRequests, CallerInfo,
    CallerSource, CancellationToken, Category, ChangeArguments, Confidence, Content, Definition,
    Denial, Events, Failure, FileState, FilterDefinition, FilterInput, FilterVerdict, HOST_CODES,
    HostError, Inquirer, Inquiry, InquiryAnswer, Lookup, Matcher, NAME, NoEvents, Offers, Outcome,
    Output, PathState, Pattern, PreviewArguments, ProgramState, Progress, PromptOffer,
    PromptOfferArgument, Purpose, ReadFile, ReadFiles, Report, ReportEntries, ResourceOffer, Role,
    Rollback, Snapshot, Subject, SubjectKind, TaskAction, TaskBook, TaskError, TaskOrder, TaskRun,
    TaskState, ToolArgument, ToolSource, ToolSourceState, UntrustedText, Wanted, text,
};
pub use toolhold_data_dir::state;
pub use toolhold_engine::capability::providers::*;
pub use toolhold_engine::{
    Builtin, Candidate, Capability, EmbeddedFile, Limits, Manifest, Origin, PluginInfo,
    Precompiled, Request as CapabilityRequest, RequestedLimits, SchemaCost, helper_hook,
    object_forms, own_helper,
};
pub use toolhold_net::Resolve;
pub use toolhold_policy::{
    Decision, Gate, Levels, Phase, Reaction, Repeated, Repetition, RepetitionKind,
    RepetitionLimits, ResolvedSubject, ToolGlob, Trust, Verdict, commands,
};
