//! Expands shell builtins that evaluate a text, set a variable, or change which program a name
//! stands for.

use super::super::calculated::Rule;
use super::super::variables;
use super::super::word::{UNKNOWN, Word};
use super::{ELSEWHERE, EVALUATED, Reading, is_stream};

impl Reading {
    /// Expands a builtin. Returns true if the command needs no further expansion.
    pub(super) fn expand_builtin(
        &mut self,
        name: &str,
        arguments: &[Word],
        depth: usize,
        certain: bool,
    ) -> bool {
        let first = arguments.first();
        match name {
            "." | "source" if first.is_some_and(is_stream) => self.unclear(ELSEWHERE),
            "." | "source" => {}
            "eval" if Rule::Eval.is_enabled() => {
                self.queue_evaluated(without_dashes(arguments), depth);
            }
            "trap" if first.is_some_and(|word| ["-", "-p", "-l"].contains(&word.text.as_str())) => {
            }
            "trap" if Rule::Trap.is_enabled() => {
                self.queue_evaluated(without_dashes(arguments).get(..1).unwrap_or_default(), depth);
            }
            "alias" => self.expand_alias(arguments, depth),
            "hash" if arguments.iter().any(|word| has_letter(word, 'p')) => {
                self.unclear("the command defines an alias for another program");
            }
            "enable" if arguments.iter().any(|word| has_letter(word, 'f')) => {
                self.unclear("the command loads a command from a file");
            }
            "fc" if !arguments.iter().any(|word| has_letter(word, 'l')) => {
                self.unclear("the command runs earlier commands again");
            }
            "jobs"
                if first.is_some_and(|word| word.text == "-x" || word.open)
                    && Rule::Jobs.is_enabled() =>
            {
                self.queue_words(&arguments[1..], depth + 1, certain);
            }
            "mapfile" | "readarray" => self.expand_mapfile(arguments, depth),
            "complete" => self.expand_callback(arguments, depth),
            "compgen" => self.expand_compgen(arguments, depth),
            "let" if Rule::Let.is_enabled() => {
                for word in arguments {
                    self.variables.add_arithmetic(&word.raw);
                }
            }
            "test" | "[" => {
                let words = arguments.strip_suffix(&[Word::plain("]")]).unwrap_or(arguments);
                self.variables.add_test(words);
            }
            "declare" | "typeset" | "local" | "export" | "readonly" => {
                self.expand_declaration(name, arguments, depth);
            }
            "unset" if Rule::UnsetName.is_enabled() => {
                for word in operands(arguments) {
                    self.variables.add_name(&word.raw);
                }
            }
            "read" => self.expand_read(arguments),
            "printf" => self.expand_name_option("-v", Rule::PrintfName, arguments),
            "wait" => self.expand_name_option("-p", Rule::WaitName, arguments),
            "getopts" => {
                if let Some(variable) = arguments.get(1) {
                    self.variables.add_unknown_value(&variable.raw);
                }
            }
            _ => return false,
        }
        true
    }

    fn expand_alias(&mut self, arguments: &[Word], depth: usize) {
        for (name, value, word) in arguments.iter().filter_map(pair) {
            self.variables.add_function(name);
            if Rule::Alias.is_enabled() {
                let command = Word { text: value.to_owned(), ..word.clone() };
                self.queue_evaluated(&[command], depth);
            }
        }
    }

    /// Expands `mapfile`, which sets a list and may run a callback.
    fn expand_mapfile(&mut self, arguments: &[Word], depth: usize) {
        self.expand_callback(arguments, depth);
        for word in operands(arguments) {
            self.variables.add_unknown_value(&word.raw);
        }
    }

    /// Expands `compgen`, which may run a callback.
    fn expand_compgen(&mut self, arguments: &[Word], depth: usize) {
        self.expand_callback(arguments, depth);
        // Bash expands the words of `-W` a second time, which may run commands: the words are
        // unclear if they are unknown, or if they contain a character that starts an expansion.
        if let Some(words) = option_value(arguments, 'W') {
            let may_expand = words.is_unknown() || words.text.contains(['$', '`', '<', '>']);
            if may_expand && Rule::Words.is_enabled() {
                self.unclear(EVALUATED);
            }
        }
    }

    fn expand_callback(&mut self, arguments: &[Word], depth: usize) {
        if let Some(script) = option_value(arguments, 'C')
            && Rule::Callback.is_enabled()
        {
            self.queue_evaluated(&[script], depth);
        }
    }

    /// Expands `declare`, `export` and similar commands, which set variables.
    fn expand_declaration(&mut self, builtin: &str, arguments: &[Word], depth: usize) {
        self.variables.add_declaration(builtin, arguments);
        for word in arguments {
            let name = word.text.split('=').next().unwrap_or_default();
            // An unknown name may be `PATH`.
            if name.contains(UNKNOWN) {
                self.unclear(EVALUATED);
            }
        }
        for (name, value, word) in arguments.iter().filter_map(pair) {
            let value_word = Word { text: value.to_owned(), ..word.clone() };
            self.add_assignment(name, &value_word, depth);
        }
    }

    /// Expands `read`, which sets variables to its input.
    fn expand_read(&mut self, arguments: &[Word]) {
        for word in read_names(arguments) {
            if Rule::ReadName.is_enabled() {
                self.variables.add_name(&word.raw);
            }
            self.variables.add_unknown_value(&word.raw);
        }
        if arguments.iter().any(|word| variables::affects_programs(&word.text)) {
            self.unclear(EVALUATED);
        }
    }

    /// Expands an option whose value is the name of a variable, such as `printf -v`.
    fn expand_name_option(&mut self, option: &str, rule: Rule, arguments: &[Word]) {
        // If the first word is unknown, it may be the option and a name with an index, which bash
        // evaluates as arithmetic.
        if let Some(first) = arguments.first()
            && may_contain_index(first)
            && rule.is_enabled()
        {
            self.variables.add_arithmetic(&first.raw);
        }
        let Some(target) = name_in_option(option, arguments) else { return };
        if rule.is_enabled() {
            self.variables.add_name(target);
        }
        self.variables.add_unknown_value(target);
        if variables::affects_programs(target.trim_matches(['"', '\''])) {
            self.unclear(EVALUATED);
        }
    }
}

/// Returns the value of an option: the text after its letter, or the next word.
fn option_value(arguments: &[Word], letter: char) -> Option<Word> {
    let option_index = arguments.iter().position(|word| has_letter(word, letter))?;
    let option_word = &arguments[option_index];
    let (_, value) = option_word.text.split_once(letter)?;
    if value.is_empty() {
        return arguments.get(option_index + 1).cloned();
    }
    Some(Word { text: value.to_owned(), ..option_word.clone() })
}

fn operands(arguments: &[Word]) -> impl Iterator<Item = &Word> {
    arguments.iter().filter(|word| !word.text.starts_with('-'))
}

fn has_letter(word: &Word, letter: char) -> bool {
    let Some(letters) = word.text.strip_prefix('-') else { return false };
    !letters.starts_with('-') && letters.contains(letter)
}

fn without_dashes(arguments: &[Word]) -> &[Word] {
    match arguments.split_first() {
        Some((first, rest)) if first.text == "--" => rest,
        _ => arguments,
    }
}

/// Checks whether an unknown word may contain an option, the name of a variable, and an index. If
/// the shell doesn't split the word, its end must be unknown or the `]` of the index.
fn may_contain_index(word: &Word) -> bool {
    word.text.starts_with(UNKNOWN) && (word.splits || word.text.ends_with([UNKNOWN, ']']))
}

/// Returns the name after an option, as written. The name is in the same word or in the next word.
fn name_in_option<'w>(option: &str, arguments: &'w [Word]) -> Option<&'w str> {
    let option_index = arguments.iter().position(|word| word.text.starts_with(option))?;
    let option_word = arguments[option_index].raw.trim_start_matches(['"', '\'']);
    let attached_name = option_word.trim_start_matches(option);
    if !attached_name.is_empty() {
        return Some(attached_name);
    }
    let next_word = arguments.get(option_index + 1)?;
    Some(&next_word.raw)
}

fn pair(word: &Word) -> Option<(&str, &str, &Word)> {
    word.text.split_once('=').map(|(name, value)| (name, value, word))
}

/// Returns the arguments of `read` that are names of variables.
fn read_names(arguments: &[Word]) -> Vec<&Word> {
    const OPTIONS_WITH_VALUE: [char; 7] = ['d', 'i', 'n', 'N', 'p', 't', 'u'];
    let mut names = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let is_option = word.text.starts_with('-') && word.text.len() > 1;
        if !is_option {
            names.push(word);
            continue;
        }
        // Skip the value of an option, such as the prompt in `read -p PROMPT name`. The value of
        // `-a` isn't skipped, because it is the name of a variable.
        let is_short = !word.text.starts_with("--");
        if is_short && word.text.ends_with(OPTIONS_WITH_VALUE) {
            words.next();
        }
    }
    names
}
