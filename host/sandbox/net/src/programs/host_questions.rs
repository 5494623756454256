//! Asks about the hosts that programs want to reach and that no entry grants.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolhold_contract::{Denial, HostApprover, WaitClock, WantedHost};
use toolhold_policy::egress::{ProgramTarget, Target, TargetHost};

use super::access::HostAccess;
use crate::Error;

/// Maximum number of remembered denials. A further denial isn't remembered, so the next connection
/// to its host is decided on again.
const MAX_DENIED: usize = 256;

/// Asks about the hosts of a call's programs.
pub struct HostQuestions {
    approver: Arc<dyn HostApprover>,
    waits: Arc<WaitClock>,
    /// The access to each approved host, by its entry.
    approved: Mutex<HashMap<String, Arc<HostAccess>>>,
    /// The hosts and ports that aren't approved.
    denied: Mutex<HashMap<(TargetHost, u16), Denial>>,
}

impl fmt::Debug for HostQuestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostQuestions").finish_non_exhaustive()
    }
}

impl HostQuestions {
    /// Lets `approver` decide on hosts. `waits` measures the time of these decisions.
    pub fn new(approver: Arc<dyn HostApprover>, waits: Arc<WaitClock>) -> Self {
        Self { approver, waits, approved: Mutex::default(), denied: Mutex::default() }
    }

    /// Returns the clock for the time of the decisions.
    pub(super) fn waits(&self) -> &WaitClock {
        &self.waits
    }

    /// Returns an access that also grants the target, which `access` doesn't, after its approval.
    pub(super) async fn approve(
        &self,
        access: &HostAccess,
        wanted: &ProgramTarget,
        program: &str,
    ) -> Result<Arc<HostAccess>, Error> {
        let entry = wanted.to_string();
        if let Some(granted) = self.approved().get(&entry) {
            return Ok(Arc::clone(granted));
        }
        let grant = wanted.grant().map_err(|error| Error::Protocol(error.to_string()))?;
        let question = WantedHost { entry: entry.clone(), program: program.to_owned() };
        let wait = self.waits.start();
        let decision = self.approver.approve(question).await;
        drop(wait);
        if let Err(denial) = decision {
            self.remember_denial(&wanted.target, &denial);
            return Err(Error::Refused(Box::new(denial)));
        }
        // Of concurrent connections, the first one adds the access.
        let mut approved = self.approved();
        let granted = approved.entry(entry);
        Ok(Arc::clone(granted.or_insert_with(|| Arc::new(access.with_entry(grant)))))
    }

    /// Remembers a denial, so that later connections fail at once.
    fn remember_denial(&self, target: &Target, denial: &Denial) {
        let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        if denied.len() < MAX_DENIED {
            denied.insert((target.host.clone(), target.port), denial.clone());
        }
    }

    /// Returns the denial of a host and port that weren't approved.
    pub(super) fn denial(&self, host: &TargetHost, port: u16) -> Option<Denial> {
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        denied.get(&(host.clone(), port)).cloned()
    }

    fn approved(&self) -> MutexGuard<'_, HashMap<String, Arc<HostAccess>>> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
