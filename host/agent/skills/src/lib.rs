//! Skills: folders with a `SKILL.md`, whose instructions a model loads when a task needs them.
//!
//! Other people write the skills. Reading has size limits and stays in the skill's folder. A model
//! gets no text of a project's skill before a person has seen the skill. A skill grants nothing.

mod find;
pub mod folder;
mod front_matter;
mod listing;
mod offer;
pub mod skill;
mod tool;

pub use find::{Skills, trusted_skills};
pub use front_matter::{FrontMatter, FrontMatterError, YamlError};
pub use listing::describe_skills;
pub use offer::OfferedSkills;
pub use skill::{Skill, SkillFinding, SkillOrigin};
pub use tool::SkillLoader;
