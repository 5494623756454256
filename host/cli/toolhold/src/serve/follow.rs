//! Follows the configuration while a server runs: a changed file applies to the next call, and a
//! changed ceiling with errors stops all calls.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::{sleep, timeout};
use toolhold_core::config::{CeilingFiles, Config, ConfigWatch, Folders};
use toolhold_core::{Host, HostError};
use toolhold_mcp_server::LiveHost;

use super::PreparedHost;
use crate::error::Error;
use crate::host;
use crate::options::Options;
use crate::style::{self, FAINT};
use crate::tasks::command::ServedTasks;

/// Delay before a wrong file is read again: it may be half written.
const AGAIN: Duration = Duration::from_millis(300);

/// The longest wait for the plugins of a new host.
const MAX_LOADING: Duration = Duration::from_secs(2);

/// Time between two looks whether a replaced host is still used.
const LOOK: Duration = Duration::from_secs(1);

/// Changes of the files that a configuration is read from.
pub(super) struct ConfigChanges {
    changes: Receiver<()>,
    /// The ceilings of the present host.
    ceilings: CeilingFiles,
}

/// Makes a new host when the configuration changes.
pub(super) struct Follower {
    pub(super) options: Options,
    pub(super) folders: Folders,
    pub(super) tasks: Arc<ServedTasks>,
    /// The configuration of the present host.
    pub(super) loaded: Config,
    pub(super) live: Arc<LiveHost>,
    /// Whether the client may be told what is wrong with the operator's file.
    pub(super) tells_client: bool,
}

impl ConfigChanges {
    /// Starts to watch. Call it before the configuration is loaded, so that no change is missed.
    pub(super) fn watch(options: &Options, folders: &Folders) -> Result<Self, Error> {
        let inputs = options.inputs()?;
        let mut watched = ConfigWatch::new(folders, &inputs)?;
        let ceilings = CeilingFiles::read(&inputs);
        let (sender, changes) = tokio::sync::mpsc::channel(1);
        // It lives as long as the process: a server does nothing after it has served.
        std::thread::Builder::new()
            .name("toolhold-config".to_owned())
            .spawn(
                move || {
                    while watched.wait_for_change().is_ok() && sender.blocking_send(()).is_ok() {}
                },
            )
            .map_err(HostError::io("watching the configuration"))?;
        Ok(Self { changes, ceilings })
    }
}

impl Follower {
    /// Puts a new host in the place of the present one whenever the configuration changes. Wrong
    /// files change nothing.
    pub(super) async fn follow(
        mut self,
        mut changes: ConfigChanges,
        prepare: impl Fn(Folders, Config) -> Result<PreparedHost, HostError>,
    ) {
        let mut told: Option<String> = None;
        while changes.changes.recv().await.is_some() {
            let mut ceilings = self.read_ceilings().await;
            let mut built = self.build(&prepare).await;
            if built.is_err() {
                sleep(AGAIN).await;
                ceilings = self.read_ceilings().await;
                built = self.build(&prepare).await;
            }
            match built {
                Ok((host, loaded)) => {
                    let restart = self.needs_restart(&loaded);
                    self.loaded = loaded;
                    self.follow_tasks().await;
                    retire(self.live.replace(host));
                    told = None;
                    changes.ceilings = ceilings.unwrap_or(changes.ceilings);
                    tracing::info!("the configuration has changed and applies from the next call");
                    let _ = writeln!(
                        anstream::stderr(),
                        "{FAINT}the configuration has changed and applies from the next \
                         call{FAINT:#}"
                    );
                    for table in restart {
                        warn(&format!(
                            "{table} has changed; the change takes effect after a restart"
                        ));
                    }
                }
                Err(error) => {
                    let (_, Some(error)) = error.end() else { continue };
                    // The old ceiling no longer applies, whatever the fault of the new ceiling is.
                    if ceilings.as_ref() != Some(&changes.ceilings) {
                        let reason = format!(
                            "the ceiling has changed and the configuration is invalid, so no call \
                             runs until it is fixed: {error}"
                        );
                        self.live.refuse_calls(&reason);
                        if told.as_ref() != Some(&reason) {
                            warn(&reason);
                            told = Some(reason);
                        }
                        continue;
                    }
                    let reason = format!(
                        "the changed configuration is invalid, so the previous one stays in use: \
                         {error}"
                    );
                    if told.as_ref() != Some(&reason) {
                        warn(&reason);
                        if self.tells_client {
                            self.live.tell(reason.clone());
                        }
                        told = Some(reason);
                    }
                }
            }
        }
    }

    /// Starts or stops running tasks, as the configuration now says.
    async fn follow_tasks(&self) {
        let tasks = Arc::clone(&self.tasks);
        let loaded = self.loaded.clone();
        let followed = tokio::task::spawn_blocking(move || tasks.follow(&loaded)).await;
        if let Ok(Err(error)) = followed {
            warn(&format!("tasks don't run: {error}"));
        }
    }

    /// The files of the ceilings. `None`: the files are unknown.
    async fn read_ceilings(&self) -> Option<CeilingFiles> {
        let inputs = self.options.inputs().ok()?;
        tokio::task::spawn_blocking(move || CeilingFiles::read(&inputs)).await.ok()
    }

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
        // The tools of the present host stay meanwhile. A slow plugin doesn't delay a new rule.
        let _ = timeout(MAX_LOADING, host.ready()).await;
        Ok((host, loaded))
    }

    /// The changed tables that a running server can't take over.
    fn needs_restart(&self, loaded: &Config) -> Vec<&'static str> {
        let before = &self.loaded.values;
        let now = &loaded.values;
        let mut tables = Vec::new();
        let [before_tasks, now_tasks] = [before, now].map(|config| config.tools.scheduler);
        if before_tasks.max_running != now_tasks.max_running
            && before_tasks.enabled
            && now_tasks.enabled
        {
            tables.push("max_running in [tools.scheduler]");
        }
        if before.serve != now.serve {
            tables.push("[serve]");
        }
        if before.approvals != now.approvals {
            tables.push("[approvals]");
        }
        tables
    }
}

fn warn(what: &str) {
    tracing::debug!("{what}");
    let _ = style::warn(what);
}

/// Drops a host once its last call has ended, on a thread that may block.
fn retire(host: Arc<Host>) {
    tokio::spawn(async move {
        while Arc::strong_count(&host) > 1 {
            sleep(LOOK).await;
        }
        let _ = tokio::task::spawn_blocking(move || drop(host)).await;
    });
}
