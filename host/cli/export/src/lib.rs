//! Sends Toolhold's records to other systems: the audit log, and telemetry about calls.
//!
//! An export of the audit log reads the log's files in a separate process, so that no call waits
//! for a slow receiver. Only one batch of records is in memory.

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
