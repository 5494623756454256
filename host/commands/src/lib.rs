//! What a shell command would do, as far as its text tells.
//!
//! It is taken apart into the commands that it is made of, those that other programs would start
//! for it included, and each is looked at. What can't be told before it runs (a program in a
//! variable, say) is unresolved, and asks.
//!
//! This is no wall. What a program does that is started, and what stands in the files that it
//! reads, no text tells; what holds it is the sandbox that it runs in. This says what a person is
//! asked, and keeps what is blocked from being written down in so many words.

mod blocklist;
mod calculated;
mod code;
mod document;
mod expand;
mod grammar;
mod inert;
mod last;
mod programs;
mod risk;
mod variables;
mod word;
mod wrappers;

pub use blocklist::{Blocked, Blocklist, DEFAULT_BLOCKED};
pub use risk::Risk;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::text::{cut, neutral_line};
use expand::{Program, Reading};
use grammar::Redirect;

/// A command, taken apart for people and for who has to say what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandAnalysis {
    /// The simple commands in it, and the files that it writes to, in no order that matters. At
    /// most 512.
    pub commands: Vec<SimpleCommand>,
    /// Why more may happen than these tell.
    pub unresolved: Option<&'static str>,
    /// Whether the output of a command in it is part of another one, or is handed to it as a file:
    /// `$(…)`, backticks, `<(…)`, `>(…)`.
    pub substitutes: bool,
}

/// A simple command: a program and its arguments, or a file that is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleCommand {
    /// As it is written.
    pub text: String,
    /// The program's name, in small letters and without its folder. Empty for a file that is
    /// written to.
    pub program: String,
    /// How much it may break.
    pub class: Risk,
    /// What can't be undone of it.
    pub destructive: Option<&'static str>,
    /// Whether it is known to need the network.
    pub needs_network: bool,
}

/// What a person is told of a part of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// How much it may break; None where it says that there is more.
    pub class: Option<Risk>,
    /// The command, and what has to be known of it.
    pub text: String,
}

/// Commands that are remembered: a few calls that are decided on at the same time.
const REMEMBERED: usize = 8;

/// Commands that a person is told of one by one. Nobody reads more.
const MAX_LINES: usize = 32;

/// Bytes of each that are shown.
const MAX_TOLD: usize = 160;

impl CommandAnalysis {
    /// Whether something in it is known to need the network.
    pub fn needs_network(&self) -> bool {
        self.commands.iter().any(|simple| simple.needs_network)
    }

    /// Whether something in it can't be undone.
    pub fn is_destructive(&self) -> bool {
        self.commands.iter().any(|simple| simple.destructive.is_some())
    }

    /// What a person is told of it, a line for each command: bounded, and with nothing in it that
    /// steers what shows it.
    pub fn explain(&self) -> Vec<Explanation> {
        let line = |simple: &SimpleCommand| {
            let more = simple
                .needs_network
                .then_some("needs the network")
                .into_iter()
                .chain(simple.destructive);
            let more = more.collect::<Vec<_>>().join(", ");
            let mut text = neutral_line(cut(&simple.text, MAX_TOLD));
            if simple.text.len() > MAX_TOLD {
                text.push('…');
            }
            if !more.is_empty() {
                text = format!("{text} ({more})");
            }
            Explanation { class: Some(simple.class), text }
        };
        // Where there are more than anybody reads, what matters most is among those that are shown,
        // and all in their order.
        let mut shown: Vec<(usize, &SimpleCommand)> = self.commands.iter().enumerate().collect();
        shown.sort_by_key(|(_, simple)| {
            std::cmp::Reverse((simple.class, simple.destructive.is_some()))
        });
        shown.truncate(MAX_LINES);
        shown.sort_by_key(|(at, _)| *at);
        let mut lines: Vec<Explanation> =
            shown.into_iter().map(|(_, simple)| line(simple)).collect();
        if let Some(left) = self.commands.len().checked_sub(MAX_LINES + 1) {
            lines.push(Explanation { class: None, text: format!("and {} more", left + 1) });
        }
        if let Some(why) = self.unresolved {
            lines.push(Explanation { class: None, text: format!("and something unknown: {why}") });
        }
        lines
    }

    /// The highest class of what is in it.
    pub fn class(&self) -> Risk {
        self.commands.iter().map(|simple| simple.class).max().unwrap_or_default()
    }
}

/// Looks into a command. It takes time that grows with the text's length, and never much: what is
/// too long or too deep is unresolved.
pub fn analyze(text: &str) -> CommandAnalysis {
    Command::read(text).analysis()
}

/// The command whose output the output of a command line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCommand {
    /// The command, without its redirections and variables, what only starts it (`sudo`, `env`,
    /// `timeout 10`) and the folder of its program. Its words stand one space apart.
    pub line: String,
    /// Whether no other command of the line is known to write something, or may.
    pub alone: bool,
}

/// The command whose output the output of a command line is, as far as one can be told: the last
/// one, of a pipe the last but for what only shows what it gets (`tail`, `head`, `cat`, `tee`,
/// `less`).
pub fn last_command(text: &str) -> Option<LastCommand> {
    Command::read(text).last.clone()
}

/// The command line that runs a program with arguments, each quoted where that is needed.
pub fn command_line<'w>(words: impl IntoIterator<Item = &'w String>) -> String {
    let quote = |word: &'w String| {
        shlex::try_quote(word).map_or_else(|_| word.replace('\0', ""), |quoted| quoted.into_owned())
    };
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A command that was looked into.
#[derive(Debug, Default)]
pub struct Command {
    /// Each command in it and each file that it redirects to, as they are written and, where that
    /// differs, without their quotes.
    pub texts: Vec<String>,
    /// The text that was looked into.
    whole: String,
    programs: Vec<Program>,
    redirects: Vec<Redirect>,
    /// Why more may happen than that.
    pub unclear: Option<&'static str>,
    /// Whether one of the four forms stands in it that put a command's output into another command.
    pub substitutes: bool,
    /// The command whose output the text's output is.
    last: Option<LastCommand>,
}

impl Command {
    /// Looks into a command. Several gates do so with the same text, and those who ask a person:
    /// what was found last is remembered.
    pub fn read(text: &str) -> Arc<Self> {
        static LAST: Mutex<VecDeque<(String, Arc<Command>)>> = Mutex::new(VecDeque::new());
        let known = || LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, command)) = known().iter().find(|(known, _)| known == text) {
            return Arc::clone(command);
        }
        let command = Arc::new(Self::parse(text));
        let mut known = known();
        known.truncate(REMEMBERED - 1);
        known.push_front((text.to_owned(), Arc::clone(&command)));
        command
    }

    fn parse(text: &str) -> Self {
        let Reading { programs, redirects, texts, unclear, substitutes, bomb, last, .. } =
            Reading::expand(text);
        let bomb = bomb.then_some("it starts itself again and again");
        // A text that is too long holds nothing else that is known.
        let whole = if programs.is_empty() { String::new() } else { text.to_owned() };
        let last = last
            .and_then(|(part, alone)| last::line(&part, alone))
            .map(|(line, alone)| LastCommand { line, alone });
        Self { texts, whole, programs, redirects, unclear: unclear.or(bomb), substitutes, last }
    }

    /// The highest risk of what it would do, and the program or file that brings it.
    pub fn risk(&self) -> (Risk, String) {
        let programs = self
            .programs
            .iter()
            .map(|program| (risk::risk(program, &self.whole), program.name.clone()));
        let files = self
            .redirects
            .iter()
            .map(|file| (risk::risk_of_writing(file), format!("> {}", file.target.text)));
        // Of several, the first.
        programs.chain(files).fold((Risk::Low, String::new()), |highest, next| {
            if next.0 > highest.0 { next } else { highest }
        })
    }

    /// The first program in it that is none of `only`. What a shell does by itself counts as
    /// nothing.
    pub fn beside(&self, only: &[String]) -> Option<&str> {
        let allowed = |name: &str| only.iter().any(|one| one.eq_ignore_ascii_case(name));
        let mut programs = self.programs.iter().filter(|program| program.certain);
        programs
            .find(|program| !allowed(&program.name) && !is_built_in(program))
            .map(|program| program.name.as_str())
    }

    fn analysis(&self) -> CommandAnalysis {
        let simple = |program: &Program| SimpleCommand {
            text: program.text.clone(),
            program: program.name.clone(),
            class: risk::risk(program, &self.whole),
            destructive: risk::destroys(program, &self.whole),
            needs_network: risk::needs_network(program),
        };
        let file = |redirect: &Redirect| {
            let needs_network = risk::is_socket(&redirect.target.text);
            (redirect.writes || needs_network).then(|| SimpleCommand {
                text: format!(
                    "{} {}",
                    if redirect.writes { ">" } else { "<" },
                    redirect.target.raw
                ),
                program: String::new(),
                class: risk::risk_of_writing(redirect),
                destructive: risk::overwrites(redirect),
                needs_network,
            })
        };
        let commands = self
            .programs
            .iter()
            .map(simple)
            .chain(self.redirects.iter().filter_map(file))
            .collect();
        CommandAnalysis { commands, unresolved: self.unclear, substitutes: self.substitutes }
    }
}

/// Whether it is a word of the shell's own that starts nothing, and no file of that name.
fn is_built_in(program: &Program) -> bool {
    let first = program.text.split_whitespace().next().unwrap_or_default();
    risk::BUILT_IN.contains(&program.name.as_str()) && !first.contains('/')
}
