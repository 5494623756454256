//! The body of an answer on its way to a guest: counted, unpacked, without secrets, and over in
//! time.

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

use super::echoes::{Echoes, Pieces};
use super::record::Record;
use super::{Error, Place};

/// The most that zstd may look back, as a power of two: what RFC 9659 allows on the web, 8 MiB.
const ZSTD_WINDOW: u32 = 23;

/// Bytes of a piece that is unpacked at a time.
const PIECE: usize = 16 * 1024;

type Stage = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// How a body is packed.
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
            return match headers.contains_key(CONTENT_ENCODING) {
                true => Err(Error::Coding("it has several".to_owned())),
                false => Ok(Self::Identity),
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
                berth_contract::text::neutral_line(berth_contract::text::cut(&name, 64))
            ))),
        }
    }
}

/// What a body is given along.
pub(super) struct Bounds {
    /// Bytes, as they come and as they are.
    pub(super) bytes: u64,
    pub(super) idle: Duration,
    pub(super) end: Instant,
    pub(super) late: TimeoutTexts,
    pub(super) echoes: Option<Arc<Echoes>>,
}

/// What is said where a bound of its time is reached.
#[derive(Clone, Debug)]
pub(super) struct TimeoutTexts {
    /// The end of all.
    pub(super) end: String,
    /// The time in which nothing came; None where the guest set it.
    pub(super) idle: Option<String>,
}

/// The body of an answer.
pub(super) struct Answer {
    stage: Stage,
    received: Arc<AtomicU64>,
    bytes: u64,
    left: u64,
    echoes: Option<(Arc<Echoes>, Pieces)>,
    over: bool,
    record: Record,
    /// Held until the last byte: a connection is in use until then.
    _place: Place,
}

impl Answer {
    /// Of an answer, whose headers no longer tell of what was undone here.
    pub(super) fn new(
        body: Incoming,
        headers: &mut HeaderMap,
        bounds: Bounds,
        record: Record,
        place: Place,
    ) -> Result<Self, Error> {
        let coding =
            if body.is_end_stream() { Ok(Coding::Identity) } else { Coding::from_headers(headers) };
        let coding = coding.inspect_err(|error| record.failed(error))?;
        headers.remove(CONTENT_ENCODING);
        headers.remove(TRANSFER_ENCODING);
        headers.remove(TRAILER);
        if coding != Coding::Identity || bounds.echoes.is_some() {
            headers.remove(CONTENT_LENGTH);
        }
        let received = Arc::new(AtomicU64::new(0));
        let wire = Wire {
            body,
            bytes: bounds.bytes,
            received: Arc::clone(&received),
            idle: bounds.idle,
            end: bounds.end,
            late: bounds.late,
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
        let echoes = bounds.echoes.map(|echoes| (echoes, Pieces::default()));
        Ok(Self {
            stage,
            received,
            bytes: bounds.bytes,
            left: bounds.bytes,
            echoes,
            over: false,
            record,
            _place: place,
        })
    }

    /// Ends with an error, behind what there was.
    fn fail(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.record.failed(&error);
        self.over = true;
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
        while !this.over {
            if this.left == 0 {
                // What was to be said, was; whether there is more decides on how it ends.
                match ready!(this.stage.as_mut().poll_next(context)) {
                    Some(Ok(piece)) if piece.is_empty() => continue,
                    Some(_) => return this.fail(Error::Body(this.bytes)),
                    None => this.over = true,
                }
            } else {
                match ready!(this.stage.as_mut().poll_next(context)) {
                    Some(Ok(mut piece)) => {
                        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                        if length > this.left {
                            piece.truncate(usize::try_from(this.left).unwrap_or(usize::MAX));
                            // One more poll finds out that there is more, and this is what is over.
                            this.stage = Box::pin(OneMore(Some(())));
                        }
                        this.left = this.left.saturating_sub(length);
                        let piece = match &mut this.echoes {
                            Some((echoes, pieces)) => {
                                Bytes::from(pieces.next(echoes, &piece, false))
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
                    None => this.over = true,
                }
            }
        }
        // The rest of what might have been the beginning of a secret, and isn't.
        if let Some((echoes, mut pieces)) = this.echoes.take() {
            let rest = pieces.next(&echoes, b"", true);
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

/// Says once that there is more.
struct OneMore(Option<()>);

impl Stream for OneMore {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(self.0.take().map(|()| Ok(Bytes::from_static(b"more"))))
    }
}

/// A body as it comes: counted, and never waited for too long.
struct Wire {
    body: Incoming,
    bytes: u64,
    received: Arc<AtomicU64>,
    idle: Duration,
    end: Instant,
    late: TimeoutTexts,
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
                    Some(this.late.end.clone())
                } else {
                    this.late.idle.clone()
                };
                return Poll::Ready(Some(Err(io::Error::other(Error::Timeout(bound)))));
            };
            let data = match frame {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(io::Error::other(Error::from_body(&error)))));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    // Trailers: nobody asked for them.
                    Err(_) => continue,
                },
            };
            let now = Instant::now();
            if now >= this.end {
                return Poll::Ready(Some(Err(io::Error::other(Error::Timeout(Some(
                    this.late.end.clone(),
                ))))));
            }
            let next = this.end.min(now + this.idle);
            this.timer.as_mut().reset(next);
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            let received =
                this.received.fetch_add(length, Ordering::Relaxed).saturating_add(length);
            // Packed, it may have as many bytes as unpacked and a little more; one byte beyond is
            // for the end to find out that there is more.
            if received > this.bytes.saturating_mul(2).saturating_add(1 << 16) {
                return Poll::Ready(Some(Err(io::Error::other(Error::Body(this.bytes)))));
            }
            return Poll::Ready(Some(Ok(data)));
        }
    }
}
