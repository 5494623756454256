//! Expands a command to all programs that it starts, directly or through another program.

mod builtins;

use std::collections::VecDeque;

use super::calculated::{CALCULATED, Variables};
use super::grammar::{MAX_STEPS, Part, Redirect, TOO_MUCH, parse};
use super::inert::starts_nothing;
use super::options::without_options;
use super::programs::{self, SHELLS, Typescript};
use super::variables::{self, Effect};
use super::word::{UNKNOWN, Word};
use super::wrappers::{Started, named};

/// The most bytes of a script.
const MAX_BYTES: usize = 64 * 1024;

/// The deepest nesting of commands.
const MAX_DEPTH: usize = 8;

/// Most commands in one text.
const MAX_COMMANDS: usize = 256;

/// Most bytes that are analysed. If a part of the text is passed to several programs, it counts for
/// each of them.
const MAX_WORK: usize = 256 * 1024;

/// Reserved words of shells that precede a command.
const PREFIXES: [&str; 2] = ["!", "coproc"];

/// Reserved words of shells that don't begin a simple command.
const RESERVED: [&str; 18] = [
    "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "select", "case",
    "esac", "in", "function", "{", "}", "[[",
];

/// The reason if a shell reads its commands from its input or a stream.
const ELSEWHERE: &str = "it starts a shell that reads its commands from elsewhere";

/// The reason if a wrapper has an unknown option.
const WHICH: &str = "a program in it starts an unknown program";

/// The reason if an unknown text is evaluated.
const EVALUATED: &str = "it evaluates a string that is only known at run time";

/// A program that is started.
#[derive(Debug)]
pub(super) struct Program {
    /// The name in lower case without its folder.
    pub(super) name: String,
    pub(super) arguments: Vec<Word>,
    /// The program and its arguments as written.
    pub(super) text: String,
    /// The same command in other spellings: with only the name of the program, and without options
    /// before its subcommand.
    pub(super) spellings: Vec<String>,
    /// Whether this certainly is a program. If false, it may be only an argument of an unknown
    /// program.
    pub(super) certain: bool,
}

/// Everything that was found in a command.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) programs: Vec<Program>,
    pub(super) redirects: Vec<Redirect>,
    /// The commands as written. A command that differs without quotes is listed again without
    /// quotes.
    pub(super) texts: Vec<String>,
    pub(super) unclear: Option<&'static str>,
    pub(super) substitutes: bool,
    pub(super) bomb: bool,
    /// The command that writes the output of the text, and whether no other command writes to this
    /// output.
    pub(super) last: Option<(Part, bool)>,
    variables: Variables,
    todo: VecDeque<Todo>,
    work: usize,
    /// The number of callbacks that the parser may still make.
    steps: usize,
}

#[derive(Debug)]
enum Todo {
    /// A script for a shell.
    Script { text: String, depth: usize },
    /// A program and its arguments. For `certain`, see [`Program`].
    Words { words: Vec<Word>, depth: usize, certain: bool },
}

impl Reading {
    /// Reads a text, and all texts in it that are passed to a shell or another program.
    pub(super) fn expand(text: &str) -> Self {
        let mut reading = Self { steps: MAX_STEPS, ..Self::default() };
        reading.queue_script(text.to_owned(), 0);
        // A queue instead of recursion, because an untrusted text decides how deep the nesting is.
        while let Some(todo) = reading.todo.pop_front() {
            match todo {
                Todo::Script { text, depth } => reading.read_script(&text, depth),
                Todo::Words { words, depth, certain } => {
                    reading.expand_words(&words, depth, certain);
                }
            }
        }
        if !reading.variables.are_harmless() {
            reading.unclear(CALCULATED);
        }
        reading
    }

    pub(super) fn unclear(&mut self, why: &'static str) {
        self.unclear.get_or_insert(why);
    }

    /// Counts bytes of work. Returns whether the limit isn't exceeded.
    fn spend(&mut self, bytes: usize) -> bool {
        self.work += bytes;
        let is_allowed = self.work <= MAX_WORK;
        if !is_allowed {
            self.unclear(TOO_MUCH);
        }
        is_allowed
    }

    fn queue_script(&mut self, text: String, depth: usize) {
        if text.len() > MAX_BYTES {
            return self.unclear("it is longer than 64 KiB");
        }
        if depth > MAX_DEPTH {
            return self.unclear("its commands are nested more than 8 deep");
        }
        if self.spend(text.len()) {
            self.todo.push_back(Todo::Script { text, depth });
        }
    }

    fn queue_words(&mut self, words: &[Word], depth: usize, certain: bool) {
        if depth > MAX_DEPTH {
            return self.unclear("its commands are nested more than 8 deep");
        }
        if !words.is_empty() && self.spend(size(words)) {
            self.todo.push_back(Todo::Words { words: words.to_vec(), depth, certain });
        }
    }

    /// Queues a text that a program evaluates as a script.
    fn queue_evaluated(&mut self, script: &[Word], depth: usize) {
        if script.iter().any(Word::is_unknown) {
            return self.unclear(EVALUATED);
        }
        let script: Vec<&str> = script.iter().map(|word| word.text.as_str()).collect();
        self.queue_script(script.join(" "), depth + 1);
    }

    fn add_text(&mut self, text: &str) {
        if text.is_empty() || self.texts.iter().any(|known| known == text) {
            return;
        }
        if self.spend(text.len()) {
            self.texts.push(text.to_owned());
        }
    }

    fn add_words(&mut self, words: &[Word]) {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        self.add_text(&texts.join(" "));
    }

    fn add(&mut self, words: &[Word]) {
        self.add_text(&raw(words));
        self.add_words(words);
    }

    fn read_script(&mut self, text: &str, depth: usize) {
        // A shell drops NUL bytes, which joins the text around them.
        if text.contains('\0') {
            self.unclear("it contains a zero byte");
        }
        let parsed = parse(text, &mut self.steps, &mut self.variables);
        self.substitutes = self.substitutes || parsed.substitutes;
        self.bomb = self.bomb || parsed.bomb;
        for (name, value) in &parsed.assigned {
            self.add_assignment(name, value, depth);
        }
        for part in &parsed.parts {
            self.add_part(part, depth);
        }
        for redirect in parsed.redirects {
            if redirect.writes {
                self.add_text(&format!("> {}", redirect.target.text));
            }
            if self.redirects.len() < MAX_COMMANDS {
                self.redirects.push(redirect);
            } else {
                self.unclear(TOO_MUCH);
            }
        }
        if depth == 0 {
            self.last = parsed.last;
        }
        for script in parsed.scripts {
            self.queue_script(script, depth + 1);
        }
        if let Some(why) = parsed.unclear {
            self.unclear(why);
        }
    }

    fn add_part(&mut self, part: &Part, depth: usize) {
        self.add_text(&part.text);
        self.add_words(&part.words);
        for (name, value) in &part.assigned {
            self.add_assignment(name, value, depth);
        }
        if self.spend(size(&part.words)) {
            self.expand_words(&part.words, depth, true);
        }
    }

    /// Adds an assignment. Some variables are commands, and some change which programs run.
    fn add_assignment(&mut self, name: &str, value: &Word, depth: usize) {
        let after_name = value.raw.strip_prefix(name);
        let raw_value =
            after_name.and_then(|raw| raw.strip_prefix("+=").or_else(|| raw.strip_prefix('=')));
        self.variables.add_value(name, raw_value.unwrap_or(&value.raw));
        match variables::effect(name, value) {
            Effect::Nothing => {}
            Effect::Command => self.queue_evaluated(std::slice::from_ref(value), depth),
            Effect::Unclear(why) => self.unclear(why),
        }
    }

    /// Adds the program of these words, and the programs that it starts.
    fn expand_words(&mut self, mut words: &[Word], depth: usize, certain: bool) {
        loop {
            words = self.without_prefixes(words);
            let Some((program, arguments)) = words.split_first() else { return };
            if program.open {
                return self.unclear("a program's name is only known at run time");
            }
            if RESERVED.contains(&program.raw.as_str()) {
                self.unclear("it has a reserved word of the shell in place of a program");
            }
            let file = program.text.rsplit('/').next().unwrap_or_default().to_lowercase();
            let name = file.strip_suffix(".exe").unwrap_or(&file).to_owned();
            if self.programs.len() == MAX_COMMANDS || !self.spend(size(arguments)) {
                return self.unclear(TOO_MUCH);
            }
            let spellings = self.spellings(&name, program, arguments);
            self.programs.push(Program {
                name: name.clone(),
                arguments: arguments.to_vec(),
                text: raw(words),
                spellings,
                certain,
            });
            if SHELLS.contains(&name.as_str()) {
                return self.expand_shell(arguments, depth);
            }
            if self.expand_special(&name, arguments, depth, certain) {
                return;
            }
            let Some(wrapper) = named(&name) else {
                return self.expand_unknown(&name, arguments, depth);
            };
            let Started::Words { set, command } = wrapper.started(arguments) else {
                return self.unclear(WHICH);
            };
            for word in set {
                if let Some((variable, text)) = word.text.split_once('=') {
                    let value = Word { text: text.to_owned(), ..word.clone() };
                    self.add_assignment(variable, &value, depth);
                }
            }
            match command {
                [] if wrapper.may_start_unnamed() => {
                    return self.unclear("a program in it starts a program that isn't named");
                }
                [] => return,
                [option, script @ ..]
                    if wrapper.name == "flock"
                        && ["-c", "--command"].contains(&option.text.as_str()) =>
                {
                    return self.queue_evaluated(script, depth);
                }
                [option, ..] if option.text.starts_with(['-', ':']) && option.text != ":" => {
                    return self.unclear(WHICH);
                }
                command if wrapper.name == "xargs" => {
                    self.add_words(command);
                    return self.queue_words(&with_input(arguments, command), depth + 1, certain);
                }
                // These programs pass the whole command to a shell.
                command if ["watch", "parallel", "ssh"].contains(&wrapper.name) => {
                    return self.queue_evaluated(command, depth);
                }
                command => words = command,
            }
            if !self.spend(size(words)) {
                return;
            }
            self.add(words);
        }
    }

    /// Returns the words after reserved words that precede a command.
    fn without_prefixes<'w>(&mut self, mut words: &'w [Word]) -> &'w [Word] {
        while let Some((prefix, rest)) = words.split_first()
            && PREFIXES.contains(&prefix.raw.as_str())
        {
            // `coproc NAME { … }`
            if prefix.raw == "coproc"
                && let Some(word) = rest.get(1)
                && (RESERVED.contains(&word.raw.as_str()) || word.raw.starts_with('('))
            {
                self.unclear("it has a `coproc` with a name, which isn't analyzed");
            }
            words = rest;
        }
        words
    }

    /// Returns the other spellings of a program with its arguments.
    fn spellings(&mut self, name: &str, program: &Word, arguments: &[Word]) -> Vec<String> {
        let Some(mut readings) = without_options(name, arguments) else {
            self.unclear("it has too many options before a command");
            return Vec::new();
        };
        if program.text != name {
            readings.push(arguments.iter().collect());
        }
        let mut spellings = Vec::new();
        for reading in readings {
            let words = reading.iter().map(|word| word.text.as_str());
            let spelling = std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ");
            if !self.spend(spelling.len()) {
                break;
            }
            spellings.push(spelling);
        }
        spellings
    }

    /// Expands a program that has its own form for a command. Returns true if the program is one of
    /// these and is expanded completely.
    fn expand_special(
        &mut self,
        name: &str,
        arguments: &[Word],
        depth: usize,
        certain: bool,
    ) -> bool {
        match name {
            "su" | "runuser" | "script" | "sg" => {
                self.expand_user_shell(name, arguments, depth);
                true
            }
            "find" | "fd" | "fdfind" => {
                self.expand_find(arguments, depth, certain);
                true
            }
            "env" => self.expand_split_string(arguments, depth),
            _ => {
                let is_builtin = self.expand_builtin(name, arguments, depth, certain);
                if !is_builtin {
                    self.expand_options(name, arguments, depth, certain);
                }
                is_builtin
            }
        }
    }

    /// Expands a program that starts a user's shell: `su`, `runuser`, `script`, `sg`.
    fn expand_user_shell(&mut self, name: &str, arguments: &[Word], depth: usize) {
        if name == "script"
            && let Some(typescript) = Typescript::read(arguments)
            && !typescript.commands.is_empty()
        {
            for command in typescript.commands {
                self.queue_evaluated(&[command], depth);
            }
            return;
        }
        for pair in arguments.windows(2) {
            if is_command_option(&pair[0]) {
                self.queue_evaluated(&pair[1..2], depth);
            }
        }
        self.unclear("it starts a shell that may read its commands from elsewhere");
    }

    /// Expands the actions of `find` and `fd`.
    fn expand_find(&mut self, arguments: &[Word], depth: usize, certain: bool) {
        let actions = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
        for (at, word) in arguments.iter().enumerate() {
            let text = word.text.as_str();
            let attached =
                text.strip_prefix("--exec=").or_else(|| text.strip_prefix("--exec-batch="));
            if let Some(script) = attached {
                self.queue_script(script.to_owned(), depth + 1);
            }
            if actions.contains(&text) {
                let command = &arguments[at + 1..];
                let end = command
                    .iter()
                    .position(|word| word.text == ";" || word.text == "+")
                    .unwrap_or(command.len());
                self.add(&command[..end]);
                self.queue_words(&command[..end], depth + 1, certain);
            }
        }
    }

    /// Expands `env -S`, which splits one string into words. Returns false if `env` has no such
    /// option.
    fn expand_split_string(&mut self, arguments: &[Word], depth: usize) -> bool {
        let option = arguments
            .iter()
            .enumerate()
            .find_map(|(at, word)| Some((at, split_string(&word.text)?)));
        let Some((at, value)) = option else { return false };
        let mut before = arguments[..at].iter();
        if !before.all(|word| word.text.starts_with('-') || word.text.contains('=')) {
            return false;
        }

        let mut text = value.to_owned();
        for word in &arguments[at + 1..] {
            text.push(' ');
            text.push_str(&word.text);
        }
        if text.contains(['\\', '$', UNKNOWN]) {
            self.unclear(WHICH);
        }
        // The options and assignments of `env` come before the command.
        let command = text
            .split_whitespace()
            .skip_while(|word| word.contains('=') || word.starts_with('-'))
            .collect::<Vec<_>>();
        self.queue_script(command.join(" "), depth + 1);
        true
    }

    /// Expands the options of other programs that take commands.
    fn expand_options(&mut self, name: &str, arguments: &[Word], depth: usize, certain: bool) {
        let started = programs::started(name, arguments);
        for script in started.scripts {
            self.queue_evaluated(&[script], depth);
        }
        for words in started.words {
            self.add(&words);
            self.queue_words(&words, depth + 1, certain);
        }
        if let Some(why) = started.unclear {
            self.unclear(why);
        }
    }

    /// Expands an unknown program. Such a program may start a shell that is in its arguments.
    fn expand_unknown(&mut self, name: &str, arguments: &[Word], depth: usize) {
        if starts_nothing(name) {
            return;
        }
        if let Some(at) = arguments.iter().position(is_shell) {
            self.add(&arguments[at..]);
            self.queue_words(&arguments[at..], depth + 1, false);
        }
    }

    /// Expands the arguments of a shell.
    fn expand_shell(&mut self, arguments: &[Word], depth: usize) {
        let mut words = arguments.iter();
        // Whether an option says that the next word is the script.
        let mut takes_script = false;
        while let Some(word) = words.next() {
            let text = word.text.as_str();
            if word.open && (takes_script || !is_file(word)) {
                return self.unclear("the script for a shell is only known at run time");
            }
            if text == "-" {
                break;
            }
            let is_option = text.starts_with(['-', '+']) && text.len() > 1;
            if !is_option {
                if takes_script {
                    return self.queue_script(text.to_owned(), depth + 1);
                }
                if is_stream(word) {
                    break;
                }
                // A script in a file.
                return;
            }
            if ["--version", "--help"].contains(&text) {
                return;
            }

            let is_short = !text.starts_with("--");
            let has_unknown_commands = text.starts_with("--command=")
                || text.starts_with("--init-command")
                || (is_short && text.contains('C'));
            if has_unknown_commands {
                return self.unclear("it starts a shell with unknown commands");
            }
            if text == "--command" || (is_short && text.contains('c')) {
                takes_script = true;
            }
            let takes_next = ["--rcfile", "--init-file"].contains(&text)
                || (is_short && text.contains(['o', 'O']));
            if takes_next {
                words.next();
            }
        }
        self.unclear(ELSEWHERE);
    }
}

/// Returns the value of the option `-S` or `--split-string` of `env`, if a word is this option.
fn split_string(word: &str) -> Option<&str> {
    if let Some(value) = word.strip_prefix("--split-string") {
        return Some(value.trim_start_matches('='));
    }
    let letters = word.strip_prefix('-')?;
    if letters.starts_with('-') {
        return None;
    }
    letters.split_once('S').map(|(_, value)| value)
}

/// Checks whether a word is the option before a command for a shell.
fn is_command_option(word: &Word) -> bool {
    let is_short_group = word.text.starts_with('-') && !word.text.starts_with("--");
    word.text == "--command" || (is_short_group && word.text.ends_with('c'))
}

/// Checks whether a word certainly names a shell, or a program that may start one.
fn is_shell(word: &Word) -> bool {
    let name = word.text.rsplit('/').next().unwrap_or_default();
    !word.open && (SHELLS.contains(&name) || ["busybox", "xargs", "eval"].contains(&name))
}

fn raw(words: &[Word]) -> String {
    words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ")
}

fn size(words: &[Word]) -> usize {
    words.iter().map(|word| word.text.len() + 8).sum()
}

/// Checks whether a file name may be the name of a stream, such as the standard input.
fn is_stream(word: &Word) -> bool {
    let is_unknown = word.open && !is_file(word);
    is_unknown
        || word.text == "-"
        || ["dev/", "proc/", "fd/", "stdin"].iter().any(|part| word.text.contains(part))
}

/// Checks whether a word certainly names a file in a folder: `"$DIR/build.sh"`.
fn is_file(word: &Word) -> bool {
    let known = word.text.rsplit(UNKNOWN).next().unwrap_or_default();
    !word.splits && known.starts_with('/') && known.len() > 1
}

/// Returns the command that `xargs` starts. Its input is unknown, and is appended to the words or
/// replaces the mark of `-I`. For this reason the input can be a program or a script.
fn with_input(arguments: &[Word], command: &[Word]) -> Vec<Word> {
    let options = &arguments[..arguments.len() - command.len()];
    let mut marks = Vec::new();
    for (at, option) in options.iter().enumerate() {
        let mark = match option.text.strip_prefix("-I") {
            Some("") => options.get(at + 1).map_or("", |next| next.text.as_str()),
            Some(mark) => mark,
            None => continue,
        };
        if !mark.is_empty() {
            marks.push(mark);
        }
    }

    let mut words = Vec::new();
    for word in command {
        let has_mark = marks.iter().any(|mark| word.text.contains(mark));
        words.push(if has_mark { Word::unknown(&word.raw) } else { word.clone() });
    }
    words.push(Word::unknown("…"));
    words
}
