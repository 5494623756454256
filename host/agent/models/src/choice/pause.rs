//! Pauses requests to a server that didn't answer in time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request that fails faster causes no pause.
const SLOW: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_secs(60);

/// The pause of a server. During a pause, requests fail at once.
#[derive(Debug, Default)]
pub(crate) struct ServerPause(Mutex<Until>);

impl ServerPause {
    /// Fails if the server is in a pause.
    pub(crate) fn check(&self) -> Result<(), PauseError> {
        self.lock().check(Instant::now())
    }

    pub(crate) fn begin(&self) -> Asked<'_> {
        let unanswered = Some("the server didn't answer in time".to_owned());
        Asked { pause: self, began: Instant::now(), unanswered }
    }

    fn lock(&self) -> MutexGuard<'_, Until> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error during a pause.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the server failed before; the next attempt is in {seconds} s: {failure}")]
pub(crate) struct PauseError {
    seconds: f64,
    failure: String,
}

/// A running request. If the caller drops this value at a time limit, the request had no answer.
pub(crate) struct Asked<'r> {
    pause: &'r ServerPause,
    began: Instant,
    /// The reason why there is no answer. A refusal by the server is an answer.
    unanswered: Option<String>,
}

impl Asked<'_> {
    /// Ends the request. `unanswered` is the reason why there is no answer, or `None` if there is
    /// one.
    pub(crate) fn end(mut self, unanswered: Option<String>) {
        self.unanswered = unanswered;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(why) = &self.unanswered {
            self.pause.lock().take_failure(self.began, Instant::now(), why);
        }
    }
}

/// The end of a pause and its reason.
#[derive(Debug, Default)]
struct Until(Option<(Instant, String)>);

impl Until {
    fn check(&self, now: Instant) -> Result<(), PauseError> {
        let Some((until, failure)) = &self.0 else { return Ok(()) };
        match until.saturating_duration_since(now).as_secs_f64().ceil() {
            0.0 => Ok(()),
            seconds => Err(PauseError { seconds, failure: failure.clone() }),
        }
    }

    fn take_failure(&mut self, began: Instant, now: Instant, why: &str) {
        if now.saturating_duration_since(began) >= SLOW {
            self.0 = Some((now + PAUSE, why.to_owned()));
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
        let why = rest.check(failed + PAUSE / 2).unwrap_err().to_string();
        assert_eq!(why, "the server failed before; the next attempt is in 30 s: no answer");
        assert!(rest.check(failed + PAUSE - Duration::from_millis(1)).is_err());
        assert_eq!(rest.check(failed + PAUSE), Ok(()));
        // What was asked then and fails too, rests anew.
        rest.take_failure(failed + PAUSE, failed + PAUSE + SLOW, "again");
        assert!(rest.check(failed + PAUSE + SLOW * 2).is_err());
    }
}
