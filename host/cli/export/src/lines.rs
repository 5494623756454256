//! Writes exported records as lines to standard output, or to a file that only this user can read.

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

/// Opening a link fails.
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// Writes records as lines.
pub(crate) struct Lines {
    out: Out,
    format: ExportFormat,
    /// Identifies this exporter in OTLP.
    instance: String,
    /// The last record that was written. `None`: no record has been written.
    last: Option<LogPosition>,
    count: u64,
}

enum Out {
    Stdout,
    File { file: File, name: String },
}

impl Lines {
    /// Writes to standard output.
    pub(crate) fn to_stdout(format: ExportFormat, instance: String) -> Self {
        Self { out: Out::Stdout, format, instance, last: None, count: 0 }
    }

    /// Opens a file for appending. If the file doesn't exist, creates it for this user only.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] with the file's name if the file can't be opened.
    pub(crate) fn to_file(
        path: &Path,
        format: ExportFormat,
        instance: String,
    ) -> Result<Self, HostError> {
        let name = path.display().to_string();
        let file = open(path).map_err(HostError::io(name.clone()))?;
        Ok(Self { out: Out::File { file, name }, format, instance, last: None, count: 0 })
    }

    /// Writes records. When the function returns, the records of a file are on the disk.
    ///
    /// # Errors
    ///
    /// Returns an error if the file or standard output can't be written.
    pub(crate) fn send(
        &mut self,
        records: &[LogRecord],
        key_id: Option<&str>,
    ) -> Result<(), ExportError> {
        let mut text = Vec::new();
        if self.format == ExportFormat::Otlp {
            text.extend(otlp::logs::request(records, &self.instance).to_json().to_string().bytes());
            text.push(b'\n');
        }
        for record in records {
            if self.format == ExportFormat::Jsonl {
                if self.last.is_none() || record.missing > 0 {
                    text.extend(begin(record, key_id).bytes());
                }
                text.extend_from_slice(&record.line);
                text.push(b'\n');
            }
            self.last = Some(record.position.clone());
            self.count += 1;
        }
        self.write(&text)
    }

    /// Writes the end of a complete export.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::send`].
    pub(crate) fn end(&mut self) -> Result<(), ExportError> {
        match &self.last {
            Some(last) if self.format == ExportFormat::Jsonl => {
                let end = json!({ "toolhold_export_end": 1, "records": self.count, "last": last });
                self.write(format!("{end}\n").as_bytes())
            }
            _ => Ok(()),
        }
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
        // A FIFO or a terminal has no disk.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

/// Opens a file so that the next record starts a new line.
fn open(path: &Path) -> io::Result<File> {
    // Another user with write access to the folder may have made a link.
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(NO_LINK)
        .open(path)?;
    // After a crash, the last record may have no line end.
    let end = file.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if end > 0 {
        file.read_exact_at(&mut last, end - 1)?;
    }
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Returns the line before the first record. A receiver needs this line to verify the records.
fn begin(record: &LogRecord, key_id: Option<&str>) -> String {
    let after = json!({ "seq": record.position.seq.saturating_sub(1), "hash": record.previous });
    let mut begin = json!({ "toolhold_export": 1, "after": after, "key_id": key_id });
    if record.missing > 0 {
        begin["missing"] = json!(record.missing);
    }
    format!("{begin}\n")
}
