//! The requests that a secret is put into.

use toolhold_policy::egress::{Placement, PrivateHosts, SecretHost, SecretRule, Target};

#[test]
fn secret_goes_only_into_requests_of_its_rule() {
    let rule = SecretRule {
        name: "token".to_owned(),
        hosts: [
            "api.example.com",
            "*.a.example:8443",
            "127.0.0.1:3000",
            "localhost:3000",
            "localhost:4000",
            "127.0.0.2",
        ]
        .map(|host| SecretHost::new(host).expect("a valid one"))
        .to_vec(),
        methods: vec!["GET".to_owned()],
        paths: vec!["/v1/".to_owned(), "/me".to_owned()],
        placement: Placement::Query { name: "key".to_owned() },
    };
    let private = ["127.0.0.1", "127.0.0.2", "localhost:3000", "10.0.0.1"]
        .map(|private| PrivateHosts::new(private).expect("a valid one"));
    let goes = |url: &str, method: &str, path: &str| {
        rule.applies_to(&Target::parse(url).expect("a URL"), method, path, &private)
    };
    let api = "https://api.example.com/";
    for path in ["/v1", "/v1/", "/v1/x", "/me", "/me/x?y=../..", "/v1/a.b", "/me#/../x"] {
        assert!(goes(api, "GET", path), "{path}");
    }
    for path in [
        "",
        "/",
        "/v2",
        "/v10",
        "/V1/x",
        "/mex",
        "/v1/../v2",
        "/v1/..",
        "/v1/%2e%2e/v2",
        "/v1/%2E./v2",
        "/v1%2fx",
        "/v1/x%5c..%5c",
        "/v1\\..\\v2",
        "/v1//x",
        "//v1/x",
        "/v1/./x",
        "/v1/%252e%252e/x",
        "/v1/..;/x",
        "/v1/%00",
        "/x/v1",
    ] {
        assert!(!goes(api, "GET", path), "{path}");
    }
    assert!(!goes(api, "POST", "/v1") && !goes(api, "get", "/v1"));
    assert!(
        !goes("https://example.com/", "GET", "/v1")
            && !goes("https://a.api.example.com/", "GET", "/v1")
    );
    // Only the named port, or the default port of https, matches.
    assert!(
        !goes("https://api.example.com:8443/", "GET", "/v1")
            && !goes("https://api.example.com:80/", "GET", "/v1")
    );
    assert!(
        goes("https://x.a.example:8443/", "GET", "/v1")
            && !goes("https://x.a.example/", "GET", "/v1")
    );
    assert!(goes("https://127.0.0.2/", "GET", "/v1"));
    // By http, only this machine matches, if it is opened on the named port.
    assert!(
        !goes("http://api.example.com/", "GET", "/v1")
            && !goes("http://api.example.com:443/", "GET", "/v1")
    );
    assert!(
        goes("http://127.0.0.1:3000/", "GET", "/v1")
            && goes("http://localhost:3000/", "GET", "/v1")
    );
    assert!(
        !goes("http://127.0.0.1:3001/", "GET", "/v1")
            && !goes("http://localhost:3001/", "GET", "/v1")
    );
    assert!(
        !goes("http://localhost:4000/", "GET", "/v1")
            && !goes("http://x.localhost:3000/", "GET", "/v1")
    );
    assert!(
        !goes("http://127.0.0.2/", "GET", "/v1") && !goes("http://127.0.0.2:443/", "GET", "/v1")
    );
    let anywhere = SecretRule { methods: Vec::new(), paths: Vec::new(), ..rule.clone() };
    assert!(anywhere.applies_to(&Target::parse(api).expect("a URL"), "DELETE", "/../x", &[]));
    let nowhere = SecretRule { hosts: Vec::new(), ..anywhere };
    assert!(!nowhere.applies_to(&Target::parse(api).expect("a URL"), "GET", "/", &[]));
}

#[test]
fn secret_host_must_not_cover_hosts_of_many_owners() {
    for written in [
        "example.com",
        "*.example.com",
        "api-*.example.com:8443",
        "localhost",
        "localhost:80",
        "[::1]:3000",
        "::1",
        "nas:443",
    ] {
        SecretHost::new(written).unwrap_or_else(|why| panic!("{written}: {why}"));
    }
    for (written, expected) in [
        ("*", "every host"),
        ("*:443", "every host"),
        ("*.com", "at least two parts of a name"),
        ("*.com:443", "at least two parts of a name"),
        ("com", "add its port"),
        ("*.*.com", "`*` isn't allowed"),
        ("https://example.com", "not a URL"),
        ("example.com:0", "ports are numbers"),
        ("example.com:x", "ports are numbers"),
        ("10.0.0.0/8", "a range of addresses"),
    ] {
        let why = SecretHost::new(written).expect_err(written).to_string();
        assert!(why.contains(expected), "{written}: {why}");
    }
}
