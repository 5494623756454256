//! Sends messages between the host and a helper over a socket. A message has a length, JSON, and an
//! optional descriptor.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum length of a message in bytes. A longer message is refused.
const MAX_MESSAGE: usize = 16 << 20;

/// Bytes of the length before each message.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Sends the length of a message, the message, and the descriptor, if there is one.
pub(crate) fn send(
    mut socket: &UnixStream,
    message: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - LENGTH_BYTES).map_err(io::Error::other)?;
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // The descriptor is sent with the first bytes. The socket may not take all bytes at once.
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    socket.write_all(&bytes[sent..])
}

/// Receives a message and its descriptor. The error is [`io::ErrorKind::UnexpectedEof`] if the
/// other side has closed the socket, and [`io::ErrorKind::InvalidData`] if the message is too large
/// or has another type.
pub(crate) fn receive<T: DeserializeOwned>(
    mut socket: &UnixStream,
) -> io::Result<(T, Option<OwnedFd>)> {
    let mut length_bytes = [0; LENGTH_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let buffers = &mut [IoSliceMut::new(&mut length_bytes)];
        recvmsg(socket, buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if received.bytes != LENGTH_BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // A length that this machine can't represent is also too large.
    let length = usize::try_from(u32::from_le_bytes(length_bytes)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes)?, descriptor))
}
