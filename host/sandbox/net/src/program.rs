//! Finds and runs the operator's program that prints a secret.
//!
//! Only the configuration can name the program. The program runs outside of the sandbox with the
//! operator's rights. Only its time and its output are limited.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use zeroize::Zeroizing;

/// The reason why a program printed no secret. Contains no output of the program.
#[derive(Debug, thiserror::Error)]
pub enum SecretProgramError {
    /// The program doesn't start.
    #[error("can't be started: {0}")]
    Start(ErrorKind),
    /// The program exceeded its time limit.
    #[error("took longer than {} s and was stopped", .0.as_secs_f32())]
    Time(Duration),
    /// The output exceeded its limit of bytes.
    #[error("printed more than {0} bytes, the limit of a secret")]
    Size(usize),
    /// Reading the output failed.
    #[error("can't be read: {0}")]
    Read(ErrorKind),
    /// Waiting for the end of the program failed.
    #[error("can't be waited for: {0}")]
    Wait(ErrorKind),
    /// The program reported a failure.
    #[error("failed ({0}); run it in a terminal to see why")]
    Status(ExitStatus),
}

/// Finds a program by an absolute path, or by its name in an absolute folder of `path`, which has
/// the form of `PATH`. Ignores programs in the working directory.
pub(super) fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    // The search ends at the first program, so only the last path can be a program.
    let last = search_places(name, path).pop()?;
    if is_program(&last) { Some(last) } else { None }
}

/// Returns the absolute paths at which a program is searched, up to the first program. `path` has
/// the form of `PATH`.
pub(super) fn search_places(name: &str, path: &OsStr) -> Vec<PathBuf> {
    let candidates: Vec<PathBuf> = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        std::env::split_paths(path).map(|folder| folder.join(name)).collect()
    };
    let mut places = Vec::new();
    for candidate in candidates {
        if !candidate.is_absolute() {
            continue;
        }
        let is_found = is_program(&candidate);
        places.push(candidate);
        if is_found {
            break;
        }
    }
    places
}

fn is_program(path: &Path) -> bool {
    rustix::fs::access(path, Access::EXEC_OK).is_ok() && !path.is_dir()
}

/// Runs a program without input and in the operator's environment. Returns its output of at most
/// `max_bytes`. Blocks.
pub(super) fn output(
    program: &Path,
    arguments: &[String],
    time: Duration,
    max_bytes: usize,
) -> Result<Zeroizing<Vec<u8>>, SecretProgramError> {
    let mut command = Command::new(program);
    // The process group lets the program be killed together with its children. Error messages could
    // contain the secret, so stderr is dropped.
    command
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let child = command.spawn().map_err(|error| SecretProgramError::Start(error.kind()))?;
    let mut group = Group(child);
    let output =
        group.read(Instant::now() + time, max_bytes).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => SecretProgramError::Time(time),
            ErrorKind::FileTooLarge => SecretProgramError::Size(max_bytes),
            kind => SecretProgramError::Read(kind),
        })?;
    let status = group.end().map_err(|error| SecretProgramError::Wait(error.kind()))?;
    if status.success() {
        return Ok(output);
    }
    Err(SecretProgramError::Status(status))
}

/// A program and the processes of its group. A drop kills them.
struct Group(Child);

impl Group {
    /// Reads at most `most` bytes until the program ends. Doesn't wait for the end of the output,
    /// because a child of the program could keep the output open for longer.
    fn read(&mut self, deadline: Instant, most: usize) -> std::io::Result<Zeroizing<Vec<u8>>> {
        let ended = rustix::process::pidfd_open(self.pid()?, PidfdFlags::empty())?;
        let mut stdout = self.0.stdout.take().ok_or(ErrorKind::BrokenPipe)?;
        rustix::fs::fcntl_setfl(&stdout, OFlags::NONBLOCK)?;
        // The buffer never grows, because growing leaves a copy of the secret in memory.
        let mut bytes = Zeroizing::new(vec![0; most + 1]);
        let mut length = 0;
        let mut is_open = true;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let timeout =
                Timespec::try_from(remaining).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            let mut polled = vec![PollFd::new(&ended, PollFlags::IN)];
            if is_open {
                polled.push(PollFd::new(&stdout, PollFlags::IN));
            }
            poll(&mut polled, Some(&timeout))?;
            // The check comes before the read, because an ended program has already written all its
            // output.
            let has_ended = !polled[0].revents().is_empty();
            drop(polled);

            while is_open {
                match stdout.read(&mut bytes[length..]) {
                    Ok(0) if length == bytes.len() => return Err(ErrorKind::FileTooLarge.into()),
                    Ok(0) => is_open = false,
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

    fn end(&mut self) -> std::io::Result<ExitStatus> {
        // The group is killed before `wait` releases the process ID, because a new process could
        // get the ID afterwards.
        let _ = rustix::process::kill_process_group(self.pid()?, Signal::KILL);
        self.0.wait()
    }

    fn pid(&self) -> std::io::Result<Pid> {
        let number = i32::try_from(self.0.id()).map_err(|_| ErrorKind::InvalidData)?;
        Pid::from_raw(number).ok_or_else(|| ErrorKind::InvalidData.into())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.end();
        }
    }
}
