//! Offers commands after `/` and paths after `@` for the word before the cursor.

use toolhold_core::text::neutral_line;

/// The commands, each with a description.
pub(crate) const COMMANDS: [(&str, &str); 11] = [
    ("/help", "list the keys and commands"),
    ("/compact", "summarise the older part of the conversation"),
    ("/clear", "start a new session"),
    ("/resume", "continue an earlier session of this directory"),
    ("/model", "ask another model from the next message on: /model NAME"),
    ("/cost", "show the tokens, the cost and the turns of the session"),
    ("/status", "show the model, its limits, and the current rules"),
    ("/tools", "list the tools that the model may call"),
    ("/undo", "undo the file changes of the last turn"),
    ("/transcript", "show the conversation on the normal screen"),
    ("/exit", "end the chat"),
];

/// Checks whether a word is a command.
pub(crate) fn is_command(word: &str) -> bool {
    COMMANDS.iter().any(|(name, _)| *name == word)
}

/// Number of offers that are shown.
pub(crate) const SHOWN: usize = 8;

/// Offers for a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Popup {
    /// The word before the cursor.
    pub(crate) word: String,
    /// The completions, each with a description.
    pub(crate) offers: Vec<(String, String)>,
    pub(crate) chosen: usize,
}

/// Returns the word before the cursor if it can be completed. Such a word is a command at the start
/// of the message, or a path after `@`. `before`: the text before the cursor.
pub(crate) fn word_to_complete(before: &str) -> Option<&str> {
    if before.starts_with('/') && !before.contains(char::is_whitespace) {
        return Some(before);
    }
    let word = before.rsplit(char::is_whitespace).next()?;
    if word.starts_with('@') { Some(word) } else { None }
}

/// Returns the commands that begin with a word.
pub(crate) fn offer_commands(word: &str) -> Popup {
    let mut offers = Vec::new();
    for (name, meaning) in COMMANDS {
        if name.starts_with(word) && name != word {
            offers.push((name.to_owned(), meaning.to_owned()));
        }
    }
    Popup { word: word.to_owned(), offers, chosen: 0 }
}

/// Returns the offers for a word from paths that begin with the word.
pub(crate) fn offer_paths(word: &str, paths: &[String]) -> Popup {
    let mut offers = Vec::new();
    for path in paths {
        // The path can't be typed if it looks different on the screen.
        let can_be_typed = neutral_line(path) == *path && !path.contains(char::is_whitespace);
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

    /// Chooses the previous offer. After the first offer, continues with the last offer.
    pub(crate) fn choose_previous(&mut self) {
        let last = self.offers.len().saturating_sub(1);
        self.chosen = self.chosen.checked_sub(1).unwrap_or(last);
    }

    /// Chooses the next offer. After the last offer, continues with the first offer.
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
