//! Reads files that others may have created, such as files of a repository or a package.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Reads a regular file of at most `limit` bytes. Follows links.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if the file doesn't exist. [`ErrorKind::InvalidData`] if the file is too
/// large or isn't regular, because reading a FIFO or a device might never end.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // `NONBLOCK` is needed, because opening a FIFO otherwise waits for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidData, "this isn't a regular file"));
    }
    let mut bytes = Vec::new();
    // Files in `/proc` and `/sys` have no size, and some have no end. One byte above the limit
    // shows that the file is too large.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let reason = format!("the file is too large; the limit is {limit} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn only_a_regular_file_within_its_limit_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "12345").expect("it is written");
        std::os::unix::fs::symlink("file", at("link")).expect("a link is made");
        std::os::unix::fs::symlink("/dev/zero", at("zero")).expect("a link is made");
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        for name in ["file", "link"] {
            assert_eq!(read_regular(&at(name), 5).expect(name), b"12345");
        }
        for (path, kind) in [
            (at("missing"), ErrorKind::NotFound),
            (at("zero"), ErrorKind::InvalidData),
            (at("fifo"), ErrorKind::InvalidData),
            (at(""), ErrorKind::InvalidData),
        ] {
            let error = read_regular(&path, 5).expect_err("it isn't a file");
            assert_eq!(error.kind(), kind, "{}", path.display());
        }
        let error = read_regular(&at("file"), 4).expect_err("it is too large");
        assert_eq!(error.to_string(), "the file is too large; the limit is 4 bytes");
    }
}
