//! Reads the files of `--attach`. Refuses a file that no argument names.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolhold_core::{Body, Content};

use crate::error::Error;

/// The most bytes of an attachment. An attachment is in memory, and is copied into the sandbox.
const MAX_ATTACHMENT: u64 = 64 * 1024 * 1024;

/// Reads the files as attachments.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Content>, Error> {
    files.iter().map(|file| attachment(file)).collect()
}

/// Checks that an argument names each attached file, because a tool can't see other files.
pub(super) fn all_are_named(files: &[PathBuf], arguments: &Value) -> Result<(), Error> {
    fn names(value: &Value, index: usize) -> bool {
        match value {
            Value::Object(fields) => {
                fields.get("$attachment").and_then(Value::as_u64) == Some(index as u64)
                    || fields.values().any(|field| names(field, index))
            }
            Value::Array(items) => items.iter().any(|item| names(item, index)),
            _ => false,
        }
    }
    for (index, file) in files.iter().enumerate() {
        if !names(arguments, index) {
            return Err(Error::Usage(format!(
                "--attach {}: no argument uses this file; write {{\"$attachment\": {index}}} as \
                 the value of an argument; `toolhold tools TOOL` lists the arguments",
                file.display()
            )));
        }
    }
    Ok(())
}

/// Reads a file as an attachment. A UTF-8 file becomes text, and any other file becomes bytes.
fn attachment(path: &Path) -> Result<Content, Error> {
    let mut bytes = Vec::new();
    // Opening a FIFO would wait for a writer.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(|error| unusable(path, error))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(unusable(path, "isn't a regular file; write the content to a file first"));
    }
    file.take(MAX_ATTACHMENT + 1).read_to_end(&mut bytes).map_err(|error| unusable(path, error))?;
    if bytes.len() as u64 > MAX_ATTACHMENT {
        return Err(unusable(path, "more than 64 MiB"));
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
