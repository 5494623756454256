//! Stores a guest's output up to a limit.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// Stores the first bytes of a stream, and the last bytes of the dropped output.
#[derive(Clone, Debug)]
pub struct Capture(Arc<Mutex<CapturedOutput>>);

#[derive(Debug)]
struct CapturedOutput {
    /// The first bytes, at most `bound`.
    bytes: Vec<u8>,
    bound: usize,
    /// The number of bytes that were written after `bytes` was full.
    dropped: u64,
    /// The end of the dropped output, which often explains a failure.
    last: VecDeque<u8>,
}

/// Most bytes at the end of the dropped output that are stored.
const LAST: usize = 16 * 1024;

impl Capture {
    /// Makes a capture that stores at most the first `bound` bytes.
    pub fn new(bound: usize) -> Self {
        Self(Arc::new(Mutex::new(CapturedOutput {
            bytes: Vec::new(),
            bound,
            dropped: 0,
            last: VecDeque::new(),
        })))
    }

    /// Returns the number of written bytes, including dropped bytes.
    pub fn written(&self) -> u64 {
        let output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.bytes.len() as u64 + output.dropped
    }

    /// Returns the first bytes, with a note if bytes were dropped.
    pub fn text(&self) -> String {
        let output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::from_utf8_lossy(&output.bytes).into_owned();
        if output.dropped > 0 {
            text.push_str(&format!("\n[{} more bytes were dropped]", output.dropped));
        }
        text
    }

    /// Returns the end of the output: at most `limit` bytes, and at most 16 KiB.
    pub fn end(&self, limit: usize) -> String {
        let output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stored_count = output.bytes.len() + output.last.len();
        // If more bytes were dropped than `last` has, some bytes between `bytes` and `last` are
        // missing.
        let has_gap = output.dropped > output.last.len() as u64;
        let available = if has_gap { output.last.len() } else { stored_count };
        let length = available.min(limit).min(LAST);
        let stored = output.bytes.iter().chain(&output.last).copied();
        let end: Vec<u8> = stored.skip(stored_count - length).collect();
        String::from_utf8_lossy(&end).into_owned()
    }

    /// Removes the stored output.
    pub fn clear(&self) {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The buffers are replaced, because an idle instance must not occupy memory.
        output.bytes = Vec::new();
        output.last = VecDeque::new();
        output.dropped = 0;
    }

    /// Adds output. Bytes beyond `bound` are dropped, except for the last [`LAST`] bytes.
    fn push(&self, bytes: &[u8]) {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = output.bound - output.bytes.len();
        let (stored, dropped) = bytes.split_at(bytes.len().min(room));
        output.bytes.extend_from_slice(stored);
        output.dropped += dropped.len() as u64;

        let new_last = &dropped[dropped.len().saturating_sub(LAST)..];
        let surplus = (output.last.len() + new_last.len()).saturating_sub(LAST);
        output.last.drain(..surplus);
        output.last.extend(new_last);
    }
}

/// Most bytes that a guest may write at once.
const CHUNK: usize = 64 * 1024;

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(CHUNK)
    }
}

#[async_trait::async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl AsyncWrite for Capture {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_the_limit_is_counted_and_dropped() {
        let capture = Capture::new(4);
        capture.push(b"abc");
        capture.push(b"defg");
        assert_eq!(capture.text(), "abcd\n[3 more bytes were dropped]");
    }

    #[test]
    fn end_is_kept_beyond_the_limit() {
        let capture = Capture::new(4);
        assert_eq!(capture.end(3), "");
        capture.push(b"ab");
        assert_eq!((capture.end(1), capture.end(9)), ("b".to_owned(), "ab".to_owned()));
        capture.push(b"cdef");
        assert_eq!((capture.end(3), capture.end(9)), ("def".to_owned(), "abcdef".to_owned()));
        capture.push(&[b'x'; 3 * LAST]);
        capture.push(b"the end");
        let end = capture.end(usize::MAX);
        assert_eq!(end.len(), LAST);
        assert!(end.ends_with("xxxthe end") && !end.contains('a'), "what lies between is unknown");
        assert_eq!(capture.end(7), "the end");
    }
}
