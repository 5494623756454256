//! Decides which hosts the requests of one plugin may reach.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use toolhold_contract::Denial;
use toolhold_contract::text::{cut, neutral_line, toml};

use super::address::{Forbidden, forbidden, forbidden_name, reached_address};
use super::path::PathPattern;
use super::pattern::{HostPattern, HostPatternError, PortError, PrivateHosts, with_port};
use super::target::{LOCALHOST, Scheme, Target, TargetHost};
use crate::origin::{Origin, OriginKind, OwnTable, Placed};

/// The method and the path that stand for the unknown requests of a connection. Only a grant for
/// all methods and all paths matches them.
pub(super) const CONNECT: &str = "CONNECT";
const NO_PATH: &str = "";

/// Bytes of a method that a denial shows. A longer method, which a guest may send, is cut.
const MAX_METHOD: usize = 32;

/// Bytes of an entry that an error shows. A longer entry is cut.
const MAX_WRITTEN: usize = 260;

/// The entry of a list of hosts that stands for the servers of the session's jobs.
pub const JOB: &str = "job";

/// A grant that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostGrantError {
    /// The origin is for another scheme.
    #[error("`{0}`: the scheme isn't https or http; leave it out, or write one of them")]
    Scheme(String),
    /// The origin has more than a host.
    #[error("`{0}`: a host is expected, without a path, a query and a user name")]
    Host(String),
    /// The entry is for several hosts.
    #[error("`{0}`: one host is expected")]
    Several(String),
    /// The port isn't valid.
    #[error("`{0}`: {1}")]
    Port(String, #[source] PortError),
    /// The pattern isn't valid.
    #[error(transparent)]
    Pattern(#[from] HostPatternError),
}

/// A grant for requests.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Hosts that are granted.
    pub hosts: HostPattern,
    /// The scheme. `None` means https. For an opened private host, and for every host if
    /// `https_only` is off, `None` also means http.
    pub scheme: Option<Scheme>,
    /// The port. `None` means the default port of the scheme, or the port of an opened private
    /// host.
    pub port: Option<u16>,
    /// Methods in upper case. Empty means all methods.
    pub methods: Vec<String>,
    /// Paths. Empty means all paths.
    pub paths: Vec<PathPattern>,
}

impl Grant {
    /// Reads a pattern for hosts, such as `*.example.com`. The pattern may have a scheme and a
    /// port: `https://*.example.com:8443`. The grant is for all methods and paths.
    ///
    /// # Errors
    ///
    /// Returns the fault of the entry, and the remedy.
    pub fn new(written: &str) -> Result<Self, HostGrantError> {
        let (scheme, host_and_port) = match written.split_once("://") {
            None => (None, written),
            Some((name, after_scheme)) => {
                let Some(scheme) = Scheme::from_name(name) else {
                    return Err(HostGrantError::Scheme(bounded(written)));
                };
                // `https://example.com/` means the whole site.
                (Some(scheme), after_scheme.strip_suffix('/').unwrap_or(after_scheme))
            }
        };
        if host_and_port.contains(['/', '?', '#', '@']) {
            return Err(HostGrantError::Host(bounded(written)));
        }
        let (hosts, port) = with_port(host_and_port)
            .map_err(|error| HostGrantError::Port(bounded(written), error))?;
        Ok(Self {
            hosts: HostPattern::new(hosts)?,
            scheme,
            port,
            methods: Vec::new(),
            paths: Vec::new(),
        })
    }

    /// Checks whether the grant is for the servers of the session's jobs. With a scheme or a port,
    /// the word is the name of a host.
    pub fn is_job(&self) -> bool {
        self.hosts.as_str() == JOB && self.scheme.is_none() && self.port.is_none()
    }

    /// Returns the private host that the grant opens. Returns `None` if the grant is for public
    /// hosts, for several hosts, or for an address that is always blocked.
    pub fn private_host(&self) -> Option<PrivateHosts> {
        let block = forbidden_host(self.hosts.single_host()?)?;
        if block.always {
            return None;
        }
        let written = match self.port {
            Some(port) => format!("{}:{port}", self.hosts.normal()),
            None => self.hosts.normal(),
        };
        PrivateHosts::new(&written).ok()
    }

    /// Checks whether the grant is for any protocol over TCP.
    pub(super) fn is_for_any_protocol(&self) -> bool {
        self.scheme.is_none() && self.port.is_some()
    }

    pub(super) fn has_origin(&self, target: &Target) -> bool {
        self.scheme.is_none_or(|scheme| scheme == target.scheme)
            && self.port.unwrap_or(target.scheme.port()) == target.port
    }

    /// Checks whether an entry for programs has the protocol of a scheme. An entry with neither a
    /// scheme nor a port is for TLS.
    fn has_protocol(&self, scheme: Scheme) -> bool {
        scheme == Scheme::Https || self.scheme == Some(Scheme::Http) || self.is_for_any_protocol()
    }

    fn has_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|allowed| allowed == method)
    }

    fn has_path(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.matches(path))
    }
}

pub(super) fn bounded(written: &str) -> String {
    neutral_line(cut(written, MAX_WRITTEN))
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}://", scheme.as_str())?;
        }
        f.write_str(self.hosts.as_str())?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if !self.methods.is_empty() {
            write!(f, " ({})", self.methods.join(", "))?;
        }
        if !self.paths.is_empty() {
            let paths: Vec<&str> = self.paths.iter().map(PathPattern::as_str).collect();
            write!(f, " ({})", paths.join(", "))?;
        }
        Ok(())
    }
}

/// The hosts that the requests of one plugin may reach.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The configuration table that grants the hosts: `tools.web` or `plugins.NAME`. Remedies name
    /// this table.
    pub table: OwnTable,
    /// The grants, with their places in the configuration.
    pub grants: Vec<Placed<Grant>>,
    /// Hosts that are denied even if they are granted.
    pub denied: Vec<Placed<HostPattern>>,
    /// Private hosts that are opened. An opened host is also granted.
    pub private: Vec<Placed<PrivateHosts>>,
    /// Whether http requests to a loopback address go to the jobs of the session. If so, only
    /// opened private hosts can get such requests instead.
    pub job_servers: bool,
    /// Whether requests must use https. Opened private hosts and grants with the scheme `http` are
    /// exceptions. If a ceiling sets this value, only opened private hosts are exceptions.
    pub https_only: Placed<bool>,
    /// Place of the grants in the configuration. A denial names it if no grant matches.
    pub place: Origin,
    /// The same list in each ceiling that sets it. The user can't grant a host that isn't in all of
    /// them, so the remedy for such a host names the ceiling.
    pub ceilings: Vec<Reach>,
}

/// Whether a target is granted. A rule that denies the target takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachStatus {
    /// The target is granted.
    Granted,
    /// No grant matches the target.
    Unlisted(Missing),
}

/// The part of a request that no grant matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The host.
    Host,
    /// The port or the scheme. The host is granted.
    Port,
    /// The method. Host, port and scheme are granted.
    Method,
    /// The path. Host, port, scheme and method are granted.
    Path,
}

impl Reach {
    /// Decides on a request before its name is resolved. Checks the method, the path, the scheme,
    /// the denied hosts and the grants. If the host is an address, also checks the address.
    /// `approved` contains origins (see [`Target::origin`]) that were approved for this call. An
    /// approved origin needs no grant.
    ///
    /// # Errors
    ///
    /// Returns the denial.
    pub fn request(
        &self,
        target: &Target,
        method: &str,
        path: &str,
        approved: &[String],
    ) -> Result<(), Denial> {
        match self.status(target, method, path, approved)? {
            ReachStatus::Granted => Ok(()),
            ReachStatus::Unlisted(missing) => Err(self.unlisted(target, method, missing)),
        }
    }

    /// Decides like [`request`](Self::request), but returns [`ReachStatus::Unlisted`] instead of a
    /// denial if no grant matches. A person can approve such a request.
    ///
    /// # Errors
    ///
    /// Returns the denial if an approval can't change it.
    pub fn status(
        &self,
        target: &Target,
        method: &str,
        path: &str,
        approved: &[String],
    ) -> Result<ReachStatus, Denial> {
        if let Some(denied) = self.denied.iter().find(|denied| denied.value.matches(&target.host)) {
            return Err(denied_by(denied, action(method, target)));
        }
        let is_approved = approved.iter().any(|origin| *origin == target.origin());
        let block = forbidden_host(&target.host);
        let can_be_opened = block.is_none_or(|block| !block.always);
        if can_be_opened && self.opens_host(target) {
            // An entry for this host may allow some methods or paths only.
            let mut origins =
                self.grants_of(target).filter(|grant| self.has_origin(grant, target)).peekable();
            // In a list for programs, the entry that opens a private host is also the entry that
            // grants it. So without an entry for this port and scheme, the target isn't granted.
            if self.is_of_programs() && origins.peek().is_none() {
                return Ok(ReachStatus::Unlisted(Missing::Port));
            }
            return Ok(match missing_of(origins, method, path) {
                Some(missing) if !is_approved => ReachStatus::Unlisted(missing),
                _ => ReachStatus::Granted,
            });
        }
        if let Some(addresses) = self.job_addresses(target) {
            let denied = self
                .denied
                .iter()
                .find(|denied| addresses.iter().any(|address| denied.value.is_address(*address)));
            return match denied {
                Some(denied) => Err(denied_by(denied, action(method, target))),
                None => Ok(ReachStatus::Granted),
            };
        }
        if let Some(block) = block {
            let request = action(method, target);
            return Err(self.private_host_denied(target, block, request, "the host"));
        }

        let grants: Vec<&Grant> = self.grants_of(target).collect();
        if target.scheme == Scheme::Http && self.https_only.value {
            let is_of_ceiling = matches!(
                self.https_only.place.kind,
                OriginKind::Ceiling(_) | OriginKind::TaskBounds
            );
            let is_granted = grants.iter().any(|grant| grant.scheme == Some(Scheme::Http));
            if is_of_ceiling || !is_granted {
                return Err(self.http_denied(target, method));
            }
        }
        let has_origin = grants.iter().any(|grant| self.has_origin(grant, target));
        let missing = if grants.is_empty() {
            Some(Missing::Host)
        } else if has_origin {
            let origins = grants.into_iter().filter(|grant| self.has_origin(grant, target));
            missing_of(origins, method, path)
        } else {
            Some(Missing::Port)
        };
        match missing {
            Some(missing) if !is_approved => Ok(ReachStatus::Unlisted(missing)),
            _ => Ok(ReachStatus::Granted),
        }
    }

    /// Returns the grants for the host of a target.
    fn grants_of(&self, target: &Target) -> impl Iterator<Item = &Grant> {
        let grants = self.grants.iter().map(|grant| &grant.value);
        grants.filter(|grant| grant.hosts.matches(&target.host))
    }

    /// Checks whether a grant for the host of a target is also for its scheme and port.
    fn has_origin(&self, grant: &Grant, target: &Target) -> bool {
        grant.has_origin(target) && (!self.is_of_programs() || grant.has_protocol(target.scheme))
    }

    /// Checks whether a target is granted for some methods or paths only.
    pub fn limits_requests(&self, target: &Target) -> bool {
        let status = self.status(target, CONNECT, NO_PATH, &[]);
        matches!(status, Ok(ReachStatus::Unlisted(Missing::Method | Missing::Path)))
    }

    /// Checks whether an entry that also applies to connections with TLS grants only some methods
    /// or paths.
    pub fn limits_some_tls_requests(&self) -> bool {
        self.grants.iter().any(|grant| {
            let Grant { scheme, methods, paths, .. } = &grant.value;
            *scheme != Some(Scheme::Http) && !(methods.is_empty() && paths.is_empty())
        })
    }

    /// Decides on a connection of a program, whose requests aren't known yet. Methods and paths are
    /// checked later.
    ///
    /// # Errors
    ///
    /// Returns the denial.
    pub fn connection(&self, target: &Target) -> Result<(), Denial> {
        match self.status(target, CONNECT, NO_PATH, &[])? {
            ReachStatus::Granted | ReachStatus::Unlisted(Missing::Method | Missing::Path) => Ok(()),
            ReachStatus::Unlisted(missing) => Err(self.unlisted(target, CONNECT, missing)),
        }
    }

    /// Checks whether a person may open a host for programs: a host with a name that no rule denies
    /// for good. The name may be private. An address isn't opened, because a person can't see whose
    /// it is.
    pub fn can_be_opened(&self, host: &TargetHost) -> bool {
        let is_name = matches!(host, TargetHost::Name(_));
        let is_denied = self.denied.iter().any(|denied| denied.value.matches(host));
        is_name && !is_denied && forbidden_host(host).is_none_or(|block| !block.always)
    }

    /// Adds an entry of programs. An entry with a private host also opens this host.
    pub fn add_entry(&mut self, entry: Placed<Grant>) {
        if let Some(value) = entry.value.private_host() {
            self.private.push(Placed { value, place: entry.place.clone() });
        }
        self.grants.push(entry);
    }

    /// Checks whether an entry without a scheme grants a host with exactly this port.
    pub fn grants_port(&self, host: &TargetHost, port: u16) -> bool {
        self.grants.iter().any(|grant| {
            let Grant { hosts, scheme, port: granted, .. } = &grant.value;
            scheme.is_none() && *granted == Some(port) && hosts.matches(host)
        })
    }

    fn opens_host(&self, target: &Target) -> bool {
        self.private.iter().any(|private| private.value.matches_target(target))
    }

    /// Returns the addresses at which a job of the session may listen for requests to a target.
    /// Such a request never goes to the loopback of this machine. Returns `None` if the request
    /// isn't for a job.
    pub fn job_addresses(&self, target: &Target) -> Option<&'static [IpAddr]> {
        if self.job_servers { self.possible_job_addresses(target) } else { None }
    }

    /// Returns the remedy for a denied request to the server of a job. Returns `None` if neither a
    /// configuration key nor another scheme would allow the request.
    pub(crate) fn remedy_by_jobs(&self, target: &Target) -> Option<String> {
        if self.job_servers {
            // Jobs can already be reached, so only the scheme can be wrong.
            let without_tls = Target { scheme: Scheme::Http, ..target.clone() };
            if target.scheme == Scheme::Http || self.job_addresses(&without_tls).is_none() {
                return None;
            }
            let remedy =
                "A server that runs as a job of this session is reached by `http` without TLS";
            return Some(remedy.to_owned());
        }
        let addresses = self.possible_job_addresses(target)?;
        // The entry `job` opens no host that `denied_domains` has.
        for denied in &self.denied {
            let pattern = &denied.value;
            let has_job_address = addresses.iter().any(|address| pattern.is_address(*address));
            if has_job_address || pattern.matches(&target.host) {
                return None;
            }
        }
        Some(remedy_to_grant(&self.place, || {
            let instruction = self.instruction_to_add(&self.place, self.key(), JOB);
            format!("To reach a server that runs as a job of this session, {instruction}")
        }))
    }

    /// Returns the loopback addresses that a request could reach if jobs may run servers. Returns
    /// `None` if the request can't be for a job: the request uses https, goes to an opened private
    /// host, or goes to another host than the loopback.
    fn possible_job_addresses(&self, target: &Target) -> Option<&'static [IpAddr]> {
        const ADDRESSES: [IpAddr; 2] =
            [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        if target.scheme != Scheme::Http || self.opens_host(target) {
            return None;
        }
        match &target.host {
            TargetHost::Name(name) if name == LOCALHOST => Some(&ADDRESSES),
            TargetHost::Name(_) => None,
            TargetHost::Address(address) => {
                let index = ADDRESSES.iter().position(|loopback| loopback == address)?;
                Some(&ADDRESSES[index..=index])
            }
        }
    }

    /// Decides on an address of a target. `own` contains the addresses where this program listens.
    /// An entry `0.0.0.0` or `::` stands for every private address.
    ///
    /// # Errors
    ///
    /// Returns the denial.
    pub fn address(
        &self,
        target: &Target,
        address: IpAddr,
        own: &[SocketAddr],
    ) -> Result<(), Denial> {
        let block = forbidden(address);
        let reached = reached_address(address);
        let may_be_here = block.is_some() || reached.is_unspecified();
        let mut own_on_port = own.iter().filter(|own| own.port() == target.port);
        let is_own = own_on_port.any(|own| {
            let listens_everywhere = own.ip().is_unspecified();
            own.ip().to_canonical() == reached || (listens_everywhere && may_be_here)
        });
        if is_own {
            return Err(Denial {
                capability: "http".to_owned(),
                action: connection(address, target),
                rule: "requests to addresses where Toolhold listens are blocked".to_owned(),
                place: "built in".to_owned(),
                remedy: "No configuration key can change this.".to_owned(),
            });
        }
        if let Some(denied) = self.denied.iter().find(|denied| denied.value.is_address(address)) {
            return Err(denied_by(denied, connection(address, target)));
        }
        // An http request to `localhost` may contain a secret, so it must stay on this machine.
        let is_here = matches!(&target.host, TargetHost::Name(name) if name == LOCALHOST);
        if is_here && target.scheme == Scheme::Http && !address.to_canonical().is_loopback() {
            return Err(Denial {
                capability: "http".to_owned(),
                action: connection(address, target),
                rule: "the address of `localhost` has to be this machine".to_owned(),
                place: "built in".to_owned(),
                remedy: "Make `localhost` resolve to a loopback address, for example in \
                         /etc/hosts, or use the name of the other host."
                    .to_owned(),
            });
        }
        let Some(block) = block else { return Ok(()) };
        let is_opened = self.private.iter().any(|private| private.value.opens(target, address));
        if is_opened && !block.always {
            return Ok(());
        }
        let request = connection(address, target);
        Err(self.private_host_denied(target, block, request, "the address"))
    }

    /// Returns the denial of a request that no grant matches. `missing` is the part of the request
    /// that no grant matches.
    pub fn unlisted(&self, target: &Target, method: &str, missing: Missing) -> Denial {
        let key = self.key();
        let missing_entry = self.entry(target);
        let (rule, remedy) = match missing {
            Missing::Host => (
                format!("{key}, which doesn't have this host"),
                self.remedy_to_add(target, &self.place, key, &missing_entry),
            ),
            Missing::Port => (
                format!("{key}, which has this host with another port or scheme"),
                self.remedy_to_add(target, &self.place, key, &missing_entry),
            ),
            Missing::Method => {
                let list = match flag_or_variable(&self.place) {
                    Some(source) => source,
                    None => format!("`{key}` in {}", self.table),
                };
                let remedy = remedy_to_grant(&self.place, || {
                    format!(
                        "To allow it, add {} to the `methods` of the host's entry in {list}.",
                        toml(shown(method))
                    )
                });
                (format!("{key}, which has this host with other methods"), remedy)
            }
            Missing::Path => {
                let list = match flag_or_variable(&self.place) {
                    Some(source) => source,
                    None => format!("`{key}` in {}", self.table),
                };
                let remedy = remedy_to_grant(&self.place, || {
                    format!(
                        "To allow it, add the path to the `paths` of the host's entry in {list}."
                    )
                });
                (format!("{key}, which has this host with other paths"), remedy)
            }
        };
        Denial {
            capability: "http".to_owned(),
            action: action(method, target),
            rule,
            place: self.place.text.clone().into_owned(),
            remedy,
        }
    }

    /// Returns the hosts that requests may reach, as text for people: the grants, the opened
    /// private hosts, and the servers of jobs.
    pub fn granted(&self) -> Vec<String> {
        let mut granted = Vec::new();
        for grant in &self.grants {
            granted.push(grant.value.to_string());
        }
        for private in &self.private {
            granted.push(format!("{} (private)", private.value.as_str()));
        }
        if self.job_servers {
            granted.push(format!("{LOCALHOST} (jobs of the session)"));
        }
        granted
    }

    /// Returns the name of the key that grants hosts.
    pub fn key(&self) -> &'static str {
        if self.table.name == "tools.web" { "allowed_domains" } else { "hosts" }
    }

    /// Returns whether the table has one list for hosts of all kinds, because only programs use it.
    fn is_of_programs(&self) -> bool {
        self.table.name == "tools.shell" || self.table.name.starts_with("mcp.servers.")
    }

    fn entry(&self, target: &Target) -> String {
        match target.scheme {
            Scheme::Http if self.https_only.value => target.origin(),
            _ => target.authority(),
        }
    }

    /// Returns the remedy that adds `host`, the entry for a target, to the list `key`. `place` is
    /// where the list is set.
    pub(super) fn remedy_to_add(
        &self,
        target: &Target,
        place: &Origin,
        key: &str,
        host: &str,
    ) -> String {
        if key == self.key()
            && let Some(remedy) = self.remedy_by_ceiling(target)
        {
            return remedy;
        }
        remedy_to_grant(place, || {
            format!("To allow it, {}", self.instruction_to_add(place, key, host))
        })
    }

    /// Returns the remedy for a host that isn't in the list of a ceiling. Returns `None` if the host
    /// is in the lists of all ceilings.
    fn remedy_by_ceiling(&self, target: &Target) -> Option<String> {
        let excluding = self.ceilings.iter().find(|ceiling| !ceiling.has_host(target))?;
        excluding.place.remedy_elsewhere()
    }

    /// Checks whether a grant is for the host and port of a target. The scheme doesn't matter,
    /// because the scheme of a program's connection isn't known at its start.
    fn has_host(&self, target: &Target) -> bool {
        [Scheme::Https, Scheme::Http].into_iter().any(|scheme| {
            let target = Target { scheme, ..target.clone() };
            self.grants_of(&target).any(|grant| self.has_origin(grant, &target))
        })
    }

    /// Returns the instruction that adds `host` to the list `key`.
    fn instruction_to_add(&self, place: &Origin, key: &str, host: &str) -> String {
        let entry = toml(host);
        if let OriginKind::Default(table) = &place.kind {
            return table.lines(&self.table.name, &format!("{key} = [{entry}]"));
        }
        let list = match flag_or_variable(place) {
            Some(source) => format!("the list in {source}"),
            None => format!("`{key}` in {}", self.table),
        };
        format!("add {entry} to {list}.")
    }

    /// Returns the denial of a private address for the reason `block`. `subject` tells the user
    /// whether the name of the host or its address is private.
    fn private_host_denied(
        &self,
        target: &Target,
        block: Forbidden,
        action: String,
        subject: &str,
    ) -> Denial {
        let rule = format!("private addresses are blocked: {subject} is {}", block.kind);
        // Without an entry, the list of private hosts is set where the other grants are set.
        let list_place = match self.private.first() {
            Some(private) => &private.place,
            None => &self.place,
        };
        let remedy = if block.always {
            "No configuration key can change this.".to_owned()
        } else {
            let key = if self.is_of_programs() { "hosts" } else { "allowed_private_hosts" };
            self.remedy_to_add(target, list_place, key, &target.host_and_port())
        };
        Denial { capability: "http".to_owned(), action, rule, place: "built in".to_owned(), remedy }
    }

    /// Returns the denial of a request without TLS.
    fn http_denied(&self, target: &Target, method: &str) -> Denial {
        if self.is_of_programs() {
            return Denial {
                capability: "http".to_owned(),
                action: action(method, target),
                rule: "hosts, which doesn't have this host without TLS".to_owned(),
                place: self.place.text.clone().into_owned(),
                remedy: self.remedy_to_add(target, &self.place, self.key(), &target.origin()),
            };
        }
        let place = &self.https_only.place;
        let remedy = place.remedy(|| {
            let instruction = match &place.kind {
                OriginKind::Default(table) => table.lines(&self.table.name, "https_only = false"),
                _ => format!("set `https_only = false` in {}.", self.table),
            };
            format!("Use https; or, to allow http, {instruction}")
        });
        Denial {
            capability: "http".to_owned(),
            action: action(method, target),
            rule: "https_only = true".to_owned(),
            place: place.text.clone().into_owned(),
            remedy: remedy.into_owned(),
        }
    }
}

/// Returns the part of a request that is missing in all grants for its origin. Returns `None` if a
/// grant has all parts, or if there is no grant for the origin.
fn missing_of<'g>(
    origins: impl Iterator<Item = &'g Grant>,
    method: &str,
    path: &str,
) -> Option<Missing> {
    let mut missing = None;
    for grant in origins {
        if !grant.has_method(method) {
            missing = missing.or(Some(Missing::Method));
        } else if grant.has_path(path) {
            return None;
        } else {
            missing = Some(Missing::Path);
        }
    }
    missing
}

/// Returns the remedy that grants more. For a list from the command line or the environment, the
/// usual remedy is to leave out the list. That would grant less, so the remedy is `own`.
fn remedy_to_grant(place: &Origin, own: impl FnOnce() -> String) -> String {
    if flag_or_variable(place).is_some() { own() } else { place.remedy(own).into_owned() }
}

fn flag_or_variable(place: &Origin) -> Option<String> {
    match &place.kind {
        OriginKind::Flag(text) => Some(format!("`{text}`")),
        OriginKind::Variable(name) => Some(name.clone()),
        _ => None,
    }
}

pub(super) fn forbidden_host(host: &TargetHost) -> Option<Forbidden> {
    match host {
        TargetHost::Name(name) => forbidden_name(name),
        TargetHost::Address(address) => forbidden(*address),
    }
}

/// Returns the denial of a request to a host that a pattern of `denied_domains` matches.
fn denied_by(denied: &Placed<HostPattern>, action: String) -> Denial {
    let pattern = toml(denied.value.as_str());
    let place = &denied.place;
    let remedy = place.remedy(|| format!("To allow it, remove {pattern} from `denied_domains`."));
    Denial {
        capability: "http".to_owned(),
        action,
        rule: format!("denied_domains = {pattern}"),
        place: place.text.clone().into_owned(),
        remedy: remedy.into_owned(),
    }
}

fn action(method: &str, target: &Target) -> String {
    format!("{} {target}", neutral_line(shown(method)))
}

fn connection(address: IpAddr, target: &Target) -> String {
    format!("connect to {address} for {target}")
}

fn shown(method: &str) -> &str {
    cut(method, MAX_METHOD)
}
