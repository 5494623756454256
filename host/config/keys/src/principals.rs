//! `[principals.NAME]`: the callers of `toolhold serve --http` to whom a table applies, and the
//! secrets and models that they use. The other tables below `[principals.NAME]` limit these callers.
//! They have the keys of the whole configuration, so they aren't declared again here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::Narrowing;

/// Callers with a token, and their rights. The first table that matches a caller applies.
// `section!` would refuse the tables of limits in the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Principal {
    /// The issuers of the callers' tokens: the authorization server's name in its tokens (`iss`),
    /// or `"toolhold"` for tokens of `toolhold token`. If empty, any issuer.
    #[schemars(extend("examples" = [["https://login.example.com"]]))]
    pub issuer: Vec<String>,
    /// The callers' names at the issuer (`sub`). `*` matches any text. If empty, any name.
    pub subject: Vec<String>,
    /// Groups of the callers, one of which the token must name. `*` matches any text. If empty, no
    /// group is needed.
    #[schemars(extend("examples" = [["developers"]]))]
    pub group: Vec<String>,
    /// The programs that the token was issued to. `*` matches any text. If empty, any program.
    pub client: Vec<String>,
    /// The names of the secrets that Toolhold uses for these callers. All other secrets are removed
    /// from their configuration.
    #[schemars(extend("examples" = [["GITHUB"]]))]
    pub secrets: Vec<String>,
    /// The tables of `[providers]` whose models these callers use, with the secrets of these
    /// tables. `"*"` means all tables.
    #[schemars(extend("examples" = [["local"]]))]
    pub models: Vec<String>,
}

impl Principal {
    /// The rules for a `toolhold.toml` in the working directory, by key.
    pub const RULES: &[(&str, Narrowing)] = &[
        ("issuer", Narrowing::Ignored),
        ("subject", Narrowing::Ignored),
        ("group", Narrowing::Ignored),
        ("client", Narrowing::Ignored),
        ("secrets", Narrowing::Ignored),
        ("models", Narrowing::Ignored),
    ];
}
