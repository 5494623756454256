//! `[skills]`: folders of skills, which models load when they need them, and variables for their
//! commands.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};

section! {
    /// Skills: folders with a `SKILL.md`, whose instructions a model loads when a task needs them.
    pub struct Skills {
        /// Whether skills are offered. `false` disables your skills and those of projects.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Folders that contain your skills, one folder for each skill. Missing folders are
        /// ignored, and so are folders that another user owns or others can write to. Tools may
        /// read these folders if they contain a skill, and never write to them. A project's skills
        /// (in `.agents/skills`, `.claude/skills` and `.toolhold/skills`) are used after `toolhold
        /// trust`.
        pub folders: Vec<String> = ["~/.agents/skills", "~/.claude/skills"].map(str::to_owned).to_vec(), Narrowing::Ignored;
        /// Variables for the commands of a session after a skill was loaded, in a table for each
        /// skill: `[skills.env.NAME]`. They apply until the task or the session ends, or another
        /// skill is loaded. Don't put secrets here.
        #[schemars(extend("examples" = [{ "pdf": { "PDF_DPI": "300" } }]))]
        pub env: BTreeMap<String, BTreeMap<String, String>>, Narrowing::Each(&Narrowing::Each(&Narrowing::Ignored));
    }
}
