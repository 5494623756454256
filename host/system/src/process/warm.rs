//! The helper of the next command, which is started and prepared before that command is known.

use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions, waitpid};

use super::helper::ConfineHelper;
use super::places::CommandSandbox;
use crate::confine::Preparation;
use crate::mounts::Mounts;

/// A helper that waits for its command. It ends by itself after a while.
#[derive(Debug)]
struct WarmHelper {
    helper: Option<ConfineHelper>,
    preparation: Preparation,
    mounts: Arc<Mounts>,
}

impl Drop for WarmHelper {
    fn drop(&mut self) {
        if let Some(ConfineHelper { process, .. }) = &mut self.helper {
            let _ = process.kill().and_then(|()| process.wait());
        }
    }
}

/// The place for one helper.
#[derive(Clone, Debug, Default)]
pub(super) struct WarmSlot(Arc<Mutex<Option<WarmHelper>>>);

impl WarmSlot {
    /// Takes the helper if it is prepared for this sandbox. One for another sandbox is ended.
    pub(super) fn take(&self, sandbox: &CommandSandbox) -> Option<ConfineHelper> {
        let mut warm = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // Its view has the mounts of the time when it was made.
        let fits =
            warm.preparation == sandbox.preparation && Arc::ptr_eq(&warm.mounts, &sandbox.mounts);
        if fits { warm.helper.take() } else { None }
    }
}

/// The helper of the next command, before it is started.
pub(super) struct NextHelper {
    pub(super) program: PathBuf,
    pub(super) preparation: Preparation,
    pub(super) mounts: Arc<Mounts>,
    pub(super) slot: WarmSlot,
}

impl NextHelper {
    /// Starts it, unless another one waits or no command can come any more.
    fn start(self) {
        let Self { program, preparation, mounts, slot: WarmSlot(slot) } = self;
        if Arc::strong_count(&slot) == 1 {
            return;
        }
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none()
            && let Ok(helper) = ConfineHelper::start(&program, &preparation)
        {
            *slot = Some(WarmHelper { helper: Some(helper), preparation, mounts });
        }
    }
}

/// Starts the `next` helper and waits for the end of the one that has `ended`, on a thread of its
/// own: nobody waits for either.
pub(super) fn hand_over(next: Option<NextHelper>, mut ended: Option<Child>) {
    let pid = ended.as_ref().map(Pid::from_child);
    if next.is_none() && pid.is_none() {
        return;
    }
    let work = move || {
        if let Some(next) = next {
            next.start();
        }
        let _ = ended.as_mut().map(Child::wait);
    };
    let thread = std::thread::Builder::new().name("berth-helper".to_owned()).spawn(work);
    // Without a thread, the next command starts its own helper.
    if thread.is_err() && pid.is_some() {
        let _ = waitpid(pid, WaitOptions::empty());
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
            recorded: Recorded::No,
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
        CommandSandbox { preparation, mounts: Arc::clone(mounts), state, held: Vec::new() }
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
            NextHelper { program, preparation, mounts: before, slot: slot.clone() }.start();
            let taken = slot.take(&sandbox(network, mounts));
            assert_eq!(taken.is_some(), is_taken, "{network}");
            assert!(slot.0.lock().expect("a lock").is_none());
            if let Some(ConfineHelper { mut process, .. }) = taken {
                process.kill().and_then(|()| process.wait()).expect("it ends");
            }
        }
    }
}
