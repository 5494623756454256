//! Callers with tokens of an authorization server: a key set on loopback, and tokens signed here.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::super::client::LEGACY;
use super::client::Serving;
use super::tokens::new_token;
use super::{calls, write};
use crate::support::Cli;
use crate::support::server::{Server, answer};

pub(super) const ISSUER: &str = "https://login.example.com";
pub(super) const URL: &str = "http://localhost:9";

/// A key of the authorization server.
pub(super) enum Key {
    Ed(Ed25519KeyPair),
    Ec(EcdsaKeyPair),
}

impl Key {
    pub(super) fn ed() -> Self {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("is made");
        Self::Ed(Ed25519KeyPair::from_pkcs8(der.as_ref()).expect("is a key"))
    }

    fn ec() -> Self {
        let der =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .expect("is made");
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            der.as_ref(),
            &SystemRandom::new(),
        );
        Self::Ec(key.expect("is a key"))
    }

    pub(super) fn public(&self, id: &str) -> Value {
        match self {
            Self::Ed(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "use": "sig", "x": BASE64.encode(key.public_key()) })
            }
            Self::Ec(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256", "x": BASE64.encode(x), "y": BASE64.encode(y) })
            }
        }
    }

    pub(super) fn token(&self, head: &Value, claims: &Value) -> String {
        let signed =
            format!("{}.{}", BASE64.encode(head.to_string()), BASE64.encode(claims.to_string()));
        let signature = match self {
            Self::Ed(key) => key.sign(signed.as_bytes()).as_ref().to_vec(),
            Self::Ec(key) => key
                .sign(&SystemRandom::new(), signed.as_bytes())
                .expect("is signed")
                .as_ref()
                .to_vec(),
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }
}

pub(super) fn claims(who: &str) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    json!({ "iss": ISSUER, "aud": format!("{URL}/mcp"), "sub": who, "exp": now + 600, "nbf": now - 10, "scope": "files toolhold" })
}

pub(super) fn with(mut claims: Value, key: &str, value: Value) -> Value {
    claims[key] = value;
    claims
}

/// The server's response to a token: the status, and the challenge if there is one.
fn status(serving: &mut Serving, token: &str) -> (u16, String) {
    serving.token = Some(token.to_owned());
    let answer = serving
        .modern("tools/call", &json!({ "name": "read", "arguments": { "path": "notes.txt" } }), &[])
        .whole();
    (answer.status, answer.head.get("www-authenticate").cloned().unwrap_or_default())
}

#[test]
fn only_tokens_for_this_server_from_its_issuer_are_valid() {
    let cli = Cli::asking();
    let (ed, ec, stranger) = (Key::ed(), Key::ec(), Key::ed());
    let keys = cli.root.path().join("keys.json");
    let mut listed = vec![ed.public("one"), ec.public("two"), json!({ "kty": "unheard of" })];
    listed.push(json!({ "kty": "oct", "kid": "three", "k": BASE64.encode("secret") }));
    fs::write(&keys, json!({ "keys": listed }).to_string()).expect("it is written");
    cli.configure(&format!("[serve]\nurl = {URL:?}\n[serve.oauth]\nissuer = {ISSUER:?}\nkeys = {keys:?}\nscope = \"toolhold\"\n"));
    let mut serving = Serving::at(&cli, "0", &[], false);

    let (head, good) = (json!({ "alg": "EdDSA", "kid": "one" }), claims("anna"));
    let now = good["nbf"].as_u64().expect("is a number");
    let public = match &ed {
        Key::Ed(key) => BASE64.encode(key.public_key()),
        Key::Ec(_) => unreachable!("it is the other"),
    };
    let unsigned = format!(
        "{}.{}.",
        BASE64.encode(json!({ "alg": "none" }).to_string()),
        BASE64.encode(good.to_string())
    );
    let token = ed.token(&head, &good);
    let wrong = [
        ("none", String::new()),
        ("no token", "nonsense".to_owned()),
        ("unsigned", unsigned),
        ("of a stranger", stranger.token(&head, &good)),
        ("of another key", ec.token(&head, &good)),
        ("of a key that there is not", ed.token(&json!({ "alg": "EdDSA", "kid": "four" }), &good)),
        ("shared secret", ed.token(&json!({ "alg": "HS256", "kid": "three" }), &good)),
        (
            "public key as secret",
            ed.token(&json!({ "alg": "HS256", "kid": "one", "jwk": public }), &good),
        ),
        ("another kind", ed.token(&json!({ "alg": "ES256", "kid": "one" }), &good)),
        (
            "its own key",
            stranger.token(&json!({ "alg": "EdDSA", "jwk": stranger.public("own") }), &good),
        ),
        ("expired", ed.token(&head, &with(good.clone(), "exp", json!(now - 600)))),
        ("not yet", ed.token(&head, &with(good.clone(), "nbf", json!(now + 600)))),
        ("for ever", ed.token(&head, &with(good.clone(), "exp", Value::Null))),
        (
            "of another issuer",
            ed.token(&head, &with(good.clone(), "iss", json!("https://login.example.com.evil"))),
        ),
        (
            "for another server",
            ed.token(&head, &with(good.clone(), "aud", json!("https://other.example.com/mcp"))),
        ),
        ("for nobody", ed.token(&head, &with(good.clone(), "aud", Value::Null))),
        ("of nobody", ed.token(&head, &with(good.clone(), "sub", json!("")))),
        (
            "of a name that breaks lines",
            ed.token(&head, &with(good.clone(), "sub", json!("anna\nberta"))),
        ),
        ("cut", token[..token.len() - 4].to_owned()),
        ("bound to a key", ed.token(&head, &with(good.clone(), "cnf", json!({ "jkt": "x" })))),
        ("for DPoP", ed.token(&json!({ "alg": "EdDSA", "kid": "one", "typ": "dpop+jwt" }), &good)),
        ("critical", ed.token(&json!({ "alg": "EdDSA", "kid": "one", "crit": ["b64"] }), &good)),
    ];
    for (what, token) in wrong {
        let (code, challenge) = status(&mut serving, &token);
        assert_eq!(code, 401, "{what}");
        assert!(
            challenge.contains(&format!(
                "resource_metadata=\"{URL}/.well-known/oauth-protected-resource/mcp\""
            )),
            "{what}: {challenge}"
        );
    }
    let (code, challenge) = status(
        &mut serving,
        &ed.token(&head, &with(good.clone(), "scope", json!("files toolholds"))),
    );
    assert!(
        code == 403
            && challenge.contains("insufficient_scope")
            && challenge.contains("scope=\"toolhold\""),
        "{code} {challenge}"
    );
    assert!(calls(&cli).is_empty(), "nothing was called: {:?}", calls(&cli));

    for right in [
        token,
        ec.token(&json!({ "alg": "ES256", "kid": "two" }), &good),
        ec.token(&json!({ "alg": "ES256" }), &good),
        ed.token(
            &head,
            &with(with(good.clone(), "scope", Value::Null), "scp", json!(["toolhold"])),
        ),
        ed.token(
            &head,
            &with(good.clone(), "aud", json!(["https://other.example.com", format!("{URL}/mcp")])),
        ),
    ] {
        assert_eq!(status(&mut serving, &right).0, 200);
    }
    serving.token = None;
    let told: Value =
        serde_json::from_str(&serving.get("/.well-known/oauth-protected-resource/mcp", &[]).body)
            .expect("is JSON");
    assert_eq!(
        (&told["resource"], &told["authorization_servers"]),
        (&json!(format!("{URL}/mcp")), &json!([ISSUER]))
    );
}

#[test]
fn local_token_is_accepted_beside_the_authorization_server() {
    let cli = Cli::asking();
    let key = Key::ed();
    let keys = cli.root.path().join("keys.json");
    fs::write(&keys, json!({ "keys": [key.public("toolhold")] }).to_string())
        .expect("it is written");
    cli.configure(&format!(
        "[serve]\nurl = {URL:?}\n[serve.oauth]\nissuer = {ISSUER:?}\nkeys = {keys:?}\n"
    ));
    let mut serving = Serving::at(&cli, "0", &[], false);
    assert_eq!(status(&mut serving, &new_token(&cli, &["ci"])).0, 200);
    let made = calls(&cli).len();
    // The authorization server can't make a local token, not even with the server's public key as
    // the secret.
    let local = with(claims("ci"), "iss", json!("toolhold"));
    let id = with(local, "jti", json!("0".repeat(32)));
    for algorithm in ["EdDSA", "HS256"] {
        let token = key.token(&json!({ "alg": algorithm, "kid": "toolhold" }), &id);
        assert_eq!(status(&mut serving, &token).0, 401, "{algorithm}");
    }
    assert_eq!(calls(&cli).len(), made, "nothing was called");
    let of_issuer = key.token(&json!({ "alg": "EdDSA", "kid": "toolhold" }), &claims("anna"));
    assert_eq!(status(&mut serving, &of_issuer).0, 200, "a local token owns no workspace");
}

#[test]
fn second_user_is_refused_unless_the_workspace_is_shared() {
    let cli = Cli::asking();
    let key = Key::ed();
    let keys = cli.root.path().join("keys.json");
    fs::write(&keys, json!({ "keys": [key.public("one")] }).to_string()).expect("it is written");
    let token = |who: &str| key.token(&json!({ "alg": "EdDSA", "kid": "one" }), &claims(who));
    for (line, expected) in [("", 403), ("shared_workspace = true", 200)] {
        cli.configure(&format!(
            "[serve]\nurl = {URL:?}\n{line}\n[serve.oauth]\nissuer = {ISSUER:?}\nkeys = {keys:?}\n"
        ));
        let mut serving = Serving::at(&cli, "0", &[], false);
        // A refused token makes nobody the owner.
        let expired = with(claims("eve"), "exp", json!(1));
        let expired = key.token(&json!({ "alg": "EdDSA", "kid": "one" }), &expired);
        assert_eq!(status(&mut serving, &expired).0, 401);
        assert_eq!(status(&mut serving, &token("anna")).0, 200);
        serving.token = Some(token("berta"));
        let list = json!({ "path": "notes.txt" });
        let answer = serving
            .modern("tools/call", &json!({ "name": "read", "arguments": list }), &[])
            .whole();
        assert_eq!(answer.status, expected, "{line}");
        assert_eq!(answer.body.contains("shared_workspace = true"), expected == 403);
        assert_eq!(status(&mut serving, &token("anna")).0, 200, "the first one stays");
        let recorded = calls(&cli).iter().any(|call| call.to_string().contains("berta"));
        assert_eq!(recorded, expected == 200, "only a call that was made has a record");
        let with_user = calls(&cli).into_iter().find(|call| call.get("user").is_some());
        assert_eq!(with_user, None, "no caller is taken for the user of this machine");
    }
}

#[test]
fn callers_are_kept_apart_and_new_keys_are_fetched() {
    let cli = Cli::asking();
    let (first, second) = (Key::ed(), Key::ed());
    let set = Arc::new(Mutex::new(json!({ "keys": [first.public("first")] }).to_string()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let keys = format!("http://{}/keys", listener.local_addr().expect("it has one"));
    let given = Arc::clone(&set);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("is taken");
            let mut lines = BufReader::new(stream.try_clone().expect("is cloned")).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let body = given.lock().expect("is whole").clone();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    cli.configure(&format!(
        "[serve]\nurl = {URL:?}\nshared_workspace = true\n[serve.oauth]\nissuer = {ISSUER:?}\nkeys = {keys:?}\n"
    ));
    let mut serving = Serving::at(&cli, "0", &[], false);
    let token = |key: &Key, id: &str, who: &str| {
        key.token(&json!({ "alg": "EdDSA", "kid": id }), &claims(who))
    };

    assert_eq!(status(&mut serving, &token(&second, "second", "anna")).0, 401);
    let id = {
        serving.token = Some(token(&first, "first", "anna"));
        serving.handshake(LEGACY, true, &[])
    };
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(serving.post(&list, &[("mcp-session-id", &id)]).status, 200);
    // Another caller gets neither the connection nor the first caller's data.
    let asked = serving.modern("tools/call", &write(), &[]).message()["result"].clone();
    let mut again = write();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] =
        json!({ "answer": { "action": "accept", "content": { "answer": "once" } } });
    serving.token = Some(token(&first, "first", "berta"));
    assert_eq!(serving.post(&list, &[("mcp-session-id", &id)]).status, 404);
    assert!(serving.modern("tools/call", &again, &[]).message()["error"].is_object());
    assert_eq!(super::notes(&cli), "first\nsecond\n");
    serving.token = Some(token(&first, "first", "anna"));
    assert_eq!(serving.modern("tools/call", &again, &[]).message()["result"]["isError"], false);
    assert_eq!(super::notes(&cli), "changed\n");
    let sessions: Vec<_> = calls(&cli).iter().map(|record| record["session"].clone()).collect();
    assert!(sessions.contains(&json!(format!("mcp {}", json!([ISSUER, "anna"])))), "{sessions:?}");
    drop(serving);

    let mut serving = Serving::at(&cli, "0", &[], false);
    *set.lock().expect("is whole") = json!({ "keys": [second.public("second")] }).to_string();
    assert_eq!(
        status(&mut serving, &token(&first, "first", "anna")).0,
        200,
        "they count for a while"
    );
    assert_eq!(
        status(&mut serving, &token(&second, "second", "anna")).0,
        200,
        "a name that is not known has them asked for"
    );
    assert_eq!(status(&mut serving, &token(&first, "first", "anna")).0, 401, "the old one is gone");

    for (keys, told) in [
        ("http://login.example.com/keys", "only https"),
        ("keys.json", "absolute"),
        ("", "the value is empty"),
        ("/nowhere", "No such file"),
    ] {
        cli.configure(&format!(
            "[serve]\nurl = {URL:?}\n[serve.oauth]\nissuer = {ISSUER:?}\nkeys = {keys:?}\n"
        ));
        let ended = cli.run(&["serve", "--http", "0"]).ends(4);
        assert!(ended.stderr.contains(told), "{keys}: {}", ended.stderr);
    }
}

#[test]
fn fetching_keys_has_a_record_and_no_redirect_leads_to_a_private_place() {
    let cli = Cli::asking();
    let keys = json!({ "keys": [Key::ed().public("one")] }).to_string();
    let inner = Server::plain(move |_, wire| answer(wire, "200 OK", &[], keys.as_bytes()));
    let to = format!("http://127.0.0.1:{}/keys?secret=1", inner.port());
    let server = Server::plain(move |_, wire| answer(wire, "302 Found", &[("location", &to)], b""));
    let keys = format!("http://127.0.0.1:{}/keys?token=1", server.port());
    cli.configure(&format!(
        "[serve]\nurl = {URL:?}\n[serve.oauth]\nissuer = {ISSUER:?}\nkeys = {keys:?}\n"
    ));
    let ended = cli.run(&["serve", "--http", "0"]).ends(4);
    assert!(ended.stderr.contains("name yourself"), "{}", ended.stderr);
    assert_eq!((server.asked().len(), inner.connections()), (1, 0));

    let tail = cli.run(&["audit", "tail"]).ends(0).stdout;
    let lines: Vec<&str> = tail.lines().filter(|line| line.contains("oauth keys")).collect();
    let [first, second] = lines[..] else { panic!("{tail}") };
    assert!(first.contains("  302  GET http://127.0.0.1:"), "{first}");
    assert!(second.contains("  blocked  GET http://127.0.0.1:"), "{second}");
    assert!(!tail.contains("token=1") && !tail.contains("secret=1"), "{tail}");
    cli.run(&["audit", "verify"]).ends(0);
}
