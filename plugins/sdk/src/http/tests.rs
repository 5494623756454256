//! Tests of requests: bodies, redirects and credentials, and requests that aren't sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use super::*;
use crate::Category;

/// Starts a server that gives these answers, one for each connection. It returns the requests.
fn server(answers: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        let answer = |answer: String| {
            let mut stream = listener.accept().unwrap().0;
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut asked, mut length) = (String::new(), 0);
            loop {
                let start = asked.len();
                reader.read_line(&mut asked).unwrap();
                let line = asked[start..].trim_end();
                if line.is_empty() {
                    break;
                }
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            reader.take(length).read_to_string(&mut asked).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            asked
        };
        answers.into_iter().map(answer).collect()
    };
    (address, thread::spawn(serve))
}

fn to(location: &str, status: u16) -> String {
    format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\n\r\n")
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: Text/Plain; charset=utf-8\r\n\r\n{body}")
}

#[test]
fn response_has_status_headers_and_body() {
    let (url, server) = server(vec![ok("hello")]);
    let answer = Request::get(format!("{url}/a%20b?q=1#part")).header("X-One", "1").send().unwrap();
    assert_eq!((answer.status, answer.body.as_slice(), answer.cut), (200, &b"hello"[..], false));
    assert_eq!(
        (answer.media_type().as_str(), answer.header("content-type")),
        ("text/plain", Some("Text/Plain; charset=utf-8"))
    );
    assert_eq!(answer.url, format!("{url}/a%20b?q=1#part"));
    let asked = server.join().unwrap().remove(0);
    assert!(
        asked.starts_with("GET /a%20b?q=1 HTTP/1.0\r\n") && asked.contains("\r\nx-one: 1\r\n"),
        "{asked}"
    );
}

#[test]
fn body_is_read_up_to_its_limit() {
    for (most, body, cut) in [(4, "hell", true), (5, "hello", false), (0, "", true)] {
        let (url, server) = server(vec![ok("hello")]);
        let answer = Request::get(url).max_body(most).send().unwrap();
        assert_eq!((answer.body.as_slice(), answer.cut), (body.as_bytes(), cut));
        server.join().unwrap();
    }
}

#[test]
fn three_redirects_are_followed() {
    let (url, server) = server(vec![to("/1", 301), to("2?a=b", 302), to("?c", 307), ok("end")]);
    let answer = Request::get(format!("{url}/0#part")).send().unwrap();
    assert_eq!((answer.url, answer.body.as_slice()), (format!("{url}/2?c#part"), &b"end"[..]));
    assert_eq!(
        answer.redirects,
        [format!("{url}/0#part"), format!("{url}/1#part"), format!("{url}/2?a=b#part")]
    );
    server.join().unwrap();
    let (url, server) = self::server(vec![to("/1", 301); 4]);
    let error = Request::get(url).send().unwrap_err();
    assert_eq!(
        (error.kind, error.message.contains("more than 3 redirects")),
        (HttpErrorKind::Redirect, true)
    );
    server.join().unwrap();
    let (url, server) = self::server(vec![to("/1", 301)]);
    assert_eq!(Request::get(url).max_redirects(0).send().unwrap().status, 301);
    server.join().unwrap();
}

#[test]
fn redirect_of_a_form_becomes_a_get() {
    for (status, method, after, body) in [
        (301, "POST", "GET", ""),
        (302, "POST", "GET", ""),
        (303, "PUT", "GET", ""),
        (303, "HEAD", "HEAD", "x"),
        (302, "PUT", "PUT", "x"),
        (307, "POST", "POST", "x"),
        (308, "POST", "POST", "x"),
    ] {
        let (url, server) = server(vec![to("/1", status), ok("")]);
        Request::new(method, url).header("Content-Type", "text/plain").body("x").send().unwrap();
        let asked = server.join().unwrap();
        assert!(
            asked[0].ends_with("\r\n\r\nx") && asked[1].starts_with(&format!("{after} /1 ")),
            "{status} {method}: {}",
            asked[1]
        );
        assert_eq!(
            (asked[1].split_once("\r\n\r\n").unwrap().1, asked[1].contains("content-type")),
            (body, !body.is_empty())
        );
    }
}

#[test]
fn credentials_stay_with_their_origin() {
    let (other, second) = server(vec![ok("")]);
    let (url, first) = server(vec![to("/1", 302), to(&other, 302)]);
    let request = Request::get(url)
        .header("Authorization", "a")
        .header("cookie", "b")
        .private_header("X-Key", "c")
        .header("x-other", "d");
    request.send().unwrap();
    let (asked, elsewhere) = (first.join().unwrap(), second.join().unwrap().remove(0));
    for name in ["authorization: a", "cookie: b", "x-key: c"] {
        assert!(asked[1].contains(name) && !elsewhere.contains(name), "{name}");
    }
    assert!(elsewhere.contains("x-other: d"));
}

#[test]
fn redirect_to_an_unsafe_url_is_not_followed() {
    for location in [
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://user:word@127.0.0.1/",
        "http://[::1",
        "javascript:alert(1)",
    ] {
        let (url, server) = server(vec![to(location, 302)]);
        assert_eq!(
            Request::get(url).send().unwrap_err().kind,
            HttpErrorKind::Redirect,
            "{location}"
        );
        server.join().unwrap();
    }
    let headers = vec![("location".to_owned(), "http://example.com/".to_owned())];
    let answer = Answer { status: 302, headers, body: Vec::new(), cut: false };
    let error = target(&Url::parse("https://example.com/").unwrap(), &answer).unwrap().unwrap_err();
    assert!(error.message.contains("from https to http://example.com/"), "{error}");
}

#[test]
fn invalid_request_is_not_sent() {
    for url in [
        "",
        "example.com",
        "/a",
        "ftp://example.com/",
        "http://me@example.com/",
        "http://me:word@example.com/",
        "http://",
    ] {
        let failure = Failure::from(Request::get(url).send().unwrap_err());
        assert_eq!(failure.category, Category::InvalidParameters, "{url}");
    }
    for request in [
        Request::new("GET /", "http://127.0.0.1:1/"),
        Request::get("http://127.0.0.1:1/").header("a b", "c"),
        Request::get("http://127.0.0.1:1/").header("a", "b\r\nc: d"),
    ] {
        assert_eq!(request.send().unwrap_err().kind, HttpErrorKind::Invalid);
    }
}

#[test]
fn failed_exchanges_are_told_apart() {
    let (url, server) = server(vec!["nonsense\r\n\r\n".to_owned()]);
    assert_eq!(Request::get(url).send().unwrap_err().kind, HttpErrorKind::Malformed);
    server.join().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let error = Request::get(url.as_str()).timeout(Duration::from_millis(1)).send().unwrap_err();
    assert_eq!(error.kind, HttpErrorKind::Timeout);
    drop(listener);
    let failure = Failure::from(Request::get(url).send().unwrap_err());
    assert_eq!(
        (failure.category, failure.code.as_deref()),
        (Category::NetworkError, Some("connection"))
    );
}
