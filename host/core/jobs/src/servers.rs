//! Finds the job that listens at a port of the session's loopback.

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

/// The state of a listening socket in the kernel's list.
const LISTENS: &str = "0A";

/// Maximum length of a line in the list.
const MAX_LINE: u64 = 512;

/// Maximum number of sockets that may listen at one port, because programs may share a port. If
/// there are more, the search fails.
const MAX_SHARED: usize = 256;

/// The fields of a line in the list.
const LOCAL_ADDRESS: usize = 1;
const STATE: usize = 3;
const INODE: usize = 9;

/// Number of hexadecimal digits for each four bytes of an address.
const DIGITS_OF_WORD: usize = 8;

impl SessionJobs {
    /// Returns a finder for servers among the jobs. The finder doesn't keep the session alive.
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
        let running = running_jobs(&session);
        // The search takes time, so don't keep the session alive until it is done.
        drop(session);
        if running.is_empty() {
            return Err(NoJobServer::NotListening);
        }

        let (version_4, version_6) =
            network.loopback().map_err(|error| NoJobServer::Failed(error.to_string()))?;
        let mut listening = listeners(version_4.list.into(), port, until)?;
        let mut version_6_socket = None;
        if let Some(version_6) = version_6 {
            listening.extend(listeners(version_6.list.into(), port, until)?);
            version_6_socket = Some(version_6.socket);
        }

        // Return the first address at which a job listens.
        for address in addresses {
            let accepting = listening.iter().filter(|(bound, _)| accepts(*bound, *address));
            let sockets: HashSet<u64> = accepting.map(|(_, socket)| *socket).collect();
            let Some(job) = find_owner(&running, sockets, until)? else { continue };
            let socket = match address {
                IpAddr::V4(_) => version_4.socket,
                IpAddr::V6(_) => match version_6_socket {
                    Some(socket) => socket,
                    None => continue,
                },
            };
            let address = SocketAddr::new(*address, port);
            return Ok(JobServer { job, address, socket: Box::new(socket) });
        }
        Err(NoJobServer::NotListening)
    }
}

/// Returns the IDs and the process IDs of the running jobs.
fn running_jobs(session: &SessionInner) -> Vec<(String, i32)> {
    let mut running = Vec::new();
    for job in session.jobs().iter().filter(|job| !job.has_ended()) {
        if let Some(process) = job.process.get() {
            running.push((job.id.clone(), *process));
        }
    }
    running
}

/// Returns the addresses and the inode numbers of the sockets that listen at a port. `list` is the
/// kernel's list of sockets.
///
/// # Errors
///
/// Returns an error if the list can't be read before `until`, or has too many sockets.
fn listeners(list: File, port: u16, until: Instant) -> Result<Vec<(IpAddr, u64)>, NoJobServer> {
    let mut list = BufReader::new(list);
    let mut listeners = Vec::new();
    let mut line = String::new();
    // Skip the line with the names of the columns.
    read_line(&mut list, &mut line)?;
    while read_line(&mut list, &mut line)? > 0 {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // The kernel lists the listening sockets first, so the many other sockets aren't read.
        let is_listening = fields.get(STATE) == Some(&LISTENS);
        if !is_listening {
            break;
        }
        let Some(local_address) = fields.get(LOCAL_ADDRESS) else { break };
        if let Some((address, local_port)) = parse_address(local_address)
            && local_port == port
            && let Some(inode) = fields.get(INODE).and_then(|inode| inode.parse().ok())
        {
            listeners.push((address, inode));
        }
        if listeners.len() > MAX_SHARED {
            let reason = format!("more than {MAX_SHARED} sockets listen at port {port}, the limit");
            return Err(NoJobServer::Failed(reason));
        }
        check_time(until)?;
    }
    Ok(listeners)
}

/// Replaces `line` with the next line. Returns its length, or 0 at the end.
fn read_line(list: &mut BufReader<File>, line: &mut String) -> Result<usize, NoJobServer> {
    line.clear();
    let length = list.by_ref().take(MAX_LINE).read_line(line);
    length.map_err(|error| NoJobServer::Failed(error.to_string()))
}

/// Parses an address in the kernel's list: `ADDRESS:PORT` in hexadecimal digits.
fn parse_address(text: &str) -> Option<(IpAddr, u16)> {
    let (address_digits, port_digits) = text.split_once(':')?;
    let port = u16::from_str_radix(port_digits, 16).ok()?;
    if address_digits.len() % DIGITS_OF_WORD != 0 {
        return None;
    }
    let mut words = Vec::new();
    for start in (0..address_digits.len()).step_by(DIGITS_OF_WORD) {
        let digits = address_digits.get(start..start + DIGITS_OF_WORD)?;
        // The kernel writes each word in the byte order of this machine.
        words.push(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes());
    }
    let bytes = words.concat();
    let address = if let Ok(bytes) = <[u8; 4]>::try_from(bytes.as_slice()) {
        IpAddr::V4(Ipv4Addr::from(bytes))
    } else {
        IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?))
    };
    Some((address, port))
}

/// Checks whether a socket bound to `bound` accepts connections to `address`. IPv6 sockets may
/// accept connections to IPv4 addresses.
fn accepts(bound: IpAddr, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => {
            // An IPv6 socket may be bound to an IPv4 address, such as `::ffff:127.0.0.1`.
            let canonical = bound.to_canonical();
            canonical == address || canonical.is_unspecified()
        }
        IpAddr::V6(_) => bound == address || bound == Ipv6Addr::UNSPECIFIED,
    }
}

/// Returns the first job that owns one of the sockets. Returns `None` if a process outside of the
/// jobs owns one of the sockets. `running` has the ID and the top process of each running job.
///
/// # Errors
///
/// Returns an error if the search isn't complete before `until`.
fn find_owner(
    running: &[(String, i32)],
    mut sockets: HashSet<u64>,
    until: Instant,
) -> Result<Option<String>, NoJobServer> {
    if sockets.is_empty() {
        return Ok(None);
    }
    let mut owner = None;
    for (id, top_process) in running {
        let Some(top_process) = Pid::from_raw(*top_process) else { continue };
        for process in below(top_process) {
            let folder = format!("/proc/{}/fd", process.pid);
            // A process may have just ended, or may hide its descriptors.
            let Ok(descriptors) = fs::read_dir(folder) else { continue };
            for descriptor in descriptors.flatten() {
                check_time(until)?;
                let Some(socket) = socket_inode(&descriptor) else { continue };
                let is_searched = sockets.remove(&socket);
                if is_searched && owner.is_none() {
                    owner = Some(id.clone());
                }
                if sockets.is_empty() {
                    return Ok(owner);
                }
            }
        }
    }
    Ok(None)
}

fn socket_inode(descriptor: &fs::DirEntry) -> Option<u64> {
    let target = fs::read_link(descriptor.path()).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn check_time(until: Instant) -> Result<(), NoJobServer> {
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
        assert!(own_sockets.flatten().any(|entry| socket_inode(&entry) == Some(socket)));
        // It is this process's, and not one of a process below it.
        let jobs = [("job".to_owned(), here)];
        assert_eq!(find_owner(&jobs, HashSet::from([socket]), until), Ok(None));
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
