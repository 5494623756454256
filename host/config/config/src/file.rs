//! Reads a `toolhold.toml`, and finds its values and problems. Refuses a file that other users can
//! write.

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

use super::inputs::CEILING_VARIABLE;
use super::leaf::Leaf;
use super::renamed::rename;
use super::{Problem, Source};

/// Most bytes of a configuration file. A larger file is refused.
pub(super) const MAX_BYTES: u64 = 1024 * 1024;

/// Most values in the user's file, including the elements of lists. A file with more values is
/// refused, because each value is checked separately.
pub(super) const MAX_VALUES: usize = 4096;

/// Most problems that are reported for one file. Further problems are left out.
const MAX_PROBLEMS: usize = 100;

/// Most bytes of a line that are shown with a problem. A longer line is cut.
const MAX_EXCERPT: usize = 160;

#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// The device and the inode. They identify the file under any name.
    pub(super) identity: (u64, u64),
}

/// The reason why a file isn't used. For a wrong owner or mode, the message contains the command
/// that fixes the owner or the mode.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("can't be opened: {0}")]
    Open(#[source] io::Error),
    #[error("can't be examined: {0}")]
    Examine(#[source] io::Error),
    #[error("is not a regular file")]
    Kind,
    #[error("is larger than {} MiB, the limit", .0 >> 20)]
    Size(u64),
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

/// Reads the user's configuration file. Returns `None` if it is missing.
pub(super) fn read(path: &Path) -> Result<Option<Text>, Problem> {
    let Some(file) = open_if_there(path)? else { return Ok(None) };
    let status = check_regular(&file).map_err(|error| problem(path, error))?;
    check_owner_and_modes(&status, path).map_err(|error| problem(path, error))?;
    read_text(file, &status, MAX_BYTES).map(Some).map_err(|error| problem(path, error))
}

/// Reads a file of the organisation: a ceiling, its keys, the defaults, or an approval. Returns
/// `None` if the file doesn't exist. Refuses a file with more than `max_bytes`, and a file that a
/// user other than root can change or replace.
pub(super) fn read_organisation_file(path: &Path, max_bytes: u64) -> Result<Option<Text>, Problem> {
    let Some(file) = open_if_there(path)? else { return Ok(None) };
    let status = check_regular(&file).map_err(|error| problem(path, error))?;
    check_only_root_writes(path, &status, "the file")?;
    // Only `/` itself has no parent.
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder_status = std::fs::metadata(folder).map_err(|error| {
        problem(path, format_args!("{} can't be examined: {error}", folder.display()))
    })?;
    check_only_root_writes(path, &folder_status, &format!("its folder {}", folder.display()))?;
    read_text(file, &status, max_bytes).map(Some).map_err(|error| problem(path, error))
}

fn open_if_there(path: &Path) -> Result<Option<File>, Problem> {
    match open(path, OFlags::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_missing(&error) && nothing_is_at(path) => Ok(None),
        Err(error) => Err(problem(path, explain_open_error(path, &error))),
    }
}

/// Checks that only root can write to a file or a folder. `what` names the file or the folder in
/// the error.
fn check_only_root_writes(path: &Path, status: &Metadata, what: &str) -> Result<(), Problem> {
    let user = status.uid();
    let message = if user != 0 {
        format!("{what} belongs to user {user}; only files of root are trusted")
    } else if is_writable_by_others(status) {
        format!("others can write to {what}, so the file isn't trusted")
    } else {
        return Ok(());
    };
    Err(problem(path, message))
}

fn is_writable_by_others(status: &Metadata) -> bool {
    status.mode() & 0o022 != 0
}

/// Reads the ceiling that `TOOLHOLD_CEILING` names. The owner isn't checked, because a ceiling
/// can't grant anything.
pub(super) fn read_named_ceiling(path: &Path) -> Result<Text, Problem> {
    read_unchecked(path).map_err(|error| {
        let source = Source::Variable(CEILING_VARIABLE.to_owned());
        Problem::new(source, format!("{} {error}", path.display()))
    })
}

fn read_unchecked(path: &Path) -> Result<Text, FileError> {
    let file = open(path, OFlags::empty()).map_err(FileError::Open)?;
    let status = check_regular(&file)?;
    read_text(file, &status, MAX_BYTES)
}

/// Reads a file without checking who can write it.
pub(super) fn read_any(path: &Path) -> Result<Text, Problem> {
    let file = open(path, OFlags::empty())
        .map_err(|error| problem(path, explain_open_error(path, &error)))?;
    let status = check_regular(&file).map_err(|error| problem(path, error))?;
    read_text(file, &status, MAX_BYTES).map_err(|error| problem(path, error))
}

/// Returns the owner, the mode and the contents of a file. Returns `None` if the file can't be read
/// or isn't a regular file.
pub(super) fn state(path: &Path) -> Option<(u32, u32, Vec<u8>)> {
    let file = open(path, OFlags::empty()).ok()?;
    let status = check_regular(&file).ok()?;
    let mut contents = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut contents).ok()?;
    Some((status.uid(), status.mode(), contents))
}

/// Reads the `toolhold.toml` of the working directory. Returns `None` if the file doesn't exist, or
/// if the file is the user's own file. `user_file` is the device and the inode of the user's file.
///
/// The owner isn't checked. The file only narrows the configuration, unless the user has trusted
/// exactly this content.
pub(super) fn read_project(
    path: &Path,
    user_file: Option<(u64, u64)>,
) -> Result<Option<Text>, Problem> {
    let file = match open(path, OFlags::NOFOLLOW) {
        Ok(file) => file,
        Err(error) if is_missing(&error) => return Ok(None),
        // With `NOFOLLOW`, opening a link fails with this error.
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            let target = std::fs::metadata(path);
            if target.is_ok_and(|status| Some(identity(&status)) == user_file) {
                return Ok(None);
            }
            let message = "is a link; links aren't followed in the working directory. Put the file \
                 itself there, or remove the link";
            return Err(problem(path, message));
        }
        Err(error) => return Err(problem(path, FileError::Open(error))),
    };
    // While a command runs, an empty folder with this name prevents the command from creating the
    // file. If the host was killed meanwhile, the folder is left over. Dropping the value of
    // `keep_free` removes it.
    let is_folder = file.metadata().is_ok_and(|status| status.is_dir());
    if is_folder && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) {
        drop(PinnedDirectory::keep_free(path));
        return Ok(None);
    }
    let status = check_regular(&file).map_err(|error| problem(path, error))?;
    if Some(identity(&status)) == user_file {
        return Ok(None);
    }
    read_text(file, &status, MAX_BYTES).map(Some).map_err(|error| problem(path, error))
}

/// Returns whether nothing exists at the path. A broken link, or a file in place of a folder,
/// counts as existing. The user's file may have been behind it, and treating the file as missing
/// would drop the user's denials.
pub(super) fn nothing_is_at(path: &Path) -> bool {
    match nearest_existing(path) {
        Some(existing) => existing != path && existing.is_dir(),
        None => true,
    }
}

/// Returns the path itself, or its nearest ancestor that exists. Links aren't followed, so a broken
/// link exists.
fn nearest_existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|ancestor| std::fs::symlink_metadata(ancestor).is_ok())
}

/// Explains why a file can't be opened.
fn explain_open_error(path: &Path, error: &std::io::Error) -> String {
    if let Some(existing) = nearest_existing(path)
        && is_missing(error)
        && existing.is_symlink()
    {
        let broken_link =
            if existing == path { "it".to_owned() } else { existing.display().to_string() };
        return format!(
            "can't be opened: {broken_link} is a link that leads nowhere; restore its target, or remove the link"
        );
    }
    format!("can't be opened: {}", with_remedy(path, error))
}

/// Describes an error of opening a file that every user must be able to read. For a wrong mode, the
/// text ends with the command that fixes the mode.
fn with_remedy(path: &Path, error: &std::io::Error) -> String {
    if error.kind() != ErrorKind::PermissionDenied {
        return error.to_string();
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    // If even the status of the file can't be read, the folder is closed to the user, so the
    // folder's mode has to change instead.
    let (mode, unreadable) = match std::fs::symlink_metadata(path) {
        Ok(_) => ("a+r", path),
        Err(_) => ("a+rx", folder),
    };
    let quoted_path = shell_word(&unreadable.display().to_string());
    format!("{error}; if you may read it, its owner has to run: chmod {mode} {quoted_path}")
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn open(path: &Path, flags: OFlags) -> std::io::Result<File> {
    // Without `NONBLOCK`, opening a FIFO would wait for a writer.
    let bits = (flags | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(bits).open(path)
}

/// The open file is checked, because the path may lead to another file by now.
fn check_regular(file: &File) -> Result<Metadata, FileError> {
    let status = file.metadata().map_err(FileError::Examine)?;
    if status.is_file() { Ok(status) } else { Err(FileError::Kind) }
}

fn read_text(file: File, status: &Metadata, max_bytes: u64) -> Result<Text, FileError> {
    let mut text = String::new();
    // One byte above the limit shows that the file is too large.
    file.take(max_bytes + 1).read_to_string(&mut text).map_err(FileError::Read)?;
    if text.len() as u64 > max_bytes {
        return Err(FileError::Size(max_bytes));
    }
    Ok(Text { text, identity: identity(status) })
}

fn identity(status: &Metadata) -> (u64, u64) {
    (status.dev(), status.ino())
}

/// Refuses a file that another user, except root, owns or can write or replace. This user could
/// grant anything to tools.
fn check_owner_and_modes(status: &Metadata, path: &Path) -> Result<(), FileError> {
    let user = rustix::process::geteuid().as_raw();
    let quoted_path = shell_word(&path.display().to_string());
    if status.uid() != user && status.uid() != 0 {
        let fix = format!("chown {user} {quoted_path}");
        return Err(FileError::Owner { owner: status.uid(), fix });
    }
    if is_writable_by_others(status) {
        return Err(FileError::Writable(format!("chmod go-w {quoted_path}")));
    }
    // Other users could replace the file, except in a sticky folder such as `/tmp`.
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The file itself was opened and checked, so an unreadable status of its folder isn't a reason
    // to refuse the file.
    let mode = std::fs::metadata(folder).map_or(0, |status| status.mode());
    let is_open_to_others = mode & 0o002 != 0;
    let is_sticky = mode & 0o1000 != 0;
    if is_open_to_others && !is_sticky {
        let quoted_folder = shell_word(&folder.display().to_string());
        return Err(FileError::Exchangeable(format!("chmod o-w {quoted_folder}")));
    }
    Ok(())
}

/// Returns 0 for a problem without a line.
fn line_of(problem: &Problem) -> usize {
    if let Source::File { line, .. } = problem.source { line } else { 0 }
}

struct LineNumbers<'p> {
    path: &'p Path,
    ends: Vec<usize>,
}

impl<'p> LineNumbers<'p> {
    fn new(path: &'p Path, text: &str) -> Self {
        let ends = text.match_indices('\n').map(|(offset, _)| offset).collect();
        Self { path, ends }
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.ends.partition_point(|end| *end < offset)
    }

    fn source(&self, offset: usize) -> Source {
        Source::File { path: self.path.to_owned(), line: self.line(offset) }
    }
}

/// Returns the values in `text`, and their problems in the order of lines. A text with more than
/// `max_values` values is refused.
pub(super) fn parse(path: &Path, text: &str, max_values: usize) -> (Vec<Leaf>, Vec<Problem>) {
    let lines = LineNumbers::new(path, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut leaves = Vec::new();
    let mut problems = syntax_problems(text, &lines, &errors);
    // After a syntax error, the parser guesses values. These values would only cause false
    // problems.
    if problems.is_empty() {
        // Count the values before copying them. Each copy contains the path of its table, so the
        // copies of too many values would take much memory.
        let count = count_values(table.get_ref());
        if count > max_values {
            let message = format!("has {count} values; the limit is {max_values}");
            problems.push(Problem::new(lines.source(0), message));
        } else {
            collect_leaves(
                table.get_ref(),
                &mut Vec::new(),
                &mut Vec::new(),
                &lines,
                &mut leaves,
                &mut problems,
            );
            let duplicates = rename(&mut leaves);
            // If an old name couldn't be replaced, report only that: `Leaf::problems` would also
            // report it as an unknown key.
            if duplicates.is_empty() {
                problems.extend(leaves.iter().flat_map(Leaf::problems));
            } else {
                problems.extend(duplicates);
            }
        }
    }

    problems.sort_by_key(line_of);
    // A misspelt table would otherwise be reported once for each of its keys.
    problems.dedup();
    problems.truncate(MAX_PROBLEMS);
    add_excerpts(text, &leaves, &mut problems);
    (leaves, problems)
}

/// Returns a problem for each error in a text that isn't TOML.
fn syntax_problems(
    text: &str,
    lines: &LineNumbers<'_>,
    errors: &[toml::de::Error],
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, error) in errors.iter().enumerate() {
        // An error without a range is an error of the whole file.
        let start = error.span().map_or(0, |span| span.start);
        let mut message = format!("is not TOML: {}", error.message());
        // Only the first error gets the line of the first key. In a long file with many errors,
        // these searches would take too long.
        if index == 0
            && error.message() == "duplicate key"
            && let Some(span) = error.span()
            && let Some(first) = find_first_key(text, &span)
        {
            message += &format!("; it is already in line {}", lines.line(first));
        }
        problems.push(Problem::new(lines.source(start), message));
    }
    problems
}

/// Adds to each problem its line. A line with a key of a secret isn't shown, because a user may
/// have written the secret itself there.
fn add_excerpts(text: &str, leaves: &[Leaf], problems: &mut [Problem]) {
    let lines: Vec<&str> = text.lines().collect();
    let secret_leaves = leaves.iter().filter(|leaf| is_in_secrets(&leaf.path));
    let hidden: Vec<&Source> =
        secret_leaves.flat_map(|leaf| leaf.sources.iter().chain(&leaf.elements)).collect();
    for problem in problems {
        if hidden.contains(&&problem.source) {
            continue;
        }
        // A problem without a line has the line number 0.
        let Some(index) = line_of(problem).checked_sub(1) else { continue };
        if let Some(line) = lines.get(index) {
            let excerpt = redaction::text(cut(line, MAX_EXCERPT), Keys::Settings);
            problem.excerpt = Some(excerpt.into_owned());
        }
    }
}

/// Finds the first of two duplicate keys, and returns its offset. `second` is the range of the
/// second key. The search compares only the names of keys, not their tables. So it returns `None`
/// unless exactly one earlier key has the name.
fn find_first_key(text: &str, second: &Range<usize>) -> Option<usize> {
    fn collect_starts(table: &DeTable<'_>, name: &str, starts: &mut Vec<usize>) {
        for (key, value) in table {
            if key.get_ref() == name {
                starts.push(key.span().start);
            }
            if let DeValue::Table(inner_table) = value.get_ref() {
                collect_starts(inner_table, name, starts);
            }
        }
    }

    // A key may be written in quotation marks.
    let name = text.get(second.clone())?.trim_matches(['"', '\'']);
    // Only the lines before the second key are parsed.
    let line_end = text[..second.start].rfind('\n')?;
    let (table, _) = DeTable::parse_recoverable(&text[..=line_end]);
    let mut starts = Vec::new();
    collect_starts(table.get_ref(), name, &mut starts);
    if let [only] = starts.as_slice() { Some(*only) } else { None }
}

/// Counts the values in a table. A list is one value, and each of its elements is another value. An
/// empty table is one value.
fn count_values(table: &DeTable<'_>) -> usize {
    let counts = table.values().map(|value| match value.get_ref() {
        DeValue::Table(inner_table) if !inner_table.is_empty() => count_values(inner_table),
        value => 1 + value.as_array().map_or(0, |elements| elements.len()),
    });
    counts.sum()
}

/// Adds the values in a table to `leaves`. `path` and `sources` belong to the table.
fn collect_leaves(
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
            DeValue::Table(inner_table) if !inner_table.is_empty() => {
                collect_leaves(inner_table, path, sources, lines, leaves, problems);
            }
            _ => match make_leaf(path, sources, value, lines) {
                Ok(leaf) => leaves.push(leaf),
                Err(problem) => problems.push(problem),
            },
        }
        path.pop();
        sources.pop();
    }
}

fn make_leaf(
    path: &[String],
    sources: &[Source],
    value: &Spanned<DeValue<'_>>,
    lines: &LineNumbers<'_>,
) -> Result<Leaf, Problem> {
    let toml_value = to_toml_value(value).map_err(|error| {
        let message = format!("`{}`: {}", super::keys::dotted(path), error.message());
        Problem::new(lines.source(value.span().start), message)
    })?;
    let items = value.get_ref().as_array().into_iter().flatten();
    let elements = items.map(|item| lines.source(item.span().start));
    Ok(Leaf {
        path: path.to_vec(),
        value: toml_value,
        sources: sources.to_vec(),
        elements: elements.collect(),
        renamed: None,
    })
}

fn to_toml_value(value: &Spanned<DeValue<'_>>) -> Result<toml::Value, toml::de::Error> {
    toml::Value::deserialize(ValueDeserializer::from(value.clone()))
}
