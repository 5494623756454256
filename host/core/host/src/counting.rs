//! Enforces the quota and the rate of a session. A call is counted before it runs. The count is
//! taken back if the call doesn't run.

use std::time::SystemTime;

use toolhold_config::Config;
use toolhold_contract::text::in_words;
use toolhold_contract::{Category, Failure};
use toolhold_policy::{
    Decision, Gate, Origin, QuotaBounds, QuotaCounts, QuotaLimit, QuotaPlace, Verdict,
};

use crate::session::{Session, SessionState};

const REMEDY: &str = "`toolhold doctor` shows the fix. Calls are counted only if \
                      `max_tool_calls_per_session` or `max_actions_per_hour` is set.";

/// The limits of a session, and where they are configured.
#[derive(Debug, Default)]
pub(crate) struct QuotaCounter {
    bounds: QuotaBounds,
    quota_place: Origin,
    rate_place: Origin,
}

pub(crate) struct QuotaRefusal {
    /// The decision about the reached limit. `None` means that the session's file failed.
    pub(crate) decision: Option<Decision>,
    pub(crate) failure: Failure,
}

/// A counted call. A drop before the run takes the count back.
pub(crate) struct QuotaReservation {
    session: Session,
    place: Option<QuotaPlace>,
}

impl QuotaCounter {
    pub(crate) fn from_config(config: &Config) -> Self {
        let tools = &config.values.tools;
        Self {
            bounds: QuotaBounds {
                calls: tools.max_tool_calls_per_session.get(),
                acting_per_hour: tools.max_actions_per_hour.get(),
            },
            quota_place: config.origin("tools.max_tool_calls_per_session"),
            rate_place: config.origin("tools.max_actions_per_hour"),
        }
    }

    /// Counts a call for the limits of its session. Returns `None` if no limit applies to the call.
    /// `acts` means that the call isn't read-only.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is reached, or if the session can't be read.
    pub(crate) fn take(
        &self,
        session: &Session,
        acts: bool,
        tool: &str,
    ) -> Result<Option<QuotaReservation>, Box<QuotaRefusal>> {
        if !self.bounds.concern(acts) {
            return Ok(None);
        }
        let now = milliseconds(SystemTime::now());
        let counted = session.change(|state| self.bounds.take(&mut counts(state), acts, now));
        let error = match counted {
            Ok(Ok(place)) => {
                let session = session.clone();
                return Ok(Some(QuotaReservation { session, place: Some(place) }));
            }
            Ok(Err(reached_limit)) => return Err(Box::new(self.refuse(reached_limit, tool))),
            Err(error) => error,
        };

        // Fails closed, because a limit can't be enforced without a count.
        let message = format!("The call was not run, because counting the call failed: {error}");
        let failure = Failure::new(Category::PermanentFailure, message)
            .with_code("host")
            .with_suggestion(REMEDY);
        Err(Box::new(QuotaRefusal { decision: None, failure }))
    }

    /// Returns the denial that [`take`](Self::take) returns at the moment, or `None`. Counts no
    /// call.
    pub(crate) fn find_denial(&self, session: &Session, acts: bool) -> Option<Decision> {
        if !self.bounds.concern(acts) {
            return None;
        }
        let now = milliseconds(SystemTime::now());
        let reached = session.read(|state| {
            // `take` changes only these copies, not the session.
            let mut calls = state.calls;
            let mut acted = state.acted.clone();
            let mut counts = QuotaCounts { calls: &mut calls, acted: &mut acted };
            self.bounds.take(&mut counts, acts, now).err()
        });
        match reached {
            Ok(None) => None,
            Ok(Some(reached_limit)) => Some(self.denial(reached_limit)),
            Err(error) => Some(Decision {
                verdict: Verdict::Deny,
                gate: Gate::Quota,
                rule: "a call that can't be counted is denied".into(),
                place: "built in".into(),
                remedy: format!("{error}. {REMEDY}").into(),
            }),
        }
    }

    fn refuse(&self, reached: QuotaLimit, tool: &str) -> QuotaRefusal {
        let decision = self.denial(reached);
        let mut failure = Failure::denied(decision.denial(format!("call {tool}")));
        failure.code = Some("quota_blocked".to_owned());
        if let QuotaLimit::Rate { again_after } = reached {
            failure.category = Category::RateLimited;
            failure.code = Some("rate".to_owned());
            failure.retry_after = Some(again_after);
        }
        QuotaRefusal { decision: Some(decision), failure }
    }

    fn denial(&self, reached: QuotaLimit) -> Decision {
        let (gate, rule, place, advice) = match reached {
            QuotaLimit::Quota => {
                let rule = format!("max_tool_calls_per_session = {}", self.bounds.calls);
                let advice = "The session has used all its calls. Start another session.";
                (Gate::Quota, rule, &self.quota_place, advice.to_owned())
            }
            QuotaLimit::Rate { again_after } => {
                let rule = format!("max_actions_per_hour = {}", self.bounds.acting_per_hour);
                let advice = format!("The next acting call may run in {}.", in_words(again_after));
                (Gate::Rate, rule, &self.rate_place, advice)
            }
        };
        let configuring = place.remedy(|| "To allow more calls, raise the number.".to_owned());
        Decision {
            verdict: Verdict::Deny,
            gate,
            rule: rule.into(),
            place: place.text.clone(),
            remedy: format!("{advice} {configuring}").into(),
        }
    }
}

impl QuotaReservation {
    /// Keeps the call counted, whatever its outcome is.
    pub(crate) fn used(mut self) {
        self.place = None;
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        if let Err(error) = self.session.change(|state| place.release(&mut counts(state))) {
            tracing::warn!("a call that did not run is still counted: {error}");
        }
    }
}

fn counts(state: &mut SessionState) -> QuotaCounts<'_> {
    QuotaCounts { calls: &mut state.calls, acted: &mut state.acted }
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
