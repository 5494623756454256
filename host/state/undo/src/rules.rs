//! Rules of undo that tests turn off, to show that random cases fail without each rule.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A path is saved before it changes.
    Saved,
    /// A move is recorded.
    Moved,
    /// The owner is given temporary permissions.
    Permissions,
    /// The permissions of a path are restored.
    Modes,
    /// A restored name becomes a link to its file, if the file still exists.
    Names,
    /// A file with several names is overwritten in place.
    InPlace,
    /// Files in a cache are saved if no call has created them.
    Caches,
    /// On a full disk, the saved copy becomes the file.
    Room,
    /// A call doesn't change an object that a concurrent call moves.
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

    /// The environment variable with the name of the disabled rule.
    pub(crate) const OFF: &str = "TOOLHOLD_TEST_RULE_OFF";

    pub(crate) fn is_off_in_test(self) -> bool {
        std::env::var(Self::OFF).is_ok_and(|off| off == format!("{self:?}"))
    }
}

#[cfg(not(test))]
impl Rule {
    pub(crate) const fn is_off_in_test(self) -> bool {
        false
    }
}
