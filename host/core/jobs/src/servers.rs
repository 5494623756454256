//! Finds which job of a session listens at a port of the session's loopback.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Instant;

use rustix::process::Pid;
use toolhold_contract::{JobServer, JobServers, NoJobServer};
use toolhold_system::process::SharedNetwork;
use toolhold_system::processes::below;

use crate::jobs::{SessionInner, SessionJobs};

/// The state of a socket that listens, in the kernel's list.
const LISTENS: &str = "0A";

/// Most bytes of a line of that list.
const MAX_LINE: u64 = 512;

/// Most sockets that listen at one port, which programs may share.
const MAX_SHARED: usize = 256;

impl SessionJobs {
    /// Finds the servers among the jobs. It doesn't keep the session alive.
    pub fn servers(&self) -> Arc<dyn JobServers> {
        Arc::new(Servers(Arc::downgrade(&self.0)))
    }
}

#[derive(Debug)]
struct Servers(Weak<SessionInner>);

impl JobServers for Servers {
    fn find(
        &self,
        addresses: &[IpAddr],
        port: u16,
        until: Instant,
    ) -> Result<JobServer, NoJobServer> {
        let session = self.0.upgrade().ok_or(NoJobServer::NotListening)?;
        let network = session.network.get::<SharedNetwork>().ok_or(NoJobServer::NotListening)?;
        let running: Vec<(String, i32)> = session
            .jobs()
            .iter()
            .filter(|job| !job.has_ended())
            .filter_map(|job| Some((job.id.clone(), *job.process.get()?)))
            .collect();
        drop(session);
        if running.is_empty() {
            return Err(NoJobServer::NotListening);
        }
        let (four, six) =
            network.loopback().map_err(|error| NoJobServer::Failed(error.to_string()))?;
        let mut listening = listeners(four.list.into(), port, until)?;
        let six = match six {
            Some(six) => {
                listening.extend(listeners(six.list.into(), port, until)?);
                Some(six.socket)
            }
            None => None,
        };
        for address in addresses {
            let sockets: HashSet<u64> = listening
                .iter()
                .filter(|(bound, _)| accepts(*bound, *address))
                .map(|(_, socket)| *socket)
                .collect();
            let Some(job) = owner(&running, sockets, until)? else { continue };
            let socket = match address {
                IpAddr::V4(_) => four.socket,
                IpAddr::V6(_) => match six {
                    Some(six) => six,
                    None => continue,
                },
            };
            let socket = Box::new(socket);
            return Ok(JobServer { job, address: SocketAddr::new(*address, port), socket });
        }
        Err(NoJobServer::NotListening)
    }
}

/// The addresses and the numbers of the sockets that listen at a port.
fn listeners(list: File, port: u16, until: Instant) -> Result<Vec<(IpAddr, u64)>, NoJobServer> {
    let mut list = BufReader::new(list);
    let mut found = Vec::new();
    let mut line = String::new();
    let mut is_title = true;
    loop {
        line.clear();
        let read = list.by_ref().take(MAX_LINE).read_line(&mut line);
        if read.map_err(|error| NoJobServer::Failed(error.to_string()))? == 0 {
            return Ok(found);
        }
        if std::mem::take(&mut is_title) {
            continue;
        }
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // The listening sockets come first. A program can have very many others.
        let (Some(local), Some(&LISTENS)) = (fields.get(1), fields.get(3)) else {
            return Ok(found);
        };
        if let Some((address, of)) = parse_address(local)
            && of == port
            && let Some(number) = fields.get(9).and_then(|number| number.parse().ok())
        {
            found.push((address, number));
        }
        if found.len() > MAX_SHARED {
            let why = format!("more than {MAX_SHARED} sockets listen at port {port}, the limit");
            return Err(NoJobServer::Failed(why));
        }
        in_time(until)?;
    }
}

/// An address of the kernel's list: the words of the address and the port, in hexadecimal digits.
fn parse_address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = [0; 16];
    if address.len() % 8 != 0 {
        return None;
    }
    let words = address.len() / 8;
    for (index, place) in bytes.chunks_mut(4).take(words).enumerate() {
        let word = address.get(index * 8..index * 8 + 8)?;
        // Each word is the machine's.
        place.copy_from_slice(&u32::from_str_radix(word, 16).ok()?.to_ne_bytes());
    }
    let address = match words {
        1 => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        4 => IpAddr::V6(Ipv6Addr::from(bytes)),
        _ => return None,
    };
    Some((address, port))
}

/// Whether a socket that is bound to an address may accept connections to another one. A socket of
/// version 6 may accept those of version 4.
fn accepts(bound: IpAddr, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => bound.to_canonical() == address || bound.to_canonical().is_unspecified(),
        IpAddr::V6(_) => bound == address || bound == Ipv6Addr::UNSPECIFIED,
    }
}

/// The job that has one of the sockets, if jobs have all of them.
fn owner(
    running: &[(String, i32)],
    mut sockets: HashSet<u64>,
    until: Instant,
) -> Result<Option<String>, NoJobServer> {
    let mut found = None;
    if sockets.is_empty() {
        return Ok(found);
    }
    for (id, process) in running {
        for process in Pid::from_raw(*process).map(below).unwrap_or_default() {
            // A process that has just ended, or that hides, has nothing.
            let folder = format!("/proc/{}/fd", process.pid);
            let Ok(descriptors) = fs::read_dir(folder) else { continue };
            for descriptor in descriptors.flatten() {
                in_time(until)?;
                let Some(socket) = socket_number(&descriptor) else { continue };
                if sockets.remove(&socket) {
                    found.get_or_insert_with(|| id.clone());
                }
                if sockets.is_empty() {
                    return Ok(found);
                }
            }
        }
    }
    Ok(None)
}

fn socket_number(descriptor: &fs::DirEntry) -> Option<u64> {
    let target = fs::read_link(descriptor.path()).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn in_time(until: Instant) -> Result<(), NoJobServer> {
    if Instant::now() < until {
        return Ok(());
    }
    Err(NoJobServer::Failed("looking for the job's server took too long".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_found_in_the_list_of_the_kernel() {
        let own = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = own.local_addr().expect("it is bound").port();
        let until = Instant::now() + std::time::Duration::from_secs(20);
        let list = || File::open("/proc/self/net/tcp").expect("it can be read");
        let found = listeners(list(), port, until).expect("it is read");
        let [(address, socket)] = found[..] else { panic!("one listens: {found:?}") };
        assert_eq!(address, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let here = i32::try_from(std::process::id()).expect("it is small");
        let own_sockets = fs::read_dir(format!("/proc/{here}/fd")).expect("it can be read");
        assert!(own_sockets.flatten().any(|entry| socket_number(&entry) == Some(socket)));
        // It is this process's, and not one of a process below it.
        let jobs = [("job".to_owned(), here)];
        assert_eq!(owner(&jobs, HashSet::from([socket]), until), Ok(None));
        drop(own);
        assert_eq!(listeners(list(), port, until), Ok(Vec::new()));
        assert!(matches!(listeners(list(), port, Instant::now()), Err(NoJobServer::Failed(_))));
    }

    #[test]
    fn socket_accepts_connections_to_its_own_address() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (bound, to, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("::", "127.0.0.1", true),
            ("::ffff:127.0.0.1", "127.0.0.1", true),
            ("::ffff:0.0.0.0", "127.0.0.1", true),
            ("::1", "::1", true),
            ("::", "::1", true),
            ("127.0.0.2", "127.0.0.1", false),
            ("::1", "127.0.0.1", false),
            ("0.0.0.0", "::1", false),
            ("127.0.0.1", "::1", false),
            ("::ffff:0.0.0.0", "::1", false),
        ] {
            assert_eq!(accepts(address(bound), address(to)), expected, "{bound} {to}");
        }
        let local = Ipv6Addr::LOCALHOST.octets();
        let words: String = local
            .chunks(4)
            .map(|word| format!("{:08X}", u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
            .collect();
        assert_eq!(parse_address(&format!("{words}:0050")), Some((address("::1"), 80)));
        for wrong in [
            "",
            ":",
            "0100007F",
            "0100007F:",
            "0100007F0100007F:0050",
            "01000:0050",
            "é100007:0050",
        ] {
            assert_eq!(parse_address(wrong), None, "{wrong}");
        }
    }
}
