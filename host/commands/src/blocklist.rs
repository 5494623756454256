//! Commands that never run, whatever else is allowed.

use super::Command;
use super::inert::starts_nothing;
use super::word::{UNKNOWN, Word};
use super::wrappers::named;

/// What is blocked without a word of the operator's. One of several words means that program with
/// these among its arguments, in this order; a last word that ends in `=`, any argument that begins
/// with it. `rm -rf /` is every spelling of that.
pub const DEFAULT_BLOCKED: [&str; 12] = [
    "rm -rf /", "sudo", "mkfs", "dd if=", "curl", "wget", "nc", "ncat", "netcat", "shutdown",
    "reboot", "halt",
];

/// What the names of scripts end in.
const SCRIPTS: [&str; 10] = ["sh", "bash", "py", "js", "mjs", "ts", "rb", "pl", "php", "lua"];

/// The blocked commands, each with where it stands, in whatever way a `P` says that.
#[derive(Clone, Debug)]
pub struct Blocklist<P>(Vec<Entry<P>>);

#[derive(Clone, Debug)]
struct Entry<P> {
    /// As it is written.
    text: String,
    place: P,
    /// In small letters.
    words: Vec<String>,
}

/// An entry that a command comes under.
#[derive(Debug, PartialEq, Eq)]
pub struct Blocked<'b, P> {
    /// As it is written.
    pub entry: &'b str,
    /// Where it stands.
    pub place: &'b P,
    /// Whether it does, or may, depending on what is only known when it runs.
    pub certain: bool,
}

/// An empty list.
impl<P> Default for Blocklist<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P> Blocklist<P> {
    /// A list of entries, each with where it stands.
    pub fn new<Q: Into<P>>(entries: impl IntoIterator<Item = (String, Q)>) -> Self {
        let entry = |(text, place): (String, Q)| {
            let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
            (!words.is_empty()).then(|| Entry { place: place.into(), text, words })
        };
        Self(entries.into_iter().filter_map(entry).collect())
    }

    /// The entry that a command comes under: one that it certainly does, else one that it may.
    pub fn find(&self, command: &Command) -> Option<Blocked<'_, P>> {
        let mut perhaps = None;
        // Whether the command has gone to the root directory, or home: `cd / && rm -rf *`.
        let mut at_root = false;
        for program in &command.programs {
            if matches!(program.name.as_str(), "cd" | "pushd") {
                at_root = leads_to_the_root(&program.arguments);
            }
            for entry in &self.0 {
                let certain = entry.covers(&program.name, &program.arguments, at_root);
                // A program that isn't known may start what its arguments name.
                let named = || entry.is_among(&program.name, &program.arguments).then_some(false);
                let Some(certain) = certain.or_else(named) else { continue };
                let blocked = Blocked { entry: &entry.text, place: &entry.place, certain };
                if certain {
                    return Some(blocked);
                }
                perhaps.get_or_insert(blocked);
            }
        }
        perhaps
    }
}

impl<P> Entry<P> {
    /// Whether an argument of a stranger's is the program of this entry, or a text that begins with
    /// it.
    fn is_among(&self, program: &str, arguments: &[Word]) -> bool {
        let [name] = self.words.as_slice() else { return false };
        let is = |word: &Word| {
            let first = word.text.split_whitespace().next().unwrap_or_default();
            first.rsplit('/').next().is_some_and(|first| first.eq_ignore_ascii_case(name))
        };
        !starts_nothing(program) && named(program).is_none() && arguments.iter().any(is)
    }

    /// Whether the command comes under the entry, and whether that is certain.
    fn covers(&self, program: &str, arguments: &[Word], at_root: bool) -> Option<bool> {
        let (name, rest) = self.words.split_first()?;
        // `mkfs.ext4` is one of those, `sudo.sh` is somebody's script.
        let of_a_kind =
            |kind: &str| kind.strip_prefix('.').is_some_and(|kind| !SCRIPTS.contains(&kind));
        let same = program == name
            || rest.is_empty() && program.strip_prefix(name.as_str()).is_some_and(of_a_kind);
        if !same {
            return None;
        }
        if self.words == ["rm", "-rf", "/"] {
            return removes_the_root(arguments, at_root);
        }
        let mut certain = true;
        let mut arguments = arguments.iter();
        for (at, word) in rest.iter().enumerate() {
            let begins = at + 1 == rest.len() && word.ends_with('=');
            certain &= arguments
                .by_ref()
                .find_map(|argument| fits(&argument.text.to_lowercase(), word, begins))?;
        }
        Some(certain)
    }
}

/// Whether an argument is `word`, or begins with it; None: it can't be.
fn fits(argument: &str, word: &str, begins: bool) -> Option<bool> {
    let Some((before, after)) = argument.split_once(UNKNOWN) else {
        return (argument == word || begins && argument.starts_with(word)).then_some(true);
    };
    if begins && before.starts_with(word) {
        return Some(true);
    }
    let after = after.rsplit(UNKNOWN).next().unwrap_or_default();
    (word.starts_with(before) && (begins || word.ends_with(after))).then_some(false)
}

/// Whether `cd` goes to the root directory, or home.
fn leads_to_the_root(arguments: &[Word]) -> bool {
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

/// `rm` of everything, however it is written, and of the folders where git keeps its working trees.
fn removes_the_root(arguments: &[Word], at_root: bool) -> Option<bool> {
    let is_option = |word: &&Word| word.text.starts_with('-') && word.text.len() > 1;
    let recursive = |text: &str| {
        !text.starts_with("--") && text.contains(['r', 'R'])
            || "--recursive".starts_with(text) && text.len() > 3
    };
    let options = arguments.iter().filter(is_option);
    if !options.clone().any(|word| recursive(&word.text))
        && !options.clone().any(|word| word.text.contains(UNKNOWN))
    {
        return None;
    }
    let targets = arguments.iter().filter(|word| !is_option(word));
    let mut perhaps = None;
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
            perhaps = Some(false);
        }
    }
    perhaps
}
