//! Descriptors that go over a Unix socket beside bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends bytes, which must not be empty, with a descriptor.
///
/// # Errors
///
/// The system's; also if not all bytes were sent.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptor: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives bytes, and the descriptor that came with them.
///
/// # Errors
///
/// The system's; [`io::ErrorKind::UnexpectedEof`] if fewer bytes came.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = bytes.len();
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}
