//! `toolhold:host/call`, `config` and `log`, which all guests may use.

use std::sync::PoisonError;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use toolhold_contract::text::{cut_at_word, neutral_line, shown};
use toolhold_contract::{CallerInfo, Progress};
use toolhold_redaction::{self as redaction, Keys};

use crate::guest::CallState;
use crate::guest::bindings::toolhold::host::{call, config, log, types as host_types};
use crate::guest::bindings::toolhold::tool::types;
use crate::guest::capability::http::part_without_secrets;
use crate::guest::convert;

/// Most progress messages in a second. Further messages are dropped.
const PROGRESS_A_SECOND: u32 = 10;

/// Longest progress message in characters. Longer messages are cut.
const MAX_PROGRESS_MESSAGE: usize = 200;

/// Longest log message in bytes. Longer messages are cut.
const MAX_LOG_MESSAGE: usize = 4096;

/// Bytes of an answer that emitted parts leave free. A tool whose part was refused needs these
/// bytes for its answer.
const ANSWER_RESERVE: usize = 4096;

impl call::Host for &mut CallState {
    fn id(&mut self) -> wasmtime::Result<String> {
        Ok(self.call.id.to_string())
    }

    fn remaining_ms(&mut self) -> wasmtime::Result<u64> {
        if self.call.still {
            return Ok(0);
        }
        let left = self.call.watch.deadline().saturating_duration_since(Instant::now());
        Ok(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    }

    fn cancelled(&mut self) -> wasmtime::Result<bool> {
        Ok(self.call.watch.cancel.is_cancelled())
    }

    fn progress(&mut self, fraction: Option<f64>, message: String) -> wasmtime::Result<()> {
        // The limit applies to each second of the wall clock.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (counted_second, count) = &mut self.call.progress;
        if counted_second.as_secs() != now.as_secs() {
            *counted_second = now;
            *count = 0;
        }
        *count += 1;
        if *count > PROGRESS_A_SECOND {
            return Ok(());
        }

        let as_lines = false;
        let redacted = self.capabilities.http.without_secrets(shown(message, as_lines));
        let beginning = match redacted.char_indices().nth(MAX_PROGRESS_MESSAGE) {
            Some((end, _)) => cut_at_word(&redacted, end),
            None => redacted.as_str(),
        };
        // Neutralising can lengthen the text, so it is cut again.
        let message = neutral_line(beginning).chars().take(MAX_PROGRESS_MESSAGE).collect();
        let valid_fraction = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
        let progress = Progress { fraction: valid_fraction, message, untrusted: false };
        self.call.events.progress(progress);
        Ok(())
    }

    fn emit(&mut self, part: types::Content) -> wasmtime::Result<bool> {
        let size = convert::part_size(&part);
        let budget_left = self.call.emit_budget.saturating_sub(size);
        if self.call.refuses_parts || budget_left < ANSWER_RESERVE {
            // The rest of the budget is for the answer, so all further parts are refused.
            self.call.refuses_parts = true;
            return Ok(false);
        }
        self.call.emit_budget = budget_left;

        // A part of an unknown kind is dropped.
        let Some(mut part) = convert::content(part) else { return Ok(true) };
        // Secrets are found only in the original text, so the receiver neutralises the part later.
        if let Some(egress) = self.capabilities.http.egress() {
            part_without_secrets(&mut part, egress);
        }
        self.call.events.emitted(&part);
        self.call.emitted.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        Ok(true)
    }

    async fn called_by(&mut self) -> wasmtime::Result<call::Caller> {
        // The caller may be read from a session file, which blocks.
        self.call.watch.may_block().await;
        let caller = match &self.call.caller {
            Some(source) => source.caller(),
            None => no_caller(),
        };
        let CallerInfo { user, project, session, front_end, agent, untrusted } = caller;
        Ok(call::Caller { user, project, session, front_end, agent, untrusted, meta: None })
    }
}

/// Describes the caller of code that runs before a call.
fn no_caller() -> CallerInfo {
    CallerInfo {
        user: String::new(),
        project: String::new(),
        session: String::new(),
        front_end: String::new(),
        agent: None,
        untrusted: true,
    }
}

impl log::Host for &mut CallState {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let call = &mut self.call;
        let Some(lines_left) = call.log_budget.checked_sub(1) else { return Ok(()) };
        call.log_budget = lines_left;
        // The log has more readers than the answer, so all kinds of secrets are redacted.
        let without_secrets = self.capabilities.http.without_secrets(message);
        let line = neutral_line(cut_at_word(&without_secrets, MAX_LOG_MESSAGE));
        let redacted = redaction::owned(line, Keys::Text);
        let plugin = &*call.plugin;
        let id = &call.id;
        match level {
            log::Level::Debug => {
                tracing::debug!(target: "toolhold::guest", plugin, call = %id, "{redacted}");
            }
            log::Level::Info => {
                tracing::info!(target: "toolhold::guest", plugin, call = %id, "{redacted}");
            }
            log::Level::Warn => {
                tracing::warn!(target: "toolhold::guest", plugin, call = %id, "{redacted}");
            }
            log::Level::Error => {
                tracing::error!(target: "toolhold::guest", plugin, call = %id, "{redacted}");
            }
        }
        if lines_left == 0 {
            tracing::warn!(target: "toolhold::guest", plugin, call = %id, "the call has used up its log lines; further lines are dropped");
        }
        Ok(())
    }
}

impl config::Host for &mut CallState {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        Ok(self.call.config.get(&key).map(str::to_owned))
    }

    fn all(&mut self) -> wasmtime::Result<String> {
        Ok(self.call.config.all().to_owned())
    }
}

impl types::Host for &mut CallState {}

impl host_types::Host for &mut CallState {}
