//! Where a rule is written, and the remedy that changes it there.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// The place of a rule, as text for people and as a kind. The kind decides which remedy helps: a
/// line in the user's own file can't change a rule in another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `[tools] in /home/u/.config/toolhold/toolhold.toml, line 3`.
    pub text: Cow<'static, str>,
    /// Kind of the place.
    pub kind: OriginKind,
}

/// Kind of the place of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginKind {
    /// Built in.
    Default(TablePlace),
    /// The user's own file.
    Own,
    /// The file of the working directory. Contains its path.
    Project(String),
    /// A file of the working directory that the user trusts. Contains its path and the user's own
    /// file.
    Trusted(String, ConfigFile),
    /// A ceiling. Contains its path.
    Ceiling(String),
    /// A flag of the command line, as written.
    Flag(String),
    /// An environment variable. Contains its name.
    Variable(String),
    /// The permissions at the time when a scheduled task was made. They limit the task.
    TaskBounds,
}

/// The path of the user's own file, where new keys are written. The file may not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile(Cow<'static, str>);

/// The place for new keys of a table: the user's own file, and the line of the table in this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePlace {
    /// The user's own file.
    pub file: ConfigFile,
    /// The line of the table. `None` if the file doesn't have the table.
    pub line: Option<usize>,
}

/// A table of the user's own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnTable {
    /// The name of the table, such as `tools.shell`.
    pub name: String,
    /// The place of the table.
    pub place: TablePlace,
}

/// A file in an unknown folder.
impl Default for ConfigFile {
    fn default() -> Self {
        Self(Cow::Borrowed("toolhold.toml"))
    }
}

impl From<&Path> for ConfigFile {
    fn from(path: &Path) -> Self {
        Self(path.display().to_string().into())
    }
}

impl fmt::Display for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl OwnTable {
    /// Returns an instruction to set a key that isn't set yet.
    pub fn lines(&self, line: &str) -> String {
        self.place.lines(&self.name, line)
    }
}

impl fmt::Display for OwnTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] of {}", self.name, self.place.file)
    }
}

impl TablePlace {
    /// Returns an instruction to set a key that isn't set yet. A file may have a table only once,
    /// so the line of an existing table is named.
    pub(crate) fn lines(&self, table: &str, line: &str) -> String {
        let file = &self.file;
        match self.line {
            Some(table_line) => {
                format!(
                    "write in [{table}], which is already in {file}, line {table_line}:\n{line}"
                )
            }
            None => format!("write in {file}:\n[{table}]\n{line}"),
        }
    }
}

impl Origin {
    /// Returns `own` if the user's own file can change the rule. Otherwise, returns a sentence
    /// about the file, flag or variable that can change the rule.
    pub fn remedy(&self, own: impl FnOnce() -> String) -> Cow<'static, str> {
        self.remedy_elsewhere().unwrap_or_else(own).into()
    }

    /// Returns the remedy that sets a key in the place where the key is set now. If the key has its
    /// default value, the remedy contains the table too. `goal` is the start of the sentence.
    pub(crate) fn remedy_to_set(&self, goal: &str, table: &str, line: &str) -> Cow<'static, str> {
        self.remedy(|| match &self.kind {
            OriginKind::Default(place) => format!("{goal}, {}", place.lines(table, line)),
            _ => format!("{goal}, set `{line}` in {}.", self.text),
        })
    }

    /// Returns the remedy that adds a rule to the user's own file. The rules of a trusted file and
    /// of the user's own file are one list, so a new rule in the user's own file is enough.
    pub(crate) fn remedy_to_add(&self, rule: &str) -> Cow<'static, str> {
        match &self.kind {
            OriginKind::Trusted(_, own) => {
                format!("To allow it, add a rule to {own}:\n{rule}").into()
            }
            _ => self.remedy(|| format!("To allow it, add a rule:\n{rule}")),
        }
    }

    /// Returns the remedy for a rule that the user's own file can't change. Returns `None` if the
    /// file can change the rule.
    pub(crate) fn remedy_elsewhere(&self) -> Option<String> {
        match &self.kind {
            OriginKind::Default(_) | OriginKind::Own => None,
            OriginKind::Project(path) => Some(format!(
                "To change that, change {path}; your own configuration can't override this file."
            )),
            OriginKind::Trusted(path, _) => Some(format!(
                "To change that, change {path}, and then run `toolhold trust` again; your own \
                 configuration can't override this file."
            )),
            OriginKind::Ceiling(path) => Some(format!(
                "Your configuration can't change this; ask whoever manages the ceiling {path}."
            )),
            OriginKind::Flag(text) => Some(format!("To change that, leave out `{text}`.")),
            OriginKind::Variable(name) => Some(format!("To change that, unset {name}.")),
            OriginKind::TaskBounds => Some(
                "A task keeps the permissions from its creation. To allow the action, create the \
                 task again under a configuration that allows it."
                    .to_owned(),
            ),
        }
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self { text: Cow::Borrowed("built in"), kind: OriginKind::Default(TablePlace::default()) }
    }
}

impl From<String> for Origin {
    fn from(text: String) -> Self {
        Self { text: text.into(), kind: OriginKind::Own }
    }
}

impl From<&'static str> for Origin {
    fn from(text: &'static str) -> Self {
        Self { text: text.into(), kind: OriginKind::Own }
    }
}

/// A configuration value, and where it is set.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where the value is set.
    pub place: Origin,
}

impl<T: Default> Default for Placed<T> {
    fn default() -> Self {
        Self { value: T::default(), place: Origin::default() }
    }
}
