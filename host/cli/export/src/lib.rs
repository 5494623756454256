//! Sends Toolhold's records to other systems. Exports the audit log as JSON lines or as
//! OpenTelemetry logs.
//!
//! An export reads the files of the audit log in a separate process. No writer waits for an export,
//! so a slow or missing receiver doesn't delay calls. Only one batch of records is in memory, and
//! all other records wait in the log.

mod arguments;
mod collector;
mod deliver;
mod error;
mod export;
mod lines;
mod machine;
mod names;
mod otlp;
mod position;
mod record;
mod send;
mod telemetry;
mod time;

pub use arguments::{AuditCommand, ExportArguments, ExportFormat};
pub use collector::Collector;
pub use error::ExportError;
pub use export::{Exported, export};
pub use send::{Post, Posted, Transport, Unsent};
pub use telemetry::{Signals, Telemetry, flush_telemetry};
