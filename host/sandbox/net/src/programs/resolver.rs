//! Answers the DNS queries of programs with synthetic addresses. No query leaves the machine.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use toolhold_policy::egress::{Target, TargetHost};

use super::names::Names;

/// Bytes of the longest query. A longer query isn't answered.
const MAX_QUERY: usize = 4096;

/// How long programs may remember an answer, in seconds. The time is short, because a name may lose
/// its address later.
const TTL: u32 = 60;

/// Time limit for a query on a TCP connection, and number of such connections.
const TCP_TIME: Duration = Duration::from_secs(10);
const MAX_TCP: usize = 16;

/// No connection is accepted for this time if the host has too many open files.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Answers queries on a UDP socket. Returns if the socket fails.
pub(super) async fn serve_udp(socket: UdpSocket, names: Arc<Mutex<Names>>) -> io::Result<()> {
    let mut query = [0; MAX_QUERY];
    loop {
        let (length, from) = match socket.recv_from(&mut query).await {
            Ok(received) => received,
            // The program of an earlier query has closed its socket. This socket still works.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        };
        if let Some(answer) = answer(&query[..length], &names) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// Answers queries on TCP connections.
pub(super) async fn serve_tcp(listener: TcpListener, names: Arc<Mutex<Names>>) {
    let permits = Arc::new(Semaphore::new(MAX_TCP));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // The host has too many open files.
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // A connection beyond the limit is closed.
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let names = Arc::clone(&names);
        tokio::spawn(async move {
            let _permit = permit;
            let _ = answer_stream(stream, &names).await;
        });
    }
}

/// Answers the queries of one TCP connection. The length of a message comes before the message.
pub(super) async fn answer_stream(mut stream: TcpStream, names: &Mutex<Names>) -> io::Result<()> {
    loop {
        let length = timeout(TCP_TIME, stream.read_u16()).await??;
        let mut query = vec![0; usize::from(length).min(MAX_QUERY)];
        timeout(TCP_TIME, stream.read_exact(&mut query)).await??;
        let Some(answer) = answer(&query, names) else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        stream.write_u16(length).await?;
        stream.write_all(&answer).await?;
    }
}

/// Returns the answer to a query. Returns `None` if the query can't be parsed.
fn answer(query: &[u8], names: &Mutex<Names>) -> Option<Vec<u8>> {
    let request = Message::from_vec(query).ok()?;
    if request.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut response = Message::response(request.metadata.id, request.metadata.op_code);
    response.metadata.recursion_desired = request.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    match &request.queries[..] {
        [query] if request.metadata.op_code == OpCode::Query => {
            add_answer(&mut response, query, names);
        }
        _ => response.metadata.response_code = ResponseCode::NotImp,
    }
    response.to_vec().ok()
}

/// Adds the answer to one question. A host has one IPv4 address, and no records of other types.
fn add_answer(response: &mut Message, query: &Query, names: &Mutex<Names>) {
    response.add_query(query.clone());
    let written = query.name().to_ascii();
    let target = Target::parse(&format!("https://{written}/"));
    let host = target.ok().map(|target| target.host);
    let Some(TargetHost::Name(name)) = host else {
        response.metadata.response_code = ResponseCode::NXDomain;
        return;
    };
    if query.query_class() != DNSClass::IN || query.query_type() != RecordType::A {
        return;
    }
    let address = match &*name {
        "localhost" => std::net::Ipv4Addr::LOCALHOST,
        name => names.lock().unwrap_or_else(PoisonError::into_inner).address_of(name),
    };
    let data = RData::A(address.into());
    response.add_answer(Record::from_rdata(query.name().clone(), TTL, data));
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::Name;

    use super::*;

    /// Asks for a record. Returns the code and the records of the answer.
    fn ask(name: &str, kind: RecordType) -> (ResponseCode, Vec<String>) {
        let names = Mutex::default();
        let mut query = Message::query();
        query.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
        let answer = answer(&query.to_vec().expect("it is small"), &names).expect("an answer");
        let answer = Message::from_vec(&answer).expect("it is valid");
        assert_eq!(answer.metadata.id, query.metadata.id);
        let records = answer.answers.iter().map(|record| record.data.to_string());
        (answer.metadata.response_code, records.collect())
    }

    #[test]
    fn host_has_one_ipv4_address_and_nothing_else() {
        let found = |text: &str| (ResponseCode::NoError, vec![text.to_owned()]);
        assert_eq!(ask("example.org.", RecordType::A), found("198.18.0.1"));
        assert_eq!(ask("EXAMPLE.org", RecordType::A), found("198.18.0.1"));
        assert_eq!(ask("localhost.", RecordType::A), found("127.0.0.1"));
        for kind in [RecordType::AAAA, RecordType::TXT, RecordType::HTTPS, RecordType::ANY] {
            assert_eq!(ask("example.org.", kind), (ResponseCode::NoError, vec![]), "{kind}");
        }
        assert_eq!(ask(".", RecordType::A).0, ResponseCode::NXDomain);
    }

    #[test]
    fn invalid_query_is_not_answered() {
        let names = Mutex::default();
        for query in [&b""[..], b"x", &[0xff; 12], &[0; 4096]] {
            let answer = answer(query, &names).map(|bytes| Message::from_vec(&bytes));
            assert!(answer.is_none_or(|answer| answer.is_ok_and(|one| one.answers.is_empty())));
        }
        assert!(names.lock().expect("a lock").name_of([198, 18, 0, 1].into()).is_none());
    }
}
