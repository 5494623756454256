//! Sends an export to a collector, and repeats requests.

use std::thread::sleep;

use toolhold_core::HostError;
use toolhold_core::audit::LogRecord;

use crate::error::ExportError;
use crate::otlp::{self, Refused};
use crate::send::{Pauses, Sent, Transport, send};

/// The number of attempts for a batch. With `follow`, there is no limit.
const MAX_TRIES: usize = 6;

pub(crate) struct Delivery {
    transport: Box<dyn Transport>,
    endpoint: String,
    instance: String,
    follows: bool,
    /// The number of records that the collector refused.
    refused: u64,
}

impl Delivery {
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        endpoint: String,
        instance: String,
        follows: bool,
    ) -> Self {
        Self { transport, endpoint, instance, follows, refused: 0 }
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Sends records until the collector has answered for all of them. If a request is too large,
    /// sends each half of the records separately.
    pub(crate) fn send(
        &mut self,
        records: &[LogRecord],
        warn: &mut impl FnMut(&str),
    ) -> Result<(), ExportError> {
        let body = otlp::logs::request(records, &self.instance).to_protobuf();
        let mut pauses = Pauses::new();
        let mut tries = 0;
        loop {
            tries += 1;
            match send(&mut *self.transport, "v1/logs", &body) {
                Sent::Done(None) => return Ok(()),
                Sent::Done(Some(Refused { count, why })) => {
                    self.refused += count;
                    let total = records.len();
                    warn(&format!("the collector refused {count} of {total} records: {why}"));
                    return Ok(());
                }
                Sent::TooLarge if records.len() > 1 => {
                    let (first, second) = records.split_at(records.len() / 2);
                    self.send(first, warn)?;
                    return self.send(second, warn);
                }
                Sent::TooLarge => return Err(self.failed(records, "the receiver answered 413")),
                Sent::Refused(why) => return Err(self.failed(records, &why)),
                Sent::Later(_, why) if !self.follows && tries == MAX_TRIES => {
                    return Err(self.failed(records, &why));
                }
                Sent::Later(requested_pause, why) => {
                    if tries == 1 {
                        warn(&format!("{}: {why}; trying again", self.endpoint));
                    }
                    sleep(pauses.next_pause(requested_pause));
                }
            }
        }
    }

    /// Returns the error for records that the collector didn't accept.
    fn failed(&self, records: &[LogRecord], why: &str) -> ExportError {
        // A request has at least one record, so the defaults are never used.
        let first = records.first().map_or(0, |record| record.position.seq);
        let last = records.last().map_or(0, |record| record.position.seq);
        let why = format!(
            "{why}; records {first} to {last} were not accepted; the next run starts with them"
        );
        HostError::io(format!("exporting to {}", self.endpoint))(std::io::Error::other(why)).into()
    }
}
