//! Skills: folders with a `SKILL.md`, whose instructions a model loads when a task needs them.
//! Custom commands: files with messages that a person sends by a name.
//!
//! Skills and commands are often written by other people. So reading has size limits and stays in
//! the folder, and a model gets no text of a project's skill or command before a person has seen
//! it. A skill or command never gives a model more rights.

mod custom_command;
mod find;
pub mod folder;
mod front_matter;
mod listing;
mod offer;
pub mod skill;
mod tool;

pub use custom_command::{CustomCommand, CustomCommands, ExpandError, trusted_commands};
pub use find::{Skills, trusted_skills};
pub use front_matter::{FrontMatter, FrontMatterError, YamlError};
pub use listing::describe_skills;
pub use offer::OfferedSkills;
pub use skill::{Skill, SkillFinding, SkillOrigin};
pub use tool::SkillLoader;
