//! Reads the directory and variables of a command for later commands, through a pipe and within a
//! limit.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::PipeFlags;
use toolhold_contract::ShellSession;

use crate::confine::Program;

/// The most bytes of a record, which is the capacity of a pipe. The command writes the record when
/// it ends, and the host reads it only afterwards.
const MAX_RECORD: usize = 64 * 1024;

/// A pipe for a command's record. The host stores at most the pipe's capacity and never waits,
/// regardless of what the command writes.
pub(super) struct StateRecord {
    pipe: OwnedFd,
    shell: Arc<dyn ShellSession>,
    directory: String,
    environment: Vec<(String, String)>,
}

impl StateRecord {
    /// Makes a pipe. Also returns the end of the pipe that is for the command.
    pub(super) fn new(
        shell: &Arc<dyn ShellSession>,
        program: &Program,
    ) -> io::Result<(Self, OwnedFd)> {
        let (pipe, for_command) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // A command that fills the pipe gets an error, and doesn't wait for ever.
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

    /// Reads the record and passes it to the session. The command must have exited.
    pub(super) fn finish(self) {
        let mut record = vec![0; MAX_RECORD + 1];
        let mut filled = 0;
        while filled < record.len() {
            match rustix::io::read(&self.pipe, &mut record[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        record.truncate(filled);
        self.shell.finish(&self.directory, &self.environment, &record);
    }
}
