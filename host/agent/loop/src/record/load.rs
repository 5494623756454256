//! Reads a session file to resume the session. Parses only the entries that are still in the
//! model's context.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use toolhold_models::{CallResult, TokenUsage};

use super::entry::{Began, Compressed, Ended, RecordedResult, Replacement, SessionEntry, Task};
use super::{MAX_ENTRIES, MAX_LINE};
use crate::ending::Spent;

/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;

/// The content of a session's file.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The start of the session. `None`: the file is new.
    pub began: Option<Began>,
    /// The last task.
    pub task: Option<Task>,
    /// The number of the task's entry.
    pub(crate) task_entry: usize,
    /// How the last task ended. `None`: the task was interrupted, or there was no task.
    pub ended: Option<Ended>,
    /// The summary of the entries that aren't in `conversation`.
    pub summary: Option<Compressed>,
    /// The entries of the conversation, each with its number. Short replacements take the place of
    /// results that were left out.
    pub conversation: Vec<(usize, SessionEntry)>,
    /// The tokens of answers since the last end of a task.
    pub unended: Vec<TokenUsage>,
    /// The tokens of summaries since the last end of a task.
    pub unended_summaries: Vec<TokenUsage>,
    /// The tokens of corrections since the last end of a task.
    pub unended_corrections: Vec<TokenUsage>,
    /// The tokens and costs of delegated work since the last end of a task.
    pub unended_delegated: Vec<Spent>,
    /// Whether results were left out of `conversation`.
    pub is_pruned: bool,
    /// The number of all entries.
    pub(crate) entries: usize,
    /// Bytes of all complete lines.
    pub(crate) bytes: u64,
}

/// A line: its place in the file, and the kind of its entry.
struct Line {
    at: u64,
    len: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Began,
    Task,
    Answer,
    Result,
    Note,
    Notice,
    Summary,
    Corrected,
    Pruned,
    Compressed,
    Delegated,
    Ended,
    Unknown,
}

impl Kind {
    fn from_line(line: &[u8]) -> Self {
        let kinds: [(&[u8], Self); 12] = [
            (b"{\"began\":", Self::Began),
            (b"{\"task\":", Self::Task),
            (b"{\"answer\":", Self::Answer),
            (b"{\"result\":", Self::Result),
            (b"{\"note\":", Self::Note),
            (b"{\"notice\":", Self::Notice),
            (b"{\"summary\":", Self::Summary),
            (b"{\"corrected\":", Self::Corrected),
            (b"{\"pruned\":", Self::Pruned),
            (b"{\"compressed\":", Self::Compressed),
            (b"{\"delegated\":", Self::Delegated),
            (b"{\"ended\":", Self::Ended),
        ];
        let kind = kinds.iter().find(|(start, _)| line.starts_with(start));
        kind.map_or(Self::Unknown, |(_, kind)| *kind)
    }
}

impl Recorded {
    /// Reads a session's file. Most of a long session isn't parsed.
    pub(crate) fn read(file: &mut File) -> io::Result<Self> {
        let Lines { lines, is_damaged } = find_lines(file)?;
        let mut recorded = Self {
            entries: lines.len(),
            bytes: lines.last().map_or(0, |line| line.at + line.len as u64 + 1),
            ..Self::default()
        };
        let mut parser = LineParser { file, buffer: Vec::new() };
        if let Some(first) = lines.first() {
            match parser.parse(first)? {
                SessionEntry::Began(began) => recorded.began = Some(began),
                _ => return Err(damaged("its first line doesn't start a session")),
            }
        }
        if is_damaged {
            return Err(damaged(format!("line {} isn't an entry", lines.len())));
        }

        if let Some(number) = lines.iter().rposition(|line| line.kind == Kind::Task)
            && let SessionEntry::Task(task) = parser.parse(&lines[number])?
        {
            recorded.task = Some(task);
            recorded.task_entry = number;
        }
        if let Some(line) = of_kind(&lines, Kind::Ended).next_back()
            && let SessionEntry::Ended(ended) = parser.parse(line)?
        {
            recorded.ended = Some(ended);
        }
        if let Some(line) = of_kind(&lines, Kind::Compressed).next_back()
            && let SessionEntry::Compressed(compressed) = parser.parse(line)?
        {
            recorded.summary = Some(compressed);
        }
        let replacements = read_replacements(&lines, &mut parser)?;
        recorded.is_pruned = !replacements.is_empty();
        recorded.read_costs(&lines, &mut parser)?;
        recorded.read_conversation(&lines, replacements, &mut parser)?;
        Ok(recorded)
    }

    /// Reads the tokens and costs since the last end of a task.
    fn read_costs(&mut self, lines: &[Line], parser: &mut LineParser<'_>) -> io::Result<()> {
        let last_end = lines.iter().rposition(|line| line.kind == Kind::Ended).unwrap_or(0);
        for line in &lines[last_end..] {
            let costs =
                [Kind::Answer, Kind::Compressed, Kind::Summary, Kind::Corrected, Kind::Delegated];
            if !costs.contains(&line.kind) {
                continue;
            }
            match parser.parse(line)? {
                SessionEntry::Answer(answer) => self.unended.push(answer.usage),
                SessionEntry::Compressed(compressed) => {
                    self.unended_summaries.push(compressed.usage);
                }
                SessionEntry::Summary(usage) => self.unended_summaries.push(usage),
                SessionEntry::Corrected(corrected) => {
                    self.unended_corrections.extend(corrected.usage);
                }
                SessionEntry::Delegated(delegated) => {
                    self.unended_delegated.push(delegated.spent);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the entries of the conversation after the summary. `replacements`: the short results
    /// in place of results that were left out, by entry number.
    fn read_conversation(
        &mut self,
        lines: &[Line],
        mut replacements: HashMap<usize, CallResult>,
        parser: &mut LineParser<'_>,
    ) -> io::Result<()> {
        let from = self.summary.as_ref().map_or(0, |summary| summary.through.saturating_add(1));
        for (number, line) in lines.iter().enumerate().skip(from) {
            if !matches!(line.kind, Kind::Task | Kind::Answer | Kind::Result | Kind::Note) {
                continue;
            }
            let replacement = match line.kind {
                Kind::Result => replacements.remove(&number),
                _ => None,
            };
            let mut entry = match replacement {
                Some(result) => SessionEntry::Result(RecordedResult::left_out(result)),
                None => parser.parse(line)?,
            };
            if let SessionEntry::Task(task) = &mut entry {
                // The model no longer gets these tools.
                task.tools = None;
                task.chosen = None;
            }
            self.conversation.push((number, entry));
        }
        Ok(())
    }
}

/// Reads the short results in place of results that were left out, by entry number.
fn read_replacements(
    lines: &[Line],
    parser: &mut LineParser<'_>,
) -> io::Result<HashMap<usize, CallResult>> {
    let mut replacements = HashMap::new();
    for line in of_kind(lines, Kind::Pruned) {
        if let SessionEntry::Pruned(pruned) = parser.parse(line)? {
            let pruned = pruned.into_iter();
            replacements.extend(pruned.map(|Replacement { entry, result }| (entry, result)));
        }
    }
    Ok(replacements)
}

fn of_kind(lines: &[Line], kind: Kind) -> impl DoubleEndedIterator<Item = &Line> {
    lines.iter().filter(move |line| line.kind == kind)
}

/// Parses lines of a file in any order.
struct LineParser<'a> {
    file: &'a mut File,
    /// The bytes of a line, allocated once.
    buffer: Vec<u8>,
}

impl LineParser<'_> {
    fn parse(&mut self, line: &Line) -> io::Result<SessionEntry> {
        self.file.seek(SeekFrom::Start(line.at))?;
        self.buffer.resize(line.len, 0);
        self.file.read_exact(&mut self.buffer)?;
        parse_entry(&self.buffer)
    }
}

impl Recorded {
    /// Returns the tokens and costs of the whole session, including a task that was killed.
    pub(crate) fn spent(&self) -> Spent {
        let mut spent = self.ended.as_ref().map(|ended| ended.spent).unwrap_or_default();
        if let Some(Task { settings, .. }) = &self.task {
            self.unended.iter().for_each(|usage| spent.add(usage, &settings.prices));
            let summaries = self.unended_summaries.iter();
            summaries.for_each(|usage| spent.add(usage, &settings.summary_prices));
            let corrector = settings.corrector.as_ref();
            let prices = corrector.map(|corrector| corrector.prices).unwrap_or_default();
            self.unended_corrections.iter().for_each(|usage| spent.add(usage, &prices));
            self.unended_delegated.iter().for_each(|other| spent.add_all(other));
        }
        spent
    }
}

/// The complete lines of a file.
struct Lines {
    lines: Vec<Line>,
    /// Whether the last line isn't an entry. The lines after it aren't read, so a file that isn't a
    /// session takes no memory.
    is_damaged: bool,
}

/// Finds the lines of a file. Doesn't store their text.
fn find_lines(file: &mut File) -> io::Result<Lines> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(CHUNK, file);
    let mut lines = Vec::new();
    let mut at = 0;
    // The first bytes of a line show the kind of its entry.
    let mut start = Vec::with_capacity(16);
    let mut len = 0;
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok(Lines { lines, is_damaged: false });
        }
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let missing = 16_usize.saturating_sub(start.len()).min(part.len());
        start.extend_from_slice(&part[..missing]);
        len += part.len();
        if len > MAX_LINE {
            return Err(damaged(format!("a line is longer than {MAX_LINE} bytes, the limit")));
        }
        let consumed = part.len() + usize::from(end.is_some());
        reader.consume(consumed);
        if end.is_none() {
            continue;
        }

        if lines.len() == MAX_ENTRIES {
            return Err(damaged(format!("it has more than {MAX_ENTRIES} lines, the limit")));
        }
        let kind = Kind::from_line(&start);
        lines.push(Line { at, len, kind });
        if kind == Kind::Unknown {
            return Ok(Lines { lines, is_damaged: true });
        }
        at += len as u64 + 1;
        start.clear();
        len = 0;
    }
}

/// Reads all entries of a session file in order, one at a time.
pub fn read_entries(file: File) -> impl Iterator<Item = io::Result<SessionEntry>> {
    let mut reader = BufReader::with_capacity(CHUNK, file);
    let mut line = Vec::new();
    std::iter::from_fn(move || {
        line.clear();
        match reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line) {
            Err(error) => Some(Err(error)),
            // A killed process wrote an incomplete line.
            Ok(_) if line.pop() != Some(b'\n') => None,
            Ok(_) => Some(parse_entry(&line)),
        }
    })
}

/// Parses an entry, and checks the version of the session.
fn parse_entry(line: &[u8]) -> io::Result<SessionEntry> {
    let entry: SessionEntry = serde_json::from_slice(line).map_err(damaged)?;
    match &entry {
        SessionEntry::Began(began) if began.version != 1 => {
            Err(damaged(format!("version {} is unknown", began.version)))
        }
        _ => Ok(entry),
    }
}

fn damaged(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is damaged: {why}"))
}
