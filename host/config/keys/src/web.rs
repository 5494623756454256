//! `[tools.web]`: the hosts that the built-in web tools may reach.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{Bounded, HostGrant, Secret, WrittenHost, WrittenPrivateHosts};

section! {
    /// The hosts that the built-in web tools may reach, and the limits of their requests.
    pub struct Web {
        /// Whether the web tools exist. `false` removes them from the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Hosts that are reached without approval: `"docs.rs"`, `"*.example.com"` for all names
        /// below `example.com`, or `"https://example.com:8443"`. A table can also name the
        /// `methods` and `paths`. With `"job"`, http requests to `localhost`, `127.0.0.1` and `[::1]`
        /// go to servers that run as jobs of the same session. These requests then never reach this
        /// machine, except for hosts of `allowed_private_hosts`.
        pub allowed_domains: Vec<HostGrant>, Narrowing::Covered(HostGrant::covers_written);
        /// Hosts that plugins never reach, nor commands and MCP servers without the whole network,
        /// even if a grant names them.
        pub denied_domains: Vec<WrittenHost>, Narrowing::Adds;
        /// The treatment of requests to other public hosts.
        pub other_domains: OtherDomains, Narrowing::Stricter(&["deny", "ask", "allow"]);
        /// Private hosts that may be reached: `"localhost:3000"`, an address, or a range such as
        /// `"10.1.0.0/16"`, each with or without a port. They are also reached without TLS.
        pub allowed_private_hosts: Vec<WrittenPrivateHosts>, Narrowing::Covered(WrittenPrivateHosts::covers_written);
        /// Whether other hosts are reached with TLS only.
        pub https_only: bool = true, Narrowing::OnlyTrue;
        /// Seconds of one request, until the end of its response.
        pub timeout: Bounded<1, 3600> = Bounded::clamped(15), Narrowing::Smaller;
        /// KiB of the body of one response. A longer body is cut.
        pub max_body_kib: Bounded<1, 1_048_576> = Bounded::clamped(1024), Narrowing::Smaller;
        /// Hosts to which a request may send text that looks like a secret.
        pub credentials_to: Vec<WrittenHost>, Narrowing::Covered(WrittenHost::covers_written);
        /// Secrets that Toolhold adds to requests, by names of your choice. No tool and no model
        /// sees the secrets.
        pub secrets: BTreeMap<String, Secret>, Narrowing::Named(Secret::RULES);
    }
}

/// The treatment of requests to hosts that no list names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OtherDomains {
    /// The requests are denied.
    Deny,
    /// The call needs approval.
    #[default]
    Ask,
    /// The requests are sent.
    Allow,
}
