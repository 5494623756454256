//! The bodies of responses to programs, without the secrets that the server knows.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::body::PassedBody;
use crate::Error;
use crate::coding::{Coding, Stage};
use crate::echoes::{EchoRedactor, Echoes};
use crate::send::redact_headers;

/// The time for which bytes are held back that may be the start of a secret. Without a limit, a
/// program could wait for the last bytes of a message while the server waits for the program.
const HELD: Duration = Duration::from_secs(1);

/// A body without secrets.
pub(super) struct RedactedBody {
    source: Source,
    echoes: Arc<Echoes>,
    redactor: EchoRedactor,
    /// The end of the time for held bytes.
    timer: Pin<Box<Sleep>>,
    trailers: Option<HeaderMap>,
    has_ended: bool,
}

enum Source {
    Plain(PassedBody),
    Decoded(Stage),
}

impl RedactedBody {
    /// Wraps the body of a response. Adapts the headers, because the length of the body may change.
    pub(super) fn new(
        body: PassedBody,
        headers: &mut HeaderMap,
        echoes: Arc<Echoes>,
    ) -> Result<Self, Error> {
        let coding = if body.is_end_stream() {
            Coding::Identity
        } else {
            headers.remove(CONTENT_LENGTH);
            Coding::from_headers(headers)?
        };
        let source = match coding {
            Coding::Identity => Source::Plain(body),
            coding => {
                headers.remove(CONTENT_ENCODING);
                Source::Decoded(coding.decode(DataStream(body)))
            }
        };
        Ok(Self {
            source,
            echoes,
            redactor: EchoRedactor::default(),
            timer: Box::pin(tokio::time::sleep(HELD)),
            trailers: None,
            has_ended: false,
        })
    }

    /// Returns the bytes that the redactor holds back.
    fn take_held(&mut self) -> Bytes {
        let is_last = true;
        let held = self.redactor.redact_piece(&self.echoes, b"", is_last);
        self.redactor = EchoRedactor::default();
        held.into()
    }
}

impl Source {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self {
            Self::Plain(body) => {
                Pin::new(body).poll_frame(context).map_err(|error| Error::from_hyper(&error))
            }
            Self::Decoded(stage) => {
                let piece = ready!(stage.as_mut().poll_next(context));
                Poll::Ready(piece.map(|piece| match piece {
                    Ok(piece) => Ok(Frame::data(piece)),
                    Err(error) => Err(Error::from_reader(&error)),
                }))
            }
        }
    }
}

impl Body for RedactedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        while !this.has_ended {
            let Poll::Ready(frame) = this.source.poll_frame(context) else {
                if !this.redactor.holds_bytes() {
                    return Poll::Pending;
                }
                ready!(this.timer.as_mut().poll(context));
                let held = this.take_held();
                if held.is_empty() {
                    continue;
                }
                return Poll::Ready(Some(Ok(Frame::data(held))));
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    this.has_ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    this.has_ended = true;
                    break;
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let is_last = false;
                    let piece = this.redactor.redact_piece(&this.echoes, &data, is_last);
                    this.timer.as_mut().reset(Instant::now() + HELD);
                    if !piece.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
                    }
                }
                Err(frame) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    redact_headers(&mut trailers, &this.echoes);
                    this.trailers = Some(trailers);
                    this.has_ended = true;
                }
            }
        }
        let held = this.take_held();
        if !held.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(held))));
        }
        Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

/// The data of a body, without its trailers.
struct DataStream(PassedBody);

impl Stream for DataStream {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            return match ready!(Pin::new(&mut self.0).poll_frame(context)) {
                None => Poll::Ready(None),
                Some(Err(error)) => {
                    Poll::Ready(Some(Err(io::Error::other(Error::from_hyper(&error)))))
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => Poll::Ready(Some(Ok(data))),
                    Err(_) => continue,
                },
            };
        }
    }
}
