//! Matches hosts with patterns of the operator, such as `*.example.com`.

use std::net::IpAddr;

use ipnet::IpNet;
use toolhold_contract::text::{cut, neutral_line};

use super::address::{forbidden, reached_address};
use super::target::{Target, TargetHost, TargetHostError};
use crate::pattern::{PatternLengthError, TextGlob};

/// Bytes of the longest name with a port.
const MAX_PATTERN: usize = 260;

/// Shortest prefixes of ranges that can be opened, in bits. A range that is wider than a private
/// network would open more than the operator intends.
const SHORTEST_PREFIX_V4: u8 = 8;
const SHORTEST_PREFIX_V6: u8 = 7;

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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum SyntaxError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern has {0} bytes; the limit is {MAX_PATTERN}")]
    Length(usize),
    #[error("the pattern has the character {0:?}, which isn't allowed")]
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
    // Many operators write `*example.com` for `example.com` and the names below it.
    #[error("write `*.{0}` for all names below {0}, and `{0}` for {0} itself")]
    StarWithoutDot(String),
    #[error("`*` isn't allowed in the last two parts of a name: write `*` alone for any host")]
    Wide,
}

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
    #[error("the entry would open every private host: name the hosts to open")]
    Any,
    #[error("the address is {0}, which can't be opened")]
    Always(&'static str),
}

/// A fault in the text after a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The text after an address in brackets doesn't start with `:`.
    #[error("only `:` and a port may follow `]`")]
    Separator,
    /// The text isn't a port number. It may be a password, so it isn't shown.
    #[error("the text after `:` isn't a port: ports are numbers from 1 to 65535")]
    Number,
}

/// A pattern for hosts: a name, an address, or `*` for any host. `*.example.com` matches all names
/// below `example.com`, but not `example.com` itself. In `api-*.example.com`, `*` matches any
/// characters without a dot.
#[derive(Clone, Debug)]
pub struct HostPattern {
    written: String,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Any,
    Host(TargetHost),
    /// A name with stars. If `below` is true, `labels` match the end of names of any depth.
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
    /// Returns the fault of the pattern, and the remedy.
    pub fn new(written: &str) -> Result<Self, HostPatternError> {
        let parsed = check_text(written).and_then(|()| Form::parse(written));
        match parsed {
            Ok(form) => Ok(Self { written: written.to_owned(), form }),
            Err(fault) => Err(HostPatternError {
                written: neutral_line(cut(written, MAX_PATTERN)),
                // A missing dot, as in `*example.com`, is a likely cause of other faults.
                source: suggest_dot(written).unwrap_or(fault),
            }),
        }
    }

    /// Checks whether `host` matches the pattern. Two addresses are equal if a connection to both
    /// reaches the same address.
    pub fn matches(&self, host: &TargetHost) -> bool {
        match (&self.form, host) {
            (Form::Any, _) => true,
            (Form::Host(TargetHost::Address(own_address)), TargetHost::Address(address)) => {
                reached_address(*own_address) == reached_address(*address)
            }
            (Form::Host(own_host), host) => own_host == host,
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
            // `*.example.com` covers `*.example.com`, `*.a.example.com` and `x*.example.com`.
            (
                Form::Labels { below: true, labels },
                Form::Labels { below: other_below, labels: other_labels },
            ) => {
                let is_deeper = other_labels.len() > labels.len();
                let has_same_depth = *other_below && other_labels.len() == labels.len();
                if !is_deeper && !has_same_depth {
                    return false;
                }
                let mut pairs_from_end = labels.iter().rev().zip(other_labels.iter().rev());
                pairs_from_end.all(|(label, other_label)| match (label, other_label) {
                    (Label::Plain(text), Label::Plain(other_text)) => text == other_text,
                    _ => false,
                })
            }
            _ => self == other,
        }
    }

    /// Returns the pattern in its normal form: names in lower case and without a dot at the end.
    pub fn normal(&self) -> String {
        match &self.form {
            Form::Any => "*".to_owned(),
            Form::Host(host) => host.to_string(),
            Form::Labels { below, labels } => {
                let mut texts = Vec::new();
                if *below {
                    texts.push("*");
                }
                for label in labels {
                    match label {
                        Label::Plain(text) | Label::Glob(_, text) => texts.push(text),
                    }
                }
                texts.join(".")
            }
        }
    }

    /// Checks whether the pattern is exactly this address.
    pub fn is_address(&self, address: IpAddr) -> bool {
        matches!(
            self.form,
            Form::Host(TargetHost::Address(own)) if reached_address(own) == reached_address(address)
        )
    }

    /// Returns the number of labels after the last label with a star. Without a star, returns the
    /// number of all labels. Returns `None` for an address.
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

impl PartialEq for HostPattern {
    fn eq(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Host(host), Form::Host(other_host)) => host == other_host,
            _ => self.written.eq_ignore_ascii_case(&other.written),
        }
    }
}

impl Eq for HostPattern {}

impl Form {
    /// Reads a pattern: `*`, a name, an address, or a name with stars. Refuses the other parts of a
    /// URL, and a range of addresses.
    fn parse(written: &str) -> Result<Self, SyntaxError> {
        if written == "*" {
            return Ok(Self::Any);
        }
        refuse_url(written)?;
        if let Some((host, rest)) = written.split_once('/') {
            let is_number = !rest.is_empty() && rest.bytes().all(|c| c.is_ascii_digit());
            if is_number {
                return Err(SyntaxError::Range);
            }
            return Err(SyntaxError::Path(neutral_line(host)));
        }
        if written.contains('@') {
            return Err(SyntaxError::Credentials);
        }
        if let Ok(address) = without_brackets(written).parse::<std::net::Ipv6Addr>() {
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

    /// Parses a name with stars, such as `*.example.com` or `api-*.example.com`.
    fn with_stars(written: &str) -> Result<Self, SyntaxError> {
        let written = written.strip_suffix('.').unwrap_or(written);
        let (below, name) = match written.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, written),
        };
        // The labels after the last star are normalised together, as one name.
        let plain_end = after_last_star(name);
        if plain_end.is_empty() {
            return Err(too_wide(written));
        }
        let TargetHost::Name(normal_end) = TargetHost::parse(plain_end)? else {
            return Err(SyntaxError::StarInAddress);
        };

        // The text before the plain end is empty or ends with a dot, so its last label is empty.
        let before_end = &name[..name.len() - plain_end.len()];
        let mut labels = Vec::new();
        for label in before_end.split('.') {
            if !label.is_empty() {
                labels.push(Label::parse(label)?);
            }
        }
        // A name such as `a*.com` would match hosts of different owners.
        if name.contains('*') && !normal_end.contains('.') {
            return Err(too_wide(written));
        }
        labels.extend(normal_end.split('.').map(|label| Label::Plain(label.to_owned())));
        Ok(Self::Labels { below, labels })
    }
}

impl Label {
    /// Reads a label, the part of a name between two dots.
    fn parse(written: &str) -> Result<Self, SyntaxError> {
        if written.contains('*') {
            return Ok(Self::Glob(label_glob(written)?, written.to_ascii_lowercase()));
        }
        match TargetHost::parse(written)? {
            TargetHost::Name(name) => Ok(Self::Plain(name)),
            // A label such as `10` alone reads as an address.
            TargetHost::Address(_) => Ok(Self::Plain(written.to_ascii_lowercase())),
        }
    }
}

/// Returns the labels after the last label with a star. Without a star, returns the whole name.
fn after_last_star(name: &str) -> &str {
    let Some(last_star) = name.rfind('*') else { return name };
    match name[last_star..].split_once('.') {
        Some((_, plain_labels)) => plain_labels,
        None => "",
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

/// Checks whether the last labels of `name` match `labels`. If `below` is true, the name must have
/// more labels. If `below` is false, the name must have no more labels.
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

/// Refuses an empty text, a long text, and characters that no pattern has.
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

/// Returns the most likely fault of a pattern such as `*example.com`, which may have more faults.
fn suggest_dot(written: &str) -> Option<SyntaxError> {
    let name = written.strip_prefix('*')?;
    let is_name =
        name.contains('.') && !name.starts_with('.') && !name.contains(['*', ':', '/', '@']);
    is_name.then(|| SyntaxError::StarWithoutDot(name.to_owned()))
}

/// Removes the brackets around an IPv6 address. Returns a text without brackets as it is.
fn without_brackets(written: &str) -> &str {
    let inside = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inside.unwrap_or(written)
}

/// An entry that opens private hosts: a name, a pattern for names, an address, or a range in CIDR
/// notation. An entry may have a port.
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

    /// Parses an entry. Refuses `*`, and a host that is always blocked.
    fn parse(written: &str) -> Result<Self, OpenedHostError> {
        check_text(written)?;
        refuse_url(written)?;
        let (written_hosts, port) = with_port(written)?;
        let written_hosts = without_brackets(written_hosts);
        let hosts = if written_hosts.contains('/') {
            Hosts::Range(parse_range(written_hosts)?)
        } else {
            Hosts::Pattern(HostPattern::new(written_hosts)?)
        };

        if let Hosts::Pattern(pattern) = &hosts {
            if pattern.is_any() {
                return Err(OpenedHostError::Any);
            }
            // A pattern with stars matches only names. Their addresses are checked by `opens`.
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

    /// Checks whether the entry opens `address` for requests to `target`. The entry must match the
    /// host of the target, or the address. A port in the entry must be the port of the target.
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

    /// Checks whether this entry opens everything that `other` opens. Returns false if this isn't
    /// certain.
    pub fn covers(&self, other: &Self) -> bool {
        let covers_hosts = match (&self.hosts, &other.hosts) {
            (Hosts::Pattern(pattern), Hosts::Pattern(other)) => pattern.covers(other),
            (Hosts::Range(range), Hosts::Range(other)) => range.contains(other),
            (
                Hosts::Range(range),
                Hosts::Pattern(HostPattern {
                    form: Form::Host(TargetHost::Address(address)), ..
                }),
            ) => range.contains(&reached_address(*address)),
            _ => false,
        };
        covers_hosts && (self.port.is_none() || self.port == other.port)
    }

    /// Checks whether the entry matches a target whose name isn't resolved yet. A range of
    /// addresses doesn't match a name.
    pub fn matches_target(&self, target: &Target) -> bool {
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

/// Splits a port off the end. An IPv6 address before a port has brackets. Returns the text before
/// the port, and the port. The port is `None` if there is no port.
pub(super) fn with_port(written: &str) -> Result<(&str, Option<u16>), PortError> {
    if written.starts_with('[')
        && let Some(closing_bracket) = written.rfind(']')
    {
        let (hosts, rest) = written.split_at(closing_bracket + 1);
        if rest.is_empty() {
            return Ok((hosts, None));
        }
        let port = rest.strip_prefix(':').ok_or(PortError::Separator)?;
        return Ok((hosts, Some(parse_port(port)?)));
    }
    // An IPv6 address without brackets has several colons and no port.
    let has_one_colon = written.matches(':').count() == 1;
    match written.split_once(':') {
        Some((hosts, port)) if has_one_colon => Ok((hosts, Some(parse_port(port)?))),
        _ => Ok((written, None)),
    }
}

fn parse_port(written: &str) -> Result<u16, PortError> {
    // `parse` would also accept `+80`.
    let has_only_digits = written.bytes().all(|c| c.is_ascii_digit());
    match written.parse::<u16>() {
        Ok(port) if has_only_digits && port > 0 => Ok(port),
        _ => Err(PortError::Number),
    }
}

/// Reads a range of addresses. The range must start at its first address and must not be too wide.
fn parse_range(written: &str) -> Result<IpNet, OpenedHostError> {
    let range: IpNet = written.parse().map_err(|_| OpenedHostError::Range)?;
    let shortest_prefix = match range {
        IpNet::V4(_) => SHORTEST_PREFIX_V4,
        IpNet::V6(_) => SHORTEST_PREFIX_V6,
    };
    if range.prefix_len() < shortest_prefix {
        return Err(OpenedHostError::Wide(shortest_prefix));
    }
    // The first address of a range has only zeros after the prefix.
    if range.trunc() != range {
        return Err(OpenedHostError::First(range.trunc()));
    }
    Ok(range)
}
