//! `toolhold:host/call`, `config` and `log`. Every guest may use them, within limits.

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

/// Most progress messages that are passed on in one second.
const PROGRESS_A_SECOND: u32 = 10;

/// Most characters of a progress message.
const PROGRESS_MESSAGE: usize = 200;

/// Most bytes of a log message.
const LOG_MESSAGE: usize = 4096;

/// Bytes of an answer that emitted parts leave free. A stopped tool can use them to report this.
const LAST_WORDS: usize = 4096;

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
        // The wall clock is exact enough for limiting messages to a person or a client.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (second, count) = &mut self.call.progress;
        if second.as_secs() != now.as_secs() {
            *second = now;
            *count = 0;
        }
        *count += 1;
        if *count > PROGRESS_A_SECOND {
            return Ok(());
        }

        let whole = self.capabilities.http.without_secrets(shown(message, false));
        let start = match whole.char_indices().nth(PROGRESS_MESSAGE) {
            Some((end, _)) => cut_at_word(&whole, end),
            None => whole.as_str(),
        };
        // The text may be longer after it is neutralised.
        let message = neutral_line(start).chars().take(PROGRESS_MESSAGE).collect();
        let fraction = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
        self.call.events.progress(Progress { fraction, message, untrusted: false });
        Ok(())
    }

    fn emit(&mut self, part: types::Content) -> wasmtime::Result<bool> {
        // The budget is checked before the part is converted. Even an empty part has a cost. After
        // a part that is too large, the rest of the budget is for the answer, which may follow the
        // emitted parts.
        let size = convert::part_size(&part);
        let budget_left = self.call.emit_budget.saturating_sub(size);
        if self.call.emitted_all || budget_left < LAST_WORDS {
            self.call.emitted_all = true;
            return Ok(false);
        }
        self.call.emit_budget = budget_left;
        // The receiver neutralises the part, as the host does with the answer. Text that a terminal
        // would not show can only be found before that.
        let Some(mut part) = convert::content(part) else { return Ok(true) };
        if let Some(egress) = self.capabilities.http.egress() {
            part_without_secrets(&mut part, egress);
        }
        self.call.events.emitted(&part);
        self.call.emitted.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        Ok(true)
    }

    async fn called_by(&mut self) -> wasmtime::Result<call::Caller> {
        // A session on disk is read here.
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
        let Some(left) = call.log_budget.checked_sub(1) else { return Ok(()) };
        call.log_budget = left;
        // The log has other readers than the answer, so it is always redacted.
        let text = self.capabilities.http.without_secrets(message);
        let line = neutral_line(cut_at_word(&text, LOG_MESSAGE));
        let message = redaction::owned(line, Keys::Text);
        let plugin = &*call.plugin;
        let id = &call.id;
        match level {
            log::Level::Debug => {
                tracing::debug!(target: "toolhold::guest", plugin, call = %id, "{message}");
            }
            log::Level::Info => {
                tracing::info!(target: "toolhold::guest", plugin, call = %id, "{message}");
            }
            log::Level::Warn => {
                tracing::warn!(target: "toolhold::guest", plugin, call = %id, "{message}");
            }
            log::Level::Error => {
                tracing::error!(target: "toolhold::guest", plugin, call = %id, "{message}");
            }
        }
        if left == 0 {
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
