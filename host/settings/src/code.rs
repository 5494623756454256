//! `[tools.code]`: whom `search_code` asks beside its index.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// How code is searched. What is kept of it is in `[index]`.
    #[derive(Eq)]
    pub struct CodeSearch {
        /// Language servers, which `search_code` asks if a call wants it.
        pub lsp: LanguageServers, Narrowing::Table(LanguageServers::RULES);
    }
}

section! {
    /// Language servers, which know what macros and types define. They run the code of the project,
    /// with the grants of `[tools.shell]`, without the network and without writing. Each is decided
    /// on as a command of `bash`.
    #[derive(Eq)]
    pub struct LanguageServers {
        /// Whether `search_code` may ask them.
        pub enabled: bool = false, Narrowing::OnlyFalse;
        /// Seconds that they have in one call, beside those of `call` in `[tools]`.
        pub timeout: Bounded<1, 600> = Bounded::clamped(60), Narrowing::Smaller;
        /// The command of each server: a program and its arguments. An empty list: there is none. A
        /// program of the project, in `.venv/bin`, `venv/bin` or `node_modules/.bin`, is preferred
        /// to one of the machine.
        pub servers: ServerCommands, Narrowing::Table(ServerCommands::RULES);
    }
}

section! {
    /// The commands of language servers.
    #[derive(Eq)]
    pub struct ServerCommands {
        /// For C and C++.
        pub c: Vec<String> = words(&["clangd"]), Narrowing::Ignored;
        /// For Go.
        pub go: Vec<String> = words(&["gopls"]), Narrowing::Ignored;
        /// For Python. `["pylsp"]` is another one.
        pub python: Vec<String> = words(&["pyright-langserver", "--stdio"]), Narrowing::Ignored;
        /// For Rust.
        pub rust: Vec<String> = words(&["rust-analyzer"]), Narrowing::Ignored;
        /// For TypeScript and JavaScript.
        pub typescript: Vec<String> = words(&["typescript-language-server", "--stdio"]), Narrowing::Ignored;
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
