//! Prints notices about the project's skills that models don't get.

use toolhold_core::text::counted;
use toolhold_skills::OfferedSkills;
use toolhold_skills::skill::Skill;
use toolhold_terminal::style::note;

/// The most skills in a notice. More skills are only counted.
const MAX_NAMED: usize = 4;

/// Prints notices about untrusted skills, and about skills that were left out.
pub(crate) fn print_notices(skills: &OfferedSkills) -> std::io::Result<()> {
    note_untrusted(&skills.skills.untrusted)?;
    let left_out = skills.skills.left_out.len();
    if left_out > 0 {
        let folders = counted(left_out, "folder");
        let verb = if left_out == 1 { "is" } else { "are" };
        note(&format!(
            "{folders} of skills {verb} left out; `toolhold skills list` shows the reasons"
        ))?;
    }
    Ok(())
}

fn note_untrusted(untrusted: &[Skill]) -> std::io::Result<()> {
    let names: Vec<&str> = untrusted.iter().map(|skill| skill.name.as_str()).collect();
    if !names.is_empty() {
        let count = counted(names.len(), "skill");
        let shown_count = names.len().min(MAX_NAMED);
        let mut shown = names[..shown_count].join(", ");
        if names.len() > MAX_NAMED {
            shown += &format!(" and {} more", names.len() - MAX_NAMED);
        }
        let text = if names.len() == 1 {
            format!(
                "{count} of the project is left out, because you haven't trusted its current \
                 version: {shown}; `toolhold trust` shows the skill"
            )
        } else {
            format!(
                "{count} of the project are left out, because you haven't trusted their current \
                 versions: {shown}; `toolhold trust` shows the skills"
            )
        };
        note(&text)?;
    }
    Ok(())
}
