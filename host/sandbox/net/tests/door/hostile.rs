//! Servers that lead requests to places where they may not go, or never end.

use super::*;

/// The answer of a redirect.
fn redirect(to: String) -> Server {
    Server::plain(move |_, wire| answer(wire, "302 Found", &[("location", &to)], b""))
}

#[test]
fn redirect_to_a_private_address_makes_no_connection() {
    run(async {
        let victim = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"secret"));
        let port = victim.port();
        for to in [
            format!("http://127.0.0.1:{port}/"),
            format!("http://localhost:{port}/"),
            format!("http://0x7f.1:{port}/"),
            format!("//2130706433:{port}/"),
            format!("https://127.0.0.1:{port}/"),
            format!("https://[::ffff:127.0.0.1]:{port}/"),
            format!("https://[::1]:{port}/"),
            format!("https://inner.test:{port}/"),
            format!("https://localhost:{port}/"),
            format!("https://mixed.test:{port}/"),
            "https://169.254.169.254/latest/meta-data".to_owned(),
            "https://10.0.0.1/".to_owned(),
        ] {
            let server = redirect(to.clone());
            let network = Network {
                resolver: names(&[
                    ("inner.test", "127.0.0.1"),
                    ("mixed.test", "::ffff:10.0.0.1"),
                    ("localhost", "127.0.0.1"),
                ]),
                ..Network::default()
            };
            let (door, records) = door(network);
            let failed = body(&door, request(urls(&[&server])[0].as_str())).await.expect_err(&to);
            assert!(failed.is_refusal(), "{to}: {failed}");
            let last = records.all().pop().expect("it is recorded");
            assert!(last.refused && last.status.is_none() && last.hop == 1, "{to}: {last:?}");
        }
        assert_eq!(victim.connections(), 0);
    });
}

#[test]
fn connection_of_a_named_place_serves_no_redirect_to_it() {
    run(async {
        let authority = Authority::new();
        let config = authority.server(&["inner.test", "127.0.0.1"], &["http/1.1"], |_| {});
        let place = secure(config);
        let network = Network {
            authorities: vec![authority.file()],
            resolver: names(&[("inner.test", "127.0.0.1")]),
            ..Network::default()
        };
        let (door, _) = door(network);
        for host in ["inner.test", "127.0.0.1"] {
            let inner = format!("https://{host}:{}/", place.port());
            let server = redirect(inner.clone());
            // The connection is kept.
            assert!(body(&door, request(&inner)).await.is_ok());
            let (asked, connections) = (place.asked().len(), place.connections());
            let led = body(&door, request(urls(&[&server])[0].as_str())).await;
            assert!(led.as_ref().is_err_and(OutboundError::is_refusal), "{host}: {led:?}");
            assert_eq!((place.asked().len(), place.connections()), (asked, connections));
            assert!(body(&door, request(&inner)).await.is_ok());
            assert_eq!(place.connections(), connections, "the connection is used again");
        }
    });
}

#[test]
fn redirect_from_https_to_http_is_refused() {
    run(async {
        let authority = Authority::new();
        let plain = Server::plain(|_, wire| answer(wire, "200 OK", &[], b""));
        let to = format!("http://127.0.0.1:{}/", plain.port());
        let server = Server::tls(authority.server(&["127.0.0.1"], &[], |_| {}), move |_, wire| {
            answer(wire, "302 Found", &[("location", &to)], b"")
        });
        let (door, _) = door(Network { authorities: vec![authority.file()], ..Network::default() });
        let url: Url = format!("https://127.0.0.1:{}/", server.port()).parse().expect("is a URL");
        let named = urls(&[&plain]);
        // Even where the operator named the other place too.
        let request =
            Request::chosen_by_server("a test", Method::GET, url.as_str(), &[&url, &named[0]]);
        let failed = body(&door, request.expect("is valid")).await.expect_err("refused");
        assert!(failed.to_string().contains("from https"), "{failed}");
        assert_eq!((server.asked().len(), plain.connections()), (1, 0));
    });
}

#[test]
fn redirects_end() {
    run(async {
        let server = Server::plain(|_, wire| answer(wire, "302 Found", &[("location", "/")], b""));
        let (door, records) = door(Network::default());
        let failed = body(&door, request(urls(&[&server])[0].as_str())).await.expect_err("it ends");
        assert_eq!(failed, OutboundError::Redirects(toolhold_net::requests::MAX_REDIRECTS));
        assert_eq!(server.asked().len(), toolhold_net::requests::MAX_REDIRECTS + 1);
        assert_eq!(records.all().len(), toolhold_net::requests::MAX_REDIRECTS + 1);
        for to in ["", "http://", "file:///etc/passwd", "http://a:b@127.0.0.1/", "http://x\\y/"] {
            let server = redirect(to.to_owned());
            let failed = body(&door, request(urls(&[&server])[0].as_str())).await;
            assert!(failed.is_err(), "{to}: {failed:?}");
        }
    });
}

#[test]
fn answers_that_never_end_are_ended() {
    run(async {
        // A byte now and then: never idle, and never done.
        let dribbling = Server::plain(|_, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")?;
            loop {
                std::thread::park_timeout(Duration::from_millis(50));
                wire.write_all(b"x")?;
                wire.flush()?;
            }
        });
        let silent = Server::plain(|_, wire| wire.read(&mut [0]).map(drop));
        let stalled = Server::plain(|_, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx")?;
            wire.flush()?;
            wire.read(&mut [0]).map(drop)
        });
        let (door, _) = door(Network::default());
        let got = |server: &Server| {
            let request = request(urls(&[server])[0].as_str()).limits(limits(1 << 20));
            let door = door.clone();
            async move { body(&door, request).await }
        };
        let [one, two, three] =
            [&dribbling, &silent, &stalled].map(|server| tokio::spawn(got(server)));
        let ended = async |task: tokio::task::JoinHandle<_>| task.await.expect("nobody panicked");
        let (one, two, three) = (ended(one).await, ended(two).await, ended(three).await);
        assert!(matches!(one, Err(OutboundError::Time(..))), "{one:?}");
        assert!(matches!(two, Err(OutboundError::Idle(..))), "{two:?}");
        assert!(matches!(three, Err(OutboundError::Idle(..))), "{three:?}");
    });
}

#[test]
fn answers_that_are_too_large_are_ended_early() {
    run(async {
        let endless = Server::plain(|_, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            loop {
                wire.write_all(b"4000\r\n")?;
                wire.write_all(&[b'x'; 0x4000])?;
                wire.write_all(b"\r\n")?;
            }
        });
        let stated = Server::plain(|_, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")?;
            wire.flush()?;
            wire.read(&mut [0]).map(drop)
        });
        let short = Server::plain(|_, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nxx")?;
            Err(io::Error::other("the connection ends"))
        });
        let bomb = Server::plain(|_, wire| {
            answer(wire, "200 OK", &[("content-encoding", "gzip")], &[0x1f, 0x8b, 8, 0])
        });
        let headers = Server::plain(|_, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\n")?;
            loop {
                wire.write_all(b"x-many: y\r\n")?;
            }
        });
        let (door, records) = door(Network::default());
        let got = |server: &Server| {
            let request = request(urls(&[server])[0].as_str()).limits(limits(100_000));
            let door = door.clone();
            async move { body(&door, request).await.expect_err("it fails") }
        };
        assert!(matches!(got(&endless).await, OutboundError::TooLarge(_, 100_000)));
        let came = records.all().pop().expect("it is recorded").bytes;
        assert!((100_000..1_000_000).contains(&came), "{came} bytes came");
        // Before anything is waited for.
        let failed = got(&stated).await;
        assert!(matches!(failed, OutboundError::TooLarge(..)), "{failed}");
        let failed = got(&short).await;
        assert!(matches!(failed, OutboundError::Incomplete(..)), "{failed}");
        let failed = got(&bomb).await;
        assert!(matches!(&failed, OutboundError::Encoded(_, gzip) if gzip == "gzip"), "{failed}");
        let failed = got(&headers).await;
        assert!(matches!(failed, OutboundError::Connection(..)), "{failed}");
        assert!(records.all().iter().all(|record| record.failed.is_some()));
    });
}
