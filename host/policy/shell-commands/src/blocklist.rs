//! Finds blocked commands, which never run: the default ones and the operator's.

use super::Command;
use super::inert::starts_nothing;
use super::word::{UNKNOWN, Word};
use super::wrappers::named;

/// The commands that are blocked by default. An entry of several words blocks the program if these
/// words are among its arguments, in this order. A last word that ends in `=` matches every
/// argument that begins with it. `rm -rf /` matches all forms of that command.
pub const DEFAULT_BLOCKED: [&str; 12] = [
    "rm -rf /", "sudo", "mkfs", "dd if=", "curl", "wget", "nc", "ncat", "netcat", "shutdown",
    "reboot", "halt",
];

/// The extensions of scripts.
const SCRIPTS: [&str; 10] = ["sh", "bash", "py", "js", "mjs", "ts", "rb", "pl", "php", "lua"];

/// The blocked commands, each with the place of its entry.
#[derive(Clone, Debug)]
pub struct Blocklist<P>(Vec<Entry<P>>);

#[derive(Clone, Debug)]
struct Entry<P> {
    /// The entry as written.
    text: String,
    place: P,
    /// The words of the entry in lower case.
    words: Vec<String>,
}

/// An entry that matches a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Blocked<'b, P> {
    /// The entry as written.
    pub entry: &'b str,
    /// The place of the entry.
    pub place: &'b P,
    /// Whether the match is certain; false if it depends on what is only known when the command
    /// runs.
    pub certain: bool,
}

/// An empty list.
impl<P> Default for Blocklist<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P> Blocklist<P> {
    /// Returns a list of entries, each with its place.
    pub fn new<Q: Into<P>>(entries: impl IntoIterator<Item = (String, Q)>) -> Self {
        let entries = entries.into_iter().filter_map(|(text, place)| {
            let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
            (!words.is_empty()).then(|| Entry { place: place.into(), text, words })
        });
        Self(entries.collect())
    }

    /// Returns the entry that matches a command: a certain match, otherwise a possible one.
    pub fn find(&self, command: &Command) -> Option<Blocked<'_, P>> {
        let mut possible = None;
        // Whether an earlier command changed to the root or home directory: `cd / && rm -rf *`.
        let mut at_root = false;
        for program in &command.programs {
            if matches!(program.name.as_str(), "cd" | "pushd") {
                at_root = changes_to_root(&program.arguments);
            }
            for entry in &self.0 {
                let covered = entry
                    .covers(&program.name, &program.arguments, at_root)
                    // An unknown program may start a program that its arguments name.
                    .or_else(|| entry.is_among(&program.name, &program.arguments).then_some(false));
                let Some(certain) = covered else { continue };
                let blocked = Blocked { entry: &entry.text, place: &entry.place, certain };
                if certain {
                    return Some(blocked);
                }
                possible.get_or_insert(blocked);
            }
        }
        possible
    }
}

impl<P> Entry<P> {
    /// Checks whether an argument of an unknown program is the program of this entry, or a text
    /// that begins with it.
    fn is_among(&self, program: &str, arguments: &[Word]) -> bool {
        let [name] = self.words.as_slice() else { return false };
        !starts_nothing(program)
            && named(program).is_none()
            && arguments.iter().any(|word| {
                let first = word.text.split_whitespace().next().unwrap_or_default();
                first.rsplit('/').next().is_some_and(|first| first.eq_ignore_ascii_case(name))
            })
    }

    /// Checks whether the match with a command is certain. Returns `None` if the entry doesn't
    /// match.
    fn covers(&self, program: &str, arguments: &[Word], at_root: bool) -> Option<bool> {
        let (name, rest) = self.words.split_first()?;
        // `mkfs.ext4` is a variant of `mkfs`, but `sudo.sh` is another script.
        let is_variant = rest.is_empty()
            && program
                .strip_prefix(name.as_str())
                .and_then(|suffix| suffix.strip_prefix('.'))
                .is_some_and(|kind| !SCRIPTS.contains(&kind));
        if program != name && !is_variant {
            return None;
        }
        if self.words == ["rm", "-rf", "/"] {
            return removes_root(arguments, at_root);
        }
        let mut certain = true;
        let mut arguments = arguments.iter();
        for (at, word) in rest.iter().enumerate() {
            let begins = at + 1 == rest.len() && word.ends_with('=');
            certain &= arguments
                .by_ref()
                .find_map(|argument| matches_word(&argument.text.to_lowercase(), word, begins))?;
        }
        Some(certain)
    }
}

/// Checks whether it is certain that an argument is `word`, or begins with it. Returns `None` if it
/// can't be.
fn matches_word(argument: &str, word: &str, begins: bool) -> Option<bool> {
    let Some((before, after)) = argument.split_once(UNKNOWN) else {
        return (argument == word || begins && argument.starts_with(word)).then_some(true);
    };
    if begins && before.starts_with(word) {
        return Some(true);
    }
    let after = after.rsplit(UNKNOWN).next().unwrap_or_default();
    (word.starts_with(before) && (begins || word.ends_with(after))).then_some(false)
}

/// Checks whether `cd` with these arguments changes to the root or home directory.
fn changes_to_root(arguments: &[Word]) -> bool {
    let Some(target) =
        arguments.iter().find(|word| !word.text.starts_with('-') || word.text == "-")
    else {
        return true;
    };
    let raw = target.raw.trim_matches('"').trim_end_matches('/');
    let root = target.text.starts_with('/')
        && target.text.split('/').all(|part| matches!(part, "" | "." | ".."));
    root || matches!(raw, "~" | "$HOME" | "${HOME}")
}

/// Checks whether `rm` with these arguments deletes the root or home directory, or git's folder of
/// worktrees.
fn removes_root(arguments: &[Word], at_root: bool) -> Option<bool> {
    let options = arguments.iter().filter(|word| is_option(word));
    if !options.clone().any(|word| is_recursive(&word.text))
        && !options.clone().any(|word| word.text.contains(UNKNOWN))
    {
        return None;
    }
    let targets = arguments.iter().filter(|word| !is_option(word));
    let mut possible = None;
    for target in targets {
        let known: String = target.text.chars().filter(|c| *c != UNKNOWN).collect();
        let mut depth = 0_usize;
        for part in known.trim_end_matches('*').split('/') {
            match part {
                "" | "." => {}
                ".." => depth = depth.saturating_sub(1),
                _ => depth += 1,
            }
        }
        let plain = depth == 0;
        let open = target.text.contains(UNKNOWN);
        let everything = known.starts_with('/') || at_root;
        if plain && !open && everything
            || known == "~"
            || known == "~/"
            || known == "~/*"
            || known.contains(".git/worktrees")
        {
            return Some(true);
        }
        if plain && open {
            possible = Some(false);
        }
    }
    possible
}

fn is_option(word: &Word) -> bool {
    word.text.starts_with('-') && word.text.len() > 1
}

fn is_recursive(option: &str) -> bool {
    !option.starts_with("--") && option.contains(['r', 'R'])
        || "--recursive".starts_with(option) && option.len() > 3
}
