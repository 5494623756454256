//! Texts that bash evaluates though they stand in no command's place: what it calculates, the index
//! of a list, the name of a variable.
//!
//! Bash calculates with the *values* of the variables that a text names, and with what those values
//! name, and on the way it runs the commands in each index: after `x='a[$(reboot)]'`, `((x))`
//! reboots. So a text may be calculated with only where it, and all that it names, is known to hold
//! numbers and names alone. The rules follow the manual of bash 5.2, sections 3.4 to 3.5, 4 and 6.4
//! to 6.7.

use std::collections::{BTreeMap, BTreeSet};

use super::word::Word;

/// Why it is unclear where something is calculated with a text that isn't known.
pub(super) const CALCULATED: &str =
    "it calculates with a text, or finds a variable by one, which is only known when it runs";

/// Each way in which bash evaluates a text. All of them hold always; a test leaves out one at a
/// time, to see that it is missed.
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
    /// `[ $x ]`, which may come to `[ -v … ]`.
    TestWords,
    /// `declare -i x=…`.
    Integer,
    /// `RANDOM=…` and the other variables that are numbers from the beginning.
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
    /// `PS4=…`, which `set -x` evaluates.
    Trace,
    /// `eval …`.
    Eval,
    /// `trap …`.
    Trap,
    /// `alias x=…`.
    Alias,
    /// What variables are set to: by `x=…`, `for x in …`, `read x` and the like.
    Value,
    /// Variables that the shell itself sets to what somebody wrote.
    ShellVariable,
    /// A function that has the name of a program whose output is taken for a number.
    Function,
}

#[cfg(test)]
thread_local! {
    /// The rule that doesn't hold now.
    pub(super) static LEFT_OUT: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

/// Whether a rule holds: always, but for tests that show that it is needed.
pub(super) fn holds(rule: Rule) -> bool {
    #[cfg(test)]
    if LEFT_OUT.get() == Some(rule) {
        return false;
    }
    let _ = rule;
    true
}

/// Variables that calculate what they are set to.
const INTEGERS: [&str; 4] = ["HISTCMD", "OPTIND", "RANDOM", "SRANDOM"];

/// Variables that the shell sets to what stands in its input, its arguments or the folders' names.
const OF_THE_SHELL: [&str; 24] = [
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

/// What a text is calculated with, and what is known of that.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// What the values of each variable name.
    values: BTreeMap<String, BTreeSet<String>>,
    /// Variables whose value may be anything.
    unknown: BTreeSet<String>,
    /// Whether that may be any variable at all.
    any: bool,
    /// What is calculated with.
    used: BTreeSet<String>,
    /// Variables that may be lists.
    lists: BTreeSet<String>,
    /// Variables that are declared with a text that may be a list's.
    declared: BTreeSet<String>,
    /// The programs whose output is taken for a number.
    programs: BTreeSet<String>,
    /// Functions and aliases.
    functions: BTreeSet<String>,
    /// Whether something is calculated that can't be told.
    unclear: bool,
}

impl Variables {
    /// A text is calculated, as it stands in the command.
    pub(super) fn calculates(&mut self, raw: &str) {
        match Names::parse(raw) {
            Some(names) => {
                self.used.extend(names.variables);
                self.programs.extend(names.programs);
            }
            None => self.unclear = true,
        }
    }

    /// A variable is named by a word, perhaps with an index, which is calculated.
    pub(super) fn named(&mut self, raw: &str) {
        let bare = raw.trim_matches(['"', '\'']);
        match bare.split_once('[') {
            None => self.unclear |= bare.contains(['$', '`', '\\', '{', '*', '?']),
            Some((name, index)) => {
                self.unclear |= !is_name(name);
                self.calculates(index.strip_suffix(']').unwrap_or(index));
            }
        }
    }

    /// A variable is set to a text, as it stands in the command.
    pub(super) fn sets(&mut self, name: &str, raw: &str) {
        if name.contains('[') && holds(Rule::Index) {
            self.named(name.trim_end_matches('+'));
        }
        if !holds(Rule::Value) {
            return;
        }
        let name = name.split(['[', '+']).next().unwrap_or_default();
        if !is_name(name) {
            self.any = true;
            return;
        }
        if holds(Rule::IntegerVariable) && INTEGERS.contains(&name) {
            self.used.insert(name.to_owned());
        }
        if raw.starts_with('(') {
            self.lists.insert(name.to_owned());
        }
        // In a list, patterns come to names of files.
        let names = if raw.starts_with('(') && raw.contains(['*', '?', '[']) {
            None
        } else {
            Names::parse(raw)
        };
        match names {
            Some(names) => {
                self.values.entry(name.to_owned()).or_default().extend(names.variables);
                // What a program prints is used where the variable is.
                self.programs.extend(names.programs);
            }
            None => drop(self.unknown.insert(name.to_owned())),
        }
    }

    /// A variable is set to what nobody knows.
    pub(super) fn fills(&mut self, raw: &str) {
        if !holds(Rule::Value) {
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

    /// A variable is set to each of some words in turn.
    pub(super) fn loops(&mut self, name: &str, words: &str) {
        // Of what stands between braces, numbers alone are known; patterns come to names of files.
        match words
            .strip_prefix('{')
            .and_then(|words| words.strip_suffix('}'))
            .filter(|range| is_range(range))
        {
            Some(_) => self.sets(name, ""),
            None if words.contains(['*', '?', '[']) => self.fills(name),
            None => self.sets(name, words),
        }
    }

    /// A function or another name for a program.
    pub(super) fn defines(&mut self, name: &str) {
        self.functions.insert(name.to_owned());
    }

    /// `declare` and its like, with their arguments.
    pub(super) fn declares(&mut self, program: &str, arguments: &[Word]) {
        let options: String = arguments
            .iter()
            .filter(|word| word.text.starts_with(['-', '+']))
            .map(|word| word.text.as_str())
            .collect();
        if options.contains('n')
            && !matches!(program, "export" | "readonly")
            && holds(Rule::Reference)
        {
            self.unclear = true;
        }
        for word in arguments.iter().filter(|word| !word.text.starts_with(['-', '+'])) {
            let (name, value) = word
                .raw
                .split_once('=')
                .map_or((word.raw.as_str(), None), |(name, value)| (name, Some(value)));
            let name = name.trim_start_matches(['"', '\'']).trim_end_matches('+');
            let name = name.split('[').next().unwrap_or_default().to_owned();
            self.any |= !is_name(&name);
            if options.contains('i') && holds(Rule::Integer) {
                self.used.insert(name.clone());
            }
            if options.contains(['a', 'A']) {
                self.lists.insert(name.clone());
            }
            let value = value.unwrap_or_default();
            if !value.starts_with('(')
                && (word.is_unknown() || word.text.contains(['$', '`']))
                && holds(Rule::ListText)
            {
                self.declared.insert(name);
            }
        }
    }

    /// The arguments of `test`, or what stands in `[ … ]`.
    pub(super) fn tests(&mut self, words: &[Word]) {
        const BINARY: [&str; 14] = [
            "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot",
            "-ef",
        ];
        if holds(Rule::TestWords) {
            for word in words.iter().filter(|word| word.splits) {
                self.calculates(&word.raw);
            }
        }
        let mut rest = words;
        while let Some((first, behind)) = rest.split_first() {
            let binary = behind
                .first()
                .is_some_and(|word| !word.open && BINARY.contains(&word.text.as_str()));
            let known = !first.is_unknown();
            rest = match first.text.as_str() {
                _ if binary && behind.len() >= 2 => &behind[2..],
                "!" | "(" | ")" | "-a" | "-o" if known => behind,
                "-v" if known => {
                    if let Some(name) = behind.first().filter(|_| holds(Rule::TestName)) {
                        self.named(&name.raw);
                    }
                    behind.get(1..).unwrap_or_default()
                }
                text if known && text.len() == 2 && text.starts_with('-') => {
                    behind.get(1..).unwrap_or_default()
                }
                _ => {
                    let alone = behind.first().is_none_or(|word| {
                        !word.open && ["-a", "-o", ")"].contains(&word.text.as_str())
                    });
                    // What isn't known and stands before another word may be an operator.
                    if !known && !alone && holds(Rule::TestWords) {
                        self.unclear = true;
                    }
                    behind
                }
            };
        }
    }

    /// Whether all that is calculated with is known to be harmless.
    pub(super) fn are_known(&self) -> bool {
        if self.unclear || self.any && !self.used.is_empty() {
            return false;
        }
        if self.lists.intersection(&self.declared).next().is_some() {
            return false;
        }
        if holds(Rule::Function) && self.programs.intersection(&self.functions).next().is_some() {
            return false;
        }
        let (mut todo, mut seen) = (self.used.iter().collect::<Vec<_>>(), BTreeSet::new());
        while let Some(name) = todo.pop() {
            let of_the_shell = OF_THE_SHELL.contains(&name.as_str()) && holds(Rule::ShellVariable);
            if of_the_shell || self.unknown.contains(name) {
                return false;
            }
            if seen.insert(name) {
                todo.extend(self.values.get(name).into_iter().flatten());
            }
        }
        true
    }
}

/// Whether a text is a variable's name.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether what stands between braces is a row of numbers: `1..10`, `1,2`.
fn is_range(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ',' | '-'))
}

/// What a text names that is calculated.
#[derive(Debug, Default)]
struct Names {
    variables: BTreeSet<String>,
    programs: BTreeSet<String>,
}

impl Names {
    /// None where it may come to something else than numbers, operators and names.
    fn parse(raw: &str) -> Option<Self> {
        let mut names = Self::default();
        names.read(raw).then_some(names)
    }

    fn read(&mut self, raw: &str) -> bool {
        let mut rest = raw;
        while let Some(c) = rest.chars().next() {
            let behind = &rest[c.len_utf8()..];
            rest = match c {
                '0'..='9' => behind.trim_start_matches(|c: char| {
                    c.is_ascii_alphanumeric() || matches!(c, '#' | '_')
                }),
                'a'..='z' | 'A'..='Z' | '_' => self.name(rest),
                '$' => match self.expansion(behind) {
                    Some(rest) => rest,
                    None => return false,
                },
                '"' | '\'' => behind,
                '\\' if behind.starts_with('\n') => behind,
                c if "+-*/%<>=!&|^~?:,.()[]@ \t\n".contains(c) => behind,
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

    /// What stands behind a `$`. Returns what stands behind that.
    fn expansion<'r>(&mut self, behind: &'r str) -> Option<&'r str> {
        let first = behind.chars().next()?;
        match first {
            '#' | '?' | '$' | '!' => Some(&behind[1..]),
            'a'..='z' | 'A'..='Z' => Some(self.name(behind)),
            '(' if behind.starts_with("((") => Some(behind),
            '[' => Some(behind),
            '(' => {
                let end = behind.find(')')?;
                self.output(&behind[1..end])?;
                Some(&behind[end + 1..])
            }
            '{' => {
                let end = behind.find('}')?;
                let inner = &behind[1..end];
                let (name, more) = inner.split_at(
                    inner
                        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                        .unwrap_or(inner.len()),
                );
                let known = match (name, more) {
                    // How long it is, or how many there are.
                    ("", more) if more.starts_with('#') => {
                        is_name(more[1..].trim_end_matches(['[', ']', '@', '*'])) || more == "#"
                    }
                    (name, "") if is_name(name) => self.read(name),
                    (name, more) if is_name(name) && more.starts_with('[') => self.read(inner),
                    (name, more) if is_name(name) => {
                        let more = more.strip_prefix(':').unwrap_or(more);
                        more.starts_with('-') && self.read(name) && self.read(&more[1..])
                    }
                    _ => false,
                };
                known.then_some(&behind[end + 1..])
            }
            _ => None,
        }
    }

    /// A command's output, where that is a number or a plain word whatever the files hold.
    fn output(&mut self, command: &str) -> Option<()> {
        if command
            .contains(['"', '\'', '\\', '`', '$', ';', '&', '\n', '(', '#', '{', '*', '?', '['])
        {
            return None;
        }
        let (before, last) =
            command.rsplit_once('|').map_or((None, command), |(before, last)| (Some(before), last));
        let mut words: Vec<&str> = last.split_whitespace().collect();
        let is_fed = before.is_some()
            || words.iter().position(|word| *word == "<").is_some_and(|at| at + 2 == words.len());
        if before.is_none() && is_fed {
            words.truncate(words.len() - 2);
        }
        let plain = match words.as_slice() {
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
        plain.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn numbers_and_names_are_told_from_what_may_be_evaluated() {
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
