//! Shows a project's skill with all its files, and trusts it if the person agrees.

use std::io::Write;

use toolhold_core::config::{self, Folders};
use toolhold_core::text::{counted, neutral_line};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::warn;

use toolhold_skills::folder::{Owners, SkillFolder};
use toolhold_skills::skill::{Skill, SkillError, SkillOrigin, read_whole};

/// Trusts the skill if `confirm` returns `true`. A changed file later ends the trust. Blocks.
pub(crate) fn trust_skill(
    skill: &Skill,
    folders: &Folders,
    confirm: impl FnOnce(&str) -> Result<bool, CommandError>,
) -> Result<Exit, CommandError> {
    let path = neutral_line(&skill.folder.display().to_string());
    let folder = SkillFolder::open(&skill.folder, Owners::Any).map_err(SkillError::from);
    let (tree, text) = match folder.and_then(|folder| read_whole(&folder)) {
        Ok(tree_and_text) => tree_and_text,
        Err(error) => {
            let reason = neutral_line(&error.to_string());
            warn(&format!("{path} can't be trusted: {reason}"))?;
            return Ok(Exit::Denied);
        }
    };

    let digest = tree.digest();
    let mut out = anstream::stdout();
    writeln!(out, "{path} is a skill:\n")?;
    for line in String::from_utf8_lossy(&text.bytes).lines() {
        writeln!(out, "  {}", neutral_line(line))?;
    }
    writeln!(out, "\nThe skill's files:")?;
    for file in &tree.files {
        let executable = if file.is_executable { ", executable" } else { "" };
        let size = counted(file.size, "byte");
        writeln!(out, "  {} ({size}{executable})", neutral_line(&file.path))?;
    }
    writeln!(
        out,
        "\nModels follow the text of the skill, and may run the skill's scripts under your rules."
    )?;
    writeln!(out, "Digest: {digest}\n")?;
    if skill.origin == SkillOrigin::Changed {
        writeln!(out, "The skill has changed since you trusted it.\n")?;
    }

    if !confirm("Use this skill until its files change?")? {
        writeln!(out, "The skill is not trusted, so no model gets the skill.")?;
        return Ok(Exit::Denied);
    }
    config::add_trust(folders, &skill.folder, &digest)?;
    writeln!(out, "{path} is trusted until its files change.")?;
    Ok(Exit::Success)
}
