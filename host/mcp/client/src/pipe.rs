//! Reads and writes the pipes of a server's program. Each line is one message, and its size is
//! checked before the message is parsed.

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
    ConnectionEnd, EndError, LARGE, LimitError, MAX_MESSAGE, MAX_PIECES, MessageLimits, Pending,
    Rate, check, parse,
};

/// Time limit for a server to read one message.
const TAKE: Duration = Duration::from_secs(10);

/// The pause between two reads of standard error. With the pause, a server that floods its standard
/// error takes little time of the host.
const PAUSE: Duration = Duration::from_millis(10);

/// The stack of the thread that reads standard error.
const STACK: usize = 128 * 1024;

/// A read of fewer bytes is a piece of a line. The number of pieces is limited, since each piece
/// wakes the thread that waits for the answers of all servers.
const PIECE: usize = 512;

/// A connection over pipes.
pub(crate) struct Pipe {
    writer: Arc<tokio::sync::Mutex<Sender>>,
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    pending: Pending,
    ended: Arc<ConnectionEnd>,
    reading: tokio::task::JoinHandle<()>,
}

impl Pipe {
    /// Starts to read the streams. Their descriptors must be non-blocking.
    pub(crate) fn new(streams: [OwnedFd; 3], ended: Arc<ConnectionEnd>) -> io::Result<Self> {
        let [stdin, stdout, stderr] = streams;
        let writer = Arc::new(tokio::sync::Mutex::new(Sender::from_owned_fd(stdin)?));
        let stdout = Receiver::from_owned_fd(stdout)?;
        let (to, messages) = mpsc::channel(16);
        let pending = Pending::default();
        let gate = MessageLimits::new(pending.clone());
        let pieces = Rate::new(MAX_PIECES, Duration::from_secs(1));
        let mut reader = Reader { to, gate, pieces, ended: Arc::clone(&ended) };
        let reading = {
            let ended = Arc::clone(&ended);
            tokio::spawn(async move {
                // The reason must be set before the channel is closed.
                ended.set(reader.read(stdout).await);
                drop(reader);
            })
        };
        // A descriptor that is registered in the runtime would wake the runtime for each byte, even
        // in a pause.
        ioctl_fionbio(&stderr, false)?;
        let complaint_end = Arc::clone(&ended);
        // The thread ends with the server.
        std::thread::Builder::new()
            .name("toolhold-complaint".to_owned())
            .stack_size(STACK)
            .spawn(move || keep_complaint(File::from(stderr), &complaint_end))?;
        Ok(Self { writer, messages, pending, ended, reading })
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
        self.pending.sent(&message);
        let writer = Arc::clone(&self.writer);
        let ended = Arc::clone(&self.ended);
        let stop = self.reading.abort_handle();
        async move {
            let mut line = serde_json::to_vec(&message).map_err(io::Error::from)?;
            line.push(b'\n');
            let write = async { writer.lock().await.write_all(&line).await };
            let result = match tokio::time::timeout(TAKE, write).await {
                Ok(result) => result,
                Err(_) => Err(io::Error::other("it doesn't read what Toolhold sends")),
            };
            let Err(error) = result else { return Ok(()) };

            // A part of the message may be in the pipe, so no other message can be sent.
            let error = Arc::new(error);
            ended.set(match error.kind() {
                io::ErrorKind::BrokenPipe => EndError::Ended,
                _ => EndError::Write(Arc::clone(&error)),
            });
            stop.abort();
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

/// Reads messages, and passes on the messages that a server may send now.
struct Reader {
    to: mpsc::Sender<ServerJsonRpcMessage>,
    gate: MessageLimits,
    pieces: Rate,
    ended: Arc<ConnectionEnd>,
}

impl Reader {
    /// Reads until the end. Returns the reason of the end.
    async fn read(&mut self, mut stdout: Receiver) -> EndError {
        let mut line = Vec::new();
        let mut buffer = vec![0; LARGE];
        loop {
            let length = match stdout.read(&mut buffer).await {
                Ok(0) => return EndError::Ended,
                Ok(length) => length,
                Err(error) => return EndError::Read(error),
            };
            let bytes = &buffer[..length];
            let is_small_piece = bytes.len() < PIECE && !bytes.contains(&b'\n');
            if is_small_piece && !self.pieces.count() {
                return LimitError::Pieces.into();
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

    /// Checks one line, and passes its message on.
    async fn take_line(&mut self, line: Vec<u8>) -> Result<(), EndError> {
        if line.trim_ascii().is_empty() {
            return Ok(self.gate.count()?);
        }
        check(&line)?;
        let line = self.ended.without_secrets(line);
        let Some(message) = parse(line).await else { return Ok(self.gate.count()?) };
        if !self.gate.admit(&message)? {
            return Ok(());
        }
        self.to.send(message).await.map_err(|_| EndError::Closed)
    }
}

/// Stores the end of a server's standard error. Reads all of the standard error so that the server
/// doesn't block.
fn keep_complaint(mut stderr: File, ended: &ConnectionEnd) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stderr.read(&mut buffer) {
            Ok(length @ 1..) => ended.complain(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
        std::thread::sleep(PAUSE);
    }
    ended.said_all();
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
        let mut reader =
            Reader { to, gate: MessageLimits::new(waiting), pieces, ended: Arc::default() };
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
        assert_eq!(reason, "it ended");
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
        let mut reader = Reader { to, gate, pieces, ended: Arc::default() };
        let reason = reader.read(receiver).await.to_string();
        assert!(reason.contains("pieces of lines in one second"), "{reason}");
        dripping.await.expect("it ends");
        let large = "a".repeat(MAX_MESSAGE + 1);
        assert!(read(large.as_bytes(), &[]).await.1.contains("more than 8 MiB"));
        let many = format!("[{}1]\n", "1,".repeat(MAX_VALUES));
        assert!(read(many.as_bytes(), &[]).await.1.contains("more than 100000 values"));
    }
}
