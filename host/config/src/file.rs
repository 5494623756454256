//! A `berth.toml`: who may have written it, and what it says.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use berth_contract::text::cut;
use berth_redaction::{self as redaction, Keys};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::inputs::VARIABLE;
use super::leaf::Leaf;
use super::renamed::rename;
use super::sections::is_in_secrets;
use super::{Problem, Source};

/// More than anybody writes by hand, and little enough to be read without a thought.
const MAX_BYTES: u64 = 1024 * 1024;

/// Values in the user's file, the elements of lists included. Each is checked on its own, which
/// takes a moment.
pub(super) const MAX_VALUES: usize = 4096;

/// Problems that are told of one file. Who has more to mend will come back.
const MAX_PROBLEMS: usize = 100;

/// Bytes of a line that are shown with a problem.
const MAX_EXCERPT: usize = 160;

/// A file that was read.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// Device and inode: what the file is, whatever its name.
    pub(super) identity: (u64, u64),
}

/// Reads the user's configuration file. `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Text>, Problem> {
    let problem = |message: String| Problem::new(Source::Path(path.to_owned()), message);
    let file = match open(path, OFlags::empty()) {
        Ok(file) => file,
        Err(error) if is_missing(&error) && nothing_is_at(path) => return Ok(None),
        Err(error) => return Err(problem(unopened(path, &error))),
    };
    let status = regular(&file).map_err(problem)?;
    believed(&status, path).map_err(problem)?;
    text(file, &status).map(Some).map_err(problem)
}

/// Reads the organisation's ceiling. `None` if there is none. Whoever else could write it, or the
/// folder that it lies in, could take it away.
pub(super) fn read_ceiling(path: &Path) -> Result<Option<Text>, Problem> {
    let problem = |message: String| Problem::new(Source::Path(path.to_owned()), message);
    let of_root = |status: &Metadata, what: &str| match (status.uid(), status.mode() & 0o022) {
        (0, 0) => Ok(()),
        (0, _) => Err(problem(format!("{what} is writable by others, so it isn't trusted"))),
        (user, _) => Err(problem(format!(
            "{what} belongs to user {user}, and only a file of root is trusted"
        ))),
    };
    let file = match open(path, OFlags::empty()) {
        Ok(file) => file,
        Err(error) if is_missing(&error) && nothing_is_at(path) => return Ok(None),
        Err(error) => return Err(problem(unopened(path, &error))),
    };
    let status = regular(&file).map_err(problem)?;
    of_root(&status, "it")?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let of_folder = std::fs::metadata(folder)
        .map_err(|error| problem(format!("{} can't be examined: {error}", folder.display())))?;
    of_root(&of_folder, &format!("its folder {}", folder.display()))?;
    text(file, &status).map(Some).map_err(problem)
}

/// Reads a ceiling that somebody named. Whoever wrote it: it only takes away.
pub(super) fn read_named_ceiling(path: &Path) -> Result<Text, Problem> {
    let problem = |message: String| {
        Problem::new(Source::Variable(VARIABLE.to_owned()), format!("{} {message}", path.display()))
    };
    let file = open(path, OFlags::empty())
        .map_err(|error| problem(format!("can't be opened: {error}")))?;
    let status = regular(&file).map_err(problem)?;
    text(file, &status).map_err(problem)
}

/// Reads the file of the working directory. `None` if there is none, or if it is the `other` one,
/// which was read already. Who may write it doesn't matter: it can only narrow, or was seen by the
/// user as it is.
pub(super) fn read_unbelieved(
    path: &Path,
    other: Option<(u64, u64)>,
) -> Result<Option<Text>, Problem> {
    let problem = |message: String| Problem::new(Source::Path(path.to_owned()), message);
    let file = match open(path, OFlags::NOFOLLOW) {
        Ok(file) => file,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            let leads_to_the_other = std::fs::metadata(path)
                .is_ok_and(|status| Some((status.dev(), status.ino())) == other);
            let message = "is a link, which is not followed in the working directory; put the file itself there, or remove it";
            return if leads_to_the_other { Ok(None) } else { Err(problem(message.to_owned())) };
        }
        Err(error) => return Err(problem(format!("can't be opened: {error}"))),
    };
    // While a command runs, an empty folder stands where it must not make such a file.
    if file.metadata().is_ok_and(|status| status.is_dir())
        && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
    {
        return Ok(None);
    }
    let status = regular(&file).map_err(problem)?;
    if Some((status.dev(), status.ino())) == other {
        return Ok(None);
    }
    text(file, &status).map(Some).map_err(problem)
}

/// Whether nobody has put anything there. A link that leads nowhere, and a folder that is none,
/// were meant to lead to a file, and what that denies must not be forgotten.
pub(super) fn nothing_is_at(path: &Path) -> bool {
    let first = path.ancestors().find(|at| std::fs::symlink_metadata(at).is_ok());
    first.is_none_or(|at| at != path && at.is_dir())
}

fn unopened(path: &Path, error: &std::io::Error) -> String {
    match path.ancestors().find(|at| std::fs::symlink_metadata(at).is_ok()) {
        Some(at) if is_missing(error) && at.is_symlink() => {
            let what = if at == path { "it".to_owned() } else { at.display().to_string() };
            format!(
                "can't be opened: {what} is a link that leads nowhere; bring back what it leads to, or remove the link"
            )
        }
        _ => format!("can't be opened: {error}"),
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn open(path: &Path, flags: OFlags) -> std::io::Result<File> {
    // Not blocking: opening a FIFO would wait for somebody to write into it.
    OpenOptions::new()
        .read(true)
        .custom_flags((flags | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
}

/// Asked of the open file: a name could be given to another file meanwhile.
fn regular(file: &File) -> Result<Metadata, String> {
    let status = file.metadata().map_err(|error| format!("can't be examined: {error}"))?;
    if status.is_file() { Ok(status) } else { Err("is not a regular file".to_owned()) }
}

fn text(file: File, status: &Metadata) -> Result<Text, String> {
    let mut text = String::new();
    match file.take(MAX_BYTES + 1).read_to_string(&mut text) {
        Ok(_) if text.len() as u64 > MAX_BYTES => {
            Err("is larger than 1 MiB, which no configuration is".to_owned())
        }
        Ok(_) => Ok(Text { text, identity: (status.dev(), status.ino()) }),
        Err(error) => Err(format!("can't be read: {error}")),
    }
}

/// Who can write the configuration can grant anything, so nobody but the user and root may.
fn believed(status: &Metadata, path: &Path) -> Result<(), String> {
    let user = rustix::process::geteuid().as_raw();
    let shown = path.display();
    if status.uid() != user && status.uid() != 0 {
        return Err(format!(
            "belongs to user {}, neither you nor root; if you trust it: chown {user} '{shown}'",
            status.uid()
        ));
    }
    if status.mode() & 0o022 != 0 {
        return Err(format!(
            "it is writable by others, so it isn't trusted; check it, then run: chmod go-w '{shown}'"
        ));
    }
    Ok(())
}

/// The values in `text`, at most `max_values`, and what is wrong with them, in the order of the
/// lines.
pub(super) fn parse(path: &Path, text: &str, max_values: usize) -> (Vec<Leaf>, Vec<Problem>) {
    let line_ends: Vec<usize> =
        text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let line = |offset: usize| 1 + line_ends.partition_point(|end| *end < offset);
    let at = |offset: usize| Source::File { path: path.to_owned(), line: line(offset) };
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<Problem> = errors
        .iter()
        .enumerate()
        .map(|(index, error)| {
            let start = error.span().map_or(0, |span| span.start);
            // Looked for once, or a long file of them would take forever.
            let first = error
                .span()
                .filter(|_| index == 0 && error.message() == "duplicate key")
                .and_then(|span| first_of(text, &span));
            let first = first
                .map_or(String::new(), |first| format!("; it is already in line {}", line(first)));
            Problem::new(at(start), format!("is not TOML: {}{first}", error.message()))
        })
        .collect();
    let mut leaves = Vec::new();
    // What a parser guessed behind a syntax error would only be reported as further problems that
    // are not there.
    if problems.is_empty() {
        // Counted before any is copied: each takes the whole path of its table along.
        let values = values_in(table.get_ref());
        if values > max_values {
            problems = vec![Problem::new(
                at(0),
                format!("has {values} values; no configuration needs more than {max_values}"),
            )];
        } else {
            walk(
                table.get_ref(),
                &mut Vec::new(),
                &mut Vec::new(),
                &at,
                &mut leaves,
                &mut problems,
            );
            let twice = rename(&mut leaves);
            // A name that could not be replaced would be told of as an unknown one too.
            problems.extend(if twice.is_empty() {
                leaves.iter().flat_map(Leaf::problems).collect()
            } else {
                twice
            });
        }
    }
    let line_of =
        |problem: &Problem| if let Source::File { line, .. } = problem.source { line } else { 0 };
    problems.sort_by_key(line_of);
    // A misspelt table is one mistake, however many keys it holds.
    problems.dedup();
    problems.truncate(MAX_PROBLEMS);
    let lines: Vec<&str> = text.lines().collect();
    // Whoever writes a secret where its source belongs mustn't find it in a message.
    let of_secrets = leaves.iter().filter(|leaf| is_in_secrets(&leaf.path));
    let hidden: Vec<&Source> =
        of_secrets.flat_map(|leaf| leaf.sources.iter().chain(&leaf.elements)).collect();
    for problem in problems.iter_mut().filter(|problem| !hidden.contains(&&problem.source)) {
        let line = line_of(problem).checked_sub(1).and_then(|index| lines.get(index));
        problem.excerpt =
            line.map(|line| redaction::text(cut(line, MAX_EXCERPT), Keys::Settings).into_owned());
    }
    (leaves, problems)
}

/// Where the key stands first that is written `again`, unless there are several of that name above.
fn first_of(text: &str, again: &Range<usize>) -> Option<usize> {
    fn collect(table: &DeTable<'_>, name: &str, starts: &mut Vec<usize>) {
        for (key, value) in table {
            if key.get_ref() == name {
                starts.push(key.span().start);
            }
            if let DeValue::Table(below) = value.get_ref() {
                collect(below, name, starts);
            }
        }
    }
    let name = text.get(again.clone())?.trim_matches(['"', '\'']);
    let above = &text[..=text[..again.start].rfind('\n')?];
    let mut starts = Vec::new();
    collect(DeTable::parse_recoverable(above).0.get_ref(), name, &mut starts);
    if let [only] = starts.as_slice() { Some(*only) } else { None }
}

fn values_in(table: &DeTable<'_>) -> usize {
    let values = table.values().map(|value| match value.get_ref() {
        DeValue::Table(below) if !below.is_empty() => values_in(below),
        value => 1 + value.as_array().map_or(0, |elements| elements.len()),
    });
    values.sum()
}

fn walk(
    table: &DeTable<'_>,
    path: &mut Vec<String>,
    sources: &mut Vec<Source>,
    at: &impl Fn(usize) -> Source,
    leaves: &mut Vec<Leaf>,
    problems: &mut Vec<Problem>,
) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        sources.push(at(key.span().start));
        match value.get_ref() {
            DeValue::Table(below) if !below.is_empty() => {
                walk(below, path, sources, at, leaves, problems);
            }
            _ => match owned(value) {
                Ok(owned) => {
                    let elements = value
                        .get_ref()
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|element| at(element.span().start))
                        .collect();
                    leaves.push(Leaf {
                        path: path.clone(),
                        value: owned,
                        sources: sources.clone(),
                        elements,
                        renamed: None,
                    });
                }
                Err(message) => {
                    let message = format!("`{}`: {message}", super::keys::dotted(path));
                    problems.push(Problem::new(at(value.span().start), message));
                }
            },
        }
        path.pop();
        sources.pop();
    }
}

fn owned(value: &Spanned<DeValue<'_>>) -> Result<toml::Value, String> {
    toml::Value::deserialize(ValueDeserializer::from(value.clone()))
        .map_err(|error| error.message().to_owned())
}
