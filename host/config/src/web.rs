//! `[tools.web]`: where the built-in web tools reach, and what of an answer they take.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::{Rule, rules};
use super::{Bounded, HostGrant, Secret, WrittenHost, WrittenPrivateHosts};

/// Where the built-in web tools reach, and what of an answer they take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Web {
    /// Whether there are web tools: `false` takes them out of the catalogue.
    pub enabled: bool,
    /// Hosts that are reached without asking, as in `"docs.rs"`, `"*.example.com"` for all names below one, or
    /// `"https://example.com:8443"`; a table can also say by which `methods`.
    pub allowed_domains: Vec<HostGrant>,
    /// Hosts that are never reached, by no plugin, whatever else is granted.
    pub denied_domains: Vec<WrittenHost>,
    /// What becomes of requests to other public hosts.
    pub other_domains: OtherDomains,
    /// Private hosts that are opened, as `"localhost:3000"`, an address or a range such as `"10.1.0.0/16"`, each with or without a port. They
    /// are reached without TLS, too.
    pub allowed_private_hosts: Vec<WrittenPrivateHosts>,
    /// Whether other hosts are reached by TLS alone.
    pub https_only: bool,
    /// Seconds of one request, to the end of its answer.
    pub timeout: Bounded<1, 3600>,
    /// KiB of the body of one answer; what is longer is cut off there.
    pub max_body_kib: Bounded<1, 1_048_576>,
    /// Hosts to which a request may carry what looks like a secret.
    pub credentials_to: Vec<WrittenHost>,
    /// Secrets that Berth puts into requests, by names of yours. No tool and no model sees one.
    pub secrets: BTreeMap<String, Secret>,
}

rules!(Web {
    enabled: Rule::OnlyFalse,
    allowed_domains: Rule::Covered(HostGrant::covers_written),
    denied_domains: Rule::Adds,
    other_domains: Rule::Stricter(&["deny", "ask", "allow"]),
    allowed_private_hosts: Rule::Covered(WrittenPrivateHosts::covers_written),
    https_only: Rule::OnlyTrue,
    timeout: Rule::Smaller,
    max_body_kib: Rule::Smaller,
    credentials_to: Rule::Covered(WrittenHost::covers_written),
    secrets: Rule::Named(Secret::RULES),
});

impl Default for Web {
    fn default() -> Self {
        Self {
            enabled: true,
            allowed_domains: Vec::new(),
            denied_domains: Vec::new(),
            other_domains: OtherDomains::default(),
            allowed_private_hosts: Vec::new(),
            https_only: true,
            timeout: Bounded::clamped(15),
            max_body_kib: Bounded::clamped(1024),
            credentials_to: Vec::new(),
            secrets: BTreeMap::new(),
        }
    }
}

/// What becomes of requests to hosts that no list names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OtherDomains {
    /// They are refused.
    Deny,
    /// A person is asked before the call.
    #[default]
    Ask,
    /// They are sent.
    Allow,
}
