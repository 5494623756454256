//! Runs a program of the operator's that prints a secret.
//!
//! It is none of a tool's: the configuration names it, and its rights are the operator's. So it
//! isn't confined; it is bounded.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use zeroize::Zeroizing;

/// The program of a name: a path, or one in the absolute folders of `path`, as `PATH` lists them.
/// What lies in the working directory by chance is none.
pub(super) fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    let runs = |path: &Path| rustix::fs::access(path, Access::EXEC_OK).is_ok() && !path.is_dir();
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_absolute() && runs(path));
    }
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| runs(path))
}

/// What a program prints, which has no input and the operator's environment. Blocks.
///
/// # Errors
///
/// In words what went wrong, without anything of what it printed.
pub(super) fn output(
    program: &Path,
    arguments: &[String],
    time: Duration,
    most: usize,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut command = Command::new(program);
    // A group of its own, so that what it starts ends with it. What it complains of might be the
    // secret.
    command
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let child = command.spawn().map_err(|error| format!("can't be started: {}", error.kind()))?;
    let mut child = Group(child);
    let output = child.read(Instant::now() + time, most).map_err(|error| match error.kind() {
        ErrorKind::TimedOut => format!("took longer than {} s, and was ended", time.as_secs_f32()),
        ErrorKind::FileTooLarge => format!("printed more than {most} bytes, which no secret has"),
        kind => format!("can't be read: {kind}"),
    })?;
    let status = child.end().map_err(|error| format!("can't be waited for: {}", error.kind()))?;
    if status.success() {
        return Ok(output);
    }
    Err(format!("failed ({status}); run it in a terminal to see why"))
}

/// A program and what it has started in its group, which do not outlive this.
struct Group(Child);

impl Group {
    /// Reads until the program ends. What it has left behind may keep its output open.
    fn read(&mut self, deadline: Instant, most: usize) -> std::io::Result<Zeroizing<Vec<u8>>> {
        let ended = rustix::process::pidfd_open(self.pid()?, PidfdFlags::empty())?;
        let mut stdout = self.0.stdout.take().ok_or(ErrorKind::BrokenPipe)?;
        rustix::fs::fcntl_setfl(&stdout, OFlags::NONBLOCK)?;
        // Never moved, so that no copy is left.
        let mut bytes = Zeroizing::new(vec![0; most + 1]);
        let (mut length, mut open) = (0, true);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            let mut polled = vec![PollFd::new(&ended, PollFlags::IN)];
            polled.extend(open.then(|| PollFd::new(&stdout, PollFlags::IN)));
            poll(&mut polled, Some(&timeout))?;
            // Looked at before the output is read: all that it has written is there then.
            let has_ended = !polled[0].revents().is_empty();
            drop(polled);
            while open {
                match stdout.read(&mut bytes[length..]) {
                    Ok(0) if length == bytes.len() => return Err(ErrorKind::FileTooLarge.into()),
                    Ok(0) => open = false,
                    Ok(read) => length += read,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                if length > most {
                    return Err(ErrorKind::FileTooLarge.into());
                }
            }
            if has_ended {
                bytes.truncate(length);
                return Ok(bytes);
            }
        }
    }

    fn end(&mut self) -> std::io::Result<std::process::ExitStatus> {
        // Before its number is free for others.
        let _ = rustix::process::kill_process_group(self.pid()?, Signal::KILL);
        self.0.wait()
    }

    fn pid(&self) -> std::io::Result<Pid> {
        i32::try_from(self.0.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| ErrorKind::InvalidData.into())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once it was waited for, this does nothing.
        if let Ok(None) = self.0.try_wait() {
            let _ = self.end();
        }
    }
}
