//! The requests that a secret is put into.

use toolhold_policy::egress::{
    Grant, Placement, PrivateHosts, Reach, SecretHost, SecretMismatch, SecretRule, Target,
};
use toolhold_policy::{Origin, OwnTable, Placed};

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
        "https://example.com",
        "https://*.example.com:8443",
        "http://127.0.0.1:18777",
        "http://[::1]:3000",
        "http://localhost",
    ] {
        SecretHost::new(written).unwrap_or_else(|why| panic!("{written}: {why}"));
    }
    for (written, expected) in [
        ("*", "every host"),
        ("*:443", "every host"),
        ("*.com", "at least two parts of a name"),
        ("*.com:443", "at least two parts of a name"),
        ("com", "add the port"),
        ("*.*.com", "`*` isn't allowed"),
        ("https://example.com/v1", "without a path"),
        ("https://user:word@example.com", "without a path"),
        ("ftp://example.com", "https or http"),
        ("http://example.com", "only sent to this machine"),
        ("http://*.localhost", "at least two parts"),
        ("http://10.0.0.1:80", "only sent to this machine"),
        ("https://*", "every host"),
        ("example.com:0", "ports are numbers"),
        ("example.com:x", "ports are numbers"),
        ("10.0.0.0/8", "without a path"),
    ] {
        let why = SecretHost::new(written).expect_err(written).to_string();
        assert!(why.contains(expected), "{written}: {why}");
    }
}

fn rule(host: &str, methods: &[&str], paths: &[&str]) -> SecretRule {
    SecretRule {
        name: "token".to_owned(),
        hosts: vec![SecretHost::new(host).expect("a valid one")],
        methods: methods.iter().map(|&method| method.to_owned()).collect(),
        paths: paths.iter().map(|&path| path.to_owned()).collect(),
        placement: Placement::Query { name: "key".to_owned() },
    }
}

#[test]
fn request_to_a_host_of_a_secret_has_a_reason_to_go_without_it() {
    let opened = [PrivateHosts::new("127.0.0.1:18777").expect("a valid one")];
    for (host, url, mismatch) in [
        ("127.0.0.1", "http://127.0.0.1:18777/v1", Some(SecretMismatch::Origin)),
        ("https://127.0.0.1:18777", "http://127.0.0.1:18777/v1", Some(SecretMismatch::Origin)),
        ("http://127.0.0.1:18777", "http://127.0.0.1:18777/v1", None),
        ("http://127.0.0.1:18777", "https://127.0.0.1:18777/v1", Some(SecretMismatch::Origin)),
        ("127.0.0.1:18778", "http://127.0.0.1:18778/v1", Some(SecretMismatch::NoTls)),
        ("api.example.com", "http://api.example.com/v1", Some(SecretMismatch::NoTls)),
        ("api.example.com", "https://api.example.com/v1", None),
        ("api.example.com", "https://api.example.com:8443/v1", Some(SecretMismatch::Origin)),
        ("api.example.com", "https://api.example.com/v2", Some(SecretMismatch::Path)),
        ("api.example.com", "https://other.example.com/v2", None),
    ] {
        let rule = rule(host, &["GET"], &["/v1"]);
        let target = Target::parse(url).expect("a URL");
        let path = &url[target.origin().len()..];
        assert_eq!(rule.mismatch(&target, "GET", path, &opened), mismatch, "{host}: {url}");
        let applies = rule.applies_to(&target, "GET", path, &opened);
        let is_same_host = !url.contains("other");
        assert_eq!(applies, mismatch.is_none() && is_same_host, "{host}: {url}");
    }
    let target = Target::parse("https://a.example/").expect("a URL");
    let mismatch = rule("a.example", &["GET"], &[]).mismatch(&target, "POST", "/", &[]);
    assert_eq!(mismatch, Some(SecretMismatch::Method));
}

#[test]
fn secret_that_no_grant_can_reach_is_found() {
    let place = Origin::default();
    for (grant, private, host, is_reached) in [
        ("api.example.com", None, "api.example.com", true),
        ("api.example.com", None, "api.example.com:8443", false),
        ("https://api.example.com:8443", None, "api.example.com", false),
        ("*.example.com", None, "api.example.com", true),
        ("other.example", None, "api.example.com", false),
        ("other.example", None, "*.example.com", true),
        ("other.example", Some("127.0.0.1:18777"), "127.0.0.1", false),
        ("other.example", Some("127.0.0.1:18777"), "http://127.0.0.1:18777", true),
        ("other.example", None, "http://127.0.0.1:18777", false),
    ] {
        let reach = Reach {
            table: OwnTable::default(),
            grants: vec![Placed {
                value: Grant::new(grant).expect("a valid one"),
                place: place.clone(),
            }],
            denied: Vec::new(),
            private: private
                .into_iter()
                .map(|private| Placed {
                    value: PrivateHosts::new(private).expect("a valid one"),
                    place: place.clone(),
                })
                .collect(),
            job_servers: false,
            https_only: Placed { value: true, place: place.clone() },
            place: place.clone(),
            ceilings: Vec::new(),
        };
        assert_eq!(rule(host, &[], &[]).may_be_sent(&reach), is_reached, "{grant}: {host}");
    }
}
