//! Decides on the connections of a command by the hosts that are granted.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, getsockname, sockopt};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{ConnectionGate, Denial, ProgramConnection, Report};
use toolhold_policy::egress::{Scheme, Target, TargetHost};

use super::access::HostAccess;
use super::connection::AllowedConnection;
use super::connection_record::CONNECT;
use super::host_questions::HostQuestions;
use super::pair::RELAY_TIME;
use super::relay::HostRelay;
use crate::Error;

/// The port of DNS servers.
const DNS: u16 = 53;

/// Bytes of a program's name that a record shows.
const MAX_PROGRAM: usize = 64;

/// Decides on the connections of commands.
pub struct HostGate {
    relay: Arc<HostRelay>,
    access: Arc<HostAccess>,
    /// The report of the call. `None` for commands that continue after their call, whose
    /// connections are recorded one by one.
    report: Option<Arc<Report>>,
    /// The newest denial and its time.
    last_denial: Mutex<Option<(Instant, Denial)>>,
    /// Asks about hosts that no entry grants. `None` if these hosts are denied.
    questions: Option<Arc<HostQuestions>>,
    /// The time of the decisions before this command, which doesn't count for this command.
    waited_before: Duration,
}

impl fmt::Debug for HostGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostGate").field("access", &self.access).finish_non_exhaustive()
    }
}

impl HostGate {
    /// Makes the gate for commands in the network of `relay`. `report` gets the connections.
    /// Without a report, the commands continue after their call, and
    /// [`Network::log`](crate::Network::log) gets the connections.
    pub fn new(
        relay: Arc<HostRelay>,
        access: Arc<HostAccess>,
        report: Option<Arc<Report>>,
    ) -> Self {
        let last_denial = Mutex::default();
        let waited_before = Duration::ZERO;
        let own_access = relay.own_access(&access);
        Self { relay, access: own_access, report, last_denial, questions: None, waited_before }
    }

    /// Lets `questions` decide on hosts that no entry grants.
    #[must_use]
    pub fn with_questions(self, questions: HostQuestions) -> Self {
        let waited_before = questions.waits().total();
        Self { questions: Some(Arc::new(questions)), waited_before, ..self }
    }

    /// Returns the newest denial of a connection, and its time.
    pub fn last_denial(&self) -> Option<(Instant, Denial)> {
        self.last_denial.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the questions, if a person can approve a host that no entry grants.
    fn questions_about(&self, host: &TargetHost) -> Option<&Arc<HostQuestions>> {
        if self.access.egress.settings().reach.can_be_opened(host) {
            self.questions.as_ref()
        } else {
            None
        }
    }

    /// Returns the host that a program wants to reach at an address.
    fn host_of(&self, address: IpAddr) -> TargetHost {
        match self.relay.name_of(address) {
            Some(name) => TargetHost::Name(name),
            None => TargetHost::Address(address.to_canonical()),
        }
    }

    /// Decides whether the rules allow a host and a port. The scheme isn't known yet, so either
    /// scheme may be granted.
    fn check(&self, host: &TargetHost, port: u16) -> Result<(), Denial> {
        let reach = &self.access.egress.settings().reach;
        let target = |scheme| Target { scheme, host: host.clone(), port };
        let Err(denial) = reach.connection(&target(Scheme::Https)) else { return Ok(()) };
        match reach.connection(&target(Scheme::Http)) {
            Ok(()) => Ok(()),
            // For the port of plain HTTP, the denial names `http://`.
            Err(other) if port == Scheme::Http.port() => Err(other),
            Err(_) => Err(denial),
        }
    }

    /// Decides on a connection. If a person can approve it, the relay asks later.
    fn decide(&self, address: SocketAddr, program: &str) -> io::Result<AllowedConnection> {
        let mut wanted = AllowedConnection {
            host: self.host_of(address.ip()),
            port: address.port(),
            program: neutral_line(cut(program, MAX_PROGRAM)),
            access: Arc::clone(&self.access),
            questions: None,
            report: self.report.clone(),
            failures: self.relay.failures(),
        };
        if let Err(denial) = self.check(&wanted.host, wanted.port) {
            let questions = self.questions_about(&wanted.host);
            let known_denial =
                questions.and_then(|questions| questions.denial(&wanted.host, wanted.port));
            let (Some(questions), None) = (questions, &known_denial) else {
                self.record_denial(&wanted, known_denial.unwrap_or(denial));
                return Err(Errno::ACCESS.into());
            };
            wanted.questions = Some(Arc::clone(questions));
        }
        Ok(wanted)
    }

    fn record_denial(&self, connection: &AllowedConnection, denial: Denial) {
        let record = connection.record(Scheme::Https, CONNECT);
        if let Some(report) = &self.report {
            report.say(neutral_line(&denial.to_string()));
        }
        *self.last_denial.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), denial.clone()));
        record.set_failure(&Error::Refused(Box::new(denial)));
    }
}

impl ConnectionGate for HostGate {
    fn connect(&self, connection: &ProgramConnection<'_>) -> io::Result<()> {
        let ProgramConnection { socket, address, program } = connection;
        let is_mapped = matches!(address.ip(), IpAddr::V6(six) if six.to_ipv4_mapped().is_some());
        let is_v6 = sockopt::socket_domain(socket)? == AddressFamily::INET6;
        let wanted = self.decide(*address, program)?;
        let Some(relay) = self.relay.address(is_v6, is_mapped) else {
            return Err(Errno::NETUNREACH.into());
        };

        let connected = connect_to(*socket, relay);
        match connected {
            Ok(()) | Err(Errno::INPROGRESS) => {
                let from = SocketAddr::try_from(getsockname(socket)?)?;
                self.relay.expect(from, wanted)?;
                Ok(connected?)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn open(&self, address: SocketAddr, program: &str) -> io::Result<OwnedFd> {
        let ip = address.ip().to_canonical();
        let has_name = self.relay.name_of(ip).is_some();
        // The lookups of a program go to the servers of the machine's settings. None of them gets
        // the name.
        if address.port() == DNS && !has_name {
            return self.relay.connect_to_resolver();
        }
        // A program's own loopback has no servers, and the machine's isn't open to it.
        if ip.is_loopback() || ip.is_unspecified() {
            return Err(Errno::CONNREFUSED.into());
        }
        let wanted = self.decide(address, program)?;
        let target = wanted.target(Scheme::Https);
        if self.access.reads_requests(&target) {
            let denial = unread(&target, self.access.reason_to_read(&target));
            self.record_denial(&wanted, denial);
            return Err(Errno::ACCESS.into());
        }
        self.relay.connect(wanted)
    }

    fn waited(&self) -> Duration {
        let total = self.questions.as_ref().map(|questions| questions.waits().total());
        total.unwrap_or_default().saturating_sub(self.waited_before)
    }
}

/// Returns the denial of a connection whose requests would be read. `reason` is the reason to read
/// them.
fn unread(target: &Target, reason: String) -> Denial {
    Denial {
        capability: "http".to_owned(),
        action: format!("{CONNECT} {}", target.origin()),
        rule: "requests in TLS can be read only with the namespaces of the sandbox, which this \
               machine doesn't allow"
            .to_owned(),
        place: reason,
        remedy:
            "`toolhold doctor` shows how to allow them. Without this reason, the connection is \
                 passed on unread."
                .to_owned(),
    }
}

/// Connects a socket of a program to the relay. For a non-blocking socket, the usual result is
/// [`Errno::INPROGRESS`], as the program expects.
fn connect_to(socket: BorrowedFd<'_>, relay: SocketAddr) -> Result<(), Errno> {
    let flags = fcntl_getfl(socket)?;
    if flags.contains(OFlags::NONBLOCK) {
        return rustix::net::connect(socket, &relay);
    }
    // A program can fill the relay's queue, and must not be able to stop this thread.
    fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
    let connected = match rustix::net::connect(socket, &relay) {
        Err(Errno::INPROGRESS) => wait_for_connection(socket),
        connected => connected,
    };
    fcntl_setfl(socket, flags)?;
    connected
}

fn wait_for_connection(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let timeout = Timespec::try_from(RELAY_TIME).map_err(|_| Errno::INVAL)?;
    if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&timeout))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    sockopt::socket_error(socket)?
}
