//! Decides which directory and which exported variables a command passes on to the next command of
//! the session.
//!
//! Each command writes a record of its state. A hostile command may write anything, so a record can
//! change only state that the next command line could set itself. The gates read this state as a
//! part of the next command line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Limits for the passed-on variables: their number, the bytes of one name and value, and the bytes
/// of all. A command that exceeds a limit passes nothing on.
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE: usize = 4096;
const MAX_TOTAL: usize = 16 * 1024;

/// The kernel's limit for paths.
const MAX_DIRECTORY: usize = 4096;

/// Variables that make a program load or run other code. Guests may not set them.
const CODE_LOADING: [&str; 22] = [
    "BASH_ENV",
    "CDPATH",
    "ENV",
    "GCONV_PATH",
    "GIT_ASKPASS",
    "GIT_CONFIG",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "IFS",
    "NODE_OPTIONS",
    "PAGER",
    "PATH",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "SHELLOPTS",
    "SSH_ASKPASS",
];
const CODE_LOADING_PREFIXES: [&str; 4] = ["LD_", "DYLD_", "BASH_FUNC_", "GIT_CONFIG_"];

/// Further variables that aren't passed on: variables that change how a shell reads a command,
/// variables that say where programs search for settings, and variables of the shell itself.
const NOT_CARRIED: [&str; 19] = [
    "BASHOPTS",
    "COLUMNS",
    "GLOBIGNORE",
    "HOME",
    "LINES",
    "LOGNAME",
    "OLDPWD",
    "PERL5DB",
    "PERL5LIB",
    "POSIXLY_CORRECT",
    "PS0",
    "PS4",
    "PWD",
    "RUBYLIB",
    "SHELL",
    "SHLVL",
    "TMOUT",
    "USER",
    "_",
];
const NOT_CARRIED_PREFIXES: [&str; 3] = ["BASH_", "GIT_", "PYTHON"];
const NOT_CARRIED_ENDINGS: [&str; 2] = ["PAGER", "_WRAPPER"];

/// Checks whether a variable makes programs load or run other code.
pub fn is_code_loading(name: &str) -> bool {
    CODE_LOADING.contains(&name)
        || CODE_LOADING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Checks whether a text is a valid name of a variable.
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Checks whether a variable is passed on to the next command.
pub fn is_carried(name: &str) -> bool {
    if !is_variable_name(name) || is_code_loading(name) {
        return false;
    }
    let is_excluded = NOT_CARRIED.contains(&name)
        || NOT_CARRIED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || NOT_CARRIED_ENDINGS.iter().any(|ending| name.ends_with(ending));
    !is_excluded
}

/// The state that the next command of a session starts with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellState {
    /// The working directory. `None` means the default directory.
    pub directory: Option<String>,
    /// The exported variables.
    pub variables: BTreeMap<String, String>,
}

/// Exported variables that exceed a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the command exports {count} variables with {total} bytes, the largest with {largest} bytes; \
     the limits are {MAX_VARIABLES}, {MAX_TOTAL} and {MAX_VARIABLE}"
)]
pub struct CarriedLimitError {
    count: usize,
    total: usize,
    largest: usize,
}

impl ShellState {
    /// Returns the command, preceded by a line that exports the passed-on variables. The gates
    /// decide on this text, so that they take the variables into account.
    pub fn in_front_of(&self, command: &str) -> String {
        if self.variables.is_empty() {
            return command.to_owned();
        }
        let mut assignments = String::new();
        for (name, value) in &self.variables {
            let quoted = value.replace('\'', r"'\''");
            let _ = write!(assignments, " {name}='{quoted}'");
        }
        format!("export{assignments}\n{command}")
    }

    /// Applies the changes of a command. Other state stays, because another command of the session
    /// may have changed it in the meantime.
    ///
    /// # Errors
    ///
    /// Returns an error if the new state exceeds a limit. The state is then unchanged.
    pub fn apply(&mut self, changes: CarriedChanges) -> Result<(), CarriedLimitError> {
        let mut next = self.clone();
        next.variables.extend(changes.set);
        next.variables.retain(|name, _| !changes.removed.contains(name));
        if let Some(directory) = changes.directory {
            next.directory = Some(directory);
        }

        let count = next.variables.len();
        let mut total = 0;
        let mut largest = 0;
        for (name, value) in &next.variables {
            let size = name.len() + value.len();
            total += size;
            largest = largest.max(size);
        }
        if count > MAX_VARIABLES || total > MAX_TOTAL || largest > MAX_VARIABLE {
            return Err(CarriedLimitError { count, total, largest });
        }
        *self = next;
        Ok(())
    }
}

/// The changes of a command to the state that it started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarriedChanges {
    directory: Option<String>,
    set: BTreeMap<String, String>,
    removed: Vec<String>,
}

/// The state that a command started with.
#[derive(Clone, Copy, Debug)]
pub struct CommandStart<'a> {
    /// The working directory of the command.
    pub directory: &'a str,
    /// The whole environment of the command.
    pub environment: &'a [(String, String)],
    /// The state that was passed on to the command.
    pub carried: &'a ShellState,
}

const BEGIN: &[u8] = b"toolhold-state";
const END: &[u8] = b"end";

impl CarriedChanges {
    /// Reads the record of a command. Each field ends in a NUL byte: `toolhold-state`, the
    /// directory, all exported variables as `NAME=value`, and `end`. Leaves out variables that
    /// aren't valid UTF-8 or aren't passed on.
    ///
    /// # Errors
    ///
    /// Returns an error if the record isn't valid.
    pub fn from_record(record: &[u8], start: CommandStart<'_>) -> Result<Self, &'static str> {
        let whole = record.strip_suffix(b"\0").ok_or("the record isn't complete")?;
        let fields: Vec<&[u8]> = whole.split(|byte| *byte == 0).collect();
        let [BEGIN, directory, variables @ .., END] = fields.as_slice() else {
            return Err("the record isn't complete");
        };
        let directory =
            std::str::from_utf8(directory).map_err(|_| "the record's directory isn't UTF-8")?;
        let is_directory = directory.starts_with('/')
            && directory.len() <= MAX_DIRECTORY
            && !directory.contains(char::is_control);
        if !is_directory {
            return Err("the record's directory isn't an absolute path without control characters");
        }
        let mut exported = BTreeMap::new();
        for variable in variables {
            let sign = variable
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or("the record has a variable without `=`")?;
            let Ok(name) = std::str::from_utf8(&variable[..sign]) else { continue };
            let Ok(value) = std::str::from_utf8(&variable[sign + 1..]) else { continue };
            if is_carried(name) && exported.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err("the record contains the same variable twice");
            }
        }
        let removed = start
            .carried
            .variables
            .keys()
            .filter(|name| !exported.contains_key(*name))
            .cloned()
            .collect();
        exported.retain(|name, value| value_of(start.environment, name) != Some(value));
        let directory = (directory != start.directory).then(|| directory.to_owned());
        Ok(Self { directory, set: exported, removed })
    }
}

fn value_of<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let entry = environment.iter().rev().find(|(known, _)| known == name);
    entry.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(directory: &str, variables: &[&str]) -> Vec<u8> {
        let fields = ["toolhold-state", directory].into_iter().chain(variables.iter().copied());
        fields.chain(["end"]).flat_map(|field| [field.as_bytes(), b"\0"].concat()).collect()
    }

    fn changes(record: &[u8], carried: &ShellState) -> Result<CarriedChanges, &'static str> {
        let mut environment = vec![("LANG".to_owned(), "C".to_owned())];
        environment.extend(carried.variables.clone());
        let environment = environment.as_slice();
        CarriedChanges::from_record(
            record,
            CommandStart { directory: "/work", environment, carried },
        )
    }

    #[test]
    fn record_changes_what_the_command_changed() {
        let mut state = ShellState::default();
        let first = record("/work/sub", &["LANG=C", "A=1=2\n3", "B=", "PATH=/evil"]);
        state.apply(changes(&first, &state).expect("it is one")).expect("it fits");
        assert_eq!(state.directory.as_deref(), Some("/work/sub"));
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
        };
        assert_eq!(state.variables, of(&[("A", "1=2\n3"), ("B", "")]));
        // Two commands that began with the same state.
        let began = state.clone();
        let one = changes(&record("/work", &["A=2", "B=", "LANG=C"]), &began).expect("it is one");
        let other = changes(&record("/work/other", &["A=1=2\n3", "C=4"]), &began);
        state.apply(one).expect("it fits");
        state.apply(other.expect("it is one")).expect("it fits");
        assert_eq!(state.variables, of(&[("A", "2"), ("C", "4")]));
        assert_eq!(state.directory.as_deref(), Some("/work/other"));
    }

    #[test]
    fn forged_record_is_refused_as_a_whole() {
        let whole = record("/work", &["A=1"]);
        for end in 0..whole.len() {
            assert!(changes(&whole[..end], &ShellState::default()).is_err(), "{end}");
        }
        let twice = [record("/work", &["A=1"]), record("/", &["A=2"])].concat();
        let long = format!("/{}", "x".repeat(MAX_DIRECTORY));
        for record in [
            twice,
            record("work", &[]),
            record("", &[]),
            record("/work\n/other", &[]),
            record(&long, &[]),
            record("/work", &["A"]),
            record("/work", &["A=1", "A=2"]),
            b"toolhold-state\0/\xff\0end\0".to_vec(),
            b"\0".to_vec(),
        ] {
            assert!(changes(&record, &ShellState::default()).is_err(), "{record:?}");
        }
        let odd = b"toolhold-state\0/work\0A=\xff\0\xff=1\0=x\0a-b=2\0B=3\0end\0";
        let odd = changes(odd, &ShellState::default()).expect("the others are left out");
        assert_eq!(odd.set.into_iter().collect::<Vec<_>>(), [("B".to_owned(), "3".to_owned())]);
    }

    #[test]
    fn variables_are_bounded_in_number_and_bytes() {
        let mut state = ShellState::default();
        let kept = record("/work/sub", &["A=1"]);
        state.apply(changes(&kept, &state).expect("it is one")).expect("it fits");
        let many: Vec<String> = (0..MAX_VARIABLES).map(|number| format!("V{number}=1")).collect();
        let many: Vec<&str> = ["A=1"].into_iter().chain(many.iter().map(String::as_str)).collect();
        let long = format!("B={}", "x".repeat(MAX_VARIABLE));
        let part = "x".repeat(MAX_VARIABLE / 2);
        let parts: Vec<String> = (0..9).map(|number| format!("P{number}={part}")).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        for variables in [many, vec!["A=1", &long], parts] {
            let before = state.clone();
            let changed = changes(&record("/work/x", &variables), &state).expect("it is one");
            assert!(state.apply(changed).is_err());
            assert_eq!(state, before);
        }
    }

    #[test]
    fn variables_that_steer_programs_are_not_carried() {
        let never = "PATH LD_PRELOAD LD_X BASH_ENV BASH_X BASH_FUNC_x ENV IFS PS4 GIT_DIR GIT_SSH \
            PAGER MANPAGER SYSTEMD_PAGER NODE_OPTIONS PYTHONPATH PYTHON RUSTC_WRAPPER HOME PWD _ \
            SHELLOPTS BASHOPTS SHELL POSIXLY_CORRECT 1A A-B";
        for name in never.split_whitespace() {
            assert!(!is_carried(name), "{name}");
        }
        for name in CODE_LOADING {
            assert!(!is_carried(name), "{name}");
        }
        for name in ["CC", "RUST_LOG", "NODE_ENV", "_A", "PATHS", "EDITOR"] {
            assert!(is_carried(name), "{name}");
        }
    }

    #[test]
    fn gates_read_what_is_carried_as_part_of_the_command() {
        let of = |name: &str, value: &str| ShellState {
            variables: [(name.to_owned(), value.to_owned())].into(),
            ..ShellState::default()
        };
        assert_eq!(ShellState::default().in_front_of("make"), "make");
        assert_eq!(of("A", "it's\n$x").in_front_of("make"), "export A='it'\\''s\n$x'\nmake");
        let programs = |text: &str| -> Vec<String> {
            let analysis = crate::analyze(text);
            analysis.commands.into_iter().map(|simple| simple.program).collect()
        };
        assert_eq!(programs(&of("A", "x; rm -rf y").in_front_of("make")), ["export", "make"]);
        let edits = of("EDITOR", "sudo x").in_front_of("cd a && make");
        assert_eq!(crate::analyze(&edits).class(), crate::Risk::High, "{edits}");
    }
}
