//! Runs one checker, and reads what it writes while it comes.

use std::path::Path;
use std::time::Duration;

use berth_sdk::Call;
use berth_sdk::process::{Command, Ending, Output, ProcessError};

use crate::checker::Checker;
use crate::finding::{Collector, one_line};
use crate::pieces::{Piece, Pieces};
use crate::report::{Ran, State};

/// Most bytes that a checker may write. More than a hundred thousand diagnostics need.
const MAX_OUTPUT: usize = 64 << 20;

/// Bytes at the end of its errors that explain a failure, and bytes of the explanation.
const MAX_ERRORS: usize = 4_096;
const MAX_DETAIL: usize = 800;

/// The time for the answer after the last checker.
const RESERVE: Duration = Duration::from_secs(2);

/// Time between two looks whether the checker has ended.
const LOOK: Duration = Duration::from_secs(1);

/// Runs a checker in `folder`.
pub(crate) fn run(
    checker: Checker,
    command: &[String],
    folder: &Path,
    shown_from: &Path,
    call: &Call,
) -> Ran {
    let mut collector = Collector::new(checker.name(), folder, shown_from);
    let time = call.remaining().saturating_sub(RESERVE).max(Duration::from_secs(1));
    let mut program = Command::program(command.first().cloned().unwrap_or_default());
    program = program.args(command.iter().skip(1)).timeout(time);
    // In the working directory, the command is judged without a `cd`.
    if folder != shown_from {
        program = program.directory(folder.to_string_lossy());
    }
    let mut child = match program.start() {
        Ok(child) => child,
        Err(error) => {
            let state = match &error {
                ProcessError::Denied(_) => State::Refused,
                _ => State::Failed,
            };
            return Ran::new(checker, command, collector, state, Some(error.to_string()));
        }
    };
    child.close_input();
    let mut reader = Reader {
        parser: checker.parser(),
        pieces: Pieces::default(),
        begin: Vec::new(),
        errors: Vec::new(),
        size: 0,
    };
    let mut is_too_much = false;
    while !child.is_finished() && !is_too_much {
        is_too_much = !reader.take(&mut collector, &child.read(Some(LOOK)));
    }
    if is_too_much {
        child.kill();
    }
    let finished = child.wait();
    if !is_too_much {
        reader.take(&mut collector, &finished.output);
    }
    let Reader { parser, pieces, errors, begin, .. } = reader;
    let begin = String::from_utf8_lossy(&begin).trim().to_owned();
    let is_its_output = !checker.always_writes_json() || begin.starts_with(['[', '{']);
    let dropped = pieces.finish(|piece| parse(parser, &mut collector, piece));
    collector.left_out += dropped;
    let said = String::from_utf8_lossy(&errors);
    let is_missing = finished.exit_code == Some(127) && said.trim_end().ends_with("not found");
    let (state, mut detail) = match finished.ending {
        _ if is_too_much => (
            State::Cut,
            Some(format!("it wrote more than {} MiB and was stopped", MAX_OUTPUT >> 20)),
        ),
        Ending::Exited if is_missing => (State::Missing, Some(checker.install().to_owned())),
        Ending::Exited if finished.exit_code == Some(0) && !is_its_output => {
            let begin = one_line(&begin, MAX_DETAIL);
            let what = if begin.is_empty() { "nothing" } else { "no JSON: " };
            (State::Failed, Some(format!("it wrote {what}{begin}")))
        }
        // With findings, a code other than 0 says that there are some.
        Ending::Exited if finished.exit_code == Some(0) || !collector.findings.is_empty() => {
            (State::Ran, None)
        }
        Ending::Exited => {
            let said: &str = if said.trim().is_empty() { &begin } else { &said };
            (State::Failed, Some(explain(checker, said, finished.exit_code)))
        }
        Ending::Timeout => (
            State::Timeout,
            Some(format!("it was stopped after {} s; set a higher `timeout`", time.as_secs())),
        ),
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
    Ran::new(checker, command, collector, state, detail)
}

struct Reader {
    parser: crate::checker::Parser,
    pieces: Pieces,
    /// The begin of the standard output.
    begin: Vec<u8>,
    /// The end of the standard error.
    errors: Vec<u8>,
    size: usize,
}

impl Reader {
    /// Takes output. False: it is too much.
    fn take(&mut self, collector: &mut Collector, output: &Output) -> bool {
        let parser = self.parser;
        self.pieces.push(&output.stdout, |piece| parse(parser, collector, piece));
        // `go vet` writes what the compiler says there.
        if collector.is_for(Checker::Go) {
            self.pieces.push(&output.stderr, |piece| parse(parser, collector, piece));
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

fn parse(parser: crate::checker::Parser, collector: &mut Collector, piece: Piece<'_>) {
    match piece {
        Piece::Object(object) => (parser.object)(collector, object),
        Piece::Line(line) => (parser.line)(collector, line),
    }
}

/// Why a checker that found nothing failed.
fn explain(checker: Checker, said: &str, code: Option<i32>) -> String {
    let code = code.unwrap_or(-1);
    let mut detail = format!("exit code {code}: {}", one_line(said, MAX_DETAIL));
    if checker == Checker::Cargo && said.contains("offline") {
        detail += " It has no network here: run `cargo fetch` with bash first.";
    }
    detail
}

fn limit(what: &str, key: &str) -> String {
    format!("it reached the limit of {what}: `{key}` in [tools.shell.limits]")
}
