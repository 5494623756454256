//! `toolhold:host/process`: starts processes in their sandbox.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use toolhold_component::Capability;
use toolhold_contract::text::{cut, neutral, neutral_line};
use toolhold_contract::{Failure, JobEnd};
use toolhold_net::{HostAccess, HostGate, HostQuestions, HostRelay};
use toolhold_policy::ConfigFile;
use toolhold_system::confine::{Bound, Sandbox};
use toolhold_system::process::{self, Command, Ending, NetworkSockets, StartError};
use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynPollable, subscribe};

use crate::guest::CallState;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::process as wit;
use crate::guest::capability::process::check::CheckError;
use crate::guest::capability::process::child::Child;
use crate::guest::capability::process::{FailedCommand, PluginProcesses, Processes};
use crate::guest::convert::host_error;

/// Most bytes of an output and of a standard input. Longer outputs are cut.
const MAX_OUTPUT: usize = 1 << 20;
const MAX_INPUT: usize = 1 << 20;

/// Longest `meta` of the options in bytes. A longer `meta` is ignored.
const MAX_META: usize = 4096;

/// Most bytes of a denial or a notice. Longer messages are cut.
const MAX_MESSAGE: usize = 4096;

/// Most processes of a call at a time. Further processes are refused.
const MAX_CHILDREN: usize = 8;

/// Bytes at the end of an output that the advisor gets.
const MAX_ADVISOR_OUTPUT: usize = 16 * 1024;

/// Variables of a command without the network. They stop npm from trying for minutes to reach its
/// registry and to look for a new version.
const WITHOUT_NETWORK: [(&str, &str); 3] = [
    ("npm_config_fetch_retries", "0"),
    ("npm_config_update_notifier", "false"),
    ("NO_UPDATE_NOTIFIER", "1"),
];

impl CallState {
    fn start(&mut self, command: wit::Command, options: &wit::Options) -> Result<Child, Error> {
        let CheckedCommand { mut command, is_judged, policy } =
            self.check_process(command, options, self.may_judge())?;
        let is_job = false;
        self.relay_hosts(&mut command, &policy, is_job)?;
        let call = &self.call;
        let Some(processes) = &self.capabilities.process else {
            return Err(host_error("failed", "the call has ended"));
        };
        // Each running process holds a clone of `running`, and `processes` holds one more clone.
        let running_count = Arc::strong_count(&processes.running) - 1;
        if running_count >= MAX_CHILDREN {
            return Err(host_error(
                "limit",
                format!("the call has {MAX_CHILDREN} running processes, which is the limit"),
            ));
        }
        let running = Arc::clone(&processes.running);
        // The report can't name the files that a program reads.
        processes.report.mark_incomplete();

        let output_limit = match options.output_limit {
            Some(requested) => MAX_OUTPUT.min(requested as usize),
            None => MAX_OUTPUT,
        };
        let deadline = call.watch.deadline();
        let end = match options.timeout_ms.and_then(time_after) {
            Some(requested) => requested.min(deadline),
            None => deadline,
        };
        let live = if options.live { call.events.command() } else { None };

        let mut child =
            process::Child::start(&policy.places, &command, output_limit, end, &call.watch.cancel)
                .map_err(|error| not_started(&error, &policy))?;
        if is_judged {
            // Rules judge only the command line and not the input, so a judged process gets no
            // input.
            child.close_input();
        }
        Ok(Child::new(child, live, running))
    }

    /// Starts a command as a job, which continues after the call. Returns the job's ID.
    fn start_job(
        &mut self,
        command: wit::Command,
        options: &wit::Options,
    ) -> Result<String, Error> {
        let CheckedCommand { mut command, policy, .. } =
            self.check_process(command, options, self.may_judge())?;
        // A job may end after later commands, so the job must not change the shell's state for
        // them.
        command.shell = None;
        let processes = self.capabilities.process.as_ref();
        let Some(jobs) = processes.and_then(|processes| processes.commands.jobs.as_ref()) else {
            return Err(host_error(
                "unavailable",
                "this call can't start a command in the background. Either `running` in \
                 [tools.shell.jobs] is 0, or this program ends after the call, as `toolhold call` \
                 does. `toolhold serve` can start background commands",
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
        let is_job = true;
        self.relay_hosts(&mut command, &policy, is_job)?;
        let child =
            process::Child::start(&policy.places, &command, 0, place.end(), &place.cancel())
                .map_err(|error| not_started(&error, &policy))?;
        if let Some(processes) = processes {
            processes.report.mark_incomplete();
            processes.report.entries().job = Some(place.id().to_owned());
            if let Some(notice) = missing_notice(child.missing()) {
                processes.report.notice(&neutral(cut(&notice, MAX_MESSAGE)));
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

    /// Lets a command without the network reach the hosts that are granted to it, and those that a
    /// person approves. `is_job` means that the command continues after the call, so that nobody is
    /// asked.
    fn relay_hosts(
        &self,
        command: &mut Command,
        policy: &PluginProcesses,
        is_job: bool,
    ) -> Result<(), Error> {
        let (Some(hosts), Some(processes)) = (&policy.hosts, &self.capabilities.process) else {
            return Ok(());
        };
        let questions = if is_job { None } else { self.host_questions() };
        let reaches_no_host = hosts.is_empty() && questions.is_none();
        if command.network || reaches_no_host {
            return Ok(());
        }
        let session = match &processes.commands.jobs {
            Some(jobs) => jobs.network(),
            None => &processes.network,
        };
        let (network, relay) = match policy.places.relay(session, start_relay) {
            Ok(Some(started)) => started,
            Ok(None) => return Ok(()),
            // If no host is granted, most commands need no relay, so the command runs without one.
            Err(_) if hosts.is_empty() => return Ok(()),
            Err(error) => return Err(not_started(&error, policy)),
        };
        give_secrets(command, hosts, network.is_some())?;
        let report = if is_job { None } else { Some(Arc::clone(&processes.report)) };
        let mut gate = HostGate::new(relay, Arc::clone(hosts), report);
        if let Some(questions) = questions {
            gate = gate.with_questions(questions);
        }
        command.connections = Some(Arc::new(gate));
        command.shared_network = network;
        Ok(())
    }

    /// Returns the questions about hosts that no entry grants. Returns `None` if nobody can be
    /// asked about hosts.
    fn host_questions(&self) -> Option<HostQuestions> {
        let processes = self.capabilities.process.as_ref()?;
        let approver = processes.commands.host_approver.as_ref()?;
        let waits = Arc::clone(&self.call.watch.waits);
        Some(HostQuestions::new(Arc::clone(approver), waits))
    }

    /// Checks a command, and remembers a denial. `may_judge` tells whether a command without a
    /// grant may be judged.
    pub(crate) fn check_process(
        &mut self,
        command: wit::Command,
        options: &wit::Options,
        may_judge: bool,
    ) -> Result<CheckedCommand, Error> {
        match self.judge_process(command, options, may_judge) {
            Ok(checked) => Ok(checked),
            // The approver has already recorded this denial.
            Err(CheckError::Judged(failure)) => {
                let Failure { message, suggestion, .. } = *failure;
                let text = match suggestion {
                    Some(suggestion) => format!("{message} {suggestion}"),
                    None => message,
                };
                Err(host_error("denied", neutral(cut(&text, MAX_MESSAGE)).into_owned()))
            }
            Err(CheckError::Denied(denial)) => {
                let text = denial.to_string();
                self.files.denials().remember(denial);
                Err(host_error("denied", text))
            }
            Err(CheckError::Invalid(reason)) => Err(host_error("invalid", reason)),
        }
    }

    /// Checks a command against the grants. If no grant names the program and `may_judge` is true,
    /// the rules for commands of `bash` judge the command line.
    fn judge_process(
        &self,
        command: wit::Command,
        options: &wit::Options,
        may_judge: bool,
    ) -> Result<CheckedCommand, CheckError> {
        let processes = self.processes()?;
        let (mut command, line_to_judge) = processes.check_command(command, options, may_judge)?;
        if let (Some(line), Some(approver)) = (&line_to_judge, &processes.commands.approver) {
            // The call's time doesn't run while the user decides.
            match self.call.watch.paused_for(|| approver.judge(line)) {
                Ok(judged) => {
                    command.network = judged.network;
                    command.path_rules = judged.path_rules;
                }
                Err(failure) => return Err(CheckError::Judged(Box::new(failure))),
            }
        }
        let is_sandboxed = processes.policy.places.sandbox != Sandbox::Off;
        let has_hosts = processes.policy.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty());
        let reaches_hosts = has_hosts || processes.commands.host_approver.is_some();
        if is_sandboxed && !command.network && !reaches_hosts {
            // These variables tell programs not to wait for the network.
            add_missing(&mut command.environment, &WITHOUT_NETWORK);
        }
        let policy = Arc::clone(&processes.policy);
        Ok(CheckedCommand { command, is_judged: line_to_judge.is_some(), policy })
    }

    fn may_judge(&self) -> bool {
        self.capabilities.process.as_ref().is_some_and(|processes| processes.policy.judged)
    }

    fn processes(&self) -> Result<&Processes, CheckError> {
        let Some(processes) = &self.capabilities.process else {
            return Err(CheckError::denied(
                "start a program".to_owned(),
                "the plugin has no grant for programs",
                "built in",
                format!("To allow it, {}", self.call.table.lines(Capability::Process.facts().line)),
            ));
        };
        if processes.read_only {
            return Err(CheckError::denied(
                "start a program".to_owned(),
                "read-only tools can't start programs",
                "the tool's annotations",
                "The tool's author has to remove `read-only`, and request write access if the \
                 plugin asks for `files`."
                    .to_owned(),
            ));
        }
        Ok(processes)
    }

    /// Describes the end of a process. `missing` are unavailable parts of the sandbox. `leftovers`
    /// are processes that still ran when the command ended.
    fn describe_end(
        &self,
        finished: &process::CommandResult,
        missing: &[String],
        leftovers: &[String],
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
            // The notice may advise an argument of `bash`, so it is only for plugins with a shell.
            if processes.policy.shell {
                notices.extend(leftover_notice(leftovers, processes.commands.jobs.is_some()));
            }
        }
        notices.extend(missing_notice(missing));
        for notice in &mut notices {
            *notice = neutral(cut(notice, MAX_MESSAGE)).into_owned();
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

/// Starts the relay of a session's commands. `sockets` are in the network of the session, if there
/// is one.
fn start_relay(sockets: Option<NetworkSockets>) -> io::Result<HostRelay> {
    let runtime = Handle::current();
    match sockets {
        Some(NetworkSockets { v4, v6, dns_udp, dns_tcp }) => {
            HostRelay::start(v4, v6, dns_udp, dns_tcp, &runtime)
        }
        None => Ok(HostRelay::without_network(&runtime)),
    }
}

pub(crate) struct CheckedCommand {
    pub(crate) command: Command,
    /// Whether the command has no grant, and was judged.
    pub(crate) is_judged: bool,
    pub(crate) policy: Arc<PluginProcesses>,
}

/// Returns the time in `millis` milliseconds, or `None` if the clock can't represent this time.
pub(crate) fn time_after(millis: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(millis))
}

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

fn tail(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(MAX_ADVISOR_OUTPUT);
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}

fn missing_notice(missing: &[String]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let parts = missing.join("; ");
    Some(format!("This machine doesn't support all parts of the sandbox. Missing: {parts}"))
}

/// Makes a notice about the processes that still ran when their command ended. `has_jobs` means
/// that commands can run in the background.
fn leftover_notice(leftovers: &[String], has_jobs: bool) -> Option<String> {
    if leftovers.is_empty() {
        return None;
    }
    let names: Vec<String> =
        leftovers.iter().map(|name| format!("`{}`", neutral_line(name))).collect();
    let remedy = if has_jobs {
        "To keep a process running, start its command with `background: true`."
    } else {
        "Processes end with their command."
    };
    Some(format!(
        "These processes still ran and were ended together with the command: {}. {remedy}",
        names.join(", ")
    ))
}

/// Makes the guest's error for a process that didn't start.
pub(crate) fn not_started(error: &StartError, policy: &PluginProcesses) -> Error {
    match error {
        StartError::Sandbox(reason) => {
            host_error("unavailable", unavailable(reason, &policy.table.place.file))
        }
        StartError::Places(error) => host_error("unavailable", error.to_string()),
        StartError::Moved(_) | StartError::Io(_) => host_error("failed", error.to_string()),
    }
}

/// Gives a command the placeholders of secrets. With a network of its own, it also trusts the
/// certificate with which their connections are read.
fn give_secrets(
    command: &mut Command,
    hosts: &HostAccess,
    has_own_network: bool,
) -> Result<(), Error> {
    let Some(certificate) = hosts.authority().map_err(no_secrets)? else { return Ok(()) };
    if has_own_network {
        command.trust(certificate);
    }
    for (name, value) in hosts.variables().map_err(no_secrets)? {
        // This replaces a value from the user's environment, which would be the secret itself.
        command.set_variable(&name, &value);
    }
    Ok(())
}

fn no_secrets(error: toolhold_net::Error) -> Error {
    host_error("failed", format!("the command can't get its secrets: {error}"))
}

/// Adds the variables that `environment` lacks.
fn add_missing(environment: &mut Vec<(String, String)>, variables: &[(&str, &str)]) {
    for (name, value) in variables {
        let is_set = environment.iter().any(|(other, _)| other == name);
        if !is_set {
            environment.push(((*name).to_owned(), (*value).to_owned()));
        }
    }
}

/// Checks whether the options' `meta` contains `{"background": true}`. A host that doesn't know
/// this key runs the command in the foreground.
fn is_job(options: &wit::Options) -> bool {
    let Some(meta) = &options.meta else { return false };
    if meta.len() > MAX_META {
        return false;
    }
    match serde_json::from_str::<serde_json::Value>(meta) {
        Ok(meta) => meta["background"] == true,
        Err(_) => false,
    }
}

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
        "the sandbox isn't available: {}. Run `toolhold doctor` to see the missing parts, or set \
         `sandbox = \"best-effort\"` in [tools.shell] of {file} to use only the available parts",
        neutral_line(cut(reason, 1024))
    )
}

/// Takes the output that the guest hasn't read yet.
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
        let mut running_child = match self.start(command, &options) {
            Ok(running_child) => running_child,
            Err(error) => return Ok(Err(error)),
        };

        let Child { child, live, .. } = &mut running_child;
        // Writing needs no time limit, because the process has its own deadline.
        let write_until = None;
        child.write(&input, write_until, &mut |stream, bytes| live.add(stream, bytes));
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
        // Writing needs no time limit, because the process has its own deadline.
        let write_until = None;
        let written =
            child.write(&bytes, write_until, &mut |stream, bytes| live.add(stream, bytes));
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
        // The fallback is never used, because `wait_for_end` always stores a result.
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
    /// Describes the end of a child, or returns `None` if the child still runs. The guest has
    /// already read the output, so the advisor gets no output.
    fn finished_child(
        &mut self,
        handle: &Resource<Child>,
    ) -> wasmtime::Result<Option<wit::Finished>> {
        let child = &self.table().get(handle)?.child;
        let Some(result) = child.finished().cloned() else { return Ok(None) };
        let missing = child.missing().to_vec();
        let leftovers = child.left().to_vec();
        let no_output = b"";
        Ok(Some(self.describe_end(&result, &missing, &leftovers, no_output, no_output)))
    }
}
