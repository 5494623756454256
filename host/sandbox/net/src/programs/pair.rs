//! Connects two sockets of this process by the loopback of the machine's network.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Time limit for a connection to the relay, which is on the same machine.
pub(super) const RELAY_TIME: Duration = Duration::from_secs(2);

/// Returns both ends of a new connection. They have nothing in common with the sockets that a
/// program makes, so options that a program has set for its own socket don't apply.
pub(super) fn tcp_pair() -> io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let end = Instant::now() + RELAY_TIME;
    let one = TcpStream::connect_timeout(&listener.local_addr()?, RELAY_TIME)?;
    let address = one.local_addr()?;
    loop {
        match listener.accept() {
            Ok((other, from)) if from == address => {
                // The programs decide when small pieces are sent.
                one.set_nodelay(true)?;
                other.set_nodelay(true)?;
                return Ok([one, other]);
            }
            // Other users of this machine can connect to the listener, too.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(Errno::TIMEDOUT.into());
        }
        let timeout = Timespec::try_from(rest).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
