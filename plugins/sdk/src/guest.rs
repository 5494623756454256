//! Conversion between the contract's types and the SDK's own. Only this module and `filter::guest`
//! use the generated bindings.

use serde_json::Value;

use crate::plugin::{Invocation, Plugin, ToolEntry};
use crate::{
    Annotations, Body, Category, Content, Failure, MAX_MESSAGE, Output, Preview, log as logging,
};
use bindings::exports::toolhold::tool::tools;
use bindings::toolhold::host;
use bindings::toolhold::tool::types as wit;

#[expect(missing_docs, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["wit/io", "wit/tool", "wit/host", "wit"],
        world: "toolhold:sdk/plugin",
        with: { "wasi:io/poll@0.2.6": wasip2::io::poll },
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_component",
        default_bindings_module: "toolhold_sdk::private::bindings",
    });
}
pub use bindings::export_component;

/// The trait that `plugin!` implements for a plugin with tools. It gives the component its exports.
pub trait PluginComponent {
    /// The tools.
    const PLUGIN: Plugin;
}

impl<T: PluginComponent> tools::Guest for T {
    fn list_tools() -> Result<Vec<tools::Definition>, wit::Failure> {
        log_panics();
        T::PLUGIN.tools.iter().map(definition).collect::<Result<_, _>>().map_err(failure)
    }

    fn call_tool(call: tools::Invocation) -> Result<wit::Output, wit::Failure> {
        log_panics();
        let attachments = call.attachments.into_iter().map(content_in).collect();
        let tools::Invocation { tool, arguments, meta, .. } = call;
        let invocation = Invocation { tool, arguments, attachments, meta };
        T::PLUGIN.call(invocation).map(output).map_err(failure)
    }
}

/// Writes panics to the operator's log, and to standard error, whose end the caller gets. A panic
/// ends the instance, and the host answers that the tool crashed.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        logging::error(panic);
        eprintln!("{panic}");
    }));
}

fn definition(tool: &ToolEntry) -> Result<tools::Definition, Failure> {
    let schema = tool.checked_schema()?;
    let arguments = tool.arguments(&schema)?.into_iter().map(|argument| tools::Argument {
        name: argument.name,
        aliases: argument.aliases.into_iter().map(str::to_owned).collect(),
        roles: argument.roles.into_iter().map(str::to_owned).collect(),
        base: argument.base.map(str::to_owned),
        reads_with: argument.reads_with.iter().map(Value::to_string).collect(),
        meta: None,
    });
    let subjects = tool.subjects.iter().map(|subject| tools::Subject {
        pointer: subject.pointer.to_owned(),
        kind: subject.kind.as_str().to_owned(),
        access: subject.access.as_str().to_owned(),
    });
    Ok(tools::Definition {
        name: tool.name.to_owned(),
        title: tool.title.map(str::to_owned),
        description: tool.description.to_owned(),
        aliases: tool.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        input_schema: schema.as_value().to_string(),
        output_schema: (tool.output_schema)().map(|schema| schema.as_value().to_string()),
        promises: promises(tool.annotations),
        subjects: subjects.collect(),
        arguments: arguments.collect(),
        preview: tool.preview.map(preview),
        answers_in: tool.answers_in_text.then(|| "text".to_owned()),
        fence: tool.fence.map(str::to_owned),
        meta: None,
    })
}

fn promises(annotations: Annotations) -> Vec<String> {
    let all = [
        (annotations.read_only, "read-only"),
        (!annotations.destructive, "additive"),
        (annotations.idempotent, "idempotent"),
        (!annotations.open_world, "closed-world"),
        (annotations.cacheable, "cacheable"),
    ];
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name.to_owned()).collect()
}

fn preview(preview: Preview) -> tools::Preview {
    let none =
        || tools::Preview { file: String::new(), content: None, old: None, new: None, all: None };
    match preview {
        Preview::Whole { file, content } => {
            tools::Preview { file: file.to_owned(), content: Some(content.to_owned()), ..none() }
        }
        Preview::Part { file, old, new, all } => tools::Preview {
            file: file.to_owned(),
            old: Some(old.to_owned()),
            new: Some(new.to_owned()),
            all: Some(all.to_owned()),
            ..none()
        },
    }
}

fn output(output: Output) -> wit::Output {
    wit::Output {
        content: output.content.into_iter().map(content_out).collect(),
        structured: output.structured.as_ref().map(Value::to_string),
        after_emitted: output.after_emitted,
        meta: output.meta.as_ref().map(Value::to_string),
    }
}

pub(crate) fn failure(mut failure: Failure) -> wit::Failure {
    failure.message.truncate(failure.message.floor_char_boundary(MAX_MESSAGE));
    wit::Failure {
        category: match failure.category {
            Category::InvalidParameters => wit::Category::InvalidParameters,
            Category::TypeMismatch => wit::Category::TypeMismatch,
            Category::PermanentFailure => wit::Category::PermanentFailure,
            Category::RateLimited => wit::Category::RateLimited,
            Category::ServerError => wit::Category::ServerError,
            Category::NetworkError => wit::Category::NetworkError,
            Category::Timeout => wit::Category::Timeout,
        },
        code: failure.code.map(String::from),
        message: failure.message,
        suggestion: failure.suggestion,
        retry_after_ms: failure
            .retry_after
            .map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        content: failure.content.into_iter().map(content_out).collect(),
        structured: failure.structured.map(|value| value.to_string()),
        meta: failure.meta.map(|meta| meta.to_string()),
    }
}

pub(crate) fn content_out(part: Content) -> wit::Content {
    let body = match part.body {
        Body::Text(text) => wit::Body::Text(text),
        Body::Bytes(bytes) => wit::Body::Bytes(bytes),
        Body::Link(uri) => wit::Body::Link(uri),
    };
    let meta = part.untrusted.then(|| r#"{"toolhold:untrusted":true}"#.to_owned());
    wit::Content { body, media_type: part.media_type, meta }
}

pub(crate) fn content_in(part: wit::Content) -> Content {
    let body = match part.body {
        wit::Body::Text(text) => Body::Text(text),
        wit::Body::Bytes(bytes) => Body::Bytes(bytes),
        wit::Body::Link(uri) => Body::Link(uri),
        // The SDK knows no other kind. The part keeps its place: arguments name attachments by
        // their index.
        wit::Body::Other(_) => Body::Text(String::new()),
    };
    Content { body, media_type: part.media_type, untrusted: false }
}

pub(crate) fn working_directory() -> Option<String> {
    bindings::wasi::cli::environment::initial_cwd()
}

pub(crate) fn log(level: logging::Level, message: &str) {
    let level = match level {
        logging::Level::Debug => host::log::Level::Debug,
        logging::Level::Info => host::log::Level::Info,
        logging::Level::Warn => host::log::Level::Warn,
        logging::Level::Error => host::log::Level::Error,
    };
    host::log::write(level, message);
}

/// The plugin's settings.
pub(crate) mod config {
    pub(crate) use super::bindings::toolhold::host::config::{all, get};
}

/// The plugin's store.
pub(crate) mod store {
    use super::bindings::toolhold::host::store as wit;
    use super::host::types::Error;
    use crate::HostError;
    use crate::store::{Entry, Pair};

    pub(crate) fn get(key: &str) -> Result<Option<Vec<u8>>, HostError> {
        wit::get(key).map_err(error)
    }

    pub(crate) fn list(
        prefix: &str,
        cursor: Option<&str>,
    ) -> Result<(Vec<Entry>, Option<String>), HostError> {
        let page = wit::list(prefix, cursor, u32::MAX).map_err(error)?;
        let entry = |entry: wit::Entry| Entry { key: entry.key, value: entry.value };
        Ok((page.entries.into_iter().map(entry).collect(), page.cursor))
    }

    pub(crate) fn write(expected: Vec<Pair>, changes: Vec<Pair>) -> Result<bool, HostError> {
        let expected: Vec<_> =
            expected.into_iter().map(|(key, value)| wit::Expectation { key, value }).collect();
        let changes: Vec<_> =
            changes.into_iter().map(|(key, value)| wit::Change { key, value }).collect();
        wit::write(&expected, &changes).map_err(error)
    }

    fn error(error: Error) -> HostError {
        HostError::new("store", error.code, error.message)
    }
}

/// The plugin's index.
pub(crate) mod index {
    use super::bindings::toolhold::host::index as wit;
    use super::host::types::Error;
    use crate::HostError;
    use crate::index::{Document, Entry, Hit, Query};

    pub(crate) fn put(documents: Vec<Document>) -> Result<(), HostError> {
        let document = |one: Document| wit::Document {
            key: one.key,
            text: one.text,
            tags: one.tags,
            vector: one.vector,
            data: one.data,
            meta: None,
        };
        let documents: Vec<_> = documents.into_iter().map(document).collect();
        wit::put(&documents).map_err(error)
    }

    pub(crate) fn delete(keys: &[String]) -> Result<(), HostError> {
        wit::delete(keys).map_err(error)
    }

    pub(crate) fn delete_prefix(prefix: &str) -> Result<u64, HostError> {
        wit::delete_prefix(prefix).map_err(error)
    }

    pub(crate) fn get(keys: &[String]) -> Result<Vec<Option<Document>>, HostError> {
        let document = |one: wit::Document| Document {
            key: one.key,
            text: one.text,
            tags: one.tags,
            vector: one.vector,
            data: one.data,
        };
        let found = wit::get(keys).map_err(error)?;
        Ok(found.into_iter().map(|one| one.map(document)).collect())
    }

    pub(crate) fn list(
        prefix: &str,
        cursor: Option<&str>,
    ) -> Result<(Vec<Entry>, Option<String>), HostError> {
        let page = wit::list(prefix, cursor, u32::MAX).map_err(error)?;
        let entry = |one: wit::Entry| Entry { key: one.key, tags: one.tags, data: one.data };
        Ok((page.entries.into_iter().map(entry).collect(), page.cursor))
    }

    pub(crate) fn search(query: Query) -> Result<Vec<Hit>, HostError> {
        let hits = wit::search(&wit::Query {
            words: query.words,
            tags: query.tags,
            prefix: query.prefix,
            vector: query.vector,
            limit: query.limit,
            meta: None,
        });
        let hit = |one: wit::Hit| {
            let by = |why: &str| one.found_by.iter().any(|by| by == why);
            Hit { by_words: by("words"), by_vector: by("vector"), key: one.key, score: one.score }
        };
        Ok(hits.map_err(error)?.into_iter().map(hit).collect())
    }

    fn error(error: Error) -> HostError {
        HostError::new("index", error.code, error.message)
    }
}

/// Vectors of texts.
pub(crate) mod embeddings {
    use super::bindings::toolhold::host::embeddings as wit;
    use super::host::types::Error;
    use crate::HostError;

    pub(crate) fn model() -> Option<String> {
        wit::model()
    }

    pub(crate) fn embed(texts: &[String]) -> Result<Vec<Vec<i8>>, HostError> {
        let error = |error: Error| HostError::new("embeddings", error.code, error.message);
        wit::embed(texts).map_err(error)
    }
}

/// The plugin's tasks.
pub(crate) mod schedule {
    use super::bindings::toolhold::host::schedule as wit;
    use super::host::types::Error;
    use crate::HostError;
    use crate::schedule::{Action, Run, Task, TaskState};

    pub(crate) fn put(task: Task) -> Result<TaskState, HostError> {
        let Task { name, kind, when, zone, missed, action } = task;
        let action = match action {
            Action::Prompt(text) => wit::Action::Prompt(text),
            Action::Call { tool, arguments } => {
                wit::Action::Call(wit::ToolCall { tool, arguments: arguments.to_string() })
            }
        };
        let task = wit::Task { name, kind, when, zone, missed, action, meta: None };
        wit::put(&task).map(state).map_err(error)
    }

    pub(crate) fn remove(name: &str) -> Result<bool, HostError> {
        wit::remove(name).map_err(error)
    }

    pub(crate) fn pause(name: &str, paused: bool) -> Result<bool, HostError> {
        wit::pause(name, paused).map_err(error)
    }

    pub(crate) fn run_soon(name: &str) -> Result<bool, HostError> {
        wit::run_soon(name).map_err(error)
    }

    pub(crate) fn tasks() -> Result<Vec<TaskState>, HostError> {
        Ok(wit::tasks().map_err(error)?.into_iter().map(state).collect())
    }

    pub(crate) fn runs(name: &str) -> Result<Vec<Run>, HostError> {
        Ok(wit::runs(name).map_err(error)?.into_iter().map(run).collect())
    }

    fn state(state: wit::State) -> TaskState {
        let wit::Task { name, kind, when, zone, missed, action, meta: _ } = state.task;
        let action = match action {
            wit::Action::Prompt(text) => Action::Prompt(text),
            wit::Action::Call(wit::ToolCall { tool, arguments }) => Action::Call {
                tool,
                arguments: serde_json::from_str(&arguments).unwrap_or_default(),
            },
        };
        let task = Task { name, kind, when, zone, missed, action };
        TaskState { task, next: state.next, paused: state.paused, last: state.last.map(run) }
    }

    fn run(run: wit::Run) -> Run {
        let wit::Run { due, started, ended, state, missed, output, meta: _ } = run;
        Run { due, started, ended, state, missed, output }
    }

    fn error(error: Error) -> HostError {
        HostError::new("schedule", error.code, error.message)
    }
}

/// The running call.
pub(crate) mod call {
    use super::bindings::toolhold::host::call;
    use crate::{Caller, Content};

    pub(crate) use call::{cancelled, id, progress, remaining_ms};

    pub(crate) fn emit(part: Content) -> bool {
        call::emit(&super::content_out(part))
    }

    pub(crate) fn caller() -> Caller {
        let call::Caller { user, project, session, front_end, agent, untrusted, .. } =
            call::called_by();
        Caller { user, project, session, front_end, agent, untrusted }
    }
}

/// The host's search.
pub(crate) mod search {
    use super::bindings::toolhold::host::search as wit;
    use super::bindings::toolhold::host::types::Error;
    use crate::search::{
        Counts, Ending, Entries, Entry, Kind, Line, Lines, Pattern, Scope, SearchError, Skipped,
    };

    pub(crate) fn find(scope: &Scope, limit: u32) -> Result<Entries, SearchError> {
        let answer = wit::find(&scope_out(scope), limit).map_err(error)?;
        let items = answer.items.into_iter().map(|entry| Entry {
            path: entry.path,
            kind: match entry.kind {
                wit::Kind::File => Kind::File,
                wit::Kind::Directory => Kind::Directory,
                wit::Kind::Symlink => Kind::Symlink,
                wit::Kind::Other => Kind::Other,
            },
            size: entry.size,
            modified_ms: entry.modified_ms,
        });
        Ok(Entries {
            items: items.collect(),
            ending: ending(&answer.ending),
            skipped: skipped(answer.skipped),
        })
    }

    pub(crate) fn grep(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Lines, SearchError> {
        let answer = wit::grep(&scope_out(scope), &pattern_out(pattern), limit).map_err(error)?;
        let items = answer.items.into_iter().map(|line| Line {
            path: line.path,
            number: line.number,
            text: line.text,
            is_match: line.is_match,
        });
        Ok(Lines {
            items: items.collect(),
            files_matched: answer.files_matched,
            files_searched: answer.files_searched,
            ending: ending(&answer.ending),
            skipped: skipped(answer.skipped),
        })
    }

    pub(crate) fn count(
        scope: &Scope,
        pattern: &Pattern,
        limit: u32,
    ) -> Result<Counts, SearchError> {
        let answer = wit::count(&scope_out(scope), &pattern_out(pattern), limit).map_err(error)?;
        Ok(Counts {
            items: answer.items,
            files_searched: answer.files_searched,
            ending: ending(&answer.ending),
            skipped: skipped(answer.skipped),
        })
    }

    fn scope_out(scope: &Scope) -> wit::Scope {
        wit::Scope {
            root: scope.root.clone(),
            globs: scope.globs.clone(),
            ignore_rules: scope.ignore_rules,
            files_only: scope.files_only,
            max_depth: scope.max_depth,
            meta: None,
        }
    }

    fn pattern_out(pattern: &Pattern) -> wit::LinePattern {
        wit::LinePattern {
            regex: pattern.regex.clone(),
            case_sensitive: pattern.case_sensitive,
            multiline: pattern.multiline,
            before: pattern.before,
            after: pattern.after,
            meta: None,
        }
    }

    fn ending(name: &str) -> Ending {
        match name {
            "complete" => Ending::Complete,
            "limit" => Ending::Limit,
            "deadline" => Ending::Deadline,
            "cancelled" => Ending::Cancelled,
            _ => Ending::Other,
        }
    }

    fn skipped(skipped: wit::Skipped) -> Skipped {
        Skipped { denied: skipped.denied, unreadable: skipped.unreadable, binary: skipped.binary }
    }

    fn error(error: Error) -> SearchError {
        match error.code.as_str() {
            "invalid" => SearchError::InvalidPattern(error.message),
            "not-found" => SearchError::NotFound(error.message),
            "denied" => SearchError::Denied(error.message),
            _ => SearchError::Failed(error.message),
        }
    }
}

/// The operator's secrets.
pub(crate) mod secrets {
    pub(crate) use super::bindings::toolhold::host::secrets::exists;
}

/// The host's processes.
pub(crate) mod service {
    use std::time::Duration;

    use super::bindings::toolhold::host::process::Options;
    use super::bindings::toolhold::host::service as wit;
    use super::process::{error, millis};
    use crate::process::ProcessError;

    #[derive(Debug)]
    pub(crate) struct Connection(wit::Connection);

    pub(crate) fn connect(
        name: &str,
        command: Vec<String>,
        directory: Option<&str>,
    ) -> Result<Connection, ProcessError> {
        let options = Options {
            directory: directory.map(str::to_owned),
            environment: Vec::new(),
            timeout_ms: None,
            output_limit: None,
            live: false,
            meta: None,
        };
        wit::connect(name, &command, &options).map(Connection).map_err(error)
    }

    pub(crate) fn stop(name: &str) -> bool {
        wit::stop(name).unwrap_or_default()
    }

    impl Connection {
        pub(crate) fn is_new(&self) -> bool {
            self.0.is_new()
        }

        pub(crate) fn read(&mut self, timeout: Option<Duration>) -> Vec<u8> {
            self.0.read(timeout.map(millis))
        }

        pub(crate) fn errors(&mut self) -> Vec<u8> {
            self.0.errors()
        }

        pub(crate) fn write(&mut self, bytes: &[u8]) -> u64 {
            self.0.write(bytes)
        }

        pub(crate) fn has_ended(&mut self) -> bool {
            self.0.ended().is_some()
        }

        pub(crate) fn keep(self) {
            self.0.keep();
        }
    }
}

pub(crate) mod process {
    use std::time::Duration;

    use wasip2::clocks::monotonic_clock;
    use wasip2::io::poll::{Pollable, poll};

    use super::bindings::toolhold::host::process as wit;
    use super::bindings::toolhold::host::types::Error;
    use crate::process::{Command, CommandKind, Ending, Finished, Output, ProcessError};

    pub(crate) fn run(mut command: Command) -> Result<Finished, ProcessError> {
        let input = std::mem::take(&mut command.input);
        let (command, options) = command_out(command);
        let (ended, written) = wit::run(&command, &input, &options).map_err(error)?;
        Ok(finished(ended, output(written)))
    }

    pub(crate) fn background(command: Command) -> Result<String, ProcessError> {
        let (command, options) = command_out(command);
        let (ended, _) = wit::run(&command, &[], &options).map_err(error)?;
        let meta = ended.meta.as_deref().and_then(|meta| serde_json::from_str(meta).ok());
        let job = meta.as_ref().and_then(|meta: &serde_json::Value| meta["job"].as_str());
        job.map(str::to_owned).ok_or_else(|| {
            ProcessError::Failed("the host ran the command in the foreground".to_owned())
        })
    }

    #[derive(Debug)]
    pub(crate) struct Child(wit::Child);

    impl Child {
        pub(crate) fn start(command: Command) -> Result<Self, ProcessError> {
            let (command, options) = command_out(command);
            wit::Child::start(&command, &options).map(Self).map_err(error)
        }

        pub(crate) fn read(&mut self, timeout: Option<Duration>) -> Output {
            output(self.0.read(timeout.map(millis)))
        }

        pub(crate) fn write(&mut self, bytes: &[u8]) -> u64 {
            self.0.write(bytes)
        }

        pub(crate) fn close_input(&mut self) {
            self.0.close_input();
        }

        pub(crate) fn wait(&mut self) -> Finished {
            let ended = self.0.wait();
            finished(ended, output(self.0.read(Some(0))))
        }

        pub(crate) fn kill(&mut self) {
            self.0.kill();
        }

        pub(crate) fn is_finished(&mut self) -> bool {
            self.0.finished().is_some()
        }

        pub(crate) fn subscribe(&self) -> Pollable {
            self.0.subscribe()
        }
    }

    pub(crate) fn wait_any<'c>(
        children: impl Iterator<Item = &'c mut Child>,
        timeout: Option<Duration>,
    ) -> Vec<usize> {
        let mut waited: Vec<Pollable> = children.map(|child| child.subscribe()).collect();
        let count = waited.len();
        if let Some(timeout) = timeout {
            let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            waited.push(monotonic_clock::subscribe_duration(nanos));
        }
        if waited.is_empty() {
            return Vec::new();
        }
        let ready = poll(&waited.iter().collect::<Vec<_>>());
        ready.into_iter().map(|index| index as usize).filter(|index| *index < count).collect()
    }

    fn command_out(command: Command) -> (wit::Command, wit::Options) {
        let options = wit::Options {
            directory: command.directory,
            environment: command.environment,
            timeout_ms: command.timeout.map(millis),
            output_limit: command.output_limit,
            live: command.live,
            meta: command.background.then(|| r#"{"background":true}"#.to_owned()),
        };
        let command = match command.kind {
            CommandKind::Program(words) => wit::Command::Program(words),
            CommandKind::Shell(line) => wit::Command::Shell(line),
        };
        (command, options)
    }

    fn finished(finished: wit::Finished, output: Output) -> Finished {
        let ending = match finished.ending.as_str() {
            "exited" => Ending::Exited,
            "timeout" => Ending::Timeout,
            "cancelled" => Ending::Cancelled,
            "memory" => Ending::Memory,
            "processes" => Ending::Processes,
            "processor" => Ending::Processor,
            "output" => Ending::Output,
            _ => Ending::Other,
        };
        Finished { exit_code: finished.exit_code, ending, notices: finished.notices, output }
    }

    fn output(output: wit::ProcessOutput) -> Output {
        Output {
            stdout: output.stdout,
            stderr: output.stderr,
            stdout_truncated: output.stdout_truncated,
            stderr_truncated: output.stderr_truncated,
        }
    }

    pub(super) fn error(error: Error) -> ProcessError {
        match error.code.as_str() {
            "denied" => ProcessError::Denied(error.message),
            "invalid" => ProcessError::Invalid(error.message),
            "unavailable" => ProcessError::Unavailable(error.message),
            _ => ProcessError::Failed(error.message),
        }
    }

    pub(super) fn millis(time: Duration) -> u64 {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }
}
