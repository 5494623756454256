//! Reads the answer to one of Toolhold's own requests, within its limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::own_requests::{DoorRecord, Recorder};
use crate::requests::error::OutboundError;
use crate::requests::request::Limits;

/// Maximum number of bytes that are reserved at once, even if an answer declares more.
const MAX_CAPACITY: u64 = 1 << 20;

/// The answer to a request. Its record is written at the end of the body, or on drop.
pub struct Response {
    answer: reqwest::Response,
    url: Url,
    limits: Limits,
    until: Instant,
    pending: Pending,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Response {
    pub(crate) fn new(
        answer: reqwest::Response,
        url: Url,
        limits: Limits,
        until: Instant,
        mut pending: Pending,
    ) -> Self {
        pending.record.status = Some(answer.status().as_u16());
        pending.record.address = answer.remote_addr().map(|address| address.ip());
        Self { answer, url, limits, until, pending }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.answer.status()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        self.answer.headers()
    }

    /// Returns the URL of the answer, after all redirects.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the scheme, host and port of the URL of the answer.
    pub fn origin(&self) -> &str {
        &self.pending.record.origin
    }

    /// Returns the length of the body that the server declares.
    pub fn length(&self) -> Option<u64> {
        self.answer.content_length()
    }

    /// Sets the idle timeout for the rest of the body, for an answer that starts late and then
    /// arrives steadily.
    pub fn set_idle(&mut self, idle: Duration) {
        self.limits.idle = idle;
    }

    /// Reads the next piece of the body. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the body exceeds a limit or is incomplete.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        let limit = self.limits.bytes;
        let too_large = OutboundError::TooLarge(self.origin().to_owned(), limit);
        if self.length().is_some_and(|length| length > limit) {
            return Err(self.end(too_large));
        }

        let idle_until = Instant::now() + self.limits.idle;
        let chunk = match timeout_at(self.until.min(idle_until), self.answer.chunk()).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => {
                let error = OutboundError::from_client(self.origin(), error);
                return Err(self.end(error));
            }
            Err(_) => {
                let origin = self.origin().to_owned();
                let error = if self.until < idle_until {
                    OutboundError::Time(origin, self.limits.time)
                } else {
                    OutboundError::Idle(origin, self.limits.idle)
                };
                return Err(self.end(error));
            }
        };
        let Some(chunk) = chunk else {
            self.pending.write()?;
            return Ok(None);
        };

        self.pending.record.bytes += chunk.len() as u64;
        if self.pending.record.bytes > limit {
            return Err(self.end(too_large));
        }
        Ok(Some(chunk))
    }

    /// Reads the whole body. Calls `progress` with the number of bytes so far, and the declared
    /// length.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::chunk`].
    pub async fn bytes(
        mut self,
        progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
    ) -> Result<Vec<u8>, OutboundError> {
        let length = self.length();
        let max_capacity = self.limits.bytes.min(MAX_CAPACITY);
        let capacity = length.unwrap_or(0).min(max_capacity);
        let mut bytes = Vec::with_capacity(usize::try_from(capacity).unwrap_or(0));
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
            progress(bytes.len() as u64, length);
        }
        Ok(bytes)
    }

    pub(crate) fn finish(&mut self) -> Result<(), OutboundError> {
        self.pending.write()
    }

    pub(crate) fn fail(mut self, error: OutboundError) -> OutboundError {
        self.end(error)
    }

    fn end(&mut self, error: OutboundError) -> OutboundError {
        self.pending.end(error)
    }
}

/// A record that isn't written yet. It is written once, at the latest on drop.
pub(crate) struct Pending {
    recorder: Arc<dyn Recorder>,
    record: DoorRecord,
    started_at: Instant,
    is_written: bool,
}

impl Pending {
    pub(crate) fn new(recorder: Arc<dyn Recorder>, record: DoorRecord) -> Self {
        Self { recorder, record, started_at: Instant::now(), is_written: false }
    }

    pub(crate) fn fail(mut self, error: OutboundError) -> OutboundError {
        self.end(error)
    }

    /// Records an error. Returns the error, or another error if the record can't be written.
    fn end(&mut self, error: OutboundError) -> OutboundError {
        self.record.refused = error.is_refusal();
        self.record.failed = Some(error.record_text());
        match self.write() {
            Ok(()) => error,
            Err(unrecorded) => unrecorded,
        }
    }

    /// Writes the record of the request, but only once.
    fn write(&mut self) -> Result<(), OutboundError> {
        if self.is_written {
            return Ok(());
        }
        self.is_written = true;
        self.record.time = self.started_at.elapsed();
        match self.recorder.record(&self.record) {
            Ok(()) => Ok(()),
            Err(failure) => {
                Err(OutboundError::Unrecorded(self.record.origin.clone(), failure.message))
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // A request with a status hasn't failed: the caller needs only the status, or a part of the
        // body.
        if !self.is_written && self.record.status.is_none() {
            self.record.failed =
                Some("the request was cancelled before a response arrived".to_owned());
        }
        let _ = self.write();
    }
}
