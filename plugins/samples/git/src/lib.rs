//! A plugin that reads and changes git repositories with the `git` of the machine.
//!
//! Nothing in a repository can make it run another program: see [`command`].

mod change;
mod command;
mod programs;
mod read;
mod run;
mod status;

use change::{Add, Checkout, Commit, Stash, Worktree};
use read::{Blame, Branch, Diff, Log, Show};
use status::Status;

toolhold_sdk::plugin! {
    name: "git",
    description: "Reads and changes git repositories",
    capabilities: [
        files(read_write) = "to start git in repositories, with the paths that a call names",
        process = "to run git, with switches that keep a repository from running anything else",
    ],
    config_schema: r#"{
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "author_name": { "type": "string", "description": "Name of the author of commits. If empty, git's own setting." },
            "author_email": { "type": "string", "description": "E-mail address of the author of commits. If empty, git's own setting." }
        }
    }"#,
    tools: [Status, Diff, Log, Show, Branch, Blame, Add, Commit, Checkout, Stash, Worktree],
}
