//! Matches hosts against patterns of the operator, such as `*.example.com`.

use std::net::IpAddr;

use ipnet::IpNet;
use toolhold_contract::text::{cut, neutral_line};

use super::address::{forbidden, reached_address};
use super::target::{Target, TargetHost, TargetHostError};
use crate::pattern::{PatternLengthError, TextGlob};

/// Most bytes of a pattern. Equals the longest name with a port.
const MAX_PATTERN: usize = 260;

/// Shortest prefixes of ranges that can be opened, for IPv4 and IPv6. They are the prefixes of
/// private networks. A wider range would open more than the operator intends.
const WIDEST: (u8, u8) = (8, 7);

/// A pattern for hosts that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{written}` isn't a valid host pattern: {source}")]
pub struct HostPatternError {
    written: String,
    source: SyntaxError,
}

/// An entry for private hosts that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{written}` isn't a valid private host: {source}")]
pub struct PrivateHostsError {
    written: String,
    source: OpenedHostError,
}

/// A fault of a pattern, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum SyntaxError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern has {0} bytes; the limit is {MAX_PATTERN}")]
    Length(usize),
    #[error("{0:?} isn't allowed in it")]
    Character(char),
    #[error("a host is expected, not a URL: write `{0}`")]
    Url(String),
    #[error("a range of addresses is only valid in `allowed_private_hosts`")]
    Range,
    #[error("a host is expected, without a path: write `{0}`")]
    Path(String),
    #[error("a user name or password isn't allowed before a host")]
    Credentials,
    #[error("a host is expected, without the port `{port}`: write `{host}`")]
    Port { host: String, port: String },
    #[error(transparent)]
    Host(#[from] TargetHostError),
    #[error("`*` isn't allowed in an address, only in a name")]
    StarInAddress,
    #[error("{0:?} isn't allowed in a part with `*`: use letters, digits, `-` and `_`")]
    CharacterInLabel(char),
    #[error(transparent)]
    LabelLength(#[from] PatternLengthError),
    /// Many operators write `*example.com` for `example.com` and the names below it.
    #[error("write `*.{0}` for the names below {0}, and `{0}` for itself")]
    StarWithoutDot(String),
    #[error("`*` isn't allowed in the last two parts of a name: write `*` alone for any host")]
    Wide,
}

/// A fault of an entry for private hosts, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum OpenedHostError {
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Pattern(#[from] HostPatternError),
    #[error("a range of addresses is written as `10.0.0.0/8` or `fd00::/8`")]
    Range,
    #[error("the range is wider than /{0}, the limit: name smaller networks")]
    Wide(u8),
    #[error("the address isn't the first one of the range: write `{0}`")]
    First(IpNet),
    #[error("it would open every private host: name the hosts to open")]
    Any,
    #[error("it is {0}, which can't be opened")]
    Always(&'static str),
}

/// A text after a host that isn't a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The text after an address in brackets doesn't start with `:`.
    #[error("only `:` and a port may follow `]`")]
    Separator,
    /// The text isn't a port number. The text isn't shown because it may be a password.
    #[error("the text after `:` isn't a port: ports are numbers from 1 to 65535")]
    Number,
}

/// A pattern for hosts: a name, an address, or `*` for any host. `*.example.com` matches all names
/// below `example.com`, but not `example.com` itself. A `*` inside a label matches any characters
/// of that label: `api-*.example.com`.
#[derive(Clone, Debug)]
pub struct HostPattern {
    written: String,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Any,
    Host(TargetHost),
    /// A name with stars. `below` means that it matches names at any depth below the labels.
    Labels {
        below: bool,
        labels: Vec<Label>,
    },
}

#[derive(Clone, Debug)]
enum Label {
    Plain(String),
    /// A glob, and its text in lower case.
    Glob(TextGlob, String),
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// The fault of the pattern, and what to write instead.
    pub fn new(written: &str) -> Result<Self, HostPatternError> {
        let form = check_text(written).and_then(|()| Form::parse(written)).map_err(|source| {
            HostPatternError {
                written: neutral_line(cut(written, MAX_PATTERN)),
                source: suggest_dot(written).unwrap_or(source),
            }
        })?;
        Ok(Self { written: written.to_owned(), form })
    }

    /// Checks whether a host matches. Addresses are compared by the address that a connection
    /// reaches, so other forms of an address also match.
    pub fn matches(&self, host: &TargetHost) -> bool {
        match (&self.form, host) {
            (Form::Any, _) => true,
            (Form::Host(TargetHost::Address(one)), TargetHost::Address(other)) => {
                reached_address(*one) == reached_address(*other)
            }
            (Form::Host(one), other) => one == other,
            (Form::Labels { .. }, TargetHost::Address(_)) => false,
            (Form::Labels { below, labels }, TargetHost::Name(name)) => {
                matches_labels(*below, labels, name)
            }
        }
    }

    /// Checks whether every host that matches `other` also matches this pattern. Returns false if
    /// this isn't certain.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Any, _) => true,
            (_, Form::Host(host)) => self.matches(host),
            (Form::Labels { below: true, labels }, Form::Labels { below, labels: theirs }) => {
                let is_deeper = theirs.len() > labels.len();
                let has_same_depth = *below && theirs.len() == labels.len();
                let mut pairs = labels.iter().rev().zip(theirs.iter().rev());
                let has_same_end = pairs.all(
                    |pair| matches!(pair, (Label::Plain(one), Label::Plain(other)) if one == other),
                );
                (is_deeper || has_same_depth) && has_same_end
            }
            _ => self == other,
        }
    }

    /// Returns the pattern in its normal form.
    pub fn normal(&self) -> String {
        match &self.form {
            Form::Any => "*".to_owned(),
            Form::Host(host) => host.to_string(),
            Form::Labels { below, labels } => {
                let below = below.then(|| "*".to_owned());
                let labels = labels.iter().map(|label| match label {
                    Label::Plain(text) | Label::Glob(_, text) => text.clone(),
                });
                below.into_iter().chain(labels).collect::<Vec<String>>().join(".")
            }
        }
    }

    /// Checks whether the pattern is exactly this address.
    pub fn is_address(&self, address: IpAddr) -> bool {
        matches!(
            self.form,
            Form::Host(TargetHost::Address(one)) if reached_address(one) == reached_address(address)
        )
    }

    /// Returns the number of labels after the last label with a star, or of all labels if no label
    /// has a star. Returns `None` for an address.
    pub(super) fn plain_labels(&self) -> Option<usize> {
        match &self.form {
            Form::Any => Some(0),
            Form::Host(TargetHost::Address(_)) => None,
            Form::Host(TargetHost::Name(name)) => Some(name.split('.').count()),
            Form::Labels { labels, .. } => Some(
                labels.iter().rev().take_while(|label| matches!(label, Label::Plain(_))).count(),
            ),
        }
    }

    /// Returns the host if the pattern matches only one.
    pub(super) fn single_host(&self) -> Option<&TargetHost> {
        match &self.form {
            Form::Host(host) => Some(host),
            Form::Any | Form::Labels { .. } => None,
        }
    }

    /// Checks whether the pattern matches any host.
    pub fn is_any(&self) -> bool {
        matches!(self.form, Form::Any)
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

/// Different spellings of one host are equal.
impl PartialEq for HostPattern {
    fn eq(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Host(one), Form::Host(other)) => one == other,
            _ => self.written.eq_ignore_ascii_case(&other.written),
        }
    }
}

impl Eq for HostPattern {}

impl Form {
    fn parse(written: &str) -> Result<Self, SyntaxError> {
        if written == "*" {
            return Ok(Self::Any);
        }
        refuse_url(written)?;
        if let Some((host, rest)) = written.split_once('/') {
            let is_number = rest.bytes().all(|c| c.is_ascii_digit()) && !rest.is_empty();
            return Err(if is_number {
                SyntaxError::Range
            } else {
                SyntaxError::Path(neutral_line(host))
            });
        }
        if written.contains('@') {
            return Err(SyntaxError::Credentials);
        }
        let bare =
            written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(written);
        if let Ok(address) = bare.parse::<std::net::Ipv6Addr>() {
            return Ok(Self::Host(TargetHost::Address(IpAddr::from(address).to_canonical())));
        }
        if let Some((host, port)) = written.rsplit_once(':') {
            return Err(SyntaxError::Port { host: neutral_line(host), port: neutral_line(port) });
        }
        if !written.contains('*') {
            return Ok(Self::Host(TargetHost::parse(written)?));
        }
        Self::with_stars(written)
    }

    fn with_stars(written: &str) -> Result<Self, SyntaxError> {
        let written = written.strip_suffix('.').unwrap_or(written);
        let (below, name) = match written.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, written),
        };
        // The labels after the last star are a name, and are normalised together.
        let plain_end = match name.rfind('*') {
            Some(star) => name[star..].split_once('.').map_or("", |(_, plain)| plain),
            None => name,
        };
        if plain_end.is_empty() {
            return Err(too_wide(written));
        }
        let TargetHost::Name(normal_end) = TargetHost::parse(plain_end)? else {
            return Err(SyntaxError::StarInAddress);
        };

        let before_end = &name[..name.len() - plain_end.len()];
        let mut labels = Vec::new();
        for label in before_end.split('.').filter(|label| !label.is_empty()) {
            labels.push(Label::parse(label)?);
        }
        if name.contains('*') && !normal_end.contains('.') {
            return Err(too_wide(written));
        }
        labels.extend(normal_end.split('.').map(|label| Label::Plain(label.to_owned())));
        Ok(Self::Labels { below, labels })
    }
}

impl Label {
    fn parse(written: &str) -> Result<Self, SyntaxError> {
        if written.contains('*') {
            return Ok(Self::Glob(label_glob(written)?, written.to_ascii_lowercase()));
        }
        match TargetHost::parse(written)? {
            TargetHost::Name(name) => Ok(Self::Plain(name)),
            TargetHost::Address(_) => Ok(Self::Plain(written.to_ascii_lowercase())),
        }
    }
}

fn too_wide(written: &str) -> SyntaxError {
    let name = written.trim_start_matches('*');
    let is_name = name.contains('.') && !name.starts_with('.') && !name.contains('*');
    if is_name { SyntaxError::StarWithoutDot(name.to_owned()) } else { SyntaxError::Wide }
}

fn label_glob(label: &str) -> Result<TextGlob, SyntaxError> {
    match label.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*'))) {
        Some(c) => Err(SyntaxError::CharacterInLabel(c)),
        None => Ok(TextGlob::new(label)?),
    }
}

fn matches_labels(below: bool, labels: &[Label], name: &str) -> bool {
    let mut parts = name.rsplit('.');
    for label in labels.iter().rev() {
        let Some(part) = parts.next() else { return false };
        let is_match = match label {
            Label::Plain(plain) => plain == part,
            Label::Glob(glob, _) => glob.matches(part),
        };
        if !is_match {
            return false;
        }
    }
    let has_more_parts = parts.next().is_some();
    has_more_parts == below
}

fn check_text(written: &str) -> Result<(), SyntaxError> {
    if written.is_empty() {
        return Err(SyntaxError::Empty);
    }
    if written.len() > MAX_PATTERN {
        return Err(SyntaxError::Length(written.len()));
    }
    for c in written.chars() {
        if c.is_whitespace() || c.is_control() || matches!(c, '%' | '\\' | '?' | '#') {
            return Err(SyntaxError::Character(c));
        }
    }
    Ok(())
}

fn refuse_url(written: &str) -> Result<(), SyntaxError> {
    let Some((_, rest)) = written.split_once("://") else { return Ok(()) };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    Err(SyntaxError::Url(neutral_line(host)))
}

/// Returns the fault that a pattern certainly has, even if it has other faults.
fn suggest_dot(written: &str) -> Option<SyntaxError> {
    let name = written.strip_prefix('*')?;
    let is_name =
        name.contains('.') && !name.starts_with('.') && !name.contains(['*', ':', '/', '@']);
    is_name.then(|| SyntaxError::StarWithoutDot(name.to_owned()))
}

/// Private hosts that are opened: a name, a pattern for names, an address, or a range in CIDR
/// notation. Each may have a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateHosts {
    written: String,
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Pattern(HostPattern),
    Range(IpNet),
}

impl PrivateHosts {
    /// Reads an entry: `localhost:3000`, `nas.lan`, `10.1.2.3`, `10.0.0.0/8:8080`, `fd00::/8`,
    /// `[fd00::1]:8080`, `[fd00::/8]:8080`.
    ///
    /// # Errors
    ///
    /// Returns the fault of the entry and the remedy.
    pub fn new(written: &str) -> Result<Self, PrivateHostsError> {
        Self::parse(written).map_err(|source| PrivateHostsError {
            written: neutral_line(cut(written, MAX_PATTERN)),
            source,
        })
    }

    fn parse(written: &str) -> Result<Self, OpenedHostError> {
        check_text(written)?;
        refuse_url(written)?;
        let (hosts, port) = with_port(written)?;
        let bare = hosts.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hosts);
        let hosts = match bare.split_once('/') {
            None => Hosts::Pattern(HostPattern::new(bare)?),
            Some(_) => Hosts::Range(range(bare)?),
        };
        if let Hosts::Pattern(pattern) = &hosts {
            if pattern.is_any() {
                return Err(OpenedHostError::Any);
            }
            let forbidden_host = match &pattern.form {
                Form::Host(TargetHost::Address(address)) => forbidden(*address),
                Form::Host(TargetHost::Name(name)) => super::address::forbidden_name(name),
                _ => None,
            };
            if let Some(forbidden) = forbidden_host
                && forbidden.always
            {
                return Err(OpenedHostError::Always(forbidden.kind));
            }
        }
        Ok(Self { written: written.to_owned(), hosts, port })
    }

    /// Checks whether the entry opens an address of a target. The entry must name the target with
    /// its port, or the address.
    pub fn opens(&self, target: &Target, address: IpAddr) -> bool {
        if forbidden(address).is_some_and(|forbidden| forbidden.always) {
            return false;
        }
        if self.port.is_some_and(|port| port != target.port) {
            return false;
        }
        match &self.hosts {
            Hosts::Pattern(pattern) => pattern.matches(&target.host) || pattern.is_address(address),
            Hosts::Range(range) => range.contains(&reached_address(address)),
        }
    }

    /// Checks whether this entry opens everything that `other` opens. False if that is unclear.
    pub fn covers(&self, other: &Self) -> bool {
        let hosts = match (&self.hosts, &other.hosts) {
            (Hosts::Pattern(one), Hosts::Pattern(other)) => one.covers(other),
            (Hosts::Range(one), Hosts::Range(other)) => one.contains(other),
            (
                Hosts::Range(range),
                Hosts::Pattern(HostPattern {
                    form: Form::Host(TargetHost::Address(address)), ..
                }),
            ) => range.contains(&reached_address(*address)),
            _ => false,
        };
        hosts && (self.port.is_none() || self.port == other.port)
    }

    /// Checks whether the entry names the host of a target before the host is resolved. The host is
    /// a name or an address.
    pub fn names(&self, target: &Target) -> bool {
        match &target.host {
            TargetHost::Address(address) => self.opens(target, *address),
            TargetHost::Name(_) => {
                let has_port = self.port.is_none_or(|port| port == target.port);
                match &self.hosts {
                    Hosts::Pattern(pattern) => has_port && pattern.matches(&target.host),
                    Hosts::Range(_) => false,
                }
            }
        }
    }

    /// Returns the entry as it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

/// Splits a port off the end. An address of version 6 before a port has brackets.
pub(super) fn with_port(written: &str) -> Result<(&str, Option<u16>), PortError> {
    let bracket = if written.starts_with('[') { written.rfind(']') } else { None };
    let (hosts, port) = match bracket.map(|end| written.split_at(end + 1)) {
        Some((hosts, "")) => (hosts, None),
        Some((hosts, port)) => (hosts, Some(port.strip_prefix(':').ok_or(PortError::Separator)?)),
        // An address of version 6 without brackets has no port.
        None if written.matches(':').count() > 1 => (written, None),
        None => {
            written.split_once(':').map_or((written, None), |(hosts, port)| (hosts, Some(port)))
        }
    };
    let Some(port) = port else { return Ok((hosts, None)) };
    // Parsing alone would also accept `+80`.
    let has_only_digits = port.bytes().all(|c| c.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if has_only_digits && number > 0 => Ok((hosts, Some(number))),
        _ => Err(PortError::Number),
    }
}

fn range(written: &str) -> Result<IpNet, OpenedHostError> {
    let range: IpNet = written.parse().map_err(|_| OpenedHostError::Range)?;
    let widest = match range {
        IpNet::V4(_) => WIDEST.0,
        IpNet::V6(_) => WIDEST.1,
    };
    if range.prefix_len() < widest {
        return Err(OpenedHostError::Wide(widest));
    }
    if range.trunc() != range {
        return Err(OpenedHostError::First(range.trunc()));
    }
    Ok(range)
}
