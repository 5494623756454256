//! Servers on loopback that answer as a test says, and record the requests.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A request as a server received it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The first line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// A connection.
pub(crate) trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

type Answer = dyn Fn(&Asked, &mut dyn Wire) -> io::Result<()> + Send + Sync;

/// A server that runs until it is dropped. Each connection serves requests until the client closes
/// it or an answer fails.
pub(crate) struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn plain(
        answer: impl Fn(&Asked, &mut dyn Wire) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let answer: Arc<Answer> = Arc::new(answer);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let (received, connections, stopping) = (
            Arc::<Mutex<Vec<Asked>>>::default(),
            Arc::<AtomicUsize>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (seen, count, flag) =
            (Arc::clone(&received), Arc::clone(&connections), Arc::clone(&stopping));
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Self { address, received, connections, stopping, accepting: Some(accepting) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.received.lock().expect("nobody panicked").clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Asked>>, answer: &Answer) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let mut asked = Asked { head, body: Vec::new() };
        let length = asked.header("content-length").and_then(|length| length.parse().ok());
        asked.body.resize(length.unwrap_or(0), 0);
        reader.read_exact(&mut asked.body)?;
        seen.lock().expect("nobody panicked").push(asked.clone());
        answer(&asked, reader.get_mut())?;
        reader.get_mut().flush()?;
    }
}

/// Writes a complete answer.
pub(crate) fn answer(
    wire: &mut dyn Wire,
    status: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<()> {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(wire, "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len())?;
    wire.write_all(body)
}
