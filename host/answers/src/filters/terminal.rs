//! Which texts are shown as a terminal would show them.

use berth_contract::{Definition, SubjectKind, text};
use berth_policy::commands::LastCommand;

/// Programs that show what stands in files, where empty lines count.
const SHOW_FILES: [&str; 17] = [
    "awk", "bat", "batcat", "cat", "cut", "diff", "gawk", "head", "jq", "less", "more", "nl",
    "patch", "sed", "tac", "tail", "yq",
];

/// What git shows of them.
const GIT_SHOWS: [&str; 6] = ["blame", "cat-file", "diff", "log", "show", "stash"];

/// Whether a command shows what stands in files.
fn shows_files(command: &str) -> bool {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    SHOW_FILES.contains(&program) || program == "git" && words.any(|word| GIT_SHOWS.contains(&word))
}

/// How much of a text is what a terminal would not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It stands in files: nothing is.
    Stored,
    /// Somebody wrote it to be read: control sequences are.
    Written,
    /// A program wrote it: what was written over is, too, and of several empty lines all but one.
    Lines,
}

impl Kind {
    /// What a tool answers with.
    pub(crate) fn for_tool(tool: &Definition, command: Option<&LastCommand>) -> Self {
        if tool.subjects.iter().any(|subject| subject.kind == SubjectKind::Command) {
            let shows_files = command.is_some_and(|last| !last.alone || shows_files(&last.line));
            return if shows_files { Self::Written } else { Self::Lines };
        }
        let of_files = tool.subjects.iter().any(|subject| subject.kind.is_path());
        if of_files { Self::Stored } else { Self::Written }
    }

    /// A text as a terminal would show it.
    pub(crate) fn shown(self, text: String) -> String {
        if self == Self::Stored { text } else { text::shown(text, self == Self::Lines) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shows_files_is_known() {
        assert!(
            shows_files("cat x")
                && shows_files("git -C x show HEAD")
                && shows_files("sed -n 1,2p x")
        );
        assert!(!shows_files("cargo test") && !shows_files("git status") && !shows_files(""));
    }
}
