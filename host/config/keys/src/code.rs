//! `[tools.code]`: the language servers that `search_code` may ask in addition to its index.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// Language servers for the search in code. The index itself is in `[index]`.
    #[derive(Eq)]
    pub struct CodeSearch {
        /// Language servers, which `search_code` asks if the call requests it.
        pub lsp: LanguageServers, Narrowing::Table(LanguageServers::RULES);
    }
}

section! {
    /// Language servers, which also find definitions from macros and types. A language server runs
    /// the project's code. It has the grants of `[tools.shell]`, but no network and no write
    /// access. The rules for `bash` decide whether a server may start.
    #[derive(Eq)]
    pub struct LanguageServers {
        /// Whether `search_code` may ask language servers.
        pub enabled: bool = false, Narrowing::OnlyFalse;
        /// Seconds for language servers in one call, in addition to `call` of `[tools]`.
        pub timeout: Bounded<1, 600> = Bounded::clamped(60), Narrowing::Smaller;
        /// The command of each server, a program and its arguments, by language: `c` (and C++),
        /// `go`, `python`, `rust` or `typescript` (and JavaScript). By default `clangd`, `gopls`,
        /// `pyright-langserver --stdio`, `rust-analyzer` and `typescript-language-server --stdio`.
        /// An empty list means no server. The project's programs, in `.venv/bin`, `venv/bin` or
        /// `node_modules/.bin`, are preferred to the machine's.
        #[serde(deserialize_with = "over_default_servers")]
        #[schemars(extend("examples" = [{ "python": ["pylsp"] }]))]
        pub servers: BTreeMap<ServerLanguage, Vec<String>> = default_servers(), Narrowing::Each(&Narrowing::Ignored);
    }
}

/// A language that has a server.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ServerLanguage {
    /// C and C++.
    C,
    /// Go.
    Go,
    /// Python.
    Python,
    /// Rust.
    Rust,
    /// TypeScript and JavaScript.
    Typescript,
}

fn default_servers() -> BTreeMap<ServerLanguage, Vec<String>> {
    let commands: [(ServerLanguage, &[&str]); 5] = [
        (ServerLanguage::C, &["clangd"]),
        (ServerLanguage::Go, &["gopls"]),
        (ServerLanguage::Python, &["pyright-langserver", "--stdio"]),
        (ServerLanguage::Rust, &["rust-analyzer"]),
        (ServerLanguage::Typescript, &["typescript-language-server", "--stdio"]),
    ];
    let mut servers = BTreeMap::new();
    for (language, command) in commands {
        servers.insert(language, command.iter().map(|word| (*word).to_owned()).collect());
    }
    servers
}

/// Reads the commands of languages. A language that the file leaves out has its default command.
fn over_default_servers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<ServerLanguage, Vec<String>>, D::Error> {
    let mut servers = default_servers();
    servers.extend(BTreeMap::deserialize(deserializer)?);
    Ok(servers)
}
