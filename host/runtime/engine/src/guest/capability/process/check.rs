//! Checks a guest's command and its options against the grants, before anything is started.

use std::path::{Path, PathBuf};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Access, Denial, Failure, ShellSession};
use toolhold_policy::commands::{is_code_loading, is_variable_name};
use toolhold_policy::files::Kind;
use toolhold_redaction::{self as redaction, Keys};
use toolhold_system::process::Command;

use crate::guest::capability::bindings::toolhold::host::process as wit;
use crate::guest::capability::process::Processes;

/// Most words of a command, and most bytes of all words. The kernel's limits are not much higher.
const MAX_WORDS: usize = 4096;
const MAX_COMMAND: usize = 128 * 1024;

/// Most variables that a guest may add, and most bytes of one.
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE: usize = 32 * 1024;

/// The reason why a command isn't started.
pub(super) enum Refusal {
    Denied(Box<Denial>),
    Invalid(String),
    /// The program isn't allowed as a command of `bash`.
    Judged(Box<Failure>),
}

impl Refusal {
    pub(super) fn denied(
        action: String,
        rule: impl Into<String>,
        place: impl Into<String>,
        remedy: String,
    ) -> Self {
        Self::Denied(Box::new(Denial {
            capability: "process".to_owned(),
            action,
            rule: rule.into(),
            place: place.into(),
            remedy,
        }))
    }

    fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into())
    }

    /// The reason why an earlier command's directory can't be used. The reason doesn't advise to
    /// grant the directory, since a program may have named it.
    fn without_advice(self) -> String {
        match self {
            Self::Denied(denial) => format!("{} is refused: {}", denial.action, denial.rule),
            Self::Invalid(reason) => reason,
            Self::Judged(failure) => failure.message,
        }
    }
}

impl Processes {
    /// Checks a guest's command and its options. Nothing is started before all checks. Returns also
    /// the command line that is still to be judged. `may_judge`: whether a program that isn't
    /// granted may be.
    pub(super) fn command(
        &self,
        command: wit::Command,
        options: &wit::Options,
        may_judge: bool,
    ) -> Result<(Command, Option<String>), Refusal> {
        let (arguments, judged, shell) = match command {
            wit::Command::Program(words) => {
                let judged = self.program(&words, may_judge)?;
                (words, judged, None)
            }
            wit::Command::Shell(text) => (self.shell(text)?, false, self.commands.shell.clone()),
        };
        let carried = if options.directory.is_none() {
            shell.as_ref().and_then(|shell| Some((shell, shell.directory()?)))
        } else {
            None
        };
        let directory = match carried.map(|(shell, path)| (shell, self.carried_directory(path))) {
            Some((_, Ok(directory))) => directory,
            Some((shell, Err(refusal))) => {
                shell.forget_directory(&refusal.without_advice());
                self.directory(None)?
            }
            None => self.directory(options.directory.as_deref())?,
        };
        let environment = self.environment(shell.as_deref(), &options.environment)?;
        let line = judged.then(|| self.line(&arguments, &directory, &options.environment));
        let command = Command {
            arguments,
            environment,
            directory,
            network: self.reaches_network(),
            shared_network: self.commands.jobs.as_ref().and_then(|jobs| jobs.network().get()),
            path_rules: self.path_rules.clone(),
            changes: self.commands.changes.clone(),
            output: self.commands.output.clone(),
            shell,
        };
        Ok((command, line))
    }

    /// The command line with which `bash` would run a program like this.
    fn line(&self, words: &[String], directory: &Path, variables: &[(String, String)]) -> String {
        let mut line = String::new();
        if self.directory.as_deref() != Some(directory) {
            let words = ["cd", "--", &directory.to_string_lossy()].map(str::to_owned);
            line = format!("{} && ", toolhold_policy::command_line(&words));
        }
        for (name, value) in variables {
            line += &format!("{name}={} ", toolhold_policy::command_line([value]));
        }
        line + &toolhold_policy::command_line(words)
    }

    /// The real path of a directory in which an earlier command ended, or why it can't be used.
    fn carried_directory(&self, path: &str) -> Result<PathBuf, Refusal> {
        let directory = self.directory(Some(path))?;
        if directory.is_dir() {
            return Ok(directory);
        }
        Err(Refusal::invalid(format!("{} is no longer a directory", neutral_line(path))))
    }

    pub(super) fn reaches_network(&self) -> bool {
        self.commands.network || self.policy.network
    }

    /// Checks a program. Returns whether it is to be judged, since no grant names it.
    fn program(&self, words: &[String], may_judge: bool) -> Result<bool, Refusal> {
        let size: usize = words.iter().map(|word| word.len() + 1).sum();
        if words.len() > MAX_WORDS || size > MAX_COMMAND {
            return Err(Refusal::invalid(format!(
                "the command has {} words and {size} bytes; the limits are {MAX_WORDS} and {MAX_COMMAND}",
                words.len()
            )));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(Refusal::invalid("the command contains a NUL byte"));
        }
        let Some((program, arguments)) =
            words.split_first().filter(|(program, _)| !program.is_empty())
        else {
            return Err(Refusal::invalid("the command has no program"));
        };
        let line = toolhold_policy::command_line(words);
        if let Some(denial) =
            self.policy.programs.refusal(program, arguments, &line, &self.policy.table)
        {
            if may_judge && self.commands.approver.is_some() {
                return Ok(true);
            }
            return Err(Refusal::Denied(Box::new(denial)));
        }
        // A grant doesn't override the rules about commands.
        if let Some(denial) = self.policy.advisor.blocked(&line) {
            return Err(Refusal::Denied(Box::new(denial)));
        }
        Ok(false)
    }

    fn shell(&self, text: String) -> Result<Vec<String>, Refusal> {
        if !self.policy.shell {
            let remedy = format!(
                "To allow it, set `shell = true` in {}, which grants every command that the rules allow.",
                self.policy.table
            );
            return Err(Refusal::denied(
                format!("run {} in a shell", neutral_line(cut(&text, 512))),
                "shell = false",
                "the default of a plugin",
                remedy,
            ));
        }
        if !self.commands.lines.contains(&text) {
            return Err(Refusal::denied(
                format!("run {} in a shell", neutral_line(cut(&text, 512))),
                "a shell runs only the checked commands of its call",
                "built in",
                "The tool's author has to declare the argument that holds the command as a subject of kind `command`.".to_owned(),
            ));
        }
        if text.contains('\0') {
            return Err(Refusal::invalid("the command contains a NUL byte"));
        }
        if text.len() > MAX_COMMAND {
            return Err(Refusal::invalid(format!(
                "the command is {} bytes; the limit is {MAX_COMMAND}",
                text.len()
            )));
        }
        Ok(vec!["bash".to_owned(), "-c".to_owned(), "--".to_owned(), text])
    }

    /// The real path of the process's working directory, which the plugin has to be able to read.
    fn directory(&self, requested: Option<&str>) -> Result<PathBuf, Refusal> {
        let Some(directory) = requested.map(Path::new).or(self.directory.as_deref()) else {
            return Err(Refusal::denied(
                "start a program in the working directory".to_owned(),
                "`allowed_paths` of commands doesn't include it",
                "[tools.shell], or the plugin's own table",
                format!(
                    "To allow it, add the directory or \".\" to `allowed_paths` in {}.",
                    self.policy.table
                ),
            ));
        };
        if !directory.is_absolute() {
            return Err(Refusal::invalid("the working directory has to be an absolute path"));
        }
        let rules = self.policy.places.grants.rules();
        let real = toolhold_system::files::real_or_given(directory);
        rules.decide(&real, Kind::Directory, Access::Read).map_err(|refusal| {
            Refusal::Denied(Box::new(rules.explain(refusal, &real, Access::Read)))
        })?;
        if let Some(rules) = &self.path_rules {
            rules.decide(&real, Access::Read).map_err(|refusal| {
                Refusal::Denied(Box::new(rules.explain(refusal, &real, Access::Read)))
            })?;
        }
        Ok(real)
    }

    fn environment(
        &self,
        shell: Option<&dyn ShellSession>,
        added: &[(String, String)],
    ) -> Result<Vec<(String, String)>, Refusal> {
        if added.len() > MAX_VARIABLES {
            return Err(Refusal::invalid(format!(
                "{} variables are added; the limit is {MAX_VARIABLES}",
                added.len()
            )));
        }
        let mut environment = self.policy.environment.clone();
        for (name, value) in &self.commands.variables {
            set_variable(&mut environment, name, value);
        }
        for (name, value) in &shell.map(ShellSession::variables).unwrap_or_default() {
            set_variable(&mut environment, name, value);
        }
        for (name, value) in added {
            let shown = neutral_line(cut(name, 100));
            if !is_variable_name(name) || name.len() + value.len() > MAX_VARIABLE {
                return Err(Refusal::invalid(format!(
                    "the variable `{shown}` can't be set: its name has to be letters, digits and `_`, not begin with a digit, \
                     and have at most {MAX_VARIABLE} bytes with its value"
                )));
            }
            if value.contains('\0') {
                return Err(Refusal::invalid(format!("the value of {shown} contains a NUL byte")));
            }
            if is_code_loading(name) {
                return Err(Refusal::denied(
                    format!("set {shown}"),
                    "variables that make programs load code are blocked",
                    "built in",
                    "No configuration key can change this.".to_owned(),
                ));
            }
            if redaction::field(name, value, Keys::Text) != *value {
                return Err(Refusal::denied(
                    format!("set {shown}"),
                    "variables that look like credentials are blocked",
                    "built in",
                    format!("To pass it on, the operator has to name it: `env = [\"{shown}\"]`."),
                ));
            }
            set_variable(&mut environment, name, value);
        }
        Ok(environment)
    }
}

/// Sets a variable, which moves to the end.
fn set_variable(environment: &mut Vec<(String, String)>, name: &str, value: &str) {
    environment.retain(|(known, _)| known != name);
    environment.push((name.to_owned(), value.to_owned()));
}
