//! The kinds of entries of the audit log.

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call that is about to run.
    Intent,
    /// The answer of a person.
    Approval,
    /// A command that a plugin chose during a call.
    Command,
    /// A request of a call.
    Egress,
    /// The outcome of a call.
    Outcome,
    /// An undo of a call.
    Rollback,
    /// A question of a tool's own.
    Inquiry,
    /// The beginning of a command in the background.
    JobBegin,
    /// The end of a command in the background.
    JobEnd,
    /// A request of Toolhold's own.
    Request,
    /// The first entry of a file.
    Begin,
    /// The last entry of a file.
    End,
    /// An irregularity that the writer has found in the log.
    Note,
}

impl Kind {
    /// Returns the word in the entry.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Approval => "approval",
            Self::Command => "command",
            Self::Egress => "egress",
            Self::Outcome => "outcome",
            Self::Rollback => "rollback",
            Self::Inquiry => "inquiry",
            Self::JobBegin => "job_begin",
            Self::JobEnd => "job_end",
            Self::Request => "request",
            Self::Begin => "begin",
            Self::End => "end",
            Self::Note => "note",
        }
    }
}
