//! Runs checkers within the time of the call, and reads what they write while it comes.

use std::path::Path;
use std::time::Duration;

use toolhold_sdk::Call;
use toolhold_sdk::process::{Command, Ending, Output, ProcessError};

use crate::checker::Checker;
use crate::finding::{Collector, Severity, one_line};
use crate::parse::Parser;
use crate::pieces::{Piece, Pieces};
use crate::report::{Ended, Ran, State};

/// Most bytes that a checker may write. More than a hundred thousand diagnostics need.
const MAX_OUTPUT: usize = 64 << 20;

/// Bytes at the end of its errors that explain a failure, and bytes of the explanation.
const MAX_ERRORS: usize = 4_096;
const MAX_DETAIL: usize = 800;

/// Time between two looks whether the checker has ended.
const LOOK: Duration = Duration::from_secs(1);

/// The time that all checkers of a call have together.
pub(crate) struct Time<'c> {
    call: &'c Call,
    /// The time that the call had left at its start.
    begin: Duration,
    limit: Duration,
    /// Whether the operator lets no call take as long as this one asks for.
    is_capped: bool,
}

impl<'c> Time<'c> {
    /// `asked`: the argument. The host has made it the time of the call, up to what the operator
    /// allows, and waits longer for the answer.
    pub(crate) fn new(call: &'c Call, asked: Option<u32>) -> Self {
        let begin = call.remaining();
        let asked = asked.map(|seconds| Duration::from_secs(seconds.into()));
        let limit = asked.map_or(begin, |asked| asked.min(begin));
        // The start of the call takes a part of its time.
        let is_capped = asked.is_some_and(|asked| asked > begin + Duration::from_secs(5));
        Self { call, begin, limit, is_capped }
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begin.saturating_sub(self.call.remaining()))
    }

    fn over(&self) -> String {
        let seconds = self.limit.as_millis().div_ceil(1_000);
        if self.is_capped {
            format!(
                "it was stopped {seconds} s after the begin, the longest time of a call: `max_call` in [tools]"
            )
        } else {
            format!("it was stopped {seconds} s after the begin; set a higher `timeout`")
        }
    }
}

/// Runs the commands of a checker in `folder`, one after the other.
pub(crate) fn run(
    checker: Checker,
    commands: &[Vec<String>],
    folder: &Path,
    shown_from: &Path,
    time: &Time<'_>,
) -> Ran {
    let mut collector = Collector::new(checker.name(), folder, shown_from);
    let mut ended = Ended::new(State::Ran, None);
    for command in commands {
        let one = run_one(checker, command, folder, shown_from, time, &mut collector);
        // The next one would end in the same way.
        let is_last = matches!(one.state, State::Missing | State::Refused | State::Timeout);
        if ended.state == State::Ran {
            ended = one;
        }
        if is_last {
            break;
        }
    }
    Ran::new(checker, commands, collector, ended)
}

fn run_one(
    checker: Checker,
    command: &[String],
    folder: &Path,
    shown_from: &Path,
    time: &Time<'_>,
    collector: &mut Collector,
) -> Ended {
    let left = time.left();
    if left.is_zero() {
        return Ended::new(State::Timeout, Some(time.over()));
    }
    let program = command.first().map_or("", String::as_str);
    let mut process = Command::program(program).args(command.iter().skip(1)).timeout(left);
    // In the working directory, the command is judged without a `cd`.
    if folder != shown_from {
        process = process.directory(folder.to_string_lossy());
    }
    let known = collector.written;
    let mut child = match process.start() {
        Ok(child) => child,
        Err(error) => {
            let state = match &error {
                ProcessError::Denied(_) => State::Refused,
                _ => State::Failed,
            };
            return Ended::new(state, Some(error.to_string()));
        }
    };
    child.close_input();
    let mut reader = Reader {
        parser: checker.parser(),
        pieces: Pieces::default(),
        text: Pieces::default(),
        begin: Vec::new(),
        errors: Vec::new(),
        size: 0,
    };
    let mut is_too_much = false;
    while !child.is_finished() && !is_too_much {
        is_too_much = !reader.take(collector, &child.read(Some(LOOK)));
    }
    if is_too_much {
        child.kill();
    }
    let finished = child.wait();
    if !is_too_much {
        reader.take(collector, &finished.output);
    }
    let Reader { parser, pieces, text, errors, begin, .. } = reader;
    let begin = String::from_utf8_lossy(&begin).trim().to_owned();
    let is_its_output = !checker.always_writes_json() || begin.starts_with(['[', '{']);
    for pieces in [pieces, text] {
        let dropped = pieces.finish(|piece| parse(parser, collector, piece));
        collector.left_out += dropped;
    }
    let said = String::from_utf8_lossy(&errors);
    // With findings, a code other than 0 says that there are some. That of cargo says that there is
    // an error, and warnings don't explain it.
    let explains_code = match checker {
        Checker::Cargo => collector.findings.iter().any(|one| one.severity == Severity::Error),
        _ => collector.written > known,
    };
    let is_missing = finished.exit_code == Some(127) && said.trim_end().ends_with("not found");
    let mut hint = None;
    let (state, mut detail) = match finished.ending {
        _ if is_too_much => (
            State::Cut,
            Some(format!("it wrote more than {} MiB and was stopped", MAX_OUTPUT >> 20)),
        ),
        // It was seen in the project.
        Ending::Exited if is_missing && program.contains('/') => {
            hint = Some(checker.grant());
            (State::Failed, Some(format!("{program} or its interpreter can't be seen by commands")))
        }
        Ending::Exited if is_missing => {
            hint = Some(checker.grant());
            (State::Missing, Some(checker.install().to_owned()))
        }
        Ending::Exited if finished.exit_code == Some(0) && !is_its_output => {
            let begin = one_line(&begin, MAX_DETAIL);
            let what = if begin.is_empty() { "nothing" } else { "no JSON: " };
            (State::Failed, Some(format!("it wrote {what}{begin}")))
        }
        Ending::Exited if finished.exit_code == Some(0) || explains_code => (State::Ran, None),
        Ending::Exited => {
            let said: &str = if said.trim().is_empty() { &begin } else { &said };
            hint = checker.hint(&useful(said));
            (State::Failed, Some(explain(said, finished.exit_code)))
        }
        Ending::Timeout => (State::Timeout, Some(time.over())),
        Ending::Output => (State::Cut, Some("it wrote too much output and was stopped".to_owned())),
        Ending::Cancelled => (State::Failed, Some("it was cancelled".to_owned())),
        Ending::Memory => (State::Failed, Some(limit("memory", "memory_mib"))),
        Ending::Processes => (State::Failed, Some(limit("processes", "processes"))),
        Ending::Processor => (State::Failed, Some(limit("processor time", "cpu_secs"))),
        Ending::Other => (State::Failed, Some("the host stopped it".to_owned())),
    };
    if let (State::Failed, Some(detail)) = (state, &mut detail) {
        for notice in &finished.notices {
            *detail += &format!(" {}", one_line(notice, MAX_DETAIL));
        }
    }
    Ended { state, detail, hint }
}

struct Reader {
    parser: Parser,
    pieces: Pieces,
    /// The text that is read from its standard error.
    text: Pieces,
    /// The begin of the standard output.
    begin: Vec<u8>,
    /// The end of the standard error.
    errors: Vec<u8>,
    size: usize,
}

impl Reader {
    /// Takes output. `false`: the output is too large.
    fn take(&mut self, collector: &mut Collector, output: &Output) -> bool {
        let parser = self.parser;
        self.pieces.push(&output.stdout, |piece| parse(parser, collector, piece));
        // `go vet` writes the compiler's output there, and cargo the output of build scripts.
        if [Checker::Go, Checker::Cargo].map(Checker::name).contains(&collector.checker) {
            self.text.push(&output.stderr, |piece| parse(parser, collector, piece));
        }
        let room = MAX_DETAIL - self.begin.len();
        self.begin
            .extend(output.stdout.iter().skip_while(|byte| byte.is_ascii_whitespace()).take(room));
        self.errors.extend_from_slice(&output.stderr);
        let too_much = self.errors.len().saturating_sub(MAX_ERRORS);
        self.errors.drain(..too_much);
        self.size += output.stdout.len() + output.stderr.len();
        self.size <= MAX_OUTPUT
    }
}

fn parse(parser: Parser, collector: &mut Collector, piece: Piece<'_>) {
    match piece {
        Piece::Object(object) => (parser.object)(collector, object),
        Piece::Line(line) => (parser.line)(collector, line),
    }
}

/// Why a checker that found nothing failed.
fn explain(said: &str, code: Option<i32>) -> String {
    format!("exit code {}: {}", code.unwrap_or(-1), one_line(&useful(said), MAX_DETAIL))
}

/// A program's output from its first error on, without a backtrace and without the advice of
/// rustup, which would install a toolchain that is only not granted.
fn useful(said: &str) -> String {
    let from = said
        .lines()
        .position(|line| line.trim_start().to_ascii_lowercase().starts_with("error"))
        .unwrap_or(0);
    let lines: Vec<&str> = said.lines().skip(from).take_while(|line| !is_noise(line)).collect();
    let text = lines.join("\n");
    if text.trim().is_empty() { said.to_owned() } else { text }
}

fn is_noise(line: &str) -> bool {
    let line = line.trim().to_ascii_lowercase();
    line.starts_with("stack backtrace") || line.starts_with("help: run 'rustup")
}

fn limit(what: &str, key: &str) -> String {
    format!("it reached the limit of {what}: `{key}` in [tools.shell.limits]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useful_part_has_no_backtrace() {
        for (said, expected) in [
            ("what went wrong\n", "what went wrong"),
            ("   Compiling a\nerror: no\n\nCaused by:\n  x\n", "error: no\n\nCaused by:\n  x"),
            ("error: no version\nhelp: run 'rustup default stable' to\n", "error: no version"),
            ("error: no home\n\nStack backtrace:\n  0: anyhow\n", "error: no home\n"),
            ("Stack backtrace:\n  0: x", "Stack backtrace:\n  0: x"),
        ] {
            assert_eq!(useful(said), expected);
        }
    }

    #[test]
    fn argument_is_what_the_checkers_get() {
        // The call of a test has ten minutes.
        let call = Call::default();
        for (asked, seconds, told) in [
            (Some(3), 3, "3 s after the begin; set a higher `timeout`"),
            (None, 600, "600 s after the begin; set a higher `timeout`"),
            (Some(601), 600, "600 s after the begin; set a higher `timeout`"),
            (Some(86_400), 600, "600 s after the begin, the longest time of a call: `max_call`"),
        ] {
            let time = Time::new(&call, asked);
            assert_eq!(time.left(), Duration::from_secs(seconds));
            assert!(time.over().contains(told), "{}", time.over());
        }
    }
}
