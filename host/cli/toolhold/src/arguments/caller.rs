//! A caller of a server, as a person writes it on the command line.

use std::str::FromStr;

use toolhold_core::config::Who;

/// The value of `--as`: `ISSUER,SUBJECT`, and further groups.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Who);

#[derive(Debug, thiserror::Error)]
#[error("takes ISSUER,SUBJECT or ISSUER,SUBJECT,GROUP,…")]
pub(crate) struct CallerError;

impl FromStr for Caller {
    type Err = CallerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(',').map(str::to_owned);
        let (Some(issuer), Some(subject)) = (parts.next(), parts.next()) else {
            return Err(CallerError);
        };
        if issuer.is_empty() || subject.is_empty() {
            return Err(CallerError);
        }
        Ok(Self(Who { issuer, subject, groups: parts.collect(), client: None, token: None }))
    }
}
