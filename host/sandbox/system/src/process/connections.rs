//! Lets the host make the connections of a command.
//!
//! The kernel stops each `connect` of the command. In the command's own network, only the loopback
//! interface exists, so the kernel itself refuses all other addresses. For these addresses, the
//! [`ConnectionGate`] gets a duplicate of the program's socket. The program can exchange the
//! address while it is read, but the gate decides on the address that was read, and connects to no
//! other.
//!
//! Without namespaces, a command is in the machine's network. Then the kernel carries no `connect`
//! out. The gate makes the connection, and its socket replaces the program's own. So no option of
//! the program's socket has an effect.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use toolhold_contract::{ConnectionGate, ProgramConnection};

use crate::confine::raw::{self, CallAnswer, Notification};

/// Bytes of the longest address of an IP socket.
const MAX_ADDRESS: usize = size_of::<libc::sockaddr_in6>();

/// The gate for the connections of one command.
pub(super) struct CommandGate {
    pub(super) gate: Arc<dyn ConnectionGate>,
    /// The command has no network of its own.
    pub(super) is_in_machine_network: bool,
}

impl CommandGate {
    /// Decides on a `connect` call that waits for its answer.
    pub(super) fn connect(&self, listener: &OwnedFd, notification: &Notification) -> CallAnswer {
        let answered = if self.is_in_machine_network {
            replace(listener, notification, &*self.gate)
        } else {
            connect(listener, notification, &*self.gate)
        };
        match answered {
            Ok(answer) => answer,
            Err(error) => CallAnswer::Failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}

/// Replaces the program's socket with a connected one.
fn replace(
    listener: &OwnedFd,
    notification: &Notification,
    gate: &dyn ConnectionGate,
) -> io::Result<CallAnswer> {
    let [descriptor, pointer, length, ..] = notification.arguments;
    let thread = notification.thread;
    let address = read_address(thread, pointer, length)?.ok_or(Errno::AFNOSUPPORT)?;
    let number = descriptor_number(descriptor)?;
    let flags = socket_flags(thread, number)?;
    let program = program_name(thread);
    // If the thread has ended, its number may belong to another thread.
    if !raw::is_waiting(listener, notification.id) {
        return Ok(CallAnswer::Failed(Errno::CANCELED));
    }
    let socket = gate.open(address, &program)?;
    rustix::io::ioctl_fionbio(&socket, flags.contains(OFlags::NONBLOCK))?;
    let closes_on_exec = flags.contains(OFlags::CLOEXEC);
    raw::replace_descriptor(listener, notification.id, &socket, number, closes_on_exec)?;
    Ok(CallAnswer::Done)
}

/// Returns the flags of a program's socket.
fn socket_flags(thread: u32, number: u32) -> io::Result<OFlags> {
    let link = std::fs::read_link(format!("/proc/{thread}/fd/{number}"));
    if !link.map_err(|_| Errno::BADF)?.as_os_str().as_bytes().starts_with(b"socket:") {
        return Err(Errno::NOTSOCK.into());
    }
    let text = std::fs::read_to_string(format!("/proc/{thread}/fdinfo/{number}"))?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let octal = 8;
    let bits = flags.and_then(|flags| u32::from_str_radix(flags.trim(), octal).ok());
    Ok(OFlags::from_bits_retain(bits.ok_or(Errno::BADF)?))
}

fn connect(
    listener: &OwnedFd,
    notification: &Notification,
    gate: &dyn ConnectionGate,
) -> io::Result<CallAnswer> {
    let [descriptor, pointer, length, ..] = notification.arguments;
    let thread = notification.thread;
    let Some(address) = read_address(thread, pointer, length)? else {
        return Ok(CallAnswer::Continue);
    };
    let ip = address.ip().to_canonical();
    if ip.is_loopback() || ip.is_unspecified() || address.port() == 0 {
        return Ok(CallAnswer::Continue);
    }
    let socket = take_socket(thread, descriptor)?;
    if !is_tcp(&socket)? {
        return Ok(CallAnswer::Continue);
    }
    let program = program_name(thread);
    // If the thread has ended, its number may belong to another thread.
    if !raw::is_waiting(listener, notification.id) {
        return Ok(CallAnswer::Failed(Errno::CANCELED));
    }
    gate.connect(&ProgramConnection { socket: socket.as_fd(), address, program })?;
    Ok(CallAnswer::Done)
}

fn program_name(thread: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Reads the address of a `connect` call. Returns `None` if it isn't an address of IP.
fn read_address(thread: u32, pointer: u64, length: u64) -> io::Result<Option<SocketAddr>> {
    let mut bytes = [0; MAX_ADDRESS];
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_ADDRESS);
    let memory = std::fs::File::open(format!("/proc/{thread}/mem"))?;
    let read = memory.read_at(&mut bytes[..length], pointer).map_err(|_| Errno::FAULT)?;
    Ok(parse_address(&bytes[..read]))
}

/// Parses a `sockaddr_in` or `sockaddr_in6`. Returns `None` for another address.
fn parse_address(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first_chunk()?;
    let (port, rest) = rest.split_first_chunk()?;
    let port = u16::from_be_bytes(*port);
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let octets: &[u8; 4] = rest.first_chunk()?;
            Some(SocketAddrV4::new((*octets).into(), port).into())
        }
        libc::AF_INET6 => {
            // The interface of a link-local address follows, and isn't used.
            let (_flow_information, rest) = rest.split_first_chunk::<4>()?;
            let octets: &[u8; 16] = rest.first_chunk()?;
            Some(SocketAddrV6::new((*octets).into(), port, 0, 0).into())
        }
        _ => None,
    }
}

/// Returns a duplicate of a thread's socket.
fn take_socket(thread: u32, descriptor: u64) -> io::Result<OwnedFd> {
    let process = pidfd_open(process_of(thread)?, PidfdFlags::empty())?;
    let number = descriptor_number(descriptor)?.cast_signed();
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// Returns the number of a descriptor, which is the lower half of an argument.
fn descriptor_number(argument: u64) -> io::Result<u32> {
    let number = i32::try_from(argument & u64::from(u32::MAX)).map_err(|_| Errno::BADF)?;
    Ok(number.cast_unsigned())
}

/// Returns the process of a thread.
fn process_of(thread: u32) -> io::Result<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let number = line.and_then(|number| number.trim().parse().ok());
    number.and_then(Pid::from_raw).ok_or_else(|| Errno::SRCH.into())
}

fn is_tcp(socket: &OwnedFd) -> Result<bool, Errno> {
    let domain = sockopt::socket_domain(socket)?;
    let is_ip = domain == AddressFamily::INET || domain == AddressFamily::INET6;
    Ok(is_ip && sockopt::socket_type(socket)? == SocketType::STREAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_parsed_as_the_kernel_does() {
        let v4 = [&2_u16.to_ne_bytes()[..], &[0x01, 0xbb, 198, 18, 0, 1], &[0; 8]].concat();
        let expected: SocketAddr = "198.18.0.1:443".parse().expect("an address");
        assert_eq!(parse_address(&v4), Some(expected));
        let mut v6 = [&10_u16.to_ne_bytes()[..], &[0, 80], &[9; 4], &[0; 16], &[7; 4]].concat();
        v6[23] = 1;
        assert_eq!(parse_address(&v6), Some("[::1]:80".parse().expect("an address")));
        for length in 0..8 {
            assert_eq!(parse_address(&v4[..length]), None, "{length}");
        }
        assert_eq!(parse_address(&v6[..23]), None);
        assert_eq!(parse_address(&[1_u16.to_ne_bytes(), [b'/', b'a']].concat()), None);
    }
}
