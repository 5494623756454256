//! Makes a shell write its directory and variables for later commands when it exits.
//!
//! `bash` reads the prelude from a file before the command. So the text and the line numbers of the
//! command don't change.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::PipeFlags;

/// The script that `bash` runs first. When the shell exits, it records the directory and the
/// exported variables, each with a NUL byte at its end. A command that changes the script gains
/// nothing, because the host trusts no record.
const PRELUDE: &str = r#"unset BASH_ENV
exec @PRELUDE@<&-
__toolhold_leave() {
local IFS= __toolhold_name
builtin printf 'toolhold-state\0%s\0' "$PWD"
while builtin read -r __toolhold_name; do
[[ $__toolhold_name == BASH_ENV ]] || builtin printf '%s=%s\0' "$__toolhold_name" "${!__toolhold_name-}"
done < <(builtin compgen -e)
builtin printf 'end\0'
}
builtin trap '{ __toolhold_leave >&@RECORD@; } 2>/dev/null' EXIT
"#;

/// The descriptors for the state of a shell. They stay open until the shell has started.
pub(super) struct LeavingState {
    prelude: OwnedFd,
    _record: OwnedFd,
}

impl LeavingState {
    /// Opens the prelude of a shell that writes its record to `record`.
    pub(super) fn new(record: &OwnedFd) -> io::Result<Self> {
        let record = copy_for_program(record)?;
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let prelude = copy_for_program(&reader)?;
        let text = PRELUDE
            .replace("@PRELUDE@", &number(&prelude).to_string())
            .replace("@RECORD@", &number(&record).to_string());
        std::fs::File::from(writer).write_all(text.as_bytes())?;
        Ok(Self { prelude, _record: record })
    }

    pub(super) fn variable(&self) -> (&'static str, String) {
        ("BASH_ENV", format!("/proc/self/fd/{}", number(&self.prelude)))
    }
}

fn number(descriptor: &OwnedFd) -> i32 {
    use std::os::fd::AsRawFd;
    descriptor.as_raw_fd()
}

/// The lowest descriptor that a shell inherits. It is above the numbers that people write in
/// redirections, and below the lowest configurable limit of open files.
const FIRST: i32 = 50;

fn copy_for_program(descriptor: &OwnedFd) -> io::Result<OwnedFd> {
    let copy = rustix::io::fcntl_dupfd_cloexec(descriptor.as_fd(), FIRST)?;
    fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy)
}
