//! `[serve]`: how `toolhold serve` serves clients, and how they authenticate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

/// The tools for which a client gets structured answers and their schemas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Structured {
    /// Tools with an output schema, except tools whose text is meant for the model. A client that
    /// requests structured answers gets them for all tools.
    #[default]
    Auto,
    /// Every tool that has structured answers.
    Always,
    /// No tool.
    Never,
}

section! {
    /// The server of `toolhold serve`.
    #[derive(Eq)]
    pub struct Serve {
        /// The answers that are also sent as structured content: `auto` for tools whose answer is a
        /// value and not text, `always` for all tools that have a structured answer, `never` for no
        /// tool. If there is structured content, many clients show their model nothing else.
        pub structured: Structured = Structured::Auto, Narrowing::Ignored;
        /// The URL that other machines use for the server, for example
        /// `https://toolhold.example.com`. Requests for its host are accepted in addition to the
        /// names of this machine. Tokens of an authorization server must be issued for this URL
        /// followed by `/mcp`.
        pub url: String, Narrowing::Ignored;
        /// Web pages that may use the server, by their origins, for example
        /// `https://app.example.com`. Other pages may not use it.
        #[schemars(extend("examples" = [["https://app.example.com"]]))]
        pub allowed_origins: Vec<String>, Narrowing::Ignored;
        /// The PEM file with the server's certificate chain, for TLS. The server reads the file
        /// when it starts.
        pub certificate: String, Narrowing::Ignored;
        /// The PEM file with the certificate's private key.
        pub key: String, Narrowing::Ignored;
        /// Whether other machines may connect without TLS. Use this key only behind a proxy with
        /// TLS. Without the proxy, tokens are sent unencrypted.
        pub plain_http: bool, Narrowing::OnlyFalse;
        /// Whether several users of an authorization server may work in the server's directory, all
        /// with the same rights. Otherwise only the first user may work there until the server
        /// ends.
        pub shared_workspace: bool, Narrowing::OnlyFalse;
        /// Connections with a valid token at the same time. 64 further ones wait for up to 15
        /// seconds, and others are refused. In addition, 256 connections without a token may be
        /// open, and the oldest of these is closed first.
        pub max_connections: Bounded<1, 65_536> = Bounded::clamped(256), Narrowing::Smaller;
        /// Requests of one caller at the same time. Further requests are refused.
        pub max_requests: Bounded<1, 1024> = Bounded::clamped(64), Narrowing::Smaller;
        /// Requests of one caller in one minute. Further requests are refused. 0 means any number.
        pub requests_per_minute: Bounded<0, 10_000_000> = Bounded::clamped(60_000), Narrowing::SmallerOrUnbounded;
        /// KiB of one request.
        pub max_body_kib: Bounded<1, 65_536> = Bounded::clamped(4096), Narrowing::Smaller;
        /// Seconds for which running calls may continue when the server ends.
        pub grace_secs: Bounded<0, 3600> = Bounded::clamped(10), Narrowing::Smaller;
        /// Callers with tokens of an authorization server instead of the server's own token.
        pub oauth: OAuth, Narrowing::Table(OAuth::RULES);
    }
}

section! {
    /// Callers with tokens of an authorization server (OAuth 2.1, JSON Web Tokens). Used if
    /// `issuer` is set.
    #[derive(Eq)]
    pub struct OAuth {
        /// The authorization server's name in its tokens (`iss`).
        pub issuer: String, Narrowing::Ignored;
        /// The authorization server's keys: the URL of its JSON Web Key Set (https, or http on this
        /// machine), or a file with a key set.
        pub keys: String, Narrowing::Ignored;
        /// The audience of tokens (`aud`). If empty, `url` followed by `/mcp`.
        pub audience: String, Narrowing::Ignored;
        /// The scope that a token needs. If empty, tokens need no scope.
        pub scope: String, Narrowing::Ignored;
    }
}
