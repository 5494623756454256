//! Decides whether code in the arguments of interpreters may start programs or delete files.
//!
//! The code is judged by the names that it uses, outside of texts: `ast.literal_eval(x)` isn't
//! `eval(x)`, and `print("system")` starts nothing. This is no parser: where a text can contain
//! code, its names count too.

use super::word::Word;

/// Functions that delete files, by their last name.
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

/// Where `delete`, `remove` and `rm` are functions for files, and not for lists or tables.
const OF_FILES: [&str; 9] =
    ["dir", "file", "fileutils", "fs", "fsp", "os", "path", "pathname", "promises"];

/// Checks whether code in the arguments of an interpreter deletes files.
pub(super) fn deletes(name: &str, arguments: &[Word]) -> bool {
    if name.ends_with("awk") {
        return false;
    }
    let Some(code) = code(name, arguments) else { return false };
    names(Language::from_program(name), &code.text).iter().any(|used| {
        let last = used.last();
        let is_ambiguous = ["delete", "remove", "rm"].contains(&last);
        DELETING.contains(&last)
            && (!is_ambiguous || used.before_last().is_some_and(|of| OF_FILES.contains(&of)))
    })
}

/// Returns the code in the arguments of an interpreter.
pub(super) fn code<'w>(name: &str, arguments: &'w [Word]) -> Option<&'w Word> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let letters: &[&str] = match plain {
        "python" | "pypy" | "ipython" => &["c"],
        "node" | "nodejs" | "bun" | "deno" | "tsx" | "ts-node" => {
            &["e", "p", "pe", "-eval", "-print", "eval"]
        }
        "perl" | "ruby" | "jruby" => &["e", "E"],
        "php" => &["r"],
        "lua" | "luajit" | "osascript" | "Rscript" | "rscript" | "julia" | "elixir" | "groovy" => {
            &["e", "-eval"]
        }
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => {
            let mut rest = arguments.iter();
            while let Some(word) = rest.next() {
                match word.text.as_str() {
                    "-f" | "--file" => return None,
                    "-F" | "-v" => drop(rest.next()),
                    text if text.starts_with('-') && text.len() > 1 => {}
                    _ => return Some(word),
                }
            }
            return None;
        }
        _ => return None,
    };
    for (at, word) in arguments.iter().enumerate() {
        let text = word.text.as_str();
        let Some(option) = text.strip_prefix('-') else {
            if text == "eval" && letters.contains(&"eval") {
                return arguments.get(at + 1);
            }
            // A script in a file. The rest are the script's arguments.
            return None;
        };
        if option.starts_with('-') {
            match option.split_once('=') {
                Some((name, _)) if letters.contains(&name) => return Some(word),
                None if letters.contains(&option) => return arguments.get(at + 1),
                _ => continue,
            }
        }
        // In a group of short options, the code is the next word, or the text after its letter.
        if let Some(letter) = letters
            .iter()
            .filter(|letter| letter.len() == 1)
            .find(|letter| option.contains(**letter))
        {
            return if option.ends_with(letter) { arguments.get(at + 1) } else { Some(word) };
        }
    }
    None
}

/// The language of an interpreter, as far as its texts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Awk,
    JavaScript,
    Python,
    Other,
}

impl Language {
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

/// A name in code, in lower case, with the names that it belongs to: `os.path.join`.
#[derive(Debug)]
struct Used {
    path: String,
    /// Whether it is called.
    called: bool,
}

impl Used {
    fn last(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    fn before_last(&self) -> Option<&str> {
        self.path.rsplit('.').nth(1)
    }
}

/// Returns the names that code uses, outside of texts that can't contain code.
fn names(language: Language, code: &str) -> Vec<Used> {
    let chars: Vec<char> = code.chars().collect();
    let mut names = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if c.is_alphabetic() || c == '_' {
            let begin = at;
            while at < chars.len() && (chars[at].is_alphanumeric() || "_.".contains(chars[at])) {
                at += 1;
            }
            let path: String = chars[begin..at].iter().collect::<String>().to_lowercase();
            let next = chars[at..].iter().find(|c| !c.is_whitespace());
            // The prefix of a text.
            let is_format = language == Language::Python
                && matches!(next, Some('"' | '\''))
                && ["f", "rf", "fr", "t"].contains(&&*path);
            let called = next == Some(&'(');
            names.push(Used { path: path.trim_end_matches('.').to_owned(), called });
            if is_format {
                // The text between braces is code.
                at += 1;
            }
            continue;
        }
        let holds_no_code = match language {
            Language::Python | Language::JavaScript => matches!(c, '"' | '\''),
            Language::Awk => c == '"',
            Language::Other => c == '\'',
        };
        at = if holds_no_code { text_end(&chars, at) } else { at + 1 };
    }
    names
}

/// Returns the end of a text that begins here. A text without an end is code.
fn text_end(chars: &[char], begin: usize) -> usize {
    let quote = chars[begin];
    let is_triple = chars[begin..].starts_with(&[quote; 3]);
    let length = if is_triple { 3 } else { 1 };
    let mut at = begin + length;
    while at < chars.len() {
        if chars[at] == '\\' {
            at += 2;
        } else if chars[at..].starts_with(&[quote; 3][..length]) {
            return at + length;
        } else {
            at += 1;
        }
    }
    begin + 1
}

/// Names that start a program, or that hide which names are used, wherever they stand.
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

/// Functions that run code or a program if they are called by this name alone.
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

/// The same in languages in which a function needs no parentheses.
const OTHERS: [&str; 5] = ["class_eval", "eval", "exec", "instance_eval", "send"];

/// Checks whether code may start a program, or hides what it does.
pub(super) fn starts_programs(name: &str, code: &str) -> bool {
    let language = Language::from_program(name);
    let names = names(language, code);
    if language == Language::Awk {
        return names.iter().any(|used| matches!(&*used.path, "system") && used.called)
            || awk_pipes(&without_texts(code))
            || ["@load", "@include", "@namespace"].iter().any(|word| code.contains(word))
            || calls_by_variable(code);
    }
    let is_other = language == Language::Other;
    names.iter().any(|used| {
        used.path.split('.').any(|part| STARTING.contains(&part))
            || RUNNING.contains(&&*used.path) && used.called
            // In other languages, functions are also called without parentheses.
            || is_other && OTHERS.contains(&used.last())
    }) || is_other && (code.contains('`') || code.contains("open") && code.contains('|'))
        || language == Language::JavaScript && loads_modules(code)
}

/// Checks whether JavaScript loads a module that starts programs, or one whose name isn't plain.
fn loads_modules(code: &str) -> bool {
    const STARTING: [&str; 5] = ["child_process", "cluster", "inspector", "vm", "worker_threads"];
    ["require", "from", "import", "getBuiltinModule"].iter().any(|word| {
        code.match_indices(word).any(|(at, _)| {
            let rest = code[at + word.len()..].trim_start();
            let is_call = rest.starts_with('(');
            let rest = rest.trim_start_matches('(').trim_start();
            let Some(quote) = rest.chars().next().filter(|c| ['"', '\'', '`'].contains(c)) else {
                return is_call && *word != "from";
            };
            let module = rest[1..].split(quote).next().unwrap_or_default();
            let name = module.strip_prefix("node:").unwrap_or(module);
            let after = &rest[1 + module.len()..];
            let is_whole = after
                .strip_prefix(quote)
                .is_some_and(|after| !is_call || after.trim_start().starts_with([')', ',']));
            STARTING.contains(&name) || name.contains(['\\', '$']) || !is_whole
        })
    })
}

/// Checks whether `awk` code calls a function whose name is in a variable: `@name(x)`.
fn calls_by_variable(code: &str) -> bool {
    code.match_indices('@').any(|(at, _)| {
        let rest = &code[at + 1..];
        let name = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        name.len() < rest.len() && name.starts_with('(')
    })
}

/// `awk` code whose texts are empty.
fn without_texts(code: &str) -> String {
    let chars: Vec<char> = code.chars().collect();
    let mut left = String::new();
    let mut at = 0;
    while at < chars.len() {
        let is_text = chars[at] == '"';
        let end = if is_text { text_end(&chars, at) } else { at + 1 };
        if is_text && end > at + 1 {
            left.push_str("\"\"");
        } else {
            left.push(chars[at]);
        }
        at = end;
    }
    left
}

/// Checks whether `awk` code pipes to a program: `print | "sort"`.
fn awk_pipes(code: &str) -> bool {
    let mut rest = code;
    while let Some((before, after)) = rest.split_once('|') {
        if !after.starts_with('|')
            && !before.ends_with('|')
            && (after.trim_start().starts_with(['"', '&'])
                || after.trim_start().starts_with("getline"))
        {
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
