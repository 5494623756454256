//! Decides whether a text that bash evaluates can start a command although the text isn't a
//! command. Such texts are arithmetic, indexes of lists, and names of variables.
//!
//! Bash replaces a variable in arithmetic with its value, and evaluates that value as arithmetic
//! again. In doing so, bash runs the commands in each index: after `x='a[$(reboot)]'`, `((x))`
//! reboots. For this reason, arithmetic is harmless only if the text and the values of all its
//! variables are known to contain only numbers and names. The rules follow the manual of bash 5.2,
//! sections 3.4 to 3.5, 4 and 6.4 to 6.7.

use std::collections::{BTreeMap, BTreeSet};

use super::word::Word;

/// The reason if an unknown text is used in arithmetic or as the name of a variable.
pub(super) const CALCULATED: &str =
    "it has arithmetic, or a variable's name, that is only known at run time";

/// The ways in which bash evaluates a text. All rules always apply. A test disables one rule at a
/// time to show that each rule is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// `((…))`, `$((…))`, `$[…]`, `for ((…))`.
    Arithmetic,
    /// `let …`.
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
    /// `read …`.
    ReadName,
    /// `unset …`.
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
    /// `PS4=…`. With `set -x`, bash evaluates its value.
    Trace,
    /// `eval …`.
    Eval,
    /// `trap …`.
    Trap,
    /// `alias x=…`.
    Alias,
    /// The values of variables, set by `x=…`, `for x in …`, `read x` and similar forms.
    Value,
    /// Variables that the shell itself sets to untrusted text.
    ShellVariable,
    /// A function with the name of a program whose output is assumed to be a number.
    Function,
}

#[cfg(test)]
thread_local! {
    /// The rule that a test disabled.
    pub(super) static DISABLED_RULE: std::cell::Cell<Option<Rule>> =
        const { std::cell::Cell::new(None) };
}

/// Checks whether a rule applies: always, except in tests that show that it is needed.
pub(super) fn applies(rule: Rule) -> bool {
    #[cfg(test)]
    if DISABLED_RULE.get() == Some(rule) {
        return false;
    }
    let _ = rule;
    true
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

/// The variables of a text: their values, and which of them are used in arithmetic.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// For each variable, the names in its values.
    values: BTreeMap<String, BTreeSet<String>>,
    /// Variables with an unknown value.
    unknown: BTreeSet<String>,
    /// Whether any variable may have an unknown value.
    any: bool,
    /// Variables that are used in arithmetic.
    used: BTreeSet<String>,
    /// Variables that may be lists.
    lists: BTreeSet<String>,
    /// Variables that are declared with a text that may be the text of a list.
    declared: BTreeSet<String>,
    /// The programs whose output is assumed to be a number.
    programs: BTreeSet<String>,
    /// Functions and aliases.
    functions: BTreeSet<String>,
    /// Whether an unknown text is evaluated.
    unclear: bool,
}

impl Variables {
    /// Adds a text, as written, that is evaluated as arithmetic.
    pub(super) fn add_arithmetic(&mut self, raw: &str) {
        match Names::parse(raw) {
            Some(names) => {
                self.used.extend(names.variables);
                self.programs.extend(names.programs);
            }
            None => self.unclear = true,
        }
    }

    /// Adds a word, as written, that names a variable. If it has an index, that is arithmetic.
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
                self.add_arithmetic(index.strip_suffix(']').unwrap_or(index));
            }
        }
    }

    /// Adds a value of a variable, as written.
    pub(super) fn add_value(&mut self, name: &str, raw: &str) {
        if name.contains('[') && applies(Rule::Index) {
            self.add_name(name.trim_end_matches('+'));
        }
        if !applies(Rule::Value) {
            return;
        }
        let name = name.split(['[', '+']).next().unwrap_or_default();
        if !is_name(name) {
            self.any = true;
            return;
        }
        if applies(Rule::IntegerVariable) && INTEGERS.contains(&name) {
            self.used.insert(name.to_owned());
        }
        if raw.starts_with('(') {
            self.lists.insert(name.to_owned());
        }
        // In a list, patterns expand to names of files.
        let has_pattern = raw.starts_with('(') && raw.contains(['*', '?', '[']);
        if !has_pattern && let Some(names) = Names::parse(raw) {
            self.values.entry(name.to_owned()).or_default().extend(names.variables);
            // If the variable is used, the output of the programs in its value is used.
            self.programs.extend(names.programs);
        } else {
            self.unknown.insert(name.to_owned());
        }
    }

    /// Adds an unknown value of a variable.
    pub(super) fn add_unknown_value(&mut self, raw: &str) {
        if !applies(Rule::Value) {
            return;
        }
        let bare = raw.trim_matches(['"', '\'']);
        let name = bare.split('[').next().unwrap_or_default();
        if is_name(name) {
            self.unknown.insert(name.to_owned());
        } else {
            self.any = true;
        }
    }

    /// Adds the words that a loop sets a variable to.
    pub(super) fn add_loop(&mut self, name: &str, words: &str) {
        let in_braces = words.strip_prefix('{').and_then(|words| words.strip_suffix('}'));
        // Braces are only known if they contain numbers. Patterns expand to names of files.
        if in_braces.is_some_and(is_range) {
            self.add_value(name, "");
        } else if words.contains(['*', '?', '[']) {
            self.add_unknown_value(name);
        } else {
            self.add_value(name, words);
        }
    }

    /// Adds a function or an alias.
    pub(super) fn add_function(&mut self, name: &str) {
        self.functions.insert(name.to_owned());
    }

    /// Adds the arguments of `declare` or a similar command.
    pub(super) fn add_declaration(&mut self, program: &str, arguments: &[Word]) {
        let options: String = arguments
            .iter()
            .filter(|word| word.text.starts_with(['-', '+']))
            .map(|word| word.text.as_str())
            .collect();
        if options.contains('n')
            && !matches!(program, "export" | "readonly")
            && applies(Rule::Reference)
        {
            self.unclear = true;
        }
        for word in arguments.iter().filter(|word| !word.text.starts_with(['-', '+'])) {
            let (target, value) = word.raw.split_once('=').unwrap_or((word.raw.as_str(), ""));
            let variable = target.trim_start_matches(['"', '\'']).trim_end_matches('+');
            let name = variable.split('[').next().unwrap_or_default().to_owned();
            if !is_name(&name) {
                self.any = true;
            }
            if options.contains('i') && applies(Rule::Integer) {
                self.used.insert(name.clone());
            }
            if options.contains(['a', 'A']) {
                self.lists.insert(name.clone());
            }
            let is_expanded = word.is_unknown() || word.text.contains(['$', '`']);
            if is_expanded && !value.starts_with('(') && applies(Rule::ListText) {
                self.declared.insert(name);
            }
        }
    }

    /// Adds the arguments of `test` or `[ … ]`.
    pub(super) fn add_test(&mut self, words: &[Word]) {
        const BINARY: [&str; 14] = [
            "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot",
            "-ef",
        ];
        if applies(Rule::TestWords) {
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
                        && applies(Rule::TestName)
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
                    // An unknown word before another word may be an operator.
                    if !is_known && !is_alone && applies(Rule::TestWords) {
                        self.unclear = true;
                    }
                    after
                }
            };
        }
    }

    /// Checks whether all texts in arithmetic are known to be harmless.
    pub(super) fn are_harmless(&self) -> bool {
        if self.unclear {
            return false;
        }
        if self.any && !self.used.is_empty() {
            return false;
        }
        if self.lists.intersection(&self.declared).next().is_some() {
            return false;
        }
        if applies(Rule::Function) && self.programs.intersection(&self.functions).next().is_some() {
            return false;
        }
        // A value of a variable may name other variables.
        let mut pending: Vec<_> = self.used.iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = pending.pop() {
            let is_set_by_shell =
                SHELL_VARIABLES.contains(&name.as_str()) && applies(Rule::ShellVariable);
            if is_set_by_shell || self.unknown.contains(name) {
                return false;
            }
            if seen.insert(name) {
                pending.extend(self.values.get(name).into_iter().flatten());
            }
        }
        true
    }
}

/// Checks whether a text is a valid name of a variable.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Checks whether the text between braces has numbers only: `1..10`, `1,2`.
fn is_range(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ',' | '-'))
}

/// The names in a text that is evaluated as arithmetic.
#[derive(Debug, Default)]
struct Names {
    variables: BTreeSet<String>,
    programs: BTreeSet<String>,
}

impl Names {
    /// Returns the names in a text. Returns `None` if it may expand to more than numbers, operators
    /// and names.
    fn parse(raw: &str) -> Option<Self> {
        let mut names = Self::default();
        names.read(raw).then_some(names)
    }

    fn read(&mut self, raw: &str) -> bool {
        let mut rest = raw;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            rest = match c {
                '0'..='9' => after.trim_start_matches(|c: char| {
                    c.is_ascii_alphanumeric() || matches!(c, '#' | '_')
                }),
                'a'..='z' | 'A'..='Z' | '_' => self.name(rest),
                '$' => match self.expansion(after) {
                    Some(rest) => rest,
                    None => return false,
                },
                '"' | '\'' => after,
                '\\' if after.starts_with('\n') => after,
                c if "+-*/%<>=!&|^~?:,.()[]@ \t\n".contains(c) => after,
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

    /// Reads an expansion. `text` begins after the `$`. Returns the text after the expansion.
    fn expansion<'r>(&mut self, text: &'r str) -> Option<&'r str> {
        let first = text.chars().next()?;
        match first {
            '#' | '?' | '$' | '!' => Some(&text[1..]),
            'a'..='z' | 'A'..='Z' => Some(self.name(text)),
            '(' if text.starts_with("((") => Some(text),
            '[' => Some(text),
            '(' => {
                let end = text.find(')')?;
                self.output(&text[1..end])?;
                Some(&text[end + 1..])
            }
            '{' => {
                let end = text.find('}')?;
                self.read_braces(&text[1..end]).then_some(&text[end + 1..])
            }
            _ => None,
        }
    }

    /// Reads the text in the braces of `${…}`. Returns whether it is known.
    fn read_braces(&mut self, inner: &str) -> bool {
        let end =
            inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let (name, more) = inner.split_at(end);
        if name.is_empty() {
            // The length of a value or of a list.
            let Some(measured) = more.strip_prefix('#') else { return false };
            return measured.is_empty() || is_name(measured.trim_end_matches(['[', ']', '@', '*']));
        }
        if !is_name(name) {
            return false;
        }
        if more.is_empty() {
            return self.read(name);
        }
        if more.starts_with('[') {
            return self.read(inner);
        }
        // A value by default: `${x-1}`, `${x:-1}`.
        let Some(default) = more.strip_prefix(':').unwrap_or(more).strip_prefix('-') else {
            return false;
        };
        self.read(name) && self.read(default)
    }

    /// Reads a command whose output is used. Returns `None` unless the output is a number or a
    /// plain word for any content of files.
    fn output(&mut self, command: &str) -> Option<()> {
        if command
            .contains(['"', '\'', '\\', '`', '$', ';', '&', '\n', '(', '#', '{', '*', '?', '['])
        {
            return None;
        }
        let is_piped = command.contains('|');
        let last_command = command.rsplit('|').next().unwrap_or_default();
        let mut words: Vec<&str> = last_command.split_whitespace().collect();
        let redirect_at = words.iter().position(|word| *word == "<");
        let reads_file = !is_piped && redirect_at.is_some_and(|at| at + 2 == words.len());
        if reads_file {
            words.truncate(words.len() - 2);
        }
        let is_fed = is_piped || reads_file;
        let is_plain = match words.as_slice() {
            ["wc", option] => is_fed && matches!(*option, "-l" | "-w" | "-c" | "-m"),
            ["grep", "-c", pattern] => is_fed && !pattern.starts_with('-'),
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
        };
        self.programs.insert((*words.first()?).to_owned());
        is_plain.then_some(())
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
