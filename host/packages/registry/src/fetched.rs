//! The fetched component with its signatures, and the limits of fetching.

use std::time::Duration;

use http::StatusCode;
use toolhold_component::file::{self, MAX_COMPONENT};
use toolhold_net::requests::Limits;

use crate::credentials::Credentials;
use crate::error::FetchError;
use crate::manifest::shown;
use crate::source::Source;

/// The purpose of requests in the audit log.
pub(crate) const PURPOSE: &str = "plugin";

/// Largest signature, in bytes.
pub const MAX_SIGNATURE: u64 = 8 << 10;

/// The most signatures of a plugin that are fetched.
pub const MAX_SIGNATURES: usize = 8;

/// The first bytes of WebAssembly.
const MAGIC: &[u8] = b"\0asm";

/// A fetched plugin. Only its match with the source's statements has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The component.
    pub bytes: Vec<u8>,
    /// The SHA-256 digest in hexadecimal.
    pub digest: String,
    /// The exact source. For an artifact, the source with the digest of its manifest. For a file,
    /// its real path.
    pub resolved: Source,
    /// The files of minisign next to the component. The signatures aren't verified yet.
    pub signatures: Vec<Vec<u8>>,
}

impl Fetched {
    pub(crate) fn new(
        bytes: Vec<u8>,
        resolved: Source,
        signatures: Vec<Vec<u8>>,
    ) -> Result<Self, FetchError> {
        if !bytes.starts_with(MAGIC) {
            // The error shows the beginning of a server's answer. The content of a file is private.
            let why = if matches!(resolved, Source::Path(_)) {
                "it isn't WebAssembly".to_owned()
            } else {
                let beginning = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]);
                format!("it isn't WebAssembly: it begins with `{}`", shown(&beginning))
            };
            let from = resolved.to_string();
            return Err(FetchError::Refused { what: "the component".to_owned(), from, why });
        }
        let digest = file::digest(&bytes);
        Ok(Self { bytes, digest, resolved, signatures })
    }
}

/// How a plugin is fetched.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Logins for registries.
    pub credentials: Credentials,
    /// Largest size of a component, in bytes. At most the size that Toolhold loads.
    pub bytes: u64,
    /// The most time for the component.
    pub time: Duration,
    /// The most time without any data.
    pub idle: Duration,
}

/// Without logins.
impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            credentials: Credentials::default(),
            bytes: MAX_COMPONENT as u64,
            time: Duration::from_secs(600),
            idle: Duration::from_secs(30),
        }
    }
}

impl FetchOptions {
    /// Returns the limits of the component.
    pub(crate) fn component(&self) -> Limits {
        let bytes = self.bytes.min(MAX_COMPONENT as u64);
        Limits { time: self.time, idle: self.idle, bytes }
    }

    /// Returns the limits of an answer with at most `bytes`. The time limits are at most the usual
    /// ones.
    pub(crate) fn small(&self, bytes: u64) -> Limits {
        let usual = Limits::default();
        let time = usual.time.min(self.time);
        let idle = usual.idle.min(self.idle);
        Limits { time, idle, bytes }
    }
}

/// The tags of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// The tags, in the registry's order.
    pub tags: Vec<String>,
    /// Whether these are all.
    pub is_complete: bool,
}

/// Returns the error of an answer with another status than expected.
pub(crate) fn unexpected(answer: &toolhold_net::requests::Response, what: &str) -> FetchError {
    let hint = match answer.status() {
        StatusCode::NOT_FOUND => ": the file doesn't exist, or isn't public",
        StatusCode::FORBIDDEN => ": access is denied",
        StatusCode::TOO_MANY_REQUESTS => ": too many requests, try again later",
        _ => "",
    };
    FetchError::Status {
        origin: answer.origin().to_owned(),
        status: answer.status().as_u16(),
        what: format!("the request for {what}"),
        hint: hint.to_owned(),
    }
}
