//! Reloads a host's plugins when their files change. A thread sleeps until a file changes or
//! another process asks.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use berth_contract::HostError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::control::{Ask, Listener};
use super::{PluginState, Plugins};

/// Time without changes before a change counts as complete. Copying a file changes it many times.
const QUIET: Duration = Duration::from_millis(50);

/// Longest delay of a reload while changes go on.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Delay before a file that may be half written is read again.
const AGAIN: Duration = Duration::from_millis(300);

/// Reads of the kernel's queue before the thread checks for other work.
const READS: usize = 16;

/// The watching thread. It ends when this value is dropped.
pub struct Watch(OwnedFd);

impl Watch {
    /// Starts watching. Call it inside a tokio runtime, which then loads changed plugins.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the kernel gives no watch.
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
        let thread_end = end.try_clone().map_err(HostError::io("watching the plugins"))?;
        let watcher = Watcher {
            plugins: Arc::downgrade(plugins),
            end: thread_end,
            changes,
            listener,
            reactor,
        };
        // The watches exist before the thread runs, so that it misses no later change.
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

/// Why the thread woke up.
enum Wake {
    /// The host ended.
    End,
    Changes,
    Question,
    /// The waiting time is over.
    Timeout,
}

impl Watcher {
    fn run(self) {
        let mut due: Option<Instant> = None;
        // The time of the first change since the last reload.
        let mut first_change: Option<Instant> = None;
        loop {
            match self.wait(due) {
                Wake::End => return,
                Wake::Changes => {
                    self.take_changes();
                    let since = *first_change.get_or_insert_with(Instant::now);
                    due = Some((Instant::now() + QUIET).min(since + MAX_DELAY));
                }
                Wake::Question => {
                    let Some(plugins) = self.plugins.upgrade() else { return };
                    if let Some(listener) = &self.listener {
                        listener.serve(|ask| self.answer(&plugins, ask));
                    }
                }
                Wake::Timeout => {
                    let Some(plugins) = self.plugins.upgrade() else { return };
                    first_change = None;
                    // The watches come first, so that a file that appears during the reload is seen
                    // as a change.
                    self.renew(&plugins);
                    let half_written = self.reactor.block_on(plugins.reload(false));
                    due = half_written.then(|| Instant::now() + AGAIN);
                }
            }
        }
    }

    fn answer(&self, plugins: &Arc<Plugins>, ask: Ask) -> Vec<PluginState> {
        if ask == Ask::Reload {
            self.renew(plugins);
            self.reactor.block_on(plugins.reload(true));
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
        // Changes come last. A tool may write to a watched folder without a pause, and must not
        // block the other work.
        match (ready(0), is_due, ready(2), ready(1)) {
            (true, ..) => Wake::End,
            (_, true, ..) => Wake::Timeout,
            (_, _, true, _) => Wake::Question,
            (.., true) => Wake::Changes,
            _ => Wake::Timeout,
        }
    }

    /// Takes changes from the kernel's queue. Their content doesn't matter, since a reload reads
    /// all files. If the queue isn't empty after [`READS`] reads, the thread wakes up again, after
    /// other work.
    fn take_changes(&self) {
        let mut buffer = [0; 4096];
        for _ in 0..READS {
            if !rustix::io::read(&self.changes, &mut buffer).is_ok_and(|read| read > 0) {
                return;
            }
        }
    }

    /// Watches the folders of plugins and rules. Already watched folders stay watched.
    fn renew(&self, plugins: &Plugins) {
        let named = plugins.policies.named();
        let folders = named.iter().filter_map(|(_, path)| path.parent().map(Path::to_owned));
        let rules = plugins.policies.filter_rules_path();
        let rules = rules.parent().map(Path::to_owned);
        let rules = rules.into_iter().chain([plugins.policies.directory.clone()]);
        for folder in folders
            .chain([plugins.policies.folder(), plugins.policies.folders.data.clone()])
            .chain(rules)
        {
            self.watch(&folder);
        }
    }

    /// Watches a folder. If it doesn't exist, watches the nearest parent that does.
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
                        "can't watch {} for changes: {errno}; after a change, run `berth plugin reload`",
                        folder.display()
                    );
                    return;
                }
            }
        }
    }
}
