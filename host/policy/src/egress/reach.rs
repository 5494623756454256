//! What the requests of one plugin reach.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use berth_contract::Denial;
use berth_contract::text::{cut, neutral_line, toml};

use super::address::{Forbidden, forbidden, forbidden_name, meant};
use super::pattern::{HostPattern, PrivateHosts, with_port};
use super::target::{LOCALHOST, Scheme, Target, TargetHost};
use crate::origin::{Origin, OriginKind, Placed};

/// Bytes of a method that a refusal shows. A guest may ask by any.
const MAX_METHOD: usize = 32;

/// Bytes of an entry that a mistake shows.
const MAX_WRITTEN: usize = 260;

/// Requests that are granted.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Which hosts.
    pub hosts: HostPattern,
    /// How they are reached. None: by https, and by http where `https_only` is off or the host is
    /// an opened private one.
    pub scheme: Option<Scheme>,
    /// On which port. None: the scheme's own, or that of an opened private host.
    pub port: Option<u16>,
    /// Methods in upper case. Empty: all.
    pub methods: Vec<String>,
}

impl Grant {
    /// Reads one, for all methods: a pattern for hosts, with or without a scheme before and a port
    /// behind it, as `https://*.example.com:8443`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub fn new(written: &str) -> Result<Self, String> {
        let shown = || neutral_line(cut(written, MAX_WRITTEN));
        let (scheme, rest) = match written.split_once("://") {
            None => (None, written),
            Some((scheme, rest)) => {
                let scheme = [Scheme::Https, Scheme::Http]
                    .into_iter()
                    .find(|known| scheme.eq_ignore_ascii_case(known.as_str()));
                let scheme = scheme
                    .ok_or_else(|| format!("`{}`: requests go by https or http; leave the scheme out, or write one of them", shown()))?;
                // A URL of a whole site is meant as the site.
                (Some(scheme), rest.strip_suffix('/').unwrap_or(rest))
            }
        };
        if rest.contains(['/', '?', '#', '@']) {
            return Err(format!(
                "`{}`: what is granted is a host, without a path and without a name before it",
                shown()
            ));
        }
        let (hosts, port) = with_port(rest).map_err(|why| format!("`{}`: {why}", shown()))?;
        Ok(Self { hosts: HostPattern::new(hosts)?, scheme, port, methods: Vec::new() })
    }
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

/// What the requests of one plugin reach.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The table that grants, for what a refusal says would help: `tools.web`, or `plugins.NAME`.
    pub table: String,
    /// What is granted, each with its place.
    pub grants: Vec<Placed<Grant>>,
    /// Hosts that are never reached, whatever is granted.
    pub denied: Vec<Placed<HostPattern>>,
    /// Private hosts that are opened. Who names one grants it as well.
    pub private: Vec<Placed<PrivateHosts>>,
    /// Whether requests to others than opened private hosts have to be carried by TLS, but for
    /// grants that name `http`; where a ceiling says so, those too.
    pub https_only: Placed<bool>,
    /// Where the grants stand, for when none fits.
    pub place: Origin,
}

/// How a target stands to what is granted, where nothing is against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachStatus {
    /// It is granted.
    Granted,
    /// No grant is for it.
    Unlisted(Missing),
}

/// What no grant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The host.
    Host,
    /// The port or the scheme, while the host is granted.
    Port,
    /// The method, while the place is granted.
    Method,
}

impl Reach {
    /// Decides on a request before its name is resolved: method and scheme, the deny list, what is
    /// granted, and an address that is written in place of a name. `approved`: hosts (as
    /// [`Target::origin`]) that were decided on for this call, and count as granted for it.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn request(
        &self,
        target: &Target,
        method: &str,
        approved: &[String],
    ) -> Result<(), Denial> {
        match self.standing(target, method, approved)? {
            ReachStatus::Granted => Ok(()),
            ReachStatus::Unlisted(missing) => Err(self.unlisted(target, method, missing)),
        }
    }

    /// The same, where a person may be asked about what isn't granted.
    ///
    /// # Errors
    ///
    /// The refusal that no yes undoes.
    pub fn standing(
        &self,
        target: &Target,
        method: &str,
        approved: &[String],
    ) -> Result<ReachStatus, Denial> {
        if let Some(denied) = self.denied.iter().find(|denied| denied.value.matches(&target.host)) {
            return Err(denied_by(denied, action(method, target)));
        }
        if self
            .private
            .iter()
            .any(|private| private.value.names(target) && !is_always(&target.host))
        {
            return Ok(ReachStatus::Granted);
        }
        let found = match &target.host {
            TargetHost::Name(name) => forbidden_name(name),
            TargetHost::Address(address) => forbidden(*address),
        };
        if let Some(found) = found {
            return Err(self.not_opened(target, found, action(method, target), "the host"));
        }
        let of_host = || {
            self.grants
                .iter()
                .map(|grant| &grant.value)
                .filter(|grant| grant.hosts.matches(&target.host))
        };
        if target.scheme == Scheme::Http && self.https_only.value {
            let by_ceiling = matches!(self.https_only.place.kind, OriginKind::Ceiling(_));
            if by_ceiling || !of_host().any(|grant| grant.scheme == Some(Scheme::Http)) {
                return Err(self.in_the_open(target, method));
            }
        }
        let reached = |grant: &&Grant| {
            grant.scheme.is_none_or(|scheme| scheme == target.scheme)
                && grant.port.unwrap_or(target.scheme.port()) == target.port
        };
        let by_method = |grant: &Grant| {
            grant.methods.is_empty() || grant.methods.iter().any(|one| one == method)
        };
        if of_host().filter(reached).any(by_method)
            || approved.iter().any(|origin| *origin == target.origin())
        {
            return Ok(ReachStatus::Granted);
        }
        Ok(ReachStatus::Unlisted(match (of_host().next(), of_host().find(reached)) {
            (_, Some(_)) => Missing::Method,
            (Some(_), None) => Missing::Port,
            (None, None) => Missing::Host,
        }))
    }

    /// Decides on an address that a target has. `own`: where this program listens itself; an
    /// address of it that stands for all of the machine's stands for every private one here.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn address(
        &self,
        target: &Target,
        address: IpAddr,
        own: &[SocketAddr],
    ) -> Result<(), Denial> {
        let connect = || format!("connect to {address} for {target}");
        let (found, real) = (forbidden(address), meant(address));
        let is_own = |own: &&SocketAddr| {
            own.port() == target.port
                && (own.ip().to_canonical() == real
                    || own.ip().is_unspecified() && (found.is_some() || real.is_unspecified()))
        };
        if own.iter().any(|own| is_own(&own)) {
            return Err(Denial {
                capability: "http".to_owned(),
                action: connect(),
                rule: "the rule that no request goes to where Berth listens".to_owned(),
                place: "built in".to_owned(),
                remedy: "No key changes that.".to_owned(),
            });
        }
        if let Some(denied) = self.denied.iter().find(|denied| denied.value.is_address(address)) {
            return Err(denied_by(denied, connect()));
        }
        // What is opened in the open as this machine may be sent a secret.
        let is_here = matches!(&target.host, TargetHost::Name(name) if name == LOCALHOST);
        if is_here && target.scheme == Scheme::Http && !address.to_canonical().is_loopback() {
            return Err(Denial {
                capability: "http".to_owned(),
                action: connect(),
                rule: "the rule that `localhost` is this machine".to_owned(),
                place: "built in".to_owned(),
                remedy: "Have `localhost` stand for a loopback address on this machine, as in /etc/hosts, or name the host that is meant."
                    .to_owned(),
            });
        }
        match found {
            Some(found)
                if found.always
                    || !self.private.iter().any(|private| private.value.opens(target, address)) =>
            {
                Err(self.not_opened(target, found, connect(), "the address"))
            }
            _ => Ok(()),
        }
    }

    /// The refusal of what no grant is for.
    pub fn unlisted(&self, target: &Target, method: &str, missing: Missing) -> Denial {
        let key = self.key();
        let entry = self.entry(target);
        let (rule, remedy) = match missing {
            Missing::Host => (
                format!("{key}, which doesn't name this host"),
                self.to_add(&self.place, key, &entry),
            ),
            Missing::Port => (
                format!("{key}, which names this host for another port or scheme"),
                self.to_add(&self.place, key, &entry),
            ),
            Missing::Method => {
                let list = outside_of_files(&self.place)
                    .unwrap_or_else(|| format!("`{key}` of [{}]", self.table));
                let add = || {
                    format!(
                        "To allow it, add {} to the `methods` of the host's entry in {list}.",
                        toml(shown(method))
                    )
                };
                (
                    format!("{key}, which names this host for other methods"),
                    to_grant(&self.place, add),
                )
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

    /// Every grant and every opened private host, as people read them.
    pub fn granted(&self) -> Vec<String> {
        let private =
            self.private.iter().map(|private| format!("{} (private)", private.value.as_str()));
        self.grants.iter().map(|grant| grant.value.to_string()).chain(private).collect()
    }

    /// The key of the table that grants hosts.
    pub fn key(&self) -> &'static str {
        if self.table == "tools.web" { "allowed_domains" } else { "hosts" }
    }

    /// The least that has to be granted for a target.
    fn entry(&self, target: &Target) -> String {
        match target.scheme {
            Scheme::Http if self.https_only.value => target.origin(),
            _ => target.authority(),
        }
    }

    /// What an entry of a list that takes the place of nothing is added by.
    fn to_add(&self, place: &Origin, key: &str, entry: &str) -> String {
        to_grant(place, || match place.kind {
            OriginKind::Default(_) => format!(
                "To allow it, {}",
                place.lines(&self.table, &format!("{key} = [{}]", toml(entry)))
            ),
            _ => {
                let list = outside_of_files(place).map_or_else(
                    || format!("`{key}` of [{}]", self.table),
                    |list| format!("the list in {list}"),
                );
                format!("To allow it, add {} to {list}.", toml(entry))
            }
        })
    }

    fn not_opened(&self, target: &Target, found: Forbidden, action: String, what: &str) -> Denial {
        let rule =
            format!("the rule that no request goes to private places: {what} is {}", found.kind);
        let place = self.private.first().map_or(&self.place, |private| &private.place);
        let remedy = match found.always {
            true => "No key changes that.".to_owned(),
            false => self.to_add(place, "allowed_private_hosts", &target.host_and_port()),
        };
        Denial { capability: "http".to_owned(), action, rule, place: "built in".to_owned(), remedy }
    }

    fn in_the_open(&self, target: &Target, method: &str) -> Denial {
        let place = &self.https_only.place;
        let remedy = place.remedy(|| {
            let set = match place.kind {
                OriginKind::Default(_) => place.lines(&self.table, "https_only = false"),
                _ => format!("set `https_only = false` in [{}].", self.table),
            };
            format!("Ask for it by https; or, to allow http, {set}")
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

/// What grants more, by `own`, where that can be changed. To leave out a list of the command line
/// or of the environment would grant less.
fn to_grant(place: &Origin, own: impl FnOnce() -> String) -> String {
    if outside_of_files(place).is_some() { own() } else { place.remedy(own).into_owned() }
}

/// Where a list stands that stands in no file.
fn outside_of_files(place: &Origin) -> Option<String> {
    match &place.kind {
        OriginKind::Flag(text) => Some(format!("`{text}`")),
        OriginKind::Variable(name) => Some(name.clone()),
        _ => None,
    }
}

/// Whether nothing opens a host.
fn is_always(host: &TargetHost) -> bool {
    let found = match host {
        TargetHost::Name(name) => forbidden_name(name),
        TargetHost::Address(address) => forbidden(*address),
    };
    found.is_some_and(|found| found.always)
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

fn shown(method: &str) -> &str {
    cut(method, MAX_METHOD)
}
