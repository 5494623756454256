//! Makes undo save files before a command changes them.
//!
//! The kernel stops each changing system call of the command and notifies the listener in this
//! module. The listener reads the path from the command's memory and resolves it in the command's
//! root directory. The recorder saves the object at the path. Then the call continues.
//!
//! Undo covers a path under three conditions. The path is in a tree that the command may write. The
//! mount in the command's view is writable. The host finds the same object at the same path, which
//! isn't so for a private `/tmp` or a covered file.
//!
//! A command with several threads can exchange a path between the check and the call. So this
//! module protects only against mistakes. The sandbox decides which changes are allowed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use toolhold_contract::{ChangeRecorder, ChangedPath};

use super::connections::CommandGate;
use crate::confine::raw::{self, CallAnswer, Notification};
use crate::confine::{CALLS, Target};

/// The kernel's limit for paths.
const MAX_PATH: usize = 4096;

/// The kernel's limit for links, used for links to a missing target.
const MAX_LINKS: usize = 40;

/// Bytes of the smallest page. A read of memory stops at the end of a page, because the next page
/// may be missing.
const PAGE: usize = 4096;

/// Bytes of a path that are read at once, enough for most paths.
const PATH_CHUNK: usize = 256;

/// How long the host waits for a rename, in steps.
const RENAME_STEPS: u32 = 2000;
const RENAME_STEP: Duration = Duration::from_micros(50);

/// Longest time for the killed processes of a command to end.
const ENDING: Duration = Duration::from_secs(5);

/// Serves the listener of one command on a separate thread.
///
/// Dropping this value waits for the killed processes of the command, because they may still change
/// files. Then the thread ends, and the notified calls of any remaining process fail.
pub(super) struct CallWatch {
    thread: Option<JoinHandle<()>>,
    /// Closing this tells the thread that the command has ended.
    running: Option<OwnedFd>,
}

impl CallWatch {
    /// Starts the watch. `writable` contains the trees that the command may write. `pinned`
    /// contains paths that the host created for the duration of the command.
    pub(super) fn start(
        listener: OwnedFd,
        recorder: Option<Arc<dyn ChangeRecorder>>,
        gate: Option<CommandGate>,
        writable: Vec<PathBuf>,
        pinned: Vec<PathBuf>,
    ) -> io::Result<Self> {
        // When the host closes `running`, the kernel reports this at `ended`.
        let (ended, running) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut watch = Watch { listener, recorder, gate, writable, pinned, rename: None };
        let thread = std::thread::Builder::new()
            .name("toolhold-changes".to_owned())
            .spawn(move || watch.serve(&ended))?;
        Ok(Self { thread: Some(thread), running: Some(running) })
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watch {
    listener: OwnedFd,
    /// `None` if no changes are recorded.
    recorder: Option<Arc<dyn ChangeRecorder>>,
    /// `None` if the host makes no connections for the command.
    gate: Option<CommandGate>,
    writable: Vec<PathBuf>,
    pinned: Vec<PathBuf>,
    /// The last rename, until its result is known.
    rename: Option<PendingRename>,
}

struct PendingRename {
    thread: u32,
    call: libc::c_long,
    from: PathBuf,
}

/// An object, or a free name, that the host and the command find at the same path. The handles
/// belong to the command's view.
struct HostEntry {
    path: PathBuf,
    object: Option<OwnedFd>,
    /// The directory of the name, if the path was resolved to a name in a directory.
    parent: Option<OwnedFd>,
}

impl HostEntry {
    /// Returns the entry for a change that affects the object but not its name. For a free name,
    /// the directory stays, because the change creates the object.
    fn without_its_name(self) -> Self {
        let parent = if self.object.is_none() { self.parent } else { None };
        Self { path: self.path, object: self.object, parent }
    }

    fn changed(&self) -> ChangedPath<'_> {
        ChangedPath {
            path: &self.path,
            object: self.object.as_ref().map(AsFd::as_fd),
            parent: self.parent.as_ref().map(AsFd::as_fd),
        }
    }
}

impl Watch {
    /// Answers the kernel until no process has the filter any more. After the command has ended,
    /// this takes at most [`ENDING`].
    fn serve(&mut self, ended: &OwnedFd) {
        let mut deadline: Option<Instant> = None;
        loop {
            let mut descriptors = vec![PollFd::new(&self.listener, PollFlags::IN)];
            let mut timeout = None;
            if let Some(deadline) = deadline {
                let remaining = deadline.saturating_duration_since(Instant::now());
                timeout = Timespec::try_from(remaining).ok();
            } else {
                descriptors.push(PollFd::new(ended, PollFlags::IN));
            }
            match poll(&mut descriptors, timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                // The deadline has passed, or the listener is broken.
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            // The second descriptor is polled only before the end of the command.
            let has_just_ended = descriptors.get(1).is_some_and(|fd| !fd.revents().is_empty());
            if has_just_ended {
                deadline = Some(Instant::now() + ENDING);
            }

            let events = descriptors[0].revents();
            if events.is_empty() {
                continue;
            }
            // The listener was closed by the kernel, because no process has the filter any more.
            if !events.contains(PollFlags::IN) {
                return;
            }
            // The read fails if the thread was killed meanwhile.
            let Ok(notification) = raw::next_notification(&self.listener) else { continue };
            let answer = match &self.gate {
                Some(gate) if notification.call == libc::SYS_connect => {
                    gate.connect(&self.listener, &notification)
                }
                _ => match self.handle(&notification) {
                    Ok(()) => CallAnswer::Continue,
                    Err(errno) => CallAnswer::Failed(errno),
                },
            };
            let _ = raw::answer_notification(&self.listener, notification.id, answer);
        }
    }

    /// Makes the recorder save the objects that the call changes. If this fails, the call fails
    /// too.
    fn handle(&mut self, notification: &Notification) -> Result<(), Errno> {
        let Some(recorder) = self.recorder.clone() else { return Ok(()) };
        self.wait_for_rename(notification);
        let Some((_, target)) = CALLS.iter().find(|(call, _)| *call == notification.call) else {
            return Ok(());
        };

        let process = Process { thread: notification.thread };
        let arguments = &notification.arguments;
        let entry = match *target {
            Target::Descriptor(index) => process.find_descriptor(arguments[index])?,
            Target::Open { directory, path, flags } => {
                let flags = arguments[flags] as libc::c_int;
                if flags & libc::O_TMPFILE == libc::O_TMPFILE {
                    // The new file has no name yet.
                    return Ok(());
                }
                let creates_only = libc::O_CREAT | libc::O_EXCL;
                let follow = flags & libc::O_NOFOLLOW == 0 && flags & creates_only != creates_only;
                process.find_argument(arguments, directory, path, follow)?
            }
            Target::Object { directory, path, nofollow } => {
                process.find_object(arguments, directory, path, nofollow)?
            }
            Target::Name { directory, path } => {
                process.find_argument(arguments, directory, path, false)?
            }
            Target::Socket { address, length } => {
                match process.socket_path(arguments[address], arguments[length])? {
                    Some(path) => process.find(&path, false)?,
                    None => None,
                }
            }
            Target::Link { directories, paths, flags } => {
                let [old_directory, new_directory] = each_directory(directories);
                let follow_old = flags
                    .is_some_and(|index| arguments[index] & libc::AT_SYMLINK_FOLLOW as u64 != 0);
                let old = process.find_argument(arguments, old_directory, paths[0], follow_old)?;
                let new = process.find_argument(arguments, new_directory, paths[1], false)?;
                self.ensure_waiting(notification)?;
                // The old name stays, so only the object itself changes there.
                let old = self.covered(old.map(HostEntry::without_its_name));
                let new = self.covered(new);
                if let (Some(old), Some(new)) = (&old, &new) {
                    return as_errno(recorder.before_link(&old.changed(), &new.changed()));
                }
                // If undo covers only one of the names, only this one is saved. A new file may have
                // no old name.
                old.or(new)
            }
            Target::Rename { directories, paths, flags } => {
                let exchange = u64::from(libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT);
                if flags.is_some_and(|index| arguments[index] & exchange != 0) {
                    // File systems that can't exchange names return the same error. Programs then
                    // rename in steps.
                    return Err(Errno::INVAL);
                }
                let [from_directory, to_directory] = each_directory(directories);
                let from = process.find_argument(arguments, from_directory, paths[0], false)?;
                let to = process.find_argument(arguments, to_directory, paths[1], false)?;
                self.ensure_waiting(notification)?;
                return self.rename(&*recorder, notification, from, to);
            }
        };

        self.ensure_waiting(notification)?;
        match self.covered(entry) {
            Some(entry) => save(&*recorder, &entry),
            None => Ok(()),
        }
    }

    /// Fails if the call no longer waits. Then another thread may have the same thread ID, and the
    /// paths may belong to that thread.
    fn ensure_waiting(&self, notification: &Notification) -> Result<(), Errno> {
        if raw::is_waiting(&self.listener, notification.id) { Ok(()) } else { Err(Errno::CANCELED) }
    }

    /// Saves what a rename will change. Remembers a rename inside of the trees until it is
    /// complete.
    fn rename(
        &mut self,
        recorder: &dyn ChangeRecorder,
        notification: &Notification,
        from: Option<HostEntry>,
        to: Option<HostEntry>,
    ) -> Result<(), Errno> {
        let from = self.covered(from);
        let to = self.covered(to);
        match (from, to) {
            (Some(from), Some(to)) if from.object.is_some() => {
                as_errno(recorder.before_rename(&from.changed(), &to.changed()))?;
                self.rename = Some(PendingRename {
                    thread: notification.thread,
                    call: notification.call,
                    from: from.path,
                });
                Ok(())
            }
            // One path is in a private folder, and the other is in a tree. Either the rename fails
            // between file systems, or only the path in the tree needs to be saved.
            (None, Some(to)) => save(recorder, &to),
            (Some(from), None) => save(recorder, &from),
            // There is no object at the old path, so the rename fails.
            (Some(_), Some(_)) => Ok(()),
            // Both paths are outside of the trees.
            (None, None) => Ok(()),
        }
    }

    /// Waits until the last rename has succeeded or failed. The rename may still run when the next
    /// notification arrives. The kernel doesn't report its end, so its thread is polled.
    fn wait_for_rename(&mut self, next_call: &Notification) {
        let Some(PendingRename { thread, call, from }) = self.rename.take() else { return };
        // A thread makes its next call only after the rename.
        if thread == next_call.thread {
            return;
        }
        // While a thread is in a call, its `syscall` file starts with the number of the call.
        let call_number = format!("{call} ");
        for _ in 0..RENAME_STEPS {
            let still_exists = rustix::fs::statat(CWD, &from, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            if !still_exists {
                return;
            }
            let Ok(state) = std::fs::read_to_string(format!("/proc/{thread}/syscall")) else {
                return;
            };
            // `running` means that the thread is on a processor, perhaps still in the call.
            let may_be_in_call = state.starts_with(&call_number) || state.starts_with("running");
            if !may_be_in_call {
                return;
            }
            std::thread::sleep(RENAME_STEP);
        }
    }

    fn covered(&self, entry: Option<HostEntry>) -> Option<HostEntry> {
        let entry = entry?;
        if self.covers(&entry) { Some(entry) } else { None }
    }

    /// Returns whether the command may change the entry, and the host didn't create the entry. The
    /// command can't change the name of a tree's root.
    fn covers(&self, entry: &HostEntry) -> bool {
        let mut changed_path = Some(entry.path.as_path());
        if entry.parent.is_some() {
            // A change of a name changes the parent directory.
            changed_path = entry.path.parent();
        }
        let Some(changed_path) = changed_path else { return false };
        let is_in_tree = self.writable.iter().any(|tree| changed_path.starts_with(tree));
        let is_pinned = self.pinned.iter().any(|pinned| entry.path.starts_with(pinned));
        if !is_in_tree || is_pinned {
            return false;
        }
        let handle = entry.object.as_ref().or(entry.parent.as_ref());
        handle.is_some_and(is_on_writable_mount)
    }
}

fn each_directory(directories: Option<[usize; 2]>) -> [Option<usize>; 2] {
    match directories {
        Some(indexes) => indexes.map(Some),
        None => [None; 2],
    }
}

fn save(recorder: &dyn ChangeRecorder, entry: &HostEntry) -> Result<(), Errno> {
    as_errno(recorder.before_change(&entry.changed()))
}

fn as_errno(answer: io::Result<()>) -> Result<(), Errno> {
    answer.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

struct Process {
    thread: u32,
}

impl Process {
    /// Finds the object whose path is an argument of a call. `directory` and `path` are indexes.
    /// Returns `None` if there is no path, or if the host doesn't find the same object.
    fn find_argument(
        &self,
        arguments: &[u64],
        directory: Option<usize>,
        path: usize,
        follow: bool,
    ) -> Result<Option<HostEntry>, Errno> {
        match self.argument_path(arguments, directory, path)? {
            Some(path) => self.find(&path, follow),
            None => Ok(None),
        }
    }

    /// Finds an object whose content or metadata a call changes. Without a path, the call changes
    /// the object of the descriptor `directory`. `directory`, `path` and `nofollow` are the indexes
    /// of arguments.
    fn find_object(
        &self,
        arguments: &[u64],
        directory: Option<usize>,
        path: usize,
        nofollow: Option<usize>,
    ) -> Result<Option<HostEntry>, Errno> {
        let Some(path) = self.argument_path(arguments, directory, path)? else {
            return match directory {
                Some(directory) => self.find_descriptor(arguments[directory]),
                None => Ok(None),
            };
        };
        let flag = libc::AT_SYMLINK_NOFOLLOW as u64;
        let has_flag = nofollow.is_some_and(|index| arguments[index] & flag != 0);
        // With a slash at its end, a path means the directory behind a link, in spite of the flag.
        let has_slash = path.as_os_str().as_bytes().ends_with(b"/");
        let follow = has_slash || !has_flag;
        let entry = self.find(&path, follow)?;
        // The call doesn't change the name of the object.
        Ok(entry.map(HostEntry::without_its_name))
    }

    /// Reads a path argument of a call, and makes the path absolute in the command's root
    /// directory. `directory` and `path` are the indexes of arguments. Returns `None` if the
    /// address is zero, or the directory was removed.
    fn argument_path(
        &self,
        arguments: &[u64],
        directory: Option<usize>,
        path: usize,
    ) -> Result<Option<PathBuf>, Errno> {
        let address = arguments[path];
        if address == 0 {
            return Ok(None);
        }
        let descriptor = directory.map(|index| arguments[index]);
        self.absolute_path(descriptor, self.read_path(address)?)
    }

    /// Reads the path in the address of a socket. Returns `None` if the socket isn't in a file
    /// system.
    fn socket_path(&self, address: u64, length: u64) -> Result<Option<PathBuf>, Errno> {
        // The address of a Unix socket has two bytes for the family, and then the path.
        let mut bytes = [0; size_of::<libc::sockaddr_un>()];
        // Longer addresses belong to other families.
        let used_length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
        let memory = self.open_memory()?;
        let read = memory.read_at(&mut bytes[..used_length], address).map_err(|_| Errno::FAULT)?;
        let Some((family, rest)) = bytes[..read].split_first_chunk() else { return Ok(None) };
        if i32::from(u16::from_ne_bytes(*family)) != libc::AF_UNIX {
            return Ok(None);
        }
        // The path ends before the first NUL byte. A name that starts with NUL isn't a path.
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let path = &rest[..end];
        if path.is_empty() {
            return Ok(None);
        }
        // A relative path starts at the working directory.
        let directory = None;
        self.absolute_path(directory, OsStr::from_bytes(path).into())
    }

    /// Makes a path absolute, from the descriptor `directory` or from the working directory.
    /// Returns `None` if the directory was removed.
    fn absolute_path(
        &self,
        directory: Option<u64>,
        path: PathBuf,
    ) -> Result<Option<PathBuf>, Errno> {
        if path.is_absolute() {
            return Ok(Some(path));
        }
        // The kernel reads only the lower half of the argument.
        let descriptor = directory.map_or(libc::AT_FDCWD, |directory| directory as i32);
        let link = if descriptor == libc::AT_FDCWD {
            format!("/proc/{}/cwd", self.thread)
        } else {
            format!("/proc/{}/fd/{descriptor}", self.thread)
        };
        let base = link_target(&link)?;
        // With `AT_EMPTY_PATH`, an empty path means the descriptor itself.
        let absolute = if path.as_os_str().is_empty() { base } else { base.join(path) };
        if absolute.is_absolute() { Ok(Some(absolute)) } else { Ok(None) }
    }

    fn open_memory(&self) -> Result<File, Errno> {
        File::open(format!("/proc/{}/mem", self.thread)).map_err(|_| Errno::FAULT)
    }

    /// Reads a path that ends with a NUL byte from the command's memory.
    fn read_path(&self, mut address: u64) -> Result<PathBuf, Errno> {
        let memory = self.open_memory()?;
        let mut path = Vec::new();
        while path.len() < MAX_PATH {
            let mut chunk = [0; PATH_CHUNK];
            let offset_in_page = address as usize % PAGE;
            let rest_of_page = PAGE - offset_in_page;
            let length = rest_of_page.min(chunk.len());
            let read = memory.read_at(&mut chunk[..length], address).map_err(|_| Errno::FAULT)?;
            if read == 0 {
                return Err(Errno::FAULT);
            }
            if let Some(end) = chunk[..read].iter().position(|byte| *byte == 0) {
                path.extend_from_slice(&chunk[..end]);
                return Ok(OsString::from_vec(path).into());
            }
            path.extend_from_slice(&chunk[..read]);
            address += read as u64;
        }
        Err(Errno::NAMETOOLONG)
    }

    fn find_descriptor(&self, descriptor: u64) -> Result<Option<HostEntry>, Errno> {
        let link = format!("/proc/{}/fd/{}", self.thread, descriptor as i32);
        let path = link_target(&link)?;
        let object = rustix::fs::openat(CWD, &link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(host_object(path, object))
    }

    /// Finds the object of a path in the command's root directory, or the path at which it would be
    /// created. Returns `None` if the host doesn't find the same object at this path.
    ///
    /// Fails like the command's call would. For a path through another process, which can't be
    /// followed, the error is `EACCES`.
    fn find(&self, path: &Path, follow: bool) -> Result<Option<HostEntry>, Errno> {
        let root = rustix::fs::openat(
            CWD,
            format!("/proc/{}/root", self.thread),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            match special_path(&path) {
                Some(Special::Descriptor(descriptor)) => return self.find_descriptor(descriptor),
                Some(Special::Below { folder, rest }) => {
                    path = link_target(&format!("/proc/{}/{folder}", self.thread))?.join(rest);
                    continue;
                }
                Some(Special::Unfollowed) => return Err(Errno::ACCESS),
                Some(Special::Device) => return Ok(None),
                None => {}
            }

            if follow {
                match resolve(&root, &path, OFlags::empty()) {
                    Ok(object) => return Ok(host_object(real_path(&object)?, object)),
                    Err(Errno::NOENT | Errno::LOOP | Errno::XDEV) => {}
                    Err(errno) => return Err(errno),
                }
            }
            let (Some(parent), Some(Component::Normal(name))) =
                (path.parent(), path.components().next_back())
            else {
                // The path ends with `.` or `..`, so it means the directory itself.
                let object = resolve(&root, &path, OFlags::empty())?;
                return Ok(host_object(real_path(&object)?, object));
            };

            let directory = resolve(&root, parent, OFlags::DIRECTORY)?;
            let real = real_path(&directory)?.join(name);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let object = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
                Ok(object) => Some(object),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno),
            };
            if follow
                && let Some(link) = &object
                && is_link(link)?
            {
                let target = rustix::fs::readlinkat(link, "", Vec::new())?;
                let folder = real.parent().unwrap_or(&real);
                path = folder.join(OsStr::from_bytes(target.as_bytes()));
                continue;
            }
            return Ok(host_entry(directory, real, object));
        }
        Err(Errno::LOOP)
    }
}

/// A path that means something else for the host than for the command.
enum Special {
    Descriptor(u64),
    /// A path below a folder that the command itself has open, such as `cwd`, `root` or `fd/3`.
    Below {
        folder: String,
        rest: PathBuf,
    },
    Unfollowed,
    /// A device, or a setting of the kernel.
    Device,
}

/// Parses a path in `/proc` or `/dev` that means something else in each process. Returns `None` for
/// other paths.
fn special_path(path: &Path) -> Option<Special> {
    let names: Vec<&str> = path
        .components()
        .filter_map(|component| match component {
            // All names below are ASCII, so another text is equal to no name below.
            Component::Normal(name) => Some(name.to_str().unwrap_or("")),
            Component::ParentDir => Some(".."),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    // The numbers count the first components, up to the folder and including the root directory.
    match &names[..] {
        ["dev", "stdin"] => Some(Special::Descriptor(0)),
        ["dev", "stdout"] => Some(Special::Descriptor(1)),
        ["dev", "stderr"] => Some(Special::Descriptor(2)),
        ["dev", "fd", descriptor] => Some(special_descriptor(descriptor)),
        ["dev", "stdin", ..] => Some(special_below(path, "fd/0".to_owned(), 3)),
        ["dev", "stdout", ..] => Some(special_below(path, "fd/1".to_owned(), 3)),
        ["dev", "stderr", ..] => Some(special_below(path, "fd/2".to_owned(), 3)),
        ["dev", "fd", descriptor, ..] if descriptor.parse::<u32>().is_ok() => {
            Some(special_below(path, format!("fd/{descriptor}"), 4))
        }
        ["dev", "shm", ..] => None,
        ["dev", names @ ..] if !names.contains(&"..") => Some(Special::Device),
        ["proc", "self" | "thread-self", "fd", descriptor] => Some(special_descriptor(descriptor)),
        ["proc", "self" | "thread-self", folder @ ("cwd" | "root"), ..] => {
            Some(special_below(path, (*folder).to_owned(), 4))
        }
        ["proc", "self" | "thread-self", "fd", descriptor, ..]
            if descriptor.parse::<u32>().is_ok() =>
        {
            Some(special_below(path, format!("fd/{descriptor}"), 5))
        }
        ["proc", names @ ..] if names.iter().any(|name| leads_into_process(name)) => {
            Some(Special::Unfollowed)
        }
        ["proc", ..] => Some(Special::Device),
        _ => None,
    }
}

/// Checks whether a name in `/proc` may lead to a descriptor or a directory of a process.
fn leads_into_process(name: &str) -> bool {
    matches!(name, "fd" | "cwd" | "root" | "map_files" | "task" | "..")
}

fn special_descriptor(name: &str) -> Special {
    name.parse().map_or(Special::Unfollowed, Special::Descriptor)
}

/// Returns a path below a folder. `before` is the number of components up to the folder, including
/// the root directory.
fn special_below(path: &Path, folder: String, before: usize) -> Special {
    Special::Below { rest: path.components().skip(before).collect(), folder }
}

/// Resolves a path in the command's root directory without leaving it.
fn resolve(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    // A path without a slash is already relative to the root.
    let mut below = path.strip_prefix("/").unwrap_or(path);
    if below.as_os_str().is_empty() {
        below = Path::new(".");
    }
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(root, below, flags, Mode::empty(), resolve) {
            // The kernel gives up if a directory on the way is renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

fn link_target(link: &str) -> Result<PathBuf, Errno> {
    let target = rustix::fs::readlinkat(CWD, link, Vec::new())?;
    Ok(OsStr::from_bytes(target.as_bytes()).into())
}

fn real_path(object: &OwnedFd) -> Result<PathBuf, Errno> {
    link_target(&format!("/proc/self/fd/{}", object.as_raw_fd()))
}

fn is_link(object: &OwnedFd) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH)?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink())
}

fn is_on_writable_mount(handle: &OwnedFd) -> bool {
    let Ok(mount) = rustix::fs::fstatvfs(handle) else { return false };
    !mount.f_flag.contains(StatVfsMountFlags::RDONLY)
}

/// Makes an entry for an object of the command. Returns `None` if the host doesn't find the same
/// object at the same path.
fn host_object(path: PathBuf, object: OwnedFd) -> Option<HostEntry> {
    let for_command = rustix::fs::statat(&object, "", AtFlags::EMPTY_PATH).ok()?;
    let for_host = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if !is_same(&for_command, &for_host) {
        return None;
    }
    Some(HostEntry { path, object: Some(object), parent: None })
}

/// Makes an entry for an object or a free name in a directory of the command. Returns `None` if
/// the host finds another object or directory at the same path.
fn host_entry(directory: OwnedFd, path: PathBuf, object: Option<OwnedFd>) -> Option<HostEntry> {
    let mut entry = match object {
        Some(object) => host_object(path, object)?,
        None if is_free_for_host(&directory, &path) => {
            HostEntry { path, object: None, parent: None }
        }
        None => return None,
    };
    entry.parent = Some(directory);
    Some(entry)
}

/// Checks whether a name that is free for the command is also free for the host, in the same
/// directory. `directory` is the directory in which the command sees the name.
fn is_free_for_host(directory: &OwnedFd, path: &Path) -> bool {
    // The view of the command can hide an object that exists outside.
    let object = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    if !matches!(object, Err(Errno::NOENT)) {
        return false;
    }
    // The root directory exists, so the path has a parent.
    let Some(parent) = path.parent() else { return false };
    let Ok(for_command) = rustix::fs::statat(directory, "", AtFlags::EMPTY_PATH) else {
        return false;
    };
    let Ok(for_host) = rustix::fs::statat(CWD, parent, AtFlags::SYMLINK_NOFOLLOW) else {
        return false;
    };
    is_same(&for_command, &for_host)
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    one.st_dev == other.st_dev && one.st_ino == other.st_ino
}
