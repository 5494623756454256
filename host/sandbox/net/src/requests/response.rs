//! Reads the answer to one of Toolhold's own requests piece by piece, within its limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::requests::error::OutboundError;
use crate::requests::record::{DoorRecord, Recorder};
use crate::requests::request::Limits;

/// The most bytes that are reserved at once, whatever length an answer states.
const MAX_CAPACITY: u64 = 1 << 20;

/// The answer to a request. The record is written at the end of the body, or when this value is
/// dropped.
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

    /// Returns the URL that answered, after all redirects.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Scheme, host and port of the URL that answered.
    pub fn origin(&self) -> &str {
        &self.pending.record.origin
    }

    /// Returns the length of the body, as the server declares it.
    pub fn length(&self) -> Option<u64> {
        self.answer.content_length()
    }

    /// Sets the idle timeout for the rest of the body. An answer may begin late and then arrive
    /// steadily.
    pub fn set_idle(&mut self, idle: Duration) {
        self.limits.idle = idle;
    }

    /// Reads the next piece of the body. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the body is larger than the limit, takes too long, or is incomplete.
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

    /// Reads the whole body. Calls `progress` with the number of bytes so far and the declared
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
        let capacity = length.unwrap_or(0).min(MAX_CAPACITY).min(self.limits.bytes);
        let mut bytes = Vec::with_capacity(usize::try_from(capacity).unwrap_or(0));
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
            progress(bytes.len() as u64, length);
        }
        Ok(bytes)
    }

    /// Ends without the rest of the body.
    pub(crate) fn finish(&mut self) -> Result<(), OutboundError> {
        self.pending.write()
    }

    /// Ends the answer with an error, and records the error. Returns the error for the caller.
    pub(crate) fn fail(mut self, error: OutboundError) -> OutboundError {
        self.end(error)
    }

    fn end(&mut self, error: OutboundError) -> OutboundError {
        self.pending.end(error)
    }
}

/// A record that isn't written yet. The record is written once, at the latest when this value is
/// dropped.
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

    /// Puts the error of a request without an answer into the record. Returns the error for the
    /// caller.
    pub(crate) fn fail(mut self, error: OutboundError) -> OutboundError {
        self.end(error)
    }

    /// Writes the record with an error. Returns the error for the caller, or another error if the
    /// record can't be written.
    fn end(&mut self, error: OutboundError) -> OutboundError {
        self.record.refused = error.is_refusal();
        self.record.failed = Some(error.record_text());
        match self.write() {
            Ok(()) => error,
            Err(unrecorded) => unrecorded,
        }
    }

    /// Writes the record, unless it is already written.
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
        // A caller that only needs the status drops the answer without reading the body.
        if !self.is_written && self.record.status.is_none() {
            self.record.failed = Some("cancelled before an answer came".to_owned());
        }
        let _ = self.write();
    }
}
