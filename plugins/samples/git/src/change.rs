//! The tools that change a repository. Nothing of it leaves the machine.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool};

use crate::command::{CHANGES, Git, check};
use crate::programs::{may_exist, refuse_programs};
use crate::run::Printed;

/// Bytes of a message.
const MAX_MESSAGE: usize = 16 * 1024;

/// The output of git, or else a report on the change, and behind it git's warnings.
fn done(Printed { text, warnings, .. }: Printed, otherwise: String) -> Output {
    let text = text.trim_end();
    let text = if text.is_empty() { otherwise } else { text.to_owned() };
    Output::text(format!("{text}\n{warnings}").trim_end())
}

fn check_message(message: &str) -> Result<(), Failure> {
    let problem = match message.len() {
        _ if message.trim().is_empty() => "message is empty".to_owned(),
        length if length > MAX_MESSAGE => {
            format!("message is {length} bytes; the limit is {MAX_MESSAGE}")
        }
        _ if message.contains('\0') => "message contains a NUL character".to_owned(),
        _ => return Ok(()),
    };
    Err(Failure::invalid(problem))
}

pub struct Add;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// The files and folders.
    #[schemars(length(min = 1))]
    paths: Vec<String>,
}

impl Tool for Add {
    const NAME: &str = "add";
    const DESCRIPTION: &str = "Stages files of a git repository for the next commit, with what is new, changed or deleted below folders.";
    const PROMISES: Promises = Promises { additive: true, idempotent: true, ..CHANGES };
    const SUBJECTS: &[Subject] =
        &[Subject::writes_path("/repository"), Subject::reads_path("/paths")];
    type Arguments = AddArguments;

    fn call(AddArguments { repository, paths }: AddArguments, _: &Call) -> Result<Output, Failure> {
        if paths.is_empty() {
            return Err(Failure::invalid("paths is empty: name files or folders"));
        }
        let staged = format!("staged {}", paths.join(", "));
        Git::change("add", repository).paths(paths).run().map(|printed| done(printed, staged))
    }
}

pub struct Commit;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// The message: a subject, and after an empty line the rest.
    message: String,
    /// Stage all changed and deleted files first, but no new ones.
    #[serde(default)]
    all: bool,
}

impl Tool for Commit {
    const NAME: &str = "commit";
    const DESCRIPTION: &str = "Commits what is staged in a git repository. Hooks don't run, and the commit isn't signed. Fails if nothing is staged.";
    const PROMISES: Promises = Promises { additive: true, ..CHANGES };
    const SUBJECTS: &[Subject] = &[Subject::writes_path("/repository")];
    type Arguments = CommitArguments;

    fn call(
        CommitArguments { repository, message, all }: CommitArguments,
        _: &Call,
    ) -> Result<Output, Failure> {
        check_message(&message)?;
        Git::change("commit", repository)
            .args(["--no-verify", "--no-gpg-sign", "--no-edit", "--no-status"])
            .args(all.then_some("--all"))
            .args([format!("--message={message}")])
            .run()
            .map(|printed| done(printed, "committed".to_owned()))
    }
}

pub struct Checkout;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckoutArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// The branch or commit.
    branch: String,
    /// Make the branch, at what is checked out.
    #[serde(default)]
    create: bool,
}

impl Tool for Checkout {
    const NAME: &str = "checkout";
    const DESCRIPTION: &str = "Checks out another branch or commit of a git repository, or makes a branch (`create`). Fails if it would overwrite changes.";
    const PROMISES: Promises = Promises { idempotent: true, ..CHANGES };
    const SUBJECTS: &[Subject] = &[Subject::writes_path("/repository")];
    type Arguments = CheckoutArguments;

    fn call(
        CheckoutArguments { repository, branch, create }: CheckoutArguments,
        _: &Call,
    ) -> Result<Output, Failure> {
        check("branch", &branch)?;
        let now = format!("checked out {branch}");
        Git::change("checkout", repository)
            .args(["--quiet", "--no-recurse-submodules"])
            .args(create.then_some("-b"))
            .args([branch])
            // Without it, the name of a file would discard what was changed in the file.
            .paths(Vec::new())
            .run()
            .map(|printed| done(printed, now))
    }
}

pub struct Stash;

#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum StashAction {
    List,
    Push,
    Pop,
    Drop,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StashArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// What to do: `list` them, `push` the changes, `pop` the newest back, or `drop` it.
    action: StashAction,
    /// What `push` notes down about the changes.
    message: Option<String>,
}

impl Tool for Stash {
    const NAME: &str = "stash";
    const DESCRIPTION: &str = "Puts the changes of a git repository aside (`push`), brings the newest back (`pop`), throws it away (`drop`), or lists what is there.";
    const PROMISES: Promises = CHANGES;
    const SUBJECTS: &[Subject] = &[Subject::writes_path("/repository")];
    type Arguments = StashArguments;

    fn call(arguments: StashArguments, _: &Call) -> Result<Output, Failure> {
        let StashArguments { repository, action, message } = arguments;
        if let Some(message) = &message {
            check_message(message)?;
            if action != StashAction::Push {
                return Err(Failure::invalid("message is for `push` alone"));
            }
        }
        let (name, otherwise) = match action {
            StashAction::List => ("list", "nothing is stashed"),
            StashAction::Push => ("push", "stashed"),
            StashAction::Pop => ("pop", "brought back"),
            StashAction::Drop => ("drop", "dropped"),
        };
        Git::change("stash", repository)
            .args([name])
            // To check signatures starts a program.
            .args((action == StashAction::List).then_some("--no-show-signature"))
            .args(message.map(|message| format!("--message={message}")))
            .run()
            .map(|printed| done(printed, otherwise.to_owned()))
    }
}

pub struct Worktree;

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum WorktreeAction {
    List,
    Add,
    Remove,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorktreeArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
    /// What to do.
    action: WorktreeAction,
    /// The folder of the working tree, for `add` and `remove`.
    path: Option<String>,
    /// The branch that `add` checks out there. It is made if it is missing.
    branch: Option<String>,
}

impl Tool for Worktree {
    const NAME: &str = "worktree";
    const DESCRIPTION: &str = "Lists the working trees of a git repository, adds one in another folder with a branch of its own, or removes one that has no changes.";
    const PROMISES: Promises = CHANGES;
    const SUBJECTS: &[Subject] =
        &[Subject::writes_path("/repository"), Subject::writes_path("/path")];
    type Arguments = WorktreeArguments;

    fn call(arguments: WorktreeArguments, _: &Call) -> Result<Output, Failure> {
        let WorktreeArguments { repository, action, path, branch } = arguments;
        let git = Git::change("worktree", repository.clone());
        let (git, otherwise) = match (action, path, branch) {
            (WorktreeAction::List, None, None) => {
                (git.args(["list", "--porcelain"]), String::new())
            }
            (WorktreeAction::Add, Some(path), Some(branch)) => {
                check("branch", &branch)?;
                let otherwise = format!("added {path} with {branch}");
                let git = git.args(["add", "--quiet"]);
                let git = if has_branch(repository, &branch)? {
                    git.args(["--", &path, &branch])
                } else {
                    git.args(["-b", &branch, "--", &path])
                };
                (git, otherwise)
            }
            (WorktreeAction::Remove, Some(path), None) => {
                let otherwise = format!("removed {path}");
                // Git looks for changes there, and a working tree may have a configuration of its
                // own.
                if may_exist(&format!("{path}/.git")) {
                    refuse_programs(Some(&path), true)?;
                }
                (git.args(["remove", "--", &path]), otherwise)
            }
            (WorktreeAction::List, ..) => {
                return Err(Failure::invalid("`list` takes no path and no branch"));
            }
            (WorktreeAction::Add, ..) => {
                return Err(Failure::invalid("`add` needs path and branch"));
            }
            (WorktreeAction::Remove, ..) => {
                return Err(Failure::invalid("`remove` needs path, and takes no branch"));
            }
        };
        git.run().map(|printed| done(printed, otherwise))
    }
}

fn has_branch(repository: Option<String>, branch: &str) -> Result<bool, Failure> {
    let listed = Git::look("branch", repository)
        .args([
            "--list",
            "--no-color",
            "--no-column",
            "--sort=refname",
            "--format=%(refname:short)",
        ])
        .run()?;
    Ok(listed.text.lines().any(|known| known == branch))
}
