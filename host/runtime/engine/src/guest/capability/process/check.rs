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

/// Most variables that a guest may add, and most bytes of one variable.
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

    /// Returns the reason why an earlier command's directory can't be used. The reason doesn't
    /// advise to grant the directory, since an untrusted program may have named it.
    fn without_advice(self) -> String {
        match self {
            Self::Denied(denial) => format!("{} is refused: {}", denial.action, denial.rule),
            Self::Invalid(reason) => reason,
            Self::Judged(failure) => failure.message,
        }
    }
}

impl Processes {
    /// Checks a guest's command and its options before anything is started.
    ///
    /// Also returns the command line if no grant names the program, because a gate must still judge
    /// this line. `may_judge`: whether a program without a grant may be judged.
    pub(super) fn check_command(
        &self,
        command: wit::Command,
        options: &wit::Options,
        may_judge: bool,
    ) -> Result<(Command, Option<String>), Refusal> {
        let (arguments, needs_judgement, shell) = match command {
            wit::Command::Program(words) => {
                let needs_judgement = self.check_program(&words, may_judge)?;
                (words, needs_judgement, None)
            }
            wit::Command::Shell(text) => {
                (self.check_shell(text)?, false, self.commands.shell.clone())
            }
        };
        let directory = match &shell {
            Some(shell) if options.directory.is_none() => self.session_directory(&**shell)?,
            _ => self.check_directory(options.directory.as_deref())?,
        };
        let environment = self.make_environment(shell.as_deref(), &options.environment)?;
        let line = if needs_judgement {
            Some(self.bash_line(&arguments, &directory, &options.environment))
        } else {
            None
        };

        let shared_network = self.commands.jobs.as_ref().and_then(|jobs| jobs.network().get());
        let command = Command {
            arguments,
            environment,
            directory,
            network: self.reaches_network(),
            shared_network,
            path_rules: self.path_rules.clone(),
            changes: self.commands.changes.clone(),
            output: self.commands.output.clone(),
            shell,
        };
        Ok((command, line))
    }

    /// Returns the command line with which `bash` would run a program in the same way.
    fn bash_line(
        &self,
        words: &[String],
        directory: &Path,
        variables: &[(String, String)],
    ) -> String {
        let mut line = String::new();
        if self.directory.as_deref() != Some(directory) {
            let change = ["cd", "--", &directory.to_string_lossy()].map(str::to_owned);
            line = format!("{} && ", toolhold_policy::command_line(&change));
        }
        for (name, value) in variables {
            line += &format!("{name}={} ", toolhold_policy::command_line([value]));
        }
        line + &toolhold_policy::command_line(words)
    }

    /// Returns the directory in which the last command of a shell session ended. If the directory
    /// is no longer usable, the session forgets it, and the command runs in the default directory.
    fn session_directory(&self, shell: &dyn ShellSession) -> Result<PathBuf, Refusal> {
        let Some(path) = shell.directory() else { return self.check_directory(None) };
        match self.check_last_directory(path) {
            Ok(directory) => Ok(directory),
            Err(refusal) => {
                shell.forget_directory(&refusal.without_advice());
                self.check_directory(None)
            }
        }
    }

    /// Returns the real path of a directory in which an earlier command ended.
    fn check_last_directory(&self, path: &str) -> Result<PathBuf, Refusal> {
        let directory = self.check_directory(Some(path))?;
        if directory.is_dir() {
            return Ok(directory);
        }
        Err(Refusal::invalid(format!("{} is no longer a directory", neutral_line(path))))
    }

    pub(super) fn reaches_network(&self) -> bool {
        self.commands.network || self.policy.network
    }

    /// Checks a program. Returns `true` if no grant names the program, so that its command line
    /// must be judged.
    fn check_program(&self, words: &[String], may_judge: bool) -> Result<bool, Refusal> {
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
        let (program, arguments) = match words.split_first() {
            Some((program, arguments)) if !program.is_empty() => (program, arguments),
            _ => return Err(Refusal::invalid("the command has no program")),
        };

        let policy = &self.policy;
        let line = toolhold_policy::command_line(words);
        if let Some(denial) = policy.programs.refusal(program, arguments, &line, &policy.table) {
            if may_judge && self.commands.approver.is_some() {
                return Ok(true);
            }
            return Err(Refusal::Denied(Box::new(denial)));
        }
        // A grant doesn't override the rules about commands.
        if let Some(denial) = policy.advisor.blocked(&line) {
            return Err(Refusal::Denied(Box::new(denial)));
        }
        Ok(false)
    }

    /// Checks the command of a shell. Returns the words of the program that runs the command.
    fn check_shell(&self, text: String) -> Result<Vec<String>, Refusal> {
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

    /// Checks whether the plugin may read a process's working directory, and returns its real path.
    /// `requested`: the directory, or `None` for the default directory.
    fn check_directory(&self, requested: Option<&str>) -> Result<PathBuf, Refusal> {
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
        if let Err(refusal) = rules.decide(&real, Kind::Directory, Access::Read) {
            let denial = rules.explain(refusal, &real, Access::Read);
            return Err(Refusal::Denied(Box::new(denial)));
        }
        if let Some(rules) = &self.path_rules
            && let Err(refusal) = rules.decide(&real, Access::Read)
        {
            let denial = rules.explain(refusal, &real, Access::Read);
            return Err(Refusal::Denied(Box::new(denial)));
        }
        Ok(real)
    }

    /// Makes the environment of a process. `added`: the variables that the guest adds.
    fn make_environment(
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
            check_variable(name, value)?;
            set_variable(&mut environment, name, value);
        }
        Ok(environment)
    }
}

/// Checks a variable that a guest adds to the environment of a process.
fn check_variable(name: &str, value: &str) -> Result<(), Refusal> {
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
    Ok(())
}

/// Sets a variable, and moves it to the end.
fn set_variable(environment: &mut Vec<(String, String)>, name: &str, value: &str) {
    environment.retain(|(other, _)| other != name);
    environment.push((name.to_owned(), value.to_owned()));
}
