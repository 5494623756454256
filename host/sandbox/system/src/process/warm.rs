//! Starts and prepares the helper of the next command before this command is known.

use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions, waitpid};

use super::helper::ConfineHelper;
use super::network::SharedNetwork;
use super::sandbox::CommandSandbox;
use crate::confine::Preparation;
use crate::mounts::Mounts;

/// A helper that waits for its command. It exits if it waits for too long.
#[derive(Debug)]
struct WarmHelper {
    helper: Option<ConfineHelper>,
    preparation: Preparation,
    mounts: Arc<Mounts>,
    network: Option<Arc<SharedNetwork>>,
}

impl Drop for WarmHelper {
    fn drop(&mut self) {
        if let Some(ConfineHelper { process, .. }) = &mut self.helper {
            let _ = process.kill().and_then(|()| process.wait());
        }
    }
}

/// Maximum number of waiting helpers, which belong to the sessions with the latest commands. A
/// further helper ends the oldest one.
const MAX_WAITING: usize = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct WarmSlot(Arc<Mutex<Vec<WarmHelper>>>);

impl WarmSlot {
    /// Takes the helper that is prepared for this sandbox, if there is one. Keeps helpers for the
    /// networks of other sessions, and ends all other helpers.
    pub(super) fn take(&self, sandbox: &CommandSandbox) -> Option<ConfineHelper> {
        let mut helpers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        helpers.retain_mut(|helper| {
            if helper.is_of_ended_session() || !helper.is_waiting() {
                return false;
            }
            helper.fits_but_for_network(sandbox)
        });
        let network = sandbox.preparation.shared_network;
        let index =
            helpers.iter().position(|helper| helper.preparation.shared_network == network)?;
        let mut fitting = helpers.remove(index);
        // Dropping the rest of the value has no effect without its helper.
        fitting.helper.take()
    }
}

impl WarmHelper {
    /// Checks whether only this helper uses its network. Then no command can use it any more.
    fn is_of_ended_session(&self) -> bool {
        self.network.as_ref().is_some_and(|network| Arc::strong_count(network) == 1)
    }

    /// Checks whether the helper's process still runs. If not, the process is reaped.
    fn is_waiting(&mut self) -> bool {
        let Some(helper) = &mut self.helper else { return false };
        matches!(helper.process.try_wait(), Ok(None))
    }

    /// Checks whether the helper is prepared for this sandbox, apart from the network.
    fn fits_but_for_network(&self, sandbox: &CommandSandbox) -> bool {
        // The helper's view has the mounts from the start of the helper.
        if !Arc::ptr_eq(&self.mounts, &sandbox.mounts) {
            return false;
        }
        let mut preparation = self.preparation.clone();
        preparation.shared_network = sandbox.preparation.shared_network;
        preparation == sandbox.preparation
    }
}

/// The helper of the next command, which isn't started yet.
pub(super) struct NextHelper {
    pub(super) program: PathBuf,
    pub(super) preparation: Preparation,
    pub(super) mounts: Arc<Mounts>,
    pub(super) network: Option<Arc<SharedNetwork>>,
    pub(super) slot: WarmSlot,
}

impl NextHelper {
    /// Starts the helper, unless an equal helper waits or no further command is possible.
    fn start(self) {
        let Self { program, preparation, mounts, network, slot: WarmSlot(slot) } = self;
        // Only this value still uses the slot, so no command can follow.
        if Arc::strong_count(&slot) == 1 {
            return;
        }
        let mut helpers = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if helpers.iter().any(|warm| warm.preparation == preparation) {
            return;
        }
        let namespaces = network.as_deref().map(SharedNetwork::namespaces);
        if let Ok(helper) = ConfineHelper::start(&program, &preparation, namespaces) {
            if helpers.len() == MAX_WAITING {
                let oldest = 0;
                helpers.remove(oldest);
            }
            helpers.push(WarmHelper { helper: Some(helper), preparation, mounts, network });
        }
    }
}

/// Starts the `next` helper, and reaps the process `ended`, which is about to end. A new thread
/// does both, so the call doesn't wait.
pub(super) fn start_next_and_reap(next: Option<NextHelper>, mut ended: Option<Child>) {
    let ended_pid = ended.as_ref().map(Pid::from_child);
    if next.is_none() && ended_pid.is_none() {
        return;
    }
    let builder = std::thread::Builder::new().name("toolhold-helper".to_owned());
    let thread = builder.spawn(move || {
        if let Some(next) = next {
            next.start();
        }
        if let Some(ended) = &mut ended {
            let _ = ended.wait();
        }
    });
    // Without a thread, the next command starts its own helper, and the process is reaped here.
    if thread.is_err() && ended_pid.is_some() {
        let _ = waitpid(ended_pid, WaitOptions::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::confine::{Limits, Recorded, Sandbox, TreeState};

    fn sandbox(network: bool, mounts: &Arc<Mounts>) -> CommandSandbox {
        let preparation = Preparation {
            parent: 0,
            sandbox: Sandbox::Strict,
            namespaces: true,
            network,
            shared_network: None,
            recorded: Recorded::No,
            relayed: false,
            authority: None,
            trees: Vec::new(),
            home: None,
            limits: Limits::default(),
        };
        let state = TreeState {
            found: Vec::new(),
            pinned: Vec::new(),
            hidden: Vec::new(),
            frozen: Vec::new(),
        };
        CommandSandbox {
            preparation,
            mounts: Arc::clone(mounts),
            network: None,
            state,
            held: Vec::new(),
        }
    }

    #[test]
    fn helper_is_taken_only_for_the_sandbox_and_the_mounts_that_it_was_made_for() {
        let [before, after] = [(); 2].map(|()| Arc::new(Mounts::default()));
        let cases = [(false, &before, true), (true, &before, false), (false, &after, false)];
        for (network, mounts, is_taken) in cases {
            let (slot, made_for) = (WarmSlot::default(), sandbox(false, &before));
            // Any program that doesn't end.
            let program = Path::new("/usr/bin/yes").to_owned();
            let CommandSandbox { preparation, mounts: before, .. } = made_for;
            let next = NextHelper {
                program,
                preparation,
                mounts: before,
                network: None,
                slot: slot.clone(),
            };
            next.start();
            let taken = slot.take(&sandbox(network, mounts));
            assert_eq!(taken.is_some(), is_taken, "{network}");
            assert!(slot.0.lock().expect("a lock").is_empty());
            if let Some(ConfineHelper { mut process, .. }) = taken {
                process.kill().and_then(|()| process.wait()).expect("it ends");
            }
        }
    }

    #[test]
    fn helpers_for_the_networks_of_several_sessions_wait_beside_each_other() {
        let (mounts, slot) = (Arc::new(Mounts::default()), WarmSlot::default());
        let of = |number| {
            let mut sandbox = sandbox(false, &mounts);
            sandbox.preparation.shared_network = Some(number);
            sandbox
        };
        for number in 0..6 {
            let CommandSandbox { preparation, mounts, .. } = of(number);
            let program = Path::new("/usr/bin/yes").to_owned();
            NextHelper { program, preparation, mounts, network: None, slot: slot.clone() }.start();
        }
        for (number, waits) in [(0, false), (1, false), (2, true), (2, false), (5, true)] {
            let taken = slot.take(&of(number));
            assert_eq!(taken.is_some(), waits, "{number}");
            if let Some(ConfineHelper { mut process, .. }) = taken {
                process.kill().and_then(|()| process.wait()).expect("it ends");
            }
        }
        assert!(slot.take(&sandbox(false, &mounts)).is_none(), "a command of no session");
    }
}
