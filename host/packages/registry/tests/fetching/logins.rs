//! Logins: which server gets a password or a token.

use toolhold_registry::Credentials;

use super::*;

const AUTH: &str = "YW5uYTpwYXNzLTE="; // anna:pass-1

/// A registry that gives what it has for a token, which is to be had at `realm`.
fn with_token(realm: String) -> (Server, String) {
    let mut shelf = Shelf::default();
    let manifest = shelf.plugin(WASM);
    let (_, bytes) = shelf.manifests[&manifest].clone();
    let server = Server::plain(move |asked, wire| {
        if asked.path().starts_with("/token") {
            return give_token(asked, wire, AUTH);
        }
        if asked.header("authorization") != Some("Bearer token-1") {
            let port = asked.header("host").and_then(|host| host.rsplit(':').next());
            let realm = realm.replace("PORT", port.unwrap_or_default());
            let challenge = format!("Bearer realm=\"{realm}\",service=\"s\",scope=\"evil\"");
            return answer(wire, "401 Unauthorized", &[("www-authenticate", &challenge)], b"");
        }
        match asked.path() {
            path if path.contains("/manifests/1") => {
                answer(wire, "200 OK", &[("content-type", shelf::MANIFEST)], &bytes)
            }
            path if path.contains("/blobs/") => answer(wire, "200 OK", &[], WASM),
            _ => answer(wire, "404 Not Found", &[], b""),
        }
    });
    let source = format!("oci+http://127.0.0.1:{}/plugin:1", server.port());
    (server, source)
}

fn give_token(
    asked: &server::Asked,
    wire: &mut dyn server::Wire,
    auth: &str,
) -> std::io::Result<()> {
    let is_right = asked.header("authorization") == Some(&format!("Basic {auth}"))
        && asked.path().contains("service=s&scope=repository%3Aplugin%3Apull");
    if is_right {
        answer(wire, "200 OK", &[], br#"{"token":"token-1"}"#)
    } else {
        answer(wire, "401 Unauthorized", &[], b"{}")
    }
}

fn credentials(text: &str) -> FetchOptions {
    let folder = tempfile::tempdir().expect("there is a folder");
    let path = folder.path().join("config.json");
    std::fs::write(&path, text).expect("it is written");
    let credentials = Credentials::load(&path).expect("is valid");
    FetchOptions { credentials, ..options() }
}

fn login(server: &Server, auth: &str) -> String {
    format!(r#""127.0.0.1:{}": {{"auth": "{auth}"}}"#, server.port())
}

#[test]
fn token_is_fetched_with_the_password_and_used_at_the_registry() {
    run(async {
        let (server, source) = with_token("http://127.0.0.1:PORT/token".to_owned());
        let options = credentials(&format!("{{\"auths\": {{{}}}}}", login(&server, AUTH)));
        let fetched = get_with(&source, &options).await.expect("is there");
        assert_eq!(fetched.bytes, WASM);
        for asked in server.asked() {
            let sent = asked.header("authorization").unwrap_or_default();
            let is_token = asked.path().starts_with("/token");
            assert_eq!(sent.starts_with("Basic"), is_token, "{}", asked.head);
        }
        let wrong = credentials(&format!("{{\"auths\": {{{}}}}}", login(&server, "YTpi")));
        let error = get_with(&source, &wrong).await.expect_err("it is wrong").to_string();
        assert!(error.contains("the registry refused the login"), "{error}");
        let error = get(&source).await.expect_err("there is no login").to_string();
        assert!(
            error.contains("has no login for 127.0.0.1") && error.contains("config.json"),
            "{error}"
        );
        let helper = credentials(r#"{"credsStore": "desktop"}"#);
        let error = get_with(&source, &helper).await.expect_err("isn't read").to_string();
        assert!(error.contains("helper program `desktop`"), "{error}");
    });
}

#[test]
fn place_of_tokens_that_the_registry_chooses_gets_no_password() {
    run(async {
        let thief = Server::plain(|asked, wire| give_token(asked, wire, "b3RoZXI6cGFzcy0y"));
        for scheme in ["http", "https"] {
            let (server, source) =
                with_token(format!("{scheme}://127.0.0.1:{}/token", thief.port()));
            let options = credentials(&format!("{{\"auths\": {{{}}}}}", login(&server, AUTH)));
            let error = get_with(&source, &options).await.expect_err("it is private").to_string();
            assert!(error.contains("yourself"), "{error}");
        }
        assert_eq!(thief.connections(), 0);
        // With a login of its own, it gets that one.
        let (server, source) = with_token(format!("http://127.0.0.1:{}/token", thief.port()));
        let both = [login(&server, AUTH), login(&thief, "b3RoZXI6cGFzcy0y")].join(",");
        let options = credentials(&format!("{{\"auths\": {{{both}}}}}"));
        assert!(get_with(&source, &options).await.is_ok());
        let asked = thief.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].header("authorization"), Some("Basic b3RoZXI6cGFzcy0y"));
        assert!(server.asked().iter().all(|asked| !asked.head.contains("b3RoZXI6cGFzcy0y")));
    });
}

#[test]
fn password_is_sent_when_the_registry_asks_for_it() {
    run(async {
        let server = Server::plain(|asked, wire| {
            if asked.header("authorization") == Some(&format!("Basic {AUTH}")) {
                return answer(wire, "404 Not Found", &[], b"");
            }
            answer(wire, "401 Unauthorized", &[("www-authenticate", "Basic realm=\"r\"")], b"")
        });
        let source = format!("oci+http://127.0.0.1:{}/plugin:1", server.port());
        let options = credentials(&format!("{{\"auths\": {{{}}}}}", login(&server, AUTH)));
        let error = get_with(&source, &options).await.expect_err("it is missing").to_string();
        assert!(error.contains("404"), "{error}");
        let sent: Vec<_> =
            server.asked().iter().map(|asked| asked.header("authorization").is_some()).collect();
        assert_eq!(sent, [false, true]);
        let error = get(&source).await.expect_err("there is no login").to_string();
        assert!(error.contains("has no login for 127.0.0.1"), "{error}");
        assert_eq!(server.asked().len(), 3);
    });
}

#[test]
fn answers_of_a_place_of_tokens_are_checked() {
    run(async {
        for (token, told) in [
            ("{}", "a token that is too long"),
            ("token", "isn't valid JSON"),
            ("{\"token\": \"a\\nb\"}", "headers don't allow"),
            ("{\"token\": \"<17000>\"}", "a token that is too long"),
        ] {
            let token = token.replace("<17000>", &"x".repeat(17_000));
            let server = Server::plain(move |asked, wire| {
                if asked.path().starts_with("/token") {
                    return answer(wire, "200 OK", &[], token.as_bytes());
                }
                let port = asked.header("host").and_then(|host| host.rsplit(':').next());
                let challenge =
                    format!("Bearer realm=\"http://127.0.0.1:{}/token\"", port.unwrap_or_default());
                answer(wire, "401 Unauthorized", &[("www-authenticate", &challenge)], b"")
            });
            let source = format!("oci+http://127.0.0.1:{}/plugin:1", server.port());
            let error = get(&source).await.expect_err(told).to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
    });
}
