//! `toolhold audit export`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use toolhold_core::HostError;
use toolhold_core::audit::{LogPosition, LogRecord, ReadFrom, RecordReader};
use toolhold_core::config::Folders;

use crate::arguments::{ExportArguments, ExportFormat};
use crate::deliver::Delivery;
use crate::error::ExportError;
use crate::lines::Lines;
use crate::position::Progress;
use crate::send::Transport;
use crate::time::parse_since;

/// The number of records in one batch. Only one batch is in memory, even if the receiver is slow.
/// The reader also limits the bytes of a batch.
const BATCH: usize = 512;

/// The time between two checks for new records. A changed file also wakes the export, but a new log
/// file doesn't.
const WAIT: Duration = Duration::from_secs(2);

/// The most warnings in one run. Someone who changes the log must not be able to fill another log
/// with warnings.
const MAX_WARNINGS: u64 = 20;

/// The result of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The number of records that the receiver has.
    pub records: u64,
    /// The number of exported records that were changed, or that don't follow the record before.
    pub broken: u64,
    /// The number of records that are missing between the exported records.
    pub missing: u64,
    /// The number of records that a collector refused.
    pub refused: u64,
    warnings: u64,
}

/// Exports the log. With `follow`, only an error ends the export. `connect` makes the transport to
/// a collector. Blocks.
///
/// # Errors
///
/// Returns an error if the log can't be read, or if the receiver doesn't accept the records.
pub fn export(
    arguments: &ExportArguments,
    folders: &Folders,
    connect: impl FnOnce(&str) -> Result<Box<dyn Transport>, HostError>,
    mut warn: impl FnMut(&str),
) -> Result<Exported, ExportError> {
    if arguments.endpoint.is_some() && arguments.format != ExportFormat::Otlp {
        let why = "--endpoint is the address of a collector for OpenTelemetry: add --format otlp";
        return Err(ExportError::Usage(why.to_owned()));
    }
    let since = match &arguments.since {
        Some(since) => Some(parse_since(since, SystemTime::now())?),
        None => None,
    };
    let progress = match receiver_name(arguments)? {
        Some(receiver) => Some(Progress::open(folders, receiver)?),
        None => None,
    };
    let last_position = match &progress {
        Some(progress) if !arguments.again => progress.load()?,
        _ => None,
    };
    let from = match (last_position, since) {
        (Some(position), _) => ReadFrom::Position(position),
        (None, Some(moment)) => ReadFrom::Time(moment),
        (None, None) => ReadFrom::Position(LogPosition::default()),
    };
    let is_continued = progress.is_some();
    let mut reader =
        RecordReader::open(folders, from).map_err(|error| with_hint(error, is_continued))?;
    let mut sink = Sink::new(arguments, connect)?;
    let mut exported = Exported::default();
    loop {
        let records = reader.read(BATCH)?;
        if let Some(last) = records.last() {
            match &mut sink {
                Sink::Lines(lines) => lines.send(&records, reader.key_id()?.as_deref())?,
                Sink::Collector(delivery) => delivery.send(&records, &mut warn)?,
            }
            if let Some(progress) = &progress {
                progress.save(&last.position)?;
            }
            for record in &records {
                exported.count(record, &mut warn);
            }
        } else if arguments.follow {
            reader.wait(WAIT)?;
        } else {
            match &mut sink {
                Sink::Lines(lines) => lines.end()?,
                Sink::Collector(delivery) => exported.refused = delivery.refused(),
            }
            return Ok(exported);
        }
    }
}

enum Sink {
    Lines(Lines),
    Collector(Delivery),
}

impl Sink {
    fn new(
        arguments: &ExportArguments,
        connect: impl FnOnce(&str) -> Result<Box<dyn Transport>, HostError>,
    ) -> Result<Self, HostError> {
        let instance = std::process::id().to_string();
        let format = arguments.format;
        Ok(match &arguments.endpoint {
            Some(endpoint) => {
                let shown = toolhold_core::text::neutral_line(endpoint);
                let transport = connect(endpoint)?;
                Self::Collector(Delivery::new(transport, shown, instance, arguments.follow))
            }
            None if is_stdout(arguments) => Self::Lines(Lines::to_stdout(format, instance)),
            None => Self::Lines(Lines::to_file(&arguments.to, format, instance)?),
        })
    }
}

fn is_stdout(arguments: &ExportArguments) -> bool {
    arguments.endpoint.is_none() && arguments.to == Path::new("-")
}

impl Exported {
    /// Counts a record. Warns if the record was changed, or if earlier records are missing.
    fn count(&mut self, record: &LogRecord, warn: &mut impl FnMut(&str)) {
        self.records += 1;
        self.missing += record.missing;
        if record.intact && record.missing == 0 {
            return;
        }
        self.warnings += 1;
        let seq = record.position.seq;
        let missing = record.missing;
        let warning = if record.intact {
            format!(
                "{missing} records before record {seq} were not exported, because the files of \
                 these records were removed"
            )
        } else {
            self.broken += 1;
            let note = match missing {
                0 => String::new(),
                _ => format!("; {missing} of these can't be found or read"),
            };
            format!(
                "record {seq} was changed, or doesn't follow the records before{note}; for \
                 details: toolhold audit verify"
            )
        };
        if self.warnings <= MAX_WARNINGS {
            warn(&warning);
        }
    }
}

/// Returns the name under which the export saves its progress, or `None` for stdout, because the
/// reader of stdout is unknown.
fn receiver_name(arguments: &ExportArguments) -> Result<Option<String>, HostError> {
    if let Some(endpoint) = &arguments.endpoint {
        let endpoint = endpoint.trim_end_matches('/');
        return Ok(Some(format!("{} {endpoint}", arguments.format.as_str())));
    }
    if is_stdout(arguments) {
        return Ok(None);
    }
    let path =
        real_path(&arguments.to).map_err(HostError::io(arguments.to.display().to_string()))?;
    Ok(Some(format!("{} {}", arguments.format.as_str(), path.display())))
}

/// Returns the absolute path of a file, with links in its folder resolved. The file itself can't be
/// a link, because the export refuses to write to a link.
fn real_path(file: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(file)?;
    if let Some(folder) = path.parent()
        && let Some(name) = path.file_name()
    {
        return Ok(folder.canonicalize()?.join(name));
    }
    Ok(path)
}

/// Adds a hint to the error for a log that no longer has the record after which this export
/// continues, for example because the log was replaced. `is_continued` says whether the export
/// continues an earlier export.
fn with_hint(error: HostError, is_continued: bool) -> HostError {
    match error {
        HostError::Io { what, source }
            if is_continued && source.kind() == std::io::ErrorKind::InvalidData =>
        {
            let why = format!("{source}. With `--again`, the export starts with the first record");
            HostError::io(what)(std::io::Error::new(std::io::ErrorKind::InvalidData, why))
        }
        error => error,
    }
}
