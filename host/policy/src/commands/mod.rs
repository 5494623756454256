//! What a shell command would do, as far as its text tells.
//!
//! It is taken apart into the commands that it is made of, those that other programs would start for it included, and each is looked at.
//! What can't be told before it runs (a program in a variable, say) is unclear, and asks.

mod blocklist;
mod risk;
mod split;
mod wrappers;

pub use blocklist::{Blocklist, DEFAULT_BLOCKED};
pub(crate) use risk::Risk;

#[cfg(test)]
mod tests;

use risk::risk;
use split::{Part, Split, UNKNOWN, Word};
use wrappers::{Started, is_assignment, named};

/// Shells, whose `-c` takes a command.
const SHELLS: [&str; 9] = ["sh", "bash", "zsh", "fish", "dash", "ash", "ksh", "csh", "tcsh"];

/// Words of the shell's own that stand before a command.
const RESERVED: [&str; 10] = ["if", "then", "elif", "else", "while", "until", "do", "!", "{", "coproc"];

/// Words of the shell's own behind which no command stands.
const NO_COMMAND: [&str; 7] = ["for", "select", "case", "fi", "done", "esac", "}"];

/// The command line that runs a program with arguments, each quoted where that is needed.
pub fn command_line<'w>(words: impl IntoIterator<Item = &'w String>) -> String {
    let quote = |word: &'w String| shlex::try_quote(word).map_or_else(|_| word.replace('\0', ""), |quoted| quoted.into_owned());
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A command that was looked into.
#[derive(Debug, Default)]
pub(crate) struct Command {
    /// Each command in it and each file that it redirects to, as they are written and, where that differs, without their quotes.
    pub(crate) texts: Vec<String>,
    /// The commands in it: a program's name, in small letters and without its folder, and its arguments.
    simple: Vec<(String, Vec<Word>)>,
    /// Why more may happen than that.
    pub(crate) unclear: Option<&'static str>,
}

impl Command {
    /// Looks into a command.
    pub(crate) fn read(text: &str) -> Self {
        let mut split = Split::default();
        split.read(text, 0);
        let mut command = Self::default();
        let mut next = 0;
        // Looking at a part may find more of them: what `sh -c` takes, say.
        while let Some(part) = split.parts.get(next).cloned() {
            command.look(&part, &mut split);
            next += 1;
        }
        command.unclear = split.unclear;
        command
    }

    /// The highest risk of what it would do, and the program that brings it.
    pub(crate) fn risk(&self) -> (Risk, &str) {
        let risks = self.simple.iter().map(|(program, arguments)| (risk(program, arguments), program.as_str()));
        // Of several, the first.
        risks.fold((Risk::Low, ""), |highest, next| if next.0 > highest.0 { next } else { highest })
    }

    fn add_text(&mut self, text: String) {
        if !text.is_empty() && !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    fn add_words(&mut self, words: &[Word]) {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        self.add_text(texts.join(" "));
    }

    fn look(&mut self, part: &Part, split: &mut Split) {
        let mut words = part.words.as_slice();
        while let Some((first, rest)) = words.split_first() {
            let reserved = |word: &Word| RESERVED.contains(&word.text.as_str()) || NO_COMMAND.contains(&word.text.as_str());
            if first.text == "coproc" && rest.get(1).is_some_and(reserved) {
                // With a name.
                words = &rest[1..];
            } else if RESERVED.contains(&first.text.as_str()) && !first.open || first.text == "{" {
                words = rest;
            } else if first.text == "function" {
                words = rest.get(1..).unwrap_or_default();
            } else if ["for", "select"].contains(&first.text.as_str()) {
                match rest {
                    // Over the arguments, if nothing else is named.
                    [_, word, rest @ ..] if word.text == "do" => words = rest,
                    [_] => return,
                    [_, word, ..] if word.text == "in" => return,
                    _ => return split.unclear("a loop in it is of no form that is known"),
                }
            } else {
                break;
            }
        }
        match words.first() {
            None if !part.words.is_empty() => return,
            Some(first) if NO_COMMAND.contains(&first.text.as_str()) => return,
            _ => self.add_text(part.text.clone()),
        }
        self.add_words(words);
        self.follow(words, split);
    }

    /// Notes the command that `words` are, and those that it starts.
    fn follow(&mut self, mut words: &[Word], split: &mut Split) {
        loop {
            while let Some((_, rest)) = words.split_first().filter(|(word, _)| is_assignment(word)) {
                words = rest;
                self.add_words(words);
            }
            let Some((program, arguments)) = words.split_first() else { return };
            if program.open {
                return split.unclear("a program's name in it is only known when it runs");
            }
            let name = program.text.rsplit('/').next().unwrap_or_default().to_lowercase();
            let name = name.strip_suffix(".exe").unwrap_or(&name).to_owned();
            self.simple.push((name.clone(), arguments.to_vec()));
            if SHELLS.contains(&name.as_str()) {
                return script_of(arguments, split);
            }
            if RESERVED.contains(&name.as_str()) || NO_COMMAND.contains(&name.as_str()) {
                return split.unclear("a word of the shell's own stands in it where a program is expected");
            }
            match name.as_str() {
                "su" | "runuser" | "script" => {
                    for pair in arguments.windows(2).filter(|pair| ["-c", "--command"].contains(&pair[0].text.as_str())) {
                        evaluated(&pair[1..], split);
                    }
                    return split.unclear("it starts a shell that may read its commands from elsewhere");
                }
                "." | "source" if arguments.first().is_some_and(is_stream) => {
                    return split.unclear("it starts a shell that reads its commands from elsewhere");
                }
                "eval" => return evaluated(arguments, split),
                "trap" => return arguments.first().map_or((), |script| evaluated(std::slice::from_ref(script), split)),
                "find" | "fd" => {
                    let marks = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
                    for (at, _) in arguments.iter().enumerate().filter(|(_, word)| marks.contains(&word.text.as_str())) {
                        let command = &arguments[at + 1..];
                        let end = command.iter().position(|word| word.text == ";" || word.text == "+").unwrap_or(command.len());
                        self.add_words(&command[..end]);
                        self.follow(&command[..end], split);
                    }
                    return;
                }
                _ => {}
            }
            let Some(wrapper) = named(&name) else { return };
            match wrapper.started(arguments) {
                Started::Words([]) if wrapper.may_start_unnamed() => {
                    return split.unclear("a program in it starts another one, which isn't named");
                }
                Started::Words([]) => return,
                Started::Words([option, script @ ..]) if wrapper.name == "flock" && ["-c", "--command"].contains(&option.text.as_str()) => {
                    return evaluated(script, split);
                }
                Started::Words([option, ..]) if option.text.starts_with(['-', ':']) => {
                    return split.unclear("a program in it starts another one, and it can't be told which");
                }
                Started::Words(command) if wrapper.name == "xargs" => {
                    self.add_words(command);
                    return self.follow(&with_input(arguments, command), split);
                }
                // These hand all of it to a shell.
                Started::Words(command) if ["watch", "parallel"].contains(&wrapper.name) => return evaluated(command, split),
                Started::Words(command) => words = command,
                Started::Unclear => return split.unclear("a program in it starts another one, and it can't be told which"),
            }
            self.add_words(words);
        }
    }
}

/// What `xargs` starts. What it reads stands behind the words that are named, and wherever `-I` says: it may be a program's name, or a
/// shell's script.
fn with_input(arguments: &[Word], command: &[Word]) -> Vec<Word> {
    let options = &arguments[..arguments.len() - command.len()];
    let marks: Vec<&str> = options
        .iter()
        .enumerate()
        .filter_map(|(at, option)| match option.text.strip_prefix("-I")? {
            "" => options.get(at + 1).map(|mark| mark.text.as_str()),
            mark => Some(mark),
        })
        .filter(|mark| !mark.is_empty())
        .collect();
    let unknown = || Word { text: UNKNOWN.to_string(), open: true };
    let replaced = |word: &Word| if marks.iter().any(|mark| word.text.contains(mark)) { unknown() } else { word.clone() };
    command.iter().map(replaced).chain([unknown()]).collect()
}

/// What a shell is given to run.
fn script_of(arguments: &[Word], split: &mut Split) {
    let (mut rest, mut is_next) = (arguments.iter(), false);
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        let option = text.starts_with(['-', '+']) && text.len() > 1;
        if word.open {
            return split.unclear("what it gives to a shell is only known when it runs");
        }
        if text == "-" {
            break;
        }
        if !option && is_next {
            return split.read(text, 1);
        }
        if !option && is_stream(word) {
            break;
        }
        if !option {
            // A script in a file.
            return;
        }
        let short = !text.starts_with("--");
        if short && text.contains('C') || text.starts_with("--command=") || text.starts_with("--init-command") {
            return split.unclear("it starts a shell with commands that can't be told");
        }
        is_next |= short && text.contains('c') || text == "--command";
        if short && text.contains(['o', 'O']) || ["--rcfile", "--init-file"].contains(&text) {
            rest.next();
        }
    }
    split.unclear("it starts a shell that reads its commands from elsewhere");
}

/// Whether a file's name may stand for what is piped in.
fn is_stream(word: &Word) -> bool {
    word.open || word.text == "-" || ["dev/", "proc/", "fd/", "stdin"].iter().any(|part| word.text.contains(part))
}

fn evaluated(script: &[Word], split: &mut Split) {
    if script.iter().any(|word| word.text.contains(UNKNOWN)) {
        return split.unclear("it evaluates a text that is only known when it runs");
    }
    let script: Vec<&str> = script.iter().map(|word| word.text.as_str()).collect();
    split.read(&script.join(" "), 1);
}
