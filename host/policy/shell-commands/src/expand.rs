//! Expands a command to all programs that it starts, directly or through another program.

use std::collections::VecDeque;

use super::calculated::{CALCULATED, Rule, Variables, applies};
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

/// The most commands in one text.
const MAX_COMMANDS: usize = 256;

/// The most bytes that are analyzed in all. Each part of the text counts again for each program
/// that it is passed to.
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
const WHICH: &str = "a program in it starts another program, and it is unknown which";

/// The reason if an unknown text is evaluated.
const EVALUATED: &str = "it evaluates a text that is only known when it runs";

/// A program that is started.
#[derive(Debug)]
pub(super) struct Program {
    /// The name in lower case, without its folder.
    pub(super) name: String,
    pub(super) arguments: Vec<Word>,
    /// The program and its arguments as written.
    pub(super) text: String,
    /// The same command in other spellings: with the name alone, and without options before its
    /// subcommand.
    pub(super) spellings: Vec<String>,
    /// Whether it certainly is a program, and not just an argument of an unknown program.
    pub(super) certain: bool,
}

/// Everything that was found in a command.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) programs: Vec<Program>,
    pub(super) redirects: Vec<Redirect>,
    /// Each command: as written, and also without quotes if that differs.
    pub(super) texts: Vec<String>,
    pub(super) unclear: Option<&'static str>,
    pub(super) substitutes: bool,
    pub(super) bomb: bool,
    /// The command that writes the output of the text, and whether no other command writes to it.
    pub(super) last: Option<(Part, bool)>,
    variables: Variables,
    todo: VecDeque<Todo>,
    work: usize,
    /// The callbacks that the parser has left.
    steps: usize,
}

#[derive(Debug)]
enum Todo {
    /// A script for a shell.
    Script { text: String, depth: usize },
    /// A program and its arguments. `certain`: as in [`Program`].
    Words { words: Vec<Word>, depth: usize, certain: bool },
}

impl Reading {
    /// Reads a text, and everything in it that is passed to a shell or another program.
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

    /// Counts bytes of work. Returns whether the limit allows them.
    fn spend(&mut self, bytes: usize) -> bool {
        self.work += bytes;
        if self.work > MAX_WORK {
            self.unclear(TOO_MUCH);
        }
        self.work <= MAX_WORK
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
        if !text.is_empty()
            && !self.texts.iter().any(|known| known == text)
            && self.spend(text.len())
        {
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
        // A shell drops a zero byte, and so joins the text around it.
        if text.contains('\0') {
            self.unclear("it contains a zero byte");
        }
        let parsed = parse(text, &mut self.steps, &mut self.variables);
        self.substitutes |= parsed.substitutes;
        self.bomb |= parsed.bomb;
        parsed.assigned.iter().for_each(|(name, value)| self.add_assignment(name, value, depth));
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
        parsed.scripts.into_iter().for_each(|script| self.queue_script(script, depth + 1));
        parsed.unclear.into_iter().for_each(|why| self.unclear(why));
    }

    fn add_part(&mut self, part: &Part, depth: usize) {
        self.add_text(&part.text);
        self.add_words(&part.words);
        part.assigned.iter().for_each(|(name, value)| self.add_assignment(name, value, depth));
        if self.spend(size(&part.words)) {
            self.expand_words(&part.words, depth, true);
        }
    }

    /// Adds an assignment. Some variables are commands, and some change which programs run.
    fn add_assignment(&mut self, name: &str, value: &Word, depth: usize) {
        let raw = value
            .raw
            .strip_prefix(name)
            .and_then(|raw| raw.strip_prefix("+=").or_else(|| raw.strip_prefix('=')));
        self.variables.add_value(name, raw.unwrap_or(&value.raw));
        match variables::effect(name, value) {
            Effect::Nothing => {}
            Effect::Command => self.queue_evaluated(std::slice::from_ref(value), depth),
            Effect::Unclear(why) => self.unclear(why),
        }
    }

    /// Adds the program of these words, and the programs that it starts.
    fn expand_words(&mut self, mut words: &[Word], depth: usize, certain: bool) {
        loop {
            while let Some((first, rest)) =
                words.split_first().filter(|(word, _)| PREFIXES.contains(&word.raw.as_str()))
            {
                // `coproc NAME { … }`
                if first.raw == "coproc"
                    && rest.get(1).is_some_and(|word| {
                        RESERVED.contains(&word.raw.as_str()) || word.raw.starts_with('(')
                    })
                {
                    self.unclear("it has a `coproc` with a name, which isn't analyzed");
                }
                words = rest;
            }
            let Some((program, arguments)) = words.split_first() else { return };
            if program.open {
                return self.unclear("a program's name in it is only known when it runs");
            }
            if RESERVED.contains(&program.raw.as_str()) {
                self.unclear("it has a reserved word of the shell in place of a program");
            }
            let name = program.text.rsplit('/').next().unwrap_or_default().to_lowercase();
            let name = name.strip_suffix(".exe").unwrap_or(&name).to_owned();
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
            let command = match wrapper.started(arguments) {
                Started::Words { set, command } => {
                    for word in set {
                        if let Some((name, value)) = word.text.split_once('=') {
                            self.add_assignment(
                                name,
                                &Word { text: value.to_owned(), ..word.clone() },
                                depth,
                            );
                        }
                    }
                    command
                }
                Started::Unclear => return self.unclear(WHICH),
            };
            match command {
                [] if wrapper.may_start_unnamed() => {
                    return self.unclear("a program in it starts another program that isn't named");
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
                // These pass the whole command to a shell.
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

    /// The spellings of a program with its arguments beside the one that is written.
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

    /// Expands a program that takes a command in its own form. Returns true if it is such a program
    /// and nothing else is left to expand.
    fn expand_special(
        &mut self,
        name: &str,
        arguments: &[Word],
        depth: usize,
        certain: bool,
    ) -> bool {
        let first = arguments.first();
        match name {
            "su" | "runuser" | "script" | "sg" => {
                let typescript = (name == "script").then(|| Typescript::read(arguments)).flatten();
                if let Some(script) = typescript.filter(|script| !script.commands.is_empty()) {
                    for command in script.commands {
                        self.queue_evaluated(&[command], depth);
                    }
                    return true;
                }
                let takes = |word: &Word| {
                    let short = word.text.starts_with('-')
                        && !word.text.starts_with("--")
                        && word.text.ends_with('c');
                    short || word.text == "--command"
                };
                for pair in arguments.windows(2).filter(|pair| takes(&pair[0])) {
                    self.queue_evaluated(&pair[1..2], depth);
                }
                self.unclear("it starts a shell that may read its commands from elsewhere");
            }
            "." | "source" if first.is_some_and(is_stream) => self.unclear(ELSEWHERE),
            "." | "source" => {}
            "eval" if applies(Rule::Eval) => self.queue_evaluated(without_dashes(arguments), depth),
            "trap"
                if first.is_some_and(|word| {
                    word.text == "-" || word.text == "-p" || word.text == "-l"
                }) => {}
            "trap" if applies(Rule::Trap) => {
                self.queue_evaluated(without_dashes(arguments).get(..1).unwrap_or_default(), depth);
            }
            "alias" => {
                for (name, value, word) in arguments.iter().filter_map(pair) {
                    self.variables.add_function(name);
                    if applies(Rule::Alias) {
                        self.queue_evaluated(
                            &[Word { text: value.to_owned(), ..word.clone() }],
                            depth,
                        );
                    }
                }
            }
            "hash" if arguments.iter().any(|word| has_letter(word, 'p')) => {
                self.unclear("it makes a name stand for another program");
            }
            "enable" if arguments.iter().any(|word| has_letter(word, 'f')) => {
                self.unclear("it loads a command from a file");
            }
            "fc" if !arguments.iter().any(|word| has_letter(word, 'l')) => {
                self.unclear("it runs earlier commands again");
            }
            "jobs"
                if first.is_some_and(|word| word.text == "-x" || word.open)
                    && applies(Rule::Jobs) =>
            {
                self.queue_words(&arguments[1..], depth + 1, certain);
            }
            "mapfile" | "readarray" | "complete" | "compgen" => {
                // The value of an option follows its letter, or is the next word.
                let after = |letter: char| {
                    let at = arguments.iter().position(|word| has_letter(word, letter))?;
                    match arguments[at].text.split_once(letter)?.1 {
                        "" => arguments.get(at + 1).cloned(),
                        script => Some(Word { text: script.to_owned(), ..arguments[at].clone() }),
                    }
                };
                if let Some(script) = after('C').filter(|_| applies(Rule::Callback)) {
                    self.queue_evaluated(&[script], depth);
                }
                // The words of `-W` are expanded again.
                let evaluated =
                    |words: &Word| words.is_unknown() || words.text.contains(['$', '`', '<', '>']);
                if name == "compgen"
                    && after('W').as_ref().is_some_and(evaluated)
                    && applies(Rule::Words)
                {
                    self.unclear(EVALUATED);
                }
                if matches!(name, "mapfile" | "readarray") {
                    arguments
                        .iter()
                        .filter(|word| !word.text.starts_with('-'))
                        .for_each(|word| self.variables.add_unknown_value(&word.raw));
                }
            }
            "let" if applies(Rule::Let) => {
                arguments.iter().for_each(|word| self.variables.add_arithmetic(&word.raw));
            }
            "test" | "[" => self
                .variables
                .add_test(arguments.strip_suffix(&[Word::plain("]")]).unwrap_or(arguments)),
            "declare" | "typeset" | "local" | "export" | "readonly" => {
                self.variables.add_declaration(name, arguments);
                // The variable is only known when it runs, and may be `PATH`.
                if arguments
                    .iter()
                    .any(|word| word.text.split('=').next().unwrap_or_default().contains(UNKNOWN))
                {
                    self.unclear(EVALUATED);
                }
                for (name, value, word) in arguments.iter().filter_map(pair) {
                    self.add_assignment(
                        name,
                        &Word { text: value.to_owned(), ..word.clone() },
                        depth,
                    );
                }
            }
            "unset" if applies(Rule::UnsetName) => {
                arguments
                    .iter()
                    .filter(|word| !word.text.starts_with('-'))
                    .for_each(|word| self.variables.add_name(&word.raw));
            }
            "read" => {
                if applies(Rule::ReadName) {
                    read_names(arguments).for_each(|word| self.variables.add_name(&word.raw));
                }
                read_names(arguments).for_each(|word| self.variables.add_unknown_value(&word.raw));
                if arguments.iter().any(|word| variables::affects_programs(&word.text)) {
                    self.unclear(EVALUATED);
                }
            }
            "printf" | "wait" => {
                let option = if name == "printf" { "-v" } else { "-p" };
                let rule = if name == "printf" { Rule::PrintfName } else { Rule::WaitName };
                // An unknown first word may be the option with a name and an index. A word that
                // only begins with unknown text would have to end in an index.
                let first = arguments.first().filter(|word| word.text.starts_with(UNKNOWN));
                if first.is_some_and(|word| word.splits || word.text.ends_with([UNKNOWN, ']']))
                    && applies(rule)
                {
                    self.variables.add_arithmetic(&arguments[0].raw);
                }
                let at = arguments.iter().position(|word| word.text.starts_with(option));
                let target = at.and_then(|at| {
                    match arguments[at]
                        .raw
                        .trim_start_matches(['"', '\''])
                        .trim_start_matches(option)
                    {
                        "" => arguments.get(at + 1).map(|word| word.raw.as_str()),
                        attached => Some(attached),
                    }
                });
                if let Some(target) = target {
                    if applies(rule) {
                        self.variables.add_name(target);
                    }
                    self.variables.add_unknown_value(target);
                    if variables::affects_programs(target.trim_matches(['"', '\''])) {
                        self.unclear(EVALUATED);
                    }
                }
            }
            "getopts" => {
                arguments
                    .get(1)
                    .into_iter()
                    .for_each(|word| self.variables.add_unknown_value(&word.raw));
            }
            "find" | "fd" | "fdfind" => {
                let marks =
                    ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
                for (at, word) in arguments.iter().enumerate() {
                    let attached = word
                        .text
                        .strip_prefix("--exec=")
                        .or_else(|| word.text.strip_prefix("--exec-batch="));
                    attached
                        .into_iter()
                        .for_each(|script| self.queue_script(script.to_owned(), depth + 1));
                    if marks.contains(&word.text.as_str()) {
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
            "env" => {
                // `-S` splits one text into words.
                let split = arguments.iter().enumerate().find_map(|(at, word)| {
                    let text = word
                        .text
                        .strip_prefix("--split-string")
                        .map(|rest| rest.trim_start_matches('='))
                        .or_else(|| {
                            let letters = word
                                .text
                                .strip_prefix('-')
                                .filter(|letters| !letters.starts_with('-'))?;
                            letters.split_once('S').map(|(_, rest)| rest)
                        })?;
                    Some((at, text.to_owned()))
                });
                let Some((at, mut text)) = split else { return false };
                if !arguments[..at]
                    .iter()
                    .all(|word| word.text.starts_with('-') || word.text.contains('='))
                {
                    return false;
                }
                for word in &arguments[at + 1..] {
                    text.push(' ');
                    text.push_str(&word.text);
                }
                if text.contains(['\\', '$', UNKNOWN]) {
                    self.unclear(WHICH);
                }
                let rest = text
                    .split_whitespace()
                    .skip_while(|word| word.contains('=') || word.starts_with('-'))
                    .collect::<Vec<_>>();
                self.queue_script(rest.join(" "), depth + 1);
            }
            _ => {
                let started = programs::started(name, arguments);
                started
                    .scripts
                    .into_iter()
                    .for_each(|script| self.queue_evaluated(&[script], depth));
                for words in started.words {
                    self.add(&words);
                    self.queue_words(&words, depth + 1, certain);
                }
                started.unclear.into_iter().for_each(|why| self.unclear(why));
                return false;
            }
        }
        true
    }

    /// Expands an unknown program, which may start a shell that its arguments name.
    fn expand_unknown(&mut self, name: &str, arguments: &[Word], depth: usize) {
        if starts_nothing(name) {
            return;
        }
        let starts = |word: &Word| {
            let name = word.text.rsplit('/').next().unwrap_or_default();
            !word.open && (SHELLS.contains(&name) || ["busybox", "xargs", "eval"].contains(&name))
        };
        if let Some(at) = arguments.iter().position(starts) {
            self.add(&arguments[at..]);
            self.queue_words(&arguments[at..], depth + 1, false);
        }
    }

    /// Expands the arguments of a shell.
    fn expand_shell(&mut self, arguments: &[Word], depth: usize) {
        let (mut rest, mut is_next) = (arguments.iter(), false);
        while let Some(word) = rest.next() {
            let text = word.text.as_str();
            let option = text.starts_with(['-', '+']) && text.len() > 1;
            if word.open && (is_next || !is_file(word)) {
                return self.unclear("the script for a shell in it is only known when it runs");
            }
            if text == "-" {
                break;
            }
            if !option && is_next {
                return self.queue_script(text.to_owned(), depth + 1);
            }
            if !option && is_stream(word) {
                break;
            }
            if !option || ["--version", "--help"].contains(&text) {
                // A script in a file.
                return;
            }
            let short = !text.starts_with("--");
            if short && text.contains('C')
                || text.starts_with("--command=")
                || text.starts_with("--init-command")
            {
                return self.unclear("it starts a shell with unknown commands");
            }
            is_next |= short && text.contains('c') || text == "--command";
            if short && text.contains(['o', 'O']) || ["--rcfile", "--init-file"].contains(&text) {
                rest.next();
            }
        }
        self.unclear(ELSEWHERE);
    }
}

/// Whether a word is a group of short options with this letter.
fn has_letter(word: &Word, letter: char) -> bool {
    word.text
        .strip_prefix('-')
        .is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

/// The arguments without a `--` at their beginning.
fn without_dashes(arguments: &[Word]) -> &[Word] {
    match arguments.split_first() {
        Some((first, rest)) if first.text == "--" => rest,
        _ => arguments,
    }
}

/// The name and the value of `NAME=value`, and the whole word.
fn pair(word: &Word) -> Option<(&str, &str, &Word)> {
    word.text.split_once('=').map(|(name, value)| (name, value, word))
}

/// The variables that `read` sets.
fn read_names(arguments: &[Word]) -> impl Iterator<Item = &Word> {
    let mut is_value = false;
    arguments.iter().filter(move |word| {
        let was_value = std::mem::take(&mut is_value);
        let is_option = !was_value && word.text.starts_with('-') && word.text.len() > 1;
        // These options take the next word. The value of `-a` is a name, so it counts.
        is_value = is_option
            && word.text.ends_with(['d', 'i', 'n', 'N', 'p', 't', 'u'])
            && !word.text.starts_with("--");
        !was_value && !is_option
    })
}

fn raw(words: &[Word]) -> String {
    words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ")
}

fn size(words: &[Word]) -> usize {
    words.iter().map(|word| word.text.len() + 8).sum()
}

/// Whether the name of a file may be that of a stream, such as the standard input.
fn is_stream(word: &Word) -> bool {
    word.open && !is_file(word)
        || word.text == "-"
        || ["dev/", "proc/", "fd/", "stdin"].iter().any(|part| word.text.contains(part))
}

/// Whether a word certainly names a file in a folder: `"$DIR/build.sh"`.
fn is_file(word: &Word) -> bool {
    let known = word.text.rsplit(UNKNOWN).next().unwrap_or_default();
    !word.splits && known.starts_with('/') && known.len() > 1
}

/// The command that `xargs` starts. Its input is unknown: it is appended to the words, and replaces
/// the mark of `-I`, so it can be a program or a script.
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
    let replaced = |word: &Word| {
        if marks.iter().any(|mark| word.text.contains(mark)) {
            Word::unknown(&word.raw)
        } else {
            word.clone()
        }
    };
    command.iter().map(replaced).chain([Word::unknown("…")]).collect()
}
