//! The place of a rule, and the remedy for a rule in that place.

use std::borrow::Cow;

/// The place of a rule, as text for people and as a kind for remedies. A line in the user's own
/// file can't change a rule in another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `[tools] in /home/u/.config/berth/berth.toml, line 3`.
    pub text: Cow<'static, str>,
    /// Kind of the place.
    pub kind: OriginKind,
}

/// Kind of the place of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginKind {
    /// No place: the rule is a default. If the user's own file has the table of the rule, the place
    /// of that table.
    Default(Option<String>),
    /// The user's own file.
    Own,
    /// The file of the working directory, by its path.
    Project(String),
    /// The file of the working directory that the user trusts, by its path.
    Trusted(String),
    /// A ceiling, by its path.
    Ceiling(String),
    /// A flag of the command line, as it was written.
    Flag(String),
    /// An environment variable, by its name.
    Variable(String),
}

impl Origin {
    /// The remedy for a rule: `own` if the user's own file can change it, or else what has to be
    /// done in another place.
    pub fn remedy(&self, own: impl FnOnce() -> String) -> Cow<'static, str> {
        self.elsewhere().unwrap_or_else(own).into()
    }

    /// The lines that set a key that nothing sets yet. A file may have a table only once, so a
    /// table that is there already is named with its place.
    pub(crate) fn lines(&self, table: &str, line: &str) -> String {
        match &self.kind {
            OriginKind::Default(Some(place)) => {
                format!("write in [{table}], which is already in {place}:\n{line}")
            }
            _ => format!("write in berth.toml:\n[{table}]\n{line}"),
        }
    }

    /// The remedy for a rule that the user's own file can't change. `None` if it can.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        match &self.kind {
            OriginKind::Default(_) | OriginKind::Own => None,
            OriginKind::Project(path) => Some(format!(
                "To change that, change {path}; your own configuration can't change it."
            )),
            OriginKind::Trusted(path) => Some(format!(
                "To change that, change {path}, and then run `berth trust` again; your own configuration can't change it."
            )),
            OriginKind::Ceiling(path) => Some(format!(
                "Your configuration can't change this; ask whoever manages the ceiling {path}."
            )),
            OriginKind::Flag(text) => Some(format!("To change that, leave out `{text}`.")),
            OriginKind::Variable(name) => Some(format!("To change that, unset {name}.")),
        }
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self { text: Cow::Borrowed("built in"), kind: OriginKind::Default(None) }
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

/// A value of the configuration with its place.
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
