//! How clients are served.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::rule::{Rule, section};

/// When a client gets structured answers, and the schemas that promise them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Structured {
    /// From tools with an output schema, unless what a model should read is their text. A client
    /// that asks for them gets all.
    #[default]
    Auto,
    /// From every tool that has them.
    Always,
    /// From none.
    Never,
}

section! {
    /// How `berth serve` serves its clients.
    #[derive(Eq)]
    pub struct Serve {
        /// Which answers are sent as structured content too: `auto` of tools whose answer is a
        /// value and not a text, `always` of all that have one, `never` of none. Many clients show
        /// their model nothing else of an answer that has it.
        pub structured: Structured = Structured::Auto, Rule::Ignored;
        /// Where clients from elsewhere reach the server, `https://berth.example.com` for instance:
        /// its host is let in beside the names of this machine, and tokens of an authorization
        /// server are for this address with `/mcp` behind it.
        pub url: String, Rule::Ignored;
        /// Web pages that may use the server, by their origins, `https://app.example.com` for
        /// instance; no other page may.
        #[schemars(extend("examples" = [["https://app.example.com"]]))]
        pub allowed_origins: Vec<String>, Rule::Ignored;
        /// The PEM file with the server's certificate and those that vouch for it, for TLS. It is
        /// read at the start.
        pub certificate: String, Rule::Ignored;
        /// The PEM file with the certificate's private key.
        pub key: String, Rule::Ignored;
        /// Whether other machines may come without TLS, which a proxy in front has to speak then:
        /// tokens travel as they are.
        pub plain_http: bool, Rule::OnlyFalse;
        /// Connections at a time that have shown a token; more wait. Beside them, 64 may be open
        /// that have not, of which the oldest goes first.
        pub max_connections: Bounded<1, 65_536> = Bounded::clamped(256), Rule::Smaller;
        /// Requests of one caller at a time; more are refused.
        pub max_requests: Bounded<1, 1024> = Bounded::clamped(64), Rule::Smaller;
        /// Requests of one caller within a minute; more are refused. 0: any number.
        pub requests_per_minute: Bounded<0, 10_000_000> = Bounded::clamped(60_000), Rule::SmallerOrUnbounded;
        /// KiB of one request.
        pub max_body_kib: Bounded<1, 65_536> = Bounded::clamped(4096), Rule::Smaller;
        /// Seconds that calls may still take when the server is told to end.
        pub grace_secs: Bounded<0, 3600> = Bounded::clamped(10), Rule::Smaller;
        /// Callers with tokens of an authorization server, in place of the server's own token.
        pub oauth: OAuth, Rule::Table(OAuth::RULES);
    }
}

section! {
    /// Callers with tokens of an authorization server (OAuth 2.1, JSON Web Tokens). Counts where
    /// there is an `issuer`.
    #[derive(Eq)]
    pub struct OAuth {
        /// The authorization server, as its tokens name it (`iss`).
        pub issuer: String, Rule::Ignored;
        /// Its keys: the address of its JSON Web Key Set (https, or http of this machine), or a
        /// file with one.
        pub keys: String, Rule::Ignored;
        /// Whom tokens are for (`aud`). Where empty, `url` with `/mcp` behind it.
        pub audience: String, Rule::Ignored;
        /// The scope that a token has to have, where there is to be one.
        pub scope: String, Rule::Ignored;
    }
}
