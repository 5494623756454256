//! Analyses the text of a shell command: the programs that it starts, its risk, and its needs.
//!
//! The text is split into its simple commands, including commands that other programs would start.
//! Each command is analysed. If a part of a command is known only at run time, for example a
//! program in a variable, the command is unresolved and needs approval.
//!
//! The analysis isn't a security boundary, because the text doesn't show the actions of a program
//! or the content of the files that it reads. The sandbox limits both. The analysis decides which
//! commands need approval, and denies blocked commands that are written openly.

mod blocklist;
mod calculated;
mod carried;
mod code;
mod document;
mod expand;
mod family;
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
pub use risk::Risk;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use expand::{Program, Reading};
use grammar::Redirect;
use toolhold_contract::text::{cut, neutral_line};

/// The analysis of a command, for people and for decisions about what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandAnalysis {
    /// The simple commands in it, and the files that it writes to, at most 512. The order has no
    /// meaning.
    pub commands: Vec<SimpleCommand>,
    /// Why the command may do more than `commands` says.
    pub unresolved: Option<&'static str>,
    /// Whether another command uses the output of a command in it, as text or as a file: `$(…)`,
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

/// The explanation of one part of a command, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The risk of the part. `None` if the line only says that there is more.
    pub class: Option<Risk>,
    /// The command, and notes about it.
    pub text: String,
}

/// How many analyzed commands are remembered. A few are enough for calls at the same time.
const MAX_REMEMBERED: usize = 8;

/// The most commands that are explained one by one. People don't read more.
const MAX_LINES: usize = 32;

/// The most bytes of each command in an explanation.
const MAX_LINE_BYTES: usize = 160;

impl CommandAnalysis {
    /// Checks whether a part of it is known to need the network.
    pub fn needs_network(&self) -> bool {
        self.commands.iter().any(|simple| simple.needs_network)
    }

    /// Checks whether a part of it can't be undone.
    pub fn is_destructive(&self) -> bool {
        self.commands.iter().any(|simple| simple.destructive.is_some())
    }

    /// Returns the explanation for people, one line for each command. It is bounded and has no
    /// control characters.
    pub fn explain(&self) -> Vec<Explanation> {
        // If there are too many, the riskiest ones are shown, in their original order.
        let mut shown: Vec<(usize, &SimpleCommand)> = self.commands.iter().enumerate().collect();
        shown.sort_by_key(|(_, simple)| {
            std::cmp::Reverse((simple.class, simple.destructive.is_some()))
        });
        shown.truncate(MAX_LINES);
        shown.sort_by_key(|(at, _)| *at);
        let mut lines: Vec<Explanation> =
            shown.into_iter().map(|(_, simple)| explain(simple)).collect();
        if let Some(left) = self.commands.len().checked_sub(MAX_LINES + 1) {
            lines.push(Explanation { class: None, text: format!("and {} more", left + 1) });
        }
        if let Some(why) = self.unresolved {
            lines.push(Explanation { class: None, text: format!("and something unknown: {why}") });
        }
        lines
    }

    /// Returns the highest risk of its parts.
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

/// Analyzes a command. The time grows with the length of the text and is bounded: a text that is
/// too long or too deeply nested is unresolved.
pub fn analyze(text: &str) -> CommandAnalysis {
    Command::read(text).analysis()
}

/// The command that writes the output of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCommand {
    /// The command with one space between its words. It has no redirections, no variables, no
    /// wrappers (`sudo`, `env`, `timeout 10`) and no folder of its program.
    pub line: String,
    /// Whether no other command of the line writes output, or may write some.
    pub alone: bool,
}

/// Returns the command that writes the output of a command line: the last one. In a pipe, the last
/// one that does more than show its input, as `tail`, `head`, `cat`, `tee` and `less` do. Returns
/// `None` if it isn't known.
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
        // A word can't have a zero byte.
        Err(_) => word.replace('\0', ""),
    }
}

/// A command that was read.
#[derive(Debug, Default)]
pub struct Command {
    /// Each command in it and each file that it redirects to: as written, and also without quotes
    /// if that differs.
    pub texts: Vec<String>,
    /// The whole text.
    whole: String,
    programs: Vec<Program>,
    redirects: Vec<Redirect>,
    /// Why the command may do more than was found.
    pub unclear: Option<&'static str>,
    /// Whether it has one of the four forms that put the output of a command into another command.
    pub substitutes: bool,
    /// The command that writes the output of the text.
    last: Option<LastCommand>,
}

impl Command {
    /// Reads a command. The last results are remembered, because several gates and the question to
    /// a person use the same text.
    pub fn read(text: &str) -> Arc<Self> {
        static LAST: Mutex<VecDeque<(String, Arc<Command>)>> = Mutex::new(VecDeque::new());
        let remembered = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, command)) = remembered.iter().find(|(known, _)| known == text) {
            return Arc::clone(command);
        }
        // Other commands are read meanwhile.
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
        let bomb_reason = bomb.then_some("it is a fork bomb: a function in it starts itself twice");
        let unclear = unclear.or(bomb_reason);
        // Nothing was read of a text that is too long, so it isn't searched for words either.
        let whole = if programs.is_empty() { String::new() } else { text.to_owned() };
        let last_line = last.and_then(|(part, alone)| last::line(&part, alone));
        let last = last_line.map(|(line, alone)| LastCommand { line, alone });
        Self { texts, whole, programs, redirects, unclear, substitutes, last }
    }

    /// Returns each program in it as written, with its other spellings: rules about `git push` are
    /// about `/usr/bin/git -C . push` too.
    pub fn spellings(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.programs.iter().map(|program| (program.text.as_str(), program.spellings.as_slice()))
    }

    /// Returns the commands of git in it that aren't among the usual ones, and so may be aliases,
    /// each with its arguments.
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

    /// Returns the directories that it goes to, as it says them: by `cd`, or by an option such as
    /// `-C`.
    pub fn directories(&self) -> Vec<String> {
        started::folders(&self.programs)
    }

    /// Returns the paths of the files that it may start, such as scripts and Makefiles, as it says
    /// them. Not all of them exist.
    pub fn started_files(&self) -> Vec<String> {
        started::files(&self.programs)
    }

    /// Returns the highest risk of its parts, and the program or file with this risk.
    pub fn risk(&self) -> (Risk, String) {
        self.highest(risk::risk)
    }

    /// Returns the highest risk as [`risk`](Self::risk) does, for a command in a sandbox whose
    /// changes in files can be undone.
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
            // Of several parts with the same risk, the first one counts.
            if part.0 > highest.0 {
                highest = part;
            }
        }
        highest
    }

    /// Returns the first program in it that isn't in `only`. Commands that only change the shell
    /// itself don't count.
    pub fn beside(&self, only: &[String]) -> Option<&str> {
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

/// Checks whether a program is a built-in of the shell that starts nothing, and not a file of that
/// name.
fn is_built_in(program: &Program) -> bool {
    let first = program.text.split_whitespace().next().unwrap_or_default();
    risk::BUILT_IN.contains(&program.name.as_str()) && !first.contains('/')
}
