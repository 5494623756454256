//! Reloads plugins when their files change, or when another process asks for it.

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
const RELOAD_DELAY: Duration = Duration::from_millis(300);

/// The index of the event that ends the thread in the list of awaited events.
const END_INDEX: usize = 0;

/// A thread that watches the plugin files. A drop ends the thread.
pub struct Watch(OwnedFd);

impl Watch {
    /// Starts watching. Call this function in a tokio runtime, because the runtime loads changed
    /// plugins.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the kernel can't create a watch.
    pub fn start(plugins: &Arc<Plugins>) -> Result<Self, HostError> {
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(std::io::Error::from)
            .map_err(HostError::io("can't watch the plugins"))?;
        let changes = FolderWatch::new().map_err(HostError::io("can't watch the plugins"))?;
        let listener = match Listener::open(&plugins.policies.folders) {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::warn!("other processes can't ask this process for its plugins: {error}");
                None
            }
        };
        let reactor = tokio::runtime::Handle::current();
        let thread_end = end.try_clone().map_err(HostError::io("can't watch the plugins"))?;
        let mut watcher = Watcher {
            plugins: Arc::downgrade(plugins),
            end: thread_end,
            changes,
            listener,
            reactor,
        };
        // The watches exist before the thread runs, so that no change is missed.
        watcher.renew(plugins);
        std::thread::Builder::new()
            .name("toolhold-watch".into())
            .spawn(move || watcher.run())
            .map_err(HostError::io("can't start the thread that watches the plugins"))?;
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
    /// Handles changes and questions of other processes until the signal to end.
    fn run(&mut self) {
        loop {
            // `Woken::Other` has an index in this list.
            let mut other_events = vec![self.end.as_fd()];
            other_events.extend(self.listener.as_ref().map(AsFd::as_fd));
            let woken = match self.changes.wait(&other_events) {
                Ok(woken) => woken,
                Err(error) => {
                    tracing::warn!(
                        "plugins are no longer watched for changes: {error}; after a change, run \
                         `toolhold plugin reload`"
                    );
                    return;
                }
            };
            if woken == Woken::Other(END_INDEX) {
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
                    // The watches are renewed before the reload, so that no new file is missed
                    // during the reload.
                    self.renew(&plugins);
                    let retry_failed = false;
                    let may_be_incomplete = self.reactor.block_on(plugins.reload(retry_failed));
                    if may_be_incomplete {
                        self.changes.wake_in(RELOAD_DELAY);
                    }
                }
            }
        }
    }

    fn answer(&self, plugins: &Arc<Plugins>, question: &str) -> Option<Vec<u8>> {
        let Some(ask) = Ask::parse(question) else {
            let answer_other = plugins.other_questions.get()?;
            return answer_other(question);
        };
        if ask == Ask::Reload {
            self.renew(plugins);
            let retry_failed = true;
            self.reactor.block_on(plugins.reload(retry_failed));
        }
        serde_json::to_vec(&plugins.states()).ok()
    }

    /// Watches all folders in which plugins, approvals or filter rules may appear, including
    /// folders that exist only now.
    fn renew(&self, plugins: &Plugins) {
        let policies = &plugins.policies;
        for (_, path) in policies.named() {
            if let Some(folder) = path.parent() {
                self.watch(folder);
            }
        }
        self.watch(&policies.folder());
        self.watch(policies.folders.operator_data());
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
