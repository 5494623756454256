//! Follows the configuration while a server runs: a changed file counts for the next call.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_core::config::{self, Folders, Loaded, SYSTEM_CEILING};
use berth_core::{Host, HostBuilder, HostError};
use berth_mcp::LiveHost;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::sync::mpsc::Receiver;
use tokio::time::{sleep, timeout};

use crate::error::Error;
use crate::host;
use crate::options::Options;
use crate::style::{self, FAINT};

/// Time without changes before a change counts as complete.
const QUIET: Duration = Duration::from_millis(50);

/// The longest wait for that.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Delay before a wrong file is read again: it may be half written.
const AGAIN: Duration = Duration::from_millis(300);

/// The longest wait for the plugins of a new host.
const MAX_LOADING: Duration = Duration::from_secs(2);

/// Time between two looks whether a replaced host is still used.
const LOOK: Duration = Duration::from_secs(1);

/// A file at a moment: device, inode, size, and the times of the last modification and change.
/// `None`: it doesn't exist.
type FileState = Option<(u64, u64, u64, [i64; 2], [i64; 2])>;

/// Changes of the files that a configuration is read from.
pub(super) struct ConfigChanges(Receiver<()>);

/// The files, on a thread that sleeps until one changes.
struct ConfigFiles {
    files: Vec<PathBuf>,
    states: Vec<FileState>,
    changes: OwnedFd,
}

/// What a new host is made of.
pub(super) struct Follower {
    pub(super) options: Options,
    pub(super) folders: Folders,
    /// The configuration of the present host.
    pub(super) loaded: Loaded,
    pub(super) live: Arc<LiveHost>,
    /// Whether the client may be told what is wrong with the operator's file.
    pub(super) tells_client: bool,
}

impl ConfigChanges {
    /// Starts to watch. Call it before the configuration is loaded, so that no change is missed.
    pub(super) fn watch(options: &Options, folders: &Folders) -> Result<Self, Error> {
        let here = config::working_directory()?;
        let mut files = vec![
            here.join(options.config_file(folders)),
            here.join("berth.toml"),
            folders.data.join("trusted.json"),
            PathBuf::from(SYSTEM_CEILING),
        ];
        files.extend(std::env::var_os("BERTH_CEILING").map(|path| here.join(path)));
        let changes = inotify::init(CreateFlags::CLOEXEC)
            .map_err(|errno| HostError::io("watching the configuration")(errno.into()))?;
        let states = files.iter().map(|file| state(file)).collect();
        let mut watched = ConfigFiles { files, states, changes };
        watched.renew();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        // It lives as long as the process: a server does nothing after it has served.
        std::thread::Builder::new()
            .name("berth-config".to_owned())
            .spawn(
                move || {
                    while watched.wait_for_change().is_ok() && sender.blocking_send(()).is_ok() {}
                },
            )
            .map_err(HostError::io("watching the configuration"))?;
        Ok(Self(receiver))
    }
}

impl ConfigFiles {
    /// Watches the folders of the files, and those of what links lead to. A folder that doesn't
    /// exist is waited for in the nearest one that does.
    fn renew(&self) {
        let what = WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        let real = self.files.iter().filter_map(|file| file.canonicalize().ok());
        for file in self.files.iter().cloned().chain(real) {
            let found = file.ancestors().skip(1).find(|folder| {
                !matches!(
                    inotify::add_watch(&self.changes, *folder, what),
                    Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR)
                )
            });
            tracing::debug!(file = %file.display(), folder = ?found, "the configuration is watched");
        }
    }

    fn read_states(&self) -> Vec<FileState> {
        self.files.iter().map(|file| state(file)).collect()
    }

    /// Waits until a file is another one, or has other contents.
    fn wait_for_change(&mut self) -> io::Result<()> {
        loop {
            let mut end: Option<Instant> = None;
            loop {
                let quiet = end.map(|end| QUIET.min(end.saturating_duration_since(Instant::now())));
                let timeout = quiet.and_then(|quiet| Timespec::try_from(quiet).ok());
                match poll(&mut [PollFd::new(&self.changes, PollFlags::IN)], timeout.as_ref()) {
                    Ok(0) => break,
                    Ok(_) => {
                        // What has changed is looked up in the files themselves.
                        rustix::io::read(&self.changes, &mut [0; 4096])?;
                        if *end.get_or_insert_with(|| Instant::now() + MAX_DELAY) < Instant::now() {
                            break;
                        }
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            self.renew();
            let mut states = self.read_states();
            if states == self.states {
                continue;
            }
            // A file that is being written may hold only the beginning of its rules.
            let end = Instant::now() + MAX_DELAY;
            loop {
                std::thread::sleep(QUIET);
                let later = self.read_states();
                if later == states || Instant::now() >= end {
                    break;
                }
                states = later;
            }
            if states != self.states {
                self.states = states;
                return Ok(());
            }
        }
    }
}

fn state(file: &Path) -> FileState {
    let now = file.metadata().ok()?;
    let (modified, changed) = ([now.mtime(), now.mtime_nsec()], [now.ctime(), now.ctime_nsec()]);
    Some((now.dev(), now.ino(), now.len(), modified, changed))
}

impl Follower {
    /// Puts a new host in the place of the present one whenever the configuration changes. Wrong
    /// files change nothing.
    pub(super) async fn follow(
        mut self,
        mut changes: ConfigChanges,
        builder: impl Fn(Folders, Loaded) -> Result<HostBuilder, HostError>,
    ) {
        let mut told: Option<String> = None;
        while changes.0.recv().await.is_some() {
            let mut built = self.build(&builder).await;
            if built.is_err() {
                sleep(AGAIN).await;
                built = self.build(&builder).await;
            }
            match built {
                Ok((host, loaded)) => {
                    let restart = self.needs_restart(&loaded);
                    self.loaded = loaded;
                    retire(self.live.replace(Arc::new(host)));
                    told = None;
                    tracing::info!("the configuration has changed, and counts for the next call");
                    let _ = writeln!(
                        anstream::stderr(),
                        "{FAINT}the configuration has changed, and counts for the next call{FAINT:#}"
                    );
                    for table in restart {
                        warn(&format!("{table} has changed, which takes effect after a restart"));
                    }
                }
                Err(error) => {
                    let (_, Some(error)) = error.end() else { continue };
                    let reason = format!(
                        "the changed configuration is wrong, so what counted before still counts: {error}"
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

    async fn build(
        &self,
        builder: &impl Fn(Folders, Loaded) -> Result<HostBuilder, HostError>,
    ) -> Result<(Host, Loaded), Error> {
        let (options, folders) = (self.options.clone(), self.folders.clone());
        let loaded = tokio::task::spawn_blocking(move || host::load(&options, &folders))
            .await
            .map_err(|error| HostError::io("loading the configuration")(error.into()))??;
        let host = builder(self.folders.clone(), loaded.clone())?.build().await?;
        // The tools of the present host stay meanwhile. A plugin that takes long doesn't keep a new
        // rule from counting.
        let _ = timeout(MAX_LOADING, host.ready()).await;
        Ok((host, loaded))
    }

    /// The changed tables that a running server can't take over.
    fn needs_restart(&self, loaded: &Loaded) -> Vec<&'static str> {
        let (before, now) = (&self.loaded.config, &loaded.config);
        let mut tables = Vec::new();
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
