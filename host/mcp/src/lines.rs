//! Messages as lines of JSON.
//!
//! The protocol's crate has a transport for them, which this one takes the place of: what most messages are, a call, is read at once and not
//! by trying one method after the other, and answers that are ready together leave together. What a line means stays with that crate.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, CallToolRequestMethod, CallToolRequestParams, ClientRequest, ErrorData, JsonRpcMessage, JsonRpcVersion2_0, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::{JsonRpcMessageCodec, JsonRpcMessageCodecError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_util::codec::Decoder;

/// Bytes that are read at once, and that are kept for what is written: what a pipe holds.
const BUFFER: usize = 64 << 10;

/// Reads and writes lines.
pub(crate) struct Lines<R, W> {
    reader: BufReader<R>,
    /// What was read of a line so far. Here and not in the future that reads: that one is dropped and made anew at any point.
    line: Vec<u8>,
    longest: usize,
    /// Whether the line that is being read was too long, and its end is still to come.
    too_long: bool,
    /// Whether there is an answer that `receive` has to see off.
    owes: bool,
    out: Arc<Out<W>>,
}

/// Where lines leave.
struct Out<W> {
    /// What is to be written.
    ready: Mutex<Vec<u8>>,
    /// None: it is closed, or broken.
    writing: tokio::sync::Mutex<Option<Writing<W>>>,
}

/// What is being written, which goes on where it was left.
struct Writing<W> {
    writer: W,
    bytes: Vec<u8>,
    written: usize,
}

/// A call as clients write it.
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

/// What is written as an object. What is derived takes lists as well, in which the order says what is what.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
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
    /// Passes over lines that are longer than so many bytes.
    pub(crate) fn new(reader: R, writer: W, longest: usize) -> Self {
        let writing = Writing { writer, bytes: Vec::new(), written: 0 };
        let out = Arc::new(Out { ready: Mutex::default(), writing: tokio::sync::Mutex::new(Some(writing)) });
        let reader = BufReader::with_capacity(BUFFER, reader);
        Self { reader, line: Vec::new(), longest, too_long: false, owes: false, out }
    }

    /// Reads a line, with its end. None: there is none any more. It may be dropped at any point and called anew.
    async fn read(&mut self) -> Option<()> {
        loop {
            let there = match self.reader.fill_buf().await {
                Ok([]) => return None,
                Ok(there) => there,
                Err(error) => {
                    tracing::error!("reading from the client: {error}");
                    return None;
                }
            };
            let end = there.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(there.len(), |end| end + 1);
            if !self.too_long && self.line.len() + taken > self.longest {
                tracing::error!("a message of more than {} bytes is passed over", self.longest);
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(&there[..taken]);
            }
            self.reader.consume(taken);
            if end.is_some() && !std::mem::take(&mut self.too_long) {
                return Some(());
            }
        }
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer> for Lines<R, W> {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // Now, and not when it is its turn: what is ready by then is written with it.
        let put = self.out.put(&message);
        let out = Arc::clone(&self.out);
        async move {
            put?;
            out.write().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if self.owes {
                self.out.write().await.ok()?;
                self.owes = false;
            }
            // Of what lies in the buffer, nothing is waited for: those who work on what was read would never have their turn.
            tokio::task::coop::consume_budget().await;
            self.read().await?;
            let is_object = self.line.trim_ascii_start().starts_with(b"{");
            let message = parsed(&self.line);
            self.line.clear();
            self.line.shrink_to(BUFFER);
            match message {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                // It is JSON, and no message.
                Err(JsonRpcMessageCodecError::Serde(error)) if error.is_data() => {
                    tracing::debug!("no message of the protocol: {error}");
                    let refusal = JsonRpcMessage::error(ErrorData::invalid_request("Invalid Request", None), None);
                    self.out.put(&refusal).ok()?;
                    self.owes = true;
                }
                // A message that can't be read: whoever sent it would wait.
                Err(error) if is_object => {
                    tracing::debug!("no JSON: {error}");
                    self.out.put(&JsonRpcMessage::error(ErrorData::parse_error("Parse error", None), None)).ok()?;
                    self.owes = true;
                }
                // It is nothing like a message, and an answer might be sent back as more of it.
                Err(error) => tracing::debug!("a line is passed over: {error}"),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.out.writing.lock().await.take());
        Ok(())
    }
}

impl<W: AsyncWrite + Unpin> Out<W> {
    fn ready(&self) -> MutexGuard<'_, Vec<u8>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a message behind what is to be written.
    fn put(&self, message: &TxJsonRpcMessage<RoleServer>) -> io::Result<()> {
        let mut ready = self.ready();
        let before = ready.len();
        let put = serde_json::to_writer(&mut *ready, message);
        match put {
            Ok(()) => ready.push(b'\n'),
            Err(_) => ready.truncate(before),
        }
        Ok(put?)
    }

    /// Returns when everything that was put before has been written, by this or by another that was under way. It may be dropped at any
    /// point: the next one goes on there.
    async fn write(&self) -> io::Result<()> {
        let mut turn = self.writing.lock().await;
        let done = match &mut *turn {
            Some(writing) => writing.write_all(|| self.ready()).await,
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        if done.is_err() {
            // A line was cut: nothing that follows would be one.
            *turn = None;
        }
        done
    }
}

impl<W: AsyncWrite + Unpin> Writing<W> {
    /// Writes what is left, then what was ready when that was done. What comes later has its own: nobody writes for others without end.
    async fn write_all<'a>(&mut self, ready: impl FnOnce() -> MutexGuard<'a, Vec<u8>>) -> io::Result<()> {
        self.write_left().await?;
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER);
        self.written = 0;
        std::mem::swap(&mut self.bytes, &mut *ready());
        self.write_left().await?;
        self.writer.flush().await
    }

    async fn write_left(&mut self) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match self.writer.write(&self.bytes[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.written += written,
            }
        }
        Ok(())
    }
}

/// The message of a line. None: it is one that may be passed over.
fn parsed(line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, JsonRpcMessageCodecError> {
    match serde_json::from_slice::<Object<Call>>(line) {
        Ok(Object(Call { id, params: Object(mut params), .. })) => {
            let meta = params.meta.take();
            let mut request = CallToolRequest::new(params);
            if let Some(meta) = meta {
                request.extensions.insert(meta);
            }
            Ok(Some(JsonRpcMessage::request(ClientRequest::CallToolRequest(request), id)))
        }
        // Whatever else it is, and what is wrong with it, the protocol's crate knows.
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
        tokio::runtime::Builder::new_current_thread().build().expect("there are threads").block_on(test)
    }

    fn lines(longest: usize) -> (Lines<DuplexStream, DuplexStream>, DuplexStream, DuplexStream) {
        let ((theirs, reader), (writer, heard)) = (duplex(1 << 20), duplex(7));
        (Lines::new(reader, writer, longest), theirs, heard)
    }

    #[test]
    fn a_line_means_what_the_protocols_crate_takes_it_for() {
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
        let shown = |parsed: Result<Option<RxJsonRpcMessage<RoleServer>>, JsonRpcMessageCodecError>| {
            parsed.map(|message| format!("{message:?}")).map_err(|error| error.to_string())
        };
        let mut calls = 0;
        for case in cases {
            let line = format!("{case}\n");
            calls += usize::from(serde_json::from_str::<Object<Call>>(&line).is_ok());
            let theirs = JsonRpcMessageCodec::default().decode(&mut BytesMut::from(line.as_str()));
            assert_eq!(shown(parsed(line.as_bytes())), shown(theirs), "{case}");
        }
        assert_eq!(calls, 5, "those that are read at once");
    }

    #[test]
    fn a_read_that_is_given_up_loses_nothing() {
        run(async {
            let (mut lines, mut client, _heard) = lines(1000);
            let text = format!("{CALL}\r\n\n{CALL}\n");
            let mut read = 0;
            for byte in text.bytes() {
                client.write_all(&[byte]).await.expect("there is room");
                let mut receiving = pin!(lines.receive());
                let polled = poll_fn(|context| Poll::Ready(receiving.as_mut().poll(context))).await;
                if let Poll::Ready(message) = polled {
                    let message = serde_json::to_value(message.expect("it is not closed")).expect("it is JSON");
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
    fn what_is_too_long_is_passed_over_and_not_kept() {
        run(async {
            let (mut lines, mut client, _heard) = lines(CALL.len() + 1);
            let long = CALL.replace("echo", "echoo");
            client.write_all(format!("{long}\n{}\n{CALL}\n{CALL}", "x".repeat(100_000)).as_bytes()).await.expect("there is room");
            drop(client);
            assert!(lines.receive().await.is_some());
            assert!(lines.line.capacity() <= BUFFER);
            assert!(lines.receive().await.is_none(), "without its end, it is no line");
        });
    }

    #[test]
    fn lines_leave_whole_and_in_order_whoever_is_given_up_while_writing() {
        run(async {
            let (mut lines, _client, mut heard) = lines(1000);
            let refusal = |number: usize| JsonRpcMessage::error(ErrorData::invalid_request(format!("number {number}"), None), None);
            for number in 0..100 {
                let mut sending = pin!(lines.send(refusal(number)));
                // Seven bytes get away.
                assert!(poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await.is_pending());
            }
            let last = lines.send(refusal(100));
            let writing = tokio::spawn(async move {
                last.await.expect("it is read");
                lines.close().await
            });
            let mut text = String::new();
            heard.read_to_string(&mut text).await.expect("it is UTF-8");
            writing.await.expect("it ends").expect("it is closed");
            let numbers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
            assert_eq!(numbers.len(), 101);
            assert!(numbers.iter().enumerate().all(|(at, said)| said["error"]["message"] == format!("number {at}")), "{text}");
        });
    }

    #[test]
    fn nothing_follows_a_line_that_could_not_be_written() {
        run(async {
            let (mut lines, _client, heard) = lines(1000);
            drop(heard);
            let refusal = || JsonRpcMessage::error(ErrorData::invalid_request("no", None), None);
            assert!(lines.send(refusal()).await.is_err());
            assert_eq!(lines.send(refusal()).await.expect_err("it is closed").kind(), io::ErrorKind::NotConnected);
        });
    }

    #[test]
    fn what_is_no_message_and_half_a_message_is_refused_and_anything_else_passed_over() {
        run(async {
            let (mut lines, mut client, mut heard) = lines(1000);
            client.write_all(format!("nonsense\n{{\n[]\n{CALL}\n").as_bytes()).await.expect("there is room");
            let (mut half, mut list) = (String::new(), String::new());
            let mut heard = BufReader::new(&mut heard);
            let said = async { (heard.read_line(&mut half).await, heard.read_line(&mut list).await) };
            let (message, read) = tokio::join!(lines.receive(), said);
            assert!(message.is_some() && read.0.is_ok() && read.1.is_ok());
            for (said, code) in [(half, -32700), (list, -32600)] {
                let said: Value = serde_json::from_str(&said).expect("a line is JSON");
                assert_eq!((&said["id"], &said["error"]["code"]), (&Value::Null, &json!(code)));
            }
        });
    }
}
