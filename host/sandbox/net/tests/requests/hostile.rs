//! Tests of hostile servers and guests: malformed answers, large headers, and many requests at
//! once.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use toolhold_net::{Egress, Error};

use crate::server::{Server, Wire, answer};
use crate::{Caller, GuestAnswer, Loopback, run, settings};

/// Pseudo-random numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % below.max(1) as u64).unwrap_or_default()
    }
}

/// A malformed answer: a good one with cut, inserted or overwritten bytes.
fn malformed(seed: u64) -> Vec<u8> {
    const GOOD: [&[u8]; 8] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://[::1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    ];
    let mut numbers = Numbers(seed);
    let mut bytes = GOOD[numbers.next(GOOD.len())].to_vec();
    for _ in 0..=numbers.next(4) {
        let at = numbers.next(bytes.len());
        match numbers.next(7) {
            0 => bytes.truncate(at),
            1 => bytes[at] = u8::try_from(numbers.next(256)).unwrap_or_default(),
            2 => drop(bytes.splice(at..at, std::iter::repeat_n(b'9', numbers.next(40)))),
            3 => drop(bytes.splice(at..at, *b"\0\r\n\xff:")),
            4 => bytes.extend_from_slice(GOOD[numbers.next(GOOD.len())]),
            5 => drop(bytes.splice(at..at, std::iter::repeat_n(b'x', 70_000))),
            _ => drop(
                bytes.splice(at..at, b"content-length: 18446744073709551616\r\n".iter().copied()),
            ),
        }
        if bytes.is_empty() {
            bytes.push(b'H');
        }
    }
    bytes
}

#[test]
fn thousand_malformed_answers_end() {
    run(async {
        let server = Server::plain(|received, wire| {
            let seed = received.path().trim_start_matches('/').parse().unwrap_or_default();
            wire.write_all(&malformed(seed))?;
            Err(std::io::Error::other("the connection ends"))
        });
        let mut settings = settings(&[&server.address.to_string()]);
        settings.limits.requests = 10_000;
        settings.limits.time = Duration::from_secs(5);
        let egress = Arc::new(Egress::new(settings));
        let (mut answered, mut failed) = (0, 0);
        for seed in 0..1000 {
            let caller = Caller::with_egress(Arc::clone(&egress), false);
            let got = caller.get(&format!("http://{}/{seed}", server.address)).await;
            let record = &caller.requests()[0];
            match got {
                Ok(got) if got.end.is_none() => {
                    assert!(got.body.len() <= 1 << 20);
                    answered += 1;
                }
                Ok(GuestAnswer { end: Some(error), .. }) | Err(error) => {
                    assert!(
                        !matches!(error, Error::Timeout(_)),
                        "{seed}: it ends before the timeout"
                    );
                    assert!(record.failed.is_some(), "{seed}: {record:?}");
                    failed += 1;
                }
                Ok(_) => unreachable!("the arms above cover all cases"),
            }
        }
        assert!(answered > 50 && failed > 300, "{answered} answered, {failed} failed");
        // The host still works: it reads the next good answer.
        let good = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"hello"));
        let caller = Caller::new(super::settings(&[&good.address.to_string()]));
        assert_eq!(
            caller.get(&format!("http://{}/", good.address)).await.expect("it answers").text(),
            "hello"
        );
    });
}

#[test]
fn headers_of_requests_and_answers_are_bounded() {
    run(async {
        let server = Server::plain(|received, wire: &mut dyn Wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\n")?;
            match received.path() {
                "/long" => write!(wire, "x: {}\r\n", "x".repeat(200_000))?,
                "/many" => (0..2000).try_for_each(|number| write!(wire, "x-{number}: x\r\n"))?,
                "/endless" => loop {
                    wire.write_all(b"x: y\r\n")?;
                },
                _ => {}
            }
            wire.write_all(b"content-length: 0\r\n\r\n")
        });
        let caller = Caller::new(settings(&[&server.address.to_string()]));
        for path in ["long", "many", "endless"] {
            let got = caller.get(&format!("http://{}/{path}", server.address)).await;
            assert!(matches!(got, Err(Error::Headers)), "{path}: {got:?}");
        }
        let mut request = Request::get(format!("http://{}/", server.address));
        for number in 0..100 {
            request = request.header(format!("x-{number}"), "y".repeat(1000));
        }
        let got = caller.send(request.body(Full::default()).expect("it is valid")).await;
        assert!(matches!(got, Err(Error::RequestHeaders(_))), "{got:?}");
        assert_eq!(server.asked().len(), 3);
    });
}

#[test]
fn host_sets_target_and_length_of_a_request() {
    run(async {
        let server = Server::plain(|_, wire| answer(wire, "200 OK", &[], b""));
        let caller = Caller::new(settings(&[&server.address.to_string()]));
        let request = Request::post(format!("http://{}/a/../b?c=d#e", server.address))
            .header("host", "other.example.com")
            .header("content-length", "3")
            .header("expect", "100-continue")
            .header("te", "trailers");
        caller
            .send(request.body(Full::from("hello")).expect("it is valid"))
            .await
            .expect("it answers");
        let received = &server.asked()[0];
        let address = server.address.to_string();
        assert_eq!(
            (received.header("host"), received.header("content-length"), received.path()),
            (Some(&*address), Some("5"), "/b?c=d")
        );
        assert_eq!(
            (received.header("expect"), received.header("te"), received.body.as_slice()),
            (None, None, b"hello".as_slice())
        );
        assert!(received.header("user-agent").is_some_and(|agent| agent.starts_with("toolhold/")));
    });
}

#[test]
fn concurrent_requests_are_bounded() {
    run(async {
        let running = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (now, seen) = (Arc::clone(&running), Arc::clone(&most));
        let server = Server::plain(move |_, wire| {
            use std::sync::atomic::Ordering::SeqCst;
            seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::park_timeout(Duration::from_millis(20));
            now.fetch_sub(1, SeqCst);
            answer(wire, "200 OK", &[], b"hello")
        });
        let mut settings = settings(&[&server.address.to_string()]);
        settings.limits.concurrent = 2;
        let egress = Arc::new(Egress::new(settings));
        let url = format!("http://{}/", server.address);
        let callers: Vec<_> = (0..10)
            .map(|_| {
                let (egress, url) = (Arc::clone(&egress), url.clone());
                tokio::spawn(async move {
                    Caller::with_egress(egress, false).get(&url).await.map(|got| got.text())
                })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.expect("it ends").expect("it answers"), "hello");
        }
        assert_eq!(most.load(std::sync::atomic::Ordering::SeqCst), 2);
    });
}

#[test]
fn idle_connections_are_bounded() {
    run(async {
        let server = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"hello"));
        let port = server.port();
        let mut settings = settings(&[&format!("*.many.test:{port}")]);
        settings.limits.time = Duration::from_millis(500);
        settings.limits.requests = 1000;
        settings.network.resolver = Some(Arc::new(Loopback));
        let caller = Caller::new(settings);
        let mut failed = 0;
        for number in 0..132 {
            match caller.get(&format!("http://host-{number}.many.test:{port}/")).await {
                Ok(got) => assert_eq!(got.text(), "hello"),
                Err(error) => {
                    assert!(matches!(error, Error::Timeout(_) | Error::Busy), "{number}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(
            server.connections() <= 128 && failed >= 4,
            "{} connections, {failed} failed",
            server.connections()
        );
    });
}
