//! Finds blocked commands, which never run.

use super::Command;
use super::flags::FlagWords;
use super::inert::starts_nothing;
use super::word::{UNKNOWN, Word};
use super::wrappers::named;

/// The commands that are blocked by default. An entry of several words blocks a program if its
/// arguments contain the other words in this order. A last word that ends in `=` matches all
/// arguments that start with this word. `rm -rf /` matches all forms of that command.
pub const DEFAULT_BLOCKED: [&str; 12] = [
    "rm -rf /", "sudo", "mkfs", "dd if=", "curl", "wget", "nc", "ncat", "netcat", "shutdown",
    "reboot", "halt",
];

const SCRIPTS: [&str; 10] = ["sh", "bash", "py", "js", "mjs", "ts", "rb", "pl", "php", "lua"];

/// The blocked commands. The caller chooses the type `P` of the place of an entry.
#[derive(Clone, Debug)]
pub struct Blocklist<P>(Vec<Entry<P>>);

#[derive(Clone, Debug)]
struct Entry<P> {
    text: String,
    place: P,
    words: Vec<String>,
}

/// An entry that matches a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Blocked<'b, P> {
    /// The entry as written.
    pub entry: &'b str,
    /// The place of the entry in the configuration.
    pub place: &'b P,
    /// Whether the match is certain. An uncertain match depends on data that is known only at run
    /// time.
    pub certain: bool,
}

impl<P> Default for Blocklist<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P> Blocklist<P> {
    /// Creates a blocklist from entries and their places in the configuration.
    pub fn new<Q: Into<P>>(entries: impl IntoIterator<Item = (String, Q)>) -> Self {
        let mut list = Vec::new();
        for (text, place) in entries {
            let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
            // An empty entry would match every command.
            if !words.is_empty() {
                list.push(Entry { place: place.into(), text, words });
            }
        }
        Self(list)
    }

    /// Returns the entry that matches a command. A certain match takes precedence over a possible
    /// match.
    pub fn find(&self, command: &Command) -> Option<Blocked<'_, P>> {
        let mut possible = None;
        // Whether an earlier program changed to the root or home directory: `cd / && rm -rf *`.
        let mut at_root = false;
        for program in &command.programs {
            if matches!(program.name.as_str(), "cd" | "pushd") {
                at_root = changes_to_root(&program.arguments);
            }
            for entry in &self.0 {
                let certain = match entry.covers(&program.name, &program.arguments, at_root) {
                    Some(certain) => certain,
                    // An unknown program may start a program that its arguments name, but it isn't
                    // certain to.
                    None if entry.is_among(&program.name, &program.arguments) => false,
                    None => continue,
                };
                let blocked = Blocked { entry: &entry.text, place: &entry.place, certain };
                if certain {
                    return Some(blocked);
                }
                if possible.is_none() {
                    possible = Some(blocked);
                }
            }
        }
        possible
    }
}

impl<P> Entry<P> {
    /// Checks whether an argument of an unknown program names the program of this entry, alone or
    /// at the start of a text. Only an entry of one word can match in this way.
    fn is_among(&self, program: &str, arguments: &[Word]) -> bool {
        let [name] = self.words.as_slice() else { return false };
        // For a known program, the analysis already found the programs that it starts, so its
        // arguments don't matter here.
        if starts_nothing(program) || named(program).is_some() {
            return false;
        }
        arguments.iter().any(|word| {
            let first_word = word.text.split_whitespace().next().unwrap_or_default();
            let file_name = first_word.rsplit('/').next().unwrap_or_default();
            file_name.eq_ignore_ascii_case(name)
        })
    }

    /// Returns whether the match with a command is certain, or `None` if the entry doesn't match.
    fn covers(&self, program: &str, arguments: &[Word], at_root: bool) -> Option<bool> {
        let (name, rest) = self.words.split_first()?;
        let names_variant = rest.is_empty() && is_variant(program, name);
        if program != name && !names_variant {
            return None;
        }
        if self.words == ["rm", "-rf", "/"] {
            return removes_root(arguments, at_root);
        }
        if contains_with_flags(program, arguments, rest) {
            return Some(true);
        }

        // Each word of the entry must match an argument after the matches of the earlier words.
        let mut all_certain = true;
        let mut remaining = arguments.iter();
        for (index, word) in rest.iter().enumerate() {
            // A last word such as `of=` matches any argument that starts with it.
            let is_prefix = index + 1 == rest.len() && word.ends_with('=');
            let is_certain = remaining.by_ref().find_map(|argument| {
                matches_word(&argument.text.to_lowercase(), word, is_prefix)
            })?;
            if !is_certain {
                all_certain = false;
            }
        }
        Some(all_certain)
    }
}

/// Checks whether the arguments certainly contain the flags of `rest` in any order and place, and
/// the other words of `rest` in their order. Returns false if `rest` has no flags.
fn contains_with_flags(program: &str, arguments: &[Word], rest: &[String]) -> bool {
    if !rest.iter().any(|word| word.starts_with('-')) {
        return false;
    }
    let Some(words) = FlagWords::new(program, arguments) else { return false };
    // The first of these words is the program.
    let mut others = words.others().iter().skip(1);
    for (index, word) in rest.iter().enumerate() {
        // A last word such as `of=` matches any argument that starts with it.
        let is_prefix = index + 1 == rest.len() && word.ends_with('=');
        let has_word = match words.has(word, is_prefix) {
            Some(has_flag) => has_flag,
            None => others
                .any(|other| matches_word(&other.to_lowercase(), word, is_prefix) == Some(true)),
        };
        if !has_word {
            return false;
        }
    }
    true
}

/// Checks whether a program is a variant of the program `name`: `mkfs.ext4` is a variant of `mkfs`,
/// but `sudo.sh` is a script.
fn is_variant(program: &str, name: &str) -> bool {
    let Some(suffix) = program.strip_prefix(name) else { return false };
    let Some(kind) = suffix.strip_prefix('.') else { return false };
    !SCRIPTS.contains(&kind)
}

/// Returns whether an argument certainly matches `word`, or `None` if the argument can't match.
/// With `is_prefix`, an argument that starts with `word` matches.
fn matches_word(argument: &str, word: &str, is_prefix: bool) -> Option<bool> {
    let Some((known_start, rest)) = argument.split_once(UNKNOWN) else {
        let is_match = if is_prefix { argument.starts_with(word) } else { argument == word };
        return if is_match { Some(true) } else { None };
    };
    if is_prefix && known_start.starts_with(word) {
        return Some(true);
    }
    // The unknown parts can be any text, so only the known start and the known end are compared.
    let known_end = rest.rsplit(UNKNOWN).next().unwrap_or_default();
    let may_match = word.starts_with(known_start) && (is_prefix || word.ends_with(known_end));
    if may_match { Some(false) } else { None }
}

fn changes_to_root(arguments: &[Word]) -> bool {
    // `cd -` changes to the previous directory, so `-` isn't an option.
    let Some(target) =
        arguments.iter().find(|word| !word.text.starts_with('-') || word.text == "-")
    else {
        // Without an argument, `cd` changes to the home directory.
        return true;
    };
    let raw = target.raw.trim_matches('"').trim_end_matches('/');
    let is_home = matches!(raw, "~" | "$HOME" | "${HOME}");
    let is_root = target.text.starts_with('/')
        && target.text.split('/').all(|part| matches!(part, "" | "." | ".."));
    is_root || is_home
}

/// Returns whether `rm` certainly deletes the root or home directory, or git's folder of worktrees.
/// Returns `None` if `rm` deletes no such directory. `at_root` means that the command runs in the
/// root or home directory.
fn removes_root(arguments: &[Word], at_root: bool) -> Option<bool> {
    let mut options = arguments.iter().filter(|word| is_option(word));
    if !options.any(|word| is_recursive(&word.text) || word.text.contains(UNKNOWN)) {
        return None;
    }
    let targets = arguments.iter().filter(|word| !is_option(word));
    let mut possible = None;
    for target in targets {
        let known: String = target.text.chars().filter(|c| *c != UNKNOWN).collect();
        // A path of depth 0 is the top directory itself, as in `/tmp/..`.
        let is_top = depth(known.trim_end_matches('*')) == 0;
        let has_unknown_part = target.text.contains(UNKNOWN);
        let is_root = is_top && !has_unknown_part && (at_root || known.starts_with('/'));
        let is_home = matches!(known.as_str(), "~" | "~/" | "~/*");
        if is_root || is_home || known.contains(".git/worktrees") {
            return Some(true);
        }
        // The unknown part may be empty, or the top directory itself.
        if is_top && has_unknown_part {
            possible = Some(false);
        }
    }
    possible
}

/// Returns the number of folders between the top directory and a path.
fn depth(path: &str) -> usize {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    depth
}

fn is_option(word: &Word) -> bool {
    word.text.starts_with('-') && word.text.len() > 1
}

fn is_recursive(option: &str) -> bool {
    if option.starts_with("--") {
        // Long options may be abbreviated.
        return "--recursive".starts_with(option) && option.len() > 3;
    }
    option.contains(['r', 'R'])
}
