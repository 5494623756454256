use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};

use toolhold_core::CallId;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The host's log of a call, line by line.
pub(crate) fn log_of(id: &CallId) -> Vec<String> {
    log_with(&[&id.to_string()])
}

/// The lines of the host's log that contain all of this.
pub(crate) fn log_with(texts: &[&str]) -> Vec<String> {
    let kept = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = String::from_utf8_lossy(&kept);
    kept.lines()
        .filter(|line| texts.iter().all(|text| line.contains(text)))
        .map(str::to_owned)
        .collect()
}

/// Stores the log from now on, for the whole process.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let levels =
            Targets::new().with_default(Level::INFO).with_target("toolhold::crash", Level::DEBUG);
        let lines = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(|| Keeper)
            .finish();
        let subscriber = lines.with(levels);
        tracing::subscriber::set_global_default(subscriber)
            .expect("nobody else listens to the log");
    });
}

struct Keeper;

impl Write for Keeper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
