//! `[tools.limits]` and `[plugins.NAME.limits]`: the processor time, memory, output, writes,
//! handles and requests of a call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// The limits of one call. `[plugins.NAME.limits]` has the same keys for one plugin.
    #[derive(Copy, Eq)]
    pub struct Limits {
        /// Seconds of processor time.
        pub cpu_secs: Bounded<1, 86_400> = Bounded::clamped(10), Narrowing::Smaller;
        /// MiB of memory, over all memories and tables of the plugin together.
        pub memory_mib: Bounded<1, 16_384> = Bounded::clamped(256), Narrowing::Smaller;
        /// MiB of one answer.
        pub result_mib: Bounded<1, 256> = Bounded::clamped(8), Narrowing::Smaller;
        /// MiB that may be written to files.
        pub written_mib: Bounded<1, 1_048_576> = Bounded::clamped(1024), Narrowing::Smaller;
        /// Files, directories and other handles that may be open at the same time.
        pub handles: Bounded<16, 4096> = Bounded::clamped(256), Narrowing::Smaller;
        /// Requests to the network, including redirects.
        pub requests: Bounded<1, 256> = Bounded::clamped(100), Narrowing::Smaller;
        /// Requests of the plugin at the same time. Further requests wait.
        pub concurrent_requests: Bounded<1, 1024> = Bounded::clamped(8), Narrowing::Smaller;
        /// MiB of one response from the network. The limit applies to the received size and to the
        /// unpacked size.
        pub response_mib: Bounded<1, 1024> = Bounded::clamped(10), Narrowing::Smaller;
        /// Seconds of one request, until the end of its response.
        pub request_secs: Bounded<1, 3600> = Bounded::clamped(30), Narrowing::Smaller;
    }
}

section! {
    /// The limits of one call of a plugin. A missing key has its value from `[tools.limits]`.
    #[derive(Copy, Eq)]
    pub struct PluginLimits {
        /// Seconds of processor time.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cpu_secs: Option<Bounded<1, 86_400>>, Narrowing::Smaller;
        /// MiB of memory, over all memories and tables of the plugin together.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub memory_mib: Option<Bounded<1, 16_384>>, Narrowing::Smaller;
        /// MiB of one answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub result_mib: Option<Bounded<1, 256>>, Narrowing::Smaller;
        /// MiB that may be written to files.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub written_mib: Option<Bounded<1, 1_048_576>>, Narrowing::Smaller;
        /// Files, directories and other handles that may be open at the same time.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub handles: Option<Bounded<16, 4096>>, Narrowing::Smaller;
        /// Requests to the network, including redirects.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub requests: Option<Bounded<1, 256>>, Narrowing::Smaller;
        /// Requests of the plugin at the same time. Further requests wait.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub concurrent_requests: Option<Bounded<1, 1024>>, Narrowing::Smaller;
        /// MiB of one response from the network. The limit applies to the received size and to the
        /// unpacked size.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub response_mib: Option<Bounded<1, 1024>>, Narrowing::Smaller;
        /// Seconds of one request, until the end of its response.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub request_secs: Option<Bounded<1, 3600>>, Narrowing::Smaller;
    }
}

impl PluginLimits {
    /// Returns the limits of the plugin. A limit that the plugin doesn't set has its default.
    pub fn with_defaults(self, defaults: Limits) -> Limits {
        Limits {
            cpu_secs: self.cpu_secs.unwrap_or(defaults.cpu_secs),
            memory_mib: self.memory_mib.unwrap_or(defaults.memory_mib),
            result_mib: self.result_mib.unwrap_or(defaults.result_mib),
            written_mib: self.written_mib.unwrap_or(defaults.written_mib),
            handles: self.handles.unwrap_or(defaults.handles),
            requests: self.requests.unwrap_or(defaults.requests),
            concurrent_requests: self.concurrent_requests.unwrap_or(defaults.concurrent_requests),
            response_mib: self.response_mib.unwrap_or(defaults.response_mib),
            request_secs: self.request_secs.unwrap_or(defaults.request_secs),
        }
    }
}

impl From<Limits> for PluginLimits {
    fn from(limits: Limits) -> Self {
        Self {
            cpu_secs: Some(limits.cpu_secs),
            memory_mib: Some(limits.memory_mib),
            result_mib: Some(limits.result_mib),
            written_mib: Some(limits.written_mib),
            handles: Some(limits.handles),
            requests: Some(limits.requests),
            concurrent_requests: Some(limits.concurrent_requests),
            response_mib: Some(limits.response_mib),
            request_secs: Some(limits.request_secs),
        }
    }
}
