//! `berth:host/process` for guests: what is asked for is checked against what was granted and
//! decided, and runs in its sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_contract::text::{cut, neutral, neutral_line};
use berth_contract::{Access, Content, Denial};
use berth_policy::files::Kind;
use berth_redaction::{self as redaction, Keys};
use berth_system::confine::Bound;
use berth_system::process::{self, Command, Ending, StartError};
use wasmtime::component::Resource;

use crate::guest::bindings::berth::host::process as wit;
use crate::guest::state::{CallState, Processes};
use crate::policy::FailedCommand;

/// Bytes that are kept of each output, and that are read from a guest for a standard input.
const MAX_OUTPUT: usize = 1 << 20;
const MAX_INPUT: usize = 1 << 20;

/// Words of a command, and bytes of all of them: what the kernel takes is not much more.
const MAX_WORDS: usize = 4096;
const MAX_COMMAND: usize = 128 * 1024;

/// Variables that a guest may add, and bytes of one.
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE: usize = 32 * 1024;

/// Processes that one call may have at a time.
const MAX_CHILDREN: usize = 8;

/// Bytes of an output's end that are looked at for what could help.
const MAX_LOOKED_AT: usize = 16 * 1024;

/// Bytes without an end of a line that are waited for.
const MAX_LINE: usize = 64 * 1024;

/// How often a caller is told of output that comes.
const TELL: Duration = Duration::from_millis(100);

/// Variables that make a program load or run something else.
const STEERING: [&str; 22] = [
    "BASH_ENV",
    "CDPATH",
    "ENV",
    "GCONV_PATH",
    "GIT_ASKPASS",
    "GIT_CONFIG",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "IFS",
    "NODE_OPTIONS",
    "PAGER",
    "PATH",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "SHELLOPTS",
    "SSH_ASKPASS",
];
const STEERING_PREFIXES: [&str; 4] = ["LD_", "DYLD_", "BASH_FUNC_", "GIT_CONFIG_"];

/// A process, as a guest holds it.
#[expect(unreachable_pub, reason = "the bindings name it in a public place")]
pub struct Child {
    child: process::Child,
    teller: Teller,
    /// Counts the processes of the call.
    _running: Arc<()>,
}

/// Shows output as it comes, where the guest wants that.
struct Teller {
    events: Option<Arc<dyn berth_contract::Events>>,
    waiting: Vec<u8>,
    told: Instant,
}

impl Teller {
    fn new(events: Option<Arc<dyn berth_contract::Events>>) -> Self {
        Self { events, waiting: Vec::new(), told: Instant::now() }
    }

    /// Notes what was written, if anything was, and tells it where it is time.
    fn see(&mut self, bytes: &[u8]) {
        if self.events.is_none() || bytes.is_empty() && self.waiting.is_empty() {
            return;
        }
        self.waiting.extend_from_slice(bytes);
        if self.told.elapsed() >= TELL {
            self.tell(false);
        }
    }

    /// Tells whole lines; what follows them waits, unless there won't be more.
    fn tell(&mut self, all: bool) {
        let Some(events) = &self.events else { return };
        // Told or not: what has no end of a line is not looked through again for each piece of it.
        self.told = Instant::now();
        let all = all || self.waiting.len() > MAX_LINE;
        let end = if all {
            self.waiting.len()
        } else {
            self.waiting.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
        };
        if end == 0 {
            return;
        }
        let lines: Vec<u8> = self.waiting.drain(..end).collect();
        let text = String::from_utf8_lossy(&lines);
        events.emitted(&Content::text(neutral(&text).into_owned()));
    }
}

impl CallState {
    /// Checks what is to be started, and starts it.
    fn start(
        &mut self,
        command: wit::Command,
        options: &wit::Options,
    ) -> Result<Child, wit::ProcessError> {
        let checked = self.processes().and_then(|processes| {
            Ok((processes.command(command, options)?, Arc::clone(&processes.policy)))
        });
        let (command, policy) = match checked {
            Ok(checked) => checked,
            Err(Refused::Denied(denial)) => {
                let told = denial.to_string();
                self.files.denials().remember(denial);
                return Err(wit::ProcessError::Denied(told));
            }
            Err(Refused::Invalid(reason)) => return Err(wit::ProcessError::Invalid(reason)),
        };
        let call = &self.call;
        let Some(processes) = &call.processes else {
            return Err(wit::ProcessError::Failed("the call is over".to_owned()));
        };
        if Arc::strong_count(&processes.running) > MAX_CHILDREN {
            return Err(wit::ProcessError::Failed(format!(
                "a call has at most {MAX_CHILDREN} processes at the same time"
            )));
        }
        let running = Arc::clone(&processes.running);
        // What a program has looked at, nobody can tell.
        processes.report.lost_sight();
        let limit = options.output_limit.map_or(MAX_OUTPUT, |limit| {
            usize::try_from(limit).unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT)
        });
        let asked = options
            .timeout_ms
            .and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
        let end = asked.unwrap_or(call.watch.deadline).min(call.watch.deadline);
        let teller = Teller::new(options.live.then(|| Arc::clone(&call.events)));
        match process::Child::start(&policy.places, &command, limit, end, &call.watch.cancel) {
            Ok(child) => Ok(Child { child, teller, _running: running }),
            Err(StartError::Sandbox(reason)) => {
                Err(wit::ProcessError::Unavailable(unavailable(&reason)))
            }
            Err(error @ StartError::Moved(_)) => Err(wit::ProcessError::Failed(error.to_string())),
            Err(StartError::Places(error)) => {
                Err(wit::ProcessError::Unavailable(error.to_string()))
            }
            Err(StartError::Io(error)) => Err(wit::ProcessError::Failed(error.to_string())),
        }
    }

    fn processes(&self) -> Result<&Processes, Refused> {
        let Some(processes) = &self.call.processes else {
            return Err(Refused::denied(
                "start a program".to_owned(),
                "the rule that a plugin starts nothing without a grant",
                "built in",
                format!(
                    "To allow it, set `programs` in [plugins.{}] of berth.toml; the plugin's manifest has to ask for `process`.",
                    self.call.plugin
                ),
            ));
        };
        if processes.read_only {
            return Err(Refused::denied(
                "start a program".to_owned(),
                "the tool's own claim that it only reads",
                "the tool's annotations",
                "The tool's author has to drop `read-only`.".to_owned(),
            ));
        }
        Ok(processes)
    }

    /// What became of a process, for the guest and for the record.
    fn ended(
        &self,
        finished: &process::CommandResult,
        missing: &[String],
        stdout: &[u8],
        stderr: &[u8],
    ) -> wit::Finished {
        let mut notices = Vec::new();
        if let Some(processes) = &self.call.processes {
            processes.report.entries().exit_code = finished.code.or(Some(-1));
            if finished.code != Some(0) {
                let tail = |bytes: &[u8]| {
                    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MAX_LOOKED_AT)..])
                        .into_owned()
                };
                let (stdout, stderr) = (tail(stdout), tail(stderr));
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
        }
        if !missing.is_empty() {
            notices.push(format!(
                "This machine doesn't give all of the sandbox. Missing: {}",
                missing.join("; ")
            ));
        }
        let ending = match finished.ending {
            Ending::Exited => wit::Ending::Exited,
            Ending::Timeout => wit::Ending::Timeout,
            Ending::Cancelled => wit::Ending::Cancelled,
            Ending::Bound(Bound::Memory) => wit::Ending::Memory,
            Ending::Bound(Bound::Processes) => wit::Ending::Processes,
            Ending::Bound(Bound::Processor) => wit::Ending::Processor,
            Ending::Output => wit::Ending::Output,
        };
        let notices: Vec<String> =
            notices.iter().map(|notice| neutral(cut(notice, 4096)).into_owned()).collect();
        if let Some(processes) = &self.call.processes {
            notices.iter().for_each(|notice| processes.report.notice(notice));
        }
        wit::Finished { exit_code: finished.code, ending, notices }
    }
}

fn unavailable(reason: &str) -> String {
    format!(
        "the sandbox can't be had here: {}. `berth doctor` says what this machine gives; `sandbox = \"best-effort\"` in [tools.shell] does with that",
        neutral_line(cut(reason, 1024))
    )
}

/// Why nothing is started.
enum Refused {
    Denied(Box<Denial>),
    Invalid(String),
}

impl Refused {
    fn denied(
        action: String,
        rule: impl Into<String>,
        place: impl Into<String>,
        remedy: String,
    ) -> Self {
        let (capability, rule, place) = ("process".to_owned(), rule.into(), place.into());
        Self::Denied(Box::new(Denial { capability, action, rule, place, remedy }))
    }

    fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into())
    }
}

impl Processes {
    /// What is started for a guest, if it may be. Nothing is touched before that is known.
    fn command(&self, command: wit::Command, options: &wit::Options) -> Result<Command, Refused> {
        let arguments = match command {
            wit::Command::Program(words) => self.program(words)?,
            wit::Command::Shell(text) => self.shell(text)?,
        };
        let directory = self.directory(options.directory.as_deref())?;
        let environment = self.environment(&options.environment)?;
        Ok(Command {
            arguments,
            environment,
            directory,
            network: self.reaches_network(),
            path_rules: self.path_rules.clone(),
        })
    }

    fn reaches_network(&self) -> bool {
        self.network || self.policy.network
    }

    fn program(&self, words: Vec<String>) -> Result<Vec<String>, Refused> {
        let size: usize = words.iter().map(|word| word.len() + 1).sum();
        if words.len() > MAX_WORDS || size > MAX_COMMAND {
            return Err(Refused::invalid(format!(
                "a command has at most {MAX_WORDS} words and {MAX_COMMAND} bytes"
            )));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(Refused::invalid("a command has no NUL"));
        }
        let Some((program, arguments)) =
            words.split_first().filter(|(program, _)| !program.is_empty())
        else {
            return Err(Refused::invalid("a command begins with a program"));
        };
        let line = berth_policy::command_line(&words);
        if !self.policy.programs.allow(program, arguments) {
            let shown = neutral_line(cut(&line, 512));
            let Some(place) = self.policy.programs.place(program) else {
                let remedy =
                    "To allow it, name it in `programs` of the plugin's table in berth.toml."
                        .to_owned();
                return Err(Refused::denied(
                    format!("run {shown}"),
                    "programs, which names none",
                    "built in",
                    remedy,
                ));
            };
            let remedy =
                place.remedy(|| format!("To allow it, add to `programs`: \"{shown}\", with `*` and `**` for arguments that may differ."));
            return Err(Refused::denied(
                format!("run {shown}"),
                "programs, which has no match",
                place.text.clone(),
                remedy.into_owned(),
            ));
        }
        // Whatever is granted, and however it is written there.
        if let Some(denial) = self.policy.advisor.blocked(&line) {
            return Err(Refused::Denied(Box::new(denial)));
        }
        Ok(words)
    }

    fn shell(&self, text: String) -> Result<Vec<String>, Refused> {
        let shown = || neutral_line(cut(&text, 512));
        if !self.policy.shell {
            let remedy = "To allow it, set `shell = true` in the plugin's table in berth.toml, which grants every command that the rules allow.";
            return Err(Refused::denied(
                format!("run {} in a shell", shown()),
                "shell = false",
                "the default of a plugin",
                remedy.to_owned(),
            ));
        }
        if !self.commands.contains(&text) {
            return Err(Refused::denied(
                format!("run {} in a shell", shown()),
                "the rule that a shell runs what was decided on, to the letter",
                "built in",
                "The tool's author has to declare the argument that holds the command as a subject of kind `command`.".to_owned(),
            ));
        }
        if text.contains('\0') {
            return Err(Refused::invalid("a command has no NUL"));
        }
        if text.len() > MAX_COMMAND {
            return Err(Refused::invalid(format!("a command has at most {MAX_COMMAND} bytes")));
        }
        Ok(vec!["bash".to_owned(), "-c".to_owned(), "--".to_owned(), text])
    }

    /// Where it works: a directory that the plugin may look into, by its real path.
    fn directory(&self, asked: Option<&str>) -> Result<PathBuf, Refused> {
        let Some(asked) = asked.map(Path::new).or(self.directory.as_deref()) else {
            return Err(Refused::denied(
                "start a program in the working directory".to_owned(),
                "allowed_paths of commands, which doesn't hold it",
                "[tools.shell], or the plugin's own table",
                "To allow it, name it there, or \".\": `allowed_paths = [\".\"]` in [tools.shell] of berth.toml, for a plugin in [plugins.NAME].".to_owned(),
            ));
        };
        if !asked.is_absolute() {
            return Err(Refused::invalid("the working directory is given by its absolute path"));
        }
        let rules = self.policy.places.grants.rules();
        let refuse = |path: &Path, refusal| {
            Refused::Denied(Box::new(rules.explain(refusal, path, Access::Read)))
        };
        let real = berth_system::files::real_or_given(asked);
        rules
            .decide(&real, Kind::Directory, Access::Read)
            .map_err(|refusal| refuse(&real, refusal))?;
        if let Some(rules) = &self.path_rules {
            let explain =
                |refusal| Refused::Denied(Box::new(rules.explain(refusal, &real, Access::Read)));
            rules.decide(&real, Access::Read).map_err(explain)?;
        }
        Ok(real)
    }

    fn environment(&self, added: &[(String, String)]) -> Result<Vec<(String, String)>, Refused> {
        if added.len() > MAX_VARIABLES {
            return Err(Refused::invalid(format!(
                "at most {MAX_VARIABLES} variables can be added"
            )));
        }
        let mut environment = self.policy.environment.clone();
        for (name, value) in added {
            let shown = neutral_line(cut(name, 100));
            let well_formed = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
            if !well_formed
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                || name.len() + value.len() > MAX_VARIABLE
            {
                return Err(Refused::invalid(format!("`{shown}` can't be set")));
            }
            if value.contains('\0') {
                return Err(Refused::invalid(format!("the value of {shown} has a NUL")));
            }
            let refuse = |rule: &str, remedy: String| {
                Refused::denied(format!("set {shown}"), rule, "built in", remedy)
            };
            if STEERING.contains(&name.as_str())
                || STEERING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            {
                let remedy = "No key changes that.".to_owned();
                return Err(refuse(
                    "the rule that a call doesn't choose what programs load",
                    remedy,
                ));
            }
            if redaction::field(name, value, Keys::Text) != *value {
                let remedy =
                    format!("To pass it on, have the operator name it: `env = [\"{shown}\"]`.");
                return Err(refuse(
                    "the rule that what looks like a credential is passed on by its name alone",
                    remedy,
                ));
            }
            environment.retain(|(known, _)| known != name);
            environment.push((name.clone(), value.clone()));
        }
        Ok(environment)
    }
}

fn output(child: &mut process::Child) -> wit::Output {
    let output = child.output();
    wit::Output {
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
    ) -> wasmtime::Result<Result<(wit::Finished, wit::Output), wit::ProcessError>> {
        let started = if input.len() > MAX_INPUT {
            Err(wit::ProcessError::Invalid(format!(
                "a standard input has at most {MAX_INPUT} bytes"
            )))
        } else {
            self.start(command, &options)
        };
        let mut started = match started {
            Ok(started) => started,
            Err(error) => return Ok(Err(error)),
        };
        let Child { child, teller, .. } = &mut started;
        child.write(&input, &mut |bytes| teller.see(bytes));
        child.close_input();
        let finished = child.wait_for_end(&mut |bytes| teller.see(bytes)).clone();
        teller.tell(true);
        let output = output(child);
        Ok(Ok((self.ended(&finished, child.missing(), &output.stdout, &output.stderr), output)))
    }
}

impl wit::HostChild for &mut CallState {
    fn start(
        &mut self,
        command: wit::Command,
        options: wit::Options,
    ) -> wasmtime::Result<Result<Resource<Child>, wit::ProcessError>> {
        match CallState::start(self, command, &options) {
            Ok(child) => Ok(Ok(self.table().push(child)?)),
            Err(error) => Ok(Err(error)),
        }
    }

    fn read(
        &mut self,
        this: Resource<Child>,
        timeout_ms: Option<u64>,
    ) -> wasmtime::Result<wit::Output> {
        let Child { child, teller, .. } = self.table().get_mut(&this)?;
        let until =
            timeout_ms.and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
        child.wait_for_output(until, &mut |bytes| teller.see(bytes));
        teller.tell(child.finished().is_some());
        Ok(output(child))
    }

    fn write(&mut self, this: Resource<Child>, bytes: Vec<u8>) -> wasmtime::Result<u64> {
        let Child { child, teller, .. } = self.table().get_mut(&this)?;
        let taken = child.write(&bytes, &mut |bytes| teller.see(bytes));
        Ok(u64::try_from(taken).unwrap_or_default())
    }

    fn close_input(&mut self, this: Resource<Child>) -> wasmtime::Result<()> {
        self.table().get_mut(&this)?.child.close_input();
        Ok(())
    }

    fn wait(&mut self, this: Resource<Child>) -> wasmtime::Result<wit::Finished> {
        let Child { child, teller, .. } = self.table().get_mut(&this)?;
        child.wait_for_end(&mut |bytes| teller.see(bytes));
        teller.tell(true);
        self.finished_child(&this).map(|finished| {
            finished.unwrap_or(wit::Finished {
                exit_code: None,
                ending: wit::Ending::Cancelled,
                notices: Vec::new(),
            })
        })
    }

    fn kill(&mut self, this: Resource<Child>) -> wasmtime::Result<()> {
        self.table().get_mut(&this)?.child.end(Ending::Cancelled);
        Ok(())
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
    /// What became of a child, where it is over. What it wrote has been taken, so nothing is known
    /// that could help.
    fn finished_child(
        &mut self,
        this: &Resource<Child>,
    ) -> wasmtime::Result<Option<wit::Finished>> {
        let child = &self.table().get(this)?.child;
        let missing = child.missing().to_vec();
        let Some(finished) = child.finished().cloned() else { return Ok(None) };
        Ok(Some(self.ended(&finished, &missing, b"", b"")))
    }
}
