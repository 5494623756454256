//! Real servers on loopback: a good answer in each format, and every fault on the way to one.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use toolhold_contract::{CancellationToken, Failure};
use toolhold_models::{
    AnswerTimes, ModelClient, ModelEndpoint, ModelError, ModelErrorKind as Kind, ModelRetries,
};
use toolhold_net::requests::{DoorRecord, Network, OutboundClient, Recorder};

use super::server::{Server, Wire, answer as respond};
use super::*;

/// Runs a test on its own reactor.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a reactor starts")
        .block_on(test);
}

#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<Vec<DoorRecord>>);

impl Recorder for Records {
    fn record(&self, record: &DoorRecord) -> Result<(), Failure> {
        self.0.lock().expect("nobody panicked").push(record.clone());
        Ok(())
    }
}

impl Records {
    pub(crate) fn all(&self) -> Vec<DoorRecord> {
        self.0.lock().expect("nobody panicked").clone()
    }
}

/// A client that waits little between attempts.
pub(crate) fn client() -> (ModelClient, Arc<Records>) {
    let records = Arc::<Records>::default();
    let mut client =
        ModelClient::new(OutboundClient::new(Network::default(), Arc::clone(&records) as _));
    client.times = AnswerTimes {
        first: Duration::from_secs(20),
        idle: Duration::from_secs(20),
        total: Duration::from_secs(60),
    };
    client.retries =
        ModelRetries { count: 2, base: Duration::from_millis(10), longest: Duration::from_secs(2) };
    (client, records)
}

pub(crate) fn endpoint(format: WireFormat, server: &Server) -> ModelEndpoint {
    let url = format!("http://127.0.0.1:{}", server.port());
    ModelEndpoint::new(PROVIDER, format, &url).expect("it can be used")
}

type Asked = (Vec<ModelEvent>, Result<ModelAnswer, ModelError>);

async fn ask_with(client: &ModelClient, endpoint: &ModelEndpoint) -> Asked {
    let mut events = Vec::new();
    let mut given = |event| events.push(event);
    let answer = client.ask(endpoint, &turn(), &mut given, &CancellationToken::new()).await;
    (events, answer)
}

pub(crate) async fn ask(format: WireFormat, server: &Server) -> Asked {
    ask_with(&client().0, &endpoint(format, server)).await
}

#[track_caller]
fn failed(asked: &Asked) -> &ModelError {
    asked.1.as_ref().expect_err("it fails")
}

fn retries(events: &[ModelEvent]) -> usize {
    events.iter().filter(|event| matches!(event, ModelEvent::Retrying { .. })).count()
}

/// Writes the head of an answer that ends with its connection.
pub(crate) fn begin(wire: &mut dyn Wire) -> io::Result<()> {
    wire.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
    )
}

/// Ends the connection.
pub(crate) fn close() -> io::Result<()> {
    Err(io::Error::other("the connection ends"))
}

fn piece(wire: &mut dyn Wire, text: &str) -> io::Result<()> {
    wire.write_all(text.as_bytes())?;
    wire.flush()
}

type Headers = Vec<(&'static str, &'static str)>;

/// Gives the first answers of a row, and then the last one again.
fn in_order(answers: Vec<(&'static str, Headers, String)>) -> Server {
    let next = AtomicUsize::new(0);
    Server::plain(move |_, wire| {
        let at = next.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let (status, headers, body) = &answers[at];
        respond(wire, status, headers, body.as_bytes())
    })
}

/// A text before the end of each format's answer.
fn started(format: WireFormat) -> String {
    match format {
        WireFormat::Messages => data(&[
            r#"{"type":"message_start","message":{}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}"#,
        ]),
        WireFormat::Chat => data(&[r#"{"choices":[{"delta":{"content":"Hi"}}]}"#]),
        WireFormat::Responses => {
            data(&[r#"{"type":"response.output_text.delta","output_index":0,"delta":"Hi"}"#])
        }
        WireFormat::Ollama => lines(&[r#"{"message":{"content":"Hi"}}"#]),
    }
}

fn ended(format: WireFormat) -> String {
    match format {
        WireFormat::Messages => data(&[r#"{"type":"message_stop"}"#]),
        WireFormat::Chat => {
            data(&[r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#, "[DONE]"])
        }
        WireFormat::Responses => data(&[r#"{"type":"response.completed","response":{}}"#]),
        WireFormat::Ollama => lines(&[r#"{"done":true}"#]),
    }
}

fn whole(format: WireFormat) -> String {
    started(format) + &ended(format)
}

#[test]
fn answer_comes_while_the_server_still_sends_it() {
    run(async {
        for format in FORMATS {
            let (go, wait) = channel();
            let wait: Mutex<Receiver<()>> = Mutex::new(wait);
            let server = Server::plain(move |_, wire| {
                begin(wire)?;
                piece(wire, &started(format))?;
                wait.lock().expect("is whole").recv().map_err(io::Error::other)?;
                piece(wire, &ended(format))?;
                close()
            });
            let mut events = Vec::new();
            // Only what came so far lets the server go on.
            let mut given = |event: ModelEvent| {
                if matches!(event, ModelEvent::Text(_)) {
                    go.send(()).expect("it waits");
                }
                events.push(event);
            };
            let (client, records) = client();
            let endpoint = endpoint(format, &server);
            let got = client.ask(&endpoint, &turn(), &mut given, &CancellationToken::new()).await;
            assert_eq!(got.expect("it answers").text(), "Hi");
            assert_eq!(events[0], ModelEvent::Text("Hi".to_owned()));
            let asked = &server.asked()[0];
            let path = match format {
                WireFormat::Messages => "/v1/messages",
                WireFormat::Chat => "/v1/chat/completions",
                WireFormat::Responses => "/v1/responses",
                WireFormat::Ollama => "/api/chat",
            };
            assert_eq!(asked.path(), path);
            assert_eq!(asked.header("content-type"), Some("application/json"));
            assert_eq!(
                String::from_utf8_lossy(&asked.body),
                body_text(format, &turn(), &options())
            );
            let [record] = &records.all()[..] else { panic!("one request") };
            assert_eq!(
                (&*record.purpose, record.method.as_str(), record.path.as_str()),
                ("model", "POST", path)
            );
        }
    });
}

#[test]
fn refused_requests_are_sent_again_as_the_server_asks() {
    run(async {
        for (status, headers) in [
            ("429 Too Many Requests", vec![("retry-after", "0.2")]),
            ("429 Too Many Requests", vec![("retry-after-ms", "200")]),
            ("529 Overloaded", vec![]),
            ("503 Service Unavailable", vec![]),
            ("500 Internal Server Error", vec![]),
        ] {
            let server = in_order(vec![
                (status, headers.clone(), r#"{"error":{"message":"slow down"}}"#.to_owned()),
                ("200 OK", vec![], whole(WireFormat::Chat)),
            ]);
            let began = Instant::now();
            let (events, answer) = ask(WireFormat::Chat, &server).await;
            assert_eq!(answer.expect("the second one answers").text(), "Hi", "{status}");
            let ModelEvent::Retrying { attempts, wait, why } = &events[0] else {
                panic!("{events:?}")
            };
            assert!(*attempts == 1 && why.contains("slow down"), "{why}");
            assert_eq!(*wait >= Duration::from_millis(200), !headers.is_empty(), "{wait:?}");
            assert!(began.elapsed() >= *wait);
            let asked = server.asked();
            assert_eq!(asked.len(), 2);
            assert_eq!(asked[0].body, asked[1].body);
        }
    });
}

#[test]
fn attempts_are_bounded_and_useless_ones_are_not_made() {
    run(async {
        let date = ("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT");
        for (status, headers, body, count, kind) in [
            ("503 Service Unavailable", vec![], "", 3, Kind::Busy),
            ("502 Bad Gateway", vec![], "<html>bad", 3, Kind::Server),
            ("502 Bad Gateway", vec![("x-should-retry", "false")], "", 1, Kind::Server),
            ("429 Too Many Requests", vec![("retry-after", "3600")], "", 1, Kind::Busy),
            ("429 Too Many Requests", vec![date], "", 1, Kind::Busy),
            ("429 No", vec![], r#"{"error":{"code":"insufficient_quota"}}"#, 1, Kind::Funds),
            ("400 No", vec![], r#"{"error":{"message":"prompt is too long"}}"#, 1, Kind::Context),
            ("404 No", vec![], r#"{"error":{"message":"no such model"}}"#, 1, Kind::Model),
            ("401 No", vec![], "", 1, Kind::Key),
        ] {
            let server = in_order(vec![(status, headers, body.to_owned())]);
            let asked = ask(WireFormat::Messages, &server).await;
            let error = failed(&asked);
            assert_eq!((error.kind, server.asked().len()), (kind, count), "{error}");
            assert_eq!(retries(&asked.0), count - 1);
            assert_eq!(error.status.map(|it| it.to_string()).as_deref(), status.split(' ').next());
            assert!(error.to_string().starts_with("home: "), "{error}");
            assert_eq!(error.to_string().contains("after 3 attempts"), count == 3, "{error}");
        }
        let server = in_order(vec![("429 No", vec![("retry-after", "3600")], String::new())]);
        let asked = ask(WireFormat::Chat, &server).await;
        assert_eq!(failed(&asked).retry_after, Some(Duration::from_secs(3600)));
        assert!(
            failed(&asked).message.contains("the provider asks to wait 60 minutes"),
            "{:?}",
            asked.1
        );
        let model = in_order(vec![("404 Not Found", vec![], "nope".to_owned())]);
        let asked = ask(WireFormat::Ollama, &model).await;
        let message = &failed(&asked).message;
        assert!(
            message.contains("`m-1`") && message.contains("base URL http://127.0.0.1"),
            "{message}"
        );
    });
}

#[test]
fn connections_that_fail_before_an_answer_are_tried_again() {
    run(async {
        let count = AtomicUsize::new(0);
        let server = Server::plain(move |_, wire| match count.fetch_add(1, Ordering::SeqCst) {
            // Nothing at all, and then a head without a body.
            0 => close(),
            1 => begin(wire).and_then(|()| close()),
            _ => respond(wire, "200 OK", &[], whole(WireFormat::Responses).as_bytes()),
        });
        let (events, answer) = ask(WireFormat::Responses, &server).await;
        assert_eq!(answer.expect("the third one answers").text(), "Hi");
        assert_eq!(retries(&events), 2);
        let port = Server::plain(|_, _| close()).port();
        let nobody =
            ModelEndpoint::new(PROVIDER, WireFormat::Ollama, &format!("http://127.0.0.1:{port}"));
        let asked = ask_with(&client().0, &nobody.expect("it can be used")).await;
        assert_eq!((failed(&asked).kind, retries(&asked.0)), (Kind::Unreachable, 2));
        assert!(failed(&asked).message.contains("Is the server running?"), "{:?}", asked.1);
    });
}

#[test]
fn error_within_an_answer_is_tried_again_only_if_nothing_was_given() {
    run(async {
        let overloaded =
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let early = in_order(vec![
            ("200 OK", vec![], data(&[r#"{"type":"ping"}"#, overloaded])),
            ("200 OK", vec![], whole(WireFormat::Messages)),
        ]);
        let (events, answer) = ask(WireFormat::Messages, &early).await;
        assert_eq!((answer.expect("it answers").text().as_str(), retries(&events)), ("Hi", 1));
        let late = in_order(vec![(
            "200 OK",
            vec![],
            started(WireFormat::Messages) + &data(&[overloaded]),
        )]);
        let asked = ask(WireFormat::Messages, &late).await;
        assert_eq!(failed(&asked).kind, Kind::Busy);
        assert_eq!(asked.0, [ModelEvent::Text("Hi".to_owned())]);
        assert_eq!(late.asked().len(), 1);
        let context = data(&[
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"too long"}}}"#,
        ]);
        let asked = ask(WireFormat::Responses, &in_order(vec![("200 OK", vec![], context)])).await;
        assert_eq!((failed(&asked).kind, retries(&asked.0)), (Kind::Context, 0));
    });
}

#[test]
fn answer_that_breaks_off_is_an_error_and_not_asked_for_again() {
    run(async {
        for format in FORMATS {
            let call = match format {
                WireFormat::Messages => data(&[
                    r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"edit"}}"#,
                    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"text\": \"ha"}}"#,
                ]),
                WireFormat::Chat => data(&[
                    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"edit","arguments":"{\"text\": \"ha"}}]}}]}"#,
                ]),
                WireFormat::Responses => data(&[
                    r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"a","name":"edit"}}"#,
                    r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"text\": \"ha"}"#,
                ]),
                WireFormat::Ollama => String::new(),
            };
            let end = ended(format);
            let in_event = format!("{}{}", started(format), &end[..end.len() / 2]);
            // With a length that never comes, and with an end that looks right.
            for body in [started(format) + &call, in_event] {
                for has_length in [true, false] {
                    let text = body.clone();
                    let server = Server::plain(move |_, wire| {
                        if has_length {
                            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")?;
                        } else {
                            begin(wire)?;
                        }
                        piece(wire, &text)?;
                        close()
                    });
                    let asked = ask(format, &server).await;
                    assert_eq!(failed(&asked).kind, Kind::Cut, "{:?}", asked.1);
                    assert_eq!(server.asked().len(), 1);
                    assert!(asked.0.contains(&ModelEvent::Text("Hi".to_owned())));
                    let is_complete = |event: &ModelEvent| {
                        matches!(event, ModelEvent::Call(_) | ModelEvent::Finished(_))
                    };
                    assert!(!asked.0.iter().any(is_complete), "{:?}", asked.0);
                }
            }
        }
    });
}

#[test]
fn keep_alives_keep_an_answer_alive() {
    run(async {
        let server = Server::plain(|_, wire| {
            begin(wire)?;
            for number in 0..12 {
                std::thread::park_timeout(Duration::from_millis(100));
                piece(wire, if number % 2 == 0 { ": keep-alive\n\n" } else { "\r\n" })?;
            }
            piece(wire, &whole(WireFormat::Chat))?;
            close()
        });
        let began = Instant::now();
        let (mut client, _) = client();
        client.times.idle = Duration::from_secs(1);
        let (_, answer) = ask_with(&client, &endpoint(WireFormat::Chat, &server)).await;
        assert_eq!(answer.expect("it answers").text(), "Hi");
        assert!(began.elapsed() > Duration::from_secs(1), "longer than the limit without a byte");
    });
}

#[test]
fn servers_that_stall_are_given_up() {
    run(async {
        let silent = Server::plain(|_, wire| wire.read(&mut [0]).map(drop));
        let stalled = Server::plain(|_, wire| {
            begin(wire)?;
            piece(wire, &started(WireFormat::Chat))?;
            wire.read(&mut [0]).map(drop)
        });
        let dribbling = Server::plain(|_, wire| {
            begin(wire)?;
            loop {
                std::thread::park_timeout(Duration::from_millis(50));
                piece(wire, ":\n\n")?;
            }
        });
        let (mut client, records) = client();
        client.times.first = Duration::from_millis(1500);
        client.times.idle = Duration::from_millis(500);
        let asked = ask_with(&client, &endpoint(WireFormat::Chat, &silent)).await;
        assert_eq!(failed(&asked).kind, Kind::Time);
        assert!(failed(&asked).message.contains("sent nothing for 2 seconds"), "{:?}", asked.1);
        assert_eq!(silent.asked().len(), 1, "what takes long isn't asked for twice");
        let asked = ask_with(&client, &endpoint(WireFormat::Chat, &stalled)).await;
        assert_eq!(failed(&asked).kind, Kind::Time);
        assert!(failed(&asked).message.contains("sent nothing for 1 second"), "{:?}", asked.1);
        client.times.total = Duration::from_millis(700);
        let asked = ask_with(&client, &endpoint(WireFormat::Chat, &dribbling)).await;
        assert_eq!(failed(&asked).kind, Kind::Time);
        assert!(failed(&asked).message.contains("took longer than"), "{:?}", asked.1);
        let all = records.all();
        assert!(all.len() == 3 && all.iter().all(|record| record.failed.is_some()), "{all:?}");
    });
}

/// Memory of this process, in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is said");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|it| it.parse().ok()).expect("a number");
    kib >> 10
}

#[test]
fn answers_without_end_take_little_memory() {
    run(async {
        let long_line = Server::plain(|_, wire| {
            begin(wire)?;
            piece(wire, "data: ")?;
            (0..10).try_for_each(|_| piece(wire, &"a".repeat(1 << 20)))?;
            piece(wire, "\n\n")?;
            close()
        });
        let asked = ask(WireFormat::Chat, &long_line).await;
        assert_eq!(failed(&asked).kind, Kind::Cap);
        assert!(
            failed(&asked)
                .message
                .contains("an event of the model's answer is longer than 8388608")
        );
        assert_eq!(long_line.asked().len(), 1);

        let before = memory();
        let text = format!(r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#, "a".repeat(30_000));
        for (piece_sent, what) in [
            (data(&[&text]), "the model's answer is longer than 33554432 bytes"),
            (": nothing\n\n".repeat(5000), "the model's answer is longer than 67108864 bytes"),
        ] {
            let sent = Arc::<AtomicUsize>::default();
            let count = Arc::clone(&sent);
            let server = Server::plain(move |_, wire| {
                begin(wire)?;
                loop {
                    piece(wire, &piece_sent)?;
                    count.fetch_add(piece_sent.len(), Ordering::SeqCst);
                }
            });
            let (mut client, _) = client();
            client.caps.stream = 64 << 20;
            let (mut events, mut most) = (0u64, 0);
            let mut given = |_| {
                events += 1;
                if events.is_multiple_of(100) {
                    most = most.max(memory());
                }
            };
            let endpoint = endpoint(WireFormat::Chat, &server);
            let asked = client.ask(&endpoint, &turn(), &mut given, &CancellationToken::new()).await;
            let error = asked.expect_err("it has no end");
            assert!(error.kind == Kind::Cap && error.message.contains(what), "{error}");
            assert!(sent.load(Ordering::SeqCst) > 30 << 20);
            assert!(most.max(memory()) < before + 200, "{before} MiB grew to {most} MiB");
        }
    });
}

#[test]
fn cancelled_at_any_point_it_ends_at_once() {
    run(async {
        let (asked, is_asked) = channel();
        let (seen, gone) = channel();
        let silent = Server::plain(move |_, wire| {
            asked.send(()).map_err(io::Error::other)?;
            // Ends when the client hangs up.
            let read = wire.read(&mut [0]);
            seen.send(read.as_ref().is_ok_and(|bytes| *bytes == 0)).map_err(io::Error::other)?;
            close()
        });
        let (mut client, _) = client();
        client.times.first = Duration::from_secs(30);
        client.times.idle = Duration::from_secs(30);
        client.retries.base = Duration::from_secs(60);
        client.retries.longest = Duration::from_secs(60);
        let busy = in_order(vec![("503 No", vec![("retry-after", "30")], String::new())]);
        let stalled = Server::plain(|_, wire| {
            begin(wire)?;
            piece(wire, &started(WireFormat::Chat))?;
            wire.read(&mut [0]).map(drop)
        });
        let mut is_asked = Some(is_asked);
        for server in [&silent, &stalled, &busy] {
            let cancel = CancellationToken::new();
            let (from_event, from_server) = (cancel.clone(), cancel.clone());
            // The first one only gets the request; with the others, something happens.
            let mut given = move |_: ModelEvent| from_event.cancel();
            if let Some(is_asked) = is_asked.take() {
                tokio::task::spawn_blocking(move || is_asked.recv().map(|()| from_server.cancel()));
            }
            let began = Instant::now();
            let endpoint = endpoint(WireFormat::Chat, server);
            let asked = client.ask(&endpoint, &turn(), &mut given, &cancel).await;
            assert_eq!(asked.expect_err("it is cancelled").kind, Kind::Cancelled);
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        assert_eq!(gone.recv_timeout(Duration::from_secs(5)), Ok(true), "the connection is closed");
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let endpoint = endpoint(WireFormat::Chat, &busy);
        let asked = client.ask(&endpoint, &turn(), &mut |_| {}, &cancelled).await;
        assert_eq!(asked.expect_err("it is cancelled").kind, Kind::Cancelled);
        assert_eq!(busy.asked().len(), 1);
    });
}

#[test]
fn complete_answer_needs_no_end_of_its_connection() {
    run(async {
        for format in FORMATS {
            let open = Server::plain(move |_, wire| {
                begin(wire)?;
                piece(wire, &whole(format))?;
                wire.read(&mut [0]).map(drop)
            });
            let began = Instant::now();
            assert_eq!(ask(format, &open).await.1.expect("it answers").text(), "Hi");
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
    });
}

#[test]
fn local_servers_may_close_each_connection() {
    run(async {
        // It says that the connection stays open, and closes it with the next request.
        let server = Server::plain(|asked, wire| {
            respond(wire, "200 OK", &[], whole(WireFormat::Chat).as_bytes())?;
            assert_eq!(asked.header("connection"), Some("close"));
            wire.flush()?;
            close()
        });
        let (client, _) = client();
        let endpoint = endpoint(WireFormat::Chat, &server);
        for _ in 0..20 {
            let (events, answer) = ask_with(&client, &endpoint).await;
            assert_eq!((answer.expect("it answers").text().as_str(), retries(&events)), ("Hi", 0));
        }
        assert_eq!((server.asked().len(), server.connections()), (20, 20));
    });
}

#[test]
fn pages_are_no_answers() {
    run(async {
        let page = || {
            (
                "200 OK",
                vec![("content-type", "text/html")],
                "<html>\n<p>Hello\n</html>\n".to_owned(),
            )
        };
        for format in [WireFormat::Messages, WireFormat::Chat, WireFormat::Responses] {
            let server = in_order(vec![page()]);
            let asked = ask(format, &server).await;
            assert_eq!(failed(&asked).kind, Kind::Malformed);
            let message = &failed(&asked).message;
            assert!(
                message.contains("`text/html`") && message.contains("check the base URL"),
                "{message}"
            );
            assert_eq!(server.asked().len(), 1);
        }
        let asked = ask(WireFormat::Ollama, &in_order(vec![page()])).await;
        assert_eq!(failed(&asked).kind, Kind::Malformed);
        let steering = in_order(vec![("400 No", vec![], "\u{1b}[2J\u{202e}x\n".repeat(10_000))]);
        let asked = ask(WireFormat::Chat, &steering).await;
        let message = &failed(&asked).message;
        assert!(
            !message.contains(['\u{1b}', '\u{202e}', '\n']) && message.len() < 500,
            "{message}"
        );
    });
}
