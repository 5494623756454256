//! Reads a session file to resume the session. Parses only the entries that are still in the
//! model's context.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use toolhold_models::{CallResult, Part, TokenUsage};

use super::entry::{
    Began, Compressed, Ended, FORMAT_VERSION, RecordedResult, Replacement, SessionEntry, Task,
};
use super::{MAX_ENTRIES, MAX_LINE};
use crate::ending::Spent;
use crate::events::text_of;

const CHUNK: usize = 256 * 1024;

/// The bytes at the start of a line that tell the kind of its entry.
const KIND_BYTES: usize = 16;

/// The content of a session's file.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The start of the session, or `None` if the file is new.
    pub began: Option<Began>,
    /// The last task, even if the person went back to before this task.
    pub task: Option<Task>,
    /// The last message of the person in the conversation, with the number of its entry.
    pub(crate) last_message: Option<(usize, Vec<Part>)>,
    /// The end of the last task. `None` if the task was interrupted, or if there was no task.
    pub ended: Option<Ended>,
    /// The summary that replaces the entries before `conversation`.
    pub summary: Option<Compressed>,
    /// The entries that the model still gets, with their numbers. Pruned results are already
    /// shortened.
    pub conversation: Vec<(usize, SessionEntry)>,
    /// The tokens of answers since the last end of a task.
    pub unended: Vec<TokenUsage>,
    /// The tokens of summaries since the last end of a task.
    pub unended_summaries: Vec<TokenUsage>,
    /// The tokens of corrections since the last end of a task.
    pub unended_corrections: Vec<TokenUsage>,
    /// The tokens and costs of delegated work since the last end of a task.
    pub unended_delegated: Vec<Spent>,
    /// Whether `conversation` has pruned results.
    pub is_pruned: bool,
    pub(crate) entries: usize,
    /// The number of bytes of all complete lines.
    pub(crate) bytes: u64,
}

/// A message of the person that is still in the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierMessage {
    /// The number of the message's entry.
    pub(crate) entry: usize,
    /// The text.
    pub text: String,
    /// The start of the turn, in nanoseconds since 1970.
    pub turn: u64,
}

struct Line {
    offset: u64,
    len: usize,
    kind: Kind,
    /// Whether the person went back to before this entry.
    is_rewound: bool,
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
    Rewound,
    Delegated,
    Ended,
    Unknown,
}

impl Kind {
    /// Returns the kind of an entry, without parsing the entry.
    fn from_line(line: &[u8]) -> Self {
        let kinds: [(&[u8], Self); 13] = [
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
            (b"{\"rewound\":", Self::Rewound),
            (b"{\"delegated\":", Self::Delegated),
            (b"{\"ended\":", Self::Ended),
        ];
        let kind = kinds.iter().find(|(start, _)| line.starts_with(start));
        kind.map_or(Self::Unknown, |(_, kind)| *kind)
    }
}

impl Recorded {
    /// Reads a session file. Parses only the entries that resuming the session needs.
    pub(crate) fn read(file: &mut File) -> io::Result<Self> {
        let Lines { mut lines, is_damaged } = find_lines(file)?;
        let mut recorded = Self {
            entries: lines.len(),
            bytes: lines.last().map_or(0, |line| line.offset + line.len as u64 + 1),
            ..Self::default()
        };
        let mut parser = LineParser { file, buffer: Vec::new() };
        if let Some(first) = lines.first() {
            match parser.parse(first)? {
                SessionEntry::Began(began) => recorded.began = Some(began),
                _ => return Err(damaged("the first line doesn't start a session")),
            }
        }
        if is_damaged {
            return Err(damaged(format!("line {} isn't an entry", lines.len())));
        }

        mark_rewound(&mut lines, &mut parser)?;
        if let Some(line) = of_kind(&lines, Kind::Task).next_back()
            && let SessionEntry::Task(task) = parser.parse(line)?
        {
            recorded.task = Some(task);
        }
        let last_message =
            lines.iter().rposition(|line| line.kind == Kind::Task && !line.is_rewound);
        if let Some(number) = last_message
            && let SessionEntry::Task(task) = parser.parse(&lines[number])?
        {
            recorded.last_message = Some((number, task.parts));
        }
        if let Some(line) = of_kind(&lines, Kind::Ended).next_back()
            && let SessionEntry::Ended(ended) = parser.parse(line)?
        {
            recorded.ended = Some(ended);
        }
        if let Some(line) = of_kind(&lines, Kind::Compressed).rfind(|line| !line.is_rewound)
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

    fn read_costs(&mut self, lines: &[Line], parser: &mut LineParser<'_>) -> io::Result<()> {
        // If no task has ended, all lines are read.
        let last_end = lines.iter().rposition(|line| line.kind == Kind::Ended).unwrap_or(0);
        for line in &lines[last_end..] {
            let kinds_with_costs =
                [Kind::Answer, Kind::Compressed, Kind::Summary, Kind::Corrected, Kind::Delegated];
            if !kinds_with_costs.contains(&line.kind) {
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

    /// Reads the entries after the summary. `replacements` has the short results that replace
    /// pruned results, by entry number.
    fn read_conversation(
        &mut self,
        lines: &[Line],
        mut replacements: HashMap<usize, CallResult>,
        parser: &mut LineParser<'_>,
    ) -> io::Result<()> {
        let first = match &self.summary {
            Some(summary) => summary.through.saturating_add(1),
            None => 0,
        };
        for (number, line) in lines.iter().enumerate().skip(first) {
            let is_of_conversation =
                matches!(line.kind, Kind::Task | Kind::Answer | Kind::Result | Kind::Note);
            if line.is_rewound || !is_of_conversation {
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
                // Only the tools of the last task are used.
                task.tools = None;
                task.chosen = None;
            }
            self.conversation.push((number, entry));
        }
        Ok(())
    }
}

impl EarlierMessage {
    /// Reads the person's messages that are still in the conversation, oldest first.
    pub(crate) fn read_all(file: &mut File) -> io::Result<Vec<Self>> {
        let mut lines = find_lines(file)?.lines;
        let mut parser = LineParser { file, buffer: Vec::new() };
        mark_rewound(&mut lines, &mut parser)?;
        let mut messages = Vec::new();
        for (entry, line) in lines.iter().enumerate() {
            if line.is_rewound || line.kind != Kind::Task {
                continue;
            }
            if let SessionEntry::Task(task) = parser.parse(line)?
                && let Some(turn) = task.turn
            {
                messages.push(Self { entry, text: text_of(&task.parts), turn });
            }
        }
        Ok(messages)
    }
}

/// Marks the lines that are no longer in the conversation: each step back of the person, and the
/// lines that the step removes. Begins with the last step, because it can remove earlier steps.
fn mark_rewound(lines: &mut [Line], parser: &mut LineParser<'_>) -> io::Result<()> {
    let mut end = lines.len();
    while let Some(number) = lines[..end].iter().rposition(|line| line.kind == Kind::Rewound) {
        let mut first_rewound = number;
        if let SessionEntry::Rewound(rewound) = parser.parse(&lines[number])? {
            // In a damaged file, the step may name an entry after itself.
            first_rewound = rewound.to.min(number);
        }
        for line in &mut lines[first_rewound..=number] {
            line.is_rewound = true;
        }
        end = first_rewound;
    }
    Ok(())
}

/// Reads the short results that replace pruned results, by entry number.
fn read_replacements(
    lines: &[Line],
    parser: &mut LineParser<'_>,
) -> io::Result<HashMap<usize, CallResult>> {
    let mut replacements = HashMap::new();
    for line in of_kind(lines, Kind::Pruned).filter(|line| !line.is_rewound) {
        if let SessionEntry::Pruned(pruned) = parser.parse(line)? {
            for Replacement { entry, result } in pruned {
                replacements.insert(entry, result);
            }
        }
    }
    Ok(replacements)
}

fn of_kind(lines: &[Line], kind: Kind) -> impl DoubleEndedIterator<Item = &Line> {
    lines.iter().filter(move |line| line.kind == kind)
}

struct LineParser<'a> {
    file: &'a mut File,
    buffer: Vec<u8>,
}

impl LineParser<'_> {
    fn parse(&mut self, line: &Line) -> io::Result<SessionEntry> {
        self.file.seek(SeekFrom::Start(line.offset))?;
        self.buffer.resize(line.len, 0);
        self.file.read_exact(&mut self.buffer)?;
        parse_entry(&self.buffer)
    }
}

impl Recorded {
    /// Returns the tokens and costs of the whole session, including a task that was killed.
    pub(crate) fn spent(&self) -> Spent {
        let mut spent = self.ended.as_ref().map(|ended| ended.spent).unwrap_or_default();
        let Some(Task { settings, .. }) = &self.task else { return spent };
        for usage in &self.unended {
            spent.add(usage, &settings.prices);
        }
        for usage in &self.unended_summaries {
            spent.add(usage, &settings.summary_prices);
        }
        let corrector = settings.corrector.as_ref();
        let corrector_prices = corrector.map(|corrector| corrector.prices).unwrap_or_default();
        for usage in &self.unended_corrections {
            spent.add(usage, &corrector_prices);
        }
        for delegated in &self.unended_delegated {
            spent.add_all(delegated);
        }
        spent
    }
}

struct Lines {
    lines: Vec<Line>,
    /// Whether the last line isn't an entry. Later lines aren't read, so that a file of another
    /// format takes little memory.
    is_damaged: bool,
}

/// Finds the lines of a file, without storing their text.
fn find_lines(file: &mut File) -> io::Result<Lines> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(CHUNK, file);
    let mut lines = Vec::new();
    let mut offset = 0;
    // The first bytes of the current line, which tell the kind of the entry.
    let mut start = Vec::with_capacity(KIND_BYTES);
    let mut len = 0;
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok(Lines { lines, is_damaged: false });
        }
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let missing = KIND_BYTES.saturating_sub(start.len());
        start.extend_from_slice(&part[..missing.min(part.len())]);
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
            return Err(damaged(format!("the file has more than {MAX_ENTRIES} lines, the limit")));
        }
        let kind = Kind::from_line(&start);
        lines.push(Line { offset, len, kind, is_rewound: false });
        if kind == Kind::Unknown {
            return Ok(Lines { lines, is_damaged: true });
        }
        offset += len as u64 + 1;
        start.clear();
        len = 0;
    }
}

/// Reads the entries of a session file in order. Stops at an incomplete line, which a killed
/// process may have left.
pub fn read_entries(file: File) -> impl Iterator<Item = io::Result<SessionEntry>> {
    let mut reader = BufReader::with_capacity(CHUNK, file);
    let mut line = Vec::new();
    std::iter::from_fn(move || {
        line.clear();
        match reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line) {
            Err(error) => Some(Err(error)),
            Ok(_) => line.strip_suffix(b"\n").map(parse_entry),
        }
    })
}

fn parse_entry(line: &[u8]) -> io::Result<SessionEntry> {
    let entry: SessionEntry = serde_json::from_slice(line).map_err(damaged)?;
    match &entry {
        SessionEntry::Began(began) if began.version != FORMAT_VERSION => {
            Err(damaged(format!("version {} is unknown", began.version)))
        }
        _ => Ok(entry),
    }
}

fn damaged(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the file is damaged: {why}"))
}
