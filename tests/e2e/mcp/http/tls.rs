//! TLS, with a certificate made for the test.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use super::super::client::text;
use super::calls;
use super::client::{Answering, Serving, modern};
use crate::support::Cli;

#[test]
fn tls_needs_only_a_certificate_and_refuses_plain_http() {
    let cli = Cli::asking();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate is made");
    let (certificate, key) =
        (cli.root.path().join("certificate.pem"), cli.root.path().join("key.pem"));
    fs::write(&certificate, cert.pem()).expect("it is written");
    fs::write(&key, signing_key.serialize_pem()).expect("it is written");
    cli.configure(&format!("[serve]\ncertificate = {certificate:?}\nkey = {key:?}\n"));
    let serving = Serving::new(&cli, &[]);
    let (message, head) =
        modern("tools/call", &json!({ "name": "read", "arguments": { "path": "notes.txt" } }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let request = serving.request("POST", "/mcp", &head, &message.to_string());
    assert_eq!(serving.raw(&request).whole().status, 0, "it is no TLS");
    assert!(calls(&cli).is_empty());

    let connect = |roots: RootCertStore| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("there are some");
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("is a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("is made");
        let mut stream =
            StreamOwned::new(connection, TcpStream::connect(&serving.place).expect("it listens"));
        std::io::Write::write_all(&mut stream, &request).map(|()| stream)
    };
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("is taken");
    let mut answer = Answering::new(Box::new(connect(roots).expect("the server reads")));
    assert!(text(&answer.message()["result"]).contains("second"));
    assert!(connect(RootCertStore::empty()).is_err(), "it is that certificate");
    assert_eq!(serving.ends(), 0);

    fs::write(&key, "nonsense").expect("it is written");
    assert!(cli.run(&["serve", "--http", "0"]).ends(4).stderr.contains("`key = "));
    cli.configure(&format!("[serve]\ncertificate = {certificate:?}\n"));
    let place = format!("[serve] of {}", cli.root.path().join("config/toolhold.toml").display());
    for line in [&["serve", "--http", "0"][..], &["config", "check"]] {
        let refused = cli.run(line).ends(4).stderr;
        assert!(refused.contains("needs `key`") && refused.contains(&place), "{refused}");
    }
    cli.configure("");
    assert!(
        cli.run(&["serve", "--http", "0.0.0.0:0"])
            .ends(4)
            .stderr
            .contains("`certificate` and `key` in [serve]")
    );
}
