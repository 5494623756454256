//! Lets a process ask a host in another process about its plugins and other data of the host. The
//! connection is a socket in the data folder, which only the folder's user can open.
//!
//! A question is one line, and the answer is one JSON array. A host answers while it runs, so there
//! are no state files that could be outdated.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use toolhold_config::Folders;
use toolhold_contract::HostError;
use toolhold_data_dir::PrivateFolder;

use super::PluginState;

/// Time limit for one read or write of the other process.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time limit for loading changed plugins. Compiling a component takes a while.
const LOADING: Duration = Duration::from_secs(150);

/// Most bytes of a question.
const MAX_QUESTION: usize = 64;

/// Most hosts that are asked.
const MAX_HOSTS: usize = 256;

/// Most bytes of an answer.
const MAX_ANSWER: u64 = 16 << 20;

/// A question to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Requests the states of the host's plugins.
    Plugins,
    /// Requests the states after the host has read its plugins' files again, including failed ones.
    Reload,
}

impl Ask {
    const ALL: [Self; 2] = [Self::Plugins, Self::Reload];

    /// Returns the question that has this word.
    pub(super) fn parse(question: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ask| ask.word() == question)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Plugins => "plugins",
            Self::Reload => "reload",
        }
    }
}

/// The answer of a running host.
#[derive(Clone, Debug, Serialize)]
pub struct HostPlugins {
    /// The host's process ID.
    pub pid: u32,
    /// The states of the host's plugins.
    pub plugins: Vec<PluginState>,
}

/// Asks all running hosts of this user that watch their plugins. Hosts that don't answer are
/// omitted. Blocks.
///
/// # Errors
///
/// [`HostError`] if other users can write to the folder of the sockets.
pub fn ask_hosts(folders: &Folders, ask: Ask) -> Result<Vec<HostPlugins>, HostError> {
    let patience = if ask == Ask::Reload { LOADING } else { PATIENCE };
    let mut hosts = Vec::new();
    for (pid, answer) in ask_each(folders, ask.word(), patience)? {
        if let Ok(plugins) = serde_json::from_slice(&answer) {
            hosts.push(HostPlugins { pid, plugins });
        }
    }
    Ok(hosts)
}

/// Asks all running hosts of this user that watch their plugins a question of one line. Returns the
/// answers with the process IDs. Hosts that don't answer in time are omitted. Blocks.
///
/// # Errors
///
/// Returns the same errors as [`ask_hosts`].
pub fn ask_each(
    folders: &Folders,
    question: &str,
    patience: Duration,
) -> Result<Vec<(u32, Vec<u8>)>, HostError> {
    let path = sockets_path(folders);
    let sockets = PrivateFolder::open(&path).and_then(|folder| {
        let names = folder.names(MAX_HOSTS)?;
        Ok((folder, names))
    });
    match sockets {
        Ok((folder, names)) => {
            Ok(names.iter().filter_map(|name| ask_one(&folder, name, question, patience)).collect())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(HostError::io(path.display().to_string())(error)),
    }
}

/// Asks the host of one socket. Returns its process ID and its answer, or `None` if there is no
/// answer.
fn ask_one(
    folder: &PrivateFolder,
    name: &str,
    question: &str,
    patience: Duration,
) -> Option<(u32, Vec<u8>)> {
    let pid = name.split_once('-')?.0.parse().ok()?;
    let Ok(mut stream) = UnixStream::connect(socket_path(folder, name)) else {
        // The host ended without removing its socket.
        let _ = folder.remove(name);
        return None;
    };
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    writeln!(stream, "{question}").ok()?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).ok()?;
    Some((pid, answer))
}

/// The socket on which a host receives questions.
pub(super) struct Listener {
    socket: UnixListener,
    folder: PrivateFolder,
    name: String,
}

impl Listener {
    /// Starts to listen. Questions wait until [`serve`](Self::serve) answers them.
    pub(super) fn open(folders: &Folders) -> std::io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = PrivateFolder::make(&sockets_path(folders))?;
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // An ended process with the same ID may have left its socket.
        let _ = folder.remove(&name);
        let socket = UnixListener::bind(socket_path(&folder, &name))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, folder, name })
    }

    /// Answers all waiting questions. `answer` returns `None` for an unknown question.
    pub(super) fn serve(&self, mut answer: impl FnMut(&str) -> Option<Vec<u8>>) {
        while let Ok((stream, _)) = self.socket.accept() {
            // A process that breaks the protocol gets no answer.
            let _ = serve_one(stream, &mut answer);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.name);
    }
}

fn serve_one(
    mut stream: UnixStream,
    answer: &mut impl FnMut(&str) -> Option<Vec<u8>>,
) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut question = Vec::new();
    let mut byte = [0];
    while question.len() < MAX_QUESTION && stream.read(&mut byte)? == 1 && byte != *b"\n" {
        question.push(byte[0]);
    }
    match std::str::from_utf8(&question).ok().and_then(answer) {
        Some(answer) => stream.write_all(&answer),
        None => Ok(()),
    }
}

fn sockets_path(folders: &Folders) -> PathBuf {
    folders.data.join("hosts")
}

/// Returns the path of a socket in an open folder. The path is short enough for a socket's address,
/// even if the folder's own path is long.
fn socket_path(folder: &PrivateFolder, name: &str) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_fd().as_raw_fd().to_string()).join(name)
}
