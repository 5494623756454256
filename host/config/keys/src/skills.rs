//! `[skills]`: folders of skills, which models load when they need them, and variables for their
//! commands.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};

section! {
    /// Skills: folders with a `SKILL.md`, whose instructions a model loads when a task needs them.
    pub struct Skills {
        /// Whether skills are offered. `false`: neither yours nor those of projects.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Folders whose folders are your skills. One that doesn't exist is no mistake. One that
        /// belongs to another user, or that others may write to, doesn't count. Tools may read them
        /// once there is a skill, and never write there. Those of a project (`.agents/skills`,
        /// `.claude/skills` and `.toolhold/skills`) count after `toolhold trust`.
        pub folders: Vec<String> = ["~/.agents/skills", "~/.claude/skills"].map(str::to_owned).to_vec(), Narrowing::Ignored;
        /// Variables for the commands of a session after a skill was loaded, in a table for each
        /// skill: `[skills.env.NAME]`. They end with the task, with the session, or when another
        /// skill is loaded. They are no place for secrets.
        #[schemars(extend("examples" = [{ "pdf": { "PDF_DPI": "300" } }]))]
        pub env: BTreeMap<String, BTreeMap<String, String>>, Narrowing::Each(&Narrowing::Each(&Narrowing::Ignored));
    }
}
