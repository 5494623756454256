//! The pipes to a server: one message a line, each bounded before anything parses it.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;

/// Most bytes of one message.
const MAX_MESSAGE: usize = 8 << 20;

/// Most values in one message: each takes many times its bytes in memory.
const MAX_VALUES: usize = 100_000;

/// Messages from here on are parsed on a thread for blocking work.
const LARGE: usize = 64 * 1024;

/// Most messages in [`WINDOW`] that answer no request.
const MAX_UNASKED: u32 = 500;

/// The time for [`MAX_UNASKED`] messages.
const WINDOW: Duration = Duration::from_secs(1);

/// Time for one message to be taken by the server.
const TAKE: Duration = Duration::from_secs(10);

/// Bytes of a server's standard error that are kept: the last ones.
const MAX_COMPLAINT: usize = 2 * 1024;

/// The pause between two reads of standard error, so that nobody waits for a server that floods it.
const PAUSE: Duration = Duration::from_millis(10);

/// Why a connection ended, and the last words of the server.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    reason: OnceLock<String>,
    complaint: Mutex<Vec<u8>>,
}

impl Ended {
    /// Keeps the first reason.
    fn set(&self, reason: impl Into<String>) {
        let _ = self.reason.set(reason.into());
    }

    /// Why it ended. `None`: it hasn't, as far as the pipes know.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// The end of its standard error.
    pub(crate) fn complaint(&self) -> String {
        let bytes = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

/// The requests that wait for an answer.
type Pending = Arc<Mutex<HashSet<RequestId>>>;

/// A connection over pipes.
pub(crate) struct Pipe {
    writer: Arc<tokio::sync::Mutex<Sender>>,
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    pending: Pending,
    ended: Arc<Ended>,
    reading: tokio::task::JoinHandle<()>,
    complaining: tokio::task::JoinHandle<()>,
}

impl Pipe {
    /// Starts to read. The descriptors don't block.
    pub(crate) fn new(streams: [OwnedFd; 3], ended: Arc<Ended>) -> io::Result<Self> {
        let [stdin, stdout, stderr] = streams;
        let writer = Arc::new(tokio::sync::Mutex::new(Sender::from_owned_fd(stdin)?));
        let (stdout, stderr) = (Receiver::from_owned_fd(stdout)?, Receiver::from_owned_fd(stderr)?);
        let (to, messages) = mpsc::channel(16);
        let pending = Pending::default();
        let reader =
            Reader { to, pending: Arc::clone(&pending), unasked: 0, since: Instant::now() };
        let reading = {
            let ended = Arc::clone(&ended);
            tokio::spawn(async move {
                let reason = reader.read(stdout).await;
                ended.set(reason);
            })
        };
        let complaining = tokio::spawn(keep_complaint(stderr, Arc::clone(&ended)));
        Ok(Self { writer, messages, pending, ended, reading, complaining })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.reading.abort();
        self.complaining.abort();
    }
}

impl Transport<RoleClient> for Pipe {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            match &message {
                ClientJsonRpcMessage::Request(request) => {
                    pending.insert(request.id.clone());
                }
                ClientJsonRpcMessage::Notification(notification) => {
                    if let ClientNotification::CancelledNotification(cancelled) =
                        &notification.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        pending.remove(id);
                    }
                }
                _ => {}
            }
        }
        let (writer, ended) = (Arc::clone(&self.writer), Arc::clone(&self.ended));
        let stop = self.reading.abort_handle();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let write = async { writer.lock().await.write_all(&line).await };
            let written = match tokio::time::timeout(TAKE, write).await {
                Ok(written) => written,
                Err(_) => Err(io::Error::other("it doesn't read what Berth sends")),
            };
            // Half a message may be in the pipe, so nothing can follow.
            written.inspect_err(|error| {
                ended.set(error.to_string());
                stop.abort();
            })
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.reading.abort();
        Ok(())
    }
}

/// Reads messages and passes on those that can be meant.
struct Reader {
    to: mpsc::Sender<ServerJsonRpcMessage>,
    pending: Pending,
    unasked: u32,
    since: Instant,
}

impl Reader {
    /// Reads until the end. Returns why it ended.
    async fn read(mut self, mut stdout: Receiver) -> String {
        let mut line = Vec::new();
        let mut buffer = vec![0; LARGE];
        loop {
            let read = match stdout.read(&mut buffer).await {
                Ok(0) => return "it ended".to_owned(),
                Ok(read) => read,
                Err(error) => return format!("it can't be read: {error}"),
            };
            for piece in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(piece);
                if line.len() > MAX_MESSAGE {
                    return format!(
                        "it sent a message of more than {} MiB, the limit",
                        MAX_MESSAGE >> 20
                    );
                }
                if line.ends_with(b"\n") {
                    let whole = std::mem::take(&mut line);
                    if let Err(reason) = self.take(whole).await {
                        return reason;
                    }
                }
            }
        }
    }

    /// Takes one line.
    async fn take(&mut self, line: Vec<u8>) -> Result<(), String> {
        let bytes = line.trim_ascii();
        if bytes.is_empty() {
            return self.count();
        }
        if values(bytes) > MAX_VALUES {
            return Err(format!("it sent a message with more than {MAX_VALUES} values, the limit"));
        }
        let message = if bytes.len() < LARGE {
            parse(bytes)
        } else {
            tokio::task::spawn_blocking(move || parse(line.trim_ascii())).await.unwrap_or_default()
        };
        let Some(message) = message else { return self.count() };
        let is_answer = match &message {
            ServerJsonRpcMessage::Response(response) => self.answers(&response.id),
            ServerJsonRpcMessage::Error(error) => match &error.id {
                Some(id) => self.answers(id),
                // It couldn't read which request it is about: then there has to be one.
                None => self.waiting(),
            },
            ServerJsonRpcMessage::Request(_) => {
                self.count()?;
                true
            }
            ServerJsonRpcMessage::Notification(notification) => {
                self.count()?;
                matches!(
                    notification.notification,
                    ServerNotification::CancelledNotification(_)
                        | ServerNotification::ProgressNotification(_)
                        | ServerNotification::ToolListChangedNotification(_)
                )
            }
        };
        if !is_answer {
            return self.count();
        }
        self.to.send(message).await.map_err(|_| "the connection was closed".to_owned())
    }

    /// Whether a request with this ID waits. It doesn't from now on: the second answer is none.
    fn answers(&self, id: &RequestId) -> bool {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    fn waiting(&self) -> bool {
        !self.pending.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Counts a message that answers nothing.
    fn count(&mut self) -> Result<(), String> {
        if self.since.elapsed() > WINDOW {
            (self.since, self.unasked) = (Instant::now(), 0);
        }
        self.unasked += 1;
        if self.unasked > MAX_UNASKED {
            return Err(format!(
                "it sent more than {MAX_UNASKED} messages in one second that answer nothing"
            ));
        }
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    serde_json::from_slice(bytes).ok()
}

/// About how many values a JSON text has, without parsing it; never fewer.
fn values(json: &[u8]) -> usize {
    let (mut count, mut in_text, mut escaped) = (1, false, false);
    for byte in json {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (false, b',' | b':' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

/// Keeps the end of a server's standard error, and reads on so that it isn't blocked.
async fn keep_complaint(mut stderr: Receiver, ended: Arc<Ended>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        {
            let mut kept = ended.complaint.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&buffer[..read]);
            let surplus = kept.len().saturating_sub(MAX_COMPLAINT);
            kept.drain(..surplus);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        assert_eq!(values(br#""[,,,[""#), 1);
        assert_eq!(values(br#"{"a\"[,": [1, 2]}"#), 5);
        assert_eq!(values("[".repeat(1000).as_bytes()), 1001);
    }

    /// A reader over pipes: the end for the server's text, what comes out, and its task.
    async fn read(text: &[u8], pending: &[i64]) -> (Vec<ServerJsonRpcMessage>, String) {
        let (to, mut messages) = mpsc::channel(1000);
        let pending: HashSet<RequestId> = pending.iter().map(|id| RequestId::Number(*id)).collect();
        let reader = Reader {
            to,
            pending: Arc::new(Mutex::new(pending)),
            unasked: 0,
            since: Instant::now(),
        };
        let (mut sender, receiver) = tokio::net::unix::pipe::pipe().expect("a pipe");
        let reading = tokio::spawn(reader.read(receiver));
        // A reader that gives up closes the pipe.
        let _ = sender.write_all(text).await;
        drop(sender);
        let reason = reading.await.expect("the reader ends");
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
            assert!(reason.contains("more than 500 messages in one second"), "{line}: {reason}");
        }
        let large = "a".repeat(MAX_MESSAGE + 1);
        assert!(read(large.as_bytes(), &[]).await.1.contains("more than 8 MiB"));
        let many = format!("[{}1]\n", "1,".repeat(MAX_VALUES));
        assert!(read(many.as_bytes(), &[]).await.1.contains("more than 100000 values"));
    }
}
