//! What a guest prints: kept up to a bound, so that a flood costs the guest its words and the host
//! nothing.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// Keeps the first bytes of a stream and counts the rest.
#[derive(Clone, Debug)]
pub(crate) struct Capture(Arc<Mutex<CapturedOutput>>);

#[derive(Debug)]
struct CapturedOutput {
    bytes: Vec<u8>,
    bound: usize,
    dropped: u64,
}

impl Capture {
    pub(crate) fn new(bound: usize) -> Self {
        Self(Arc::new(Mutex::new(CapturedOutput { bytes: Vec::new(), bound, dropped: 0 })))
    }

    /// What was kept, as text, with a note of what was dropped. Empty where nothing was printed.
    pub(crate) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::from_utf8_lossy(&kept.bytes).into_owned();
        if kept.dropped > 0 {
            text.push_str(&format!("\n[{} more bytes were dropped]", kept.dropped));
        }
        text
    }

    fn take(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = kept.bound - kept.bytes.len();
        let (keep, drop) = bytes.split_at(bytes.len().min(room));
        kept.bytes.extend_from_slice(keep);
        kept.dropped += drop.len() as u64;
    }
}

/// How much a guest may hand over at once.
const CHUNK: usize = 64 * 1024;

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
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
        self.take(bytes);
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
    fn a_flood_is_counted_not_kept() {
        let capture = Capture::new(4);
        capture.take(b"abc");
        capture.take(b"defg");
        assert_eq!(capture.text(), "abcd\n[3 more bytes were dropped]");
    }
}
