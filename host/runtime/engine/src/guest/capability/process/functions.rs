//! `toolhold:host/process` for guests. Checks each request against the grants and the decision on
//! the call, and runs the process in its sandbox.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_component::Capability;
use toolhold_contract::text::{cut, neutral, neutral_line};
use toolhold_contract::{Failure, JobEnd};
use toolhold_policy::ConfigFile;
use toolhold_system::confine::{Bound, Sandbox};
use toolhold_system::process::{self, Command, Ending, StartError};
use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynPollable, subscribe};

use crate::guest::CallState;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::process as wit;
use crate::guest::capability::process::check::Refusal;
use crate::guest::capability::process::child::Child;
use crate::guest::capability::process::{FailedCommand, PluginProcesses, Processes};
use crate::guest::convert::host_error;

/// Most bytes of each output, and most bytes of a standard input.
const MAX_OUTPUT: usize = 1 << 20;
const MAX_INPUT: usize = 1 << 20;

/// Most bytes of the fields of later versions.
const MAX_META: usize = 4096;

/// Most processes of one call at a time.
const MAX_CHILDREN: usize = 8;

/// Bytes at the end of an output that the advisor gets.
const MAX_ADVISOR_OUTPUT: usize = 16 * 1024;

/// Environment variables of a command without the network. Without them, npm would try for minutes
/// to reach its registry and to look for a new version.
const WITHOUT_NETWORK: [(&str, &str); 3] = [
    ("npm_config_fetch_retries", "0"),
    ("npm_config_update_notifier", "false"),
    ("NO_UPDATE_NOTIFIER", "1"),
];

impl CallState {
    /// Checks a command, and starts it.
    fn start(&mut self, command: wit::Command, options: &wit::Options) -> Result<Child, Error> {
        let CheckedCommand { command, is_judged, policy } =
            self.check_process(command, options, self.may_judge())?;
        let call = &self.call;
        let Some(processes) = &self.capabilities.process else {
            return Err(host_error("failed", "the call is over"));
        };
        if Arc::strong_count(&processes.running) > MAX_CHILDREN {
            return Err(host_error(
                "limit",
                format!("the call has {MAX_CHILDREN} running processes, which is the limit"),
            ));
        }
        let running = Arc::clone(&processes.running);
        // The host doesn't see which files a program reads.
        processes.report.mark_incomplete();

        let limit = match options.output_limit {
            Some(limit) => usize::try_from(limit).unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT),
            None => MAX_OUTPUT,
        };
        let deadline = call.watch.deadline();
        let end = match options.timeout_ms.and_then(time_after) {
            Some(requested) => requested.min(deadline),
            None => deadline,
        };
        let live = if options.live { call.events.command() } else { None };
        let mut child =
            process::Child::start(&policy.places, &command, limit, end, &call.watch.cancel)
                .map_err(|error| not_started(&error, &policy))?;
        if is_judged {
            // The gates read only the command line, so the process gets no input.
            child.close_input();
        }
        Ok(Child::new(child, live, running))
    }

    /// Checks a command, and starts it as a job of the session. The job continues after the call.
    /// Returns the job's ID.
    fn start_job(
        &mut self,
        command: wit::Command,
        options: &wit::Options,
    ) -> Result<String, Error> {
        let CheckedCommand { mut command, policy, .. } =
            self.check_process(command, options, self.may_judge())?;
        // A job may end long after later commands, so it doesn't change the shell state for them.
        command.shell = None;
        let processes = self.capabilities.process.as_ref();
        let Some(jobs) = processes.and_then(|processes| processes.commands.jobs.as_ref()) else {
            return Err(host_error(
                "unavailable",
                "this call can't start a command in the background: either the configuration allows none (`running` in [tools.shell.jobs]), or this program ends with its call, as `toolhold call` does, and would end the command. `toolhold serve` can start such commands",
            ));
        };
        let time = options.timeout_ms.map(Duration::from_millis);
        let place =
            jobs.reserve(time).map_err(|error| host_error("unavailable", error.to_string()))?;
        command.output = Some(place.output());
        if !command.network {
            let network = policy.places.shared_network(jobs.network());
            command.shared_network = network.map_err(|error| not_started(&error, &policy))?;
        }
        let child =
            process::Child::start(&policy.places, &command, 0, place.end(), &place.cancel())
                .map_err(|error| not_started(&error, &policy))?;
        if let Some(processes) = processes {
            processes.report.mark_incomplete();
            processes.report.entries().job = Some(place.id().to_owned());
            if let Some(notice) = missing_notice(child.missing()) {
                processes.report.notice(&neutral(cut(&notice, 4096)));
            }
        }

        let id = place.id().to_owned();
        let process = child.pid().as_raw_nonzero().get();
        let run = Box::new(move || {
            let finished = child.go_on();
            JobEnd { exit_code: finished.code, ending: ending_name(finished.ending) }
        });
        place.run(process, run).map_err(|error| host_error("failed", error.to_string()))?;
        Ok(id)
    }

    /// Checks a command and its options, and remembers a refusal. `may_judge`: whether a command
    /// without a grant may be judged.
    pub(crate) fn check_process(
        &mut self,
        command: wit::Command,
        options: &wit::Options,
        may_judge: bool,
    ) -> Result<CheckedCommand, Error> {
        match self.judge_process(command, options, may_judge) {
            Ok(checked) => Ok(checked),
            // The call's journey remembers the refusal.
            Err(Refusal::Judged(failure)) => {
                let Failure { message, suggestion, .. } = *failure;
                let text = match suggestion {
                    Some(suggestion) => format!("{message} {suggestion}"),
                    None => message,
                };
                Err(host_error("denied", neutral(cut(&text, 4096)).into_owned()))
            }
            Err(Refusal::Denied(denial)) => {
                let text = denial.to_string();
                self.files.denials().remember(denial);
                Err(host_error("denied", text))
            }
            Err(Refusal::Invalid(reason)) => Err(host_error("invalid", reason)),
        }
    }

    /// Checks a command against the grants. A command that isn't granted is judged by the rules for
    /// commands of `bash`.
    fn judge_process(
        &self,
        command: wit::Command,
        options: &wit::Options,
        may_judge: bool,
    ) -> Result<CheckedCommand, Refusal> {
        let processes = self.processes()?;
        let (mut command, line) = processes.check_command(command, options, may_judge)?;
        if let (Some(line), Some(approver)) = (&line, &processes.commands.approver) {
            let judged = self
                .call
                .watch
                .paused_for(|| approver.judge(line))
                .map_err(|failure| Refusal::Judged(Box::new(failure)))?;
            command.network = judged.network;
            command.path_rules = judged.path_rules;
        }
        if !command.network && processes.policy.places.sandbox != Sandbox::Off {
            add_missing(&mut command.environment, &WITHOUT_NETWORK);
        }
        let policy = Arc::clone(&processes.policy);
        Ok(CheckedCommand { command, is_judged: line.is_some(), policy })
    }

    fn may_judge(&self) -> bool {
        self.capabilities.process.as_ref().is_some_and(|processes| processes.policy.judged)
    }

    fn processes(&self) -> Result<&Processes, Refusal> {
        let Some(processes) = &self.capabilities.process else {
            return Err(Refusal::denied(
                "start a program".to_owned(),
                "programs need a grant",
                "built in",
                format!("To allow it, {}", self.call.table.lines(Capability::Process.facts().line)),
            ));
        };
        if processes.read_only {
            return Err(Refusal::denied(
                "start a program".to_owned(),
                "read-only tools can't start programs",
                "the tool's annotations",
                "The tool's author has to drop `read-only`, and request write access if the plugin asks for `files`.".to_owned(),
            ));
        }
        Ok(processes)
    }

    /// Describes the end of a process, for the guest and for the audit log. `missing`: the parts of
    /// the sandbox that were unavailable. `left`: the processes that the command left running.
    fn describe_end(
        &self,
        finished: &process::CommandResult,
        missing: &[String],
        left: &[String],
        stdout: &[u8],
        stderr: &[u8],
    ) -> wit::Finished {
        let mut notices = Vec::new();
        if let Some(processes) = &self.capabilities.process {
            processes.report.entries().exit_code = finished.code.or(Some(-1));
            if finished.code != Some(0) {
                let stdout = tail(stdout);
                let stderr = tail(stderr);
                let path_rules = processes.path_rules.as_deref();
                let failed = FailedCommand {
                    code: finished.code,
                    stdout: &stdout,
                    stderr: &stderr,
                    network: processes.reaches_network(),
                    path_rules,
                };
                notices.extend(processes.policy.advisor.advice(&failed));
            }
            // Other plugins start programs that know nothing of jobs.
            if processes.policy.shell {
                notices.extend(left_notice(left, processes.commands.jobs.is_some()));
            }
        }
        notices.extend(missing_notice(missing));
        for notice in &mut notices {
            *notice = neutral(cut(notice, 4096)).into_owned();
        }
        if let Some(processes) = &self.capabilities.process {
            for notice in &notices {
                processes.report.notice(notice);
            }
        }
        let ending = ending_name(finished.ending).to_owned();
        wit::Finished { exit_code: finished.code, ending, notices, meta: None }
    }
}

/// A command that may be started.
pub(crate) struct CheckedCommand {
    pub(crate) command: Command,
    /// Whether the command isn't granted, and was judged instead.
    pub(crate) is_judged: bool,
    pub(crate) policy: Arc<PluginProcesses>,
}

/// Returns the time in `millis` milliseconds, or `None` if the clock can't represent it.
pub(crate) fn time_after(millis: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(millis))
}

/// Returns the name of an ending in the contract.
pub(crate) fn ending_name(ending: Ending) -> &'static str {
    match ending {
        Ending::Exited => "exited",
        Ending::Timeout => "timeout",
        Ending::Cancelled => "cancelled",
        Ending::Bound(Bound::Memory) => "memory",
        Ending::Bound(Bound::Processes) => "processes",
        Ending::Bound(Bound::Processor) => "processor",
        Ending::Output => "output",
    }
}

/// Returns the end of an output, for the advisor.
fn tail(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(MAX_ADVISOR_OUTPUT);
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}

/// Writes a notice about the parts of the sandbox that a process runs without.
fn missing_notice(missing: &[String]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let parts = missing.join("; ");
    Some(format!("This machine doesn't support all parts of the sandbox. Missing: {parts}"))
}

/// Writes a notice about processes that were running when their command ended.
fn left_notice(left: &[String], has_jobs: bool) -> Option<String> {
    if left.is_empty() {
        return None;
    }
    let names: Vec<String> = left.iter().map(|name| format!("`{}`", neutral_line(name))).collect();
    let remedy = if has_jobs {
        "To keep a process running, start its command with `background: true`."
    } else {
        "No process outlives its command."
    };
    Some(format!("Still running, and ended with the command: {}. {remedy}", names.join(", ")))
}

/// Makes the error for a process that wasn't started.
pub(crate) fn not_started(error: &StartError, policy: &PluginProcesses) -> Error {
    match error {
        StartError::Sandbox(reason) => {
            host_error("unavailable", unavailable(reason, &policy.table.place.file))
        }
        StartError::Places(error) => host_error("unavailable", error.to_string()),
        StartError::Moved(_) | StartError::Io(_) => host_error("failed", error.to_string()),
    }
}

/// Adds the variables that an environment doesn't have.
fn add_missing(environment: &mut Vec<(String, String)>, variables: &[(&str, &str)]) {
    for (name, value) in variables {
        if environment.iter().all(|(other, _)| other != name) {
            environment.push(((*name).to_owned(), (*value).to_owned()));
        }
    }
}

/// Checks whether the options ask for a job with `{"background": true}`. The field is among those
/// for later versions, so a host that doesn't know it runs the command in the foreground.
fn is_job(options: &wit::Options) -> bool {
    let Some(meta) = &options.meta else { return false };
    if meta.len() > MAX_META {
        return false;
    }
    let meta: serde_json::Value = serde_json::from_str(meta).unwrap_or_default();
    meta["background"] == true
}

/// Makes the result of a command that goes on as a job.
fn background_result(id: &str) -> (wit::Finished, wit::ProcessOutput) {
    let finished = wit::Finished {
        exit_code: None,
        ending: "background".to_owned(),
        notices: Vec::new(),
        meta: Some(serde_json::json!({ "job": id }).to_string()),
    };
    let output = wit::ProcessOutput {
        stdout: Vec::new(),
        stderr: Vec::new(),
        stdout_truncated: false,
        stderr_truncated: false,
    };
    (finished, output)
}

fn unavailable(reason: &str, file: &ConfigFile) -> String {
    format!(
        "the sandbox isn't available: {}. Run `toolhold doctor` to see what this machine supports, or set `sandbox = \"best-effort\"` in [tools.shell] of {file} to use only that",
        neutral_line(cut(reason, 1024))
    )
}

fn take_output(child: &mut process::Child) -> wit::ProcessOutput {
    let output = child.output();
    wit::ProcessOutput {
        stdout: output.stdout.take(),
        stderr: output.stderr.take(),
        stdout_truncated: output.stdout.truncated,
        stderr_truncated: output.stderr.truncated,
    }
}

impl wit::Host for &mut CallState {
    fn run(
        &mut self,
        command: wit::Command,
        input: Vec<u8>,
        options: wit::Options,
    ) -> wasmtime::Result<Result<(wit::Finished, wit::ProcessOutput), Error>> {
        if is_job(&options) {
            return Ok(self.start_job(command, &options).map(|id| background_result(&id)));
        }
        if input.len() > MAX_INPUT {
            return Ok(Err(host_error(
                "invalid",
                format!("the standard input is {} bytes; the limit is {MAX_INPUT}", input.len()),
            )));
        }
        let mut started = match self.start(command, &options) {
            Ok(started) => started,
            Err(error) => return Ok(Err(error)),
        };

        let Child { child, live, .. } = &mut started;
        child.write(&input, None, &mut |stream, bytes| live.add(stream, bytes));
        child.close_input();
        let result = child.wait_for_end(&mut |stream, bytes| live.add(stream, bytes)).clone();
        live.end();
        let output = take_output(child);
        let finished = self.describe_end(
            &result,
            child.missing(),
            child.left(),
            &output.stdout,
            &output.stderr,
        );
        Ok(Ok((finished, output)))
    }
}

impl wit::HostChild for &mut CallState {
    fn start(
        &mut self,
        command: wit::Command,
        options: wit::Options,
    ) -> wasmtime::Result<Result<Resource<Child>, Error>> {
        match CallState::start(self, command, &options) {
            Ok(child) => Ok(Ok(self.table().push(child)?)),
            Err(error) => Ok(Err(error)),
        }
    }

    fn read(
        &mut self,
        handle: Resource<Child>,
        timeout_ms: Option<u64>,
    ) -> wasmtime::Result<wit::ProcessOutput> {
        let Child { child, live, .. } = self.table().get_mut(&handle)?;
        let until = timeout_ms.and_then(time_after);
        child.wait_for_output(until, &mut |stream, bytes| live.add(stream, bytes));
        if child.finished().is_some() {
            live.end();
        }
        Ok(take_output(child))
    }

    fn write(&mut self, handle: Resource<Child>, bytes: Vec<u8>) -> wasmtime::Result<u64> {
        let Child { child, live, .. } = self.table().get_mut(&handle)?;
        let written = child.write(&bytes, None, &mut |stream, bytes| live.add(stream, bytes));
        Ok(u64::try_from(written).unwrap_or_default())
    }

    fn close_input(&mut self, handle: Resource<Child>) -> wasmtime::Result<()> {
        self.table().get_mut(&handle)?.child.close_input();
        Ok(())
    }

    fn wait(&mut self, handle: Resource<Child>) -> wasmtime::Result<wit::Finished> {
        let Child { child, live, .. } = self.table().get_mut(&handle)?;
        child.wait_for_end(&mut |stream, bytes| live.add(stream, bytes));
        live.end();
        let finished = self.finished_child(&handle)?;
        Ok(finished.unwrap_or_else(|| wit::Finished {
            exit_code: None,
            ending: "cancelled".to_owned(),
            notices: Vec::new(),
            meta: None,
        }))
    }

    fn kill(&mut self, handle: Resource<Child>) -> wasmtime::Result<()> {
        self.table().get_mut(&handle)?.child.end(Ending::Cancelled);
        Ok(())
    }

    fn subscribe(&mut self, handle: Resource<Child>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(self.table(), handle)
    }

    fn finished(&mut self, handle: Resource<Child>) -> wasmtime::Result<Option<wit::Finished>> {
        self.finished_child(&handle)
    }

    fn drop(&mut self, handle: Resource<Child>) -> wasmtime::Result<()> {
        self.table().delete(handle)?;
        Ok(())
    }
}

impl CallState {
    /// Describes the end of a child. Returns `None` if the child still runs. The guest already has
    /// the output, so the advisor gets none.
    fn finished_child(
        &mut self,
        handle: &Resource<Child>,
    ) -> wasmtime::Result<Option<wit::Finished>> {
        let child = &self.table().get(handle)?.child;
        let Some(result) = child.finished().cloned() else { return Ok(None) };
        let missing = child.missing().to_vec();
        let left = child.left().to_vec();
        Ok(Some(self.describe_end(&result, &missing, &left, b"", b"")))
    }
}
