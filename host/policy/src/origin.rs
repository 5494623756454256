//! Where a rule stands, and so what undoes it there.

use std::borrow::Cow;

/// Where a rule stands: for people, and as far as it decides on what a remedy can say. A line in
/// the user's own file undoes no rule that stands anywhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `[tools] in /home/u/.config/berth/berth.toml, line 3`.
    pub text: Cow<'static, str>,
    /// What kind of place it is.
    pub kind: OriginKind,
}

/// What kind of place a rule stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginKind {
    /// Nowhere: it holds where nobody says anything else. Its table may stand in the user's own
    /// file all the same; then, where.
    Default(Option<String>),
    /// In the user's own file.
    Own,
    /// In the working directory's file, by its path.
    Project(String),
    /// In the working directory's file that the user trusts, by its path.
    Trusted(String),
    /// In a ceiling, by its path.
    Ceiling(String),
    /// On the command line, as it was written.
    Flag(String),
    /// In the environment, by the variable's name.
    Variable(String),
}

impl Origin {
    /// What undoes a rule: `own`, which is said of the user's own file, or else what has to be done
    /// elsewhere.
    pub fn remedy(&self, own: impl FnOnce() -> String) -> Cow<'static, str> {
        self.elsewhere().unwrap_or_else(own).into()
    }

    /// The lines that set a key of a table where nothing sets it. A table may stand in a file only
    /// once.
    pub(crate) fn lines(&self, table: &str, line: &str) -> String {
        match &self.kind {
            OriginKind::Default(Some(place)) => {
                format!("write in [{table}], which is already in {place}:\n{line}")
            }
            _ => format!("write in berth.toml:\n[{table}]\n{line}"),
        }
    }

    /// What has to be done about a rule that no line in the user's own file undoes.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        match &self.kind {
            OriginKind::Default(_) | OriginKind::Own => None,
            OriginKind::Project(path) => Some(format!(
                "To change that, change it in that file, {path}; nothing in your own configuration undoes it."
            )),
            OriginKind::Trusted(path) => Some(format!(
                "To change that, change it in that file, {path}, and then `berth trust` it again; nothing in your own configuration undoes it."
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

/// A value of the configuration, and where it stands.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub place: Origin,
}

impl<T: Default> Default for Placed<T> {
    fn default() -> Self {
        Self { value: T::default(), place: Origin::default() }
    }
}
