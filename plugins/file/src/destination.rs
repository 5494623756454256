//! Where a copy or a move goes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use berth_sdk::Failure;
use rustix::fs::{AtFlags, CWD, statat};

use crate::create_directory::make_with_parents;
use crate::paths::not_opened;

/// Sees to it that `source` can be put at `destination`, and makes the directories on the way. Says whether something is replaced.
pub(crate) fn prepare(source: &str, source_is_directory: bool, destination: &str, overwrite: bool) -> Result<bool, Failure> {
    let (from, to) = (Path::new(source), Path::new(destination));
    if to != from && to.starts_with(from) {
        return Err(into_itself(source, destination));
    }
    let meta = match fs::symlink_metadata(to) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let parent = to.parent().and_then(Path::to_str).unwrap_or("/");
            if !Path::new(parent).is_dir() {
                make_with_parents(parent)?;
            }
            return Ok(false);
        }
        meta => meta.map_err(|error| not_opened("looking at", destination, &error))?,
    };
    let same = |a, b| match (statat(CWD, a, AtFlags::SYMLINK_NOFOLLOW), statat(CWD, b, AtFlags::SYMLINK_NOFOLLOW)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    };
    if same(from, to) {
        return Err(Failure::invalid(format!("{source} and {destination} are the same")));
    }
    if meta.is_dir() {
        let inside = to.join(from.file_name().unwrap_or_default());
        return Err(Failure::permanent("is-a-directory", format!("{destination} is a directory, and directories are not replaced"))
            .with_suggestion(format!("To put it in there, set destination to {}. To replace it, delete it first.", inside.display())));
    }
    if source_is_directory {
        return Err(Failure::permanent("exists", format!("{destination} is there already, and a directory replaces nothing"))
            .with_suggestion("Choose another destination, or delete what is there first."));
    }
    if !overwrite {
        return Err(Failure::permanent("exists", format!("{destination} is there already"))
            .with_suggestion("Choose another destination, or set overwrite=true to replace it."));
    }
    Ok(true)
}

pub(crate) fn into_itself(source: &str, destination: &str) -> Failure {
    Failure::invalid(format!("{destination} lies in {source}, and a directory can't be put into itself"))
}
