//! Prints on stderr which skills of the project aren't available to models.

use toolhold_core::text::counted;
use toolhold_skills::OfferedSkills;
use toolhold_terminal::style::note;

/// Skills that a notice names.
const MAX_NAMED: usize = 4;

/// Prints a note on stderr about the project's untrusted skills, and about skills that were left
/// out.
///
/// # Errors
///
/// Returns an error if the note can't be written.
pub(crate) fn print_notices(skills: &OfferedSkills) -> std::io::Result<()> {
    let names: Vec<&str> =
        skills.skills.untrusted.iter().map(|skill| skill.name.as_str()).collect();
    if !names.is_empty() {
        let count = counted(names.len(), "skill");
        let mut shown = names[..names.len().min(MAX_NAMED)].join(", ");
        if names.len() > MAX_NAMED {
            shown += &format!(" and {} more", names.len() - MAX_NAMED);
        }
        let text = if names.len() == 1 {
            format!(
                "{count} of the project is left out, since nobody has looked at it as it is: \
                 {shown}; `toolhold trust` shows it"
            )
        } else {
            format!(
                "{count} of the project are left out, since nobody has looked at them as they \
                 are: {shown}; `toolhold trust` shows them"
            )
        };
        note(&text)?;
    }

    let left_out = skills.skills.left_out.len();
    if left_out > 0 {
        let folders = counted(left_out, "folder");
        let verb = if left_out == 1 { "is" } else { "are" };
        note(&format!("{folders} of skills {verb} left out; `toolhold skills list` says why"))?;
    }
    Ok(())
}
