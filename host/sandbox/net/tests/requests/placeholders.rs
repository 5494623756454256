//! Secrets of programs, and TLS connections whose requests are read.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConnection, StreamOwned};
use toolhold_net::{Secret, SecretSource, SecretValue};
use toolhold_policy::egress::{PathPattern, Placement, SecretHost, SecretRule};

use super::programs::{
    Log, Person, Programs, client_config, granting, server_name, tls, waits_until,
};
use super::server::{Asked, Authority, Server, Wire, answer};
use super::*;

const SECRET: &str = "value+of/the&secret=42";

/// A server of TLS, and programs that reach it as `api.test` and `other.test`. The secret is for
/// `api.test`.
struct Scene {
    authority: Authority,
    server: Server,
    programs: Programs,
}

impl Scene {
    fn new(
        answer: impl Fn(&Asked, &mut dyn Wire) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new();
        let names = ["api.test", "other.test"];
        let server = Server::tls(authority.server(&names, &[], |_| {}), answer);
        let port = server.port();
        let hosts = names.map(|name| format!("https://{name}:{port}"));
        let mut settings = granting(&hosts, Some(&authority));
        settings.secrets = vec![secret(&format!("api.test:{port}"))];
        Self { authority, server, programs: Programs::with_settings(settings) }
    }

    fn placeholder(&self) -> String {
        let variables = self.programs.access.variables().expect("variables");
        let [(name, placeholder)] = &variables[..] else { panic!("{variables:?}") };
        assert_eq!(name, "GH_TOKEN");
        placeholder.clone()
    }

    /// Connects as a program that trusts the certificates in its sandbox.
    fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        trusting(&self.programs, "api.test", self.server.port())
    }

    fn origin(&self) -> String {
        format!("api.test:{}", self.server.port())
    }

    /// Sends a request with headers to `api.test`, and returns the whole answer.
    fn ask(&self, path: &str, headers: &str) -> String {
        exchange(
            self.connect(),
            &format!(
                "GET {path} HTTP/1.1\r\nhost: {}\r\n{headers}connection: close\r\n\r\n",
                self.origin()
            ),
        )
    }
}

fn secret(host: &str) -> Secret {
    let rule = SecretRule {
        name: "github".to_owned(),
        hosts: vec![SecretHost::new(host).expect("it is valid")],
        methods: Vec::new(),
        paths: Vec::new(),
        placement: Placement::Placeholder { variable: "GH_TOKEN".to_owned() },
    };
    let value = Some(Arc::new(SecretValue::new(SECRET.to_owned())));
    Secret { rule, source: SecretSource::Variable { name: "TOKEN".to_owned(), value } }
}

fn trusting(
    programs: &Programs,
    name: &str,
    port: u16,
) -> StreamOwned<ClientConnection, TcpStream> {
    let certificate = programs.access.authority().expect("an authority").expect("it is needed");
    let stream = programs.connect(name, port).expect("the host is granted");
    let config = Arc::new(client_config(&certificate));
    let client = ClientConnection::new(config, server_name(name)).expect("a client");
    StreamOwned::new(client, stream)
}

fn exchange(mut stream: impl io::Read + io::Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).and_then(|()| stream.flush()).expect("it is sent");
    let mut text = Vec::new();
    // A peer may close a connection without the end of TLS.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Says ok, and closes the connection.
fn ok(_: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    answer(wire, "200 OK", &[("connection", "close")], b"ok")?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

#[test]
fn secret_takes_the_place_of_its_placeholder_in_headers_of_its_host_only() {
    let scene = Scene::new(ok);
    let placeholder = scene.placeholder();
    let basic = STANDARD.encode(format!("me:{placeholder}"));
    let headers = format!("authorization: Basic {basic}\r\nx-token: {placeholder}\r\n");
    let text = scene.ask(&format!("/a?token={placeholder}"), &headers);
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\nok\r\n"), "{text}");
    let [asked] = &scene.server.asked()[..] else { panic!("{:?}", scene.server.asked()) };
    let expected = format!("Basic {}", STANDARD.encode(format!("me:{SECRET}")));
    assert_eq!(asked.header("authorization"), Some(&*expected));
    assert_eq!(asked.header("x-token"), Some(SECRET));
    assert_eq!(asked.path(), format!("/a?token={placeholder}"));
    let [record] = &scene.programs.records()[..] else { panic!("{:?}", scene.programs.records()) };
    assert_eq!(record.secrets, ["github"]);
    assert!(record.url.starts_with(&format!("https://{}/a", scene.origin())), "{record:?}");

    // TLS to another host is passed on unread, with the other host's own certificate.
    let stream = scene.programs.connect("other.test", scene.server.port()).expect("it is granted");
    let request = format!(
        "GET /b HTTP/1.1\r\nhost: other.test\r\nx-token: {placeholder}\r\nconnection: close\r\n\r\n"
    );
    exchange(tls(stream, "other.test", &scene.authority), &request);
    assert_eq!(scene.server.asked()[1].header("x-token"), Some(&*placeholder));
}

#[test]
fn secret_that_a_job_has_sent_is_named_in_the_log() {
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["api.test"], &[], |_| {}), ok);
    let port = server.port();
    let log = Log::new(None);
    let mut settings = granting(&[format!("https://api.test:{port}")], Some(&authority));
    settings.secrets = vec![secret(&format!("api.test:{port}"))];
    settings.network.log = Some(Arc::clone(&log) as _);
    // The programs of a job have no report.
    let programs = Programs::with_person(settings, None, 2, None);
    let placeholder = programs.access.variables().expect("variables")[0].1.clone();
    let cases = [(format!("x-token: {placeholder}\r\n"), vec!["github"]), (String::new(), vec![])];
    for (index, (header, secrets)) in cases.iter().enumerate() {
        let request =
            format!("GET / HTTP/1.1\r\nhost: api.test:{port}\r\n{header}connection: close\r\n\r\n");
        exchange(trusting(&programs, "api.test", port), &request);
        waits_until(|| log.records().len() == index + 1);
        let record = &log.records()[index];
        assert_eq!((record.status, &record.failed), (Some(200), &None), "{record:?}");
        assert!(record.secrets == *secrets, "{record:?}");
    }
}

#[test]
fn placeholder_for_another_host_stays_and_is_reported() {
    let server = Server::plain(ok);
    let port = server.port();
    let hosts = ["api.test", "other.test"].map(|name| format!("http://{name}:{port}"));
    let mut settings = granting(&hosts, None);
    settings.secrets = vec![secret(&format!("api.test:{port}"))];
    let programs = Programs::with_settings(settings);
    let variables = programs.access.variables().expect("variables");
    let placeholder = &variables[0].1;
    for (name, why) in [("other.test", "doesn't have the host"), ("api.test", "no TLS")] {
        let stream = programs.connect(name, port).expect("it is granted");
        let request = format!(
            "GET / HTTP/1.1\r\nhost: {name}:{port}\r\nx-token: {placeholder}\r\nconnection: close\r\n\r\n"
        );
        assert!(exchange(stream, &request).ends_with("ok"));
        let notices = programs.report.entries().unsaid.clone();
        let notice = notices.last().expect("a notice");
        assert!(notice.contains("`github` was not sent") && notice.contains(why), "{notices:?}");
    }
    for asked in server.asked() {
        assert_eq!(asked.header("x-token"), Some(&**placeholder), "{asked:?}");
        assert!(!format!("{asked:?}").contains(SECRET));
    }
}

#[test]
fn echoed_secret_is_redacted_also_in_two_pieces() {
    let scene = Scene::new(|asked, wire| {
        let token = asked.header("x-token").unwrap_or_default().to_owned();
        write!(
            wire,
            "HTTP/1.1 200 {token}\r\nx-echo: {token}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        )?;
        let (one, other) = token.split_at(token.len() / 2);
        for piece in ["before ", one, other, " after"] {
            write!(wire, "{:x}\r\n{piece}\r\n", piece.len())?;
            wire.flush()?;
        }
        wire.write_all(b"0\r\n\r\n")
    });
    let text = scene.ask("/", &format!("x-token: {}\r\n", scene.placeholder()));
    assert_eq!(scene.server.asked()[0].header("x-token"), Some(SECRET));
    assert_eq!(scene.server.asked()[0].header("accept-encoding"), Some("identity"));
    assert!(text.contains("before ") && text.contains(" after"), "{text}");
    assert!(
        text.matches("[REDACTED:github]").count() == 2 && !text.contains("secret=42"),
        "{text}"
    );
}

#[test]
fn searched_response_that_breaks_off_is_recorded_as_a_failure() {
    let scene = Scene::new(|_, wire| {
        write!(wire, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
        Err(io::ErrorKind::ConnectionAborted.into())
    });
    scene.ask("/", &format!("x-token: {}\r\n", scene.placeholder()));
    waits_until(|| scene.programs.records().iter().all(|record| record.failed.is_some()));
    let [record] = &scene.programs.records()[..] else { panic!("{:?}", scene.programs.records()) };
    assert_eq!((record.status, record.refused), (Some(200), false), "{record:?}");
}

#[test]
fn secret_is_redacted_at_an_approved_port_of_its_host_too() {
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["api.test"], &[], |_| {}), ok);
    let port = server.port();
    let mut settings = granting(&[format!("https://api.test:{port}")], Some(&authority));
    settings.secrets = vec![secret(&format!("api.test:{port}"))];
    let person = Person::new(true, 1);
    let programs = Programs::with_person(settings, Some(Arc::default()), 2, Some(&person));
    let placeholder = programs.access.variables().expect("variables")[0].1.clone();
    let request = |port: u16| {
        format!(
            "GET / HTTP/1.1\r\nhost: api.test:{port}\r\nx-token: {placeholder}\r\nconnection: close\r\n\r\n"
        )
    };
    exchange(trusting(&programs, "api.test", port), &request(port));
    assert_eq!(server.asked()[0].header("x-token"), Some(SECRET));

    let other = Server::plain(|_: &Asked, wire: &mut dyn Wire| {
        answer(wire, "200 OK", &[], SECRET.as_bytes())
    });
    let stream = programs.connect("api.test", other.port()).expect("it waits for the person");
    let text = exchange(stream, &request(other.port()));
    assert!(text.contains("[REDACTED:github]") && !text.contains("secret=42"), "{text}");
}

#[test]
fn long_stream_arrives_before_its_end() {
    let scene = Scene::new(|_, wire| {
        // Bytes that could be the start of an escaped secret are held back for a short time only.
        write!(wire, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfirst \\u00")?;
        wire.flush()?;
        // The server waits until the program has closed the connection.
        wire.read_exact(&mut [0])
    });
    scene.ask_start(&format!("x-token: {}\r\n", scene.placeholder()), "\\u00");
}

impl Scene {
    /// Sends a request, and waits for the start of the answer's body.
    fn ask_start(&self, headers: &str, expected: &str) {
        let mut stream = self.connect();
        let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", self.origin());
        stream.write_all(request.as_bytes()).and_then(|()| stream.flush()).expect("it is sent");
        let mut text = Vec::new();
        let mut piece = [0; 1024];
        while !String::from_utf8_lossy(&text).contains(expected) {
            let length = stream.read(&mut piece).expect("more of the answer");
            assert!(length > 0, "{}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&piece[..length]);
        }
    }
}

#[test]
fn other_server_name_and_other_host_are_refused() {
    let scene = Scene::new(ok);
    let certificate = scene.programs.access.authority().expect("an authority").expect("a text");
    let stream = scene.programs.connect("api.test", scene.server.port()).expect("it is granted");
    let config = Arc::new(client_config(&certificate));
    let client = ClientConnection::new(config, server_name("other.test")).expect("a client");
    let mut stream = StreamOwned::new(client, stream);
    assert!(stream.write_all(b"GET / HTTP/1.1\r\nhost: other.test\r\n\r\n").is_err());

    let placeholder = scene.placeholder();
    let request = format!(
        "GET / HTTP/1.1\r\nhost: other.test:{}\r\nx-token: {placeholder}\r\n\r\n",
        scene.server.port()
    );
    let text = exchange(scene.connect(), &request);
    assert!(text.starts_with("HTTP/1.1 502") && text.contains("another host"), "{text}");
    let origin = scene.origin();
    for line in ["OPTIONS *", "GET @other.test/", "GET https://other.test/", "CONNECT other.test:1"]
    {
        let request =
            format!("{line} HTTP/1.1\r\nhost: {origin}\r\nx-token: {placeholder}\r\n\r\n");
        let text = exchange(scene.connect(), &request);
        assert!(!text.contains(" 200 "), "{line}: {text}");
    }
    assert_eq!(scene.server.connections(), 0);
}

#[test]
fn http_2_carries_the_secret_for_the_same_authority_only() {
    let scene = Scene::new(ok);
    let certificate = scene.programs.access.authority().expect("an authority").expect("a text");
    let mut config = client_config(&certificate);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = scene.programs.connect("api.test", scene.server.port()).expect("it is granted");
    stream.set_nonblocking(true).expect("it doesn't block");
    let (origin, placeholder) = (scene.origin(), scene.placeholder());
    run(async {
        let stream = tokio::net::TcpStream::from_std(stream).expect("a stream");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect(server_name("api.test"), stream).await.expect("TLS");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.expect("HTTP/2");
        tokio::spawn(connection);
        let urls = [
            (format!("https://{origin}/"), 200),
            ("https://other.test/".to_owned(), 502),
            (format!("https://{origin}/"), 200),
        ];
        for (url, status) in urls {
            let request = Request::get(&url)
                .header("x-token", &placeholder)
                .body(Empty::<Bytes>::new())
                .expect("a request");
            let response = sender.send_request(request).await.expect("a response");
            assert_eq!(response.status().as_u16(), status, "{url}");
        }
        // Behind the origin, this path would name another host.
        let builder = http::Uri::builder().scheme("https").authority(&*origin);
        if let Ok(uri) = builder.path_and_query("@other.test/").build() {
            let request = Request::get(uri)
                .header("x-token", &placeholder)
                .body(Empty::<Bytes>::new())
                .expect("a request");
            if let Ok(response) = sender.send_request(request).await {
                assert_eq!(response.status().as_u16(), 502);
            }
        }
    });
    let asked = scene.server.asked();
    assert!(asked.len() == 2, "{asked:?}");
    assert!(asked.iter().all(|asked| asked.header("x-token") == Some(SECRET)), "{asked:?}");
}

#[test]
fn methods_and_paths_are_checked_in_tls() {
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["api.test"], &[], |_| {}), ok);
    let mut settings = granting(&[format!("https://api.test:{}", server.port())], Some(&authority));
    let grant = &mut settings.reach.grants[0].value;
    grant.methods = vec!["GET".to_owned()];
    grant.paths = vec![PathPattern::new("/repos/me/**").expect("a pattern")];
    let programs = Programs::with_settings(settings);
    assert!(programs.access.variables().expect("variables").is_empty());
    for (line, status) in [
        ("GET /repos/me/x?y=z", "200"),
        ("POST /repos/me/x", "403"),
        ("GET /repos/you/x", "403"),
        ("GET /repos/me/../you", "403"),
        ("GET /repos/me/%2e%2e/you", "403"),
    ] {
        let stream = trusting(&programs, "api.test", server.port());
        let port = server.port();
        let request =
            format!("{line} HTTP/1.1\r\nhost: api.test:{port}\r\nconnection: close\r\n\r\n");
        let text = exchange(stream, &request);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {text}");
        assert!(status == "200" || text.contains("hosts, which has this host"), "{line}: {text}");
    }
    assert_eq!(server.asked().len(), 1, "{:?}", server.asked());
}

#[test]
fn program_with_its_own_certificates_learns_the_reason() {
    let scene = Scene::new(ok);
    let stream = scene.programs.connect("api.test", scene.server.port()).expect("it is granted");
    let mut stream = tls(stream, "api.test", &scene.authority);
    let request = "GET / HTTP/1.1\r\nhost: api.test\r\n\r\n";
    assert!(stream.write_all(request.as_bytes()).and_then(|()| stream.flush()).is_err());
    waits_until(|| scene.programs.records().len() == 1);
    let failed = scene.programs.records()[0].failed.clone().unwrap_or_default();
    assert!(failed.contains("`curl` refused Toolhold's certificate for api.test"), "{failed}");
    let notices = scene.programs.report.entries().unsaid.clone();
    assert!(notices[0].contains("[plugins.tester.secrets.github]"), "{notices:?}");
    assert_eq!(scene.server.connections(), 0);
}

#[test]
fn server_with_an_invalid_certificate_gets_no_secret() {
    let (trusted, other) = (Authority::new(), Authority::new());
    let server = Server::tls(other.server(&["api.test"], &[], |_| {}), ok);
    let port = server.port();
    let mut settings = granting(&[format!("https://api.test:{port}")], Some(&trusted));
    settings.secrets = vec![secret(&format!("api.test:{port}"))];
    let programs = Programs::with_settings(settings);
    let placeholder = programs.access.variables().expect("variables")[0].1.clone();
    let request = format!(
        "GET / HTTP/1.1\r\nhost: api.test:{port}\r\nx-token: {placeholder}\r\nconnection: close\r\n\r\n"
    );
    let text = exchange(trusting(&programs, "api.test", port), &request);
    assert!(text.starts_with("HTTP/1.1 502") && text.contains("certificate"), "{text}");
    assert!(server.asked().is_empty());
    assert!(programs.records()[0].failed.is_some(), "{:?}", programs.records());
}

/// Accepts an upgrade, echoes four bytes, and closes the connection without the end of TLS.
fn echo_upgraded(asked: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    assert_eq!(asked.header("upgrade"), Some("websocket"));
    write!(
        wire,
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    )?;
    wire.flush()?;
    let mut ping = [0; 4];
    wire.read_exact(&mut ping)?;
    wire.write_all(&ping)?;
    wire.flush()?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Upgrades the connection of a program, and returns the echo.
fn ping_upgraded(
    mut stream: StreamOwned<ClientConnection, TcpStream>,
    host: &str,
    placeholder: &str,
) -> String {
    let request = format!(
        "GET / HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\nx-token: {placeholder}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).and_then(|()| stream.flush()).expect("it is sent");
    let mut start = [0; 12];
    stream.read_exact(&mut start).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&start), "HTTP/1.1 101");
    exchange(stream, "ping")
}

#[test]
fn web_socket_passes() {
    let scene = Scene::new(echo_upgraded);
    let text = ping_upgraded(scene.connect(), &scene.origin(), &scene.placeholder());
    assert!(text.ends_with("ping"), "{text}");
    assert_eq!(scene.server.asked()[0].header("x-token"), Some(SECRET));
}

#[test]
fn web_socket_without_the_end_of_tls_is_no_failure() {
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["api.test"], &[], |_| {}), echo_upgraded);
    let host = format!("api.test:{}", server.port());
    let log = Log::new(None);
    let mut settings = granting(&[format!("https://{host}")], Some(&authority));
    settings.secrets = vec![secret(&host)];
    settings.network.log = Some(Arc::clone(&log) as _);
    // Without a report, the log gets the record after the end of the connection.
    let programs = Programs::with_report(settings, None, 2);
    let stream = trusting(&programs, "api.test", server.port());
    ping_upgraded(stream, &host, "none");
    waits_until(|| log.records().len() == 1);
    let record = &log.records()[0];
    assert_eq!((record.status, &record.failed, record.bytes), (Some(101), &None, 4), "{record:?}");
}

#[test]
fn upgrade_to_one_of_several_protocols_is_not_passed_on() {
    let scene = Scene::new(ok);
    let text = scene.ask("/", "connection: upgrade\r\nupgrade: websocket\r\nupgrade: h2c\r\n");
    assert!(text.ends_with("ok"), "{text}");
    assert_eq!(scene.server.asked()[0].header("upgrade"), None);
}
