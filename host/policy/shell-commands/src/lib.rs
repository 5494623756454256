//! Analyses the text of a shell command: the programs that it starts, its risk, and its needs.
//!
//! The text is split into simple commands, including commands that other programs would start. If a
//! part of the text is known only at run time, such as a program in a variable, the command is
//! unresolved and needs approval.
//!
//! The analysis isn't a security boundary: a text doesn't show what a program does, or what its
//! files contain. The sandbox limits both. The analysis decides which commands need approval, and
//! denies blocked commands that are written openly.

mod blocklist;
mod calculated;
mod carried;
mod code;
mod document;
mod expand;
mod family;
mod flags;
mod grammar;
mod inert;
mod last;
mod network;
mod options;
mod programs;
mod risk;
mod started;
mod variables;
mod word;
mod wrappers;

pub use blocklist::{Blocked, Blocklist, DEFAULT_BLOCKED};
pub use carried::{
    CarriedChanges, CarriedLimitError, CommandStart, ShellState, is_carried, is_code_loading,
    is_variable_name,
};
pub use family::command_family;
pub use flags::FlagWords;
pub use risk::Risk;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use expand::{Program, Reading};
use grammar::Redirect;
use toolhold_contract::text::{cut, neutral_line};

/// The analysis of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandAnalysis {
    /// The simple commands, and the files that are written to. There are at most 512, in no useful
    /// order.
    pub commands: Vec<SimpleCommand>,
    /// The reason why the command may do more than `commands` says.
    pub unresolved: Option<&'static str>,
    /// Whether another command uses the output of a command, as text or as a file: `$(…)`,
    /// backticks, `<(…)`, `>(…)`.
    pub substitutes: bool,
}

/// A simple command: a program and its arguments, or a file that is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleCommand {
    /// The text of the command, as written.
    pub text: String,
    /// The name of the program in lower case, without its folder. Empty for a file that is written
    /// to.
    pub program: String,
    /// The risk of the command.
    pub class: Risk,
    /// The effect of the command that can't be undone.
    pub destructive: Option<&'static str>,
    /// Whether the command is known to need the network.
    pub needs_network: bool,
}

/// One line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The risk of the command. `None` if the line isn't about one command.
    pub class: Option<Risk>,
    /// The command, and notes about the command.
    pub text: String,
}

/// The maximum number of analysed commands to remember. A few are enough, because a command is
/// usually read again only by the other gates of the same call.
const MAX_REMEMBERED: usize = 8;

/// The maximum number of commands to explain. Of further commands, only the number is shown.
const MAX_LINES: usize = 32;

/// The maximum bytes of a command in an explanation. A longer command is cut.
const MAX_LINE_BYTES: usize = 160;

impl CommandAnalysis {
    /// Checks whether a command is known to need the network.
    pub fn needs_network(&self) -> bool {
        self.commands.iter().any(|simple| simple.needs_network)
    }

    /// Checks whether a command has an effect that can't be undone.
    pub fn is_destructive(&self) -> bool {
        self.commands.iter().any(|simple| simple.destructive.is_some())
    }

    /// Returns an explanation for people, with one line for each command and without control
    /// characters. If there are too many commands, explains the commands of the highest risk.
    pub fn explain(&self) -> Vec<Explanation> {
        // Select the commands of the highest risk, and then restore their original order.
        let mut shown: Vec<(usize, &SimpleCommand)> = self.commands.iter().enumerate().collect();
        shown.sort_by_key(|(_, simple)| {
            std::cmp::Reverse((simple.class, simple.destructive.is_some()))
        });
        shown.truncate(MAX_LINES);
        shown.sort_by_key(|(index, _)| *index);
        let mut lines: Vec<Explanation> =
            shown.into_iter().map(|(_, simple)| explain(simple)).collect();
        let left_out = self.commands.len().saturating_sub(MAX_LINES);
        if left_out > 0 {
            lines.push(Explanation { class: None, text: format!("and {left_out} more") });
        }
        if let Some(why) = self.unresolved {
            lines.push(Explanation { class: None, text: format!("and an unknown part: {why}") });
        }
        lines
    }

    /// Returns the highest risk of all commands.
    pub fn class(&self) -> Risk {
        self.commands.iter().map(|simple| simple.class).max().unwrap_or_default()
    }
}

fn explain(simple: &SimpleCommand) -> Explanation {
    let mut notes = Vec::new();
    if simple.needs_network {
        notes.push("needs the network");
    }
    notes.extend(simple.destructive);

    let mut text = neutral_line(cut(&simple.text, MAX_LINE_BYTES));
    if simple.text.len() > MAX_LINE_BYTES {
        text.push('…');
    }
    if !notes.is_empty() {
        text = format!("{text} ({})", notes.join(", "));
    }
    Explanation { class: Some(simple.class), text }
}

/// Analyses a command. A text that is too long or too deeply nested is unresolved.
pub fn analyze(text: &str) -> CommandAnalysis {
    Command::read(text).analysis()
}

/// The command that writes the output of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCommand {
    /// The command with one space between its words. Redirections, variables, wrappers (`sudo`,
    /// `env`, `timeout 10`) and the folder of the program are removed.
    pub line: String,
    /// Whether it is certain that no other command of the line writes output.
    pub alone: bool,
}

/// Returns the command that writes the output of a command line: the last command, or in a pipe the
/// last command that does more than show its input. For example, `tail`, `head`, `cat`, `tee` and
/// `less` only show their input. Returns `None` if the command isn't known.
pub fn last_command(text: &str) -> Option<LastCommand> {
    Command::read(text).last.clone()
}

/// Returns the command line that runs a program with arguments. Words are quoted if necessary.
pub fn command_line<'w>(words: impl IntoIterator<Item = &'w String>) -> String {
    words.into_iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    match shlex::try_quote(word) {
        Ok(quoted) => quoted.into_owned(),
        // An argument of a program can't contain a NUL byte, so there is no way to quote it.
        Err(_) => word.replace('\0', ""),
    }
}

/// A command whose text was analysed.
#[derive(Debug, Default)]
pub struct Command {
    /// Each simple command, and each file of a redirection, as written. If the text without quotes
    /// differs, that text is also listed.
    pub texts: Vec<String>,
    whole: String,
    programs: Vec<Program>,
    redirects: Vec<Redirect>,
    /// The reason why the command may do more than was found.
    pub unclear: Option<&'static str>,
    /// Whether another command uses the output of a command, as text or as a file.
    pub substitutes: bool,
    last: Option<LastCommand>,
}

impl Command {
    /// Reads a command. The last results are remembered, because several gates read the same text.
    pub fn read(text: &str) -> Arc<Self> {
        static LAST: Mutex<VecDeque<(String, Arc<Command>)>> = Mutex::new(VecDeque::new());
        let remembered = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, command)) = remembered.iter().find(|(known, _)| known == text) {
            return Arc::clone(command);
        }
        // The parsing must not hold the lock, because other calls would wait.
        drop(remembered);
        let command = Arc::new(Self::parse(text));
        let mut remembered = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.truncate(MAX_REMEMBERED - 1);
        remembered.push_front((text.to_owned(), Arc::clone(&command)));
        command
    }

    fn parse(text: &str) -> Self {
        let Reading { programs, redirects, texts, unclear, substitutes, bomb, last, .. } =
            Reading::expand(text);
        let bomb_reason =
            bomb.then_some("the command is a fork bomb: a function starts itself twice");
        let unclear = unclear.or(bomb_reason);
        // `whole` is only used for the risks of programs, so a text without programs isn't kept. It
        // may be very long.
        let whole = if programs.is_empty() { String::new() } else { text.to_owned() };
        let last_line = last.and_then(|(part, alone)| last::line(&part, alone));
        let last = last_line.map(|(line, alone)| LastCommand { line, alone });
        Self { texts, whole, programs, redirects, unclear, substitutes, last }
    }

    /// Returns each program as written, and its other spellings. Because of these, a rule about
    /// `git push` also applies to `/usr/bin/git -C . push`.
    pub fn spellings(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.programs.iter().map(|program| (program.text.as_str(), program.spellings.as_slice()))
    }

    /// Returns each program as written, and the flags and words of the program and of its other
    /// spellings. Because of these, a rule about `rm -rf` also applies to `rm -fr`.
    pub fn flag_words(&self) -> impl Iterator<Item = (&str, &[FlagWords])> {
        self.programs.iter().map(|program| (program.text.as_str(), program.flag_words.as_slice()))
    }

    /// Returns each git subcommand that may be an alias, because it isn't one of git's usual
    /// commands, with its arguments.
    pub fn git_commands(&self) -> impl Iterator<Item = (String, String)> {
        let programs = self.programs.iter().filter(|program| program.name == "git");
        let texts = programs
            .flat_map(|program| program.spellings.iter().chain(std::iter::once(&program.text)));
        texts.filter_map(|text| {
            let after_git = text.strip_prefix("git ")?;
            let (name, arguments) = after_git.split_once(' ').unwrap_or((after_git, ""));
            let may_be_alias = !name.starts_with('-') && !options::GIT_COMMANDS.contains(&name);
            may_be_alias.then(|| (name.to_owned(), arguments.to_owned()))
        })
    }

    /// Returns the directories to which the command changes, as written: with `cd`, or with an
    /// option such as `-C`.
    pub fn directories(&self) -> Vec<String> {
        started::folders(&self.programs)
    }

    /// Returns paths, as written, of files that the command may start, such as scripts and
    /// Makefiles. Some of them may not exist.
    pub fn started_files(&self) -> Vec<String> {
        started::files(&self.programs)
    }

    /// Returns the highest risk, and the program or file with this risk.
    pub fn risk(&self) -> (Risk, String) {
        self.highest(risk::risk)
    }

    /// Returns the highest [`risk`](Self::risk) in a sandbox whose file changes can be undone.
    pub fn risk_if_undoable(&self) -> (Risk, String) {
        self.highest(risk::risk_if_undoable)
    }

    fn highest(&self, risk: impl Fn(&Program, &str) -> Risk) -> (Risk, String) {
        let programs =
            self.programs.iter().map(|program| (risk(program, &self.whole), program.name.clone()));
        let files = self.redirects.iter().map(|file| {
            (risk::risk_of_writing(file), format!("{} {}", file.sign(), file.target.text))
        });
        let mut highest = (Risk::Low, String::new());
        for part in programs.chain(files) {
            if part.0 > highest.0 {
                highest = part;
            }
        }
        highest
    }

    /// Returns the first program that isn't in `only`. Builtins that only change the shell itself
    /// are ignored.
    pub fn first_unlisted(&self, only: &[String]) -> Option<&str> {
        for program in self.programs.iter().filter(|program| program.certain) {
            let is_allowed = only.iter().any(|name| name.eq_ignore_ascii_case(&program.name));
            if !is_allowed && !is_built_in(program) {
                return Some(&program.name);
            }
        }
        None
    }

    fn analysis(&self) -> CommandAnalysis {
        let mut commands = Vec::new();
        for program in &self.programs {
            commands.push(SimpleCommand {
                text: program.text.clone(),
                program: program.name.clone(),
                class: risk::risk(program, &self.whole),
                destructive: risk::destroys(program, &self.whole),
                needs_network: network::needs_network(program),
            });
        }
        for redirect in &self.redirects {
            let needs_network = network::is_socket(&redirect.target.text);
            if redirect.writes || needs_network {
                commands.push(SimpleCommand {
                    text: format!("{} {}", redirect.sign(), redirect.target.raw),
                    program: String::new(),
                    class: risk::risk_of_writing(redirect),
                    destructive: risk::overwrites(redirect),
                    needs_network,
                });
            }
        }
        CommandAnalysis { commands, unresolved: self.unclear, substitutes: self.substitutes }
    }
}

/// Checks whether a program is a builtin that starts nothing. A program that is written as a path
/// is a file, even if it has the name of a builtin.
fn is_built_in(program: &Program) -> bool {
    let first = program.text.split_whitespace().next().unwrap_or_default();
    risk::BUILT_IN.contains(&program.name.as_str()) && !first.contains('/')
}
