//! Decides whether code in the arguments of interpreters may start programs or delete files.
//!
//! Only names outside of strings decide: `ast.literal_eval(x)` isn't `eval(x)`, and
//! `print("system")` starts nothing. If a string can contain code, its names are checked too.

use super::word::Word;

/// Last names of functions that delete files.
const DELETING: [&str; 20] = [
    "delete",
    "file_delete",
    "remove",
    "remove_dir",
    "remove_entry",
    "remove_entry_secure",
    "remove_file",
    "remove_tree",
    "removedirs",
    "rm",
    "rm_f",
    "rm_r",
    "rm_rf",
    "rmdir",
    "rmdirsync",
    "rmsync",
    "rmtree",
    "safe_unlink",
    "unlink",
    "unlinksync",
];

/// Owners whose `delete`, `remove` and `rm` are about files, and not about lists or tables.
const OF_FILES: [&str; 9] =
    ["dir", "file", "fileutils", "fs", "fsp", "os", "path", "pathname", "promises"];

pub(super) fn deletes(name: &str, arguments: &[Word]) -> bool {
    if name.ends_with("awk") {
        return false;
    }
    let Some(code) = code(name, arguments) else { return false };
    names(Language::from_program(name), &code.text).iter().any(Used::deletes_files)
}

/// Returns the argument of an interpreter that contains code: the word after `-c` or `-e`, or the
/// first word of `awk`.
pub(super) fn code<'w>(name: &str, arguments: &'w [Word]) -> Option<&'w Word> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let code_options: &[&str] = match plain {
        "python" | "pypy" | "ipython" => &["c"],
        "node" | "nodejs" | "bun" | "deno" | "tsx" | "ts-node" => {
            &["e", "p", "pe", "-eval", "-print", "eval"]
        }
        "perl" | "ruby" | "jruby" => &["e", "E"],
        "php" => &["r"],
        "lua" | "luajit" | "osascript" | "Rscript" | "rscript" | "julia" | "elixir" | "groovy" => {
            &["e", "-eval"]
        }
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => return awk_code(arguments),
        _ => return None,
    };
    for (at, word) in arguments.iter().enumerate() {
        let text = word.text.as_str();
        let Some(option) = text.strip_prefix('-') else {
            if text == "eval" && code_options.contains(&"eval") {
                return arguments.get(at + 1);
            }
            // This word is a script file, and all later words are arguments of the script.
            return None;
        };
        if option.starts_with('-') {
            match option.split_once('=') {
                Some((name, _)) if code_options.contains(&name) => return Some(word),
                None if code_options.contains(&option) => return arguments.get(at + 1),
                _ => continue,
            }
        }
        // In a group of short options, the code is the next word, or the rest of the word after the
        // letter.
        let mut short_options = code_options.iter().filter(|letter| letter.len() == 1);
        if let Some(letter) = short_options.find(|letter| option.contains(**letter)) {
            return if option.ends_with(letter) { arguments.get(at + 1) } else { Some(word) };
        }
    }
    None
}

/// Returns the code in the arguments of `awk`. Returns `None` if the code is in a file.
fn awk_code(arguments: &[Word]) -> Option<&Word> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.text.as_str() {
            "-f" | "--file" => return None,
            // The next word is the value of the option.
            "-F" | "-v" => {
                words.next();
            }
            option if option.starts_with('-') && option.len() > 1 => {}
            _ => return Some(word),
        }
    }
    None
}

/// A language whose strings, or whose ways to start programs, need their own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Awk,
    JavaScript,
    Python,
    Other,
}

impl Language {
    /// Returns the language of the code that a program runs.
    fn from_program(program: &str) -> Self {
        if program.ends_with("awk") {
            Self::Awk
        } else if starts_with_any(program, &["python", "pypy", "ipython"]) {
            Self::Python
        } else if starts_with_any(program, &["node", "bun", "deno", "tsx", "ts-node"]) {
            Self::JavaScript
        } else {
            Self::Other
        }
    }
}

fn starts_with_any(program: &str, names: &[&str]) -> bool {
    names.iter().any(|name| program.starts_with(name))
}

/// A name in code, in lower case, with its owners: `os.path.join`.
#[derive(Debug)]
struct Used {
    path: String,
    called: bool,
}

impl Used {
    fn last(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    fn before_last(&self) -> Option<&str> {
        self.path.rsplit('.').nth(1)
    }

    fn deletes_files(&self) -> bool {
        let last = self.last();
        if !DELETING.contains(&last) {
            return false;
        }
        // Lists and maps also have functions with these names.
        let is_ambiguous = ["delete", "remove", "rm"].contains(&last);
        let is_of_files = self.before_last().is_some_and(|owner| OF_FILES.contains(&owner));
        is_of_files || !is_ambiguous
    }

    /// Checks whether the name may start a program, or may hide the use of another name.
    fn starts_programs(&self, language: Language) -> bool {
        if self.path.split('.').any(|part| STARTING.contains(&part)) {
            return true;
        }
        if self.called && RUNNING.contains(&self.path.as_str()) {
            return true;
        }
        // In other languages, a call needs no parentheses, so `called` may be false for a call.
        language == Language::Other && OTHERS.contains(&self.last())
    }
}

/// Returns the names in code, outside of strings that can't contain code.
fn names(language: Language, code: &str) -> Vec<Used> {
    let chars: Vec<char> = code.chars().collect();
    let mut names = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if c.is_alphabetic() || c == '_' {
            let start = at;
            while at < chars.len() && (chars[at].is_alphanumeric() || "_.".contains(chars[at])) {
                at += 1;
            }
            let path: String = chars[start..at].iter().collect::<String>().to_lowercase();
            let next = chars[at..].iter().find(|c| !c.is_whitespace());
            let called = next == Some(&'(');
            names.push(Used { path: path.trim_end_matches('.').to_owned(), called });

            // An f-string contains code between its braces. Its quote is skipped, so that its text
            // is read as code.
            let is_f_string = language == Language::Python
                && matches!(next, Some('"' | '\''))
                && ["f", "rf", "fr", "t"].contains(&path.as_str());
            if is_f_string {
                at += 1;
            }
            continue;
        }
        let starts_string = starts_string_without_code(language, c);
        at = if starts_string { string_end(&chars, at) } else { at + 1 };
    }
    names
}

/// Checks whether a character is a quote around strings that can't contain code.
fn starts_string_without_code(language: Language, c: char) -> bool {
    match language {
        Language::Python | Language::JavaScript => matches!(c, '"' | '\''),
        Language::Awk => c == '"',
        Language::Other => c == '\'',
    }
}

/// Returns the end of the string that starts with the quote at `start`. If the string has no end,
/// returns the offset after the quote, so that its text is read as code.
fn string_end(chars: &[char], start: usize) -> usize {
    let quote = chars[start];
    let triple_quote = [quote; 3];
    let is_triple = chars[start..].starts_with(&triple_quote);
    let quote_length = if is_triple { 3 } else { 1 };
    let closing_quote = &triple_quote[..quote_length];
    let mut at = start + quote_length;
    while at < chars.len() {
        if chars[at] == '\\' {
            at += 2;
        } else if chars[at..].starts_with(closing_quote) {
            return at + quote_length;
        } else {
            at += 1;
        }
    }
    start + 1
}

/// Names that start a program or hide which names are used, even in the middle of a path.
const STARTING: [&str; 42] = [
    "__builtins__",
    "__dict__",
    "__globals__",
    "__import__",
    "__subclasses__",
    "_exec",
    "binding",
    "builtins",
    "child_process",
    "constructor",
    "ctypes",
    "dlopen",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "fork",
    "getattr",
    "globals",
    "importlib",
    "open3",
    "passthru",
    "pcntl_exec",
    "popen",
    "posix_spawn",
    "proc_open",
    "pty",
    "public_send",
    "qx",
    "runpy",
    "shell_exec",
    "spawn",
    "spawnsync",
    "spawnv",
    "startfile",
    "subprocess",
    "syscall",
    "system",
    "worker_threads",
];

/// Functions that run code or a program if they are called without an owner.
const RUNNING: [&str; 9] = [
    "compile",
    "eval",
    "exec",
    "execfile",
    "execfilesync",
    "execsync",
    "function",
    "import",
    "vars",
];

/// Functions that run code or a program, in languages whose calls need no parentheses.
const OTHERS: [&str; 5] = ["class_eval", "eval", "exec", "instance_eval", "send"];

pub(super) fn starts_programs(name: &str, code: &str) -> bool {
    let language = Language::from_program(name);
    let names = names(language, code);
    if language == Language::Awk {
        let calls_system = names.iter().any(|used| used.path == "system" && used.called);
        let loads_code = ["@load", "@include", "@namespace"].iter().any(|word| code.contains(word));
        return calls_system
            || loads_code
            || awk_pipes(&with_empty_strings(code))
            || calls_by_variable(code);
    }
    if names.iter().any(|used| used.starts_programs(language)) {
        return true;
    }
    match language {
        Language::JavaScript => loads_modules(code),
        Language::Other => {
            let may_open_pipe = code.contains("open") && code.contains('|');
            may_open_pipe || code.contains('`')
        }
        Language::Awk | Language::Python => false,
    }
}

/// Checks whether JavaScript loads a module that starts programs, or a module without a plain name.
fn loads_modules(code: &str) -> bool {
    ["require", "from", "import", "getBuiltinModule"].iter().any(|word| {
        code.match_indices(word).any(|(at, _)| loads_module(word, &code[at + word.len()..]))
    })
}

/// Checks whether the text after `word`, such as `require`, names a module that starts programs, or
/// a module without a plain name.
fn loads_module(word: &str, text: &str) -> bool {
    const MODULES: [&str; 5] = ["child_process", "cluster", "inspector", "vm", "worker_threads"];
    let after_word = text.trim_start();
    let is_call = after_word.starts_with('(');
    let argument = after_word.trim_start_matches('(').trim_start();
    let Some(quote @ ('"' | '\'' | '`')) = argument.chars().next() else {
        // `require(name)` may load any module, but `from(x)` is a call such as `Array.from(x)`.
        return is_call && word != "from";
    };
    let module = argument[1..].split(quote).next().unwrap_or_default();
    let name = module.strip_prefix("node:").unwrap_or(module);
    if MODULES.contains(&name) || name.contains(['\\', '$']) {
        return true;
    }
    // The name isn't plain if its string has no end, or an operator follows.
    let after_name = &argument[quote.len_utf8() + module.len()..];
    let Some(after_quote) = after_name.strip_prefix(quote) else { return true };
    is_call && !after_quote.trim_start().starts_with([')', ','])
}

/// Checks whether `awk` code calls a function by the value of a variable: `@name(x)`.
fn calls_by_variable(code: &str) -> bool {
    code.match_indices('@').any(|(at, _)| {
        let after_at = &code[at + 1..];
        let after_name = after_at.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        let has_name = after_name.len() < after_at.len();
        has_name && after_name.starts_with('(')
    })
}

/// Returns code in which every string between double quotes is empty.
fn with_empty_strings(code: &str) -> String {
    let chars: Vec<char> = code.chars().collect();
    let mut shortened = String::new();
    let mut at = 0;
    while at < chars.len() {
        let is_quote = chars[at] == '"';
        let end = if is_quote { string_end(&chars, at) } else { at + 1 };
        // If the string has no end, `string_end` returns the offset after the quote.
        let is_string = is_quote && end > at + 1;
        if is_string {
            shortened.push_str("\"\"");
        } else {
            shortened.push(chars[at]);
        }
        at = end;
    }
    shortened
}

/// Checks whether `awk` code pipes to or from a program: `print | "sort"`.
fn awk_pipes(code: &str) -> bool {
    let mut rest = code;
    while let Some((before, after)) = rest.split_once('|') {
        let is_or = after.starts_with('|') || before.ends_with('|');
        // In `print | "sort"`, the program is a string. `"date" | getline` reads the output of a
        // program, and `|&` does both.
        let target = after.trim_start();
        let is_pipe = target.starts_with(['"', '&']) || target.starts_with("getline");
        if is_pipe && !is_or {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_code_are_judged_and_texts_are_not() {
        for (program, code) in [
            ("python3", "import ast; print(ast.literal_eval('[1]'))"),
            ("python3", "print('system exec eval subprocess')"),
            ("python3", "import re; re.compile('x').search('y'); cursor.execute('select')"),
            ("node", "console.log(\"child_process\")"),
            ("node", "const fs = require('fs'); /x/.test('y')"),
            ("awk", "/system/ {print $1 \" | \" $2}"),
            ("perl", "print 'system'"),
        ] {
            assert!(!starts_programs(program, code), "{program}: {code}");
        }
        for (program, code) in [
            ("python3", "import os; os.system('x')"),
            ("python3", "from os import system as s; s('x')"),
            ("python3", "import subprocess as p; p.run(['x'])"),
            ("python3", "eval('x')"),
            ("python3", "exec (x)"),
            ("python3", "print(f\"{__import__('os')}\")"),
            ("python3", "getattr(os, 'sys' + 'tem')('x')"),
            ("python3", "'a' 'b'.__class__.__subclasses__()"),
            ("node", "require('child_process').execSync('x')"),
            ("node", "require(`child_process`)"),
            ("node", "require('child' + '_process')"),
            ("node", "import('node:child_process')"),
            ("node", "new Function('x')()"),
            ("node", "process.binding('spawn_sync')"),
            ("awk", "BEGIN {system(\"x\")}"),
            ("awk", "BEGIN {\"x\" | getline}"),
            ("awk", "BEGIN {f = \"system\"; @f(\"x\")}"),
            ("perl", "system 'x'"),
            ("perl", "`x`"),
            ("perl", "open F, \"x|\""),
            ("ruby", "Kernel.exec 'x'"),
            ("ruby", "\"#{system('x')}\""),
            ("php", "shell_exec('x');"),
        ] {
            assert!(starts_programs(program, code), "{program}: {code}");
        }
    }
}
