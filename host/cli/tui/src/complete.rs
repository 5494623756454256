//! Offers commands after `/` and paths after `@` for the word before the cursor.

use toolhold_core::text::neutral_line;

/// The commands, each with a description.
pub(crate) const COMMANDS: [(&str, &str); 9] = [
    ("/help", "list the keys and commands"),
    ("/compact", "summarise the older part of the conversation"),
    ("/clear", "start a new session"),
    ("/resume", "continue an earlier session of this directory"),
    ("/status", "show the model, its limits, and the current rules"),
    ("/tools", "list the tools that the model may call"),
    ("/undo", "undo the file changes of the last turn"),
    ("/transcript", "show the conversation on the normal screen"),
    ("/exit", "end the chat"),
];

/// Whether a word is a command.
pub(crate) fn is_command(word: &str) -> bool {
    COMMANDS.iter().any(|(name, _)| *name == word)
}

/// Offers that are shown.
pub(crate) const SHOWN: usize = 8;

/// Offers for a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Popup {
    /// The word before the cursor.
    pub(crate) word: String,
    /// Each text with its meaning.
    pub(crate) offers: Vec<(String, String)>,
    pub(crate) chosen: usize,
}

/// The word before the cursor that can be completed: a command at the start, or a path after `@`.
pub(crate) fn word(before: &str) -> Option<&str> {
    if before.starts_with('/') && !before.contains(char::is_whitespace) {
        return Some(before);
    }
    let from = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = before.get(from..)?;
    word.starts_with('@').then_some(word)
}

/// The offers of a command's beginning.
pub(crate) fn commands(word: &str) -> Popup {
    let fits = COMMANDS.iter().filter(|(name, _)| name.starts_with(word) && *name != word);
    let offers = fits.map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned())).collect();
    Popup { word: word.to_owned(), offers, chosen: 0 }
}

/// The offers of a path's beginning.
pub(crate) fn paths(word: &str, paths: &[String]) -> Popup {
    let offers = paths
        .iter()
        .filter_map(|path| {
            let shown = neutral_line(path);
            // A name that would change when it is shown can't be typed either.
            (shown == *path && !path.contains(char::is_whitespace))
                .then(|| (format!("@{path}"), String::new()))
        })
        .filter(|(text, _)| text != word)
        .collect();
    Popup { word: word.to_owned(), offers, chosen: 0 }
}

impl Popup {
    pub(crate) fn is_open(&self) -> bool {
        !self.offers.is_empty()
    }

    pub(crate) fn step(&mut self, by: isize) {
        let count = self.offers.len().max(1);
        self.chosen =
            if by < 0 { (self.chosen + count - 1) % count } else { (self.chosen + 1) % count };
    }
}
