//! Pauses requests to a server that didn't answer in time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The least duration of a failed request after which requests pause. A request that fails
/// immediately costs nothing, so the next request is sent without a pause.
const SLOW: Duration = Duration::from_secs(1);

/// The duration of a pause.
const REST: Duration = Duration::from_secs(60);

/// The pause of a server. During the pause, the server gets no requests.
#[derive(Debug, Default)]
pub(crate) struct Rest(Mutex<Until>);

impl Rest {
    /// Checks whether the server may be asked.
    ///
    /// # Errors
    ///
    /// Returns an error if the server failed before and its pause hasn't ended.
    pub(crate) fn check(&self) -> Result<(), RestError> {
        self.lock().check(Instant::now())
    }

    /// Begins a request.
    pub(crate) fn begin(&self) -> Asked<'_> {
        let unanswered = Some("it didn't answer in time".to_owned());
        Asked { rest: self, began: Instant::now(), unanswered }
    }

    fn lock(&self) -> MutexGuard<'_, Until> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server that isn't asked yet.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("it failed before; the next attempt is in {seconds} s: {failure}")]
pub(crate) struct RestError {
    /// Seconds until the pause ends.
    seconds: f64,
    /// The reason why the server didn't answer before.
    failure: String,
}

/// A running request. Its caller drops this value if the request takes too long.
pub(crate) struct Asked<'r> {
    rest: &'r Rest,
    began: Instant,
    /// The reason why there is no answer. A refusal also is an answer.
    unanswered: Option<String>,
}

impl Asked<'_> {
    /// Ends the request. `unanswered`: the reason why there is no answer.
    pub(crate) fn end(mut self, unanswered: Option<String>) {
        self.unanswered = unanswered;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(why) = &self.unanswered {
            self.rest.lock().take_failure(self.began, Instant::now(), why);
        }
    }
}

/// The end of a pause, and the reason for the pause.
#[derive(Debug, Default)]
struct Until(Option<(Instant, String)>);

impl Until {
    fn check(&self, now: Instant) -> Result<(), RestError> {
        let Some((until, failure)) = &self.0 else { return Ok(()) };
        match until.saturating_duration_since(now).as_secs_f64().ceil() {
            0.0 => Ok(()),
            seconds => Err(RestError { seconds, failure: failure.clone() }),
        }
    }

    /// Takes note of a request that failed.
    fn take_failure(&mut self, began: Instant, now: Instant, why: &str) {
        if now.saturating_duration_since(began) >= SLOW {
            self.0 = Some((now + REST, why.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_that_lets_its_callers_wait_rests() {
        let now = Instant::now();
        let mut rest = Until::default();
        assert_eq!(rest.check(now), Ok(()));
        rest.take_failure(now, now + SLOW / 2, "refused");
        assert_eq!(rest.check(now + SLOW), Ok(()), "a quick failure costs nothing");
        let failed = now + SLOW;
        rest.take_failure(now, failed, "no answer");
        let why = rest.check(failed + REST / 2).unwrap_err().to_string();
        assert_eq!(why, "it failed before; the next attempt is in 30 s: no answer");
        assert!(rest.check(failed + REST - Duration::from_millis(1)).is_err());
        assert_eq!(rest.check(failed + REST), Ok(()));
        // What was asked then and fails too, rests anew.
        rest.take_failure(failed + REST, failed + REST + SLOW, "again");
        assert!(rest.check(failed + REST + SLOW * 2).is_err());
    }
}
