//! A fetched component with its signatures, and the limits of fetching.

use std::time::Duration;

use http::StatusCode;
use toolhold_component::file::{self, MAX_COMPONENT};
use toolhold_net::requests::Limits;

use crate::credentials::Credentials;
use crate::error::FetchError;
use crate::manifest::shown;
use crate::source::Source;

/// The purpose of the requests, as the audit log shows it.
pub(crate) const PURPOSE: &str = "plugin";

/// Most bytes of a signature. A larger signature is refused.
pub const MAX_SIGNATURE: u64 = 8 << 10;

/// Most signatures of a plugin that are fetched. Further signatures are ignored.
pub const MAX_SIGNATURES: usize = 8;

/// The first bytes of every WebAssembly file.
const MAGIC: &[u8] = b"\0asm";

/// Bytes that an error shows of an answer that isn't WebAssembly.
const SHOWN_BYTES: usize = 16;

/// A fetched plugin. If the source states a digest or a length, the component matches it. Nothing
/// else about the component is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The component.
    pub bytes: Vec<u8>,
    /// The SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// The exact source. An artifact has the digest of its manifest. A file has its real path.
    pub resolved: Source,
    /// The contents of the signature files. The signatures aren't verified yet.
    pub signatures: Vec<Vec<u8>>,
}

impl Fetched {
    /// Refuses bytes that aren't WebAssembly.
    pub(crate) fn new(
        bytes: Vec<u8>,
        resolved: Source,
        signatures: Vec<Vec<u8>>,
    ) -> Result<Self, FetchError> {
        if !bytes.starts_with(MAGIC) {
            // Show the beginning of a server's answer, but no part of a file on this machine,
            // because the file may be private.
            let why = if matches!(resolved, Source::Path(_)) {
                "the file isn't WebAssembly".to_owned()
            } else {
                let shown_length = bytes.len().min(SHOWN_BYTES);
                let beginning = String::from_utf8_lossy(&bytes[..shown_length]);
                format!("the file isn't WebAssembly: the first bytes are `{}`", shown(&beginning))
            };
            let from = resolved.to_string();
            return Err(FetchError::Refused { what: "the component".to_owned(), from, why });
        }
        let digest = file::digest(&bytes);
        Ok(Self { bytes, digest, resolved, signatures })
    }
}

/// The logins and limits for fetching a plugin.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Logins for registries.
    pub credentials: Credentials,
    /// Most bytes of a component. The limit of [`MAX_COMPONENT`] applies, too.
    pub bytes: u64,
    /// The time limit for the component.
    pub time: Duration,
    /// The time without data after which a request fails.
    pub idle: Duration,
}

/// The usual limits, without logins.
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
    pub(crate) fn component_limits(&self) -> Limits {
        let bytes = self.bytes.min(MAX_COMPONENT as u64);
        Limits { time: self.time, idle: self.idle, bytes }
    }

    /// Returns the limits of an answer with at most `bytes` bytes. The lower of the usual time
    /// limits and the options' time limits apply.
    pub(crate) fn small_limits(&self, bytes: u64) -> Limits {
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
    /// Whether the list has all tags.
    pub is_complete: bool,
}

/// Makes the error for an answer with an unexpected status. `what` names the requested thing.
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
