//! Reloads a host's plugins when their files change, or when another process asks.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use toolhold_contract::HostError;
use toolhold_system::watch::{FolderWatch, Woken};

use super::Plugins;
use super::control::{Ask, Listener};

/// Delay before a file that may be incomplete is read again.
const AGAIN: Duration = Duration::from_millis(300);

/// The watching thread, which ends when this value is dropped.
pub struct Watch(OwnedFd);

impl Watch {
    /// Starts watching. Call this function inside a tokio runtime, which then loads changed
    /// plugins.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the kernel can't create a watch.
    pub fn start(plugins: &Arc<Plugins>) -> Result<Self, HostError> {
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| HostError::io("watching the plugins")(errno.into()))?;
        let changes = FolderWatch::new().map_err(HostError::io("watching the plugins"))?;
        let listener = Listener::open(&plugins.policies.folders)
            .map_err(|error| {
                tracing::warn!("other processes can't ask this one for its plugins: {error}");
            })
            .ok();
        let reactor = tokio::runtime::Handle::current();
        let thread_end = end.try_clone().map_err(HostError::io("watching the plugins"))?;
        let mut watcher = Watcher {
            plugins: Arc::downgrade(plugins),
            end: thread_end,
            changes,
            listener,
            reactor,
        };
        // The watches exist before the thread runs, so that the thread misses no later change.
        watcher.renew(plugins);
        std::thread::Builder::new()
            .name("toolhold-watch".into())
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
    changes: FolderWatch,
    listener: Option<Listener>,
    reactor: tokio::runtime::Handle,
}

impl Watcher {
    fn run(&mut self) {
        loop {
            let mut others = vec![self.end.as_fd()];
            others.extend(self.listener.as_ref().map(AsFd::as_fd));
            let woken = match self.changes.wait(&others) {
                Ok(woken) => woken,
                Err(error) => {
                    tracing::warn!(
                        "plugins are not watched any more: {error}; after a change, run `toolhold plugin reload`"
                    );
                    return;
                }
            };
            // The first is the end of the host.
            if woken == Woken::Other(0) {
                return;
            }
            let Some(plugins) = self.plugins.upgrade() else { return };
            match woken {
                Woken::Other(_) => {
                    if let Some(listener) = &self.listener {
                        listener.serve(|question| self.answer(&plugins, question));
                    }
                }
                Woken::Changes => {
                    // The watches are renewed first, so that a file that appears during the reload
                    // is noticed.
                    self.renew(&plugins);
                    if self.reactor.block_on(plugins.reload(false)) {
                        self.changes.wake_in(AGAIN);
                    }
                }
            }
        }
    }

    fn answer(&self, plugins: &Arc<Plugins>, question: &str) -> Option<Vec<u8>> {
        let Some(ask) = Ask::parse(question) else {
            return plugins.other_questions.get()?(question);
        };
        if ask == Ask::Reload {
            self.renew(plugins);
            self.reactor.block_on(plugins.reload(true));
        }
        serde_json::to_vec(&plugins.states()).ok()
    }

    /// Watches the folders of plugins and rules. Already watched folders stay watched.
    fn renew(&self, plugins: &Plugins) {
        let policies = &plugins.policies;
        for (_, path) in policies.named() {
            if let Some(folder) = path.parent() {
                self.watch(folder);
            }
        }
        self.watch(&policies.folder());
        self.watch(&policies.folders.data);
        if let Some(folder) = policies.filter_rules_path().parent() {
            self.watch(folder);
        }
        self.watch(&policies.directory);
    }

    fn watch(&self, folder: &Path) {
        if let Err(error) = self.changes.watch(folder) {
            tracing::warn!(
                "can't watch {} for changes: {error}; after a change, run `toolhold plugin reload`",
                folder.display()
            );
        }
    }
}
