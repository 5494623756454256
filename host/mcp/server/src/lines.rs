//! Reads and writes MCP messages as lines of JSON.
//!
//! The transport of the protocol's crate parses a message by trying one method after the other.
//! This transport tries calls first, because calls are the most frequent messages. It also writes
//! all answers together that are ready at the same time.

use std::fmt;
use std::io::{self, BufRead};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, CallToolRequestMethod, CallToolRequestParams, ClientRequest, ErrorData,
    JsonRpcMessage, JsonRpcVersion2_0, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::{JsonRpcMessageCodec, JsonRpcMessageCodecError};
use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_util::codec::Decoder;

use crate::envelope::Envelope;

/// Bytes of the buffers for reading and writing. Equals the size of a pipe on Linux.
const BUFFER_BYTES: usize = 64 << 10;

pub(crate) struct Lines<R, W> {
    reader: BufReader<R>,
    /// The part of the current line that was read. The field keeps the part if the future of
    /// `receive` is dropped in the middle of a line.
    line: Vec<u8>,
    longest: usize,
    /// Set while the end of a too long line is skipped.
    too_long: Option<Envelope>,
    /// Whether `receive` must write a refusal first.
    has_refusal: bool,
    out: Arc<WriteHalf<W>>,
}

pub(crate) struct WriteHalf<W> {
    /// Bytes for the next write.
    ready: Mutex<Vec<u8>>,
    /// `None` after the output was closed or failed.
    writing: tokio::sync::Mutex<Option<Writing<W>>>,
}

struct Writing<W> {
    writer: W,
    bytes: Vec<u8>,
    written: usize,
}

enum Line {
    Whole,
    /// The line was skipped.
    TooLong(Envelope),
}

/// The answer to an invalid line. `id` is `null` if the line has no readable ID.
#[derive(Serialize)]
struct Refusal {
    jsonrpc: JsonRpcVersion2_0,
    id: Option<RequestId>,
    error: ErrorData,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    #[serde(rename = "jsonrpc")]
    _version: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(rename = "method")]
    _method: CallToolRequestMethod,
    params: Object<CallToolRequestParams>,
}

/// A value that must be an object, because serde's derived parser also accepts a list of the
/// fields.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // This visitor has no `visit_seq`, so it refuses a list.
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    /// Creates a transport that reads and writes lines. Lines of more than `longest` bytes are
    /// skipped.
    pub(crate) fn new(reader: R, writer: W, longest: usize) -> Self {
        let writing = Writing { writer, bytes: Vec::new(), written: 0 };
        let out = Arc::new(WriteHalf {
            ready: Mutex::default(),
            writing: tokio::sync::Mutex::new(Some(writing)),
        });
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        Self { reader, line: Vec::new(), longest, too_long: None, has_refusal: false, out }
    }

    pub(crate) fn writer(&self) -> Arc<WriteHalf<W>> {
        Arc::clone(&self.out)
    }

    /// Reads a line with its line end into `line`. Returns `None` at the end of the input. The
    /// future may be dropped at any point.
    async fn read(&mut self) -> Option<Line> {
        loop {
            let buffered = match self.reader.fill_buf().await {
                Ok([]) => return None,
                Ok(buffered) => buffered,
                Err(error) => {
                    tracing::error!("reading from the client failed: {error}");
                    return None;
                }
            };
            // `skip_until` finds the end of the line, because it compares many bytes at a time,
            // unlike `position`. Reading from memory can't fail.
            let mut unread = buffered;
            let length = unread.skip_until(b'\n').unwrap_or(buffered.len());
            let part = &buffered[..length];
            let is_end = part.ends_with(b"\n");

            if self.too_long.is_none() && self.line.len() + length > self.longest {
                tracing::error!(
                    "a message is skipped: it has more than {} bytes, the limit",
                    self.longest
                );
                let mut envelope = Envelope::default();
                envelope.read(&std::mem::take(&mut self.line));
                self.too_long = Some(envelope);
            }
            match &mut self.too_long {
                Some(envelope) => envelope.read(part),
                None => self.line.extend_from_slice(part),
            }
            self.reader.consume(length);
            if is_end {
                let line = match self.too_long.take() {
                    Some(envelope) => Line::TooLong(envelope),
                    None => Line::Whole,
                };
                return Some(line);
            }
        }
    }

    fn refuse(&mut self, id: Option<RequestId>, error: ErrorData) -> io::Result<()> {
        self.has_refusal = true;
        self.out.queue(&Refusal { jsonrpc: JsonRpcVersion2_0, id, error })
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer>
    for Lines<R, W>
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // The answer is queued now, and is written together with other answers.
        let result = self.out.queue(&message);
        let out = Arc::clone(&self.out);
        async move {
            result?;
            out.write().await;
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if self.has_refusal {
                self.out.write().await;
                self.has_refusal = false;
            }
            // Reading a buffered line doesn't wait, so this loop wouldn't yield while a client
            // writes quickly. This call lets the tasks of earlier lines run.
            tokio::task::coop::consume_budget().await;
            match self.read().await? {
                Line::Whole => {}
                Line::TooLong(envelope) => {
                    if envelope.is_object() {
                        let reason =
                            format!("the message has more than {} bytes, the limit", self.longest);
                        self.refuse(envelope.id(), ErrorData::invalid_request(reason, None))
                            .ok()?;
                    }
                    continue;
                }
            }
            let is_object = starts_with_object(&self.line);
            let message = parse(&self.line);
            let id = if message.is_err() { Envelope::parse_id(&self.line) } else { None };
            self.line.clear();
            self.line.shrink_to(BUFFER_BYTES);
            match message {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(JsonRpcMessageCodecError::Serde(error)) if error.is_data() => {
                    tracing::debug!("a line isn't a message of the protocol: {error}");
                    self.refuse(id, ErrorData::invalid_request("Invalid Request", None)).ok()?;
                }
                // The line starts like a message, so its sender may wait for an answer.
                Err(error) if is_object => {
                    tracing::debug!("a line isn't JSON: {error}");
                    self.refuse(id, ErrorData::parse_error("Parse error", None)).ok()?;
                }
                // Other text gets no answer, because a peer that echoes lines sends each answer
                // back, without end.
                Err(error) => tracing::debug!("a line is skipped: {error}"),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.out.writing.lock().await.take());
        Ok(())
    }
}

impl<W: AsyncWrite + Unpin> WriteHalf<W> {
    fn ready(&self) -> MutexGuard<'_, Vec<u8>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message for [`Self::write`]. A message that can't be converted to JSON isn't
    /// queued.
    pub(crate) fn queue(&self, message: &impl Serialize) -> io::Result<()> {
        let mut ready = self.ready();
        let length_before = ready.len();
        if let Err(error) = serde_json::to_writer(&mut *ready, message) {
            ready.truncate(length_before);
            return Err(error.into());
        }
        ready.push(b'\n');
        Ok(())
    }

    /// Writes all queued messages, or waits until another future has written them. The future may
    /// be dropped at any point, because the next call writes the remaining bytes. The first failure
    /// is logged, and all later messages are dropped.
    pub(crate) async fn write(&self) {
        let mut writing_guard = self.writing.lock().await;
        let Some(writing) = &mut *writing_guard else {
            self.ready().clear();
            return;
        };
        if let Err(error) = writing.write_all(|| self.ready()).await {
            match error.kind() {
                io::ErrorKind::BrokenPipe => {
                    tracing::info!(
                        "the client has closed the connection; no more answers are written"
                    );
                }
                _ => tracing::error!(
                    "no more answers are written: writing to the client failed: {error}"
                ),
            }
            // A part of a line may have been written, so further lines are invalid.
            *writing_guard = None;
        }
    }
}

impl<W: AsyncWrite + Unpin> Writing<W> {
    /// Writes the remaining bytes and then the bytes that are queued at that moment.
    async fn write_all<'a>(
        &mut self,
        ready: impl FnOnce() -> MutexGuard<'a, Vec<u8>>,
    ) -> io::Result<()> {
        self.write_remaining().await?;
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER_BYTES);
        self.written = 0;
        std::mem::swap(&mut self.bytes, &mut *ready());
        self.write_remaining().await?;
        self.writer.flush().await
    }

    async fn write_remaining(&mut self) -> io::Result<()> {
        while self.written < self.bytes.len() {
            let count = self.writer.write(&self.bytes[self.written..]).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written += count;
        }
        Ok(())
    }
}

/// Checks whether a line starts with an object. A byte order mark may come first.
fn starts_with_object(line: &[u8]) -> bool {
    let start = line.trim_ascii_start();
    let object = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    object.trim_ascii_start().starts_with(b"{")
}

/// Parses a line. Returns `None` for a line without a message for the server. Calls are parsed
/// directly, because calls are the most frequent messages.
fn parse(line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, JsonRpcMessageCodecError> {
    match serde_json::from_slice::<Object<Call>>(line) {
        Ok(Object(Call { id, params: Object(mut params), .. })) => {
            let meta = params.meta.take();
            let mut request = CallToolRequest::new(params);
            if let Some(meta) = meta {
                request.extensions.insert(meta);
            }
            Ok(Some(JsonRpcMessage::request(ClientRequest::CallToolRequest(request), id)))
        }
        Err(_) => JsonRpcMessageCodec::default().decode(&mut BytesMut::from(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"é\n"}}}"#;

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("there are threads")
            .block_on(test)
    }

    fn lines(longest: usize) -> (Lines<DuplexStream, DuplexStream>, DuplexStream, DuplexStream) {
        let ((theirs, reader), (writer, heard)) = (duplex(1 << 20), duplex(7));
        (Lines::new(reader, writer, longest), theirs, heard)
    }

    #[test]
    fn line_parses_like_in_the_protocols_crate() {
        let cases = [
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a" } }),
            json!({ "id": "x", "params": { "arguments": { "b": [1, null] }, "name": "a", "more": 1 }, "method": "tools/call", "jsonrpc": "2.0" }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a", "_meta": { "progressToken": 3, "other": {} } } }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a", "_meta": null, "arguments": null } }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a", "requestState": "s", "inputResponses": { "answer": {} } } }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a" }, "more": 1 }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            json!({ "jsonrpc": "2.0", "method": "tools/call", "params": { "name": "a" } }),
            json!({ "jsonrpc": "1.0", "id": 1, "method": "tools/call", "params": { "name": "a" } }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a" }, "result": {} }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": 1 } }),
            json!({ "jsonrpc": "2.0", "id": 1.5, "method": "tools/call", "params": { "name": "a" } }),
            json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
            json!([]),
            json!(["2.0", 77, "tools/call", { "name": "a" }]),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [null, "a", {}, null, null] }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [] }),
        ];
        let shown =
            |parsed: Result<Option<RxJsonRpcMessage<RoleServer>>, JsonRpcMessageCodecError>| {
                parsed.map(|message| format!("{message:?}")).map_err(|error| error.to_string())
            };
        let mut calls = 0;
        for case in cases {
            let line = format!("{case}\n");
            calls += usize::from(serde_json::from_str::<Object<Call>>(&line).is_ok());
            let theirs = JsonRpcMessageCodec::default().decode(&mut BytesMut::from(line.as_str()));
            assert_eq!(shown(parse(line.as_bytes())), shown(theirs), "{case}");
        }
        assert_eq!(calls, 5, "those that are read at once");
    }

    #[test]
    fn dropped_read_loses_nothing() {
        run(async {
            let (mut lines, mut client, _heard) = lines(1000);
            let text = format!("{CALL}\r\n\n{CALL}\n");
            let mut read = 0;
            for byte in text.bytes() {
                client.write_all(&[byte]).await.expect("there is room");
                let mut receiving = pin!(lines.receive());
                let polled = poll_fn(|context| Poll::Ready(receiving.as_mut().poll(context))).await;
                if let Poll::Ready(message) = polled {
                    let message = serde_json::to_value(message.expect("it is not closed"))
                        .expect("it is JSON");
                    assert_eq!(message, serde_json::from_str::<Value>(CALL).expect("it is JSON"));
                    read += 1;
                }
            }
            assert_eq!(read, 2);
            drop(client);
            assert!(lines.receive().await.is_none());
        });
    }

    #[test]
    fn overlong_line_is_refused_and_not_kept() {
        run(async {
            let (mut lines, mut client, mut heard) = lines(CALL.len() + 1);
            let first = CALL.replace("echo", "echoo");
            let last = format!(r#"{{"method":"x","params":"{}","id":"8"}}"#, "x".repeat(100_000));
            let none = "x".repeat(100_000);
            client
                .write_all(format!("{first}\n{last}\n{none}\n{CALL}\n{CALL}").as_bytes())
                .await
                .expect("there is room");
            drop(client);
            let reading = tokio::spawn(async move {
                let mut text = String::new();
                heard.read_to_string(&mut text).await.expect("it is UTF-8");
                text
            });
            assert!(lines.receive().await.is_some());
            assert!(lines.line.capacity() <= BUFFER_BYTES);
            assert!(lines.receive().await.is_none(), "without its end, it is no line");
            drop(lines);
            let said = reading.await.expect("it ends");
            let said: Vec<Value> = said
                .lines()
                .map(|line| serde_json::from_str(line).expect("a line is JSON"))
                .collect();
            assert_eq!(
                said.iter().map(|said| &said["id"]).collect::<Vec<_>>(),
                [&json!(7), &json!("8")],
                "{said:?}"
            );
        });
    }

    #[test]
    fn lines_are_written_whole_and_in_order_despite_dropped_writers() {
        run(async {
            let (mut lines, _client, mut heard) = lines(1000);
            let refusal = |number: usize| {
                JsonRpcMessage::error(
                    ErrorData::invalid_request(format!("number {number}"), None),
                    None,
                )
            };
            for number in 0..100 {
                let mut sending = pin!(lines.send(refusal(number)));
                // Seven bytes are written.
                assert!(
                    poll_fn(|context| Poll::Ready(sending.as_mut().poll(context)))
                        .await
                        .is_pending()
                );
            }
            let last = lines.send(refusal(100));
            let writing = tokio::spawn(async move {
                last.await.expect("it is read");
                lines.close().await
            });
            let mut text = String::new();
            heard.read_to_string(&mut text).await.expect("it is UTF-8");
            writing.await.expect("it ends").expect("it is closed");
            let numbers: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).expect("a line is JSON"))
                .collect();
            assert_eq!(numbers.len(), 101);
            assert!(
                numbers
                    .iter()
                    .enumerate()
                    .all(|(at, said)| said["error"]["message"] == format!("number {at}")),
                "{text}"
            );
        });
    }

    #[test]
    fn nothing_is_buffered_for_a_closed_client() {
        run(async {
            let (mut lines, _client, heard) = lines(1000);
            drop(heard);
            let refusal = || JsonRpcMessage::error(ErrorData::invalid_request("no", None), None);
            for _ in 0..100 {
                assert!(lines.send(refusal()).await.is_ok(), "nobody has to hear of it each time");
            }
            assert!(lines.out.ready().is_empty());
            assert!(
                lines.out.writing.lock().await.is_none(),
                "nothing follows a line that was cut"
            );
        });
    }

    #[test]
    fn invalid_and_partial_messages_are_refused_and_noise_is_skipped() {
        run(async {
            let (mut lines, mut client, mut heard) = lines(1000);
            let surrogate = CALL.replace("é", "\\ud800");
            let half = &CALL[..CALL.len() - 1];
            let version = CALL.replace("2.0", "1.0");
            let cases = [
                ("{", Value::Null, -32700),
                ("[]", Value::Null, -32600),
                (&*surrogate, json!(7), -32700),
                (half, json!(7), -32700),
                (&*version, json!(7), -32600),
                (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Value::Null, -32600),
            ];
            let broken: String = cases.iter().map(|(line, ..)| format!("{line}\n")).collect();
            client
                .write_all(format!("nonsense\n{broken}{CALL}\n").as_bytes())
                .await
                .expect("there is room");
            let mut heard = BufReader::new(&mut heard).lines();
            let said = async {
                for (line, id, code) in &cases {
                    let said =
                        heard.next_line().await.expect("it is UTF-8").expect("there is an answer");
                    let said: Value = serde_json::from_str(&said).expect("a line is JSON");
                    assert_eq!(
                        (said.get("id"), &said["error"]["code"]),
                        (Some(id), &json!(code)),
                        "{line}"
                    );
                }
            };
            let (message, ()) = tokio::join!(lines.receive(), said);
            assert!(message.is_some());
        });
    }
}
