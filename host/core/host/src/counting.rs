//! Enforces the quota and the rate of a session. A call reserves a place before it runs. If the
//! call doesn't run, its place is released.

use std::time::SystemTime;

use toolhold_config::Config;
use toolhold_contract::text::in_words;
use toolhold_contract::{Category, Failure};
use toolhold_policy::{
    Decision, Gate, Origin, QuotaBounds, QuotaCounts, QuotaLimit, QuotaPlace, Verdict,
};

use crate::session::{Session, SessionState};

/// The remedy for a session that can't be read or written.
const MEND: &str = "`toolhold doctor` says how to fix it. Calls are counted only if `max_tool_calls_per_session` or `max_actions_per_hour` is set.";

/// The limits of a session, and the places of these limits in the configuration.
#[derive(Debug, Default)]
pub(crate) struct QuotaCounter {
    bounds: QuotaBounds,
    quota_place: Origin,
    rate_place: Origin,
}

/// The refusal of a call that gets no place.
pub(crate) struct QuotaRefusal {
    /// The limit that has been reached. `None` means that it isn't known, because the session can't
    /// be read or written.
    pub(crate) decision: Option<Decision>,
    pub(crate) failure: Failure,
}

/// The reserved place of a call. If it is dropped before the call has run, the place is released.
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

    /// Reserves a place for a call if there are limits.
    ///
    /// # Errors
    ///
    /// Returns an error if the limit has been reached, or if the session can't be read.
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
        match session.change(|state| self.bounds.take(&mut counts(state), acts, now)) {
            Ok(Ok(place)) => {
                Ok(Some(QuotaReservation { session: session.clone(), place: Some(place) }))
            }
            Ok(Err(reached)) => Err(Box::new(self.refuse(reached, tool))),
            // Fails closed, because a limit can't be enforced without a count.
            Err(error) => {
                let message = format!("The call was not run, since it can't be counted: {error}");
                let failure = Failure::new(Category::PermanentFailure, message)
                    .with_code("host")
                    .with_suggestion(MEND);
                Err(Box::new(QuotaRefusal { decision: None, failure }))
            }
        }
    }

    /// Returns the refusal that `take` would return now, without reserving anything.
    pub(crate) fn look(&self, session: &Session, acts: bool) -> Option<Decision> {
        if !self.bounds.concern(acts) {
            return None;
        }
        let now = milliseconds(SystemTime::now());
        let reached = session.look(|state| {
            let mut calls = state.calls;
            let mut acted = state.acted.clone();
            let mut copy = QuotaCounts { calls: &mut calls, acted: &mut acted };
            self.bounds.take(&mut copy, acts, now).err()
        });
        match reached {
            Ok(reached) => reached.map(|reached| self.decision(reached)),
            Err(error) => Some(Decision {
                rule: "a call that can't be counted is refused".into(),
                place: "built in".into(),
                remedy: format!("{error}. {MEND}").into(),
                ..self.decision(QuotaLimit::Quota)
            }),
        }
    }

    fn refuse(&self, reached: QuotaLimit, tool: &str) -> QuotaRefusal {
        let decision = self.decision(reached);
        let mut failure = Failure::denied(decision.denial(format!("call {tool}")));
        failure.code = Some("quota_blocked".to_owned());
        if let QuotaLimit::Rate { again_after } = reached {
            failure.category = Category::RateLimited;
            failure.code = Some("rate".to_owned());
            failure.retry_after = Some(again_after);
        }
        QuotaRefusal { decision: Some(decision), failure }
    }

    fn decision(&self, reached: QuotaLimit) -> Decision {
        let (gate, rule, place, remedy) = match reached {
            QuotaLimit::Quota => {
                let rule = format!("max_tool_calls_per_session = {}", self.bounds.calls);
                let remedy = "The session has used all its calls: start another session.";
                (Gate::Quota, rule, &self.quota_place, remedy.to_owned())
            }
            QuotaLimit::Rate { again_after } => {
                let rule = format!("max_actions_per_hour = {}", self.bounds.acting_per_hour);
                let remedy = format!("The next acting call may run in {}.", in_words(again_after));
                (Gate::Rate, rule, &self.rate_place, remedy)
            }
        };
        let more = place.remedy(|| "For more, raise the number.".to_owned());
        Decision {
            verdict: Verdict::Deny,
            gate,
            rule: rule.into(),
            place: place.text.clone(),
            remedy: format!("{remedy} {more}").into(),
        }
    }
}

impl QuotaReservation {
    /// Counts a call that runs, whatever its outcome is.
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

/// Returns the milliseconds of Unix time.
fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
