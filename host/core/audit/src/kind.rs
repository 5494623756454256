//! The kinds of entries of the audit log.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call that is about to run.
    Intent,
    /// An answer to a request for approval.
    Approval,
    /// A command that a plugin chose during a call.
    Command,
    /// A network request of a call.
    Egress,
    Outcome,
    Rollback,
    /// A tool's own question to the person.
    Inquiry,
    JobBegin,
    JobEnd,
    /// A network request of Toolhold itself.
    Request,
    /// The first entry of a file.
    Begin,
    /// The last entry of a file.
    End,
    /// An irregularity that the writer found in the log.
    Note,
}

impl Kind {
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
