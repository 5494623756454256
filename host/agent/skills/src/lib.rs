//! Skills: folders with a `SKILL.md`, whose instructions a model loads when a task needs them.
//!
//! Their texts come from others. What is read is bounded and stays in the skill's folder, and a
//! model gets nothing of a project's skill before a person has seen it. A skill gives no rights.

mod commands;
mod find;
mod folder;
mod front_matter;
mod listing;
mod offer;
mod skill;
mod tool;
mod trust;

pub use commands::{SkillsCommand, run};
pub use find::Skills;
pub use listing::describe_skills;
pub use offer::OfferedSkills;
pub use skill::{Skill, SkillFinding, SkillOrigin};
pub use tool::SkillLoader;
pub use trust::{trust_skill, trusted_skills};
