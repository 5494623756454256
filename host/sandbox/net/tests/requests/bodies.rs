//! Tests of bodies: they are decompressed, bounded in size and time, and complete or an error.

use std::time::Duration;

use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZstdEncoder};
use http::Request;
use http_body_util::Full;
use tokio::io::AsyncWriteExt as _;
use toolhold_net::Error;

use crate::server::{Server, Wire, answer};
use crate::{Caller, run, settings};

/// Bytes in a content encoding.
async fn compressed(coding: &str, bytes: &[u8]) -> Vec<u8> {
    macro_rules! pack {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            encoder.write_all(bytes).await.expect("it is encoded");
            encoder.shutdown().await.expect("it is encoded");
            encoder.into_inner()
        }};
    }
    match coding {
        "gzip" => pack!(GzipEncoder),
        "br" => pack!(BrotliEncoder),
        _ => pack!(ZstdEncoder),
    }
}

fn text() -> Vec<u8> {
    (0..5000).flat_map(|line| format!("line {line} of a page\n").into_bytes()).collect()
}

#[test]
fn compressed_body_arrives_decompressed_and_without_its_headers() {
    run(async {
        for coding in ["gzip", "br", "zstd"] {
            let body = compressed(coding, &text()).await;
            let server = Server::plain(move |_, wire| {
                answer(wire, "200 OK", &[("content-encoding", coding)], &body)
            });
            let caller = Caller::new(settings(&[&server.address.to_string()]));
            // The host replaces the guest's `accept-encoding` by the encodings that it can decode.
            let request = Request::get(format!("http://{}/", server.address))
                .header("accept-encoding", "compress");
            let got = caller
                .send(request.body(Full::default()).expect("it is valid"))
                .await
                .expect("it answers");
            assert_eq!(got.body, text(), "{coding}");
            assert!(
                got.end.is_none()
                    && !got.headers.contains_key("content-encoding")
                    && !got.headers.contains_key("content-length")
            );
            assert_eq!(server.asked()[0].header("accept-encoding"), Some("gzip, br, zstd"));
            assert!(caller.requests()[0].received < 20_000, "compressed bytes are counted");
        }
    });
}

#[test]
fn decompression_bomb_is_stopped_at_the_limit() {
    run(async {
        for coding in ["gzip", "br", "zstd"] {
            // 16 MiB of zeros.
            let body = compressed(coding, &vec![0; 16 << 20]).await;
            let size = body.len() as u64;
            let server = Server::plain(move |_, wire| {
                answer(wire, "200 OK", &[("content-encoding", coding)], &body)
            });
            let caller = Caller::new(settings(&[&server.address.to_string()]));
            let got = caller.get(&format!("http://{}/", server.address)).await.expect("it answers");
            assert_eq!((got.body.len(), size < 1 << 20), (1 << 20, true), "{coding}");
            assert!(matches!(got.end, Some(Error::Body(_))), "{coding}: {:?}", got.end);
        }
    });
}

#[test]
fn invalid_compressed_body_ends_with_an_error() {
    run(async {
        let mut cut = compressed("gzip", &text()).await;
        cut.truncate(cut.len() / 2);
        let window = {
            // A frame that declares a window of 2 GiB.
            let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8];
            frame.extend([0x01, 0x00, 0x00]);
            frame
        };
        for (coding, body) in [
            ("gzip", b"this is no gzip".to_vec()),
            ("br", b"this is no brotli, and it can't be read".to_vec()),
            ("zstd", b"this is no zstd".to_vec()),
            ("gzip", cut),
            ("zstd", window),
            ("compress", b"old".to_vec()),
            ("gzip, gzip", b"twice".to_vec()),
            ("deflate", b"not requested".to_vec()),
        ] {
            let server = Server::plain(move |_, wire| {
                answer(wire, "200 OK", &[("content-encoding", coding)], &body)
            });
            let caller = Caller::new(settings(&[&server.address.to_string()]));
            let end = match caller.get(&format!("http://{}/", server.address)).await {
                Ok(got) => got.end,
                Err(error) => Some(error),
            };
            assert!(matches!(end, Some(Error::Coding(_))), "{coding}: {end:?}");
            assert!(caller.requests()[0].failed.is_some(), "{coding}");
        }
    });
}

#[test]
fn endless_body_is_stopped_at_the_limit() {
    run(async {
        for framing in
            ["transfer-encoding: chunked", "connection: close", "content-length: 1000000000000"]
        {
            let server = Server::plain(move |_, wire: &mut dyn Wire| {
                write!(wire, "HTTP/1.1 200 OK\r\n{framing}\r\n\r\n")?;
                let piece = vec![b'x'; 65536];
                loop {
                    if framing.ends_with("chunked") {
                        write!(wire, "{:x}\r\n", piece.len())?;
                        wire.write_all(&piece)?;
                        wire.write_all(b"\r\n")?;
                    } else {
                        wire.write_all(&piece)?;
                    }
                }
            });
            let caller = Caller::new(settings(&[&server.address.to_string()]));
            let got = caller.get(&format!("http://{}/", server.address)).await.expect("it answers");
            assert_eq!(got.body.len(), 1 << 20, "{framing}");
            assert!(matches!(got.end, Some(Error::Body(_))), "{framing}: {:?}", got.end);
            assert!(
                caller.requests()[0].received <= (1 << 20) + (1 << 19),
                "{framing}: {}",
                caller.requests()[0].received
            );
        }
    });
}

#[test]
fn body_at_its_limit_is_complete() {
    run(async {
        for size in [0, 1, (1 << 20) - 1, 1 << 20] {
            let server =
                Server::plain(move |_, wire| answer(wire, "200 OK", &[], &vec![b'x'; size]));
            let caller = Caller::new(settings(&[&server.address.to_string()]));
            let got = caller.get(&format!("http://{}/", server.address)).await.expect("it answers");
            assert_eq!((got.body.len(), got.end.is_none()), (size, true));
        }
        let server =
            Server::plain(move |_, wire| answer(wire, "200 OK", &[], &vec![b'x'; (1 << 20) + 1]));
        let caller = Caller::new(settings(&[&server.address.to_string()]));
        let got = caller.get(&format!("http://{}/", server.address)).await.expect("it answers");
        assert!(
            got.body.len() == 1 << 20 && matches!(got.end, Some(Error::Body(1_048_576))),
            "{:?}",
            got.end
        );
    });
}

#[test]
fn wrong_lengths_are_detected() {
    run(async {
        let server = Server::plain(|received, wire| {
            let text: &[u8] = match received.path() {
                "/short" => b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello",
                "/chunk" => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\nhello",
                "/negative" => b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nhello",
                "/two" => {
                    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!"
                }
                _ => {
                    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and HTTP/1.1 200 OK\r\n\r\n"
                }
            };
            wire.write_all(text)?;
            Err(std::io::Error::other("the connection ends"))
        });
        let caller = Caller::new(settings(&[&server.address.to_string()]));
        for path in ["short", "chunk", "negative", "two"] {
            let end = match caller.get(&format!("http://{}/{path}", server.address)).await {
                Ok(got) => got.end,
                Err(error) => Some(error),
            };
            assert!(
                matches!(end, Some(Error::Incomplete | Error::Protocol(_) | Error::Connection(_))),
                "{path}: {end:?}"
            );
        }
        // Bytes after the declared length don't belong to any answer.
        let got = caller.get(&format!("http://{}/long", server.address)).await.expect("it answers");
        assert_eq!(got.text(), "hello");
        let got = caller.get(&format!("http://{}/long", server.address)).await.expect("it answers");
        assert_eq!(got.text(), "hello");
    });
}

#[test]
fn slow_body_ends_with_a_timeout() {
    run(async {
        let server = Server::plain(|received, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhello")?;
            wire.flush()?;
            if received.path() == "/drip" {
                for _ in 0..1000 {
                    std::thread::park_timeout(Duration::from_millis(20));
                    wire.write_all(b".")?;
                    wire.flush()?;
                }
            }
            // Sends nothing more until the client closes the connection.
            wire.read_exact(&mut [0])
        });
        let mut settings = settings(&[&server.address.to_string()]);
        settings.limits.idle = Duration::from_millis(200);
        let got = Caller::new(settings.clone())
            .get(&format!("http://{}/", server.address))
            .await
            .expect("it answers");
        assert!(
            got.text() == "hello"
                && matches!(&got.end, Some(Error::Timeout(Some(bound))) if bound.starts_with("no data arrived")),
            "{got:?}"
        );
        settings.limits.idle = Duration::from_secs(10);
        settings.limits.time = Duration::from_millis(300);
        let got = Caller::new(settings)
            .get(&format!("http://{}/drip", server.address))
            .await
            .expect("it answers");
        assert!(got.text().starts_with("hello"), "{got:?}");
        assert!(
            matches!(&got.end, Some(Error::Timeout(Some(bound))) if bound.starts_with("the key limits a request to")),
            "{got:?}"
        );
    });
}

#[test]
fn body_of_a_request_is_bounded() {
    run(async {
        let server = Server::plain(|received, wire| {
            answer(wire, "200 OK", &[], received.body.len().to_string().as_bytes())
        });
        let caller = Caller::new(settings(&[&server.address.to_string()]));
        let post = |size: usize| {
            Request::post(format!("http://{}/", server.address))
                .body(Full::from(vec![b'x'; size]))
                .expect("it is valid")
        };
        assert_eq!(caller.send(post(1 << 20)).await.expect("it fits").text(), "1048576");
        let got = caller.send(post((1 << 20) + 1)).await;
        assert!(matches!(got, Err(Error::RequestBody(1_048_576))), "{got:?}");
        assert_eq!(server.asked().len(), 1);
    });
}
