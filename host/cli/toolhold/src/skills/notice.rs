//! Says on stderr which skills of the project a model doesn't get.

use toolhold_core::text::counted;
use toolhold_skills::OfferedSkills;
use toolhold_terminal::style::note;

/// Skills that a notice names.
const MAX_NAMED: usize = 4;

/// Says on stderr which skills of the project don't count, and that others were left out.
///
/// # Errors
///
/// The notice can't be written.
pub(crate) fn tell(skills: &OfferedSkills) -> std::io::Result<()> {
    let names: Vec<&str> =
        skills.skills.untrusted.iter().map(|skill| skill.name.as_str()).collect();
    if !names.is_empty() {
        let more = names.len().saturating_sub(MAX_NAMED);
        let shown = names[..names.len() - more].join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        note(&format!(
            "{} of the project {} left out, since nobody has looked at {}: {shown}{more}; `toolhold trust` shows {}",
            counted(names.len(), "skill"),
            if names.len() == 1 { "is" } else { "are" },
            if names.len() == 1 { "it as it is" } else { "them as they are" },
            if names.len() == 1 { "it" } else { "them" },
        ))?;
    }
    let left_out = skills.skills.left_out.len();
    if left_out > 0 {
        let folders = counted(left_out, "folder");
        let are = if left_out == 1 { "is" } else { "are" };
        note(&format!("{folders} of skills {are} left out; `toolhold skills list` says why"))?;
    }
    Ok(())
}
