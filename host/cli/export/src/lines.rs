//! Writes exported records as lines to stdout or a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde_json::json;
use toolhold_core::HostError;
use toolhold_core::audit::{LogPosition, LogRecord};

use crate::arguments::ExportFormat;
use crate::error::ExportError;
use crate::otlp;

/// Opening a link fails with this flag.
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

pub(crate) struct Lines {
    out: Out,
    format: ExportFormat,
    /// The ID of this process in OTLP.
    instance: String,
    /// The last written record.
    last: Option<LogPosition>,
    count: u64,
}

enum Out {
    Stdout,
    File { file: File, name: String },
}

impl Lines {
    pub(crate) fn to_stdout(format: ExportFormat, instance: String) -> Self {
        Self { out: Out::Stdout, format, instance, last: None, count: 0 }
    }

    /// Opens a file for appending. Only the owner can read a new file.
    pub(crate) fn to_file(
        path: &Path,
        format: ExportFormat,
        instance: String,
    ) -> Result<Self, HostError> {
        let name = path.display().to_string();
        let file = open(path).map_err(HostError::io(name.clone()))?;
        Ok(Self { out: Out::File { file, name }, format, instance, last: None, count: 0 })
    }

    /// Writes records to the disk.
    pub(crate) fn send(
        &mut self,
        records: &[LogRecord],
        key_id: Option<&str>,
    ) -> Result<(), ExportError> {
        let mut text = Vec::new();
        // In OTLP, all records are in one line.
        if self.format == ExportFormat::Otlp {
            let line = otlp::logs::request(records, &self.instance).to_json().to_string();
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        }
        for record in records {
            if self.format == ExportFormat::Jsonl {
                // A receiver verifies a record with the hash of the record before it. The receiver
                // doesn't know this hash at the start and after missing records.
                if self.last.is_none() || record.missing > 0 {
                    text.extend_from_slice(begin(record, key_id).as_bytes());
                }
                text.extend_from_slice(&record.line);
                text.push(b'\n');
            }
            self.last = Some(record.position.clone());
            self.count += 1;
        }
        self.write(&text)
    }

    /// Writes the last line of a complete export. OTLP has no such line.
    pub(crate) fn end(&mut self) -> Result<(), ExportError> {
        if let Some(last) = &self.last
            && self.format == ExportFormat::Jsonl
        {
            let end = json!({ "toolhold_export_end": 1, "records": self.count, "last": last });
            return self.write(format!("{end}\n").as_bytes());
        }
        Ok(())
    }

    fn write(&mut self, text: &[u8]) -> Result<(), ExportError> {
        match &mut self.out {
            Out::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text).and_then(|()| out.flush()).map_err(ExportError::Write)
            }
            Out::File { file, name } => {
                write_to_disk(file, text).map_err(|error| HostError::io(name.clone())(error).into())
            }
        }
    }
}

fn write_to_disk(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    match file.sync_data() {
        // FIFOs and terminals can't be synchronised.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

/// Opens a file for appending, and ends an incomplete last line.
fn open(path: &Path) -> io::Result<File> {
    // Another user may have created a link, so links are refused.
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(NO_LINK)
        .open(path)?;
    // After a crash, the last line may be incomplete, so end it before other lines follow.
    let length = file.seek(SeekFrom::End(0))?;
    if length > 0 {
        let mut last_byte = [0];
        file.read_exact_at(&mut last_byte, length - 1)?;
        if last_byte != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

/// Returns the line that a receiver needs to verify the following records. The line is before the
/// first record, and after missing records.
fn begin(record: &LogRecord, key_id: Option<&str>) -> String {
    let after = json!({ "seq": record.position.seq.saturating_sub(1), "hash": record.previous });
    let mut begin = json!({ "toolhold_export": 1, "after": after, "key_id": key_id });
    if record.missing > 0 {
        begin["missing"] = json!(record.missing);
    }
    format!("{begin}\n")
}
