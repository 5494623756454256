//! The place of a rule, and the remedy for a rule in that place.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// The place of a rule, as text for people and as a kind for remedies. A line in the user's own
/// file can't change a rule in another place.
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
    /// No place, because the rule is a default.
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
    /// The limits of a task. These are the permissions of the configuration when the task was made.
    TaskBounds,
}

/// The user's own file, or the path for a new one. New keys are written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile(Cow<'static, str>);

/// The place for the keys of a table: the user's own file, and the line of the table in it, if the
/// file has the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePlace {
    /// The file.
    pub file: ConfigFile,
    /// The line.
    pub line: Option<usize>,
}

/// A table of the user's own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnTable {
    /// The dotted name of the key.
    pub name: String,
    /// The place of the key.
    pub place: TablePlace,
}

/// A file whose folder isn't known.
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
    /// Asks to write the lines that set a key that nothing sets yet.
    pub fn lines(&self, line: &str) -> String {
        self.place.lines(&self.name, line)
    }
}

/// `[tools.shell] of /home/u/.config/toolhold/toolhold.toml`.
impl fmt::Display for OwnTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] of {}", self.name, self.place.file)
    }
}

impl TablePlace {
    /// Returns the lines that set a key for the first time. A file may have a table only once, so
    /// an existing table is named with its place.
    pub(crate) fn lines(&self, table: &str, line: &str) -> String {
        let file = &self.file;
        match self.line {
            Some(at) => {
                format!("write in [{table}], which is already in {file}, line {at}:\n{line}")
            }
            None => format!("write in {file}:\n[{table}]\n{line}"),
        }
    }
}

impl Origin {
    /// Returns the remedy for a rule. If the user's own file can change the rule, the remedy is
    /// `own`. Otherwise the remedy is about another place.
    pub fn remedy(&self, own: impl FnOnce() -> String) -> Cow<'static, str> {
        self.elsewhere().unwrap_or_else(own).into()
    }

    /// Returns the remedy that sets a key, in the place of its rule. For a default, the remedy
    /// contains the table. `goal` is the start of the sentence.
    pub(crate) fn remedy_to_set(&self, goal: &str, table: &str, line: &str) -> Cow<'static, str> {
        self.remedy(|| match &self.kind {
            OriginKind::Default(place) => format!("{goal}, {}", place.lines(table, line)),
            _ => format!("{goal}, set `{line}` in {}.", self.text),
        })
    }

    /// Returns the remedy that adds a rule to the user's own file. The rules of this file and of a
    /// trusted file are one list.
    pub(crate) fn remedy_to_add(&self, rule: &str) -> Cow<'static, str> {
        match &self.kind {
            OriginKind::Trusted(_, own) => {
                format!("To allow it, add a rule to {own}:\n{rule}").into()
            }
            _ => self.remedy(|| format!("To allow it, add a rule:\n{rule}")),
        }
    }

    /// Returns the remedy for a rule that the user's own file can't change. Returns `None` if the
    /// file can change it.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        match &self.kind {
            OriginKind::Default(_) | OriginKind::Own => None,
            OriginKind::Project(path) => Some(format!(
                "To change that, change {path}; your own configuration can't change it."
            )),
            OriginKind::Trusted(path, _) => Some(format!(
                "To change that, change {path}, and then run `toolhold trust` again; your own configuration can't change it."
            )),
            OriginKind::Ceiling(path) => Some(format!(
                "Your configuration can't change this; ask whoever manages the ceiling {path}."
            )),
            OriginKind::Flag(text) => Some(format!("To change that, leave out `{text}`.")),
            OriginKind::Variable(name) => Some(format!("To change that, unset {name}.")),
            OriginKind::TaskBounds => Some(
                "A task can never do more than what was allowed when it was made. To allow it, make the task anew, under a configuration that allows it.".to_owned(),
            ),
        }
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self { text: Cow::Borrowed("built in"), kind: OriginKind::Default(TablePlace::default()) }
    }
}

/// A place in the user's own file.
impl From<String> for Origin {
    fn from(text: String) -> Self {
        Self { text: text.into(), kind: OriginKind::Own }
    }
}

/// A place in the user's own file.
impl From<&'static str> for Origin {
    fn from(text: &'static str) -> Self {
        Self { text: text.into(), kind: OriginKind::Own }
    }
}

/// A configuration value with its place.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// The place of the value.
    pub place: Origin,
}

impl<T: Default> Default for Placed<T> {
    fn default() -> Self {
        Self { value: T::default(), place: Origin::default() }
    }
}
