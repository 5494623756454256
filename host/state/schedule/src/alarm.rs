//! Wakes the runner of tasks at a moment of the wall clock, or when another process changes the
//! tasks.

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

/// The file whose replacement signals a change.
const CHANGED: &str = "changed";

/// The longest wait in seconds. Changes without a signal are noticed after this time.
const LONGEST: i64 = 3600;

/// Wakes the runner. The alarm is a timer on the wall clock, so that it also fires directly after a
/// suspended machine resumes or the clock is set. No code runs between two events.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<Fds>);

#[derive(Debug)]
struct Fds {
    timer: OwnedFd,
    changes: OwnedFd,
}

impl Alarm {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Realtime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&changes, folder, WatchFlags::MOVED_TO)?;
        Ok(Self(Arc::new(Fds { timer, changes })))
    }

    /// Tells the runner of a change.
    pub(crate) fn ring(folder: &PrivateFolder) -> io::Result<()> {
        folder.put_lightly(CHANGED, b"")
    }

    /// Sets the time when [`wait`](Self::wait) returns. `None` means that there is no such time.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn set(&self, at: Option<Timestamp>, now: Timestamp) -> io::Result<()> {
        let latest = now.as_second().saturating_add(LONGEST);
        let (seconds, nanoseconds) = match at {
            Some(at) if at.as_second() < latest => (at.as_second(), at.subsec_nanosecond()),
            _ => (latest, 0),
        };
        // Zero would stop the timer.
        let it_value = Timespec { tv_sec: seconds.max(1), tv_nsec: nanoseconds.max(0).into() };
        // Without an interval, the timer ends once.
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&self.0.timer, flags, &Itimerspec { it_interval, it_value })?;
        Ok(())
    }

    /// Waits until the moment has come, the clock was set, or the tasks have changed. Blocks.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn wait(&self) -> io::Result<()> {
        let mut fds = [
            PollFd::new(&self.0.timer, PollFlags::IN),
            PollFd::new(&self.0.changes, PollFlags::IN),
        ];
        loop {
            match poll(&mut fds, None) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => break,
            }
        }
        for fd in [&self.0.timer, &self.0.changes] {
            // The loop reads until the queue is empty. ECANCELED means that the clock was set.
            let mut buffer = [0; 4096];
            while matches!(rustix::io::read(fd, &mut buffer), Ok(1..)) {}
        }
        Ok(())
    }
}
