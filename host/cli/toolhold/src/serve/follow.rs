//! Reloads the configuration of a running server.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{sleep, timeout};
use toolhold_core::config::{CeilingFiles, Config, ConfigWatch, Folders};
use toolhold_core::{Host, HostError};
use toolhold_mcp_server::LiveHost;

use super::PreparedHost;
use super::principals::ServedPrincipals;
use crate::error::Error;
use crate::host;
use crate::options::Options;
use crate::style::{self, FAINT};
use crate::tasks::command::ServedTasks;

/// What callers other than the operator are told while the configuration is invalid. The warning in
/// the log quotes the operator's files.
const INVALID: &str = "the ceiling of this server has changed and its configuration is invalid, so \
                       no call runs; the server's log has the reason";

/// The delay before an invalid file is read again. An editor may still be writing the file.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// The longest wait for the plugins of a new host before it replaces the current host.
const MAX_LOADING: Duration = Duration::from_secs(2);

pub(super) struct ConfigChanges {
    receiver: Receiver<()>,
    /// The ceilings of the current host.
    ceilings: CeilingFiles,
}

pub(super) struct Follower {
    pub(super) options: Options,
    pub(super) folders: Folders,
    pub(super) tasks: Arc<ServedTasks>,
    /// The configuration of the current host.
    pub(super) loaded: Config,
    pub(super) live: Arc<LiveHost>,
    /// `None` if the server has one client.
    pub(super) principals: Option<Arc<ServedPrincipals>>,
    /// Whether the client may see errors in the configuration.
    pub(super) tells_client: bool,
}

impl ConfigChanges {
    /// Starts watching the files of the configuration. Load the configuration afterwards, so that
    /// no change is missed.
    pub(super) fn watch(options: &Options, folders: &Folders) -> Result<Self, Error> {
        let inputs = options.inputs()?;
        let watch = ConfigWatch::new(folders, &inputs)?;
        let ceilings = CeilingFiles::read(&inputs);
        // One waiting message stands for any number of changes.
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        // The thread ends with the process, so it is never joined.
        std::thread::Builder::new()
            .name("toolhold-config".to_owned())
            .spawn(move || send_changes(watch, &sender))
            .map_err(HostError::io("watching the configuration"))?;
        Ok(Self { receiver, ceilings })
    }
}

/// Sends a message after each change, until the watch fails or the receiver is dropped.
fn send_changes(mut watch: ConfigWatch, sender: &Sender<()>) {
    while watch.wait_for_change().is_ok() {
        if sender.blocking_send(()).is_err() {
            return;
        }
    }
}

impl Follower {
    /// Replaces the host after each change. An invalid configuration file is ignored, but an
    /// invalid ceiling stops all calls.
    pub(super) async fn follow(
        mut self,
        mut changes: ConfigChanges,
        prepare: impl Fn(Folders, Config) -> Result<PreparedHost, HostError>,
    ) {
        let mut last_warning: Option<String> = None;
        while changes.receiver.recv().await.is_some() {
            let mut ceilings = self.read_ceilings().await;
            let mut built = self.build(&prepare).await;
            if built.is_err() {
                sleep(RETRY_DELAY).await;
                ceilings = self.read_ceilings().await;
                built = self.build(&prepare).await;
            }

            let error = match built {
                Ok((host, loaded)) => {
                    self.replace_host(host, loaded).await;
                    last_warning = None;
                    changes.ceilings = ceilings.unwrap_or(changes.ceilings);
                    continue;
                }
                Err(error) => error,
            };
            let (_, Some(message)) = error.end() else { continue };
            // If the ceiling has changed, the new ceiling can't be applied and the old ceiling no
            // longer exists, so no call may run.
            let is_same_ceiling = ceilings.as_ref() == Some(&changes.ceilings);
            let warning = if is_same_ceiling {
                format!(
                    "the changed configuration is invalid, so the previous one stays in use: \
                     {message}"
                )
            } else {
                format!(
                    "the ceiling has changed and the configuration is invalid, so no call runs \
                     until the configuration is fixed: {message}"
                )
            };
            if !is_same_ceiling {
                self.live.refuse_calls(&warning);
                if let Some(principals) = &self.principals {
                    principals.refuse_calls(INVALID);
                }
            }
            if last_warning.as_ref() != Some(&warning) {
                warn(&warning);
                if is_same_ceiling && self.tells_client {
                    self.live.tell(warning.clone());
                }
                last_warning = Some(warning);
            }
        }
    }

    /// Puts a new host into use. Warns about changes that need a restart.
    async fn replace_host(&mut self, host: Arc<Host>, loaded: Config) {
        let need_restart = self.settings_that_need_restart(&loaded);
        self.loaded = loaded;
        self.start_or_stop_tasks().await;
        self.live.replace(host);
        if let Some(principals) = &self.principals {
            principals.reload(&self.loaded);
        }
        tracing::info!("the configuration has changed and applies from the next call");
        let _ = writeln!(
            anstream::stderr(),
            "{FAINT}the configuration has changed and applies from the next call{FAINT:#}"
        );
        for setting in need_restart {
            warn(&format!("{setting} has changed; the change takes effect after a restart"));
        }
    }

    /// Starts or stops the scheduled tasks, as the configuration requires.
    async fn start_or_stop_tasks(&self) {
        let tasks = Arc::clone(&self.tasks);
        let loaded = self.loaded.clone();
        let serves_principals = self.principals.is_some();
        let starting = tokio::task::spawn_blocking(move || {
            tasks.start_or_stop(&loaded)?;
            if serves_principals { tasks.start_principals(&loaded) } else { Ok(()) }
        });
        let result = starting.await;
        if let Ok(Err(error)) = result {
            warn(&format!("tasks don't run: {error}"));
        }
    }

    async fn read_ceilings(&self) -> Option<CeilingFiles> {
        let inputs = self.options.inputs().ok()?;
        tokio::task::spawn_blocking(move || CeilingFiles::read(&inputs)).await.ok()
    }

    /// Builds a host from the changed configuration.
    async fn build(
        &self,
        prepare: &impl Fn(Folders, Config) -> Result<PreparedHost, HostError>,
    ) -> Result<(Arc<Host>, Config), Error> {
        let options = self.options.clone();
        let folders = self.folders.clone();
        let loaded = tokio::task::spawn_blocking(move || host::load(&options, &folders))
            .await
            .map_err(|error| HostError::io("loading the configuration")(error.into()))??;
        let mut prepared = prepare(self.folders.clone(), loaded.clone())?;
        prepared.builder = prepared.builder.replaces(&self.live.current());
        let host = prepared.build().await?;
        // The current host answers until the new host is ready. A slow plugin must not delay a new
        // rule, so the wait has a limit.
        let _ = timeout(MAX_LOADING, host.ready()).await;
        Ok((host, loaded))
    }

    /// Returns the changed settings that need a restart.
    fn settings_that_need_restart(&self, loaded: &Config) -> Vec<&'static str> {
        let before = &self.loaded.values;
        let now = &loaded.values;
        let mut settings = Vec::new();
        // Only a running scheduler needs a restart, because a stopped scheduler gets the new limit
        // at its next start.
        let tasks_go_on = before.tools.scheduler.enabled && now.tools.scheduler.enabled;
        let has_other_limit = before.tools.scheduler.max_running != now.tools.scheduler.max_running;
        if tasks_go_on && has_other_limit {
            settings.push("max_running in [tools.scheduler]");
        }
        if before.serve != now.serve {
            settings.push("[serve]");
        }
        if before.approvals != now.approvals {
            settings.push("[approvals]");
        }
        settings
    }
}

fn warn(message: &str) {
    tracing::debug!("{message}");
    let _ = style::warn(message);
}
