//! Expands shell builtins that evaluate a text, set a variable, or change which program a name
//! means.

use super::super::calculated::{Rule, applies};
use super::super::variables;
use super::super::word::{UNKNOWN, Word};
use super::{ELSEWHERE, EVALUATED, Reading, is_stream};

impl Reading {
    /// Expands a builtin. Returns true if the command is a builtin and is expanded completely.
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
            "eval" if applies(Rule::Eval) => self.queue_evaluated(without_dashes(arguments), depth),
            "trap" if first.is_some_and(|word| ["-", "-p", "-l"].contains(&&*word.text)) => {}
            "trap" if applies(Rule::Trap) => {
                self.queue_evaluated(without_dashes(arguments).get(..1).unwrap_or_default(), depth);
            }
            "alias" => self.expand_alias(arguments, depth),
            "hash" if arguments.iter().any(|word| has_letter(word, 'p')) => {
                self.unclear("it defines an alias for another program");
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
            "mapfile" | "readarray" => self.expand_mapfile(arguments, depth),
            "complete" => self.expand_callback(arguments, depth),
            "compgen" => self.expand_compgen(arguments, depth),
            "let" if applies(Rule::Let) => {
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
            "unset" if applies(Rule::UnsetName) => {
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
            if applies(Rule::Alias) {
                self.queue_evaluated(&[Word { text: value.to_owned(), ..word.clone() }], depth);
            }
        }
    }

    /// Expands `mapfile`. It sets a list, and may evaluate a text while doing so.
    fn expand_mapfile(&mut self, arguments: &[Word], depth: usize) {
        self.expand_callback(arguments, depth);
        for word in operands(arguments) {
            self.variables.add_unknown_value(&word.raw);
        }
    }

    fn expand_compgen(&mut self, arguments: &[Word], depth: usize) {
        self.expand_callback(arguments, depth);
        // The words of `-W` are expanded again.
        if let Some(words) = option_value(arguments, 'W')
            && (words.is_unknown() || words.text.contains(['$', '`', '<', '>']))
            && applies(Rule::Words)
        {
            self.unclear(EVALUATED);
        }
    }

    /// Expands the command that a builtin runs for each line or word: `-C COMMAND`.
    fn expand_callback(&mut self, arguments: &[Word], depth: usize) {
        if let Some(script) = option_value(arguments, 'C')
            && applies(Rule::Callback)
        {
            self.queue_evaluated(&[script], depth);
        }
    }

    /// Expands `declare` and the other builtins for declarations.
    fn expand_declaration(&mut self, name: &str, arguments: &[Word], depth: usize) {
        self.variables.add_declaration(name, arguments);
        // The variable is known only when the command runs, and may be `PATH`.
        if arguments
            .iter()
            .any(|word| word.text.split('=').next().unwrap_or_default().contains(UNKNOWN))
        {
            self.unclear(EVALUATED);
        }
        for (name, value, word) in arguments.iter().filter_map(pair) {
            self.add_assignment(name, &Word { text: value.to_owned(), ..word.clone() }, depth);
        }
    }

    fn expand_read(&mut self, arguments: &[Word]) {
        for word in read_names(arguments) {
            if applies(Rule::ReadName) {
                self.variables.add_name(&word.raw);
            }
            self.variables.add_unknown_value(&word.raw);
        }
        if arguments.iter().any(|word| variables::affects_programs(&word.text)) {
            self.unclear(EVALUATED);
        }
    }

    /// Expands the option of `printf` or `wait` that names a variable to set.
    fn expand_name_option(&mut self, option: &str, rule: Rule, arguments: &[Word]) {
        // An unknown first word may be the option with a name and an index. A word that only starts
        // with unknown text would have to end in an index.
        if let Some(first) = arguments.first()
            && first.text.starts_with(UNKNOWN)
            && (first.splits || first.text.ends_with([UNKNOWN, ']']))
            && applies(rule)
        {
            self.variables.add_arithmetic(&first.raw);
        }

        let Some(at) = arguments.iter().position(|word| word.text.starts_with(option)) else {
            return;
        };
        let written = arguments[at].raw.trim_start_matches(['"', '\'']);
        let mut target = written.trim_start_matches(option);
        if target.is_empty() {
            let Some(next) = arguments.get(at + 1) else { return };
            target = &next.raw;
        }
        if applies(rule) {
            self.variables.add_name(target);
        }
        self.variables.add_unknown_value(target);
        if variables::affects_programs(target.trim_matches(['"', '\''])) {
            self.unclear(EVALUATED);
        }
    }
}

/// Returns the value of an option. The value is directly after the option's letter, or is the next
/// word.
fn option_value(arguments: &[Word], letter: char) -> Option<Word> {
    let at = arguments.iter().position(|word| has_letter(word, letter))?;
    match arguments[at].text.split_once(letter)?.1 {
        "" => arguments.get(at + 1).cloned(),
        value => Some(Word { text: value.to_owned(), ..arguments[at].clone() }),
    }
}

/// Returns the arguments that aren't options.
fn operands(arguments: &[Word]) -> impl Iterator<Item = &Word> {
    arguments.iter().filter(|word| !word.text.starts_with('-'))
}

/// Checks whether a word is a group of short options with this letter.
fn has_letter(word: &Word, letter: char) -> bool {
    let Some(letters) = word.text.strip_prefix('-') else { return false };
    !letters.starts_with('-') && letters.contains(letter)
}

/// Returns the arguments without a leading `--`.
fn without_dashes(arguments: &[Word]) -> &[Word] {
    match arguments.split_first() {
        Some((first, rest)) if first.text == "--" => rest,
        _ => arguments,
    }
}

/// Returns the name and the value of `NAME=value`, and the whole word.
fn pair(word: &Word) -> Option<(&str, &str, &Word)> {
    word.text.split_once('=').map(|(name, value)| (name, value, word))
}

/// Returns the variables that `read` sets.
fn read_names(arguments: &[Word]) -> impl Iterator<Item = &Word> {
    let mut is_value = false;
    arguments.iter().filter(move |word| {
        let was_value = std::mem::take(&mut is_value);
        let is_option = !was_value && word.text.starts_with('-') && word.text.len() > 1;
        // These options take the next word. The value of `-a` is a name, so it isn't skipped.
        is_value = is_option
            && word.text.ends_with(['d', 'i', 'n', 'N', 'p', 't', 'u'])
            && !word.text.starts_with("--");
        !was_value && !is_option
    })
}
