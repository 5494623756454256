//! The functions of the host for a component that was built for 0.1. Each is the current one.

use wasmtime::component::{Linker, Resource};

use super::bindings::berth::host::{call, log, process, search, secrets};
use super::bindings::berth::tool::types as old;
use super::types;
use crate::guest::bindings::berth::host as now;
use crate::guest::bindings::berth::host::types::Error;
use crate::guest::process_functions::Child;
use crate::guest::state::{CallState, HasState};

/// Links the host functions in version 0.1.
pub(crate) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    old::add_to_linker::<CallState, HasState>(linker, |state| state)?;
    call::add_to_linker::<CallState, HasState>(linker, |state| state)?;
    log::add_to_linker::<CallState, HasState>(linker, |state| state)?;
    search::add_to_linker::<CallState, HasState>(linker, |state| state)?;
    process::add_to_linker::<CallState, HasState>(linker, |state| state)?;
    secrets::add_to_linker::<CallState, HasState>(linker, |state| state)
}

impl old::Host for &mut CallState {}

impl call::Host for &mut CallState {
    fn id(&mut self) -> wasmtime::Result<String> {
        now::call::Host::id(self)
    }

    fn remaining_ms(&mut self) -> wasmtime::Result<u64> {
        now::call::Host::remaining_ms(self)
    }

    fn cancelled(&mut self) -> wasmtime::Result<bool> {
        now::call::Host::cancelled(self)
    }

    fn progress(&mut self, fraction: Option<f64>, message: String) -> wasmtime::Result<()> {
        now::call::Host::progress(self, fraction, message)
    }

    fn emit(&mut self, part: old::Content) -> wasmtime::Result<bool> {
        now::call::Host::emit(self, types::content_in(part))
    }
}

impl log::Host for &mut CallState {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let level = match level {
            log::Level::Debug => now::log::Level::Debug,
            log::Level::Info => now::log::Level::Info,
            log::Level::Warn => now::log::Level::Warn,
            log::Level::Error => now::log::Level::Error,
        };
        now::log::Host::write(self, level, message)
    }
}

impl secrets::Host for &mut CallState {
    fn exists(&mut self, name: String) -> wasmtime::Result<bool> {
        now::secrets::Host::exists(self, name)
    }
}

impl search::Host for &mut CallState {
    async fn find(
        &mut self,
        scope: search::Scope,
        limit: u32,
    ) -> wasmtime::Result<Result<search::Entries, search::SearchError>> {
        let found = now::search::Host::find(self, scope_in(scope), limit).await?;
        let entry = |entry: now::search::Entry| search::Entry {
            path: entry.path,
            kind: match entry.kind {
                now::search::Kind::File => search::Kind::File,
                now::search::Kind::Directory => search::Kind::Directory,
                now::search::Kind::Symlink => search::Kind::Symlink,
                now::search::Kind::Other => search::Kind::Other,
            },
            size: entry.size,
            modified_ms: entry.modified_ms,
        };
        Ok(found.map_err(search_error).map(|found| search::Entries {
            items: found.items.into_iter().map(entry).collect(),
            ending: search_ending(&found.ending),
            skipped: skipped(found.skipped),
        }))
    }

    async fn grep(
        &mut self,
        scope: search::Scope,
        pattern: search::Pattern,
        limit: u32,
    ) -> wasmtime::Result<Result<search::Lines, search::SearchError>> {
        let (scope, pattern) = (scope_in(scope), pattern_in(pattern));
        let found = now::search::Host::grep(self, scope, pattern, limit).await?;
        let line = |line: now::search::Line| search::Line {
            path: line.path,
            number: line.number,
            text: line.text,
            is_match: line.is_match,
        };
        Ok(found.map_err(search_error).map(|found| search::Lines {
            items: found.items.into_iter().map(line).collect(),
            files_matched: found.files_matched,
            files_searched: found.files_searched,
            ending: search_ending(&found.ending),
            skipped: skipped(found.skipped),
        }))
    }

    async fn count(
        &mut self,
        scope: search::Scope,
        pattern: search::Pattern,
        limit: u32,
    ) -> wasmtime::Result<Result<search::Counts, search::SearchError>> {
        let (scope, pattern) = (scope_in(scope), pattern_in(pattern));
        let found = now::search::Host::count(self, scope, pattern, limit).await?;
        Ok(found.map_err(search_error).map(|found| search::Counts {
            items: found.items,
            files_searched: found.files_searched,
            ending: search_ending(&found.ending),
            skipped: skipped(found.skipped),
        }))
    }
}

fn scope_in(scope: search::Scope) -> now::search::Scope {
    now::search::Scope {
        root: scope.root,
        globs: scope.globs,
        ignore_rules: scope.ignore_rules,
        files_only: scope.files_only,
        max_depth: scope.max_depth,
        meta: None,
    }
}

fn pattern_in(pattern: search::Pattern) -> now::search::LinePattern {
    now::search::LinePattern {
        regex: pattern.regex,
        case_sensitive: pattern.case_sensitive,
        multiline: pattern.multiline,
        before: pattern.before,
        after: pattern.after,
        meta: None,
    }
}

fn skipped(skipped: now::search::Skipped) -> search::Skipped {
    search::Skipped {
        denied: skipped.denied,
        unreadable: skipped.unreadable,
        binary: skipped.binary,
    }
}

/// The ending by its name. An ending that 0.1 doesn't know leaves the answer incomplete, as a
/// deadline does.
fn search_ending(name: &str) -> search::Ending {
    match name {
        "complete" => search::Ending::Complete,
        "limit" => search::Ending::Limit,
        "cancelled" => search::Ending::Cancelled,
        _ => search::Ending::Deadline,
    }
}

fn search_error(error: Error) -> search::SearchError {
    match error.code.as_str() {
        "invalid" => search::SearchError::InvalidPattern(error.message),
        "not-found" => search::SearchError::NotFound(error.message),
        "denied" => search::SearchError::Denied(error.message),
        _ => search::SearchError::Failed(error.message),
    }
}

impl process::Host for &mut CallState {
    fn run(
        &mut self,
        command: process::Command,
        input: Vec<u8>,
        options: process::Options,
    ) -> wasmtime::Result<Result<(process::Finished, process::Output), process::ProcessError>> {
        let (command, options) = (command_in(command), options_in(options));
        let ended = now::process::Host::run(self, command, input, options)?;
        Ok(ended.map(|(ended, written)| (finished(ended), output(written))).map_err(process_error))
    }
}

impl process::HostChild for &mut CallState {
    fn start(
        &mut self,
        command: process::Command,
        options: process::Options,
    ) -> wasmtime::Result<Result<Resource<Child>, process::ProcessError>> {
        let (command, options) = (command_in(command), options_in(options));
        let started = now::process::HostChild::start(self, command, options)?;
        Ok(started.map_err(process_error))
    }

    fn read(
        &mut self,
        this: Resource<Child>,
        timeout_ms: Option<u64>,
    ) -> wasmtime::Result<process::Output> {
        now::process::HostChild::read(self, this, timeout_ms).map(output)
    }

    fn write(&mut self, this: Resource<Child>, bytes: Vec<u8>) -> wasmtime::Result<u64> {
        now::process::HostChild::write(self, this, bytes)
    }

    fn close_input(&mut self, this: Resource<Child>) -> wasmtime::Result<()> {
        now::process::HostChild::close_input(self, this)
    }

    fn wait(&mut self, this: Resource<Child>) -> wasmtime::Result<process::Finished> {
        now::process::HostChild::wait(self, this).map(finished)
    }

    fn kill(&mut self, this: Resource<Child>) -> wasmtime::Result<()> {
        now::process::HostChild::kill(self, this)
    }

    fn finished(&mut self, this: Resource<Child>) -> wasmtime::Result<Option<process::Finished>> {
        Ok(now::process::HostChild::finished(self, this)?.map(finished))
    }

    fn drop(&mut self, this: Resource<Child>) -> wasmtime::Result<()> {
        now::process::HostChild::drop(self, this)
    }
}

fn command_in(command: process::Command) -> now::process::Command {
    match command {
        process::Command::Program(words) => now::process::Command::Program(words),
        process::Command::Shell(line) => now::process::Command::Shell(line),
    }
}

fn options_in(options: process::Options) -> now::process::Options {
    now::process::Options {
        directory: options.directory,
        environment: options.environment,
        timeout_ms: options.timeout_ms,
        output_limit: options.output_limit,
        live: options.live,
        meta: None,
    }
}

/// How a process ended. An ending that 0.1 doesn't know is the host's doing, as a cancellation is.
fn finished(finished: now::process::Finished) -> process::Finished {
    let ending = match finished.ending.as_str() {
        "exited" => process::Ending::Exited,
        "timeout" => process::Ending::Timeout,
        "memory" => process::Ending::Memory,
        "processes" => process::Ending::Processes,
        "processor" => process::Ending::Processor,
        "output" => process::Ending::Output,
        _ => process::Ending::Cancelled,
    };
    process::Finished { exit_code: finished.exit_code, ending, notices: finished.notices }
}

fn output(output: now::process::ProcessOutput) -> process::Output {
    process::Output {
        stdout: output.stdout,
        stderr: output.stderr,
        stdout_truncated: output.stdout_truncated,
        stderr_truncated: output.stderr_truncated,
    }
}

fn process_error(error: Error) -> process::ProcessError {
    match error.code.as_str() {
        "denied" => process::ProcessError::Denied(error.message),
        "invalid" => process::ProcessError::Invalid(error.message),
        "unavailable" => process::ProcessError::Unavailable(error.message),
        _ => process::ProcessError::Failed(error.message),
    }
}
