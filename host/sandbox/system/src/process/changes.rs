//! Has undo save what a command is about to change in files, before the command's system call goes
//! on.
//!
//! The kernel stops each such system call of the command and asks the listener here. The path is
//! read from the command's memory and resolved in its own root directory; the recorder saves what
//! has the path; then the call goes on. A path is covered if it lies in a tree that the command may
//! write, if the mount that the command sees it in is writable, and if the host finds the same
//! object by the same path: a private `/tmp` or a covered file is another object. A command with
//! several threads can exchange a path between the check and the call, so this keeps what was
//! changed by mistake. It is no wall: what may be changed is decided by the sandbox.

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

use crate::confine::raw::{self, Notification};
use crate::confine::{CALLS, Target};

/// Longest path, by the kernel.
const MAX_PATH: usize = 4096;

/// Links to a missing target that are followed, as by the kernel.
const MAX_LINKS: usize = 40;

/// Size of a page, at most: a read of memory must not reach into the next page, which may be
/// missing.
const PAGE: u64 = 4096;

/// How long a rename may be on its way, in steps.
const RENAME_STEPS: u32 = 2000;
const RENAME_STEP: Duration = Duration::from_micros(50);

/// Longest time that the processes of a command take to end after they were killed.
const ENDING: Duration = Duration::from_secs(5);

/// Serves the listener of one command on a thread of its own. Dropping it waits for the end of its
/// processes, which were killed: until then, they may still change something. Then it ends the
/// thread; changing calls of processes that are left fail.
pub(super) struct ChangeWatch {
    thread: Option<JoinHandle<()>>,
    /// The command has ended when this is closed.
    running: Option<OwnedFd>,
}

impl ChangeWatch {
    /// `writable`: the trees that the command may write. `pinned`: paths that the host put there
    /// for the time of the command.
    pub(super) fn start(
        listener: OwnedFd,
        recorder: Arc<dyn ChangeRecorder>,
        writable: Vec<PathBuf>,
        pinned: Vec<PathBuf>,
    ) -> io::Result<Self> {
        let (ended, running) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut watch = Watch { listener, recorder, writable, pinned, rename: None };
        let thread = std::thread::Builder::new()
            .name("toolhold-changes".to_owned())
            .spawn(move || watch.serve(&ended))?;
        Ok(Self { thread: Some(thread), running: Some(running) })
    }
}

impl Drop for ChangeWatch {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watch {
    listener: OwnedFd,
    recorder: Arc<dyn ChangeRecorder>,
    /// The trees that the command may write.
    writable: Vec<PathBuf>,
    /// The objects that the host put there.
    pinned: Vec<PathBuf>,
    /// The last rename, until it is known whether it was made.
    rename: Option<PendingRename>,
}

struct PendingRename {
    thread: u32,
    call: libc::c_long,
    from: PathBuf,
}

/// An object, or a free name, that the host finds by the same path as the command. The handles are
/// those of the command's own view.
struct Found {
    path: PathBuf,
    object: Option<OwnedFd>,
    /// The directory of the name, if the path was found by its name in it.
    parent: Option<OwnedFd>,
}

impl Found {
    /// The object alone, if there is one.
    fn without_its_name(self) -> Self {
        let parent = if self.object.is_none() { self.parent } else { None };
        Self { parent, ..self }
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
    fn serve(&mut self, ended: &OwnedFd) {
        let mut end: Option<Instant> = None;
        loop {
            let mut ready =
                vec![PollFd::new(&self.listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            let mut timeout = None;
            if let Some(end) = end {
                ready.truncate(1);
                let left = end.saturating_duration_since(Instant::now());
                timeout = Timespec::try_from(left).ok();
            }
            match poll(&mut ready, timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let notified = ready[0].revents();
            if ready.get(1).is_some_and(|ended| !ended.revents().is_empty()) {
                end = Some(Instant::now() + ENDING);
            }
            if notified.is_empty() {
                continue;
            }
            // Without a call, no process has the filter any more.
            if !notified.contains(PollFlags::IN) {
                return;
            }
            // It fails if the thread was killed meanwhile.
            let Ok(notification) = raw::next_notification(&self.listener) else { continue };
            let answer = self.handle(&notification);
            let _ = raw::answer_notification(&self.listener, notification.id, answer);
        }
    }

    /// Has the recorder save the objects that the call changes. An error fails the call.
    fn handle(&mut self, notification: &Notification) -> Result<(), Errno> {
        self.wait_for_rename(notification);
        let Some((_, target)) = CALLS.iter().find(|(call, _)| *call == notification.call) else {
            return Ok(());
        };
        let process = Process { thread: notification.thread };
        let arguments = &notification.arguments;
        let lookup = match *target {
            Target::Descriptor(index) => process.descriptor(arguments[index]),
            Target::Open { directory, path, flags } => {
                let flags = arguments[flags] as libc::c_int;
                let creates_only = libc::O_CREAT | libc::O_EXCL;
                let follow = flags & libc::O_NOFOLLOW == 0 && flags & creates_only != creates_only;
                if flags & libc::O_TMPFILE == libc::O_TMPFILE {
                    // It has no name yet.
                    return Ok(());
                }
                process
                    .argument_path(arguments, directory, path)?
                    .map_or(Ok(None), |path| process.find(&path, follow))
            }
            Target::Object { directory, path, nofollow } => {
                let flag = libc::AT_SYMLINK_NOFOLLOW as u64;
                let follow = nofollow.is_none_or(|index| arguments[index] & flag == 0);
                match process.argument_path(arguments, directory, path)? {
                    // The name of the object stays, so its directory doesn't matter.
                    Some(path) => process
                        .find(&path, follow || path.as_os_str().as_bytes().ends_with(b"/"))
                        .map(|found| found.map(Found::without_its_name)),
                    // Without a path, the descriptor is meant.
                    None => directory
                        .map_or(Ok(None), |directory| process.descriptor(arguments[directory])),
                }
            }
            Target::Name { directory, path } => process
                .argument_path(arguments, directory, path)?
                .map_or(Ok(None), |path| process.find(&path, false)),
            Target::Socket { address, length } => process
                .socket(arguments[address], arguments[length])?
                .map_or(Ok(None), |path| process.find(&path, false)),
            Target::Link { directories, paths, flags } => {
                let [old, new] = [0, 1].map(|side| {
                    let directory = directories.map(|directories| directories[side]);
                    let follow = side == 0
                        && flags.is_some_and(|index| {
                            arguments[index] & libc::AT_SYMLINK_FOLLOW as u64 != 0
                        });
                    process
                        .argument_path(arguments, directory, paths[side])?
                        .map_or(Ok(None), |path| process.find(&path, follow))
                });
                // A file without a name is new.
                // The old name stays.
                let old = old?.map(Found::without_its_name).filter(|old| self.covers(old));
                let new = new?.filter(|new| self.covers(new));
                if let (Some(old), Some(new)) = (&old, &new) {
                    return saved(self.recorder.before_link(&old.changed(), &new.changed()));
                }
                Ok(old.or(new))
            }
            Target::Rename { directories, paths, flags } => {
                let exchange = u64::from(libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT);
                if flags.is_some_and(|index| arguments[index] & exchange != 0) {
                    // As on a file system that can't; programs then rename in steps.
                    return Err(Errno::INVAL);
                }
                let [from, to] = [0, 1].map(|side| {
                    let directory = directories.map(|directories| directories[side]);
                    process
                        .argument_path(arguments, directory, paths[side])?
                        .map_or(Ok(None), |path| process.find(&path, false))
                });
                let from = from?;
                let to = to?;
                raw::is_waiting(&self.listener, notification.id)
                    .then_some(())
                    .ok_or(Errno::CANCELED)?;
                return self.rename(notification, from, to);
            }
        };
        let found = lookup?;
        if !raw::is_waiting(&self.listener, notification.id) {
            return Err(Errno::CANCELED);
        }
        match found {
            Some(found) if self.covers(&found) => self.save(&found),
            _ => Ok(()),
        }
    }

    fn save(&self, found: &Found) -> Result<(), Errno> {
        saved(self.recorder.before_change(&found.changed()))
    }

    fn rename(
        &mut self,
        notification: &Notification,
        from: Option<Found>,
        to: Option<Found>,
    ) -> Result<(), Errno> {
        let from = from.filter(|found| self.covers(found));
        let to = to.filter(|found| self.covers(found));
        match (from, to) {
            (Some(from), Some(to)) if from.object.is_some() => {
                saved(self.recorder.before_rename(&from.changed(), &to.changed()))?;
                self.rename = Some(PendingRename {
                    thread: notification.thread,
                    call: notification.call,
                    from: from.path,
                });
                Ok(())
            }
            // From a private folder into a tree, or the other way: not one file system,
            // or nothing that is saved.
            (None, Some(to)) => self.save(&to),
            (Some(from), None) => self.save(&from),
            _ => Ok(()),
        }
    }

    /// Waits until the last rename was made or failed: it runs at the same time as the next
    /// notification.
    fn wait_for_rename(&mut self, next: &Notification) {
        let Some(PendingRename { thread, call, from }) = self.rename.take() else { return };
        if thread == next.thread {
            return;
        }
        let running = format!("{call} ");
        for _ in 0..RENAME_STEPS {
            let is_there = rustix::fs::statat(CWD, &from, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            let state = std::fs::read_to_string(format!("/proc/{thread}/syscall"));
            // `running`: it is on a processor, perhaps in the call.
            let in_call = state
                .is_ok_and(|state| state.starts_with(&running) || state.starts_with("running"));
            if !is_there || !in_call {
                return;
            }
            std::thread::sleep(RENAME_STEP);
        }
    }

    /// Whether the command may make the change, and the path isn't the host's own. The root of a
    /// tree is no name that the command may change.
    fn covers(&self, found: &Found) -> bool {
        let changed = match found.parent {
            Some(_) => found.path.parent(),
            None => Some(found.path.as_path()),
        };
        changed.is_some_and(|path| self.writable.iter().any(|tree| path.starts_with(tree)))
            && !self.pinned.iter().any(|pinned| found.path.starts_with(pinned))
            && found.object.as_ref().or(found.parent.as_ref()).is_some_and(is_on_writable_mount)
    }
}

/// The recorder's answer, as the command's error.
fn saved(said: io::Result<()>) -> Result<(), Errno> {
    said.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// A thread of the command, seen from the host.
struct Process {
    thread: u32,
}

impl Process {
    /// An absolute path in the command's root directory, from an address in its memory. `None`: the
    /// address is zero, or its directory was removed.
    fn path(&self, directory: Option<u64>, address: u64) -> Result<Option<PathBuf>, Errno> {
        if address == 0 {
            return Ok(None);
        }
        self.absolute(directory, self.text(address)?)
    }

    /// The same for a path among the arguments of a call. `directory` and `path`: their indexes.
    fn argument_path(
        &self,
        arguments: &[u64],
        directory: Option<usize>,
        path: usize,
    ) -> Result<Option<PathBuf>, Errno> {
        self.path(directory.map(|index| arguments[index]), arguments[path])
    }

    /// The path in the address of a socket. `None`: it isn't in a file system.
    fn socket(&self, address: u64, length: u64) -> Result<Option<PathBuf>, Errno> {
        let mut bytes = [0; size_of::<libc::sockaddr_un>()];
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
        let read =
            self.memory()?.read_at(&mut bytes[..length], address).map_err(|_| Errno::FAULT)?;
        let Some((family, path)) = bytes[..read].split_first_chunk() else { return Ok(None) };
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        if i32::from(u16::from_ne_bytes(*family)) != libc::AF_UNIX || path.is_empty() {
            return Ok(None);
        }
        self.absolute(None, OsStr::from_bytes(path).into())
    }

    fn absolute(&self, directory: Option<u64>, text: PathBuf) -> Result<Option<PathBuf>, Errno> {
        if text.is_absolute() {
            return Ok(Some(text));
        }
        let descriptor = directory.map_or(libc::AT_FDCWD, |directory| directory as i32);
        let base = if descriptor == libc::AT_FDCWD {
            format!("/proc/{}/cwd", self.thread)
        } else {
            format!("/proc/{}/fd/{descriptor}", self.thread)
        };
        let base = target_of(&base)?;
        // An empty path with `AT_EMPTY_PATH` means the descriptor itself.
        let path = if text.as_os_str().is_empty() { base } else { base.join(text) };
        Ok(path.is_absolute().then_some(path))
    }

    fn memory(&self) -> Result<File, Errno> {
        File::open(format!("/proc/{}/mem", self.thread)).map_err(|_| Errno::FAULT)
    }

    fn text(&self, mut address: u64) -> Result<PathBuf, Errno> {
        let memory = self.memory()?;
        let mut text = Vec::new();
        while text.len() < MAX_PATH {
            let mut chunk = [0; 256];
            let in_page = usize::try_from(PAGE - address % PAGE).unwrap_or(1).min(chunk.len());
            let read = memory.read_at(&mut chunk[..in_page], address).map_err(|_| Errno::FAULT)?;
            if read == 0 {
                return Err(Errno::FAULT);
            }
            match chunk[..read].iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&chunk[..end]);
                    return Ok(OsString::from_vec(text).into());
                }
                None => text.extend_from_slice(&chunk[..read]),
            }
            address += read as u64;
        }
        Err(Errno::NAMETOOLONG)
    }

    /// The object of a descriptor.
    fn descriptor(&self, descriptor: u64) -> Result<Option<Found>, Errno> {
        let link = format!("/proc/{}/fd/{}", self.thread, descriptor as i32);
        let path = target_of(&link)?;
        let object = rustix::fs::openat(CWD, &link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(host_object(path, object))
    }

    /// The object of a path in the command's root directory, or the place where it would be
    /// created. `None`: the host doesn't have the object by this path.
    ///
    /// # Errors
    ///
    /// The error that the command's call would have, too; `EACCES` for a path through another
    /// process, which can't be followed.
    fn find(&self, path: &Path, follow: bool) -> Result<Option<Found>, Errno> {
        let root = rustix::fs::openat(
            CWD,
            format!("/proc/{}/root", self.thread),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            match special(&path) {
                Some(Special::Descriptor(descriptor)) => return self.descriptor(descriptor),
                Some(Special::Below { folder, rest }) => {
                    path = target_of(&format!("/proc/{}/{folder}", self.thread))?.join(rest);
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
            let (parent, name) = match (path.parent(), path.components().next_back()) {
                (Some(parent), Some(Component::Normal(name))) => (parent, name.to_owned()),
                // `.` and `..`: the directory itself is meant.
                _ => {
                    let object = resolve(&root, &path, OFlags::empty())?;
                    return Ok(host_object(real_path(&object)?, object));
                }
            };
            let directory = resolve(&root, parent, OFlags::DIRECTORY)?;
            let real = real_path(&directory)?.join(&name);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let object = match rustix::fs::openat(&directory, &*name, flags, Mode::empty()) {
                Err(Errno::NOENT) => None,
                object => Some(object?),
            };
            if follow
                && let Some(link) = &object
                && is_link(link)?
            {
                let target = rustix::fs::readlinkat(link, "", Vec::new())?;
                path = real.parent().unwrap_or(&real).join(OsStr::from_bytes(target.as_bytes()));
                continue;
            }
            let found = match object {
                Some(object) => host_object(real, object),
                None if host_directory(&directory, &real) => {
                    Some(Found { path: real, object: None, parent: None })
                }
                None => None,
            };
            return Ok(found.map(|found| Found { parent: Some(directory), ..found }));
        }
        Err(Errno::LOOP)
    }
}

/// A path that the host can't resolve for the command.
enum Special {
    /// A descriptor of the command itself.
    Descriptor(u64),
    /// A path below a folder that the command itself has open: `cwd`, `root` or `fd/3`.
    Below { folder: String, rest: PathBuf },
    /// Another process's descriptor or directory.
    Unfollowed,
    /// A device, or a setting of the kernel.
    Device,
}

/// Recognises paths in `/proc` and `/dev`, which mean something else in each process.
fn special(path: &Path) -> Option<Special> {
    let names: Vec<&str> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_str().unwrap_or("")),
            Component::ParentDir => Some(".."),
            _ => None,
        })
        .collect();
    match &names[..] {
        ["dev", "stdin"] => Some(Special::Descriptor(0)),
        ["dev", "stdout"] => Some(Special::Descriptor(1)),
        ["dev", "stderr"] => Some(Special::Descriptor(2)),
        ["dev", "fd", descriptor] => Some(special_descriptor(descriptor)),
        ["dev", name @ ("stdin" | "stdout" | "stderr"), ..] => {
            let descriptor = ["stdin", "stdout", "stderr"].iter().position(|it| it == name);
            Some(special_below(path, format!("fd/{}", descriptor.unwrap_or_default()), 3))
        }
        ["dev", "fd", descriptor, ..] if descriptor.parse::<u32>().is_ok() => {
            Some(special_below(path, format!("fd/{descriptor}"), 4))
        }
        ["dev", "shm", ..] => None,
        ["dev", rest @ ..] if !rest.contains(&"..") => Some(Special::Device),
        ["proc", "self" | "thread-self", "fd", descriptor] => Some(special_descriptor(descriptor)),
        ["proc", "self" | "thread-self", folder @ ("cwd" | "root"), ..] => {
            Some(special_below(path, (*folder).to_owned(), 4))
        }
        ["proc", "self" | "thread-self", "fd", descriptor, ..]
            if descriptor.parse::<u32>().is_ok() =>
        {
            Some(special_below(path, format!("fd/{descriptor}"), 5))
        }
        ["proc", rest @ ..]
            if rest.iter().any(|name| {
                matches!(*name, "fd" | "cwd" | "root" | "map_files" | "task" | "..")
            }) =>
        {
            Some(Special::Unfollowed)
        }
        ["proc", ..] => Some(Special::Device),
        _ => None,
    }
}

fn special_descriptor(name: &str) -> Special {
    name.parse().map_or(Special::Unfollowed, Special::Descriptor)
}

/// A path below a folder. `before`: the components that lead to the folder, with the root
/// directory.
fn special_below(path: &Path, folder: String, before: usize) -> Special {
    Special::Below { rest: path.components().skip(before).collect(), folder }
}

/// Resolves a path in the command's root directory without leaving it.
fn resolve(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let below = path.strip_prefix("/").unwrap_or(path);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(root, below, flags, Mode::empty(), inside) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

fn target_of(link: &str) -> Result<PathBuf, Errno> {
    let target = rustix::fs::readlinkat(CWD, link, Vec::new())?;
    Ok(OsStr::from_bytes(target.as_bytes()).into())
}

fn real_path(object: &OwnedFd) -> Result<PathBuf, Errno> {
    target_of(&format!("/proc/self/fd/{}", object.as_raw_fd()))
}

fn is_link(object: &OwnedFd) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH)?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink())
}

/// Whether the mount that a handle was opened in is writable.
fn is_on_writable_mount(handle: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(handle).is_ok_and(|it| !it.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The object, if the host has the same one by the same path.
fn host_object(path: PathBuf, object: OwnedFd) -> Option<Found> {
    let same = rustix::fs::statat(&object, "", AtFlags::EMPTY_PATH).ok()?;
    let own = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    is_same(&same, &own).then_some(Found { path, object: Some(object), parent: None })
}

/// Whether the host has the same directory by the same path, so that a new name in it is the same.
fn host_directory(directory: &OwnedFd, path: &Path) -> bool {
    let parent = path.parent().unwrap_or(path);
    let seen = rustix::fs::statat(directory, "", AtFlags::EMPTY_PATH);
    let own = rustix::fs::statat(CWD, parent, AtFlags::SYMLINK_NOFOLLOW);
    // A free name in the command's view may be covered, and taken outside.
    let name = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    matches!(name, Err(Errno::NOENT))
        && matches!((seen, own), (Ok(seen), Ok(own)) if is_same(&seen, &own))
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
