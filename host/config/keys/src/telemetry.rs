//! `[telemetry]`: where traces and metrics of calls are sent.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{Bounded, ServerSecret};

// A project's file can't set the endpoint, because the endpoint gets the tools, times and rules of
// all calls.
section! {
    /// Traces and metrics of calls, sent by OTLP over HTTP. Without an endpoint, nothing is sent.
    /// The text of arguments and answers is never sent.
    #[derive(Eq)]
    pub struct Telemetry {
        /// The address of the collector: https, or http on this machine. `/v1/traces` and
        /// `/v1/metrics` are added. If empty, nothing is sent.
        #[schemars(extend("examples" = ["http://localhost:4318"]))]
        pub endpoint: String, Narrowing::Ignored;
        /// Whether a span is sent for each call.
        pub traces: bool = true, Narrowing::OnlyFalse;
        /// Whether counts and durations of calls are sent.
        pub metrics: bool = true, Narrowing::OnlyFalse;
        /// Seconds between two transmissions.
        pub interval_secs: Bounded<1, 3600> = Bounded::clamped(10), Narrowing::Ignored;
        /// Secrets in headers of requests to the collector, by names of your choice. `toolhold
        /// audit export --endpoint` also sends them to the same server. If `endpoint` is empty, it
        /// sends them to any server.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
    }
}
