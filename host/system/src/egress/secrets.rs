//! Secrets: where they come from. They are read when they are first needed, and no guest ever sees one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use berth_policy::egress::SecretRule;

/// A secret: where it may go, and where it comes from.
#[derive(Clone, Debug)]
pub struct Secret {
    /// Where it may go.
    pub rule: SecretRule,
    /// Where it comes from. It is read when it is first needed.
    pub source: SecretSource,
}

/// Where a secret comes from.
#[derive(Clone)]
pub enum SecretSource {
    /// It is known: the value of an environment variable.
    Value(Arc<str>),
    /// A file, without the line's end at its end.
    File(PathBuf),
    /// What a program prints: the program and its arguments.
    Command(Vec<String>),
    /// The desktop's keyring, by what the entry is stored under.
    Keyring {
        /// The attribute `service`.
        service: String,
        /// The attribute `account`.
        account: String,
    },
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Command(words) => f.debug_tuple("Command").field(&words.first()).finish(),
            Self::Keyring { service, account } => f.debug_struct("Keyring").field("service", service).field("account", account).finish(),
        }
    }
}

/// A secret's value.
pub(super) struct Value(Arc<str>);

impl Value {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(…)")
    }
}

/// Reads a secret. It may take a while: a program may have to run.
///
/// # Errors
///
/// Why it can't be had, in words that don't hold it.
pub(super) fn read(source: &SecretSource) -> Result<Value, String> {
    match source {
        SecretSource::Value(value) => Ok(Value(Arc::clone(value))),
        SecretSource::File(_) | SecretSource::Command(_) | SecretSource::Keyring { .. } => Err("it can't be read yet".to_owned()),
    }
}
