//! `[mcp]`: servers of the Model Context Protocol whose tools Toolhold offers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{AllowedPath, Bounded, PresetName, ServerSecret, VariableName};

section! {
    /// Servers of the Model Context Protocol whose tools Toolhold offers as its own, under its
    /// rules.
    pub struct Mcp {
        /// Whether they are used. `false` starts none and offers none of their tools.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// The servers. The key is the name that stands before `__` in the names of their tools: at
        /// most 24 of `[a-z0-9-]`, a letter first. A server is used after `toolhold mcp approve
        /// NAME`.
        pub servers: BTreeMap<String, McpServer>, Narrowing::Named(McpServer::RULES);
    }
}

section! {
    /// A server: a program that Toolhold starts in the sandbox of commands and talks to over its
    /// standard input and output (`command`), or one that runs elsewhere (`url`).
    pub struct McpServer {
        /// Whether it is used.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// The program, searched in your `PATH`.
        pub command: String, Narrowing::Ignored;
        /// Where it runs, instead of `command`: https, or http on this machine. Redirects are not
        /// followed.
        #[schemars(extend("examples" = ["https://mcp.example.com/mcp"]))]
        pub url: String, Narrowing::Ignored;
        /// Headers of each request to `url`, with their values. They are no place for secrets.
        #[schemars(extend("examples" = [{ "X-Team": "blue" }]))]
        pub headers: BTreeMap<String, String>, Narrowing::Each(&Narrowing::Ignored);
        /// Secrets that it gets. With `url`, a secret goes into a header of each request there.
        /// With `command`, it goes into the variable that has the name of its table.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
        /// Its arguments.
        pub args: Vec<String>, Narrowing::Ignored;
        /// Directories that it may use. Nothing is granted by default.
        pub allowed_paths: Vec<AllowedPath>, Narrowing::Directories;
        /// Whether it may reach the network.
        pub network: bool, Narrowing::OnlyFalse;
        /// Tools of yours that it uses, by name, as in `[tools.shell]`: `node` for `npx`, `uv`
        /// for `uvx`. Their caches, programs and settings are granted, their credentials are not.
        pub presets: Vec<PresetName>, Narrowing::Subset;
        /// Variables of your environment that it gets in addition to the usual ones, by name.
        pub env: Vec<VariableName>, Narrowing::Subset;
        /// Variables that it gets, with their values. They are no place for secrets.
        #[schemars(extend("examples" = [{ "LOG_LEVEL": "warning" }]))]
        pub variables: BTreeMap<String, String>, Narrowing::Each(&Narrowing::Ignored);
        /// How `toolhold mcp login` gets tokens for `url`.
        pub oauth: McpOauth, Narrowing::Table(McpOauth::RULES);
        /// Seconds for one call, including the start of the server if it doesn't run.
        pub timeout_secs: Bounded<1, 86_400> = Bounded::clamped(60), Narrowing::Smaller;
        /// Seconds without a call after which it is ended. The next call starts it again.
        pub idle_secs: Bounded<1, 86_400> = Bounded::clamped(300), Narrowing::Smaller;
        /// Whether what it says about the behaviour of its tools counts, such as that one only
        /// reads. Otherwise each of its tools counts as one that acts and may destroy.
        pub trust_annotations: bool, Narrowing::OnlyFalse;
        /// Whether it may ask you questions in the middle of its calls. They are shown as its own.
        pub elicitation: bool = true, Narrowing::OnlyFalse;
    }
}

section! {
    /// How `toolhold mcp login` gets tokens for a server at a URL, by OAuth. Nothing is needed here
    /// if the authorization server registers clients by itself.
    pub struct McpOauth {
        /// The name that the authorization server knows Toolhold by. If empty, Toolhold registers
        /// itself.
        #[schemars(extend("examples" = ["toolhold"]))]
        pub client_id: String, Narrowing::Ignored;
        /// The secret that belongs to `client_id`, if there is one: a single table with any name,
        /// which says where it comes from. It goes to the authorization server alone, without
        /// `header` and `prefix`.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
        /// The authorization server. If set, no other one is used, and it may be at a private
        /// address.
        #[schemars(extend("examples" = ["https://login.example.com"]))]
        pub issuer: String, Narrowing::Ignored;
        /// The scopes that are asked for. If empty, those that the server names.
        #[schemars(extend("examples" = [["read"]]))]
        pub scopes: Vec<String>, Narrowing::Ignored;
    }
}
