//! Finds the programs that another program starts because of its arguments.

use super::code::{code, starts_programs};
use super::word::{UNKNOWN, Word, assigned};

/// Shells. Their option `-c` takes a command.
pub(super) const SHELLS: [&str; 12] =
    ["sh", "bash", "rbash", "zsh", "fish", "dash", "ash", "ksh", "mksh", "csh", "tcsh", "pwsh"];

#[derive(Debug, Default)]
pub(super) struct Starts {
    pub(super) scripts: Vec<Word>,
    pub(super) words: Vec<Vec<Word>>,
    /// The reason why the program may start further programs.
    pub(super) unclear: Option<&'static str>,
}

/// The arguments of `script`, which runs commands in a new terminal and writes their output to
/// files.
pub(super) struct Typescript {
    /// Scripts for a shell. Only the last script runs.
    pub(super) commands: Vec<Word>,
    pub(super) files: Vec<Word>,
}

impl Typescript {
    /// Reads the arguments of `script`. Returns `None` if their meaning isn't known. Without a
    /// command, `script` starts a shell that reads its input.
    pub(super) fn read(arguments: &[Word]) -> Option<Self> {
        const COMMAND: [&str; 2] = ["-c", "--command"];
        const FILES: [&str; 8] =
            ["-B", "-I", "-O", "-T", "--log-io", "--log-in", "--log-out", "--log-timing"];
        const VALUES: [&str; 6] =
            ["-E", "-m", "-o", "--echo", "--logging-format", "--output-limit"];
        const FLAGS: [&str; 9] =
            ["-a", "-e", "-f", "-q", "--append", "--return", "--flush", "--force", "--quiet"];

        let mut typescript = Self { commands: Vec::new(), files: Vec::new() };
        let mut words = arguments.iter();
        let mut file = None;
        while let Some(word) = words.next() {
            let text = word.text.as_str();
            if !text.starts_with('-') || text == "-" {
                // An unknown word could be an option, and there can be only one file.
                if word.open || file.replace(word).is_some() {
                    return None;
                }
                continue;
            }
            let (option, attached) = if text.starts_with("--") {
                let (name, attached) = split_value(text);
                (name.to_owned(), attached)
            } else {
                // Several short options may share a word. Only the last may have a value, so skip
                // the flags before it.
                let letters = &text[1..];
                let option_at =
                    letters.find(|letter: char| !FLAGS.contains(&format!("-{letter}").as_str()));
                let Some(option_at) = option_at else {
                    if word.open {
                        return None;
                    }
                    continue;
                };
                let letter = letters[option_at..].chars().next()?;
                let after = &letters[option_at + letter.len_utf8()..];
                (format!("-{letter}"), if after.is_empty() { None } else { Some(after) })
            };
            if FLAGS.contains(&option.as_str()) && attached.is_none() && !word.open {
                continue;
            }
            let value = match attached {
                Some(attached) => Word { text: attached.to_owned(), ..word.clone() },
                None if word.open => return None,
                None => words.next()?.clone(),
            };
            if value.open && !value.is_unknown() {
                // The word may become several words, because it has braces or a pattern.
                return None;
            }
            match option.as_str() {
                option if COMMAND.contains(&option) => typescript.commands.push(value),
                option if FILES.contains(&option) => typescript.files.push(value),
                option if VALUES.contains(&option) => {}
                _ => return None,
            }
        }
        // Without any file, `script` writes to the file `typescript`.
        if typescript.files.is_empty() || file.is_some() {
            typescript.files.push(file.cloned().unwrap_or_else(|| Word::plain("typescript")));
        }
        Some(typescript)
    }
}

fn split_value(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((option, value)) => (option, Some(value)),
        None => (word, None),
    }
}

/// Options whose values are started as programs. A long option may be abbreviated. The value
/// follows `=` or is the next word.
const OPTIONS: &[(&[&str], &[&str])] = &[
    (&["git"], &["--upload-pack", "--receive-pack", "--exec", "--extcmd", "--open-files-in-pager"]),
    (
        &["tar", "bsdtar", "gtar"],
        &[
            "--to-command",
            "--use-compress-program",
            "--rsh-command",
            "--info-script",
            "--new-volume-script",
            "-I",
            "-F",
        ],
    ),
    (&["rsync"], &["--rsh", "--rsync-path", "-e"]),
    (&["scp", "sftp"], &["-S", "-D"]),
    (&["split"], &["--filter"]),
    (&["sort"], &["--compress-program"]),
    (&["zip"], &["-TT", "--unzip-command"]),
    (&["man"], &["-P", "--pager", "-H", "--html"]),
    (&["nodemon"], &["-x", "--exec"]),
    (&["rg"], &["--pre", "--hostname-bin"]),
    (&["less"], &["-+!"]),
    (&["perf"], &["--exec"]),
    (&["start-stop-daemon"], &["--exec", "--startas", "-x", "-a"]),
    (&["cargo-watch"], &["-s", "--shell"]),
];

const GIT_KEYS: &[&str] = &[
    "core.pager",
    "core.editor",
    "core.sshcommand",
    "core.askpass",
    "core.fsmonitor",
    "core.gitproxy",
    "core.alternaterefscommand",
    "credential.helper",
    "diff.external",
    "gpg.program",
    "gpg.ssh.defaultkeycommand",
    "interactive.difffilter",
    "sequence.editor",
    "uploadpack.packobjectshook",
    "web.browser",
];

/// The ends of further keys of git whose values are programs. Before the end is a name that the
/// user chooses, as in `diff.NAME.command`.
const GIT_ENDS: &[&str] = &[
    ".textconv",
    ".command",
    ".clean",
    ".smudge",
    ".process",
    ".driver",
    ".cmd",
    ".path",
    ".program",
    ".uploadpack",
    ".receivepack",
    ".helper",
];

/// Keys that make git read more settings or code.
const GIT_FILES: &[&str] = &[
    "core.hookspath",
    "core.attributesfile",
    "include.path",
    "init.templatedir",
    "protocol.ext.allow",
    "commit.template",
];

/// Returns the scripts and programs that a program starts because of its arguments. Wrappers are
/// handled in `wrappers`.
pub(super) fn started(name: &str, arguments: &[Word]) -> Starts {
    let mut starts = Starts::default();
    for (_, options) in OPTIONS.iter().filter(|(names, _)| names.contains(&name)) {
        for option in *options {
            add_values(option, arguments, &mut starts.scripts);
        }
    }
    match name {
        "git" => git(arguments, &mut starts),
        "tar" | "bsdtar" | "gtar" => {
            for word in arguments {
                if let Some((before, action)) = word.text.split_once("exec=")
                    && (before.contains("checkpoint") || before.is_empty())
                {
                    starts.scripts.push(Word { text: action.to_owned(), ..word.clone() });
                }
            }
        }
        "make" | "gmake" => {
            if arguments.iter().any(makes_evaluate) {
                starts.unclear = Some("the command lets `make` evaluate a string");
            }
            for pair in arguments.windows(2).filter(|pair| pair[0].text == "-f") {
                if pair[1].text == "-" || pair[1].text.starts_with("/dev/") {
                    starts.unclear = Some("the command lets `make` read rules from another source");
                }
            }
        }
        "ssh" | "scp" | "sftp" => {
            for word in arguments.iter().filter(|word| word.text.to_lowercase().contains("command"))
            {
                if let Some((_, value)) = word.text.split_once(['=', ' ']) {
                    starts.scripts.push(Word { text: value.to_owned(), ..word.clone() });
                }
            }
        }
        "at" | "batch" => {
            starts.unclear = Some("the command schedules commands from another source");
        }
        "crontab" if !arguments.iter().any(|word| word.text == "-l") => {
            starts.unclear = Some("the command schedules commands from another source");
        }
        "socat" => {
            for word in arguments {
                let lower = word.text.to_lowercase();
                let command_at = ["exec:", "system:", "shell:"]
                    .iter()
                    .find_map(|mark| lower.find(mark).map(|at| at + mark.len()));
                if let Some(command_at) = command_at
                    && let Some(text) = word.text.get(command_at..)
                {
                    starts.scripts.push(Word { text: text.to_owned(), ..word.clone() });
                }
            }
        }
        "ip" => {
            if let Some(at) = arguments.iter().position(|word| word.text == "exec") {
                starts.words.push(arguments.get(at + 2..).unwrap_or_default().to_vec());
            }
        }
        "sed" | "gsed" => {
            let scripts = arguments.iter().filter(|word| !word.text.starts_with("--"));
            if scripts.clone().any(|word| sed_starts(&word.text)) {
                starts.unclear = Some("the command lets `sed` start a program");
            }
        }
        // Editors read commands from their input. In restricted mode, they start no programs.
        "ed" | "ex"
            if !arguments
                .iter()
                .any(|word| ["-r", "--restricted"].contains(&word.text.as_str())) =>
        {
            starts.unclear =
                Some("the command starts an editor that reads commands from another source");
        }
        "less" | "more" => {
            // `+!command`, also after other options.
            if arguments
                .iter()
                .any(|word| word.text.starts_with('+') && word.text.contains(['!', '|', UNKNOWN]))
            {
                starts.unclear = Some("the command lets a pager start a program");
            }
        }
        // Commands such as `\!` and `.shell` start programs.
        "psql" | "mysql" | "mariadb" | "sqlite3" | "sqlite" | "duckdb" => {
            if arguments.iter().any(escapes_client) {
                starts.unclear = Some("the command lets a database client start a program");
            }
        }
        "gdb" | "lldb" | "rust-gdb" | "rust-lldb" => debugger(arguments, &mut starts),
        "vim" | "vi" | "nvim" | "view" => {
            if arguments.iter().any(|word| word.text.contains('!') || word.text.contains("system("))
            {
                starts.unclear = Some("the command lets an editor start a program");
            }
        }
        _ => {
            if let Some(code) = code(name, arguments)
                && (code.text == UNKNOWN.to_string() || starts_programs(name, &code.text))
            {
                starts.unclear = Some("the command runs code that may start other programs");
            }
        }
    }
    starts
}

fn makes_evaluate(word: &Word) -> bool {
    word.text.starts_with("--eval")
        || word.text.contains("$(shell")
        || assigned(&word.text).is_some_and(|(name, _)| name == "SHELL")
}

/// Checks whether a word makes the client of a database start a program.
fn escapes_client(word: &Word) -> bool {
    let text = word.text.to_lowercase();
    let commands = ["\\!", ".shell", ".system", "copy_program", "to program", "from program"];
    text.starts_with("system ") || commands.iter().any(|command| text.contains(command))
}

/// Adds the programs that the commands for a debugger start. Only a few commands of a debugger are
/// known to start no other program than the debugged program.
fn debugger(arguments: &[Word], starts: &mut Starts) {
    const OPTIONS: [&str; 12] = [
        "-ex",
        "--ex",
        "-iex",
        "--iex",
        "-eval-command",
        "--eval-command",
        "-o",
        "--one-line",
        "-O",
        "-S",
        "-x",
        "-k",
    ];
    const HARMLESS: [&str; 22] = [
        "bt",
        "backtrace",
        "thread",
        "info",
        "print",
        "p",
        "x",
        "list",
        "l",
        "frame",
        "f",
        "up",
        "down",
        "quit",
        "q",
        "set",
        "show",
        "run",
        "r",
        "continue",
        "c",
        "break",
    ];
    for (at, word) in arguments.iter().enumerate() {
        let (option, attached) = split_value(&word.text);
        if !OPTIONS.contains(&option) {
            continue;
        }
        let next = arguments.get(at + 1).map(|word| word.text.as_str());
        let command = attached.or(next).unwrap_or_default().trim_start();
        let script = command.strip_prefix("shell ").or_else(|| command.strip_prefix('!'));
        if let Some(script) = script
            && !script.contains(UNKNOWN)
        {
            starts.scripts.push(Word::plain(script));
            continue;
        }
        let name = command.split_whitespace().next().unwrap_or_default();
        if !HARMLESS.contains(&name) || command.contains(['$', '(', '|', UNKNOWN]) {
            starts.unclear =
                Some("the command gives a debugger a command that may start a program");
        }
    }
}

/// Checks whether a `sed` script starts a program, with the command `e` or the flag `e` of a
/// substitution.
fn sed_starts(script: &str) -> bool {
    let mut commands = script.split([';', '\n', '{', '}']).map(str::trim);
    commands.any(|command| is_sed_execution(command) || is_sed_substitution_with_e(command))
}

/// Checks whether a `sed` command is `e`. Numbers or a pattern before the `e` may select lines.
fn is_sed_execution(command: &str) -> bool {
    let after_numbers =
        command.trim_start_matches(|c: char| c.is_ascii_digit() || "$,!~+ ".contains(c));
    let action = match after_numbers.strip_prefix('/') {
        Some(pattern) => {
            let after_pattern = pattern.rsplit('/').next().unwrap_or_default();
            after_pattern.trim_start_matches(['!', ' '])
        }
        None => after_numbers,
    };
    action == "e" || action.starts_with("e ")
}

/// Checks whether a `sed` command is a substitution with the flag `e`, such as `s/a/b/ge`. The
/// delimiter before the flags may be any punctuation.
fn is_sed_substitution_with_e(command: &str) -> bool {
    let before_flags = command.trim_end_matches(|c: char| "gpiImMe0123456789".contains(c));
    let flags = &command[before_flags.len()..];
    let has_delimiter =
        before_flags.ends_with(|c: char| c.is_ascii_punctuation() && c != '-' && c != '.');
    let is_substitution = command.contains('s') && !command.starts_with('-');
    is_substitution && has_delimiter && flags.contains('e')
}

/// Adds the values of an option to `values`. A value is in the same word or in the next word. A
/// long option may be abbreviated.
fn add_values(option: &str, arguments: &[Word], values: &mut Vec<Word>) {
    for (index, word) in arguments.iter().enumerate() {
        let text = word.text.as_str();
        let next = arguments.get(index + 1);
        if option.starts_with("--") {
            let (name, attached) = split_value(text);
            // A shorter abbreviation may be another option.
            let is_abbreviation = name.len() > "--xx".len() && option.starts_with(name);
            if !is_abbreviation {
                continue;
            }
            match attached {
                Some(value) => values.push(Word { text: value.to_owned(), ..word.clone() }),
                None => values.extend(next.cloned()),
            }
        } else if let Some(attached) = text.strip_prefix(option) {
            if attached.is_empty() {
                values.extend(next.cloned());
            } else {
                values.push(Word { text: attached.to_owned(), ..word.clone() });
            }
        }
    }
}

/// Adds the programs that `git` starts because of its arguments.
fn git(arguments: &[Word], starts: &mut Starts) {
    for (index, word) in arguments.iter().enumerate() {
        let (key, attached) = split_value(&word.text);
        let value = match (attached, arguments.get(index + 1)) {
            (Some(text), _) => Some(Word { text: text.to_owned(), ..word.clone() }),
            (None, Some(next)) if !next.text.starts_with('-') => Some(next.clone()),
            (None, _) => None,
        };
        git_setting(&key.to_lowercase(), attached.is_some(), value, starts);
        // The address `ext::COMMAND` of a repository starts a command.
        if let Some((_, script)) = word.text.split_once("ext::") {
            starts.scripts.push(Word { text: script.to_owned(), ..word.clone() });
        }
    }
    git_subcommand(arguments, starts);
}

/// Adds the program that git starts because of a setting or an option, such as `core.editor=vim`.
/// `key` is in lower case. `is_attached` means that the value follows `=`.
fn git_setting(key: &str, is_attached: bool, value: Option<Word>, starts: &mut Starts) {
    if let Some(name) = key.strip_prefix("alias.") {
        if let Some(value) = value
            && !name.is_empty()
        {
            starts.scripts.push(git_alias_script(value));
        }
        return;
    }

    // The user chooses the middle part of a key such as `diff.NAME.command`.
    let has_free_name = key.matches('.').count() > 1;
    let is_program = GIT_KEYS.contains(&key)
        || (has_free_name && GIT_ENDS.iter().any(|end| key.ends_with(*end)));
    if is_program {
        if let Some(value) = value {
            let text = value.text.trim_start_matches('!').to_owned();
            starts.scripts.push(Word { text, ..value });
        }
        return;
    }

    let reads_settings =
        GIT_FILES.contains(&key) || key.starts_with("includeif.") || key == "--config-env";
    if reads_settings || (is_attached && key == "--exec-path") {
        starts.unclear = Some("the command makes `git` start an unknown program");
    }
}

/// Returns the script of a git alias. After `!`, an alias is a command of the shell.
fn git_alias_script(value: Word) -> Word {
    let text = match value.text.strip_prefix('!') {
        Some(script) => script.to_owned(),
        None => format!("git {}", value.text),
    };
    Word { text, ..value }
}

fn git_subcommand(arguments: &[Word], starts: &mut Starts) {
    let mut words = arguments.iter().enumerate();
    let command = loop {
        let Some((at, word)) = words.next() else { return };
        if ["-c", "-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env"]
            .contains(&word.text.as_str())
        {
            words.next();
        } else if !word.text.starts_with('-') {
            break at;
        }
    };
    let rest = &arguments[command + 1..];
    match arguments[command].text.as_str() {
        "rebase" | "difftool" => add_values("-x", rest, &mut starts.scripts),
        "clone" | "ls-remote" => add_values("-u", rest, &mut starts.scripts),
        "grep" => add_values("-O", rest, &mut starts.scripts),
        "bisect" if rest.first().is_some_and(|word| word.text == "run") => {
            starts.words.push(rest[1..].to_vec());
        }
        "submodule" => {
            if let Some(at) = rest.iter().position(|word| word.text == "foreach") {
                let script: Vec<&Word> =
                    rest[at + 1..].iter().filter(|word| !word.text.starts_with("--")).collect();
                if let Some(first) = script.first() {
                    let texts: Vec<&str> = script.iter().map(|word| word.text.as_str()).collect();
                    starts.scripts.push(Word { text: texts.join(" "), ..(*first).clone() });
                }
            }
        }
        "filter-branch" => {
            for pair in rest.windows(2) {
                if pair[0].text.ends_with("-filter") || pair[0].text == "--setup" {
                    starts.scripts.push(pair[1].clone());
                }
            }
        }
        _ => {}
    }
    if arguments[command].open {
        starts.unclear = Some("the `git` subcommand is only known at run time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sed_scripts_that_start_programs_are_recognised() {
        for script in
            ["1e sudo x", "e", "s/a/b/e", "s|a|b|ge", "s/a/b/;s/c/d/ge", "/x/e id", "$!e id"]
        {
            assert!(sed_starts(script), "{script}");
        }
        for script in [
            "s/a/e/",
            "s/the/be/g",
            "/me/p",
            "/the/d",
            "1,5p",
            "s/a/b/;/pre/d",
            "-e",
            "-n",
            "2q",
            "y/ae/ea/",
            "notes.txt",
        ] {
            assert!(!sed_starts(script), "{script}");
        }
    }
}
