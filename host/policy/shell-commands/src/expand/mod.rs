//! Expands a command to all programs that it starts, directly or through another program.

mod builtins;

use std::collections::VecDeque;

use super::calculated::{CALCULATED, Variables};
use super::flags::FlagWords;
use super::grammar::{MAX_STEPS, Part, Redirect, TOO_MUCH, parse};
use super::inert::starts_nothing;
use super::options::without_options;
use super::programs::{self, SHELLS, Typescript};
use super::variables::{self, Effect};
use super::word::{UNKNOWN, Word};
use super::wrappers::{Started, named};

const MAX_BYTES: usize = 64 * 1024;

const MAX_DEPTH: usize = 8;

const MAX_COMMANDS: usize = 256;

/// Bytes that are analysed. A text that several programs receive counts once for each program.
const MAX_WORK: usize = 256 * 1024;

const PREFIXES: [&str; 2] = ["!", "coproc"];

/// Reserved words that don't begin a simple command.
const RESERVED: [&str; 18] = [
    "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "select", "case",
    "esac", "in", "function", "{", "}", "[[",
];

const ELSEWHERE: &str = "the command starts a shell that reads commands from another source";

const WHICH: &str = "a program of the command starts an unknown program";

const EVALUATED: &str = "the command evaluates a string that is only known at run time";

#[derive(Debug)]
pub(super) struct Program {
    /// In lower case, without its folder.
    pub(super) name: String,
    pub(super) arguments: Vec<Word>,
    pub(super) text: String,
    /// Further spellings of the command: with only the name of the program, and without the options
    /// before its subcommand.
    pub(super) spellings: Vec<String>,
    /// The flags and other words of the command and of its spellings. A spelling without flags is
    /// left out.
    pub(super) flag_words: Vec<FlagWords>,
    /// Whether this is certainly a program, and not an argument of an unknown program.
    pub(super) certain: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) programs: Vec<Program>,
    pub(super) redirects: Vec<Redirect>,
    /// The commands as written. If the text without quotes differs, that text is also listed.
    pub(super) texts: Vec<String>,
    pub(super) unclear: Option<&'static str>,
    pub(super) substitutes: bool,
    pub(super) bomb: bool,
    /// The command that writes the output of the text, and whether it is the only command that
    /// writes to this output.
    pub(super) last: Option<(Part, bool)>,
    variables: Variables,
    todo: VecDeque<Todo>,
    work: usize,
    steps: usize,
}

#[derive(Debug)]
enum Todo {
    Script { text: String, depth: usize },
    Words { words: Vec<Word>, depth: usize, certain: bool },
}

impl Reading {
    /// Reads a text, and all texts in it that go to a shell or another program.
    pub(super) fn expand(text: &str) -> Self {
        let mut reading = Self { steps: MAX_STEPS, ..Self::default() };
        let top_level = 0;
        reading.queue_script(text.to_owned(), top_level);
        // The loop uses a queue instead of recursion, because an attacker chooses the nesting and
        // recursion could overflow the stack.
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

    /// Counts analysed bytes. If the count is too high, marks the command as unclear and returns
    /// false.
    fn spend(&mut self, bytes: usize) -> bool {
        self.work += bytes;
        if self.work > MAX_WORK {
            self.unclear(TOO_MUCH);
            return false;
        }
        true
    }

    /// Queues a text that a shell reads as commands. A text that is too long or too deeply nested
    /// makes the command unclear.
    fn queue_script(&mut self, text: String, depth: usize) {
        if text.len() > MAX_BYTES {
            return self.unclear("the command is longer than 64 KiB");
        }
        if depth > MAX_DEPTH {
            return self.unclear("the commands are nested more than 8 levels deep");
        }
        if self.spend(text.len()) {
            self.todo.push_back(Todo::Script { text, depth });
        }
    }

    /// Queues the words of a command. `certain` means that the command certainly runs.
    fn queue_words(&mut self, words: &[Word], depth: usize, certain: bool) {
        if depth > MAX_DEPTH {
            return self.unclear("the commands are nested more than 8 levels deep");
        }
        if !words.is_empty() && self.spend(size(words)) {
            self.todo.push_back(Todo::Words { words: words.to_vec(), depth, certain });
        }
    }

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

    /// Parses a text of commands. Adds its commands, assignments and redirects, and queues the
    /// scripts in it.
    fn read_script(&mut self, text: &str, depth: usize) {
        // A shell drops NUL bytes and joins the text around them.
        if text.contains('\0') {
            self.unclear("the command contains a zero byte");
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
            self.add_redirect(redirect);
        }
        let is_whole_command = depth == 0;
        if is_whole_command {
            self.last = parsed.last;
        }
        for script in parsed.scripts {
            self.queue_script(script, depth + 1);
        }
        if let Some(why) = parsed.unclear {
            self.unclear(why);
        }
    }

    fn add_redirect(&mut self, redirect: Redirect) {
        if redirect.writes {
            self.add_text(&format!("> {}", redirect.target.text));
        }
        if self.redirects.len() < MAX_COMMANDS {
            self.redirects.push(redirect);
        } else {
            self.unclear(TOO_MUCH);
        }
    }

    fn add_part(&mut self, part: &Part, depth: usize) {
        self.add_text(&part.text);
        self.add_words(&part.words);
        for (name, value) in &part.assigned {
            self.add_assignment(name, value, depth);
        }
        if self.spend(size(&part.words)) {
            let certain = true;
            self.expand_words(&part.words, depth, certain);
        }
    }

    /// Adds an assignment. The value may be a command, as for `EDITOR`. The variable may also
    /// change which programs run, as `PATH` does.
    fn add_assignment(&mut self, name: &str, value: &Word, depth: usize) {
        // The word may be the whole assignment, or only its value.
        let mut raw_value = value.raw.as_str();
        if let Some(after_name) = value.raw.strip_prefix(name)
            && let Some(after_sign) =
                after_name.strip_prefix("+=").or_else(|| after_name.strip_prefix('='))
        {
            raw_value = after_sign;
        }
        self.variables.add_value(name, raw_value);
        match variables::effect(name, value) {
            Effect::Nothing => {}
            Effect::Command => self.queue_evaluated(std::slice::from_ref(value), depth),
            Effect::Unclear(why) => self.unclear(why),
        }
    }

    fn expand_words(&mut self, mut words: &[Word], depth: usize, certain: bool) {
        loop {
            words = self.without_prefixes(words);
            let Some((program, arguments)) = words.split_first() else { return };
            if program.open {
                return self.unclear("a program's name is only known at run time");
            }
            if RESERVED.contains(&program.raw.as_str()) {
                self.unclear("the command has a reserved word of the shell instead of a program");
            }
            let file = program.text.rsplit('/').next().unwrap_or_default().to_lowercase();
            let name = file.strip_suffix(".exe").unwrap_or(&file).to_owned();
            if self.programs.len() == MAX_COMMANDS || !self.spend(size(arguments)) {
                return self.unclear(TOO_MUCH);
            }
            let (spellings, flag_words) = self.spellings(&name, program, arguments);
            self.programs.push(Program {
                name: name.clone(),
                arguments: arguments.to_vec(),
                text: raw(words),
                spellings,
                flag_words,
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
                    return self
                        .unclear("a program of the command starts a program that isn't named");
                }
                [] => return,
                [option, script @ ..]
                    if wrapper.name == "flock"
                        && ["-c", "--command"].contains(&option.text.as_str()) =>
                {
                    return self.queue_evaluated(script, depth);
                }
                // This isn't a program, but an option, or the `:::` of `parallel`.
                [option, ..] if option.text.starts_with(['-', ':']) && option.text != ":" => {
                    return self.unclear(WHICH);
                }
                command if wrapper.name == "xargs" => {
                    self.add_words(command);
                    return self.queue_words(&with_input(arguments, command), depth + 1, certain);
                }
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

    /// Returns the words of a command after `!` and `coproc`.
    fn without_prefixes<'w>(&mut self, mut words: &'w [Word]) -> &'w [Word] {
        while let Some((prefix, rest)) = words.split_first()
            && PREFIXES.contains(&prefix.raw.as_str())
        {
            // In `coproc NAME { … }`, the word after the name starts a compound command.
            if prefix.raw == "coproc"
                && let Some(word) = rest.get(1)
                && (RESERVED.contains(&word.raw.as_str()) || word.raw.starts_with('('))
            {
                self.unclear(
                    "the command has a `coproc` with a name, which the analysis doesn't support",
                );
            }
            words = rest;
        }
        words
    }

    /// Returns the spellings of a command, and the flags of the command and of these spellings.
    fn spellings(
        &mut self,
        name: &str,
        program: &Word,
        arguments: &[Word],
    ) -> (Vec<String>, Vec<FlagWords>) {
        let mut flag_words = Vec::from_iter(FlagWords::new(name, arguments));
        let Some(mut readings) = without_options(name, arguments) else {
            self.unclear("the command has too many options before a command");
            return (Vec::new(), flag_words);
        };
        // The name without its folder is a spelling too.
        if program.text != name {
            readings.push(arguments.iter().collect());
        }
        let mut spellings = Vec::new();
        for reading in readings {
            let mut spelling = name.to_owned();
            for word in &reading {
                spelling.push(' ');
                spelling.push_str(&word.text);
            }
            if !self.spend(spelling.len()) {
                break;
            }
            spellings.push(spelling);
            flag_words.extend(FlagWords::new(name, reading));
        }
        (spellings, flag_words)
    }

    /// Expands a program with its own syntax for commands. Returns true if the command needs no
    /// further expansion.
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

    /// Expands a program that starts a shell, such as `su -c COMMAND`.
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
        for (index, word) in arguments.iter().enumerate() {
            if is_command_option(word)
                && let Some(command) = arguments.get(index + 1)
            {
                self.queue_evaluated(std::slice::from_ref(command), depth);
            }
        }
        self.unclear("the command starts a shell that may read commands from another source");
    }

    /// Expands `find` and `fd`, which start the commands after `-exec` and similar options.
    fn expand_find(&mut self, arguments: &[Word], depth: usize, certain: bool) {
        let actions = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
        for (index, word) in arguments.iter().enumerate() {
            let text = word.text.as_str();
            let attached =
                text.strip_prefix("--exec=").or_else(|| text.strip_prefix("--exec-batch="));
            if let Some(script) = attached {
                self.queue_script(script.to_owned(), depth + 1);
            }
            if actions.contains(&text) {
                // The command ends before `;` or `+`, or at the end of the arguments.
                let after_action = &arguments[index + 1..];
                let mut commands = after_action.split(|word| word.text == ";" || word.text == "+");
                let command = commands.next().unwrap_or_default();
                self.add(command);
                self.queue_words(command, depth + 1, certain);
            }
        }
    }

    /// Expands `env -S`, which splits one string into words. Returns false without this option.
    fn expand_split_string(&mut self, arguments: &[Word], depth: usize) -> bool {
        let mut words = arguments.iter().enumerate();
        let option = words.find_map(|(index, word)| {
            let value = split_string(&word.text)?;
            Some((index, value))
        });
        let Some((option_index, value)) = option else { return false };
        // After the name of another program, `-S` is an option of that program.
        let mut before = arguments[..option_index].iter();
        let is_option_of_env =
            before.all(|word| word.text.starts_with('-') || word.text.contains('='));
        if !is_option_of_env {
            return false;
        }

        let mut text = value.to_owned();
        for word in &arguments[option_index + 1..] {
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

    /// Expands a program that starts the commands in its options or arguments.
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

    /// Expands an unknown program, which may start a shell that its arguments name.
    fn expand_unknown(&mut self, name: &str, arguments: &[Word], depth: usize) {
        if starts_nothing(name) {
            return;
        }
        if let Some(shell_index) = arguments.iter().position(is_shell) {
            let command = &arguments[shell_index..];
            self.add(command);
            let certain = false;
            self.queue_words(command, depth + 1, certain);
        }
    }

    fn expand_shell(&mut self, arguments: &[Word], depth: usize) {
        let mut words = arguments.iter();
        // Whether the next word is the script.
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
                return self.unclear("the command starts a shell with unknown commands");
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

/// Returns the value of `env -S` or `env --split-string`. Other letters may come before the `S`, as
/// in `-iS`.
fn split_string(word: &str) -> Option<&str> {
    if let Some(value) = word.strip_prefix("--split-string") {
        return Some(value.trim_start_matches('='));
    }
    let letters = word.strip_prefix('-')?;
    let is_long_option = letters.starts_with('-');
    if is_long_option {
        return None;
    }
    let (_, value) = letters.split_once('S')?;
    Some(value)
}

/// Checks whether a word is the option of a shell before a script.
fn is_command_option(word: &Word) -> bool {
    let is_short_group = word.text.starts_with('-') && !word.text.starts_with("--");
    word.text == "--command" || (is_short_group && word.text.ends_with('c'))
}

/// Checks whether a word certainly names a shell, or a program that may start a shell.
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

/// Checks whether a file name may mean a stream, such as the standard input.
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

/// Returns the command that `xargs` starts, with unknown words for the input of `xargs`. The input
/// is added at the end or replaces the placeholder of `-I`, so it may be a program or a script.
/// `arguments` are the options of `xargs`, followed by `command`.
fn with_input(arguments: &[Word], command: &[Word]) -> Vec<Word> {
    let options = &arguments[..arguments.len() - command.len()];
    let placeholders = input_placeholders(options);
    let mut words = Vec::new();
    for word in command {
        let has_placeholder =
            placeholders.iter().any(|placeholder| word.text.contains(placeholder));
        words.push(if has_placeholder { Word::unknown(&word.raw) } else { word.clone() });
    }
    let appended_input = Word::unknown("…");
    words.push(appended_input);
    words
}

/// Returns the values of `-I` in the options of `xargs`.
fn input_placeholders(options: &[Word]) -> Vec<&str> {
    let mut placeholders = Vec::new();
    for (index, option) in options.iter().enumerate() {
        let Some(attached) = option.text.strip_prefix("-I") else { continue };
        if !attached.is_empty() {
            placeholders.push(attached);
        } else if let Some(next_word) = options.get(index + 1)
            && !next_word.text.is_empty()
        {
            placeholders.push(next_word.text.as_str());
        }
    }
    placeholders
}
