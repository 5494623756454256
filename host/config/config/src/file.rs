//! Reads a `toolhold.toml`: refuses one that others can write, and finds its values and its errors.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toolhold_contract::text::{cut, shell_word};
use toolhold_data_dir::PinnedDirectory;
use toolhold_redaction::{self as redaction, Keys};

use toolhold_config_keys::is_in_secrets;

use super::inputs::VARIABLE;
use super::leaf::Leaf;
use super::renamed::rename;
use super::{Problem, Source};

/// Bytes of a file: more than anybody writes by hand, and quick to read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Values in the user's file, including the elements of lists. Each is checked on its own, which
/// takes time.
pub(super) const MAX_VALUES: usize = 4096;

/// Problems that are reported for one file.
const MAX_PROBLEMS: usize = 100;

/// Bytes of a line that are shown with a problem.
const MAX_EXCERPT: usize = 160;

/// A file that was read.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// Device and inode: they identify the file under any name.
    pub(super) identity: (u64, u64),
}

/// A file that isn't used. With a wrong owner or mode comes the command that fixes it.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("can't be opened: {0}")]
    Open(#[source] io::Error),
    #[error("can't be examined: {0}")]
    Examine(#[source] io::Error),
    #[error("is not a regular file")]
    Kind,
    #[error("is larger than 1 MiB, which is the limit")]
    Size,
    #[error("can't be read: {0}")]
    Read(#[source] io::Error),
    #[error("belongs to user {owner}, who is neither you nor root; if you trust it, run: {fix}")]
    Owner { owner: u32, fix: String },
    #[error("others can write to the file, so it isn't trusted; check the file, then run: {0}")]
    Writable(String),
    #[error(
        "others can replace the file in its folder, so it isn't trusted; check the file, then run: \
         {0}"
    )]
    Exchangeable(String),
}

fn problem(path: &Path, message: impl fmt::Display) -> Problem {
    Problem::new(Source::Path(path.to_owned()), message.to_string())
}

/// Reads the user's configuration file. `None` if it is missing.
pub(super) fn read(path: &Path) -> Result<Option<Text>, Problem> {
    let file = match open(path, OFlags::empty()) {
        Ok(file) => file,
        Err(error) if is_missing(&error) && nothing_is_at(path) => return Ok(None),
        Err(error) => return Err(problem(path, unopened(path, &error))),
    };
    let status = regular(&file).map_err(|error| problem(path, error))?;
    check_writers(&status, path).map_err(|error| problem(path, error))?;
    text(file, &status).map(Some).map_err(|error| problem(path, error))
}

/// Reads a file of the organisation: a ceiling, its keys, or the defaults. `None` if it is missing.
/// Only root may be able to write it and its folder: any other writer could remove it.
pub(super) fn read_ceiling(path: &Path) -> Result<Option<Text>, Problem> {
    let file = match open(path, OFlags::empty()) {
        Ok(file) => file,
        Err(error) if is_missing(&error) && nothing_is_at(path) => return Ok(None),
        Err(error) => return Err(problem(path, unopened(path, &error))),
    };
    let status = regular(&file).map_err(|error| problem(path, error))?;
    check_root(path, &status, "the file")?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder_status = std::fs::metadata(folder).map_err(|error| {
        problem(path, format_args!("{} can't be examined: {error}", folder.display()))
    })?;
    check_root(path, &folder_status, &format!("its folder {}", folder.display()))?;
    text(file, &status).map(Some).map_err(|error| problem(path, error))
}

fn check_root(path: &Path, status: &Metadata, what: &str) -> Result<(), Problem> {
    match (status.uid(), status.mode() & 0o022) {
        (0, 0) => Ok(()),
        (0, _) => Err(problem(
            path,
            format_args!("others can write to {what}, so the file isn't trusted"),
        )),
        (user, _) => Err(problem(
            path,
            format_args!("{what} belongs to user {user}; only files of root are trusted"),
        )),
    }
}

/// Reads the ceiling that a variable names. Its writer doesn't matter, since it only takes away.
pub(super) fn read_named_ceiling(path: &Path) -> Result<Text, Problem> {
    read_unchecked(path).map_err(|error| {
        Problem::new(Source::Variable(VARIABLE.to_owned()), format!("{} {error}", path.display()))
    })
}

fn read_unchecked(path: &Path) -> Result<Text, FileError> {
    let file = open(path, OFlags::empty()).map_err(FileError::Open)?;
    let status = regular(&file)?;
    text(file, &status)
}

/// Reads a file whoever can write it.
pub(super) fn read_any(path: &Path) -> Result<Text, Problem> {
    let file =
        open(path, OFlags::empty()).map_err(|error| problem(path, unopened(path, &error)))?;
    let status = regular(&file).map_err(|error| problem(path, error))?;
    text(file, &status).map_err(|error| problem(path, error))
}

/// The owner, mode and contents of a file. `None` if it can't be read, or isn't a regular file.
pub(super) fn state(path: &Path) -> Option<(u32, u32, Vec<u8>)> {
    let file = open(path, OFlags::empty()).ok()?;
    let status = regular(&file).ok()?;
    let mut contents = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut contents).ok()?;
    Some((status.uid(), status.mode(), contents))
}

/// Reads the file of the working directory. `None` if it is missing, or if it is the `other` file,
/// which was read already. Its writer doesn't matter: either it only narrows, or the user has
/// trusted exactly this content.
pub(super) fn read_project(
    path: &Path,
    other: Option<(u64, u64)>,
) -> Result<Option<Text>, Problem> {
    let file = match open(path, OFlags::NOFOLLOW) {
        Ok(file) => file,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            let leads_to_other = std::fs::metadata(path)
                .is_ok_and(|status| Some((status.dev(), status.ino())) == other);
            let message = "is a link; links aren't followed in the working directory. Put the file \
                 itself there, or remove the link";
            return if leads_to_other { Ok(None) } else { Err(problem(path, message)) };
        }
        Err(error) => return Err(problem(path, FileError::Open(error))),
    };
    // While a command runs, an empty folder keeps it from making such a file. One of a process that
    // was killed goes.
    if file.metadata().is_ok_and(|status| status.is_dir())
        && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
    {
        drop(PinnedDirectory::keep_free(path));
        return Ok(None);
    }
    let status = regular(&file).map_err(|error| problem(path, error))?;
    if Some((status.dev(), status.ino())) == other {
        return Ok(None);
    }
    text(file, &status).map(Some).map_err(|error| problem(path, error))
}

/// Whether nothing is at the path. A broken link, or a file in place of a folder, counts as
/// something: it was meant to lead to a file whose denials must not be lost.
pub(super) fn nothing_is_at(path: &Path) -> bool {
    let first = path.ancestors().find(|at| std::fs::symlink_metadata(at).is_ok());
    first.is_none_or(|at| at != path && at.is_dir())
}

fn unopened(path: &Path, error: &std::io::Error) -> String {
    match path.ancestors().find(|at| std::fs::symlink_metadata(at).is_ok()) {
        Some(at) if is_missing(error) && at.is_symlink() => {
            let what = if at == path { "it".to_owned() } else { at.display().to_string() };
            format!(
                "can't be opened: {what} is a link that leads nowhere; restore its target, or remove the link"
            )
        }
        _ => format!("can't be opened: {}", with_remedy(path, error)),
    }
}

/// An error of opening a file that every user has to read. If its mode is the reason, the command
/// that fixes it follows.
pub(super) fn with_remedy(path: &Path, error: &std::io::Error) -> String {
    if error.kind() != ErrorKind::PermissionDenied {
        return error.to_string();
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let (mode, at) = match std::fs::symlink_metadata(path) {
        Ok(_) => ("a+r", path),
        Err(_) => ("a+rx", folder),
    };
    format!(
        "{error}; if you may read it, its owner has to run: chmod {mode} {}",
        shell_word(&at.display().to_string())
    )
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn open(path: &Path, flags: OFlags) -> std::io::Result<File> {
    // Non-blocking: otherwise opening a FIFO would wait for a writer.
    OpenOptions::new()
        .read(true)
        .custom_flags((flags | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
}

/// Checks the open file, not its name: the name could lead to another file by now.
fn regular(file: &File) -> Result<Metadata, FileError> {
    let status = file.metadata().map_err(FileError::Examine)?;
    if status.is_file() { Ok(status) } else { Err(FileError::Kind) }
}

fn text(file: File, status: &Metadata) -> Result<Text, FileError> {
    let mut text = String::new();
    match file.take(MAX_BYTES + 1).read_to_string(&mut text) {
        Ok(_) if text.len() as u64 > MAX_BYTES => Err(FileError::Size),
        Ok(_) => Ok(Text { text, identity: (status.dev(), status.ino()) }),
        Err(error) => Err(FileError::Read(error)),
    }
}

/// Refuses a file that anybody but the user and root can write: its writer could grant anything.
fn check_writers(status: &Metadata, path: &Path) -> Result<(), FileError> {
    let user = rustix::process::geteuid().as_raw();
    let word = shell_word(&path.display().to_string());
    if status.uid() != user && status.uid() != 0 {
        let fix = format!("chown {user} {word}");
        return Err(FileError::Owner { owner: status.uid(), fix });
    }
    if status.mode() & 0o022 != 0 {
        return Err(FileError::Writable(format!("chmod go-w {word}")));
    }
    // Others could exchange the file. In a sticky folder such as `/tmp`, only its owner can.
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = std::fs::metadata(folder).map_or(0, |status| status.mode());
    if mode & 0o1002 == 0o002 {
        let word = shell_word(&folder.display().to_string());
        return Err(FileError::Exchangeable(format!("chmod o-w {word}")));
    }
    Ok(())
}

fn line_of(problem: &Problem) -> usize {
    if let Source::File { line, .. } = problem.source { line } else { 0 }
}

/// The line numbers of a file.
struct LineNumbers<'p> {
    path: &'p Path,
    ends: Vec<usize>,
}

impl<'p> LineNumbers<'p> {
    fn new(path: &'p Path, text: &str) -> Self {
        let bytes = text.bytes().enumerate();
        Self { path, ends: bytes.filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect() }
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.ends.partition_point(|end| *end < offset)
    }

    fn source(&self, offset: usize) -> Source {
        Source::File { path: self.path.to_owned(), line: self.line(offset) }
    }
}

/// The values in `text`, at most `max_values`, and the problems with them, in the order of the
/// lines.
pub(super) fn parse(path: &Path, text: &str, max_values: usize) -> (Vec<Leaf>, Vec<Problem>) {
    let lines = LineNumbers::new(path, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<Problem> = errors
        .iter()
        .enumerate()
        .map(|(index, error)| {
            let start = error.span().map_or(0, |span| span.start);
            let mut message = format!("is not TOML: {}", error.message());
            // Only for the first error: a long file with many would take too long.
            if index == 0
                && error.message() == "duplicate key"
                && let Some(first) = error.span().and_then(|span| first_of(text, &span))
            {
                message += &format!("; it is already in line {}", lines.line(first));
            }
            Problem::new(lines.source(start), message)
        })
        .collect();
    let mut leaves = Vec::new();
    // After a syntax error, the parser guesses. Its guesses would only add false problems.
    if problems.is_empty() {
        // Counted before any value is copied: each copy contains the whole path of its table.
        let values = values_in(table.get_ref());
        if values > max_values {
            problems = vec![Problem::new(
                lines.source(0),
                format!("has {values} values; the limit is {max_values}"),
            )];
        } else {
            walk(
                table.get_ref(),
                &mut Vec::new(),
                &mut Vec::new(),
                &lines,
                &mut leaves,
                &mut problems,
            );
            let duplicates = rename(&mut leaves);
            // Otherwise an old name that can't be replaced would also be reported as unknown.
            problems.extend(if duplicates.is_empty() {
                leaves.iter().flat_map(Leaf::problems).collect()
            } else {
                duplicates
            });
        }
    }
    problems.sort_by_key(line_of);
    // A misspelt table is one mistake, even if it has many keys.
    problems.dedup();
    problems.truncate(MAX_PROBLEMS);
    let excerpts: Vec<&str> = text.lines().collect();
    // No line is shown for keys of secrets: it may contain a secret in place of its source.
    let secret_leaves = leaves.iter().filter(|leaf| is_in_secrets(&leaf.path));
    let hidden: Vec<&Source> =
        secret_leaves.flat_map(|leaf| leaf.sources.iter().chain(&leaf.elements)).collect();
    for problem in problems.iter_mut().filter(|problem| !hidden.contains(&&problem.source)) {
        let line = line_of(problem).checked_sub(1).and_then(|index| excerpts.get(index));
        problem.excerpt =
            line.map(|line| redaction::text(cut(line, MAX_EXCERPT), Keys::Settings).into_owned());
    }
    (leaves, problems)
}

/// The first place of the key that is written `again`. `None` if several keys above it have that
/// name.
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
    lines: &LineNumbers<'_>,
    leaves: &mut Vec<Leaf>,
    problems: &mut Vec<Problem>,
) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        sources.push(lines.source(key.span().start));
        match value.get_ref() {
            DeValue::Table(below) if !below.is_empty() => {
                walk(below, path, sources, lines, leaves, problems);
            }
            _ => match owned(value) {
                Ok(owned) => {
                    let elements = value
                        .get_ref()
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|element| lines.source(element.span().start))
                        .collect();
                    leaves.push(Leaf {
                        path: path.clone(),
                        value: owned,
                        sources: sources.clone(),
                        elements,
                        renamed: None,
                    });
                }
                Err(error) => {
                    let message = format!("`{}`: {}", super::keys::dotted(path), error.message());
                    problems.push(Problem::new(lines.source(value.span().start), message));
                }
            },
        }
        path.pop();
        sources.pop();
    }
}

fn owned(value: &Spanned<DeValue<'_>>) -> Result<toml::Value, toml::de::Error> {
    toml::Value::deserialize(ValueDeserializer::from(value.clone()))
}
