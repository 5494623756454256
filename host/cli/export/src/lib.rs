//! Sends Toolhold's records to other systems: the audit as JSON lines or logs of OpenTelemetry.
//!
//! An export reads the files of the audit, in a process of its own. Nothing that writes them waits
//! for it, so a receiver that is slow or gone delays no call. It holds one batch of records in
//! memory; the rest waits in the log.

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
