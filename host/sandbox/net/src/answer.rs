//! Limits the size and time of an answer's body, and removes secrets.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::coding::{Coding, Stage};
use super::echoes::{EchoRedactor, Echoes};
use super::record::Record;
use super::{Error, RequestPermit};

/// The limit for received bytes is the limit for the decoded body times this factor, plus these
/// extra bytes. It leaves room, because a compressed body can be slightly larger than the decoded
/// one. It needn't be exact, because the decoded body has an exact limit.
const RECEIVED_FACTOR: u64 = 2;
const RECEIVED_EXTRA: u64 = 1 << 16;

pub(super) struct Bounds {
    /// Maximum number of bytes, both compressed and decompressed. A longer body fails.
    pub(super) bytes: u64,
    pub(super) idle: Duration,
    pub(super) end: Instant,
    pub(super) timeout_texts: TimeoutTexts,
    pub(super) echoes: Option<Arc<Echoes>>,
}

#[derive(Clone, Debug)]
pub(super) struct TimeoutTexts {
    pub(super) end: String,
    /// `None` if the guest set the idle timeout.
    pub(super) idle: Option<String>,
}

pub(super) struct Answer {
    stage: Stage,
    received: Arc<AtomicU64>,
    max_bytes: u64,
    remaining: u64,
    echoes: Option<(Arc<Echoes>, EchoRedactor)>,
    is_finished: bool,
    record: Record,
    /// The permit lasts as long as the connection is in use: until the last byte.
    _permit: RequestPermit,
}

impl Answer {
    /// Wraps the body of an answer. Removes the headers about compression from `headers`.
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
        let stage = coding.decode(wire);
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

    /// Returns a piece of the body without secrets, cut at the limit of the body.
    fn take_piece(&mut self, mut piece: Bytes) -> Bytes {
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        if length > self.remaining {
            // `remaining` is less than a length in memory, so the conversions succeed.
            piece.truncate(usize::try_from(self.remaining).unwrap_or(usize::MAX));
            // The additional piece makes the next poll report that the body exceeds the limit.
            self.stage = Box::pin(OneMore(Some(())));
        }
        self.remaining = self.remaining.saturating_sub(length);
        let is_last = false;
        match &mut self.echoes {
            Some((echoes, redactor)) => redactor.redact_piece(echoes, &piece, is_last).into(),
            None => piece,
        }
    }

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
        // The redactor may have held back bytes that could be the start of a secret.
        if let Some((echoes, mut redactor)) = this.echoes.take() {
            let is_last = true;
            let rest = redactor.redact_piece(&echoes, b"", is_last);
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
        self.record.set_received(self.received.load(Ordering::Relaxed));
    }
}

/// A single piece that stands for data beyond the limit.
struct OneMore(Option<()>);

impl Stream for OneMore {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(self.0.take().map(|()| Ok(Bytes::from_static(b"more"))))
    }
}

struct Wire {
    body: Incoming,
    max_bytes: u64,
    received: Arc<AtomicU64>,
    idle: Duration,
    end: Instant,
    timeout_texts: TimeoutTexts,
    timer: Pin<Box<Sleep>>,
}

impl Wire {
    /// Returns the error for the time limit that has passed.
    fn timeout_error(&self) -> Error {
        let limit_text = if Instant::now() >= self.end {
            Some(self.timeout_texts.end.clone())
        } else {
            self.timeout_texts.idle.clone()
        };
        Error::Timeout(limit_text)
    }

    /// Counts received bytes. Too many bytes are an error.
    fn count_received(&self, data: &Bytes) -> Result<(), Error> {
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        let received = self.received.fetch_add(length, Ordering::Relaxed).saturating_add(length);
        let max_received =
            self.max_bytes.saturating_mul(RECEIVED_FACTOR).saturating_add(RECEIVED_EXTRA);
        if received > max_received { Err(Error::Body(self.max_bytes)) } else { Ok(()) }
    }
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
                return failed_read(this.timeout_error());
            };
            let frame = match frame {
                None => return Poll::Ready(None),
                Some(Err(error)) => return failed_read(Error::from_hyper(&error)),
                Some(Ok(frame)) => frame,
            };
            // A frame without data contains trailers, which plugins don't get.
            let Ok(data) = frame.into_data() else { continue };

            let now = Instant::now();
            if now >= this.end {
                return failed_read(Error::Timeout(Some(this.timeout_texts.end.clone())));
            }
            let next_timeout = this.end.min(now + this.idle);
            this.timer.as_mut().reset(next_timeout);
            return match this.count_received(&data) {
                Ok(()) => Poll::Ready(Some(Ok(data))),
                Err(error) => failed_read(error),
            };
        }
    }
}

fn failed_read(error: Error) -> Poll<Option<io::Result<Bytes>>> {
    Poll::Ready(Some(Err(io::Error::other(error))))
}
