//! `toolhold:host/process` for guests. Checks each request against the grants and the decision on
//! the call, and runs the process in its sandbox.

use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Most bytes that are kept of each output, and most bytes of a standard input.
const MAX_OUTPUT: usize = 1 << 20;
const MAX_INPUT: usize = 1 << 20;

/// Most bytes of the fields of later versions.
const MAX_META: usize = 4096;

/// Most processes of one call at a time.
const MAX_CHILDREN: usize = 8;

/// Bytes at the end of an output that the advisor gets.
const MAX_ADVISOR_OUTPUT: usize = 16 * 1024;

/// Variables of a command without the network: npm would try for minutes to reach its registry, and
/// look for a version of itself.
const WITHOUT_NETWORK: [(&str, &str); 3] = [
    ("npm_config_fetch_retries", "0"),
    ("npm_config_update_notifier", "false"),
    ("NO_UPDATE_NOTIFIER", "1"),
];

impl CallState {
    /// Checks a command, and starts it.
    fn start(&mut self, command: wit::Command, options: &wit::Options) -> Result<Child, Error> {
        let (command, judged, policy) = self.checked(command, options, self.may_judge())?;
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
        let limit = options.output_limit.map_or(MAX_OUTPUT, |limit| {
            usize::try_from(limit).unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT)
        });
        let requested = options
            .timeout_ms
            .and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
        let end = requested.unwrap_or(call.watch.deadline()).min(call.watch.deadline());
        let live = options.live.then(|| call.events.command()).flatten();
        let mut child =
            process::Child::start(&policy.places, &command, limit, end, &call.watch.cancel)
                .map_err(|error| not_started(&error, &policy))?;
        if judged {
            // The gates read only its command line.
            child.close_input();
        }
        Ok(Child::new(child, live, running))
    }

    /// Checks a command, and starts it as a job of the session, which goes on after the call.
    /// Returns the job's ID.
    fn start_job(
        &mut self,
        command: wit::Command,
        options: &wit::Options,
    ) -> Result<String, Error> {
        let (mut command, _, policy) = self.checked(command, options, self.may_judge())?;
        // A job may end long after other commands, so it leaves nothing for them.
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
            missing_notice(child.missing())
                .iter()
                .for_each(|notice| processes.report.notice(&neutral(cut(notice, 4096))));
        }
        let id = place.id().to_owned();
        let process = child.pid().as_raw_nonzero().get();
        let run = Box::new(move || {
            let finished = child.go_on();
            JobEnd { exit_code: finished.code, ending: ending(finished.ending) }
        });
        place.run(process, run).map_err(|error| host_error("failed", error.to_string()))?;
        Ok(id)
    }

    /// Checks a command and its options. A refusal is remembered. Returns also whether the command
    /// was judged. `may_judge`: whether one that isn't granted may be.
    pub(crate) fn checked(
        &mut self,
        command: wit::Command,
        options: &wit::Options,
        may_judge: bool,
    ) -> Result<(Command, bool, Arc<PluginProcesses>), Error> {
        let checked = self.processes().and_then(|processes| {
            let (mut command, line) = processes.command(command, options, may_judge)?;
            if let (Some(line), Some(approver)) = (&line, &processes.commands.approver) {
                let judged = self
                    .call
                    .watch
                    .paused_for(|| approver.judge(line))
                    .map_err(|failure| Refusal::Judged(Box::new(failure)))?;
                (command.network, command.path_rules) = (judged.network, judged.path_rules);
            }
            if !command.network && processes.policy.places.sandbox != Sandbox::Off {
                add_missing(&mut command.environment, &WITHOUT_NETWORK);
            }
            Ok((command, line.is_some(), Arc::clone(&processes.policy)))
        });
        match checked {
            Ok(checked) => Ok(checked),
            // The call's journey remembers the refusal.
            Err(Refusal::Judged(failure)) => {
                let Failure { message, suggestion, .. } = *failure;
                let suggestion = suggestion.map(|text| format!(" {text}")).unwrap_or_default();
                let text = message + &suggestion;
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

    fn may_judge(&self) -> bool {
        self.capabilities.process.as_ref().is_some_and(|processes| processes.policy.judged)
    }

    fn processes(&self) -> Result<&Processes, Refusal> {
        let Some(processes) = &self.capabilities.process else {
            return Err(Refusal::denied(
                "start a program".to_owned(),
                "programs need a grant",
                "built in",
                format!(
                    "To allow it, set `programs` in {}; the plugin's manifest has to ask for `process`.",
                    self.call.table
                ),
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

    /// Describes the end of a process, for the guest and for the audit. `missing`: the parts of the
    /// sandbox that it ran without; `left`: the processes that it left behind.
    fn describe_end(
        &self,
        finished: &process::CommandResult,
        [missing, left]: [&[String]; 2],
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
                let network = processes.reaches_network();
                let failed = FailedCommand {
                    code: finished.code,
                    stdout: &stdout,
                    stderr: &stderr,
                    network,
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
        let ending = ending(finished.ending);
        let notices: Vec<String> =
            notices.iter().map(|notice| neutral(cut(notice, 4096)).into_owned()).collect();
        if let Some(processes) = &self.capabilities.process {
            notices.iter().for_each(|notice| processes.report.notice(notice));
        }
        wit::Finished { exit_code: finished.code, ending: ending.to_owned(), notices, meta: None }
    }
}

pub(crate) fn ending(ending: Ending) -> &'static str {
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

/// The end of an output, for the advisor.
fn tail(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(MAX_ADVISOR_OUTPUT);
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}

/// Notice about the parts of the sandbox that a process runs without.
fn missing_notice(missing: &[String]) -> Option<String> {
    (!missing.is_empty()).then(|| {
        let parts = missing.join("; ");
        format!("This machine doesn't support all parts of the sandbox. Missing: {parts}")
    })
}

/// Notice about processes that were running when their command ended.
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

/// The error for a process that wasn't started.
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
        if environment.iter().all(|(known, _)| known != name) {
            environment.push(((*name).to_owned(), (*value).to_owned()));
        }
    }
}

/// Whether the options ask for a job: `{"background": true}` among the fields of later versions. A
/// host that doesn't know it runs the command in the foreground.
fn is_job(options: &wit::Options) -> bool {
    options
        .meta
        .as_deref()
        .filter(|meta| meta.len() <= MAX_META)
        .and_then(|meta| serde_json::from_str::<serde_json::Value>(meta).ok())
        .is_some_and(|meta| meta["background"] == true)
}

fn unavailable(reason: &str, file: &ConfigFile) -> String {
    format!(
        "the sandbox isn't available: {}. Run `toolhold doctor` to see what this machine supports, or set `sandbox = \"best-effort\"` in [tools.shell] of {file} to use only that",
        neutral_line(cut(reason, 1024))
    )
}

fn output(child: &mut process::Child) -> wit::ProcessOutput {
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
            return Ok(self.start_job(command, &options).map(|id| {
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
            }));
        }
        let started = if input.len() > MAX_INPUT {
            Err(host_error(
                "invalid",
                format!("the standard input is {} bytes; the limit is {MAX_INPUT}", input.len()),
            ))
        } else {
            self.start(command, &options)
        };
        let mut started = match started {
            Ok(started) => started,
            Err(error) => return Ok(Err(error)),
        };
        let Child { child, live, .. } = &mut started;
        child.write(&input, None, &mut |stream, bytes| live.add(stream, bytes));
        child.close_input();
        let finished = child.wait_for_end(&mut |stream, bytes| live.add(stream, bytes)).clone();
        live.end();
        let output = output(child);
        let about = [child.missing(), child.left()];
        let finished = self.describe_end(&finished, about, &output.stdout, &output.stderr);
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
        this: Resource<Child>,
        timeout_ms: Option<u64>,
    ) -> wasmtime::Result<wit::ProcessOutput> {
        let Child { child, live, .. } = self.table().get_mut(&this)?;
        let until =
            timeout_ms.and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
        child.wait_for_output(until, &mut |stream, bytes| live.add(stream, bytes));
        if child.finished().is_some() {
            live.end();
        }
        Ok(output(child))
    }

    fn write(&mut self, this: Resource<Child>, bytes: Vec<u8>) -> wasmtime::Result<u64> {
        let Child { child, live, .. } = self.table().get_mut(&this)?;
        let taken = child.write(&bytes, None, &mut |stream, bytes| live.add(stream, bytes));
        Ok(u64::try_from(taken).unwrap_or_default())
    }

    fn close_input(&mut self, this: Resource<Child>) -> wasmtime::Result<()> {
        self.table().get_mut(&this)?.child.close_input();
        Ok(())
    }

    fn wait(&mut self, this: Resource<Child>) -> wasmtime::Result<wit::Finished> {
        let Child { child, live, .. } = self.table().get_mut(&this)?;
        child.wait_for_end(&mut |stream, bytes| live.add(stream, bytes));
        live.end();
        self.finished_child(&this).map(|finished| {
            finished.unwrap_or(wit::Finished {
                exit_code: None,
                ending: "cancelled".to_owned(),
                notices: Vec::new(),
                meta: None,
            })
        })
    }

    fn kill(&mut self, this: Resource<Child>) -> wasmtime::Result<()> {
        self.table().get_mut(&this)?.child.end(Ending::Cancelled);
        Ok(())
    }

    fn subscribe(&mut self, this: Resource<Child>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(self.table(), this)
    }

    fn finished(&mut self, this: Resource<Child>) -> wasmtime::Result<Option<wit::Finished>> {
        self.finished_child(&this)
    }

    fn drop(&mut self, this: Resource<Child>) -> wasmtime::Result<()> {
        self.table().delete(this)?;
        Ok(())
    }
}

impl CallState {
    /// Describes the end of a child. `None` if it runs. The guest has taken its output, so the
    /// advisor gets none.
    fn finished_child(
        &mut self,
        this: &Resource<Child>,
    ) -> wasmtime::Result<Option<wit::Finished>> {
        let child = &self.table().get(this)?.child;
        let about = [child.missing().to_vec(), child.left().to_vec()];
        let Some(finished) = child.finished().cloned() else { return Ok(None) };
        let about = about.each_ref().map(Vec::as_slice);
        Ok(Some(self.describe_end(&finished, about, b"", b"")))
    }
}
