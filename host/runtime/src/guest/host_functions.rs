//! `berth:host/call` and `berth:host/log`: what every guest may always do, within bounds.

use std::sync::PoisonError;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use berth_contract::text::{cut, neutral_line};
use berth_contract::{Content, Progress};
use berth_redaction::{self as redaction, Keys};

use crate::guest::bindings::berth::host::{call, log};
use crate::guest::bindings::berth::tool::types;
use crate::guest::convert;
use crate::guest::state::CallState;

/// Progress messages that are passed on in one second.
const PROGRESS_A_SECOND: u32 = 10;

/// Characters of a progress message.
const PROGRESS_MESSAGE: usize = 200;

/// Bytes of a log message.
const LOG_MESSAGE: usize = 4096;

impl call::Host for &mut CallState {
    fn id(&mut self) -> wasmtime::Result<String> {
        Ok(self.call.id.to_string())
    }

    fn remaining_ms(&mut self) -> wasmtime::Result<u64> {
        let left = self.call.watch.deadline.saturating_duration_since(Instant::now());
        Ok(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    }

    fn cancelled(&mut self) -> wasmtime::Result<bool> {
        Ok(self.call.watch.cancel.is_cancelled())
    }

    fn progress(&mut self, fraction: Option<f64>, message: String) -> wasmtime::Result<()> {
        // The wall clock will do: what counts is how many a person or a client gets.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (second, count) = &mut self.call.progress;
        if second.as_secs() != now.as_secs() {
            (*second, *count) = (now, 0);
        }
        *count += 1;
        if *count <= PROGRESS_A_SECOND {
            let message =
                neutral_line(cut(&self.http.without_secrets(message), PROGRESS_MESSAGE * 4))
                    .chars()
                    .take(PROGRESS_MESSAGE)
                    .collect();
            let fraction = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
            self.call.events.progress(Progress { fraction, message });
        }
        Ok(())
    }

    fn emit(&mut self, part: types::Content) -> wasmtime::Result<bool> {
        // Before anything is made of it; a part costs something even where it is empty.
        let Some(left) = self.call.emit_budget.checked_sub(convert::part_size(&part)) else {
            self.call.emit_budget = 0;
            return Ok(false);
        };
        self.call.emit_budget = left;
        // Shown as it comes, so neutralised here and not with the answer (invariant 6).
        let mut part: Content = convert::content(part).neutralised();
        if let Some(egress) = self.http.egress() {
            crate::guest::http::part_without_secrets(&mut part, egress);
        }
        self.call.events.emitted(&part);
        self.call.emitted.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        Ok(self.call.emit_budget > 0)
    }
}

impl log::Host for &mut CallState {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let call = &mut self.call;
        let Some(left) = call.log_budget.checked_sub(1) else { return Ok(()) };
        call.log_budget = left;
        // A log is read by others than an answer, so no configuration lets secrets into it.
        let message = redaction::owned(
            neutral_line(cut(&self.http.without_secrets(message), LOG_MESSAGE)),
            Keys::Text,
        );
        let (plugin, id) = (&*call.plugin, &call.id);
        match level {
            log::Level::Debug => {
                tracing::debug!(target: "berth::guest", plugin, call = %id, "{message}");
            }
            log::Level::Info => {
                tracing::info!(target: "berth::guest", plugin, call = %id, "{message}");
            }
            log::Level::Warn => {
                tracing::warn!(target: "berth::guest", plugin, call = %id, "{message}");
            }
            log::Level::Error => {
                tracing::error!(target: "berth::guest", plugin, call = %id, "{message}");
            }
        }
        if left == 0 {
            tracing::warn!(target: "berth::guest", plugin, call = %id, "has used up its log lines; the rest is dropped");
        }
        Ok(())
    }
}

impl types::Host for &mut CallState {}
