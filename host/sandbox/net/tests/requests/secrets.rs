//! Tests of secrets: each goes to its host, path and method only, and no echo of it reaches the
//! guest.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::Full;
use toolhold_net::{Egress, Error, Secret, SecretSource, SecretValue, Settings};
use toolhold_policy::egress::{HostPattern, Placement, PrivateHosts, SecretHost, SecretRule};

use crate::server::{Asked, Server, Wire, answer};
use crate::{Caller, Names, run, settings};

const SECRET: &str = "value+of/the&secret=42";

fn secret(host: &str, placement: Placement) -> Secret {
    let rule = SecretRule {
        name: "token".to_owned(),
        hosts: vec![SecretHost::new(host).expect("it is valid")],
        methods: vec!["GET".to_owned()],
        paths: vec!["/api".to_owned()],
        placement,
    };
    Secret {
        rule,
        source: SecretSource::Variable {
            name: "TOKEN".to_owned(),
            value: Some(Arc::new(SecretValue::new(SECRET.to_owned()))),
        },
    }
}

fn bearer() -> Placement {
    Placement::Header { name: "authorization".to_owned(), prefix: "Bearer ".to_owned() }
}

fn with(servers: &[&Server], secrets: Vec<Secret>) -> Settings {
    let opened: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    Settings { secrets, ..settings(&opened.iter().map(String::as_str).collect::<Vec<_>>()) }
}

fn ok(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    answer(wire, "200 OK", &[], b"ok")
}

#[test]
fn secret_goes_to_its_host_path_and_method_only() {
    run(async {
        let (server, other) = (Server::plain(ok), Server::plain(ok));
        // All requests go to the same address, so only the path, the method or the host name make
        // the difference.
        let mut settings =
            with(&[&server, &other], vec![secret(&server.address.to_string(), bearer())]);
        settings.reach.private.push(crate::placed(
            PrivateHosts::new(&format!("localhost:{}", server.port())).expect("it is valid"),
        ));
        let caller = Caller::new(settings);
        let base = format!("http://{}", server.address);
        caller.get(&format!("{base}/api/x?y=z")).await.expect("it answers");
        assert_eq!(server.asked()[0].header("authorization"), Some(&*format!("Bearer {SECRET}")));
        assert_eq!(caller.requests()[0].secrets, ["token"]);
        for path in
            ["/", "/apix", "/other/api", "/api/../other", "/api/%2e%2e/other", "/api%2f..%2fother"]
        {
            caller.get(&format!("{base}{path}")).await.expect("it answers");
        }
        caller
            .send(Request::post(format!("{base}/api")).body(Full::default()).expect("it is valid"))
            .await
            .expect("it answers");
        caller.get(&format!("http://localhost:{}/api", server.port())).await.expect("it answers");
        for received in &server.asked()[1..] {
            assert_eq!(received.header("authorization"), None, "{received:?}");
            assert!(!format!("{received:?}").contains(SECRET));
        }
        assert!(caller.requests()[1..].iter().all(|record| record.secrets.is_empty()));
    });
}

#[test]
fn secret_that_is_not_sent_is_reported_unless_another_one_is() {
    run(async {
        let server = Server::plain(ok);
        let base = format!("http://{}", server.address);
        let mut elsewhere = secret("127.0.0.1:1", bearer());
        elsewhere.rule.name = "elsewhere".to_owned();
        let caller = Caller::new(with(&[&server], vec![elsewhere.clone()]));
        for _ in 0..2 {
            caller.get(&format!("{base}/api")).await.expect("it answers");
        }
        let notices = caller.report.entries().unsaid.clone();
        assert_eq!(notices.len(), 1, "{notices:?}");
        let told = format!("`elsewhere` was not sent to {base}");
        assert!(notices[0].contains(&told) && notices[0].contains("secrets.elsewhere]"));
        assert!(!notices[0].contains(SECRET), "{notices:?}");

        // A host with two secrets gets one of them.
        let own = secret(&server.address.to_string(), bearer());
        let caller = Caller::new(with(&[&server], vec![elsewhere, own]));
        caller.get(&format!("{base}/api")).await.expect("it answers");
        assert_eq!(caller.report.entries().unsaid.len(), 0);
        caller.get(&format!("{base}/other")).await.expect("it answers");
        assert_eq!(caller.report.entries().unsaid.len(), 2);
        assert_eq!(server.asked().len(), 4);
    });
}

#[test]
fn secret_for_localhost_goes_to_its_port_on_this_machine_only() {
    run(async {
        let (server, other) = (Server::plain(ok), Server::plain(ok));
        let named = format!("localhost:{}", server.port());
        let mut settings = with(&[], vec![secret(&named, bearer())]);
        settings
            .reach
            .private
            .push(crate::placed(PrivateHosts::new("localhost").expect("it is valid")));
        let caller = Caller::new(settings.clone());
        for port in [server.port(), other.port()] {
            caller.get(&format!("http://localhost:{port}/api")).await.expect("it answers");
        }
        assert_eq!(server.asked()[0].header("authorization"), Some(&*format!("Bearer {SECRET}")));
        assert_eq!(other.asked()[0].header("authorization"), None);
        settings.network.resolver = Some(Names::with_names(&[("localhost", &[&["192.0.2.1"]])]));
        let got = Caller::new(settings).get(&format!("http://{named}/api")).await;
        assert!(
            matches!(&got, Err(Error::Address(denial)) if denial.rule.contains("the address of `localhost` has to be this machine")),
            "{got:?}"
        );
    });
}

#[test]
fn secret_replaces_the_value_of_a_guest_and_is_not_recorded() {
    run(async {
        let server = Server::plain(ok);
        let caller =
            Caller::new(with(&[&server], vec![secret(&server.address.to_string(), bearer())]));
        let request = Request::get(format!("http://{}/api", server.address))
            .header("authorization", "Basic mine");
        caller.send(request.body(Full::default()).expect("it is valid")).await.expect("it answers");
        assert_eq!(server.asked()[0].header("authorization"), Some(&*format!("Bearer {SECRET}")));

        let query = Placement::Query { name: "api_key".to_owned() };
        let caller =
            Caller::new(with(&[&server], vec![secret(&server.address.to_string(), query)]));
        caller
            .get(&format!("http://{}/api?a=b&api_key=mine", server.address))
            .await
            .expect("it answers");
        assert_eq!(server.asked()[1].path(), "/api?a=b&api_key=value%2Bof%2Fthe%26secret%3D42");
        let records = format!("{:?}", caller.requests());
        assert!(!records.contains("value%2Bof") && !records.contains(SECRET), "{records}");
    });
}

/// Echoes the secret in several encodings, in pieces of the size in the path.
fn echo(received: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    let value = received
        .header("authorization")
        .unwrap_or_default()
        .trim_start_matches("Bearer ")
        .to_owned();
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url: String = value
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect();
    let forms = [
        value.clone(),
        STANDARD.encode(format!("user:{value}")),
        STANDARD.encode(&value),
        hex,
        url,
    ];
    let body = format!("[{}] and more", forms.join("|"));
    let piece = received.path().rsplit('/').next().and_then(|size| size.parse().ok()).unwrap_or(1);
    write!(
        wire,
        "HTTP/1.1 200 OK\r\nx-echo: {}\r\nx-other: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        forms[0], forms[1]
    )?;
    for piece in body.as_bytes().chunks(piece) {
        write!(wire, "{:x}\r\n", piece.len())?;
        wire.write_all(piece)?;
        wire.write_all(b"\r\n")?;
        wire.flush()?;
    }
    wire.write_all(b"0\r\n\r\n")
}

#[test]
fn echoed_secret_is_redacted_across_pieces() {
    run(async {
        let server = Server::plain(echo);
        let egress = Arc::new(Egress::new(with(
            &[&server],
            vec![secret(&server.address.to_string(), bearer())],
        )));
        for piece in [1, 2, 3, 7, 16, 1000] {
            let got = Caller::with_egress(Arc::clone(&egress), false)
                .get(&format!("http://{}/api/{piece}", server.address))
                .await
                .expect("it answers");
            let text = format!("{} {:?}", got.text(), got.headers);
            let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
            for form in [
                SECRET.to_owned(),
                STANDARD.encode(SECRET),
                hex,
                "value%2Bof".to_owned(),
                STANDARD.encode(format!("user:{SECRET}")),
            ] {
                assert!(!text.contains(&form), "{piece}: {text}");
            }
            assert!(
                got.text().ends_with("] and more")
                    && got.text().matches("[REDACTED:token]").count() >= 5,
                "{piece}: {text}"
            );
            assert_eq!(got.headers["x-echo"], "[REDACTED:token]");
        }
        // A secret that was read is found in all answers, also of requests without it.
        let got = Caller::with_egress(egress, false)
            .get(&format!("http://{}/other", server.address))
            .await
            .expect("it answers");
        assert!(got.text().contains("and more"));
    });
}

/// Echoes the secret as programs escape it, in some forms escaped twice.
fn escaped(received: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    let value = received
        .header("authorization")
        .unwrap_or_default()
        .trim_start_matches("Bearer ")
        .to_owned();
    let signs = |write: fn(u32) -> String| -> String {
        value
            .chars()
            .map(|c| if c.is_ascii_punctuation() { write(u32::from(c)) } else { c.to_string() })
            .collect()
    };
    let forms = [
        signs(|c| format!("\\u{c:04X}")),
        signs(|c| format!("\\\\u{c:04x}")),
        signs(|c| format!("&#x{c:X};")),
        signs(|c| format!("&amp;#{c};")),
        signs(|c| format!("%25{c:02X}")),
        signs(|c| format!("\\{}", char::from_u32(c).unwrap_or_default())),
        value.replace('+', "&plus;").replace('/', "&sol;").replace('=', "&equals;"),
        value.replace('/', "\\\\\\/"),
        value.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect(),
        value.chars().map(|c| format!("&#{};", u32::from(c))).collect(),
    ];
    let body = forms.map(|form| format!("<{form}>")).concat();
    let piece = received.path().rsplit('/').next().and_then(|size| size.parse().ok()).unwrap_or(1);
    write!(wire, "HTTP/1.1 200 OK\r\nx-echo: {body}\r\ntransfer-encoding: chunked\r\n\r\n")?;
    for piece in body.as_bytes().chunks(piece) {
        write!(wire, "{:x}\r\n", piece.len())?;
        wire.write_all(piece)?;
        wire.write_all(b"\r\n")?;
        wire.flush()?;
    }
    wire.write_all(b"0\r\n\r\n")
}

#[test]
fn escaped_echoes_are_redacted() {
    run(async {
        let server = Server::plain(escaped);
        let egress = Arc::new(Egress::new(with(
            &[&server],
            vec![secret(&server.address.to_string(), bearer())],
        )));
        for piece in [1, 2, 5, 100, 10_000] {
            let url = format!("http://{}/api/{piece}", server.address);
            let got = Caller::with_egress(Arc::clone(&egress), false)
                .get(&url)
                .await
                .expect("it answers");
            let expected = "<[REDACTED:token]>".repeat(10);
            assert_eq!(got.text(), expected, "in pieces of {piece}");
            assert_eq!(got.headers["x-echo"], expected);
        }
        // The same applies to texts that a tool makes of an answer.
        let redacted = egress
            .without_secrets("a value%252Bof/the&amp;secret\\u003d42 in a message")
            .expect("a secret is found");
        assert_eq!(redacted, "a [REDACTED:token] in a message");
    });
}

#[test]
fn header_named_like_the_secret_is_left_out() {
    run(async {
        const PLAIN: &str = "abcdef0123456789abcd";
        let server = Server::plain(|_, wire| {
            answer(wire, "200 OK", &[("x-ABCDEF0123456789abcd", "1"), ("x-other", "2")], b"ok")
        });
        let known = Secret {
            source: SecretSource::Variable {
                name: "T".to_owned(),
                value: Some(Arc::new(SecretValue::new(PLAIN.to_owned()))),
            },
            ..secret(&server.address.to_string(), bearer())
        };
        let got = Caller::new(with(&[&server], vec![known]))
            .get(&format!("http://{}/api", server.address))
            .await
            .expect("it answers");
        let headers = format!("{:?}", got.headers);
        assert!(
            !headers.to_ascii_lowercase().contains(PLAIN) && headers.contains("x-other"),
            "{headers}"
        );
    });
}

#[test]
fn request_with_a_secret_from_the_guest_is_not_sent() {
    run(async {
        let server = Server::plain(ok);
        let settings = with(&[&server], vec![secret(&server.address.to_string(), bearer())]);
        let egress = Arc::new(Egress::new(settings.clone()));
        let caller = Caller::with_egress(Arc::clone(&egress), false);
        let base = format!("http://{}", server.address);
        caller.get(&format!("{base}/api")).await.expect("it answers");
        let github = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
        let request = |builder: http::request::Builder, body: String| {
            builder.body(Full::from(body)).expect("it is valid")
        };
        let requests = [
            request(Request::post(&base), format!("x {SECRET} y")),
            request(Request::post(&base), STANDARD.encode(format!("ab{SECRET}"))),
            request(Request::get(&base).header("x", SECRET), String::new()),
            request(
                Request::get(format!("{base}/%67hp_abcdefghijklmnopqrstuvwxyz0123456789")),
                String::new(),
            ),
            request(Request::get(format!("{base}/?{github}=1")), String::new()),
            request(
                Request::get(format!(
                    "{base}/{}",
                    STANDARD.encode(SECRET).replace('/', "_").replace('+', "-")
                )),
                String::new(),
            ),
            request(Request::post(&base), format!("token {github}")),
            request(Request::get(format!("{base}/?q={github}")), String::new()),
            request(
                Request::get(format!("{base}/?q=g%68p_abcdefghijklmnopqrstuvwxyz0123456789")),
                String::new(),
            ),
            request(
                Request::get(&base).header("authorization", format!("token {github}")),
                String::new(),
            ),
            // Escaped so that the server decodes it, or a server behind it.
            request(
                Request::get(format!("{base}/?q=g%2568p_abcdefghijklmnopqrstuvwxyz0123456789")),
                String::new(),
            ),
            request(
                Request::get(format!("{base}/%2567hp%255Fabcdefghijklmnopqrstuvwxyz0123456789")),
                String::new(),
            ),
            request(
                Request::post(&base),
                r#"{"a": "gh\u0070\u005fabcdefghijklmnopqrstuvwxyz0123456789"}"#.to_owned(),
            ),
            request(
                Request::post(&base),
                r#"{"a": "{\"b\": \"gh\\u0070_abcdefghijklmnopqrstuvwxyz0123456789\"}"}"#
                    .to_owned(),
            ),
            request(
                Request::get(format!("{base}/?q=value%252Bof%252Fthe%2526secret%253D42")),
                String::new(),
            ),
            request(
                Request::post(&base),
                "value&plus;of&sol;the&amp;amp;secret\\u003d42".to_owned(),
            ),
            request(
                Request::get(&base).header("x", "value\\u002Bof\\/the\\u0026secret%3D42"),
                String::new(),
            ),
        ];
        for request in requests {
            let shown = format!("{request:?}");
            let got = caller.send(request).await;
            assert!(matches!(got, Err(Error::Refused(_))), "{shown}: {got:?}");
        }
        assert_eq!(server.asked().len(), 1);
        let records = format!("{:?}", caller.requests());
        assert!(!records.contains(SECRET) && !records.contains(github), "{records}");
        // Text that looks like a secret may go to the hosts that the operator names.
        let mut settings = settings;
        settings.credentials_to = vec![HostPattern::new("127.0.0.1").expect("it is valid")];
        let caller = Caller::new(settings);
        caller
            .send(request(Request::post(&base), format!("token {github}")))
            .await
            .expect("it is sent");
        assert_eq!(server.asked().len(), 2);
    });
}
