//! Limits the size and time of an answer's body, decompresses the body, and removes secrets from
//! it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};
use tokio_util::io::{ReaderStream, StreamReader};
use toolhold_contract::text::{cut, neutral_line};

use super::echoes::{EchoRedactor, Echoes};
use super::record::Record;
use super::{Error, RequestPermit};

/// The largest window of zstd, as a power of two. RFC 9659 allows 8 MiB on the web.
const ZSTD_WINDOW: u32 = 23;

/// Bytes that are decompressed at a time.
const PIECE: usize = 16 * 1024;

type Stage = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
    Brotli,
    Zstd,
}

impl Coding {
    fn from_headers(headers: &HeaderMap) -> Result<Self, Error> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Self::Identity) };
        if values.next().is_some() {
            return Err(Error::Coding("there are several".to_owned()));
        }
        let name = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        match name.as_str() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "br" => Ok(Self::Brotli),
            "zstd" => Ok(Self::Zstd),
            _ => Err(Error::Coding(format!("`{}`", neutral_line(cut(&name, 64))))),
        }
    }
}

/// The limits of a body.
pub(super) struct Bounds {
    /// The most bytes, compressed and decompressed.
    pub(super) bytes: u64,
    pub(super) idle: Duration,
    pub(super) end: Instant,
    pub(super) timeout_texts: TimeoutTexts,
    pub(super) echoes: Option<Arc<Echoes>>,
}

/// The messages for the time limits of a request.
#[derive(Clone, Debug)]
pub(super) struct TimeoutTexts {
    /// The message for the time limit of the whole request.
    pub(super) end: String,
    /// The message for the idle timeout. `None` if the guest set this timeout.
    pub(super) idle: Option<String>,
}

/// The body of an answer.
pub(super) struct Answer {
    stage: Stage,
    received: Arc<AtomicU64>,
    max_bytes: u64,
    remaining: u64,
    echoes: Option<(Arc<Echoes>, EchoRedactor)>,
    is_finished: bool,
    record: Record,
    /// The permit of the request. The connection is in use until the last byte, so the permit is
    /// too.
    _permit: RequestPermit,
}

impl Answer {
    /// Wraps the body of an answer. Headers that describe the compressed body are removed from
    /// `headers`.
    pub(super) fn new(
        body: Incoming,
        headers: &mut HeaderMap,
        bounds: Bounds,
        record: Record,
        permit: RequestPermit,
    ) -> Result<Self, Error> {
        let coding = if body.is_end_stream() {
            Coding::Identity
        } else {
            Coding::from_headers(headers).inspect_err(|error| record.set_failure(error))?
        };
        headers.remove(CONTENT_ENCODING);
        headers.remove(TRANSFER_ENCODING);
        headers.remove(TRAILER);
        if coding != Coding::Identity || bounds.echoes.is_some() {
            headers.remove(CONTENT_LENGTH);
        }

        let received = Arc::new(AtomicU64::new(0));
        let first_end = bounds.end.min(Instant::now() + bounds.idle);
        let wire = Wire {
            body,
            max_bytes: bounds.bytes,
            received: Arc::clone(&received),
            idle: bounds.idle,
            end: bounds.end,
            timeout_texts: bounds.timeout_texts,
            timer: Box::pin(tokio::time::sleep_until(first_end)),
        };
        let stage: Stage = match coding {
            Coding::Identity => Box::pin(wire),
            Coding::Gzip => {
                let mut decoder = GzipDecoder::new(StreamReader::new(wire));
                decoder.multiple_members(true);
                Box::pin(ReaderStream::with_capacity(decoder, PIECE))
            }
            Coding::Brotli => {
                let decoder = BrotliDecoder::new(StreamReader::new(wire));
                Box::pin(ReaderStream::with_capacity(decoder, PIECE))
            }
            Coding::Zstd => {
                let window = [DParameter::window_log_max(ZSTD_WINDOW)];
                let mut decoder = ZstdDecoder::with_params(StreamReader::new(wire), &window);
                decoder.multiple_members(true);
                Box::pin(ReaderStream::with_capacity(decoder, PIECE))
            }
        };
        let echoes = bounds.echoes.map(|echoes| (echoes, EchoRedactor::default()));
        Ok(Self {
            stage,
            received,
            max_bytes: bounds.bytes,
            remaining: bounds.bytes,
            echoes,
            is_finished: false,
            record,
            _permit: permit,
        })
    }

    /// Cuts a piece at the limit and removes secrets from it. Returns the bytes that are ready.
    fn take_piece(&mut self, mut piece: Bytes) -> Bytes {
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        if length > self.remaining {
            piece.truncate(usize::try_from(self.remaining).unwrap_or(usize::MAX));
            // The next poll then reports that the body exceeds the limit.
            self.stage = Box::pin(OneMore(Some(())));
        }
        self.remaining = self.remaining.saturating_sub(length);
        match &mut self.echoes {
            Some((echoes, redactor)) => redactor.redact_piece(echoes, &piece, false).into(),
            None => piece,
        }
    }

    /// Ends the body with an error, after the data that has arrived.
    fn fail(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.record.set_failure(&error);
        self.is_finished = true;
        Poll::Ready(Some(Err(error)))
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        while !this.is_finished {
            let is_full = this.remaining == 0;
            match ready!(this.stage.as_mut().poll_next(context)) {
                None => this.is_finished = true,
                Some(Ok(piece)) if is_full && piece.is_empty() => {}
                // The limit is reached, and there is more data.
                Some(_) if is_full => return this.fail(Error::Body(this.max_bytes)),
                Some(Err(error)) => return this.fail(Error::from_reader(&error)),
                Some(Ok(piece)) => {
                    let piece = this.take_piece(piece);
                    if !piece.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(piece))));
                    }
                }
            }
        }
        // The redactor may still have bytes that could have been the beginning of a secret.
        if let Some((echoes, mut redactor)) = this.echoes.take() {
            let rest = redactor.redact_piece(&echoes, b"", true);
            if !rest.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(rest.into()))));
            }
        }
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.record.received = self.received.load(Ordering::Relaxed);
    }
}

/// A stream with one piece, which represents data beyond the limit.
struct OneMore(Option<()>);

impl Stream for OneMore {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(self.0.take().map(|()| Ok(Bytes::from_static(b"more"))))
    }
}

/// A body as it arrives from the network, with limits of size and time.
struct Wire {
    body: Incoming,
    max_bytes: u64,
    received: Arc<AtomicU64>,
    idle: Duration,
    end: Instant,
    timeout_texts: TimeoutTexts,
    timer: Pin<Box<Sleep>>,
}

impl Stream for Wire {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let this = &mut *self;
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
                ready!(this.timer.as_mut().poll(context));
                let bound = if Instant::now() >= this.end {
                    Some(this.timeout_texts.end.clone())
                } else {
                    this.timeout_texts.idle.clone()
                };
                return failed_read(Error::Timeout(bound));
            };
            let frame = match frame {
                None => return Poll::Ready(None),
                Some(Err(error)) => return failed_read(Error::from_hyper(&error)),
                Some(Ok(frame)) => frame,
            };
            // Trailers are dropped.
            let Ok(data) = frame.into_data() else { continue };

            let now = Instant::now();
            if now >= this.end {
                return failed_read(Error::Timeout(Some(this.timeout_texts.end.clone())));
            }
            let next = this.end.min(now + this.idle);
            this.timer.as_mut().reset(next);
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            let received =
                this.received.fetch_add(length, Ordering::Relaxed).saturating_add(length);
            // A compressed body can be slightly larger than the decompressed one. The exact limit
            // applies to the decompressed body. This limit only has to be finite.
            if received > this.max_bytes.saturating_mul(2).saturating_add(1 << 16) {
                return failed_read(Error::Body(this.max_bytes));
            }
            return Poll::Ready(Some(Ok(data)));
        }
    }
}

fn failed_read(error: Error) -> Poll<Option<io::Result<Bytes>>> {
    Poll::Ready(Some(Err(io::Error::other(error))))
}
