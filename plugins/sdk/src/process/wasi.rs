//! Runs programs by `toolhold:host/process`.

use std::time::Duration;

use wasip2::clocks::monotonic_clock;
use wasip2::io::poll::{Pollable, poll};

use super::{Command, CommandKind, Ending, Finished, Output, ProcessError};
use crate::contract::bindings::toolhold::host::process as wit;
use crate::contract::bindings::toolhold::host::types::Error;

pub(super) fn run(mut command: Command) -> Result<Finished, ProcessError> {
    let input = std::mem::take(&mut command.input);
    let (command, options) = command_out(command);
    let (ended, written) = wit::run(&command, &input, &options).map_err(error)?;
    Ok(finished(ended, output(written)))
}

pub(super) fn background(command: Command) -> Result<String, ProcessError> {
    let (command, options) = command_out(command);
    let (ended, _) = wit::run(&command, &[], &options).map_err(error)?;
    let meta = ended.meta.as_deref().and_then(|meta| serde_json::from_str(meta).ok());
    let job = meta.as_ref().and_then(|meta: &serde_json::Value| meta["job"].as_str());
    job.map(str::to_owned).ok_or_else(|| {
        ProcessError::Failed("the host ran the command in the foreground".to_owned())
    })
}

#[derive(Debug)]
pub(super) struct Child(wit::Child);

impl Child {
    pub(super) fn start(command: Command) -> Result<Self, ProcessError> {
        let (command, options) = command_out(command);
        wit::Child::start(&command, &options).map(Self).map_err(error)
    }

    pub(super) fn read(&mut self, timeout: Option<Duration>) -> Output {
        output(self.0.read(timeout.map(millis)))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> u64 {
        self.0.write(bytes)
    }

    pub(super) fn close_input(&mut self) {
        self.0.close_input();
    }

    pub(super) fn wait(&mut self) -> Finished {
        let ended = self.0.wait();
        finished(ended, output(self.0.read(Some(0))))
    }

    pub(super) fn kill(&mut self) {
        self.0.kill();
    }

    pub(super) fn is_finished(&mut self) -> bool {
        self.0.finished().is_some()
    }

    pub(super) fn subscribe(&self) -> Pollable {
        self.0.subscribe()
    }
}

pub(super) fn wait_any<'c>(
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

pub(crate) fn error(error: Error) -> ProcessError {
    match error.code.as_str() {
        "denied" => ProcessError::Denied(error.message),
        "invalid" => ProcessError::Invalid(error.message),
        "unavailable" => ProcessError::Unavailable(error.message),
        _ => ProcessError::Failed(error.message),
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
