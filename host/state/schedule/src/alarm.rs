//! Wakes the runner of tasks at a time, or when another process changes the tasks.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use toolhold_data_dir::PrivateFolder;

/// The file that is replaced at each change.
const CHANGED: &str = "changed";

/// The longest wait in seconds. A change without a signal is noticed after this wait.
const MAX_WAIT_SECONDS: i64 = 3600;

/// Wakes the runner. The timer uses the wall clock, so it also fires after a suspend, or when the
/// clock is set.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<Fds>);

#[derive(Debug)]
struct Fds {
    timer: OwnedFd,
    changes: OwnedFd,
}

impl Alarm {
    /// Makes an alarm. A file that is moved into `folder` also ends the wait.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Realtime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&changes, folder, WatchFlags::MOVED_TO)?;
        Ok(Self(Arc::new(Fds { timer, changes })))
    }

    pub(crate) fn ring(folder: &PrivateFolder) -> io::Result<()> {
        folder.put_lightly(CHANGED, b"")
    }

    /// Sets the time at which [`wait`](Self::wait) returns. `wait` returns after an hour at the
    /// latest.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn set(&self, at: Option<Timestamp>, now: Timestamp) -> io::Result<()> {
        let latest = now.as_second().saturating_add(MAX_WAIT_SECONDS);
        let (seconds, nanoseconds) = match at {
            Some(at) if at.as_second() < latest => (at.as_second(), at.subsec_nanosecond()),
            Some(_) | None => (latest, 0),
        };
        // Zero would stop the timer, so the time is at least one second.
        let it_value = Timespec { tv_sec: seconds.max(1), tv_nsec: nanoseconds.max(0).into() };
        // The timer fires once.
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&self.0.timer, flags, &Itimerspec { it_interval, it_value })?;
        Ok(())
    }

    /// Blocks until the time has come, the clock was set, or the tasks have changed.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn wait(&self) -> io::Result<()> {
        let mut fds = [
            PollFd::new(&self.0.timer, PollFlags::IN),
            PollFd::new(&self.0.changes, PollFlags::IN),
        ];
        loop {
            match poll(&mut fds, None) {
                // A signal interrupted the wait.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => break,
            }
        }
        // All events are read, because a remaining event ends the next wait at once. An error means
        // that there are no more events, or that the clock was set.
        for fd in [&self.0.timer, &self.0.changes] {
            let mut buffer = [0; 4096];
            while matches!(rustix::io::read(fd, &mut buffer), Ok(1..)) {}
        }
        Ok(())
    }
}
