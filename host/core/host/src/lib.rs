//! Toolhold as a library. A program gets the tools of plugins, with a separate sandbox for each
//! call, and can add its own tools.
//!
//! A program builds a [`Host`] with [`Host::builder`], lists its [`tools`](Host::tools) and
//! [`call`](Host::call)s them. There is no other way to call a tool, so a program can't skip a
//! check.
//!
//! # From nothing to a call
//!
//! Toolhold runs on Linux, x86-64 or arm64. Your `Cargo.toml` names the crates in your clone of
//! Toolhold's repository; `docs/library.md` has the lines. `toolhold-builtins` contains the
//! built-in plugins. A program calls [`helper_hook`] first in `main`, before it starts a second
//! thread. Then it builds its host on a runtime with a time driver:
//!
//! ```no_run
//! use toolhold_core::{Builtin, Host, Request};
//! use serde_json::json;
//!
//! # async fn read(builtins: &[Builtin]) -> Result<(), toolhold_core::HostError> {
//! // `builtins` is `toolhold_builtins::all()`.
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
//! The program prints your `Cargo.toml`. The sandbox that reads the file can only use the working
//! directory. With `/etc/passwd` instead, the program prints the rule that denies the call, the
//! rule's place, and how to change the rule.
//!
//! There are two longer programs in `host/core/builtins/examples`: `embed.rs` uses a host like an
//! agent, and `provider.rs` adds its own tool.
//!
//! # Configuration and folders
//!
//! A host has a configuration ([`HostBuilder::config`]), folders for what Toolhold stores
//! ([`HostBuilder::folders`]) and a working directory ([`HostBuilder::working_directory`]). By
//! default, the configuration has default values and *not* the values of the user's
//! `toolhold.toml`. The default folders are the user's, with the user's plugins, and the default
//! working directory is that of the process. Decide whether the host belongs to the user or to the
//! program:
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
//! The first configuration has the user's grants. The second grants the working directory and
//! `/srv/docs`, because its folders contain no `toolhold.toml`. [`config::ConfigValues`] documents
//! every key. Tools never reach Toolhold's own folders, even with a grant, so they can't change the
//! configuration.
//!
//! An organisation's [ceiling](config::Ceiling) limits the first configuration. If the ceiling must
//! also apply to a program's own configuration, set [`Inputs::ceiling`](config::Inputs::ceiling).
//!
//! # Tools
//!
//! [`Host::tools`] returns the [`Definition`]s: name, description, JSON Schema of the arguments,
//! and the tool's behaviour. The API of a model has the same fields with slightly different names:
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
//! The list omits tools that the configuration disables, and tools that its rules always deny.
//! [`Host::tools_for`] also omits tools that are blocked by their dependencies in a [`Session`].
//! [`Host::check`] returns what would happen to a call, and because of which rule, without running
//! the call.
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
//! an [`Output`] or a [`Failure`]. Every call gets an answer. The answer is for the model: a
//! failure contains the fault and a suggestion. The [`Category`] of a failure is for the program:
//!
//! | category | what happened | what a program does |
//! |---|---|---|
//! | [`ToolNotFound`](Category::ToolNotFound), [`InvalidParameters`](Category::InvalidParameters), [`TypeMismatch`](Category::TypeMismatch) | the call itself was wrong | tells the model |
//! | [`PolicyBlocked`](Category::PolicyBlocked) | a rule denied the call; [`Failure::denial`] has the rule | tells the model and shows the person |
//! | [`ConfirmationRequired`](Category::ConfirmationRequired) | the call needs approval | asks a person |
//! | [`RateLimited`](Category::RateLimited) | too much at once, or in one hour | waits for [`Failure::retry_after`], then tries again |
//! | [`Timeout`](Category::Timeout) | the call took too long and was stopped; its changes so far remain | tells the model |
//! | [`Cancelled`](Category::Cancelled) | the program cancelled the call | nothing |
//! | [`ServerError`](Category::ServerError), [`NetworkError`](Category::NetworkError) | another server failed, or couldn't be reached | may retry |
//! | [`PermanentFailure`](Category::PermanentFailure) | the call would fail again or reached a limit; [`Failure::code`] is then `cpu_budget`, `memory_limit`, `result_limit` or `crash`, or `audit` or `host` if the host itself failed | tells the model; for the host's own failures ([`Failure::is_of_host`]) tells a person |
//!
//! [`Failure::feedback`] returns the text form of a failure for a model. If another server failed,
//! the host has already retried the call where this is safe. `[tools.retry]` sets the number of
//! retries.
//!
//! A call that reads may get the answer of an earlier call if the sources of the answer haven't
//! changed. [`Answer::cached`] shows this, and [`Session::clear_cache`] removes the stored answers.
//! [`Repetition`] detects an agent that repeats itself. The agent's program passes each call to it,
//! because the host doesn't.
//!
//! A [`Denial`] has the action, the rule, the rule's place, and the line that would change it. Only
//! a person can change a rule, so show the denial to a person.
//!
//! With `[tools.adversarial_policy]`, a model judges each call before it runs. The program sets the
//! reviewer that asks the model ([`HostBuilder::reviewer`]). Without a reviewer, the calls are
//! denied.
//!
//! Calls have limits: by default 30 s, 10 s of processor time, 256 MiB of memory, 1 MiB of
//! arguments, 8 MiB of answer ([`Limits`]). Pass larger arguments as [`Request::attachments`]. Text
//! in an answer contains no characters that control a terminal.
//!
//! # The audit log
//!
//! Every call is recorded in the folder `audit` of [`Folders::data`](config::Folders::data) before
//! its answer leaves the host. A call that can act is also recorded before it runs.
//! [`audit::Trail`] reads and verifies the log, and [`HostBuilder::front_end`] sets the program's
//! name in it. A program with its own log can disable this log with `audit.enabled=false`.
//!
//! # Progress and cancellation
//!
//! [`Request::events`] receives the progress and the partial output of a call. [`Request::cancel`]
//! ends the call. Dropping its future also ends the call. Child tokens end all calls of a model's
//! turn at once:
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
//! If a call is cancelled or stopped at a limit, [`Failure::content`] has the parts that it had
//! emitted.
//!
//! # Reloading plugins
//!
//! A host that was built with [`watch`](HostBuilder::watch) watches its plugins' files. It loads
//! new plugins, replaces changed plugins and removes deleted plugins. A running call ends on the
//! version on which it started. [`Host::changes`] reports when the tools must be listed again:
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
//! A component without approval is held, and the previous approved version stays active. After a
//! person has inspected the component ([`PluginInspection`], [`Difference`]),
//! [`PluginApprovals::approve`] approves it. With `reload = "trust"` in the configuration,
//! components need no approval.
//!
//! # The program's own tools
//!
//! A [`ToolSource`] offers tools that are Rust code of the program. The host resolves, validates
//! and shapes their calls like other calls, but doesn't run them in a sandbox: the provider is
//! responsible for the deadline, cancellation and access. Generate the schema from the type of the
//! arguments, as in `host/core/builtins/examples/provider.rs`, so that they can't differ.
//!
//! # The helper
//!
//! A component that is new to this machine is compiled by a separate process that can only compute,
//! because a compiler is a lot of code to run on an untrusted file. If the program's `main` begins
//! with [`helper_hook`], the program starts itself again with `__compile`. Otherwise
//! [`HostBuilder::helper`] names another program that begins with this call, such as `toolhold`.
//! Without a helper, only components that are already compiled can be loaded, and other components
//! return an error. The compiled code is stored in the folder [`cache`](config::Folders::cache).
//!
//! # Threads and the runtime
//!
//! [`HostBuilder::build`] and [`Host::call`] run on tokio, on one thread or many. They panic
//! without its time driver (`enable_time`). Calls of plugins that make requests fail without its
//! I/O driver (`enable_all`).
//!
//! * A `Host` is `Send` and `Sync`, so you can put it in an [`Arc`](std::sync::Arc). The key
//!   `[tools] max_concurrent` limits the number of concurrent calls. A further call waits until its
//!   deadline, and then fails with `busy`.
//! * A call of a plugin with directories runs on a thread of tokio's blocking pool. Any other call
//!   starts on the thread that polls it, and moves to the blocking pool if it takes more than about
//!   2 ms. So a plugin doesn't block a runtime for longer.
//! * [`config::load`], [`Candidate::file`], [`candidate`], [`PluginApprovals`] and [`ask_hosts`]
//!   are not asynchronous: they read files, or wait for other processes. Call them before the
//!   runtime starts, or with `spawn_blocking`.
//! * A call that hangs in a system call, for example on a dead network file system, still gets an
//!   answer, but its thread continues to hang. End the runtime with `shutdown_background`, which
//!   doesn't wait for this thread.
//! * A host that watches has its own thread, which uses the runtime. Drop the host before the
//!   runtime.
//! * Each call can use hundreds of descriptors. If many calls run at once, raise the soft
//!   `RLIMIT_NOFILE`, as `toolhold` does.
//!
//! Other events, such as a held plugin, a crash or a plugin's log, are sent to the `tracing` crate.
//!
//! # Errors
//!
//! A [`Failure`] is the failure of a tool, and is for the model. A [`HostError`] is an error of the
//! host, such as an invalid configuration or a plugin that can't be loaded, and is for the person
//! who runs the program. Building and inspecting may return a `HostError`, but a call never does.
//! If a plugin of the configuration or of the plugin folder can't be loaded, the host returns no
//! error, because the other plugins still run. [`Host::plugins`] has the reason.

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
mod fingerprint;
mod governor;
mod host;
mod inquiries;
pub mod jobs;
mod journey;
mod outbound;
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
    Always, Approver, AttachmentSummary, LINK_PATH, Mark, PostedQuestion, PostingApprover, Preview,
    Proposal, Question, Questions, Reply, WiderRules,
};
pub use audit::Trail;
pub use builder::HostBuilder;
pub use caller_names::{project_id, session_id, user_id};
pub use checking::{Check, GateAnswer, GateCheck};
pub use dependencies::OfferedTool;
pub use fingerprint::Fingerprint;
pub use host::{CallObserver, CountPlugins, FilterState, Host, ObservedCall};
pub use outbound::outbound_client;
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
    Rollback, SessionNetwork, Snapshot, Subject, SubjectKind, TaskAction, TaskBook, TaskError,
    TaskOrder, TaskRun, TaskState, ToolArgument, ToolSource, ToolSourceState, UntrustedText,
    Wanted, text,
};
pub use toolhold_data_dir::state;
pub use toolhold_engine::capability::providers::*;
pub use toolhold_engine::{
    Builtin, Candidate, Capability, EmbeddedFile, Limits, Manifest, Origin, PluginInfo,
    Precompiled, Request as CapabilityRequest, RequestedLimits, SchemaCost, helper_hook,
    object_forms, own_helper,
};
pub use toolhold_net::Resolve;
pub use toolhold_policy::egress::ProgramTarget;
pub use toolhold_policy::{
    Decision, Gate, Levels, Phase, Reaction, Repeated, Repetition, RepetitionKind,
    RepetitionLimits, ResolvedSubject, ToolGlob, Trust, Verdict, commands,
};
