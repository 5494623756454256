//! Finds blocked commands: the default ones and the operator's. Blocked commands never run.

use super::Command;
use super::inert::starts_nothing;
use super::word::{UNKNOWN, Word};
use super::wrappers::named;

/// The commands that are blocked by default. An entry of several words blocks the program if these
/// words are in its arguments, in this order. A last word that ends in `=` matches all arguments
/// that start with it. `rm -rf /` matches all forms of that command.
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
    /// Whether the match is certain. If false, the match depends on data that is known only when
    /// the command runs.
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

    /// Returns the entry that matches a command. A certain match takes precedence over a possible
    /// match.
    pub fn find(&self, command: &Command) -> Option<Blocked<'_, P>> {
        let mut possible = None;
        // Whether an earlier command changed to the root or home directory: `cd / && rm -rf *`.
        let mut at_root = false;
        for program in &command.programs {
            if matches!(program.name.as_str(), "cd" | "pushd") {
                at_root = changes_to_root(&program.arguments);
            }
            for entry in &self.0 {
                let certain = match entry.covers(&program.name, &program.arguments, at_root) {
                    Some(certain) => certain,
                    // An unknown program may start a program that its arguments name.
                    None if entry.is_among(&program.name, &program.arguments) => false,
                    None => continue,
                };
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
    /// that starts with this program.
    fn is_among(&self, program: &str, arguments: &[Word]) -> bool {
        let [name] = self.words.as_slice() else { return false };
        if starts_nothing(program) || named(program).is_some() {
            return false;
        }
        arguments.iter().any(|word| {
            let path = word.text.split_whitespace().next().unwrap_or_default();
            let file = path.rsplit('/').next().unwrap_or_default();
            file.eq_ignore_ascii_case(name)
        })
    }

    /// Checks whether the match with a command is certain. Returns `None` if the entry doesn't
    /// match.
    fn covers(&self, program: &str, arguments: &[Word], at_root: bool) -> Option<bool> {
        let (name, rest) = self.words.split_first()?;
        let names_variant = rest.is_empty() && is_variant(program, name);
        if program != name && !names_variant {
            return None;
        }
        if self.words == ["rm", "-rf", "/"] {
            return removes_root(arguments, at_root);
        }
        let mut certain = true;
        let mut arguments = arguments.iter();
        for (at, word) in rest.iter().enumerate() {
            let begins = at + 1 == rest.len() && word.ends_with('=');
            let is_certain = arguments
                .by_ref()
                .find_map(|argument| matches_word(&argument.text.to_lowercase(), word, begins))?;
            if !is_certain {
                certain = false;
            }
        }
        Some(certain)
    }
}

/// Checks whether a program is a variant of the program `name`. `mkfs.ext4` is a variant of `mkfs`,
/// but `sudo.sh` is another script.
fn is_variant(program: &str, name: &str) -> bool {
    let Some(suffix) = program.strip_prefix(name) else { return false };
    let Some(kind) = suffix.strip_prefix('.') else { return false };
    !SCRIPTS.contains(&kind)
}

/// Checks whether an argument is certainly `word`, or with `begins`, certainly starts with `word`.
/// Returns `None` if this isn't possible.
fn matches_word(argument: &str, word: &str, begins: bool) -> Option<bool> {
    let Some((before, after)) = argument.split_once(UNKNOWN) else {
        let is_match = argument == word || (begins && argument.starts_with(word));
        return is_match.then_some(true);
    };
    if begins && before.starts_with(word) {
        return Some(true);
    }
    let known_end = after.rsplit(UNKNOWN).next().unwrap_or_default();
    let may_end = begins || word.ends_with(known_end);
    (may_end && word.starts_with(before)).then_some(false)
}

/// Checks whether `cd` with these arguments changes to the root or home directory.
fn changes_to_root(arguments: &[Word]) -> bool {
    let Some(target) =
        arguments.iter().find(|word| !word.text.starts_with('-') || word.text == "-")
    else {
        return true;
    };
    let raw = target.raw.trim_matches('"').trim_end_matches('/');
    let is_home = matches!(raw, "~" | "$HOME" | "${HOME}");
    let is_root = target.text.starts_with('/')
        && target.text.split('/').all(|part| matches!(part, "" | "." | ".."));
    is_root || is_home
}

/// Checks whether `rm` with these arguments certainly deletes the root or home directory, or git's
/// folder of worktrees. Returns `None` if this isn't possible.
fn removes_root(arguments: &[Word], at_root: bool) -> Option<bool> {
    let mut options = arguments.iter().filter(|word| is_option(word));
    if !options.any(|word| is_recursive(&word.text) || word.text.contains(UNKNOWN)) {
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
        let is_top = depth == 0;
        let is_open = target.text.contains(UNKNOWN);
        let is_root = is_top && !is_open && (at_root || known.starts_with('/'));
        let is_home = matches!(known.as_str(), "~" | "~/" | "~/*");
        if is_root || is_home || known.contains(".git/worktrees") {
            return Some(true);
        }
        if is_top && is_open {
            possible = Some(false);
        }
    }
    possible
}

fn is_option(word: &Word) -> bool {
    word.text.starts_with('-') && word.text.len() > 1
}

fn is_recursive(option: &str) -> bool {
    if option.starts_with("--") {
        // A long option may be abbreviated.
        return "--recursive".starts_with(option) && option.len() > 3;
    }
    option.contains(['r', 'R'])
}
