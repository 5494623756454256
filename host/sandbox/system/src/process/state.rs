//! Reads the directory and variables that a command leaves for later commands.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::PipeFlags;
use toolhold_contract::ShellSession;

use crate::confine::Program;

/// Bytes of a record: the capacity of a pipe. The command writes the record when it ends, and the
/// host reads it only afterwards.
const MAX_RECORD: usize = 64 * 1024;

/// A pipe for a command's record. Whatever the command writes, the host stores at most the pipe's
/// capacity and never waits.
pub(super) struct StateRecord {
    pipe: OwnedFd,
    shell: Arc<dyn ShellSession>,
    directory: String,
    environment: Vec<(String, String)>,
}

impl StateRecord {
    /// Makes a pipe. Also returns the command's end of the pipe.
    pub(super) fn new(
        shell: &Arc<dyn ShellSession>,
        program: &Program,
    ) -> io::Result<(Self, OwnedFd)> {
        let (pipe, for_command) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // A command that fills the pipe gets an error. Otherwise it would wait forever.
        fcntl_setfl(&for_command, OFlags::NONBLOCK)?;
        fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        let record = Self {
            pipe,
            shell: Arc::clone(shell),
            directory: program.directory.clone(),
            environment: program.environment.clone(),
        };
        Ok((record, for_command))
    }

    /// Passes the record to the session. The command must have ended.
    pub(super) fn finish(self) {
        // The additional byte shows that the record is longer than the limit.
        let mut record = vec![0; MAX_RECORD + 1];
        let mut filled = 0;
        while filled < record.len() {
            match rustix::io::read(&self.pipe, &mut record[filled..]) {
                Err(rustix::io::Errno::INTR) => {}
                // The pipe is closed or empty.
                Ok(0) | Err(_) => break,
                Ok(read) => filled += read,
            }
        }
        record.truncate(filled);
        self.shell.finish(&self.directory, &self.environment, &record);
    }
}
