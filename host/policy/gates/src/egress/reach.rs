//! Decides which hosts the requests of one plugin may reach.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use toolhold_contract::Denial;
use toolhold_contract::text::{cut, neutral_line, toml};

use super::address::{Forbidden, forbidden, forbidden_name, reached_address};
use super::pattern::{HostPattern, HostPatternError, PortError, PrivateHosts, with_port};
use super::target::{LOCALHOST, Scheme, Target, TargetHost};
use crate::origin::{Origin, OriginKind, OwnTable, Placed};

/// Bytes of a method that a denial shows. A guest may send any method.
const MAX_METHOD: usize = 32;

/// Bytes of an entry that an error shows.
const MAX_WRITTEN: usize = 260;

/// A grant that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostGrantError {
    /// The origin is for another scheme.
    #[error("`{0}`: the scheme isn't https or http; leave it out, or write one of them")]
    Scheme(String),
    /// The origin has more than a host.
    #[error("`{0}`: a host is expected, without a path, a query and a user name")]
    Host(String),
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
    /// The scheme. `None` means https. If `https_only` is off or the host is an opened private
    /// host, `None` also means http.
    pub scheme: Option<Scheme>,
    /// The port. `None` means the default port of the scheme, or the port of an opened private
    /// host.
    pub port: Option<u16>,
    /// Methods in upper case. Empty means all methods.
    pub methods: Vec<String>,
}

impl Grant {
    /// Reads a grant for all methods: a pattern for hosts, such as `*.example.com`. The pattern may
    /// have a scheme and a port: `https://*.example.com:8443`.
    ///
    /// # Errors
    ///
    /// Returns the fault of the entry and the remedy.
    pub fn new(written: &str) -> Result<Self, HostGrantError> {
        let (scheme, host_and_port) = match written.split_once("://") {
            None => (None, written),
            Some((name, after_scheme)) => {
                let scheme = [Scheme::Https, Scheme::Http]
                    .into_iter()
                    .find(|known| name.eq_ignore_ascii_case(known.as_str()))
                    .ok_or_else(|| HostGrantError::Scheme(bounded(written)))?;
                // `https://example.com/` means the whole site.
                (Some(scheme), after_scheme.strip_suffix('/').unwrap_or(after_scheme))
            }
        };
        if host_and_port.contains(['/', '?', '#', '@']) {
            return Err(HostGrantError::Host(bounded(written)));
        }
        let (hosts, port) = with_port(host_and_port)
            .map_err(|error| HostGrantError::Port(bounded(written), error))?;
        Ok(Self { hosts: HostPattern::new(hosts)?, scheme, port, methods: Vec::new() })
    }

    fn has_origin(&self, target: &Target) -> bool {
        self.scheme.is_none_or(|scheme| scheme == target.scheme)
            && self.port.unwrap_or(target.scheme.port()) == target.port
    }

    fn has_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|one| one == method)
    }
}

fn bounded(written: &str) -> String {
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
        if self.methods.is_empty() { Ok(()) } else { write!(f, " ({})", self.methods.join(", ")) }
    }
}

/// The hosts that the requests of one plugin may reach.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The table with the grants, which remedies name: `tools.web`, or `plugins.NAME`.
    pub table: OwnTable,
    /// The grants, each with its place.
    pub grants: Vec<Placed<Grant>>,
    /// Hosts that are denied, whatever is granted.
    pub denied: Vec<Placed<HostPattern>>,
    /// Private hosts that are opened. An opened host is also granted.
    pub private: Vec<Placed<PrivateHosts>>,
    /// Whether http requests to a loopback address go to the jobs of the session. If so, they can
    /// go to no other server except opened private hosts.
    pub job_servers: bool,
    /// Whether requests must use https. Opened private hosts and grants with the scheme `http` are
    /// exceptions. If a ceiling sets this value, only opened private hosts are exceptions.
    pub https_only: Placed<bool>,
    /// Place of the grants, for refusals without a matching grant.
    pub place: Origin,
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
}

impl Reach {
    /// Decides on a request before its name is resolved. Checks the method, the scheme, the denied
    /// hosts and the grants. If the host is an address, also checks the address. `approved` are
    /// origins (see [`Target::origin`]) that were approved for this call. They are treated like
    /// grants.
    ///
    /// # Errors
    ///
    /// Returns the denial.
    pub fn request(
        &self,
        target: &Target,
        method: &str,
        approved: &[String],
    ) -> Result<(), Denial> {
        match self.status(target, method, approved)? {
            ReachStatus::Granted => Ok(()),
            ReachStatus::Unlisted(missing) => Err(self.unlisted(target, method, missing)),
        }
    }

    /// Decides like [`request`](Self::request), but doesn't deny a target without a grant, because
    /// a person can approve it.
    ///
    /// # Errors
    ///
    /// Returns the denial if an approval can't change it.
    pub fn status(
        &self,
        target: &Target,
        method: &str,
        approved: &[String],
    ) -> Result<ReachStatus, Denial> {
        if let Some(denied) = self.denied.iter().find(|denied| denied.value.matches(&target.host)) {
            return Err(denied_by(denied, action(method, target)));
        }
        let block = forbidden_host(&target.host);
        let can_be_opened = block.is_none_or(|block| !block.always);
        if can_be_opened && self.opens_host(target) {
            return Ok(ReachStatus::Granted);
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

        let grants: Vec<&Grant> = self
            .grants
            .iter()
            .map(|grant| &grant.value)
            .filter(|grant| grant.hosts.matches(&target.host))
            .collect();
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
        if grants.iter().any(|grant| grant.has_origin(target) && grant.has_method(method)) {
            return Ok(ReachStatus::Granted);
        }
        if approved.iter().any(|origin| *origin == target.origin()) {
            return Ok(ReachStatus::Granted);
        }

        let missing = if grants.is_empty() {
            Missing::Host
        } else if grants.iter().any(|grant| grant.has_origin(target)) {
            Missing::Method
        } else {
            Missing::Port
        };
        Ok(ReachStatus::Unlisted(missing))
    }

    /// Checks whether an entry for private hosts names a target.
    fn opens_host(&self, target: &Target) -> bool {
        self.private.iter().any(|private| private.value.names(target))
    }

    /// Returns the addresses at which a job of the session may listen for requests to a target.
    /// Such a request never goes to the loopback of this machine. Returns `None` if the request
    /// isn't for a job.
    pub fn job_addresses(&self, target: &Target) -> Option<&'static [IpAddr]> {
        if self.job_servers { self.possible_job_addresses(target) } else { None }
    }

    /// Returns the remedy for a denied request that could go to a job's server. Returns `None` if
    /// no key would make this possible.
    pub(crate) fn remedy_by_jobs(&self, target: &Target) -> Option<String> {
        if self.job_servers {
            let without_tls = Target { scheme: Scheme::Http, ..target.clone() };
            if target.scheme == Scheme::Http || self.job_addresses(&without_tls).is_none() {
                return None;
            }
            let remedy =
                "A server that runs as a job of this session is reached by `http`, without TLS";
            return Some(remedy.to_owned());
        }
        let addresses = self.possible_job_addresses(target)?;
        let is_denied = self.denied.iter().any(|denied| {
            let denied = &denied.value;
            denied.matches(&target.host) || addresses.iter().any(|own| denied.is_address(*own))
        });
        if is_denied {
            return None;
        }
        let lines = self.table.lines("job_servers = true");
        Some(format!("To reach a server that runs as a job of this session, {lines}"))
    }

    /// Returns the addresses at which a job could listen for requests to a target.
    fn possible_job_addresses(&self, target: &Target) -> Option<&'static [IpAddr]> {
        const ADDRESSES: [IpAddr; 2] =
            [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        if target.scheme != Scheme::Http || self.opens_host(target) {
            return None;
        }
        match &target.host {
            TargetHost::Name(name) => (name == LOCALHOST).then_some(&ADDRESSES),
            TargetHost::Address(address) => {
                let index = ADDRESSES.iter().position(|known| known == address)?;
                Some(&ADDRESSES[index..=index])
            }
        }
    }

    /// Decides on an address of a target. `own` are the addresses where this program listens. If
    /// one of them is `0.0.0.0` or `::`, it matches every private address in this check.
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
                rule: "`localhost` has to be this machine".to_owned(),
                place: "built in".to_owned(),
                remedy: "Let `localhost` resolve to a loopback address, for example in /etc/hosts, or name the other host."
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

    /// Returns the refusal of a request that no grant matches.
    pub fn unlisted(&self, target: &Target, method: &str, missing: Missing) -> Denial {
        let key = self.key();
        let entry = self.entry(target);
        let (rule, remedy) = match missing {
            Missing::Host => (
                format!("{key}, which doesn't name this host"),
                self.remedy_to_add(&self.place, key, &entry),
            ),
            Missing::Port => (
                format!("{key}, which names this host for another port or scheme"),
                self.remedy_to_add(&self.place, key, &entry),
            ),
            Missing::Method => {
                let list = flag_or_variable(&self.place)
                    .unwrap_or_else(|| format!("`{key}` in {}", self.table));
                let remedy = remedy_to_grant(&self.place, || {
                    format!(
                        "To allow it, add {} to the `methods` of the host's entry in {list}.",
                        toml(shown(method))
                    )
                });
                (format!("{key}, which names this host for other methods"), remedy)
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

    /// Returns every grant and every opened private host, as text for people.
    pub fn granted(&self) -> Vec<String> {
        let mut granted: Vec<String> =
            self.grants.iter().map(|grant| grant.value.to_string()).collect();
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

    /// Returns the narrowest grant for a target.
    fn entry(&self, target: &Target) -> String {
        match target.scheme {
            Scheme::Http if self.https_only.value => target.origin(),
            _ => target.authority(),
        }
    }

    /// Returns the remedy that adds an entry to a list.
    fn remedy_to_add(&self, place: &Origin, key: &str, entry: &str) -> String {
        let entry = toml(entry);
        remedy_to_grant(place, || {
            if let OriginKind::Default(table) = &place.kind {
                let lines = table.lines(&self.table.name, &format!("{key} = [{entry}]"));
                return format!("To allow it, {lines}");
            }
            let list = match flag_or_variable(place) {
                Some(source) => format!("the list in {source}"),
                None => format!("`{key}` in {}", self.table),
            };
            format!("To allow it, add {entry} to {list}.")
        })
    }

    fn private_host_denied(
        &self,
        target: &Target,
        block: Forbidden,
        action: String,
        subject: &str,
    ) -> Denial {
        let rule = format!("private addresses are blocked: {subject} is {}", block.kind);
        let place = self.private.first().map_or(&self.place, |private| &private.place);
        let remedy = if block.always {
            "No configuration key can change this.".to_owned()
        } else {
            self.remedy_to_add(place, "allowed_private_hosts", &target.host_and_port())
        };
        Denial { capability: "http".to_owned(), action, rule, place: "built in".to_owned(), remedy }
    }

    fn http_denied(&self, target: &Target, method: &str) -> Denial {
        let place = &self.https_only.place;
        let remedy = place.remedy(|| {
            let set = match &place.kind {
                OriginKind::Default(table) => table.lines(&self.table.name, "https_only = false"),
                _ => format!("set `https_only = false` in {}.", self.table),
            };
            format!("Use https; or, to allow http, {set}")
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

/// Returns the remedy that grants more. For a list from the command line or the environment, the
/// remedy is `own`, because without this list less would be granted.
fn remedy_to_grant(place: &Origin, own: impl FnOnce() -> String) -> String {
    if flag_or_variable(place).is_some() { own() } else { place.remedy(own).into_owned() }
}

/// Returns the flag or the variable that sets a list. Returns `None` if a file sets it.
fn flag_or_variable(place: &Origin) -> Option<String> {
    match &place.kind {
        OriginKind::Flag(text) => Some(format!("`{text}`")),
        OriginKind::Variable(name) => Some(name.clone()),
        _ => None,
    }
}

/// Returns the reason why a host is blocked before its name is resolved. Returns `None` if the host
/// is allowed.
fn forbidden_host(host: &TargetHost) -> Option<Forbidden> {
    match host {
        TargetHost::Name(name) => forbidden_name(name),
        TargetHost::Address(address) => forbidden(*address),
    }
}

fn denied_by(denied: &Placed<HostPattern>, action: String) -> Denial {
    let pattern = toml(denied.value.as_str());
    Denial {
        capability: "http".to_owned(),
        action,
        rule: format!("denied_domains = {pattern}"),
        place: denied.place.text.clone().into_owned(),
        remedy: denied
            .place
            .remedy(|| format!("To allow it, take {pattern} out of `denied_domains`."))
            .into_owned(),
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
