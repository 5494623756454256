//! A server of files on this machine. It can continue a file, and cut answers off.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// It serves until the test ends.
pub(crate) struct Server {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    folder: PathBuf,
    /// Bytes after which the next answers with an archive are cut off.
    cuts: Mutex<Vec<usize>>,
    /// Of each request for an archive, the byte at which it begins.
    starts: Mutex<Vec<usize>>,
}

impl Server {
    pub(crate) fn new(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has one");
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            cuts: Mutex::default(),
            starts: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // A client that goes away is not its business.
                let _ = serving.answer(&connection);
            }
        });
        Self { url: format!("http://{address}"), shared }
    }

    /// Cuts off the next answers with an archive after these numbers of bytes.
    pub(crate) fn cut(&self, cuts: &[usize]) {
        let mut next = cuts.to_vec();
        next.reverse();
        *self.shared.cuts.lock().expect("no thread panics") = next;
    }

    /// Of each request for an archive so far, the byte at which it begins.
    pub(crate) fn starts(&self) -> Vec<usize> {
        std::mem::take(&mut *self.shared.starts.lock().expect("no thread panics"))
    }
}

impl Shared {
    fn answer(&self, mut connection: &TcpStream) -> std::io::Result<()> {
        let mut path = String::new();
        let mut start = 0;
        for line in BufReader::new(connection).lines() {
            let line = line?;
            if let Some(rest) = line.strip_prefix("GET /") {
                path = rest.split(' ').next().unwrap_or_default().to_owned();
            }
            if let Some(range) = line.strip_prefix("Range: bytes=") {
                start = range.trim_end_matches('-').parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        let Ok(content) = fs::read(self.folder.join(path.rsplit('/').next().unwrap_or_default()))
        else {
            return connection.write_all(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        };
        let mut cut = None;
        if path.ends_with(".tar.gz") {
            self.starts.lock().expect("no thread panics").push(start);
            cut = self.cuts.lock().expect("no thread panics").pop();
        }
        let Some(rest) = content.get(start..).filter(|rest| !rest.is_empty()) else {
            return connection.write_all(b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        };
        let status = if start == 0 { "200 OK" } else { "206 Partial Content" };
        let (last, length) = (content.len() - 1, content.len());
        write!(
            connection,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{last}/{length}\r\n\
             Connection: close\r\n\r\n",
            rest.len()
        )?;
        connection.write_all(&rest[..cut.unwrap_or(rest.len()).min(rest.len())])
    }
}
