//! Open files as streams of WASI. On a thread that may block, streams are always ready, and reads
//! and writes block.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::WriteBudget;
use crate::timing::CallWatch;

/// Most bytes of a read or write. The limit bounds the memory that the host allocates for a guest.
pub(crate) const MAX_CHUNK: usize = 256 * 1024;

pub(crate) struct FileReader {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) offset: u64,
    watch: Arc<CallWatch>,
    /// Whether a read must wait for a thread that may block.
    waits: bool,
}

impl FileReader {
    pub(crate) fn new(file: Arc<OwnedFd>, offset: u64, watch: Arc<CallWatch>) -> Self {
        Self { file, offset, watch, waits: false }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Position {
    At(u64),
    End,
}

pub(crate) struct FileWriter {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) position: Position,
    pub(crate) budget: Arc<WriteBudget>,
}

impl InputStream for FileReader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if size == 0 {
            return Ok(Bytes::new());
        }
        let must_not_block = self.watch.is_borrowed();
        let result = if must_not_block {
            read_at_once(&self.file, size as u64, self.offset)
        } else {
            read_at(&self.file, size as u64, self.offset)
        };
        if must_not_block && result == Err(Errno::AGAIN) {
            // The guest waits for the stream, and `ready` moves to a thread that may block.
            self.waits = true;
            return Ok(Bytes::new());
        }
        let bytes = result.map_err(stream_error)?;
        if bytes.is_empty() {
            return Err(StreamError::Closed);
        }
        self.offset += bytes.len() as u64;
        Ok(bytes.into())
    }
}

impl OutputStream for FileWriter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let written = match self.position {
            Position::At(offset) => write_all_at(&self.file, &bytes, offset, &self.budget),
            Position::End => append_all(&self.file, &bytes, &self.budget),
        };
        written.map_err(stream_error)?;
        if let Position::At(offset) = &mut self.position {
            *offset += bytes.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_CHUNK)
    }
}

#[async_trait::async_trait]
impl Pollable for FileReader {
    async fn ready(&mut self) {
        if self.waits {
            self.watch.may_block().await;
        }
    }
}

#[async_trait::async_trait]
impl Pollable for FileWriter {
    async fn ready(&mut self) {}
}

/// Reads at most `size` bytes, and at most [`MAX_CHUNK`]. At the end of the file, returns no bytes.
pub(crate) fn read_at(file: &OwnedFd, size: u64, offset: u64) -> Result<Vec<u8>, Errno> {
    let mut buffer = Vec::with_capacity(chunk_size(size));
    loop {
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut buffer), offset) {
            // A signal interrupted the call, so the call is repeated.
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Ok(buffer),
        }
    }
}

fn chunk_size(size: u64) -> usize {
    match usize::try_from(size) {
        Ok(size) => size.min(MAX_CHUNK),
        Err(_) => MAX_CHUNK,
    }
}

/// Reads like [`read_at`], but without blocking. Returns `AGAIN` if some bytes aren't cached, or if
/// the file system doesn't know.
pub(crate) fn read_at_once(file: &OwnedFd, size: u64, offset: u64) -> Result<Vec<u8>, Errno> {
    // For the kernel, this offset means the file's current position.
    if offset == u64::MAX {
        return Err(Errno::AGAIN);
    }
    let mut buffer = vec![0; chunk_size(size)];
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let read = rustix::io::preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT)
        .map_err(|_| Errno::AGAIN)?;
    buffer.truncate(read);
    Ok(buffer)
}

/// Writes all bytes at `offset`. After an error, the number of written bytes is unknown.
pub(crate) fn write_all_at(
    file: &OwnedFd,
    mut bytes: &[u8],
    mut offset: u64,
    budget: &WriteBudget,
) -> Result<(), Errno> {
    let length = bytes.len() as u64;
    let end = offset.saturating_add(length);
    // A size is never negative.
    let file_size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    // A hole before the bytes uses the write budget too, as in `set_size`.
    let growth = end.saturating_sub(file_size);
    budget.charge(growth.max(length))?;

    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            // A signal interrupted the call, so the call is repeated.
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
        }
    }
    Ok(())
}

fn append_all(file: &OwnedFd, bytes: &[u8], budget: &WriteBudget) -> Result<(), Errno> {
    // Streams share the handle, so the handle can't have O_APPEND. Guests append with one stream at
    // a time, so reading the end first has the same effect.
    let end = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    write_all_at(file, bytes, end, budget)
}

fn stream_error(errno: Errno) -> StreamError {
    StreamError::LastOperationFailed(std::io::Error::from(errno).into())
}
