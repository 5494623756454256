//! Checks the destination of a copy or a move, and copies under a temporary name.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, statat};
use toolhold_sdk::{Call, Failure};

use crate::create_directory::make_with_parents;
use crate::notices::plural;
use crate::paths::open_failure;
use crate::survey::Survey;
use crate::temporary::Temporary;
use crate::tree::{self, CopyCounts, CopyOptions};

/// The number of files that are copied between two reports of progress.
const STRIDE: u64 = 64;

/// Checks that `source` can be put at `destination`, and creates the missing parent directories.
/// Returns whether something will be replaced.
pub(crate) fn prepare_destination(
    source: &str,
    source_is_directory: bool,
    destination: &str,
    overwrite: bool,
) -> Result<bool, Failure> {
    let from = Path::new(source);
    let to = Path::new(destination);
    if to != from && to.starts_with(from) {
        return Err(into_itself_failure(source, destination));
    }
    let meta = match fs::symlink_metadata(to) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let parent = to.parent().and_then(Path::to_str).unwrap_or("/");
            if !Path::new(parent).is_dir() {
                make_with_parents(parent)?;
            }
            return Ok(false);
        }
        meta => meta.map_err(|error| open_failure("checking", destination, &error))?,
    };
    if let (Ok(a), Ok(b)) =
        (statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW), statat(CWD, to, AtFlags::SYMLINK_NOFOLLOW))
        && (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
    {
        return Err(Failure::invalid(format!("{source} and {destination} are the same file")));
    }
    if meta.is_dir() {
        let inside = to.join(from.file_name().unwrap_or_default());
        return Err(Failure::permanent(
            "is-a-directory",
            format!("{destination} is a directory, and directories are not replaced"),
        )
        .with_suggestion(format!(
            "To put it in the directory, set destination to {}. To replace the directory, delete it first.",
            inside.display()
        )));
    }
    if source_is_directory {
        return Err(Failure::permanent(
            "exists",
            format!("{destination} exists already, and a directory can't replace it"),
        )
        .with_suggestion(format!("Choose another destination, or delete {destination} first.")));
    }
    if !overwrite {
        return Err(Failure::permanent("exists", format!("{destination} exists already"))
            .with_suggestion("Choose another destination, or set overwrite=true to replace it."));
    }
    Ok(true)
}

pub(crate) fn into_itself_failure(source: &str, destination: &str) -> Failure {
    Failure::invalid(format!(
        "{destination} is in {source}, and a directory can't be put into itself"
    ))
}

/// Copies a file to a temporary name.
pub(crate) fn copy_file(
    source: &str,
    destination: &str,
    durable: bool,
) -> Result<(Temporary, u64), Failure> {
    let mut from = File::open(source).map_err(|error| open_failure("reading", source, &error))?;
    let copied = Temporary::file(Path::new(destination)).and_then(|(temporary, mut to)| {
        Ok((temporary, tree::copy_file(&mut from, &mut to, durable)?))
    });
    copied.map_err(|error| Failure::io(format!("copying {source} to {destination}"), &error))
}

/// Copies a directory to a temporary name.
pub(crate) fn copy_directory(
    source: &str,
    destination: &str,
    survey: &Survey,
    durable: bool,
    call: &Call,
) -> Result<(Temporary, CopyCounts), Failure> {
    // The source is opened first: the host gives the copy the mode of the file or directory that
    // was opened last.
    let from = File::open(source).map_err(|error| not_copied(source, destination, &error))?;
    let temporary = Temporary::directory(Path::new(destination))
        .map_err(|error| not_copied(source, destination, &error))?;
    let mut reported = 0;
    let mut options = CopyOptions {
        own_name: temporary.path().file_name().unwrap_or_default().as_encoded_bytes(),
        durable,
        progress: &mut |copied| {
            if copied.files >= reported + STRIDE {
                reported = copied.files;
                #[expect(clippy::cast_precision_loss, reason = "a fraction for people")]
                let fraction = (copied.files as f64 / survey.files.max(1) as f64).min(1.0);
                call.progress(
                    fraction,
                    &format!("copied {} of {}", copied.files, plural(survey.files, "file")),
                );
            }
        },
    };
    let copied = tree::copy(from.into(), temporary.path(), &mut options)
        .map_err(|error| not_copied(source, destination, &error))?;
    Ok((temporary, copied))
}

fn not_copied(source: &str, destination: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidInput if error.raw_os_error().is_none() => {
            Failure::invalid(format!("copying {source} to {destination}: {error}"))
        }
        _ => Failure::io(format!("copying {source} to {destination}"), error),
    }
}
