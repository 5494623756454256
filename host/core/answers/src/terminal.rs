//! Decides for each tool how its texts are converted for display.

use toolhold_contract::{Definition, SubjectKind, text};
use toolhold_policy::commands::LastCommand;

/// Programs that print files. The empty lines of a file must stay.
const SHOW_FILES: [&str; 17] = [
    "awk", "bat", "batcat", "cat", "cut", "diff", "gawk", "head", "jq", "less", "more", "nl",
    "patch", "sed", "tac", "tail", "yq",
];

const GIT_SHOWS: [&str; 6] = ["blame", "cat-file", "diff", "log", "show", "stash"];

fn shows_files(command: &str) -> bool {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    if program == "git" {
        return words.any(|word| GIT_SHOWS.contains(&word));
    }
    SHOW_FILES.contains(&program)
}

/// How a text is converted for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Content of files. Nothing is removed.
    Stored,
    /// Text for readers. Control sequences are removed.
    Written,
    /// Output of a program. Control sequences, overwritten text and repeated empty lines are
    /// removed.
    Lines,
}

impl Kind {
    /// Decides how a tool's texts are converted. `command` is the last command of a command line.
    pub(crate) fn for_tool(tool: &Definition, command: Option<&LastCommand>) -> Self {
        if tool.subjects.iter().any(|subject| subject.kind == SubjectKind::Command) {
            let may_show_files = match command {
                // Other commands of the line may also print files.
                Some(last) => !last.alone || shows_files(&last.line),
                None => false,
            };
            // `Lines` removes empty lines, but empty lines of files must stay.
            return if may_show_files { Self::Written } else { Self::Lines };
        }
        let of_files = tool.subjects.iter().any(|subject| subject.kind.is_path());
        if of_files { Self::Stored } else { Self::Written }
    }

    pub(crate) fn shown(self, text: String) -> String {
        if self == Self::Stored { text } else { text::shown(text, self == Self::Lines) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_print_files_are_known() {
        assert!(
            shows_files("cat x")
                && shows_files("git -C x show HEAD")
                && shows_files("sed -n 1,2p x")
        );
        assert!(!shows_files("cargo test") && !shows_files("git status") && !shows_files(""));
    }
}
