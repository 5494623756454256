//! Requests through a proxy.

use toolhold_net::Proxy;

use super::*;

/// A proxy that lets nothing through.
fn closed() -> Server {
    Server::plain(|_, wire| answer(wire, "502 Bad Gateway", &[], b""))
}

fn network(proxy: &Server, resolves: bool) -> Network {
    let url = format!("http://anna:secret-1@127.0.0.1:{}", proxy.port());
    Network {
        proxy: Some(Proxy { url, except: "direct.test".to_owned(), resolves }),
        resolver: names(&[
            ("outer.test", "93.184.215.14"),
            ("inner.test", "10.0.0.1"),
            ("direct.test", "127.0.0.1"),
        ]),
        ..Network::default()
    }
}

#[test]
fn proxy_gets_requests_with_the_operator_s_password() {
    run(async {
        let proxy = closed();
        let (door, _) = door(network(&proxy, false));
        let failed = body(&door, request("https://outer.test/a")).await.expect_err("it is closed");
        assert!(!failed.to_string().contains("secret-1"), "{failed}");
        let asked = &proxy.asked()[0];
        assert!(asked.head.starts_with("CONNECT outer.test:443 "), "{}", asked.head);
        assert!(
            asked.header("proxy-authorization").is_some_and(|value| value.starts_with("Basic"))
        );
    });
}

#[test]
fn proxy_is_not_asked_for_private_places_and_not_for_this_machine() {
    run(async {
        let proxy = closed();
        let direct = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"direct"));
        let chosen = |url: &str| {
            Request::chosen_by_server("a test", Method::GET, url, &[]).expect("it is valid")
        };
        let (door, _) = door(network(&proxy, false));
        for url in ["https://inner.test/", "https://10.0.0.1/"] {
            let failed = body(&door, chosen(url)).await.expect_err("it is private");
            assert!(failed.is_refusal(), "{url}: {failed}");
        }
        let local = request(urls(&[&direct])[0].as_str());
        assert_eq!(body(&door, local).await.as_deref(), Ok(&b"direct"[..]));
        let excepted = request(&format!("https://direct.test:{}/", direct.port()));
        assert!(body(&door, excepted).await.is_err(), "it speaks no TLS");
        assert_eq!(direct.connections(), 2);
        assert_eq!(proxy.connections(), 0);
    });
}

#[test]
fn proxy_resolves_names_where_the_operator_wants_that() {
    run(async {
        let proxy = closed();
        let (door, _) = door(network(&proxy, true));
        assert!(body(&door, request("https://unknown.test/")).await.is_err());
        assert!(proxy.asked()[0].head.starts_with("CONNECT unknown.test:443 "));
    });
}

#[test]
fn proxy_gets_no_request_without_tls() {
    run(async {
        let proxy = closed();
        let server = Server::plain(|_, wire| {
            answer(wire, "302 Found", &[("location", "http://unknown.test/secret")], b"")
        });
        let (door, _) = door(network(&proxy, true));
        let failed = body(&door, request(urls(&[&server])[0].as_str())).await.expect_err("refused");
        assert!(failed.is_refusal(), "{failed}");
        assert_eq!(proxy.connections(), 0);
    });
}
