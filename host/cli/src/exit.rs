use berth_host::{Category, Failure};

/// How the command ended; the numbers stand in `berth --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// It worked.
    Success = 0,
    /// The tool failed.
    ToolFailure = 1,
    /// The command line is wrong, or the arguments don't fit the tool.
    Usage = 2,
    /// A rule refused it, or it needs a yes that nobody was asked for.
    Denied = 3,
    /// Berth itself failed.
    Host = 4,
}

impl Exit {
    /// How a call that failed ends.
    pub(crate) fn of(failure: &Failure) -> Self {
        match failure.category {
            Category::PolicyBlocked | Category::ConfirmationRequired => Self::Denied,
            Category::ToolNotFound | Category::InvalidParameters | Category::TypeMismatch => Self::Usage,
            Category::PermanentFailure
            | Category::Cancelled
            | Category::RateLimited
            | Category::ServerError
            | Category::NetworkError
            | Category::Timeout => Self::ToolFailure,
        }
    }

    /// The number.
    pub(crate) fn code(self) -> i32 {
        self as i32
    }
}
