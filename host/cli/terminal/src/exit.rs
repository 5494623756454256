//! The exit codes of `toolhold`.

use toolhold_core::{Category, Failure};

/// An exit code. `toolhold --help` lists all exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Success.
    Success,
    /// The tool failed.
    ToolFailure,
    /// The command line is wrong, or arguments don't match the tool.
    Usage,
    /// A rule denied the call, or the call needs approval and nobody was asked.
    Denied,
    /// Toolhold itself failed.
    Host,
    /// A limit of a task was reached.
    Budget,
    /// The exit code of the command that the call ran.
    Command(u8),
    /// Ctrl-C ended the command.
    Interrupted,
}

impl Exit {
    /// Returns the exit code for a failed call.
    pub fn for_failure(failure: &Failure) -> Self {
        match failure.category {
            Category::PolicyBlocked | Category::ConfirmationRequired => Self::Denied,
            // A denial means that the user's own limit was reached. If there is no denial, another
            // server refused the request.
            Category::RateLimited if failure.denial.is_some() => Self::Denied,
            Category::PermanentFailure if failure.is_of_host() => Self::Host,
            Category::ToolNotFound | Category::InvalidParameters | Category::TypeMismatch => {
                Self::Usage
            }
            Category::Cancelled => Self::Interrupted,
            Category::PermanentFailure
            | Category::RateLimited
            | Category::ServerError
            | Category::NetworkError
            | Category::Timeout => Self::ToolFailure,
        }
    }

    /// Returns the exit code as a number.
    pub fn code(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::ToolFailure => 1,
            Self::Usage => 2,
            Self::Denied => 3,
            Self::Host => 4,
            Self::Budget => 5,
            Self::Command(code) => code.into(),
            // As in shells: 128 plus the number of the signal.
            Self::Interrupted => 130,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_failures_and_mistakes_have_their_exit_codes() {
        let check = |category, expected: i32| {
            assert_eq!(
                Exit::for_failure(&Failure::new(category, "")).code(),
                expected,
                "{category:?}"
            );
        };
        check(Category::PermanentFailure, 1);
        check(Category::Timeout, 1);
        check(Category::Cancelled, 130);
        check(Category::ToolNotFound, 2);
        check(Category::TypeMismatch, 2);
        check(Category::PolicyBlocked, 3);
        check(Category::ConfirmationRequired, 3);
        check(Category::RateLimited, 1);
        for code in ["audit", "host"] {
            assert_eq!(
                Exit::for_failure(&Failure::new(Category::PermanentFailure, "").with_code(code)),
                Exit::Host,
                "{code}"
            );
            assert_eq!(
                Exit::for_failure(&Failure::new(Category::Timeout, "").with_code(code)),
                Exit::ToolFailure,
                "{code}"
            );
        }
        assert_eq!(
            Exit::for_failure(&Failure::new(Category::PermanentFailure, "").with_code("crash")),
            Exit::ToolFailure
        );
    }
}
