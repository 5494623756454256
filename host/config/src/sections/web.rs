//! `[tools.web]`: where the built-in web tools reach, and what of an answer they take.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::{Rule, section};
use crate::{Bounded, HostGrant, Secret, WrittenHost, WrittenPrivateHosts};

section! {
    /// Where the built-in web tools reach, and what of an answer they take.
    pub struct Web {
        /// Whether there are web tools: `false` takes them out of the catalogue.
        pub enabled: bool = true, Rule::OnlyFalse;
        /// Hosts that are reached without asking, as in `"docs.rs"`, `"*.example.com"` for all
        /// names below one, or `"https://example.com:8443"`; a table can also say by which
        /// `methods`.
        pub allowed_domains: Vec<HostGrant>, Rule::Covered(HostGrant::covers_written);
        /// Hosts that are never reached, by no plugin, whatever else is granted.
        pub denied_domains: Vec<WrittenHost>, Rule::Adds;
        /// What becomes of requests to other public hosts.
        pub other_domains: OtherDomains, Rule::Stricter(&["deny", "ask", "allow"]);
        /// Private hosts that are opened, as `"localhost:3000"`, an address or a range such as
        /// `"10.1.0.0/16"`, each with or without a port. They are reached without TLS, too.
        pub allowed_private_hosts: Vec<WrittenPrivateHosts>, Rule::Covered(WrittenPrivateHosts::covers_written);
        /// Whether other hosts are reached by TLS alone.
        pub https_only: bool = true, Rule::OnlyTrue;
        /// Seconds of one request, to the end of its answer.
        pub timeout: Bounded<1, 3600> = Bounded::clamped(15), Rule::Smaller;
        /// KiB of the body of one answer; what is longer is cut off there.
        pub max_body_kib: Bounded<1, 1_048_576> = Bounded::clamped(1024), Rule::Smaller;
        /// Hosts to which a request may carry what looks like a secret.
        pub credentials_to: Vec<WrittenHost>, Rule::Covered(WrittenHost::covers_written);
        /// Secrets that Berth puts into requests, by names of yours. No tool and no model sees one.
        pub secrets: BTreeMap<String, Secret>, Rule::Named(Secret::RULES);
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
