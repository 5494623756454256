//! Completes commands after `/` and paths after `@`.

use toolhold_core::text::neutral_line;
use toolhold_skills::CustomCommands;

/// The commands with their descriptions.
pub(crate) const COMMANDS: [(&str, &str); 12] = [
    ("/help", "list the keys and commands"),
    ("/compact", "summarise the older part of the conversation"),
    ("/clear", "start a new session"),
    ("/resume", "continue an earlier session of this directory"),
    ("/model", "ask another model from the next message on: /model NAME"),
    ("/cost", "show the tokens, the cost and the turns of the session"),
    ("/status", "show the model, its limits, and the current rules"),
    ("/tools", "list the tools that the model may call"),
    ("/undo", "undo the file changes of the last turn"),
    ("/rewind", "go back to before a message, also in the files"),
    ("/transcript", "show the conversation on the normal screen"),
    ("/exit", "end the chat"),
];

/// Checks whether a word such as `/help` is a built-in command of the chat.
pub fn is_command(word: &str) -> bool {
    COMMANDS.iter().any(|(name, _)| *name == word)
}

/// The columns of a completion, including the slash of a command.
pub(crate) const OFFER_COLUMNS: usize = 12;

/// The most visible completions.
pub(crate) const SHOWN: usize = 8;

/// The completions for a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Popup {
    /// The word before the cursor.
    pub(crate) word: String,
    /// The completions with their descriptions.
    pub(crate) offers: Vec<(String, String)>,
    pub(crate) chosen: usize,
}

/// Returns the last word of `before`, if it is a command at the message's start or a path after
/// `@`.
pub(crate) fn word_to_complete(before: &str) -> Option<&str> {
    if before.starts_with('/') && !before.contains(char::is_whitespace) {
        return Some(before);
    }
    let word = before.rsplit(char::is_whitespace).next()?;
    if word.starts_with('@') { Some(word) } else { None }
}

/// Returns the commands that begin with a word, including the commands in `custom`, which the user
/// and the project have made.
pub(crate) fn offer_commands(word: &str, custom: &CustomCommands) -> Popup {
    let mut offers = Vec::new();
    // Offer nothing after a whole command, so that Enter sends this command and not a longer one.
    let is_complete = is_command(word) || custom.named(word).is_some();
    if !is_complete {
        for (name, meaning) in COMMANDS {
            if name.starts_with(word) {
                offers.push((name.to_owned(), meaning.to_owned()));
            }
        }
        for command in custom.usable() {
            let name = format!("/{}", command.name);
            if name.starts_with(word) {
                offers.push((name, command.description.clone()));
            }
        }
    }
    Popup { word: word.to_owned(), offers, chosen: 0 }
}

pub(crate) fn offer_paths(word: &str, paths: &[String]) -> Popup {
    let mut offers = Vec::new();
    for path in paths {
        // Leave out a path with control characters, which would hide its real name on the screen,
        // and a path with a space, which would end the path in the message.
        let has_control_characters = neutral_line(path) != *path;
        let can_be_typed = !has_control_characters && !path.contains(char::is_whitespace);
        let text = format!("@{path}");
        if can_be_typed && text != word {
            offers.push((text, String::new()));
        }
    }
    Popup { word: word.to_owned(), offers, chosen: 0 }
}

impl Popup {
    pub(crate) fn is_open(&self) -> bool {
        !self.offers.is_empty()
    }

    /// Chooses the previous completion, or the last completion after the first.
    pub(crate) fn choose_previous(&mut self) {
        let last = self.offers.len().saturating_sub(1);
        self.chosen = self.chosen.checked_sub(1).unwrap_or(last);
    }

    /// Chooses the next completion, or the first completion after the last.
    pub(crate) fn choose_next(&mut self) {
        let count = self.offers.len().max(1);
        self.chosen = (self.chosen + 1) % count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_completed_after_every_kind_of_space() {
        for (before, expected) in [
            ("@src", Some("@src")),
            ("see @src", Some("@src")),
            ("see\n@", Some("@")),
            ("see\u{a0}@src", Some("@src")),
            ("see\u{3000}@src", Some("@src")),
            ("see\u{3000}", None),
            ("see@src", None),
            ("/he", Some("/he")),
            ("/help @src", Some("@src")),
            ("", None),
        ] {
            assert_eq!(word_to_complete(before), expected, "{before:?}");
        }
    }
}
