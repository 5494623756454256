//! Rules of undo that the tests disable one by one. The random cases must detect each missing rule.

/// A rule of undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A path is saved before it changes.
    Saved,
    /// A move is noted.
    Moved,
    /// An owner is given permissions for a time.
    Permissions,
    /// The permissions of a path are restored.
    Modes,
    /// A restored name of a file that still exists becomes a link to this file again.
    Names,
    /// A file with several names is written over.
    InPlace,
    /// Files in a cache are saved if no call has made them.
    Caches,
    /// On a full disk, the saved copy becomes the file.
    Room,
    /// A call doesn't change an object that another call moves at the same time.
    Alone,
}

#[cfg(test)]
impl Rule {
    pub(crate) const ALL: [Self; 9] = [
        Self::Saved,
        Self::Moved,
        Self::Permissions,
        Self::Modes,
        Self::Names,
        Self::InPlace,
        Self::Caches,
        Self::Room,
        Self::Alone,
    ];

    /// The variable that names the rule that is off in this process.
    pub(crate) const OFF: &str = "TOOLHOLD_TEST_RULE_OFF";

    pub(crate) fn is_off(self) -> bool {
        std::env::var(Self::OFF).is_ok_and(|off| off == format!("{self:?}"))
    }
}

#[cfg(not(test))]
impl Rule {
    pub(crate) const fn is_off(self) -> bool {
        false
    }
}
