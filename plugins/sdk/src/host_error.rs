//! The error of a host function for a Rust plugin.

use std::fmt::{self, Display};

use crate::{Category, Failure};

/// Why a function of the host did nothing. `?` converts it to a [`Failure`] with the code
/// `INTERFACE-CODE`, such as `store-limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostError {
    /// The interface, such as `store`.
    pub interface: &'static str,
    /// `denied`, `invalid`, `not-found`, `limit`, `busy`, `unavailable` or `failed`. There may be
    /// more later.
    pub code: String,
    /// The wrong value, the fault, the limit and the remedy.
    pub message: String,
}

impl HostError {
    pub(crate) fn new(
        interface: &'static str,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { interface, code: code.into(), message: message.into() }
    }
}

impl Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HostError {}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        let category = match error.code.as_str() {
            "invalid" => Category::InvalidParameters,
            "busy" => Category::RateLimited,
            _ => Category::PermanentFailure,
        };
        Self::new(category, error.message).with_code(format!("{}-{}", error.interface, error.code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_says_whether_the_same_call_may_work_later() {
        let cases = [
            ("busy", Category::RateLimited),
            ("invalid", Category::InvalidParameters),
            ("limit", Category::PermanentFailure),
            ("a-later-code", Category::PermanentFailure),
        ];
        for (code, category) in cases {
            let failure = Failure::from(HostError::new("store", code, "why"));
            assert_eq!((failure.category, &*failure.message), (category, "why"), "{code}");
            assert_eq!(failure.code.as_deref(), Some(&*format!("store-{code}")));
        }
    }
}
