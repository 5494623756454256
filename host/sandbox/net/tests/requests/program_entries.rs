//! Entries of the log for the connections of jobs.

use std::io::{Read as _, Write as _};

use super::programs::{Log, Programs, ask, granting, hello, waits_until};
use super::server::Server;
use super::*;

#[test]
fn each_failed_lookup_of_a_job_has_an_entry() {
    let log = Log::new(None);
    let hosts = ["http://*.example.org".to_owned(), "*.example.org:2003".to_owned()];
    let mut settings = granting(&hosts, None);
    settings.network.resolver = Some(Arc::new(Names::default()));
    settings.network.log = Some(Arc::clone(&log) as _);
    let programs = Programs::with_report(settings, None, 2);
    // Without a lookup, at most 60 failures in a minute have entries.
    let attempts = 70;
    for number in 0..attempts {
        // The name carries data.
        let name = format!("data-{number}.example.org");
        let stream = programs.connect(&name, 80).expect("it is granted");
        let text = ask(stream, &name).expect("an answer");
        assert!(text.starts_with("HTTP/1.1 502"), "{text}");
        let mut stream = programs.connect(&name, 2003).expect("it is granted");
        stream.write_all(b"data").expect("it is sent");
        stream.read_to_end(&mut Vec::new()).expect_err("it breaks");
    }
    waits_until(|| log.records().len() == 2 * attempts);
    for record in log.records() {
        assert!(record.failed.is_some() && !record.refused, "{record:?}");
    }
}

#[test]
fn entry_of_a_job_has_the_path_without_the_query() {
    let server = Server::plain(hello);
    let host = format!("npm.test:{}", server.port());
    let log = Log::new(None);
    let mut settings = granting(&[format!("http://{host}")], None);
    settings.network.log = Some(Arc::clone(&log) as _);
    let programs = Programs::with_report(settings, None, 2);
    let mut stream = programs.connect("npm.test", server.port()).expect("it is granted");
    write!(stream, "GET /a/b?c=d HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
        .expect("it is sent");
    stream.read_to_end(&mut Vec::new()).expect("an answer");
    waits_until(|| log.records().len() == 1);
    assert_eq!(server.asked()[0].path(), "/a/b?c=d");
    assert_eq!(log.records()[0].path, "/a/b");
}
