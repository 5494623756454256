//! A server on loopback for the benches.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// A content and its type.
pub(crate) type Content = (&'static str, Arc<Vec<u8>>);

/// Answers requests for as long as this process lives. `find`: the content at a path, if there is
/// one.
///
/// # Errors
///
/// There is no free port.
pub(crate) fn serve(
    find: impl Fn(&str) -> Option<Content> + Send + Sync + 'static,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let find = Arc::new(find);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let find = Arc::clone(&find);
            std::thread::spawn(move || answer(stream, &*find));
        }
    });
    Ok(address)
}

fn answer(stream: TcpStream, find: impl Fn(&str) -> Option<Content>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        let (status, (kind, bytes)) = match find(first.split(' ').nth(1).unwrap_or_default()) {
            Some(found) => ("200 OK", found),
            None => ("404 Not Found", ("text/plain", Arc::default())),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            bytes.len()
        );
        reader.get_mut().write_all(&[head.as_bytes(), &bytes].concat())?;
    }
}
