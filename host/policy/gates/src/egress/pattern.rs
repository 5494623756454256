//! Matches hosts against patterns such as `*.example.com`, as the operator writes them.

use std::net::IpAddr;

use ipnet::IpNet;
use toolhold_contract::text::{cut, neutral_line};

use super::address::{forbidden, reached_address};
use super::target::{Target, TargetHost};
use crate::pattern::TextGlob;

/// Bytes of a pattern: the longest name with a port.
const MAX_PATTERN: usize = 260;

/// Shortest prefixes of ranges that can be opened, for versions 4 and 6: those of the private
/// networks. A wider range would open more than the operator means.
const WIDEST: (u8, u8) = (8, 7);

/// A pattern for hosts: a name, an address, `*.example.com` for all names below `example.com` (not
/// for `example.com` itself), `*` for any host. A `*` inside a part of a name matches any
/// characters of that part: `api-*.example.com`.
#[derive(Clone, Debug)]
pub struct HostPattern {
    written: String,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Any,
    Host(TargetHost),
    /// A name with stars. `below`: whether it matches names at any depth below the labels.
    Labels {
        below: bool,
        labels: Vec<Label>,
    },
}

#[derive(Clone, Debug)]
enum Label {
    Plain(String),
    /// With its text in lower case.
    Glob(TextGlob, String),
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// What is wrong with the pattern, and what to write instead.
    pub fn new(written: &str) -> Result<Self, String> {
        let form = check_text(written)
            .and_then(|()| Form::parse(written))
            .map_err(|why| describe_error(written, &why))?;
        Ok(Self { written: written.to_owned(), form })
    }

    /// Whether a host matches. Addresses are compared by the address that a connection reaches, so
    /// that other forms of an address match too.
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

    /// Whether every host that matches `other` matches this pattern too. False if that is unclear.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Any, _) => true,
            (_, Form::Host(host)) => self.matches(host),
            (Form::Labels { below: true, labels }, Form::Labels { below, labels: theirs }) => {
                let same = |(one, other): (&Label, &Label)| matches!((one, other), (Label::Plain(one), Label::Plain(other)) if one == other);
                (theirs.len() > labels.len() || *below && theirs.len() == labels.len())
                    && labels.iter().rev().zip(theirs.iter().rev()).all(same)
            }
            _ => self == other,
        }
    }

    /// The pattern in its normal form.
    pub fn normal(&self) -> String {
        match &self.form {
            Form::Any => "*".to_owned(),
            Form::Host(host) => host.to_string(),
            Form::Labels { below, labels } => {
                let label = |label: &Label| match label {
                    Label::Plain(text) | Label::Glob(_, text) => text.clone(),
                };
                let labels: Vec<String> = below
                    .then(|| "*".to_owned())
                    .into_iter()
                    .chain(labels.iter().map(label))
                    .collect();
                labels.join(".")
            }
        }
    }

    /// Whether the pattern is exactly this address.
    pub fn is_address(&self, address: IpAddr) -> bool {
        matches!(
            self.form,
            Form::Host(TargetHost::Address(one)) if reached_address(one) == reached_address(address)
        )
    }

    /// Number of labels after the last label with a star, or of all labels if no label has one.
    /// `None` for an address.
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

    /// Whether it matches one host only.
    pub(super) fn is_single_host(&self) -> bool {
        matches!(self.form, Form::Host(_))
    }

    /// Whether it matches any host.
    pub fn is_any(&self) -> bool {
        matches!(self.form, Form::Any)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

/// Two spellings of one host are equal.
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
    fn parse(written: &str) -> Result<Self, String> {
        if written == "*" {
            return Ok(Self::Any);
        }
        if let Some((_, rest)) = written.split_once("://") {
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            return Err(format!("a host is expected, not a URL: write `{}`", neutral_line(host)));
        }
        if let Some((host, rest)) = written.split_once('/') {
            return Err(match rest.bytes().all(|c| c.is_ascii_digit()) && !rest.is_empty() {
                true => "a range of addresses is only valid in `allowed_private_hosts`".to_owned(),
                false => {
                    format!("a host is expected, without a path: write `{}`", neutral_line(host))
                }
            });
        }
        if written.contains('@') {
            return Err("a user name or password isn't allowed before a host".to_owned());
        }
        let bare =
            written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(written);
        if let Ok(address) = bare.parse::<std::net::Ipv6Addr>() {
            return Ok(Self::Host(TargetHost::Address(IpAddr::from(address).to_canonical())));
        }
        if let Some((host, port)) = written.rsplit_once(':') {
            return Err(format!(
                "a host is expected, without the port `{}`: write `{}`",
                neutral_line(port),
                neutral_line(host)
            ));
        }
        if !written.contains('*') {
            return TargetHost::parse(written).map(Self::Host);
        }
        Self::with_stars(written)
    }

    fn with_stars(written: &str) -> Result<Self, String> {
        let written = written.strip_suffix('.').unwrap_or(written);
        let (below, rest) = match written.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, written),
        };
        // The part without stars at the end is a name. It is normalised as a whole.
        let fixed = rest
            .rfind('*')
            .map_or(Some(0), |star| rest[star..].find('.').map(|dot| star + dot + 1));
        let fixed = fixed.map_or("", |at| &rest[at..]);
        if fixed.is_empty() {
            return Err(too_wide(written));
        }
        let TargetHost::Name(tail) = TargetHost::parse(fixed)? else {
            return Err("`*` isn't allowed in an address, only in a name".to_owned());
        };
        let globs = rest[..rest.len() - fixed.len()].split('.').filter(|label| !label.is_empty());
        let mut labels = Vec::new();
        for label in globs {
            labels.push(match label.contains('*') {
                true => Label::Glob(label_glob(label)?, label.to_ascii_lowercase()),
                false => match TargetHost::parse(label)? {
                    TargetHost::Name(label) => Label::Plain(label),
                    TargetHost::Address(_) => Label::Plain(label.to_ascii_lowercase()),
                },
            });
        }
        if rest.contains('*') && !tail.contains('.') {
            return Err(too_wide(written));
        }
        labels.extend(tail.split('.').map(|label| Label::Plain(label.to_owned())));
        Ok(Self::Labels { below, labels })
    }
}

fn too_wide(written: &str) -> String {
    let name = written.trim_start_matches('*');
    match !name.is_empty() && !name.contains('*') && !name.starts_with('.') && name.contains('.') {
        true => format!("write `*.{name}` for the names below {name}, and `{name}` for itself"),
        false => "`*` isn't allowed in the last two parts of a name: write `*` alone for any host"
            .to_owned(),
    }
}

fn label_glob(label: &str) -> Result<TextGlob, String> {
    match label.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*'))) {
        Some(c) => {
            Err(format!("{c:?} isn't allowed in a part with `*`: use letters, digits, `-` and `_`"))
        }
        None => TextGlob::new(label),
    }
}

fn matches_labels(below: bool, labels: &[Label], name: &str) -> bool {
    let mut parts = name.rsplit('.');
    let all = labels.iter().rev().all(|label| {
        parts.next().is_some_and(|part| match label {
            Label::Plain(plain) => plain == part,
            Label::Glob(glob, _) => glob.matches(part),
        })
    });
    all && parts.next().is_some() == below
}

fn check_text(written: &str) -> Result<(), String> {
    match written.len() {
        0 => Err("the pattern is empty".to_owned()),
        length if length > MAX_PATTERN => {
            Err(format!("the pattern has {length} bytes; the limit is {MAX_PATTERN}"))
        }
        _ => match written
            .chars()
            .find(|c| c.is_whitespace() || c.is_control() || matches!(c, '%' | '\\' | '?' | '#'))
        {
            Some(c) => Err(format!("{c:?} isn't allowed in it")),
            None => Ok(()),
        },
    }
}

fn describe_error(written: &str, why: &str) -> String {
    // Many operators write `*example.com` for the names below it and for itself.
    let name = written.strip_prefix('*').filter(|name| {
        name.contains('.') && !name.starts_with('.') && !name.contains(['*', ':', '/', '@'])
    });
    let why = name.map_or_else(
        || why.to_owned(),
        |name| format!("write `*.{name}` for the names below {name}, and `{name}` for itself"),
    );
    format!("`{}` isn't a valid host pattern: {why}", neutral_line(cut(written, MAX_PATTERN)))
}

/// Private hosts that are opened: a name, a pattern of names, an address or a range in CIDR
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
    /// What is wrong with the entry, and what to write instead.
    pub fn new(written: &str) -> Result<Self, String> {
        let parsed = check_text(written).and_then(|()| Self::parse(written));
        parsed.map_err(|why| {
            format!(
                "`{}` isn't a valid private host: {why}",
                neutral_line(cut(written, MAX_PATTERN))
            )
        })
    }

    fn parse(written: &str) -> Result<Self, String> {
        if let Some((_, rest)) = written.split_once("://") {
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            return Err(format!("a host is expected, not a URL: write `{}`", neutral_line(host)));
        }
        let (hosts, port) = with_port(written)?;
        let bare = hosts.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hosts);
        let hosts = match bare.split_once('/') {
            None => Hosts::Pattern(HostPattern::new(bare)?),
            Some(_) => Hosts::Range(range(bare)?),
        };
        if let Hosts::Pattern(pattern) = &hosts {
            if pattern.is_any() {
                return Err("it would open every private host: name the hosts to open".to_owned());
            }
            let always = match &pattern.form {
                Form::Host(TargetHost::Address(address)) => forbidden(*address),
                Form::Host(TargetHost::Name(name)) => super::address::forbidden_name(name),
                _ => None,
            };
            if let Some(always) = always.filter(|forbidden| forbidden.always) {
                return Err(format!("it is {}, which can't be opened", always.kind));
            }
        }
        Ok(Self { written: written.to_owned(), hosts, port })
    }

    /// Whether it opens an address of a target. It names the target with its port, or the address.
    pub fn opens(&self, target: &Target, address: IpAddr) -> bool {
        if forbidden(address).is_some_and(|forbidden| forbidden.always)
            || self.port.is_some_and(|port| port != target.port)
        {
            return false;
        }
        match &self.hosts {
            Hosts::Pattern(pattern) => pattern.matches(&target.host) || pattern.is_address(address),
            Hosts::Range(range) => range.contains(&reached_address(address)),
        }
    }

    /// Whether this entry opens everything that `other` opens. False if that is unclear.
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

    /// Whether it names the host of a target, before that is resolved. The host is a name or an
    /// address.
    pub fn names(&self, target: &Target) -> bool {
        match &target.host {
            TargetHost::Address(address) => self.opens(target, *address),
            TargetHost::Name(_) => {
                self.port.is_none_or(|port| port == target.port)
                    && matches!(&self.hosts, Hosts::Pattern(pattern) if pattern.matches(&target.host))
            }
        }
    }

    /// The entry as it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

/// Splits a port off the end. An address of version 6 before a port has brackets.
pub(super) fn with_port(written: &str) -> Result<(&str, Option<u16>), String> {
    let (hosts, port) = match written
        .rfind(']')
        .filter(|_| written.starts_with('['))
        .map(|end| written.split_at(end + 1))
    {
        Some((hosts, "")) => (hosts, None),
        Some((hosts, port)) => {
            (hosts, Some(port.strip_prefix(':').ok_or("only `:` and a port may follow `]`")?))
        }
        // An address of version 6 without brackets has no port.
        None if written.matches(':').count() > 1 => (written, None),
        None => {
            written.split_once(':').map_or((written, None), |(hosts, port)| (hosts, Some(port)))
        }
    };
    let Some(port) = port else { return Ok((hosts, None)) };
    let number =
        port.parse().ok().filter(|number| *number > 0 && port.bytes().all(|c| c.is_ascii_digit()));
    // The text isn't shown: it may be a password.
    let number =
        number.ok_or("the text after `:` isn't a port: ports are numbers from 1 to 65535")?;
    Ok((hosts, Some(number)))
}

fn range(written: &str) -> Result<IpNet, String> {
    let range: IpNet = written
        .parse()
        .map_err(|_| "a range of addresses is written as `10.0.0.0/8` or `fd00::/8`".to_owned())?;
    let widest = match range {
        IpNet::V4(_) => WIDEST.0,
        IpNet::V6(_) => WIDEST.1,
    };
    if range.prefix_len() < widest {
        return Err(format!("the range is wider than /{widest}, the limit: name smaller networks"));
    }
    if range.trunc() != range {
        return Err(format!(
            "the address isn't the first one of the range: write `{}`",
            range.trunc()
        ));
    }
    Ok(range)
}
