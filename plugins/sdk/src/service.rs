//! Programs that outlive a call, such as language servers. The plugin asks for them in its
//! manifest, beside the programs: `service = "reason"`. The operator grants a number of them, and
//! the programs by name, as for [`process`](crate::process): none that is only judged.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), toolhold_sdk::Failure> {
//! let mut server = toolhold_sdk::service::connect("numbers", ["bc", "--quiet"], None)?;
//! server.write(b"6 * 7\n");
//! let answer = server.read(Some(Duration::from_secs(1)));
//! // Without this, the program ends with the connection.
//! server.keep();
//! # Ok(())
//! # }
//! ```
//!
//! A service belongs to the session. It has no network and can only read, and it ends when nobody
//! has connected to it for ten minutes. One call at a time is connected to it.
//!
//! In unit tests [`std::process`] replaces the host, and no service outlives its connection.

use std::time::Duration;

use crate::process::ProcessError;

/// The only connection to a service. If it is dropped without [`keep`](Self::keep), the service
/// ends.
#[derive(Debug)]
pub struct Connection(engine::Connection);

/// Connects to the service with this name, which is started if it doesn't run with this command, in
/// this directory. `directory`: absolute; by default the working directory.
///
/// # Errors
///
/// The command is denied, another call is connected, or there are too many services.
pub fn connect(
    name: &str,
    command: impl IntoIterator<Item = impl Into<String>>,
    directory: Option<&str>,
) -> Result<Connection, ProcessError> {
    let command = command.into_iter().map(Into::into).collect();
    engine::connect(name, command, directory).map(Connection)
}

/// Ends a service. Returns false if none of this name runs.
pub fn stop(name: &str) -> bool {
    engine::stop(name)
}

impl Connection {
    /// Whether the program was started for this connection, so that it knows nothing yet.
    pub fn is_new(&self) -> bool {
        self.0.is_new()
    }

    /// Waits for standard output, for the end of the program, or until `timeout` has passed, and
    /// takes it: at most 1 MiB.
    pub fn read(&mut self, timeout: Option<Duration>) -> Vec<u8> {
        self.0.read(timeout)
    }

    /// Takes the standard error so far: at most 1 MiB.
    pub fn errors(&mut self) -> Vec<u8> {
        self.0.errors()
    }

    /// Writes to its standard input, and waits until the program has read it, at most for 4 s.
    /// Returns how many bytes it read.
    pub fn write(&mut self, bytes: &[u8]) -> u64 {
        self.0.write(bytes)
    }

    /// Whether the program has ended.
    pub fn has_ended(&mut self) -> bool {
        self.0.has_ended()
    }

    /// Keeps the service for the next connection. Call it when no message is half read or half
    /// written.
    pub fn keep(self) {
        self.0.keep();
    }
}

#[cfg(target_arch = "wasm32")]
mod engine {
    use std::time::Duration;

    use crate::contract::bindings::toolhold::host::process::Options;
    use crate::contract::bindings::toolhold::host::service as wit;
    use crate::process::ProcessError;
    use crate::process::wasi::{error, millis};

    #[derive(Debug)]
    pub(super) struct Connection(wit::Connection);

    pub(super) fn connect(
        name: &str,
        command: Vec<String>,
        directory: Option<&str>,
    ) -> Result<Connection, ProcessError> {
        let options = Options {
            directory: directory.map(str::to_owned),
            environment: Vec::new(),
            timeout_ms: None,
            output_limit: None,
            live: false,
            meta: None,
        };
        wit::connect(name, &command, &options).map(Connection).map_err(error)
    }

    pub(super) fn stop(name: &str) -> bool {
        wit::stop(name).unwrap_or_default()
    }

    impl Connection {
        pub(super) fn is_new(&self) -> bool {
            self.0.is_new()
        }

        pub(super) fn read(&mut self, timeout: Option<Duration>) -> Vec<u8> {
            self.0.read(timeout.map(millis))
        }

        pub(super) fn errors(&mut self) -> Vec<u8> {
            self.0.errors()
        }

        pub(super) fn write(&mut self, bytes: &[u8]) -> u64 {
            self.0.write(bytes)
        }

        pub(super) fn has_ended(&mut self) -> bool {
            self.0.ended().is_some()
        }

        pub(super) fn keep(self) {
            self.0.keep();
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod engine {
    use std::time::Duration;

    use crate::process::{Child, Command, ProcessError};

    #[derive(Debug)]
    pub(super) struct Connection {
        child: Child,
        errors: Vec<u8>,
    }

    pub(super) fn connect(
        _name: &str,
        command: Vec<String>,
        directory: Option<&str>,
    ) -> Result<Connection, ProcessError> {
        let mut words = command.into_iter();
        let mut command = Command::program(words.next().unwrap_or_default()).args(words);
        if let Some(directory) = directory {
            command = command.directory(directory);
        }
        Ok(Connection { child: command.start()?, errors: Vec::new() })
    }

    pub(super) fn stop(_name: &str) -> bool {
        false
    }

    impl Connection {
        pub(super) fn is_new(&self) -> bool {
            true
        }

        pub(super) fn read(&mut self, timeout: Option<Duration>) -> Vec<u8> {
            let output = self.child.read(timeout);
            self.errors.extend(output.stderr);
            output.stdout
        }

        pub(super) fn errors(&mut self) -> Vec<u8> {
            std::mem::take(&mut self.errors)
        }

        pub(super) fn write(&mut self, bytes: &[u8]) -> u64 {
            self.child.write(bytes)
        }

        pub(super) fn has_ended(&mut self) -> bool {
            self.child.is_finished()
        }

        pub(super) fn keep(self) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_written_to_and_read_from() {
        let mut cat = connect("cat", ["cat"], None).unwrap();
        assert!(cat.is_new() && cat.write(b"one\n") == 4);
        assert_eq!(cat.read(None), b"one\n");
        assert!(!cat.has_ended() && !stop("cat"));
        cat.keep();
    }
}
