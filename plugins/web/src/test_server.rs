//! A server for unit tests of the web tools. It answers one request.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

pub(crate) struct TestServer {
    pub(crate) url: String,
    request: JoinHandle<String>,
}

impl TestServer {
    pub(crate) fn answer_once(answer: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = answer.to_vec();
        let serve = move || {
            let mut stream = listener.accept().unwrap().0;
            let mut request = Vec::new();
            // The client sends the length of its body as the last header.
            loop {
                let mut buffer = [0; 4096];
                let read = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&request).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length: usize =
                        head.rsplit_once("content-length: ").unwrap().1.parse().unwrap();
                    if body.len() >= length {
                        break;
                    }
                }
                assert!(read > 0, "the request ends too early");
            }
            stream.write_all(&answer).unwrap();
            String::from_utf8(request).unwrap()
        };
        Self { url, request: thread::spawn(serve) }
    }

    /// The request that the server got.
    pub(crate) fn request(self) -> String {
        self.request.join().unwrap()
    }
}

/// An answer with a page.
pub(crate) fn html(page: &str) -> Vec<u8> {
    format!("HTTP/1.0 200 OK\r\ncontent-type: text/html; charset=utf-8\r\n\r\n{page}").into_bytes()
}
