//! Bounds the body of an answer to a plugin's request in size and time, decompresses it, and
//! removes secrets.

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
        let (Some(value), None) = (values.next(), values.next()) else {
            return if headers.contains_key(CONTENT_ENCODING) {
                Err(Error::Coding("there are several".to_owned()))
            } else {
                Ok(Self::Identity)
            };
        };
        let name = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        match name.as_str() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "br" => Ok(Self::Brotli),
            "zstd" => Ok(Self::Zstd),
            _ => Err(Error::Coding(format!(
                "`{}`",
                toolhold_contract::text::neutral_line(toolhold_contract::text::cut(&name, 64))
            ))),
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
    /// The message for the limit of the time without data. `None` if the guest set this limit.
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
    /// Held until the last byte, because the connection is in use until then.
    _permit: RequestPermit,
}

impl Answer {
    /// The body of an answer. Headers that describe the compressed body are removed from `headers`.
    pub(super) fn new(
        body: Incoming,
        headers: &mut HeaderMap,
        bounds: Bounds,
        record: Record,
        permit: RequestPermit,
    ) -> Result<Self, Error> {
        let named =
            if body.is_end_stream() { Ok(Coding::Identity) } else { Coding::from_headers(headers) };
        let coding = named.inspect_err(|error| record.set_failure(error))?;
        headers.remove(CONTENT_ENCODING);
        headers.remove(TRANSFER_ENCODING);
        headers.remove(TRAILER);
        if coding != Coding::Identity || bounds.echoes.is_some() {
            headers.remove(CONTENT_LENGTH);
        }
        let received = Arc::new(AtomicU64::new(0));
        let wire = Wire {
            body,
            max_bytes: bounds.bytes,
            received: Arc::clone(&received),
            idle: bounds.idle,
            end: bounds.end,
            timeout_texts: bounds.timeout_texts,
            timer: Box::pin(tokio::time::sleep_until(bounds.end.min(Instant::now() + bounds.idle))),
        };
        let stage: Stage = match coding {
            Coding::Identity => Box::pin(wire),
            Coding::Gzip => {
                let mut decoder = GzipDecoder::new(StreamReader::new(wire));
                decoder.multiple_members(true);
                Box::pin(ReaderStream::with_capacity(decoder, PIECE))
            }
            Coding::Brotli => Box::pin(ReaderStream::with_capacity(
                BrotliDecoder::new(StreamReader::new(wire)),
                PIECE,
            )),
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

    /// Ends the body with an error, after the data so far.
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
            if this.remaining == 0 {
                // The limit is reached. If there is more data, the body ends with an error.
                match ready!(this.stage.as_mut().poll_next(context)) {
                    Some(Ok(piece)) if piece.is_empty() => continue,
                    Some(_) => return this.fail(Error::Body(this.max_bytes)),
                    None => this.is_finished = true,
                }
            } else {
                match ready!(this.stage.as_mut().poll_next(context)) {
                    Some(Ok(mut piece)) => {
                        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                        if length > this.remaining {
                            piece.truncate(usize::try_from(this.remaining).unwrap_or(usize::MAX));
                            // The next poll then reports that there is more than the limit.
                            this.stage = Box::pin(OneMore(Some(())));
                        }
                        this.remaining = this.remaining.saturating_sub(length);
                        let piece = match &mut this.echoes {
                            Some((echoes, redactor)) => {
                                Bytes::from(redactor.redact_piece(echoes, &piece, false))
                            }
                            None => piece,
                        };
                        if !piece.is_empty() {
                            return Poll::Ready(Some(Ok(Frame::data(piece))));
                        }
                    }
                    Some(Err(error)) => {
                        let error = Error::from_reader(&error);
                        return this.fail(error);
                    }
                    None => this.is_finished = true,
                }
            }
        }
        // The redactor still holds bytes that could have been the beginning of a secret.
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

/// A stream with one piece, which stands for data over the limit.
struct OneMore(Option<()>);

impl Stream for OneMore {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(self.0.take().map(|()| Ok(Bytes::from_static(b"more"))))
    }
}

/// A body as it arrives from the network, bounded in size and time.
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
                return Poll::Ready(Some(Err(io::Error::other(Error::Timeout(bound)))));
            };
            let data = match frame {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(io::Error::other(Error::from_hyper(&error)))));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    // Trailers are dropped.
                    Err(_) => continue,
                },
            };
            let now = Instant::now();
            if now >= this.end {
                return Poll::Ready(Some(Err(io::Error::other(Error::Timeout(Some(
                    this.timeout_texts.end.clone(),
                ))))));
            }
            let next = this.end.min(now + this.idle);
            this.timer.as_mut().reset(next);
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            let received =
                this.received.fetch_add(length, Ordering::Relaxed).saturating_add(length);
            // Compressed, a body can be a little larger than decompressed. The exact limit is
            // checked for the decompressed body; this one only has to be finite.
            if received > this.max_bytes.saturating_mul(2).saturating_add(1 << 16) {
                return Poll::Ready(Some(Err(io::Error::other(Error::Body(this.max_bytes)))));
            }
            return Poll::Ready(Some(Ok(data)));
        }
    }
}
