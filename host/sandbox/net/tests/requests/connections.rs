//! Tests of connections: only checked addresses are reached, also through names that move and
//! proxies.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use toolhold_net::{Egress, Error, Limits, Network, Proxy};

use crate::server::{Asked, Authority, Server, Wire, answer};
use crate::{Caller, Names, NoAnswer, grant, run, settings};

/// The addresses of names for this machine.
const LOOPBACK: &[&[&str]] = &[&["127.0.0.1"]];

fn hello(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    answer(wire, "200 OK", &[("content-type", "text/plain")], b"hello")
}

#[test]
fn no_connection_without_a_grant() {
    run(async {
        let server = Server::plain(hello);
        let port = server.port();
        let other = format!("127.0.0.1:{}", if port == 1 { 2 } else { 1 });
        for private in [&[][..], &[other.as_str()]] {
            let caller = Caller::new(settings(private));
            for host in [
                "127.0.0.1",
                "localhost",
                "127.1",
                "2130706433",
                "0x7f000001",
                "[::1]",
                "[::ffff:7f00:1]",
                "0.0.0.0",
                "127.0.0.1.",
            ] {
                for scheme in ["http", "https"] {
                    let got = caller.get(&format!("{scheme}://{host}:{port}/")).await;
                    assert!(
                        matches!(got, Err(Error::Refused(_) | Error::Address(_) | Error::Url(_))),
                        "{host}: {got:?}"
                    );
                }
            }
        }
        assert_eq!(server.connections(), 0);
        let caller = Caller::new(settings(&[&server.address.to_string()]));
        let got = caller.get(&format!("http://{}/", server.address)).await.expect("it is granted");
        assert_eq!((got.status, got.text()), (StatusCode::OK, "hello".to_owned()));
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn name_that_moves_to_a_private_address_is_not_reached() {
    run(async {
        let server = Server::plain(hello);
        let port = server.port();
        let mut settings = settings(&[]);
        settings.reach.https_only.value = false;
        grant(&mut settings, &format!("*.example.com:{port}"));
        // The first lookup of `moves` gives a public address, the next a private one. A second
        // lookup between the check and the connection would connect to the private one.
        settings.network.resolver = Some(Names::with_names(&[
            ("moves.example.com", &[&["192.0.2.1"], &["127.0.0.1"]]),
            ("mixed.example.com", &[&["93.184.216.34", "127.0.0.1"]]),
            ("mapped.example.com", &[&["::ffff:127.0.0.1"]]),
            ("private.example.com", &[&["10.0.0.1"]]),
            ("metadata.example.com", &[&["169.254.169.254"]]),
            ("none.example.com", &[&[]]),
        ]));
        let caller = Caller::new(settings);
        for name in ["moves", "moves", "mixed", "mapped", "private", "metadata"] {
            let got = caller.get(&format!("http://{name}.example.com:{port}/")).await;
            assert!(matches!(got, Err(Error::Address(_))), "{name}: {got:?}");
        }
        for name in ["none", "unknown"] {
            let got = caller.get(&format!("http://{name}.example.com:{port}/")).await;
            assert!(matches!(got, Err(Error::Name(_))), "{name}: {got:?}");
        }
        assert_eq!(server.connections(), 0);
    });
}

#[test]
fn connection_goes_to_the_address_that_was_checked() {
    // On one thread, so that all ready tasks have run when this task continues after a yield.
    let reactor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a reactor starts");
    reactor.block_on(async {
        let server = Server::plain(hello);
        let port = server.port();
        let mut settings = settings(&[&format!("app.internal.example.com:{port}")]);
        // The first lookup gives the granted address. A second one would give an address that no
        // setting allows.
        settings.network.resolver = Some(Names::with_names(&[(
            "app.internal.example.com",
            &[&["127.0.0.1"], &["169.254.169.254"], &["127.0.0.1"]],
        )]));
        let egress = Arc::new(Egress::new(settings));
        let caller = Caller::with_egress(Arc::clone(&egress), false);
        let url = format!("http://app.internal.example.com:{port}/");
        assert_eq!(caller.get(&url).await.expect("it is granted").text(), "hello");
        // The connection becomes idle and serves the next request, still to the same address.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        assert_eq!(caller.get(&url).await.expect("it is granted").text(), "hello");
        assert_eq!(server.connections(), 1);
        assert_eq!(caller.requests()[0].address, Some("127.0.0.1".parse().expect("it is valid")));
        // Another client has to connect, and its lookup gives the address that isn't allowed.
        let mut changed = egress.settings().clone();
        changed.limits.requests = 5;
        let got = Caller::new(changed).get(&url).await;
        assert!(matches!(got, Err(Error::Address(_))), "{got:?}");
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn requests_to_own_listening_addresses_are_refused() {
    run(async {
        let server = Server::plain(hello);
        for listening in [server.address, ([0, 0, 0, 0], server.port()).into()] {
            let mut settings = settings(&["127.0.0.0/8", "localhost"]);
            settings.network.listening = [listening].into();
            let caller = Caller::new(settings);
            for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
                let got = caller.get(&format!("http://{host}:{}/", server.port())).await;
                assert!(matches!(got, Err(Error::Address(_))), "{host}: {got:?}");
            }
        }
        assert_eq!(server.connections(), 0);
    });
}

#[test]
fn tls_checks_name_and_authority() {
    run(async {
        let authority = Authority::new();
        let names = ["good.test", "wrong.test", "old.test"];
        let good = Server::tls(authority.server(&["good.test"], &["http/1.1"], |_| {}), hello);
        let untrusted = Server::tls(Authority::new().server(&["good.test"], &[], |_| {}), hello);
        let old = Server::tls(
            authority.server(&["old.test"], &[], |params| {
                params.not_after = rcgen::date_time_ymd(2001, 1, 1);
            }),
            hello,
        );
        let plain = Server::plain(|_, wire| wire.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
        let servers = [&good, &untrusted, &old, &plain];
        let granted: Vec<String> = names
            .iter()
            .flat_map(|name| servers.map(|server| format!("{name}:{}", server.port())))
            .collect();
        let mut settings = settings(&granted.iter().map(String::as_str).collect::<Vec<_>>());
        settings.network = Network {
            authorities: vec![authority.file()],
            resolver: Some(Names::with_names(&names.map(|name| (name, LOOPBACK)))),
            ..Network::default()
        };
        let caller = Caller::new(settings.clone());
        let get = |name: &str, server: &Server| {
            let (caller, url) = (&caller, format!("https://{name}:{}/", server.port()));
            async move { caller.get(&url).await }
        };
        assert_eq!(get("good.test", &good).await.expect("it is trusted").text(), "hello");
        for (name, server) in [("wrong.test", &good), ("good.test", &untrusted), ("old.test", &old)]
        {
            let got = get(name, server).await;
            assert!(matches!(got, Err(Error::Certificate(_))), "{name}: {got:?}");
            assert!(
                server.asked().iter().all(|received| received
                    .header("host")
                    .is_some_and(|host| !host.starts_with(name))),
                "{name}"
            );
        }
        let got = get("good.test", &plain).await;
        assert!(
            matches!(got, Err(Error::Tls(_) | Error::Connection(_) | Error::Incomplete)),
            "{got:?}"
        );

        // Without the authority, its certificates aren't trusted. With an authority file that is
        // missing, no request is sent.
        settings.network.trust = Arc::default();
        settings.network.authorities = Vec::new();
        let got =
            Caller::new(settings.clone()).get(&format!("https://good.test:{}/", good.port())).await;
        assert!(matches!(got, Err(Error::Certificate(_))), "{got:?}");
        settings.network.trust = Arc::default();
        settings.network.authorities = vec!["/nowhere/ca.pem".into()];
        let got = Caller::new(settings).get(&format!("https://good.test:{}/", good.port())).await;
        assert!(
            matches!(&got, Err(Error::Setup(reason)) if reason.contains("/nowhere/ca.pem")),
            "{got:?}"
        );
    });
}

#[test]
fn http_2_is_used_if_possible_and_shares_one_connection() {
    run(async {
        let authority = Authority::new();
        let tls = tokio_rustls::TlsAcceptor::from(authority.server(
            &["two.test"],
            &["h2", "http/1.1"],
            |_| {},
        ));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let connections = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let serving =
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let tls = tls.clone();
                    tokio::spawn(async move {
                        let stream = TokioIo::new(tls.accept(stream).await.expect("it speaks TLS"));
                        let service =
                            hyper::service::service_fn(
                                |request: Request<hyper::body::Incoming>| async move {
                                    Ok::<_, std::convert::Infallible>(http::Response::new(Full::<
                                        bytes::Bytes,
                                    >::from(
                                        format!("{:?}", request.version()),
                                    )))
                                },
                            );
                        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(stream, service)
                            .await;
                    });
                }
            });
        let mut settings = settings(&[&format!("two.test:{port}")]);
        settings.network.authorities = vec![authority.file()];
        settings.network.resolver = Some(Names::with_names(&[("two.test", LOOPBACK)]));
        let caller = Caller::new(settings);
        for _ in 0..5 {
            let got = caller.get(&format!("https://two.test:{port}/")).await.expect("it answers");
            assert_eq!(got.text(), "HTTP/2.0");
        }
        assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 1);
        serving.abort();
    });
}

/// A proxy that tunnels every request to loopback, and records the requests.
fn proxy(to: u16) -> Server {
    Server::plain(move |received, wire| {
        if !received.head.starts_with("CONNECT ") {
            return answer(wire, "400 Bad Request", &[], b"");
        }
        if received.path().starts_with("refused") {
            return answer(wire, "403 Forbidden", &[], b"");
        }
        wire.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let mut server = std::net::TcpStream::connect(("127.0.0.1", to))?;
        // A plain HTTP request is one exchange in each direction.
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            wire.read_exact(&mut byte)?;
            request.push(byte[0]);
        }
        std::io::Write::write_all(&mut server, &request)?;
        server.shutdown(std::net::Shutdown::Write)?;
        let mut answer = Vec::new();
        std::io::Read::read_to_end(&mut server, &mut answer)?;
        wire.write_all(&answer)?;
        Err(std::io::Error::other("the exchange has ended"))
    })
}

#[test]
fn proxy_gets_the_address_that_was_checked() {
    run(async {
        let server =
            Server::plain(|_, wire| answer(wire, "200 OK", &[("connection", "close")], b"hello"));
        let proxy = proxy(server.port());
        let mut settings = settings(&[]);
        settings.reach.https_only.value = false;
        grant(&mut settings, "*.example.com");
        settings.network.resolver = Some(Names::with_names(&[
            ("public.example.com", &[&["93.184.216.34"]]),
            ("private.example.com", &[&["10.0.0.1"]]),
        ]));
        let through = |except: &str, resolves| Proxy {
            url: format!("http://u:p@{}", proxy.address),
            except: except.to_owned(),
            resolves,
        };
        settings.network.proxy = Some(through("", false));
        let caller = Caller::new(settings.clone());
        assert_eq!(
            caller
                .get("http://public.example.com/")
                .await
                .expect("the proxy lets it through")
                .text(),
            "hello"
        );
        let received = &proxy.asked()[0];
        assert_eq!(
            (received.path(), received.header("proxy-authorization")),
            ("93.184.216.34:80", Some("Basic dTpw"))
        );
        assert_eq!(server.asked()[0].header("host"), Some("public.example.com"));
        assert_eq!(server.asked()[0].header("proxy-authorization"), None);
        let got = caller.get("http://private.example.com/").await;
        assert!(matches!(got, Err(Error::Address(_))), "{got:?}");
        let got = caller.get("http://169.254.169.254/").await;
        assert!(matches!(got, Err(Error::Refused(_) | Error::Address(_))), "{got:?}");
        assert_eq!(proxy.asked().len(), 1);

        // If the proxy resolves names, Toolhold doesn't; literal addresses are still checked.
        settings.network.proxy = Some(through("", true));
        let caller = Caller::new(settings.clone());
        caller.get("http://unknown.example.com/").await.expect("the proxy knows it");
        assert_eq!(proxy.asked()[1].path(), "unknown.example.com:80");
        let got = caller.get("http://127.0.0.1/").await;
        assert!(matches!(got, Err(Error::Refused(_) | Error::Address(_))), "{got:?}");
        let got = caller.get("http://refused.example.com/").await;
        assert!(matches!(got, Err(Error::Proxy(_))), "{got:?}");
        assert_eq!(proxy.asked().len(), 3);

        // With a proxy of another kind, requests fail; they don't bypass the proxy.
        for scheme in ["https", "socks5", "socks5h"] {
            let url = format!("{scheme}://{}", proxy.address);
            settings.network.proxy = Some(Proxy { url, except: String::new(), resolves: false });
            let got = Caller::new(settings.clone()).get("http://public.example.com/").await;
            assert!(matches!(got, Err(Error::Setup(_))), "{scheme}: {got:?}");
        }
        assert_eq!((proxy.asked().len(), proxy.connections()), (3, 3));

        // Requests to this machine don't go through the proxy.
        let mut granted = settings.clone();
        granted.reach.private.push(crate::placed(
            toolhold_policy::egress::PrivateHosts::new(&server.address.to_string())
                .expect("it is valid"),
        ));
        granted.network.proxy = Some(through("", true));
        assert_eq!(
            Caller::new(granted)
                .get(&format!("http://{}/", server.address))
                .await
                .expect("it is granted")
                .text(),
            "hello"
        );
        assert_eq!(proxy.connections(), 3);

        // Hosts in `except` are reached directly, under the same rules.
        settings.network.proxy = Some(through("example.com", true));
        let got = Caller::new(settings).get("http://private.example.com/").await;
        assert!(matches!(got, Err(Error::Address(_))), "{got:?}");
        assert_eq!(proxy.asked().len(), 3);
    });
}

#[test]
fn silent_servers_and_resolvers_time_out() {
    run(async {
        // It accepts connections, and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = silent.local_addr().expect("it has an address").to_string();
        let mut settings = settings(&[&address, "slow.test"]);
        settings.limits = Limits { time: Duration::from_millis(300), ..settings.limits };
        settings.network.resolver = Some(Arc::new(NoAnswer));
        let caller = Caller::new(settings);
        let got = caller.get(&format!("http://{address}/")).await;
        assert!(matches!(got, Err(Error::Timeout(_))), "{got:?}");
        let got = caller.get("https://slow.test/").await;
        assert!(matches!(got, Err(Error::Timeout(_))), "{got:?}");
        let port = silent.local_addr().expect("it has an address").port();
        drop(silent);
        let got = Caller::new(super::settings(&[&address]))
            .get(&format!("http://127.0.0.1:{port}/"))
            .await;
        assert!(matches!(got, Err(Error::ConnectionRefused)), "{got:?}");
    });
}

#[test]
fn reading_calls_use_get_and_requests_of_a_call_are_bounded() {
    run(async {
        let server = Server::plain(hello);
        let url = format!("http://{}/", server.address);
        let mut settings = settings(&[&server.address.to_string()]);
        let egress = Arc::new(Egress::new(settings.clone()));
        let reading = Caller::with_egress(Arc::clone(&egress), true);
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "QUERY"] {
            let got = reading
                .send(
                    Request::builder()
                        .method(method)
                        .uri(&url)
                        .body(Full::from("x"))
                        .expect("it is valid"),
                )
                .await;
            assert!(matches!(got, Err(Error::Refused(_))), "{method}: {got:?}");
        }
        for name in ["x-http-method-override", "X-Method-Override", "x-http-method"] {
            let got = reading
                .send(
                    Request::get(&url)
                        .header(name, "DELETE")
                        .body(Full::default())
                        .expect("it is valid"),
                )
                .await;
            assert!(matches!(got, Err(Error::Refused(_))), "{name}: {got:?}");
        }
        assert_eq!(server.connections(), 0);
        settings.limits.requests = 3;
        let acting = Caller::with_egress(Arc::new(Egress::new(settings)), false);
        for method in ["CONNECT", "TRACE"] {
            let got = acting
                .send(
                    Request::builder()
                        .method(method)
                        .uri(&url)
                        .body(Full::default())
                        .expect("it is valid"),
                )
                .await;
            assert!(matches!(got, Err(Error::Refused(_))), "{method}: {got:?}");
        }
        acting
            .send(Request::post(&url).body(Full::from("x")).expect("it is valid"))
            .await
            .expect("it may act");
        assert_eq!(server.asked()[0].body, b"x");
        let got = acting.get(&url).await;
        assert!(matches!(got, Err(Error::Requests(3))), "{got:?}");
        assert_eq!(acting.requests().len(), 4);
    });
}
