//! `[skills]`: folders of skills, which models load when they need them, and variables for the
//! commands of skills.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};

section! {
    /// Skills: folders with a `SKILL.md`, whose instructions a model loads when a task needs them.
    pub struct Skills {
        /// Whether skills are offered. `false` disables your skills and those of projects.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Folders that contain your skills, one folder for each skill. Folders are ignored if they
        /// are missing, if another user owns them, or if others can write to them. Tools may read
        /// these folders if they contain a skill, and never write to them. A project's skills (in
        /// `.agents/skills`, `.claude/skills` and `.toolhold/skills`) are used after `toolhold
        /// trust`.
        pub folders: Vec<String> = ["~/.agents/skills", "~/.claude/skills"].map(str::to_owned).to_vec(), Narrowing::Ignored;
        /// Variables for the commands of a session that has loaded a skill, in a table for each
        /// skill: `[skills.env.NAME]`. The variables apply until the task or the session ends, or
        /// until another skill is loaded. Don't put secrets here.
        #[schemars(extend("examples" = [{ "pdf": { "PDF_DPI": "300" } }]))]
        pub env: BTreeMap<String, BTreeMap<String, String>>, Narrowing::Each(&Narrowing::Each(&Narrowing::Ignored));
    }
}
