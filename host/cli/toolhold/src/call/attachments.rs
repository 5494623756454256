//! Reads the files of `--attach`.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolhold_core::{Body, Content};

use crate::error::Error;

/// The most bytes of an attachment, which is kept in memory and copied into the sandbox.
const MAX_ATTACHMENT: u64 = 64 * 1024 * 1024;

pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Content>, Error> {
    files.iter().map(|file| attachment(file)).collect()
}

/// Checks that an argument refers to each file, because a tool doesn't get any other file.
pub(super) fn check_all_are_named(files: &[PathBuf], arguments: &Value) -> Result<(), Error> {
    /// Checks whether a part of `value` refers to the file with this index.
    fn refers_to(value: &Value, index: usize) -> bool {
        match value {
            Value::Object(fields) => {
                let attachment = fields.get("$attachment").and_then(Value::as_u64);
                attachment == Some(index as u64)
                    || fields.values().any(|field| refers_to(field, index))
            }
            Value::Array(items) => items.iter().any(|item| refers_to(item, index)),
            _ => false,
        }
    }
    for (index, file) in files.iter().enumerate() {
        if !refers_to(arguments, index) {
            return Err(Error::Usage(format!(
                "--attach {}: no argument uses this file; write {{\"$attachment\": {index}}} as \
                 the value of an argument; `toolhold tools TOOL` lists the arguments",
                file.display()
            )));
        }
    }
    Ok(())
}

/// Reads a regular file: UTF-8 as text, and any other file as bytes.
fn attachment(path: &Path) -> Result<Content, Error> {
    let mut bytes = Vec::new();
    // With this flag, opening a FIFO doesn't wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(|error| unusable(path, error))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(unusable(path, "this isn't a regular file; write the content to a file first"));
    }
    // One byte more than the limit shows that the file is too long.
    file.take(MAX_ATTACHMENT + 1).read_to_end(&mut bytes).map_err(|error| unusable(path, error))?;
    if bytes.len() as u64 > MAX_ATTACHMENT {
        return Err(unusable(path, "the file is larger than 64 MiB, the limit"));
    }
    let body = match String::from_utf8(bytes) {
        Ok(text) => Body::Text(text),
        Err(error) => Body::Bytes(error.into_bytes()),
    };
    Ok(Content { body, media_type: None, meta: None })
}

fn unusable(path: &Path, why: impl Display) -> Error {
    Error::Usage(format!("--attach {}: {why}", path.display()))
}
