//! Messages for the operator's log. A model never sees them. The host keeps at most 1,000 messages
//! of a call, and 4 KiB of each.
//!
//! In unit tests they go to standard error.

use std::fmt::Display;

#[cfg(target_arch = "wasm32")]
use crate::contract::bindings::toolhold::host::log as wit;

/// The importance of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A detail for the plugin's developer.
    Debug,
    /// An event.
    Info,
    /// A possible problem.
    Warn,
    /// An error.
    Error,
}

/// Writes a message: `log::write(Level::Info, format_args!("{count} rows"))`.
pub fn write(level: Level, message: impl Display) {
    #[cfg(target_arch = "wasm32")]
    wit::write(level.into(), &message.to_string());
    #[cfg(not(target_arch = "wasm32"))]
    eprintln!("{level:?}: {message}");
}

/// [`write()`] at [`Level::Debug`].
pub fn debug(message: impl Display) {
    write(Level::Debug, message);
}

/// [`write()`] at [`Level::Info`].
pub fn info(message: impl Display) {
    write(Level::Info, message);
}

/// [`write()`] at [`Level::Warn`].
pub fn warn(message: impl Display) {
    write(Level::Warn, message);
}

/// [`write()`] at [`Level::Error`].
pub fn error(message: impl Display) {
    write(Level::Error, message);
}

#[cfg(target_arch = "wasm32")]
impl From<Level> for wit::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}
