//! Keeps a host's plugins up with their files, on a thread that sleeps until something changes or
//! somebody asks.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use berth_contract::HostError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::control::{Ask, Listener};
use super::{PluginState, Plugins};

/// How long nothing has to change before a change counts as complete: whoever copies a file changes
/// it many times.
const QUIET: Duration = Duration::from_millis(50);

/// How long changes may go on before they are looked at nevertheless.
const RESTLESS: Duration = Duration::from_secs(1);

/// When a file that may be half written is looked at again.
const AGAIN: Duration = Duration::from_millis(300);

/// Reads of the kernel's queue before the thread looks whether there is something else to do.
const READS: usize = 16;

/// The thread that watches. It ends with this value.
pub struct Watch(OwnedFd);

impl Watch {
    /// Starts watching. To be called inside a tokio runtime, on which what is new is loaded.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] where the kernel has no watch to give.
    pub fn start(plugins: &Arc<Plugins>) -> Result<Self, HostError> {
        let failed = |errno: rustix::io::Errno| HostError::io("watching the plugins")(errno.into());
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let changes =
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(failed)?;
        let listener = Listener::open(&plugins.policies.folders);
        let listener = listener
            .map_err(|reason| {
                tracing::warn!("other processes can't ask this one for its plugins: {reason}");
            })
            .ok();
        let reactor = tokio::runtime::Handle::current();
        let of_thread = end.try_clone().map_err(HostError::io("watching the plugins"))?;
        let watcher = Watcher {
            plugins: Arc::downgrade(plugins),
            end: of_thread,
            changes,
            listener,
            reactor,
        };
        // Before the thread runs, so that nothing is missed that changes from here on.
        watcher.renew(plugins);
        std::thread::Builder::new()
            .name("berth-watch".into())
            .spawn(move || watcher.run())
            .map_err(HostError::io("starting the thread that watches the plugins"))?;
        Ok(Self(end))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

struct Watcher {
    plugins: Weak<Plugins>,
    end: OwnedFd,
    changes: OwnedFd,
    listener: Option<Listener>,
    reactor: tokio::runtime::Handle,
}

/// What the thread woke up for.
enum Wake {
    /// The host is gone.
    End,
    Changes,
    Question,
    /// The time is over.
    Nothing,
}

impl Watcher {
    fn run(self) {
        let mut due: Option<Instant> = None;
        // When the changes began that are not looked at yet.
        let mut restless: Option<Instant> = None;
        loop {
            match self.wait(due) {
                Wake::End => return,
                Wake::Changes => {
                    self.take_changes();
                    let since = *restless.get_or_insert_with(Instant::now);
                    due = Some((Instant::now() + QUIET).min(since + RESTLESS));
                }
                Wake::Question => {
                    let Some(plugins) = self.plugins.upgrade() else { return };
                    if let Some(listener) = &self.listener {
                        listener.serve(|ask| self.answer(&plugins, ask));
                    }
                }
                Wake::Nothing => {
                    let Some(plugins) = self.plugins.upgrade() else { return };
                    restless = None;
                    // First the watches, so that what appears while it is looked at is seen as a
                    // change.
                    self.renew(&plugins);
                    let half_written = self.reactor.block_on(plugins.look(false));
                    due = half_written.then(|| Instant::now() + AGAIN);
                }
            }
        }
    }

    fn answer(&self, plugins: &Arc<Plugins>, ask: Ask) -> Vec<PluginState> {
        if ask == Ask::Reload {
            self.renew(plugins);
            self.reactor.block_on(plugins.look(true));
        }
        plugins.states()
    }

    fn wait(&self, due: Option<Instant>) -> Wake {
        let mut descriptors =
            vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.changes, PollFlags::IN)];
        descriptors.extend(
            self.listener
                .as_ref()
                .map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)),
        );
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let is_due = left.is_some_and(|left| left.is_zero());
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        if poll(&mut descriptors, left.as_ref()).is_err() {
            return Wake::Changes;
        }
        let ready = |index: usize| {
            descriptors.get(index).is_some_and(|descriptor| !descriptor.revents().is_empty())
        };
        // Changes come last: who writes without a pause, into a folder that a tool may write to as
        // well, must not keep the rest waiting.
        match (ready(0), is_due, ready(2), ready(1)) {
            (true, ..) => Wake::End,
            (_, true, ..) => Wake::Nothing,
            (_, _, true, _) => Wake::Question,
            (.., true) => Wake::Changes,
            _ => Wake::Nothing,
        }
    }

    /// What exactly has changed does not matter: everything is looked at, by handle. What is left
    /// after so many reads wakes the thread up again, and what it has to do otherwise comes first.
    fn take_changes(&self) {
        let mut buffer = [0; 4096];
        for _ in 0..READS {
            if !rustix::io::read(&self.changes, &mut buffer).is_ok_and(|read| read > 0) {
                return;
            }
        }
    }

    /// Watches the folders in which something may change. One that is watched already stays so.
    fn renew(&self, plugins: &Plugins) {
        let named = plugins.policies.named();
        let folders = named.iter().filter_map(|(_, path)| path.parent().map(Path::to_owned));
        let rules = plugins.policies.filter_rules_path();
        let rules = rules.parent().map(Path::to_owned);
        for folder in folders
            .chain([plugins.policies.folder(), plugins.policies.folders.data.clone()])
            .chain(rules)
        {
            self.watch(&folder);
        }
    }

    /// Watches a folder, or what there is of the way to it.
    fn watch(&self, folder: &Path) {
        let what = WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for folder in folder.ancestors() {
            match inotify::add_watch(&self.changes, folder, what) {
                Ok(_) => return,
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
                Err(errno) => {
                    tracing::warn!(
                        "changes in {} are not seen: {errno}; `berth plugin reload` looks again",
                        folder.display()
                    );
                    return;
                }
            }
        }
    }
}
