//! `[mcp]`: servers of the Model Context Protocol whose tools Toolhold offers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{
    AllowedPath, Bounded, HostGrant, PresetName, ServerSecret, VariableName, WrittenPattern,
};

section! {
    /// Servers of the Model Context Protocol. Toolhold offers their tools as its own, under its
    /// rules.
    pub struct Mcp {
        /// Whether the servers are used. `false` starts no server and offers none of their tools.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// The servers. The key is the server's name, which comes before `__` in the names of its
        /// tools. A name has at most 24 characters of `[a-z0-9-]` and starts with a letter. A
        /// server is used after `toolhold mcp approve NAME`.
        pub servers: BTreeMap<String, McpServer>, Narrowing::Named(McpServer::RULES);
    }
}

section! {
    /// An MCP server: a program (`command`) or a server that runs elsewhere (`url`). Toolhold
    /// starts the program in the sandbox of commands, and talks to it over its standard input and
    /// output.
    pub struct McpServer {
        /// Whether the server is used.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// The server's program, searched in your `PATH`.
        pub command: String, Narrowing::Ignored;
        /// The server's address, in place of `command`: https, or http on this machine. Redirects
        /// are not followed.
        #[schemars(extend("examples" = ["https://mcp.example.com/mcp"]))]
        pub url: String, Narrowing::Ignored;
        /// Headers of each request to `url`, with their values. Don't put secrets here.
        #[schemars(extend("examples" = [{ "X-Team": "blue" }]))]
        pub headers: BTreeMap<String, String>, Narrowing::Each(&Narrowing::Ignored);
        /// Secrets that the server gets. A server with `url` gets each secret in a header of each
        /// request. A server with `command` gets each secret in the variable that has the name of
        /// the secret's table.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
        /// The program's arguments. `${secret:NAME}` stands for the value of the secret `NAME` of
        /// this server.
        pub args: Vec<String>, Narrowing::Ignored;
        /// The server's tools that are offered, by the server's own names, with wildcards. If
        /// empty, all.
        #[schemars(extend("examples" = [["search", "get_*"]]))]
        pub tools: Vec<WrittenPattern>, Narrowing::Restricts;
        /// Directories that the server may use. Nothing is granted by default.
        pub allowed_paths: Vec<AllowedPath>, Narrowing::Directories;
        /// Whether the server may use the whole network.
        pub network: bool, Narrowing::OnlyFalse;
        /// The hosts that the server reaches, in place of the whole network: `"api.example.com"`,
        /// `"*.example.com"` for all names below `example.com`, or `"db.example.com:5432"` for
        /// other ports, as in `[tools.shell]`.
        pub hosts: Vec<HostGrant>, Narrowing::Covered(HostGrant::covers_written);
        /// Your development tools that the server uses, by name, as in `[tools.shell]`: `node` for
        /// `npx`, `uv` for `uvx`. The server gets their caches, programs and settings, but not
        /// their credentials.
        pub presets: Vec<PresetName>, Narrowing::Subset;
        /// Variables of your environment, by name, that the server gets in addition to the usual
        /// variables.
        pub env: Vec<VariableName>, Narrowing::Subset;
        /// Variables that the server gets, with their values. Don't put secrets here.
        #[schemars(extend("examples" = [{ "LOG_LEVEL": "warning" }]))]
        pub variables: BTreeMap<String, String>, Narrowing::Each(&Narrowing::Ignored);
        /// The login of `toolhold mcp login` for `url`.
        pub oauth: McpOauth, Narrowing::Table(McpOauth::RULES);
        /// Seconds for one call, including the start of the server.
        pub timeout_secs: Bounded<1, 86_400> = Bounded::clamped(60), Narrowing::Smaller;
        /// Seconds without a call after which the server is stopped. The next call starts it again.
        pub idle_secs: Bounded<1, 86_400> = Bounded::clamped(300), Narrowing::Smaller;
        /// Whether the server's annotations of its tools are trusted, for example that a tool only
        /// reads. Otherwise all its tools are treated as acting and destructive.
        pub trust_annotations: bool, Narrowing::OnlyFalse;
        /// Whether the server may ask you questions during its calls. The questions show the
        /// server's name.
        pub elicitation: bool = true, Narrowing::OnlyFalse;
    }
}

section! {
    /// The OAuth login of `toolhold mcp login` to a server at a URL. No key is needed if the
    /// authorization server registers clients by itself.
    pub struct McpOauth {
        /// Toolhold's client ID at the authorization server. If empty, Toolhold registers itself.
        #[schemars(extend("examples" = ["toolhold"]))]
        pub client_id: String, Narrowing::Ignored;
        /// The secret that belongs to `client_id`, if there is one: a single table with any name
        /// and the source of the secret, without `header` and `prefix`. The secret is sent only to
        /// the authorization server.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
        /// The authorization server, which may have a private address. If empty, Toolhold finds the
        /// server.
        #[schemars(extend("examples" = ["https://login.example.com"]))]
        pub issuer: String, Narrowing::Ignored;
        /// The requested scopes. If empty, the scopes that the server names.
        #[schemars(extend("examples" = [["read"]]))]
        pub scopes: Vec<String>, Narrowing::Ignored;
    }
}
