//! Decides whether bash can start a command while it evaluates a text that isn't a command:
//! arithmetic, an index of a list, or the name of a variable.
//!
//! In arithmetic, bash evaluates the value of each variable as arithmetic again, and runs the
//! commands in each index. After `x='a[$(reboot)]'`, `((x))` reboots. For this reason, arithmetic
//! is harmless only if its text and the values of its variables contain nothing but numbers and
//! names. The rules follow sections 3.4 to 3.5, 4 and 6.4 to 6.7 of the manual of bash 5.2.

use std::collections::{BTreeMap, BTreeSet};

use super::word::Word;

pub(super) const CALCULATED: &str =
    "the command has arithmetic, or the name of a variable, that is only known at run time";

/// The ways in which bash evaluates a text. A test disables one rule after another to show that
/// each rule is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// `((…))`, `$((…))`, `$[…]`, `for ((…))`.
    Arithmetic,
    Let,
    /// `a[…]=1`, `${a[…]}`, `a=([…]=1)`.
    Index,
    /// `${x:…}`.
    Slice,
    /// `${!x}`.
    Indirect,
    /// `${x@P}`.
    Prompt,
    /// `${x:=…}`.
    Default,
    /// `[[ … -eq … ]]`.
    Comparison,
    /// `[[ -v … ]]`.
    ConditionName,
    /// `[ -v … ]`, `test -v …`.
    TestName,
    /// `[ $x ]`, which may expand to `[ -v … ]`.
    TestWords,
    /// `declare -i x=…`.
    Integer,
    /// `RANDOM=…` and the other variables that are integers by default.
    IntegerVariable,
    /// `declare -n x=…`.
    Reference,
    /// `declare -a x='(…)'`.
    ListText,
    ReadName,
    UnsetName,
    /// `printf -v …`.
    PrintfName,
    /// `wait -p …`.
    WaitName,
    /// `mapfile -C …`, `compgen -C …`.
    Callback,
    /// `compgen -W …`.
    Words,
    /// `jobs -x …`.
    Jobs,
    /// `PS4=…`. With `set -x`, bash evaluates the value.
    Trace,
    Eval,
    Trap,
    /// `alias x=…`.
    Alias,
    /// The values of variables, set by `x=…`, `for x in …`, `read x` and similar forms.
    Value,
    /// Variables that the shell itself sets, maybe to a text of an attacker.
    ShellVariable,
    /// A function that replaces a program whose output counts as a number.
    Function,
}

#[cfg(test)]
thread_local! {
    /// The rule that a test disabled.
    pub(super) static DISABLED_RULE: std::cell::Cell<Option<Rule>> =
        const { std::cell::Cell::new(None) };
}

impl Rule {
    /// Always returns true, except in a test that disables the rule.
    pub(super) fn is_enabled(self) -> bool {
        #[cfg(test)]
        if DISABLED_RULE.get() == Some(self) {
            return false;
        }
        // Only tests use `self`.
        let _ = self;
        true
    }
}

/// Variables whose value is evaluated as arithmetic when it is set.
const INTEGERS: [&str; 4] = ["HISTCMD", "OPTIND", "RANDOM", "SRANDOM"];

/// Variables that the shell sets from its input, its arguments or the names of folders.
const SHELL_VARIABLES: [&str; 24] = [
    "BASH_ALIASES",
    "BASH_ARGV",
    "BASH_ARGV0",
    "BASH_CMDS",
    "BASH_COMMAND",
    "BASH_EXECUTION_STRING",
    "BASH_REMATCH",
    "BASH_SOURCE",
    "COMPREPLY",
    "COMP_LINE",
    "COMP_WORDBREAKS",
    "COMP_WORDS",
    "DIRSTACK",
    "FUNCNAME",
    "HISTFILE",
    "IFS",
    "MAPFILE",
    "OLDPWD",
    "OPTARG",
    "PWD",
    "READLINE_LINE",
    "REPLY",
    "SHELLOPTS",
    "_",
];

#[derive(Debug, Default)]
pub(super) struct Variables {
    /// For each variable, the names in its values.
    values: BTreeMap<String, BTreeSet<String>>,
    unknown: BTreeSet<String>,
    /// Whether an assignment has a target that isn't known, so that it may set any variable.
    any_assigned: bool,
    used: BTreeSet<String>,
    lists: BTreeSet<String>,
    /// Variables that are declared with a value that may be the text of a list.
    declared: BTreeSet<String>,
    /// Programs whose output counts as a number.
    programs: BTreeSet<String>,
    functions: BTreeSet<String>,
    /// Whether bash evaluates an unknown text.
    unclear: bool,
}

impl Variables {
    /// Adds a text that the shell evaluates as arithmetic.
    pub(super) fn add_arithmetic(&mut self, raw: &str) {
        match Names::parse(raw) {
            Some(names) => {
                self.used.extend(names.variables);
                self.programs.extend(names.programs);
            }
            None => self.unclear = true,
        }
    }

    /// Adds a word, as written, that names a variable. An index in the word is arithmetic.
    pub(super) fn add_name(&mut self, raw: &str) {
        let bare = raw.trim_matches(['"', '\'']);
        match bare.split_once('[') {
            None => {
                if bare.contains(['$', '`', '\\', '{', '*', '?']) {
                    self.unclear = true;
                }
            }
            Some((name, index)) => {
                if !is_name(name) {
                    self.unclear = true;
                }
                // If the word is cut, the `]` is missing, and the rest of the word is arithmetic.
                self.add_arithmetic(index.strip_suffix(']').unwrap_or(index));
            }
        }
    }

    /// Adds an assignment of a value, as written, to a variable. `target` is the text before the
    /// `=`: a name with an optional index and `+`.
    pub(super) fn add_value(&mut self, target: &str, raw: &str) {
        if target.contains('[') && Rule::Index.is_enabled() {
            self.add_name(target.trim_end_matches('+'));
        }
        if !Rule::Value.is_enabled() {
            return;
        }
        let name = target.split(['[', '+']).next().unwrap_or_default();
        if !is_name(name) {
            self.any_assigned = true;
            return;
        }
        if Rule::IntegerVariable.is_enabled() && INTEGERS.contains(&name) {
            self.used.insert(name.to_owned());
        }

        let is_list = raw.starts_with('(');
        if is_list {
            self.lists.insert(name.to_owned());
        }
        // In a list, patterns expand to names of files, so the elements are unknown.
        let has_pattern = is_list && raw.contains(['*', '?', '[']);
        if !has_pattern && let Some(names) = Names::parse(raw) {
            self.values.entry(name.to_owned()).or_default().extend(names.variables);
            // Arithmetic with this variable also evaluates the output of the programs in its value.
            self.programs.extend(names.programs);
        } else {
            self.unknown.insert(name.to_owned());
        }
    }

    /// Adds an assignment of an unknown value. `raw` is the name of the variable, as written.
    pub(super) fn add_unknown_value(&mut self, raw: &str) {
        if !Rule::Value.is_enabled() {
            return;
        }
        let bare = raw.trim_matches(['"', '\'']);
        let name = bare.split('[').next().unwrap_or_default();
        if is_name(name) {
            self.unknown.insert(name.to_owned());
        } else {
            self.any_assigned = true;
        }
    }

    /// Adds the variable of a loop over `words`.
    pub(super) fn add_loop(&mut self, name: &str, words: &str) {
        let text_in_braces = words.strip_prefix('{').and_then(|words| words.strip_suffix('}'));
        if text_in_braces.is_some_and(is_range) {
            // Numbers in braces, such as `{1..9}`, name no variables.
            let value_without_variables = "";
            self.add_value(name, value_without_variables);
        } else if words.contains(['*', '?', '[']) {
            // Patterns expand to names of files, which are unknown.
            self.add_unknown_value(name);
        } else {
            self.add_value(name, words);
        }
    }

    pub(super) fn add_function(&mut self, name: &str) {
        self.functions.insert(name.to_owned());
    }

    /// Adds the variables of a declaration, such as `declare -i x=1`.
    pub(super) fn add_declaration(&mut self, program: &str, arguments: &[Word]) {
        let (option_words, declarations): (Vec<&Word>, Vec<&Word>) =
            arguments.iter().partition(|word| word.text.starts_with(['-', '+']));
        let options: String = option_words.iter().map(|word| word.text.as_str()).collect();
        // With `-n`, a variable becomes another name of a second variable, which the analysis
        // doesn't follow. For `export` and `readonly`, the letter `n` doesn't have this meaning.
        let has_other_meaning = matches!(program, "export" | "readonly");
        if options.contains('n') && !has_other_meaning && Rule::Reference.is_enabled() {
            self.unclear = true;
        }

        for word in declarations {
            let (target, value) = word.raw.split_once('=').unwrap_or((word.raw.as_str(), ""));
            let variable = target.trim_start_matches(['"', '\'']).trim_end_matches('+');
            let name = variable.split('[').next().unwrap_or_default().to_owned();
            if !is_name(&name) {
                self.any_assigned = true;
            }
            // With `-i`, the shell evaluates every value as arithmetic.
            if options.contains('i') && Rule::Integer.is_enabled() {
                self.used.insert(name.clone());
            }
            if options.contains(['a', 'A']) {
                self.lists.insert(name.clone());
            }
            // If the variable is a list, bash reads an expanded value such as `(…)` as elements.
            let is_expanded = word.is_unknown() || word.text.contains(['$', '`']);
            if is_expanded && !value.starts_with('(') && Rule::ListText.is_enabled() {
                self.declared.insert(name);
            }
        }
    }

    pub(super) fn add_test(&mut self, words: &[Word]) {
        const BINARY: [&str; 14] = [
            "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot",
            "-ef",
        ];
        if Rule::TestWords.is_enabled() {
            for word in words.iter().filter(|word| word.splits) {
                self.add_arithmetic(&word.raw);
            }
        }
        let mut rest = words;
        while let Some((first, after)) = rest.split_first() {
            let is_before_operator = after
                .first()
                .is_some_and(|word| !word.open && BINARY.contains(&word.text.as_str()));
            let is_known = !first.is_unknown();
            rest = match first.text.as_str() {
                _ if is_before_operator && after.len() >= 2 => &after[2..],
                "!" | "(" | ")" | "-a" | "-o" if is_known => after,
                "-v" if is_known => {
                    if let Some(name) = after.first()
                        && Rule::TestName.is_enabled()
                    {
                        self.add_name(&name.raw);
                    }
                    after.get(1..).unwrap_or_default()
                }
                text if is_known && text.len() == 2 && text.starts_with('-') => {
                    after.get(1..).unwrap_or_default()
                }
                _ => {
                    let is_alone = after.first().is_none_or(|word| {
                        !word.open && ["-a", "-o", ")"].contains(&word.text.as_str())
                    });
                    // An unknown word before another word may expand to an operator such as `-v`.
                    if !is_known && !is_alone && Rule::TestWords.is_enabled() {
                        self.unclear = true;
                    }
                    after
                }
            };
        }
    }

    /// Checks that all texts that arithmetic evaluates are known before the command runs.
    pub(super) fn are_harmless(&self) -> bool {
        if self.unclear {
            return false;
        }
        // An assignment to an unknown target may set a variable that arithmetic uses.
        if self.any_assigned && !self.used.is_empty() {
            return false;
        }
        // Bash splits the text of a declared list into elements, and evaluates their indexes.
        if !self.lists.is_disjoint(&self.declared) {
            return false;
        }
        // A function with the name of a program may write any output.
        if Rule::Function.is_enabled() && !self.programs.is_disjoint(&self.functions) {
            return false;
        }
        !self.uses_unknown_value()
    }

    /// Checks whether arithmetic uses a variable with an unknown value, directly or through the
    /// values of other variables.
    fn uses_unknown_value(&self) -> bool {
        let mut pending: Vec<_> = self.used.iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = pending.pop() {
            let is_set_by_shell =
                SHELL_VARIABLES.contains(&name.as_str()) && Rule::ShellVariable.is_enabled();
            if is_set_by_shell || self.unknown.contains(name) {
                return true;
            }
            if seen.insert(name) {
                pending.extend(self.values.get(name).into_iter().flatten());
            }
        }
        false
    }
}

pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Checks whether a text between braces contains only numbers: `1..10`, `1,2`.
fn is_range(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ',' | '-'))
}

#[derive(Debug, Default)]
struct Names {
    variables: BTreeSet<String>,
    programs: BTreeSet<String>,
}

impl Names {
    /// Returns the names in a text. Returns `None` if the text may expand to more than numbers,
    /// operators and names.
    fn parse(raw: &str) -> Option<Self> {
        let mut names = Self::default();
        names.read(raw).then_some(names)
    }

    /// Adds the names in a text. Returns false if the text may expand to more than numbers,
    /// operators and names.
    fn read(&mut self, raw: &str) -> bool {
        let mut rest = raw;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            rest = match c {
                // A number may have a base, such as `16#ff`.
                '0'..='9' => after.trim_start_matches(|c: char| {
                    c.is_ascii_alphanumeric() || matches!(c, '#' | '_')
                }),
                'a'..='z' | 'A'..='Z' | '_' => self.name(rest),
                '$' => match self.expansion(after) {
                    Some(rest) => rest,
                    None => return false,
                },
                '"' | '\'' => after,
                // A backslash before a line end joins two lines.
                '\\' if after.starts_with('\n') => after,
                operator_or_space if "+-*/%<>=!&|^~?:,.()[]@ \t\n".contains(operator_or_space) => {
                    after
                }
                _ => return false,
            };
        }
        true
    }

    fn name<'r>(&mut self, text: &'r str) -> &'r str {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        self.variables.insert(text[..end].to_owned());
        &text[end..]
    }

    /// Reads an expansion, and returns the text after it. `text` begins after the `$`. Returns
    /// `None` if the expansion may give more than numbers, operators and names.
    fn expansion<'r>(&mut self, text: &'r str) -> Option<&'r str> {
        let first = text.chars().next()?;
        match first {
            // The number of arguments, an exit code, or the number of a process.
            '#' | '?' | '$' | '!' => Some(&text[1..]),
            'a'..='z' | 'A'..='Z' => Some(self.name(text)),
            // The caller reads the arithmetic in the brackets.
            '(' if text.starts_with("((") => Some(text),
            '[' => Some(text),
            // A command substitution.
            '(' => {
                let end = text.find(')')?;
                if self.substitution(&text[1..end]) { Some(&text[end + 1..]) } else { None }
            }
            '{' => {
                let end = text.find('}')?;
                if self.read_braces(&text[1..end]) { Some(&text[end + 1..]) } else { None }
            }
            _ => None,
        }
    }

    /// Reads the text in `${…}`. Returns false if it may expand to more than numbers, operators and
    /// names.
    fn read_braces(&mut self, inner: &str) -> bool {
        let operator = inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let name = &inner[..inner.len() - operator.len()];
        if name.is_empty() {
            // `${#x}` and `${#x[@]}` are lengths. `${#}` is the number of arguments.
            let Some(measured) = operator.strip_prefix('#') else { return false };
            return measured.is_empty() || is_name(measured.trim_end_matches(['[', ']', '@', '*']));
        }
        if !is_name(name) {
            return false;
        }
        if operator.is_empty() {
            return self.read(name);
        }
        // An element of a list: `${x[1]}`.
        if operator.starts_with('[') {
            return self.read(inner);
        }
        // A default value: `${x-1}`, `${x:-1}`.
        let without_colon = operator.strip_prefix(':').unwrap_or(operator);
        let Some(default) = without_colon.strip_prefix('-') else { return false };
        self.read(name) && self.read(default)
    }

    /// Reads a command substitution. Returns true if its output is always a number or a plain word.
    fn substitution(&mut self, command: &str) -> bool {
        // The code below splits the command only at `|` and at spaces. That would be wrong for a
        // command with quotes or expansions, and for several commands.
        if command
            .contains(['"', '\'', '\\', '`', '$', ';', '&', '\n', '(', '#', '{', '*', '?', '['])
        {
            return false;
        }

        // Only the last program of a pipe writes the output.
        let is_piped = command.contains('|');
        let last_command = command.rsplit('|').next().unwrap_or_default();
        let mut words: Vec<&str> = last_command.split_whitespace().collect();
        // The last two words may be `< FILE`.
        let redirect_index = words.iter().position(|word| *word == "<");
        let reads_file = !is_piped && redirect_index.is_some_and(|index| index + 2 == words.len());
        if reads_file {
            words.truncate(words.len() - 2);
        }

        let Some(program) = words.first() else { return false };
        self.programs.insert((*program).to_owned());
        let has_input = is_piped || reads_file;
        writes_number_or_word(&words, has_input)
    }
}

/// Checks whether the output of a command is always a number or a plain word.
fn writes_number_or_word(words: &[&str], has_input: bool) -> bool {
    match words {
        ["wc", option] => has_input && matches!(*option, "-l" | "-w" | "-c" | "-m"),
        ["grep", "-c", pattern] => has_input && !pattern.starts_with('-'),
        ["nproc"]
        | ["id", "-u" | "-g"]
        | ["uname"]
        | ["uname", "-s" | "-m"]
        | ["date", "+%s" | "+%Y" | "+%H" | "+%j"] => true,
        ["seq", bounds @ ..] => {
            bounds.iter().all(|bound| bound.bytes().all(|byte| byte.is_ascii_digit()))
        }
        ["stat", "-c" | "-f", "%s" | "%Y" | "%z" | "%m", file] => !file.starts_with('-'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn only_numbers_and_names_are_harmless() {
        let names = |raw: &str| {
            Names::parse(raw).map(|names| names.variables.into_iter().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names("1 + 0x1f * 16#ff").as_deref(), Some(""));
        assert_eq!(names("x > 3 ? y++ : ${z}").as_deref(), Some("x y z"));
        assert_eq!(names("a[i + 1] + ${#b} + ${#c[@]} + $# + $?").as_deref(), Some("a i"));
        assert_eq!(names("${x:-3} + $((y * 2))").as_deref(), Some("x y"));
        assert_eq!(names("$(wc -l < notes.txt) + $(cat x | wc -l)").as_deref(), Some(""));
        for raw in [
            "a[$(reboot)]",
            "'a[`x`]'",
            "$1",
            "$@",
            "${!x}",
            "${x@P}",
            "${x/a/b}",
            "$(cat n)",
            "$(wc -l notes)",
            "{1,2}",
            "\\x",
            "$_",
            "$-",
        ] {
            assert_eq!(names(raw), None, "{raw}");
        }
    }
}
