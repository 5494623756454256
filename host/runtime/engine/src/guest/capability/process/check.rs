//! Checks a guest's command against the grants before it is started.

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

/// Most variables that a guest may add, and most bytes of a variable with its name.
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE: usize = 32 * 1024;

/// Most bytes of a command and of a variable's name in a message. Longer texts are cut.
const MAX_COMMAND_IN_MESSAGE: usize = 512;
const MAX_NAME_IN_MESSAGE: usize = 100;

pub(super) enum CheckError {
    Denied(Box<Denial>),
    Invalid(String),
    /// The rules for commands of `bash` refuse the program.
    Judged(Box<Failure>),
}

impl CheckError {
    /// Makes the denial of `action`. `place` is the place of `rule`. `remedy` tells how to allow
    /// the action.
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

    /// Describes why the directory of an earlier command can't be used. An untrusted program may
    /// have chosen this directory, so the text doesn't advise to grant it.
    fn without_advice(self) -> String {
        match self {
            Self::Denied(denial) => format!("{} is denied: {}", denial.action, denial.rule),
            Self::Invalid(reason) => reason,
            Self::Judged(failure) => failure.message,
        }
    }
}

impl Processes {
    /// Checks a command and its options.
    ///
    /// If no grant names the program and `may_judge` is true, also returns the command line. The
    /// rules for commands of `bash` must then judge this line.
    pub(super) fn check_command(
        &self,
        command: wit::Command,
        options: &wit::Options,
        may_judge: bool,
    ) -> Result<(Command, Option<String>), CheckError> {
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
            connections: None,
            authority: None,
            path_rules: self.path_rules.clone(),
            changes: self.commands.changes.clone(),
            output: self.commands.output.clone(),
            shell,
        };
        Ok((command, line))
    }

    /// Returns the command line with which `bash` runs a program in this directory and with these
    /// variables.
    fn bash_line(
        &self,
        words: &[String],
        directory: &Path,
        variables: &[(String, String)],
    ) -> String {
        let mut line = String::new();
        if self.directory.as_deref() != Some(directory) {
            let cd_command = ["cd", "--", &directory.to_string_lossy()].map(str::to_owned);
            line = format!("{} && ", toolhold_policy::command_line(&cd_command));
        }
        for (name, value) in variables {
            line += &format!("{name}={} ", toolhold_policy::command_line([value]));
        }
        line + &toolhold_policy::command_line(words)
    }

    /// Returns the directory in which the last command of a shell session ended. If this directory
    /// can't be used, forgets it and returns the default directory.
    fn session_directory(&self, shell: &dyn ShellSession) -> Result<PathBuf, CheckError> {
        let default_directory = None;
        let Some(path) = shell.directory() else {
            return self.check_directory(default_directory);
        };
        match self.check_last_directory(path) {
            Ok(directory) => Ok(directory),
            Err(error) => {
                shell.forget_directory(&error.without_advice());
                self.check_directory(default_directory)
            }
        }
    }

    fn check_last_directory(&self, path: &str) -> Result<PathBuf, CheckError> {
        let directory = self.check_directory(Some(path))?;
        if directory.is_dir() {
            return Ok(directory);
        }
        Err(CheckError::invalid(format!("{} is no longer a directory", neutral_line(path))))
    }

    pub(super) fn reaches_network(&self) -> bool {
        self.commands.network || self.policy.network
    }

    /// Checks a program. Returns true if no grant names the program and `may_judge` is true. The
    /// rules must then judge its command line.
    fn check_program(&self, words: &[String], may_judge: bool) -> Result<bool, CheckError> {
        // The kernel ends each word with a NUL byte.
        let size: usize = words.iter().map(|word| word.len() + 1).sum();
        if words.len() > MAX_WORDS || size > MAX_COMMAND {
            return Err(CheckError::invalid(format!(
                "the command has {} words and {size} bytes; the limits are {MAX_WORDS} and {MAX_COMMAND}",
                words.len()
            )));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(CheckError::invalid("the command contains a NUL byte"));
        }
        let (program, arguments) = match words.split_first() {
            Some((program, arguments)) if !program.is_empty() => (program, arguments),
            _ => return Err(CheckError::invalid("the command has no program")),
        };

        let policy = &self.policy;
        let line = toolhold_policy::command_line(words);
        if let Some(denial) = policy.programs.refusal(program, arguments, &line, &policy.table) {
            let needs_judgement = may_judge && self.commands.approver.is_some();
            if needs_judgement {
                return Ok(true);
            }
            return Err(CheckError::Denied(Box::new(denial)));
        }
        // Rules about commands also apply to granted programs.
        if let Some(denial) = policy.advisor.blocked(&line) {
            return Err(CheckError::Denied(Box::new(denial)));
        }
        Ok(false)
    }

    /// Returns the words of a shell process that runs the command.
    fn check_shell(&self, text: String) -> Result<Vec<String>, CheckError> {
        if !self.policy.shell {
            let remedy = format!(
                "To allow it, set `shell = true` in {}, which grants every command that the rules allow.",
                self.policy.table
            );
            return Err(CheckError::denied(
                format!("run {} in a shell", neutral_line(cut(&text, MAX_COMMAND_IN_MESSAGE))),
                "shell = false",
                "the default of a plugin",
                remedy,
            ));
        }
        if !self.commands.lines.contains(&text) {
            return Err(CheckError::denied(
                format!("run {} in a shell", neutral_line(cut(&text, MAX_COMMAND_IN_MESSAGE))),
                "a shell runs only commands that the call's arguments declare",
                "built in",
                "The tool's author has to declare the argument that holds the command as a subject of kind `command`.".to_owned(),
            ));
        }
        if text.contains('\0') {
            return Err(CheckError::invalid("the command contains a NUL byte"));
        }
        if text.len() > MAX_COMMAND {
            return Err(CheckError::invalid(format!(
                "the command is {} bytes; the limit is {MAX_COMMAND}",
                text.len()
            )));
        }
        Ok(vec!["bash".to_owned(), "-c".to_owned(), "--".to_owned(), text])
    }

    /// Checks that the plugin and the call may read the working directory, and returns its real
    /// path. `None` means the default directory.
    fn check_directory(&self, requested: Option<&str>) -> Result<PathBuf, CheckError> {
        let Some(directory) = requested.map(Path::new).or(self.directory.as_deref()) else {
            return Err(CheckError::denied(
                "start a program in the working directory".to_owned(),
                "`allowed_paths` of commands doesn't include the directory",
                "[tools.shell], or the plugin's own table",
                format!(
                    "To allow it, add the directory or \".\" to `allowed_paths` in {}.",
                    self.policy.table
                ),
            ));
        };
        if !directory.is_absolute() {
            return Err(CheckError::invalid("the working directory has to be an absolute path"));
        }
        let rules = self.policy.places.grants.rules();
        let real = toolhold_system::files::real_or_given(directory);
        if let Err(refusal) = rules.decide(&real, Kind::Directory, Access::Read) {
            let denial = rules.explain(refusal, &real, Access::Read);
            return Err(CheckError::Denied(Box::new(denial)));
        }
        if let Some(path_rules) = &self.path_rules
            && let Err(refusal) = path_rules.decide(&real, Access::Read)
        {
            let denial = path_rules.explain(refusal, &real, Access::Read);
            return Err(CheckError::Denied(Box::new(denial)));
        }
        Ok(real)
    }

    /// Makes the environment of a process: the variables of the policy, of the call, of the shell
    /// session, and the guest's variables `added`. A later variable replaces an earlier variable
    /// with the same name.
    fn make_environment(
        &self,
        shell: Option<&dyn ShellSession>,
        added: &[(String, String)],
    ) -> Result<Vec<(String, String)>, CheckError> {
        if added.len() > MAX_VARIABLES {
            return Err(CheckError::invalid(format!(
                "the command adds {} variables; the limit is {MAX_VARIABLES}",
                added.len()
            )));
        }
        let mut environment = self.policy.environment.clone();
        for (name, value) in &self.commands.variables {
            set_variable(&mut environment, name, value);
        }
        if let Some(shell) = shell {
            for (name, value) in &shell.variables() {
                set_variable(&mut environment, name, value);
            }
        }
        for (name, value) in added {
            check_variable(name, value)?;
            set_variable(&mut environment, name, value);
        }
        Ok(environment)
    }
}

fn check_variable(name: &str, value: &str) -> Result<(), CheckError> {
    let shown = neutral_line(cut(name, MAX_NAME_IN_MESSAGE));
    if !is_variable_name(name) || name.len() + value.len() > MAX_VARIABLE {
        return Err(CheckError::invalid(format!(
            "the variable `{shown}` can't be set: a name consists of letters, digits and `_`, \
             doesn't start with a digit, and has at most {MAX_VARIABLE} bytes together with the \
             value"
        )));
    }
    if value.contains('\0') {
        return Err(CheckError::invalid(format!("the value of {shown} contains a NUL byte")));
    }
    if is_code_loading(name) {
        return Err(CheckError::denied(
            format!("set {shown}"),
            "variables that make programs load code are blocked",
            "built in",
            "No configuration key can change this.".to_owned(),
        ));
    }
    // Redaction changes a value only if it contains a secret.
    if redaction::field(name, value, Keys::Text) != *value {
        return Err(CheckError::denied(
            format!("set {shown}"),
            "variables that look like credentials are blocked",
            "built in",
            format!(
                "To pass the variable on, name it in the configuration: `env = [\"{shown}\"]`."
            ),
        ));
    }
    Ok(())
}

/// Sets a variable, and moves it to the end.
fn set_variable(environment: &mut Vec<(String, String)>, name: &str, value: &str) {
    environment.retain(|(other, _)| other != name);
    environment.push((name.to_owned(), value.to_owned()));
}
