//! Conversion between the contract's types and the SDK's own. Only this module and `filter::guest`
//! use the generated bindings.

use serde_json::Value;

use crate::plugin::{Invocation, Plugin, ToolEntry};
use crate::{Body, Category, Content, Failure, MAX_MESSAGE, Output, log as logging};
use bindings::berth::host;
use bindings::berth::tool::types as wit;
use bindings::exports::berth::tool::tools;

#[expect(missing_docs, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["wit/tool", "wit/host", "wit"],
        world: "berth:sdk/plugin",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_component",
        default_bindings_module: "berth_sdk::private::bindings",
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
        let invocation = Invocation { tool: call.tool, arguments: call.arguments, attachments };
        T::PLUGIN.call(invocation).map(output).map_err(failure)
    }
}

/// Writes panics to the operator's log. A panic ends the instance, and the host answers that the
/// tool crashed.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| logging::error(panic)));
}

fn definition(tool: &ToolEntry) -> Result<tools::Definition, Failure> {
    let annotations = tool.annotations;
    let subjects = tool.subjects.iter().map(|subject| tools::Subject {
        pointer: subject.pointer.to_owned(),
        kind: subject.kind.as_str().to_owned(),
        access: subject.access.as_str().to_owned(),
    });
    Ok(tools::Definition {
        name: tool.name.to_owned(),
        title: tool.title.map(str::to_owned),
        description: tool.description.to_owned(),
        input_schema: tool.checked_schema()?.as_value().to_string(),
        output_schema: (tool.output_schema)().map(|schema| schema.as_value().to_string()),
        annotations: tools::Annotations {
            read_only: annotations.read_only,
            destructive: annotations.destructive,
            idempotent: annotations.idempotent,
            open_world: annotations.open_world,
            cacheable: annotations.cacheable,
        },
        subjects: subjects.collect(),
        fence: tool.fence.map(str::to_owned),
        meta: tool.meta().map(|meta| meta.to_string()),
    })
}

fn output(output: Output) -> wit::Output {
    wit::Output {
        content: output.content.into_iter().map(content_out).collect(),
        structured: output.structured.as_ref().map(Value::to_string),
        meta: None,
    }
}

fn failure(mut failure: Failure) -> wit::Failure {
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
        meta: None,
    }
}

pub(crate) fn content_out(part: Content) -> wit::Content {
    let body = match part.body {
        Body::Text(text) => wit::Body::Text(text),
        Body::Bytes(bytes) => wit::Body::Bytes(bytes),
        Body::Link(uri) => wit::Body::Link(uri),
    };
    wit::Content { body, media_type: part.media_type, meta: None }
}

pub(crate) fn content_in(part: wit::Content) -> Content {
    let body = match part.body {
        wit::Body::Text(text) => Body::Text(text),
        wit::Body::Bytes(bytes) => Body::Bytes(bytes),
        wit::Body::Link(uri) => Body::Link(uri),
    };
    Content { body, media_type: part.media_type }
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

/// The running call.
pub(crate) mod call {
    use super::bindings::berth::host::call;
    use crate::Content;

    pub(crate) use call::{cancelled, id, progress, remaining_ms};

    pub(crate) fn emit(part: Content) -> bool {
        call::emit(&super::content_out(part))
    }
}

/// The host's search.
pub(crate) mod search {
    use super::bindings::berth::host::search as wit;
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
            ending: ending(answer.ending),
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
            ending: ending(answer.ending),
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
            ending: ending(answer.ending),
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
        }
    }

    fn pattern_out(pattern: &Pattern) -> wit::Pattern {
        wit::Pattern {
            regex: pattern.regex.clone(),
            case_sensitive: pattern.case_sensitive,
            multiline: pattern.multiline,
            before: pattern.before,
            after: pattern.after,
        }
    }

    fn ending(ending: wit::Ending) -> Ending {
        match ending {
            wit::Ending::Complete => Ending::Complete,
            wit::Ending::Limit => Ending::Limit,
            wit::Ending::Deadline => Ending::Deadline,
            wit::Ending::Cancelled => Ending::Cancelled,
        }
    }

    fn skipped(skipped: wit::Skipped) -> Skipped {
        Skipped { denied: skipped.denied, unreadable: skipped.unreadable, binary: skipped.binary }
    }

    fn error(error: wit::SearchError) -> SearchError {
        match error {
            wit::SearchError::InvalidPattern(why) => SearchError::InvalidPattern(why),
            wit::SearchError::NotFound(what) => SearchError::NotFound(what),
            wit::SearchError::Denied(why) => SearchError::Denied(why),
            wit::SearchError::Failed(why) => SearchError::Failed(why),
        }
    }
}

/// The operator's secrets.
pub(crate) mod secrets {
    pub(crate) use super::bindings::berth::host::secrets::exists;
}

/// The host's processes.
pub(crate) mod process {
    use std::time::Duration;

    use super::bindings::berth::host::process as wit;
    use crate::process::{Command, CommandKind, Ending, Finished, Output, ProcessError};

    pub(crate) fn run(mut command: Command) -> Result<Finished, ProcessError> {
        let input = std::mem::take(&mut command.input);
        let (command, options) = command_out(command);
        let (ended, written) = wit::run(&command, &input, &options).map_err(error)?;
        Ok(finished(ended, output(written)))
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
    }

    fn command_out(command: Command) -> (wit::Command, wit::Options) {
        let options = wit::Options {
            directory: command.directory,
            environment: command.environment,
            timeout_ms: command.timeout.map(millis),
            output_limit: command.output_limit,
            live: command.live,
        };
        let command = match command.kind {
            CommandKind::Program(words) => wit::Command::Program(words),
            CommandKind::Shell(line) => wit::Command::Shell(line),
        };
        (command, options)
    }

    fn finished(finished: wit::Finished, output: Output) -> Finished {
        let ending = match finished.ending {
            wit::Ending::Exited => Ending::Exited,
            wit::Ending::Timeout => Ending::Timeout,
            wit::Ending::Cancelled => Ending::Cancelled,
            wit::Ending::Memory => Ending::Memory,
            wit::Ending::Processes => Ending::Processes,
            wit::Ending::Processor => Ending::Processor,
            wit::Ending::Output => Ending::Output,
        };
        Finished { exit_code: finished.exit_code, ending, notices: finished.notices, output }
    }

    fn output(output: wit::Output) -> Output {
        Output {
            stdout: output.stdout,
            stderr: output.stderr,
            stdout_truncated: output.stdout_truncated,
            stderr_truncated: output.stderr_truncated,
        }
    }

    fn error(error: wit::ProcessError) -> ProcessError {
        match error {
            wit::ProcessError::Denied(why) => ProcessError::Denied(why),
            wit::ProcessError::Invalid(why) => ProcessError::Invalid(why),
            wit::ProcessError::Unavailable(why) => ProcessError::Unavailable(why),
            wit::ProcessError::Failed(why) => ProcessError::Failed(why),
        }
    }

    fn millis(time: Duration) -> u64 {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }
}
