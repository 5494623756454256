//! The tools that look: what was changed, by whom, and which branches there are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool, add_notice};

use crate::command::{Git, LOOKS, PLAIN_DIFF, check};
use crate::run::Printed;

/// Commits and branches that are listed.
const MAX_LISTED: u16 = 200;

/// Between the fields of a record that git prints.
const FIELD: char = '\u{1f}';

/// A text, with a notice if its end is missing.
fn text(Printed { mut text, cut, .. }: Printed) -> Output {
    if text.is_empty() {
        return Output::text("no differences");
    }
    if cut {
        add_notice(&mut text, "The rest is left out. Name paths to see less.");
    }
    Output::text(text)
}

pub struct Diff;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// The older commit or branch. By default what is staged, or with `staged` the last commit.
    from: Option<String>,
    /// The newer commit or branch. By default the files as they are now.
    to: Option<String>,
    /// Compare what is staged instead of the files.
    #[serde(default)]
    staged: bool,
    /// Only these files and folders.
    #[serde(default)]
    paths: Vec<String>,
}

impl Tool for Diff {
    const NAME: &str = "diff";
    const DESCRIPTION: &str = "Shows differences in a git repository, as a patch: of the files against what is staged, of what is staged (`staged`), or between commits (`from`, `to`).";
    const PROMISES: Promises = LOOKS;
    const SUBJECTS: &[Subject] =
        &[Subject::reads_path("/repository"), Subject::reads_path("/paths")];
    type Arguments = DiffArguments;

    fn call(arguments: DiffArguments, _: &Call) -> Result<Output, Failure> {
        let DiffArguments { repository, from, to, staged, paths } = arguments;
        if to.is_some() && (from.is_none() || staged) {
            return Err(Failure::invalid("`to` needs `from`, and can't be given with `staged`"));
        }
        Git::look("diff", repository)
            .args(PLAIN_DIFF)
            .args(staged.then_some("--cached"))
            .args(["--end-of-options"])
            .revision("from", from)?
            .revision("to", to)?
            .paths(paths)
            .run()
            .map(text)
    }
}

pub struct Log;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// The commit or branch to start at, or a range: `main..topic`. By default what is checked out.
    revision: Option<String>,
    /// How many commits, from 1 to 200. By default 20.
    #[schemars(range(min = 1, max = 200))]
    count: Option<u16>,
    /// Only commits that change these files and folders.
    #[serde(default)]
    paths: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Commits {
    commits: Vec<Entry>,
}

#[derive(Serialize, JsonSchema)]
struct Entry {
    commit: String,
    author: String,
    /// When it was written, in ISO 8601.
    date: String,
    subject: String,
}

impl Tool for Log {
    const NAME: &str = "log";
    const DESCRIPTION: &str = "Lists commits of a git repository, the newest first, each with its author, date and subject. `show` shows one of them.";
    const PROMISES: Promises = LOOKS;
    const SUBJECTS: &[Subject] =
        &[Subject::reads_path("/repository"), Subject::reads_path("/paths")];
    type Arguments = LogArguments;

    fn output_schema() -> Option<schemars::Schema> {
        Some(toolhold_sdk::schema::for_type::<Commits>())
    }

    fn call(arguments: LogArguments, _: &Call) -> Result<Output, Failure> {
        let LogArguments { repository, revision, count, paths } = arguments;
        let count = count.unwrap_or(20).clamp(1, MAX_LISTED);
        let Printed { text, .. } = Git::look("log", repository)
            .args(PLAIN_DIFF)
            .args(["--no-show-signature", "-z", "--format=%H%x1f%an%x1f%aI%x1f%s"])
            .args([format!("--max-count={count}"), "--end-of-options".to_owned()])
            .revision("revision", revision)?
            .paths(paths)
            .run()?;
        Output::json(&Commits { commits: text.split('\0').filter_map(entry).collect() })
    }
}

fn entry(record: &str) -> Option<Entry> {
    let mut fields = record.splitn(4, FIELD).map(str::to_owned);
    Some(Entry {
        commit: fields.next()?,
        author: fields.next()?,
        date: fields.next()?,
        subject: fields.next()?,
    })
}

pub struct Show;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// The commit, or `COMMIT:PATH` for a file as it was then. By default the last commit.
    revision: Option<String>,
    /// Only these files and folders of the commit.
    #[serde(default)]
    paths: Vec<String>,
}

impl Tool for Show {
    const NAME: &str = "show";
    const DESCRIPTION: &str = "Shows a commit of a git repository: its message and its patch. With `COMMIT:PATH`, shows a file as it was in that commit.";
    const PROMISES: Promises = LOOKS;
    const SUBJECTS: &[Subject] =
        &[Subject::reads_path("/repository"), Subject::reads_path("/paths")];
    type Arguments = ShowArguments;

    fn call(arguments: ShowArguments, _: &Call) -> Result<Output, Failure> {
        let ShowArguments { repository, revision, paths } = arguments;
        Git::look("show", repository)
            .args(PLAIN_DIFF)
            .args(["--no-show-signature", "--format=fuller", "--end-of-options"])
            .revision("revision", Some(revision.unwrap_or_else(|| "HEAD".to_owned())))?
            .paths(paths)
            .run()
            .map(text)
    }
}

pub struct Branch;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// List the branches of other repositories too, as they were last fetched.
    #[serde(default)]
    all: bool,
}

#[derive(Serialize, JsonSchema)]
struct Branches {
    branches: Vec<Listed>,
    /// Whether there are more.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct Listed {
    name: String,
    commit: String,
    /// Whether it is checked out.
    current: bool,
}

impl Tool for Branch {
    const NAME: &str = "branch";
    const DESCRIPTION: &str =
        "Lists the branches of a git repository. `checkout` changes to another one, or makes one.";
    const PROMISES: Promises = Promises { closed_world: true, ..LOOKS };
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/repository")];
    type Arguments = BranchArguments;

    fn output_schema() -> Option<schemars::Schema> {
        Some(toolhold_sdk::schema::for_type::<Branches>())
    }

    fn call(
        BranchArguments { repository, all }: BranchArguments,
        _: &Call,
    ) -> Result<Output, Failure> {
        let Printed { text, cut, .. } = Git::look("branch", repository)
            // The repository's order may be by signature, which starts a program.
            .args(["--list", "--no-color", "--no-column", "--sort=refname"])
            .args(all.then_some("--all"))
            .args(["--format=%(HEAD)%1f%(refname:short)%1f%(objectname)"])
            .run()?;
        let mut branches: Vec<Listed> = text.lines().filter_map(listed).collect();
        let truncated = cut || branches.len() > MAX_LISTED.into();
        branches.truncate(MAX_LISTED.into());
        Output::json(&Branches { branches, truncated })
    }
}

fn listed(line: &str) -> Option<Listed> {
    let mut fields = line.splitn(3, FIELD);
    Some(Listed {
        current: fields.next()? == "*",
        name: fields.next()?.to_owned(),
        commit: fields.next()?.to_owned(),
    })
}

pub struct Blame;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlameArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// The file.
    path: String,
    /// The commit or branch. By default the file as it is now.
    revision: Option<String>,
    /// The first line, counted from 1.
    #[schemars(range(min = 1))]
    first_line: Option<u32>,
    /// The last line.
    #[schemars(range(min = 1))]
    last_line: Option<u32>,
}

impl Tool for Blame {
    const NAME: &str = "blame";
    const DESCRIPTION: &str = "Says for each line of a file in a git repository which commit changed it last, who wrote that, and when.";
    const PROMISES: Promises = LOOKS;
    const SUBJECTS: &[Subject] =
        &[Subject::reads_path("/repository"), Subject::reads_path("/path")];
    type Arguments = BlameArguments;

    fn call(arguments: BlameArguments, _: &Call) -> Result<Output, Failure> {
        let BlameArguments { repository, path, revision, first_line, last_line } = arguments;
        let lines = match (first_line.unwrap_or(1), last_line) {
            (first, Some(last)) if first > last => {
                return Err(Failure::invalid(format!(
                    "first_line is {first}, after last_line, {last}"
                )));
            }
            (1, None) => None,
            (first, None) => Some(format!("-L{first},")),
            (first, Some(last)) => Some(format!("-L{first},{last}")),
        };
        if let Some(revision) = &revision {
            check("revision", revision)?;
        }
        Git::look("blame", repository)
            .args(["--no-textconv", "--date=short"])
            .args(lines)
            .args(revision)
            .paths(vec![path])
            .run()
            .map(text)
    }
}
