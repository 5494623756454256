//! Reads and writes the pipes of a server's program. Each line is one message.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::io::ioctl_fionbio;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;

use crate::gate::{
    ConnectionState, EndError, LARGE_MESSAGE, LimitError, MAX_MESSAGE, MAX_PIECES, MessageLimits,
    Pending, Rate, check, parse,
};

/// Time limit for a server to read a message. A slower server is ended.
const MAX_WRITE_TIME: Duration = Duration::from_secs(10);

/// Messages of the server that may wait until the client handles them.
const MESSAGE_QUEUE: usize = 16;

/// Bytes that are read from standard error at once.
const STDERR_BUFFER: usize = 16 * 1024;

/// Pause between two reads of standard error, so that a server that floods it takes little time of
/// the host.
const READ_PAUSE: Duration = Duration::from_millis(10);

const STACK_BYTES: usize = 128 * 1024;

/// A read of fewer bytes without a line end counts as a piece. Each piece wakes a thread of the
/// runtime, so their rate is limited.
const SMALL_PIECE: usize = 512;

pub(crate) struct Pipe {
    writer: Arc<tokio::sync::Mutex<Sender>>,
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    pending: Pending,
    connection_state: Arc<ConnectionState>,
    reading: tokio::task::JoinHandle<()>,
}

impl Pipe {
    /// Starts a task that reads standard output, and a thread that reads standard error. `streams`
    /// contains the standard input, output and error of the program, which must be non-blocking.
    pub(crate) fn new(
        streams: [OwnedFd; 3],
        connection_state: Arc<ConnectionState>,
    ) -> io::Result<Self> {
        let [stdin, stdout, stderr] = streams;
        let writer = Arc::new(tokio::sync::Mutex::new(Sender::from_owned_fd(stdin)?));
        let stdout = Receiver::from_owned_fd(stdout)?;
        let (sender, messages) = mpsc::channel(MESSAGE_QUEUE);
        let pending = Pending::default();
        let gate = MessageLimits::new(pending.clone());
        let pieces = Rate::new(MAX_PIECES, Duration::from_secs(1));
        let mut reader =
            Reader { sender, gate, pieces, connection_state: Arc::clone(&connection_state) };
        let state_in_task = Arc::clone(&connection_state);
        let reading = tokio::spawn(async move {
            state_in_task.end(reader.read(stdout).await);
            // The drop closes the channel. The client then reads the reason in `connection_state`.
            drop(reader);
        });
        // Standard error is read on a thread of its own, because the runtime would wake up for each
        // byte, even during a pause. Reads on this thread must block.
        ioctl_fionbio(&stderr, false)?;
        let state_in_thread = Arc::clone(&connection_state);
        // The thread ends when the server's standard error is closed.
        std::thread::Builder::new()
            .name("toolhold-complaint".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || store_stderr(File::from(stderr), &state_in_thread))?;
        Ok(Self { writer, messages, pending, connection_state, reading })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Transport<RoleClient> for Pipe {
    type Error = Arc<io::Error>;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Arc<io::Error>>> + Send + 'static {
        self.pending.record_sent(&message);
        let writer = Arc::clone(&self.writer);
        let connection_state = Arc::clone(&self.connection_state);
        let reading = self.reading.abort_handle();
        async move {
            let mut line = serde_json::to_vec(&message).map_err(io::Error::from)?;
            line.push(b'\n');
            let write = async { writer.lock().await.write_all(&line).await };
            let result = match tokio::time::timeout(MAX_WRITE_TIME, write).await {
                Ok(result) => result,
                Err(_) => Err(io::Error::other("the server doesn't read Toolhold's messages")),
            };
            let Err(error) = result else { return Ok(()) };

            // A part of the message may have been written, so a further message would be invalid.
            let error = Arc::new(error);
            let reason = match error.kind() {
                io::ErrorKind::BrokenPipe => EndError::Ended,
                _ => EndError::Write(Arc::clone(&error)),
            };
            connection_state.end(reason);
            reading.abort();
            Err(error)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Arc<io::Error>> {
        self.reading.abort();
        Ok(())
    }
}

/// Reads messages and passes on those within the limits.
struct Reader {
    sender: mpsc::Sender<ServerJsonRpcMessage>,
    gate: MessageLimits,
    pieces: Rate,
    connection_state: Arc<ConnectionState>,
}

impl Reader {
    /// Reads messages until the output ends or exceeds a limit. Returns the reason of the end.
    async fn read(&mut self, mut stdout: Receiver) -> EndError {
        let mut line = Vec::new();
        let mut buffer = vec![0; LARGE_MESSAGE];
        loop {
            let length = match stdout.read(&mut buffer).await {
                Ok(0) => return EndError::Ended,
                Ok(length) => length,
                Err(error) => return EndError::Read(error),
            };
            let bytes = &buffer[..length];
            let is_small_piece = bytes.len() < SMALL_PIECE && !bytes.contains(&b'\n');
            if is_small_piece {
                let is_within_rate = self.pieces.count_event();
                if !is_within_rate {
                    return LimitError::Pieces.into();
                }
            }
            for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                if line.len() > MAX_MESSAGE {
                    return LimitError::Size.into();
                }
                if line.ends_with(b"\n")
                    && let Err(reason) = self.take_line(std::mem::take(&mut line)).await
                {
                    return reason;
                }
            }
        }
    }

    /// Passes on the message in a line, if the server may send this message now. A line without a
    /// message counts as a message that answers no request.
    async fn take_line(&mut self, line: Vec<u8>) -> Result<(), EndError> {
        if line.trim_ascii().is_empty() {
            return Ok(self.gate.count_unasked()?);
        }
        check(&line)?;
        let line = self.connection_state.without_secrets(line);
        let Some(message) = parse(line).await else { return Ok(self.gate.count_unasked()?) };
        if !self.gate.admit(&message)? {
            return Ok(());
        }
        self.sender.send(message).await.map_err(|_| EndError::Closed)
    }
}

/// Stores the end of a server's standard error. Reads the whole output, because a full pipe would
/// block the server.
fn store_stderr(mut stderr: File, connection_state: &ConnectionState) {
    let mut buffer = vec![0; STDERR_BUFFER];
    loop {
        match stderr.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => connection_state.add_stderr(&buffer[..length]),
            // A signal interrupted the read, so the loop repeats the read.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        std::thread::sleep(READ_PAUSE);
    }
    connection_state.record_stderr_end();
}

#[cfg(test)]
mod tests {
    use rmcp::model::RequestId;

    use super::*;
    use crate::gate::MAX_VALUES;

    /// A reader over pipes: the end for the server's text, what comes out, and its task.
    async fn read(text: &[u8], pending: &[i64]) -> (Vec<ServerJsonRpcMessage>, String) {
        let (to, mut messages) = mpsc::channel(1000);
        let waiting = Pending::default();
        pending.iter().for_each(|id| waiting.add(RequestId::Number(*id)));
        let pieces = Rate::new(100, Duration::from_secs(600));
        let mut reader = Reader {
            sender: to,
            gate: MessageLimits::new(waiting),
            pieces,
            connection_state: Arc::default(),
        };
        let (mut sender, receiver) = tokio::net::unix::pipe::pipe().expect("a pipe");
        let reading = tokio::spawn(async move { reader.read(receiver).await });
        // A reader that gives up closes the pipe.
        let _ = sender.write_all(text).await;
        drop(sender);
        let reason = reading.await.expect("the reader ends").to_string();
        let mut all = Vec::new();
        while let Some(message) = messages.recv().await {
            all.push(message);
        }
        (all, reason)
    }

    #[tokio::test]
    async fn answers_count_once_and_only_if_asked_for() {
        let text = concat!(
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#,
            "\nnot JSON\n\n",
            r#"{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}"#,
            "\n",
        );
        let (messages, reason) = read(text.as_bytes(), &[1, 2]).await;
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(matches!(&messages[0], ServerJsonRpcMessage::Response(_)));
        assert!(matches!(&messages[1], ServerJsonRpcMessage::Error(_)));
        assert_eq!(reason, "the server ended");
    }

    #[tokio::test]
    async fn floods_and_large_messages_end_the_connection() {
        let ping = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n";
        for line in [ping, "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n", "x\n", "\n"] {
            let (messages, reason) = read(line.repeat(5000).as_bytes(), &[]).await;
            assert!(messages.is_empty(), "{line}");
            assert!(
                reason.contains("more than 500 unsolicited messages in one second"),
                "{line}: {reason}"
            );
        }
        let (mut sender, receiver) = tokio::net::unix::pipe::pipe().expect("a pipe");
        let dripping = tokio::spawn(async move {
            while sender.write_all(b"a").await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
        let (to, _messages) = mpsc::channel(1);
        let (gate, pieces) =
            (MessageLimits::new(Pending::default()), Rate::new(100, Duration::from_secs(600)));
        let mut reader = Reader { sender: to, gate, pieces, connection_state: Arc::default() };
        let reason = reader.read(receiver).await.to_string();
        assert!(reason.contains("pieces of lines in one second"), "{reason}");
        dripping.await.expect("it ends");
        let large = "a".repeat(MAX_MESSAGE + 1);
        assert!(read(large.as_bytes(), &[]).await.1.contains("more than 8 MiB"));
        let many = format!("[{}1]\n", "1,".repeat(MAX_VALUES));
        assert!(read(many.as_bytes(), &[]).await.1.contains("more than 100000 values"));
    }
}
