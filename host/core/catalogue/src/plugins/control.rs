//! Lets a process ask a running host about its plugins. The connection is a socket in the data
//! folder, which only the user can open.
//!
//! A question is one line, and the answer is a JSON array. No state is in files, because files
//! could be outdated.

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

/// Time limit for one read or write.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time limit for loading changed plugins, which may have to be compiled.
const LOADING: Duration = Duration::from_secs(150);

/// Maximum length of a question in bytes. A longer question is cut.
const MAX_QUESTION: usize = 64;

const MAX_HOSTS: usize = 256;

/// Maximum length of an answer in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// A question to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Requests the states of the host's plugins.
    Plugins,
    /// Requests the states after reading all plugin files again, including files that failed
    /// before.
    Reload,
}

impl Ask {
    const ALL: [Self; 2] = [Self::Plugins, Self::Reload];

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

/// Sends `ask` to this user's running hosts, and returns the states of their plugins. Only hosts
/// that reload changed plugins answer. Blocks.
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

/// Asks the same hosts as [`ask_hosts`] a question of one line. Returns the process ID and the
/// answer of each host. Hosts that don't answer in time are omitted. Blocks.
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
    let folder_and_names = PrivateFolder::open(&path).and_then(|folder| {
        let names = folder.names(MAX_HOSTS)?;
        Ok((folder, names))
    });
    let (folder, names) = match folder_and_names {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let to_host_error = HostError::io(path.display().to_string());
            return Err(to_host_error(error));
        }
    };
    let mut answers = Vec::new();
    for name in &names {
        answers.extend(ask_one(&folder, name, question, patience));
    }
    Ok(answers)
}

/// Asks the host of the socket `name`. Returns the host's process ID and answer, or `None` without
/// an answer in time.
fn ask_one(
    folder: &PrivateFolder,
    name: &str,
    question: &str,
    patience: Duration,
) -> Option<(u32, Vec<u8>)> {
    let (pid_text, _number) = name.split_once('-')?;
    let pid = pid_text.parse().ok()?;
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

pub(super) struct Listener {
    socket: UnixListener,
    folder: PrivateFolder,
    name: String,
}

impl Listener {
    /// Opens the socket for questions. Each question waits until [`serve`](Self::serve) is called.
    pub(super) fn open(folders: &Folders) -> std::io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = PrivateFolder::make(&sockets_path(folders))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        // An ended process with the same ID may have left its socket.
        let _ = folder.remove(&name);
        let socket = UnixListener::bind(socket_path(&folder, &name))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, folder, name })
    }

    /// Answers all waiting questions. `answer` returns `None` for an unknown question.
    pub(super) fn serve(&self, mut answer: impl FnMut(&str) -> Option<Vec<u8>>) {
        while let Ok((stream, _)) = self.socket.accept() {
            // Ignore errors, because a process that breaks the protocol just gets no answer.
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
    while question.len() < MAX_QUESTION {
        let is_at_end = stream.read(&mut byte)? == 0;
        if is_at_end || byte == *b"\n" {
            break;
        }
        question.push(byte[0]);
    }
    let Ok(question) = std::str::from_utf8(&question) else { return Ok(()) };
    match answer(question) {
        Some(json) => stream.write_all(&json),
        None => Ok(()),
    }
}

fn sockets_path(folders: &Folders) -> PathBuf {
    folders.operator_data().join("hosts")
}

/// Returns a path of a socket that fits into a socket address. The folder's own path may be too
/// long.
fn socket_path(folder: &PrivateFolder, name: &str) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_fd().as_raw_fd().to_string()).join(name)
}
