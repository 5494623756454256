//! Writes the flags of a command as a rule writes them. For the rule `rm -rf*`, the command
//! `rm -v -fr d` becomes `rm -rf d`.
//!
//! Flags may come in any order, in one word or in several, and before or after the operands. A rule
//! that denies or asks must match all of these spellings. The flags are written in the order of the
//! rule, because a command has too many orders to try each of them.

use super::word::Word;
use super::wrappers::named;

/// Programs whose options have several letters after one dash, such as `-name` of `find`.
const SINGLE_DASH: [&str; 14] = [
    "cc",
    "clang",
    "clang++",
    "convert",
    "ffmpeg",
    "find",
    "g++",
    "gcc",
    "go",
    "java",
    "magick",
    "openssl",
    "terraform",
    "tofu",
];

/// Long flags of `rm`, and their short forms.
const RM_FLAGS: [(&str, u8); 4] =
    [("--recursive", b'r'), ("--force", b'f'), ("--dir", b'd'), ("--verbose", b'v')];

/// The flags of a command, and its other words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FlagWords {
    /// The letters of the short flags, one bit each. Case is ignored, as in the patterns of rules.
    letters: u32,
    /// Other words that begin with a dash, in lower case.
    options: Vec<String>,
    /// The program and the words that aren't flags.
    others: Vec<String>,
}

/// The flags in one word.
#[derive(Debug)]
enum Flags<'w> {
    Letters(u32),
    Option(&'w str),
}

impl FlagWords {
    /// Reads the flags of a command. Returns `None` if the command has no flags. Also returns
    /// `None` for a wrapper such as `sudo`, because the flags in its arguments belong to another
    /// command.
    pub(super) fn new<'w>(
        program: &str,
        arguments: impl IntoIterator<Item = &'w Word>,
    ) -> Option<Self> {
        if named(program).is_some() {
            return None;
        }
        let mut words = Self { others: vec![program.to_owned()], ..Self::default() };
        let mut may_be_flag = true;
        for argument in arguments {
            let text = &argument.text;
            // No word after `--` is a flag.
            if may_be_flag && text == "--" {
                may_be_flag = false;
                continue;
            }
            let argument_flags = if may_be_flag { flags(program, text) } else { None };
            match argument_flags {
                Some(Flags::Letters(letters)) => words.letters |= letters,
                Some(Flags::Option(option)) => words.options.push(option.to_lowercase()),
                None => words.others.push(text.clone()),
            }
        }
        let has_flags = words.letters != 0 || !words.options.is_empty();
        if has_flags { Some(words) } else { None }
    }

    /// Returns the program and the words that aren't flags.
    pub(super) fn others(&self) -> &[String] {
        &self.others
    }

    /// Checks whether the command has the flags in a word. With `is_prefix`, the word may be the
    /// beginning of a flag. Returns `None` if the word isn't a flag.
    pub(super) fn has(&self, word: &str, is_prefix: bool) -> Option<bool> {
        // The first of the other words is the program.
        let program = self.others.first().map_or("", String::as_str);
        match flags(program, word)? {
            Flags::Letters(letters) => {
                let common_letters = self.letters & letters;
                Some(common_letters == letters)
            }
            Flags::Option(option) => {
                let lower = option.to_lowercase();
                Some(self.options.iter().any(|known| {
                    if is_prefix { known.starts_with(&lower) } else { *known == lower }
                }))
            }
        }
    }

    /// Returns the command with only the flags of the glob `rule`, at their places in the glob.
    /// Returns `None` if the glob has no flags, or a flag that the command lacks. The result may
    /// lack flags that change the effect, so it must not allow a command.
    pub fn with_flags_of(&self, rule: &str) -> Option<String> {
        let flags = self.flags_with_indexes(rule)?;
        if flags.is_empty() {
            return None;
        }
        let mut line = Vec::with_capacity(self.others.len() + flags.len());
        let mut others = self.others.iter().map(String::as_str);
        for (flag_index, flag) in flags {
            let missing_before = flag_index.saturating_sub(line.len());
            line.extend(others.by_ref().take(missing_before));
            line.push(flag);
        }
        line.extend(others);
        Some(line.join(" "))
    }

    /// Returns the flags of the glob `rule`, and the index of each flag in the command. Returns
    /// `None` if the command lacks a flag.
    fn flags_with_indexes<'r>(&self, rule: &'r str) -> Option<Vec<(usize, &'r str)>> {
        let mut flags = Vec::new();
        let mut words = rule.split_whitespace().enumerate().peekable();
        while let Some((word_index, word)) = words.next() {
            let flag = word.trim_end_matches('*');
            let is_prefix = flag.len() < word.len();
            match self.has(flag, is_prefix) {
                Some(true) => {
                    // The last word of a rule may come after a `*`, so the word has no fixed index.
                    // With the largest index, the flag comes after all words of the command.
                    let is_end = !is_prefix && words.peek().is_none();
                    let flag_index = if is_end { usize::MAX } else { word_index };
                    flags.push((flag_index, flag));
                }
                Some(false) => return None,
                None => {}
            }
        }
        Some(flags)
    }
}

fn flags<'w>(program: &str, word: &'w str) -> Option<Flags<'w>> {
    let name = word.strip_prefix('-')?;
    if name.is_empty() {
        return None;
    }
    if name.starts_with('-') {
        // Long options may be abbreviated.
        if program == "rm"
            && word != "--"
            && let Some((_, letter)) = RM_FLAGS.iter().find(|(long, _)| long.starts_with(word))
        {
            return Some(Flags::Letters(bit(*letter)));
        }
        return Some(Flags::Option(word));
    }
    let has_only_letters = name.bytes().all(|byte| byte.is_ascii_alphabetic());
    if !has_only_letters || SINGLE_DASH.contains(&program) {
        return Some(Flags::Option(word));
    }
    let mut letters = 0;
    for letter in name.bytes() {
        letters |= bit(letter);
    }
    Some(Flags::Letters(letters))
}

fn bit(letter: u8) -> u32 {
    1 << (letter.to_ascii_lowercase() - b'a')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: &str, command: &str, expected: Option<&str>) {
        let words: Vec<Word> = command.split_whitespace().map(Word::plain).collect();
        let flags = FlagWords::new(&words[0].text, &words[1..]);
        let line = flags.and_then(|flags| flags.with_flags_of(rule));
        assert_eq!(line.as_deref(), expected, "{rule}: {command}");
    }

    #[test]
    fn flags_take_the_order_and_the_place_of_the_rule() {
        for command in [
            "rm -rf d",
            "rm -fr d",
            "rm -r -f d",
            "rm -vrf d",
            "rm -Rf d",
            "rm d -rf",
            "rm -f d -R",
            "rm --recursive --force d",
            "rm --rec -f d",
            "rm -rf -- d",
        ] {
            check("rm -rf*", command, Some("rm -rf d"));
        }
        check("rm -r -f *", "rm -fr d", Some("rm -r -f d"));
        check("rm --force --recursive*", "rm -rf d", Some("rm --force --recursive d"));
        check("rm -rf a*", "rm -v a b -fr", Some("rm -rf a b"));
        check("git push -f*", "git push origin -uf", Some("git push -f origin"));
        check("git push --force*", "git push o --force-if-x", Some("git push --force o"));
        check("git push * -f", "git push -f origin main", Some("git push origin main -f"));
        check(
            "docker run --privileged*",
            "docker run -it --privileged x",
            Some("docker run --privileged x"),
        );
        check("kill -9*", "kill 7 -9", Some("kill -9 7"));
        check("find * -delete*", "find . -type f -delete", Some("find . -delete f"));
    }

    #[test]
    fn rule_without_flags_or_with_a_missing_flag_has_no_spelling() {
        for (rule, command) in [
            ("rm *", "rm -rf d"),
            ("rm -rf*", "rm d"),
            ("rm -rf*", "rm -r d"),
            ("rm -rf*", "rm -r -- -f"),
            ("rm -rf*", "rm --recursive --forced d"),
            ("git push --force*", "git push -f"),
            ("find * -name*", "find . -maxdepth 1 -newer x"),
            ("sudo -f*", "sudo rm -f d"),
            ("rm -r*f*", "rm -fr d"),
        ] {
            check(rule, command, None);
        }
    }

    #[test]
    fn long_command_is_read_once() {
        let words: Vec<Word> = (0..30_000).map(|_| Word::plain("-v")).collect();
        let flags = FlagWords::new("rm", &words).expect("it has flags");
        assert_eq!(flags.others(), ["rm"]);
        assert_eq!(flags.with_flags_of(&"-v ".repeat(300)).map(|line| line.len()), Some(902));
    }
}
