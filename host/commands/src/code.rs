//! Code in the arguments of interpreters: whether it may start programs or delete files.

use super::word::Word;

/// Whether code in the arguments of an interpreter deletes files, judged by the names of functions
/// in the common languages.
pub(super) fn deletes(name: &str, arguments: &[Word]) -> bool {
    const WAYS: [&str; 16] = [
        "rmtree",
        "os.remove",
        "os.unlink",
        "os.rmdir",
        ".unlink(",
        "removedirs",
        "rmsync",
        "rmdirsync",
        "unlinksync",
        "fs.rm",
        "fileutils.rm",
        "file.delete",
        "dir.delete",
        "remove_tree",
        "unlink",
        "rmdir",
    ];
    let is_awk = name.ends_with("awk");
    !is_awk
        && code(name, arguments)
            .is_some_and(|code| WAYS.iter().any(|way| code.text.to_lowercase().contains(way)))
}

/// The code in the arguments of an interpreter.
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

/// Whether code contains a way to start a program, or a way to hide one.
pub(super) fn starts_programs(name: &str, code: &str) -> bool {
    let lower = code.to_lowercase();
    let ways = [
        "system",
        "popen",
        "subprocess",
        "exec",
        "spawn",
        "child_process",
        "fork",
        "__import__",
        "eval",
        "base64",
        "decode",
        "getattr",
        "importlib",
        "ctypes",
        "shell",
        "\\x",
    ];
    let found = if name.ends_with("awk") {
        lower.contains("system")
            || lower.contains("getline")
            || awk_pipes(code)
            || lower.contains('@')
    } else {
        ways.iter().any(|way| lower.contains(way))
    };
    found
        || code.contains('`') && !name.starts_with("python") && !name.starts_with("node")
        || lower.contains("qx") && name.starts_with("perl")
}

/// Whether `awk` code pipes to a program: `print | "sort"`.
fn awk_pipes(code: &str) -> bool {
    let mut rest = code;
    while let Some((before, after)) = rest.split_once('|') {
        if !after.starts_with('|')
            && !before.ends_with('|')
            && (after.trim_start().starts_with('"') || after.trim_start().starts_with('&'))
        {
            return true;
        }
        rest = after;
    }
    false
}
