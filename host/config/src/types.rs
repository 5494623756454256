use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::{Rule, section};
use super::{
    AllowedPath, Authorization, Autonomy, Bounded, Dependencies, Filters, HostGrant, Network,
    Overflow, PathAccess, PathGlob, PermissionRule, PolicyRules, Redaction, ResultCache, Retry,
    Secret, Serve, Shell, TrustLevel, VariableName, Web, WrittenHost, WrittenPrivateHosts,
    WrittenProgram,
};

section! {
    /// What the operator can say. Every key has a safe default: with no file at all, the tools work
    /// on the working directory.
    pub struct Config {
        /// What holds for all tools.
        pub tools: Tools, Rule::Table(Tools::RULES);
        /// How a person is asked for calls that need approval.
        pub approvals: Approvals, Rule::Table(Approvals::RULES);
        /// How `berth serve` serves its clients: `structured` says what they get, everything else
        /// is about HTTP.
        pub serve: Serve, Rule::Table(Serve::RULES);
        /// How requests of all plugins leave this machine.
        pub network: Network, Rule::Table(Network::RULES);
        /// A folder whose plugins are loaded without being named one by one.
        pub plugin_folder: PluginFolder, Rule::Table(PluginFolder::RULES);
        /// The record of every call: `audit/audit.jsonl` in Berth's data folder.
        pub audit: Audit, Rule::Table(Audit::RULES);
        /// Plugins that are not built in, by the name that stands before `__` in the names of their
        /// tools: at most 24 of `[a-z0-9-]`, a letter first.
        pub plugins: BTreeMap<String, Plugin>, Rule::Named(Plugin::RULES);
    }
}

section! {
    /// What holds for all tools.
    pub struct Tools {
        /// Whether there are tools: `false` takes all of them out of the catalogue.
        pub enabled: bool = true, Rule::OnlyFalse;
        /// Seconds that a call may take where the tool asks for no other time; never more than
        /// `max_call`.
        pub call: Bounded<1, 86_400> = Bounded::clamped(30), Rule::Smaller;
        /// The most seconds that a tool's `timeout` argument can ask for.
        pub max_call: Bounded<1, 86_400> = Bounded::clamped(600), Rule::Smaller;
        /// Calls that run at once; more wait for a place. 0: eight for each processor, at least 16.
        pub max_concurrent: Bounded<0, 1024> = Bounded::clamped(0), Rule::SmallerOrAutomatic;
        /// Seconds that a plugin which was called has a few fresh instances waiting for its next
        /// call. 0: none is made before it is asked for.
        pub keep_ready: Bounded<0, 86_400> = Bounded::clamped(30), Rule::Smaller;
        /// How much may happen without a person, where no permission says so.
        pub autonomy: Autonomy, Rule::Stricter(&["read-only", "supervised", "full"]);
        /// Acting calls that one session may make within an hour, whenever it begins; more are
        /// answered with `rate`. 0: any number.
        pub max_actions_per_hour: Bounded<0, 10_000> = Bounded::clamped(0), Rule::SmallerOrUnbounded;
        /// Calls that one session may make, each counted once however often it is tried; more are
        /// answered with `quota_blocked`. 0: any number.
        pub max_tool_calls_per_session: Bounded<0, 1_000_000> = Bounded::clamped(0), Rule::SmallerOrUnbounded;
        /// What a tool may do, by its name or an alias: a list of rules, the first of which that
        /// matches counts. A pattern is compared with what the tool acts on: a path (as in
        /// `deny_read`, but case doesn't matter), a command, a URL; else with the tool's name and
        /// its arguments as JSON. With `exact = true`, which is for what is allowed, the pattern is
        /// that very text: no wildcard, the case counts, and nothing below.
        #[schemars(extend("examples" = [{ "write": [{ "pattern": "notes/**", "action": "allow" }] }]))]
        pub permissions: BTreeMap<String, Vec<PermissionRule>>, Rule::Each(&Rule::Denials("action"));
        /// Rules over all tools.
        pub policy: PolicyRules, Rule::Table(PolicyRules::RULES);
        /// More rules over all tools.
        pub authorization: Authorization, Rule::Table(Authorization::RULES);
        /// What commands may do, whichever tool runs them, and what the processes of calls see and
        /// use.
        pub shell: Shell, Rule::Table(Shell::RULES);
        /// Where the built-in web tools reach, and what of an answer they take.
        pub web: Web, Rule::Table(Web::RULES);
        /// What one call may use.
        pub limits: Limits, Rule::Table(Limits::RULES);
        /// What file tools may reach.
        pub file: FileTools, Rule::Table(FileTools::RULES);
        /// Which tools wait for others.
        pub dependencies: Dependencies, Rule::Table(Dependencies::RULES);
        /// How calls that failed are tried again.
        pub retry: Retry, Rule::Table(Retry::RULES);
        /// Answers that serve again in their session.
        pub result_cache: ResultCache, Rule::Table(ResultCache::RULES);
        /// Secrets in answers.
        pub redaction: Redaction, Rule::Table(Redaction::RULES);
        /// What is left out of answers.
        pub filters: Filters, Rule::Table(Filters::RULES);
        /// Answers that are too long for a model.
        pub overflow: Overflow, Rule::Table(Overflow::RULES);
    }
}

impl Tools {
    /// How long a call may take that asks for no other time.
    pub fn call_time(&self) -> Duration {
        Duration::from_secs(self.call.get().min(self.max_call.get()))
    }

    /// The longest time that a call can ask for.
    pub fn max_call_time(&self) -> Duration {
        Duration::from_secs(self.max_call.get())
    }
}

section! {
    /// What one call may use. `[plugins.NAME.limits]` has the same keys for one plugin.
    #[derive(Copy, Eq)]
    pub struct Limits {
        /// Seconds of processor time.
        pub cpu_secs: Bounded<1, 86_400> = Bounded::clamped(10), Rule::Smaller;
        /// MiB over all memories and tables of the plugin together.
        pub memory_mib: Bounded<1, 16_384> = Bounded::clamped(256), Rule::Smaller;
        /// MiB of one answer.
        pub result_mib: Bounded<1, 256> = Bounded::clamped(8), Rule::Smaller;
        /// MiB written to files.
        pub written_mib: Bounded<1, 1_048_576> = Bounded::clamped(1024), Rule::Smaller;
        /// Files, directories and other handles, open at a time.
        pub handles: Bounded<16, 4096> = Bounded::clamped(256), Rule::Smaller;
        /// Requests to the network, each redirect counted.
        pub requests: Bounded<1, 256> = Bounded::clamped(100), Rule::Smaller;
        /// Requests of the plugin that are under way at a time; more wait.
        pub concurrent_requests: Bounded<1, 1024> = Bounded::clamped(8), Rule::Smaller;
        /// MiB of one answer from the network, as it comes and unpacked.
        pub response_mib: Bounded<1, 1024> = Bounded::clamped(10), Rule::Smaller;
        /// Seconds of one request, to the end of its answer.
        pub request_secs: Bounded<1, 3600> = Bounded::clamped(30), Rule::Smaller;
    }
}

section! {
    /// What file tools may reach. A denial wins over everything that allows.
    pub struct FileTools {
        /// Whether there are file tools: `false` takes them out of the catalogue.
        pub enabled: bool = true, Rule::OnlyFalse;
        /// Directories that the built-in file tools may use. The default, and an empty list, is the
        /// working directory, read and write.
        pub allowed_paths: Vec<AllowedPath> = vec![AllowedPath { path: ".".to_owned(), access: PathAccess::ReadWrite }], Rule::Directories;
        /// Globs that nobody reads or writes: `**/.env`, `secrets/**`, `~/.ssh`. They hold for
        /// plugins too.
        pub deny_read: Vec<PathGlob>, Rule::Adds;
        /// Where not empty, only files that match are read. Holds for plugins too.
        pub allow_read: Vec<PathGlob>, Rule::Restricts;
        /// Globs that are read but never written. They hold for plugins too. The default keeps
        /// tools from planting code in a repository.
        pub deny_write: Vec<PathGlob> = vec![PathGlob::known(".git/**")], Rule::Adds;
    }
}

section! {
    /// How a person is asked for calls that need approval.
    #[derive(Copy, Eq)]
    pub struct Approvals {
        /// Seconds that a yes for the session counts, and a question waits that was left for
        /// `berth approvals`.
        pub expire_secs: Bounded<1, 28_800> = Bounded::clamped(3600), Rule::Smaller;
        /// Seconds that a call waits for an answer by `berth approvals`, where nobody else can be
        /// asked. 0: it doesn't; the answer counts for the next call that is the same.
        pub wait_secs: Bounded<0, 3600> = Bounded::clamped(0), Rule::Smaller;
        /// Whether `berth call --yes` counts.
        pub yes_flag: bool = true, Rule::OnlyFalse;
        /// Who is asked about a call that came over MCP.
        pub mcp: McpApprovals, Rule::Stricter(&["deny", "terminal", "client"]);
    }
}

/// Who is asked about a call that came over MCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum McpApprovals {
    /// The client's user, where the client can ask; else as with `terminal`.
    #[default]
    Client,
    /// Who answers `berth approvals` at a terminal.
    Terminal,
    /// Nobody: what needs approval is refused.
    Deny,
}

section! {
    /// A folder whose plugins are loaded, and loaded anew when they change.
    #[derive(Eq)]
    pub struct PluginFolder {
        /// The folder; where empty, `plugins` in Berth's data folder. `~` is the home directory; a
        /// relative path starts at the folder of the `berth.toml` that names it, or at the working
        /// directory where a variable or a flag does. Tools don't write there.
        pub path: String, Rule::Ignored;
        /// What happens to a plugin that is new there or has changed.
        pub reload: Reload, Rule::Approve;
    }
}

/// What happens to a component that nobody has approved yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Reload {
    /// It waits for `berth plugin approve`, and the one that was approved serves meanwhile.
    #[default]
    Approve,
    /// It is used at once, with the grants of its name.
    Trust,
}

// A stranger who could have files turned or removed could have what they did forgotten.
section! {
    /// The record of every call.
    #[derive(Copy, Eq)]
    pub struct Audit {
        /// Whether calls are recorded.
        pub enabled: bool = true, Rule::OnlyTrue;
        /// What happens to a call that can change something when it can't be recorded, since the
        /// disk is full, say. Calls that only read go on.
        pub on_failure: OnFailure = OnFailure::Stop, Rule::Stricter(&["stop", "continue"]);
        /// Whether each record is on the disk before anything else happens, so that it survives a
        /// power failure. It takes milliseconds a call; calls that run at the same time share them.
        pub durable: bool, Rule::OnlyTrue;
        /// MiB of one file; then another one begins.
        pub max_mib: Bounded<1, 65_536> = Bounded::clamped(64), Rule::Ignored;
        /// Files that are kept beside the one that is written to; older ones are removed. 0: all.
        pub keep: Bounded<0, 100_000> = Bounded::clamped(0), Rule::Ignored;
    }
}

/// What happens to a call that can act and can't be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OnFailure {
    /// It is not run.
    #[default]
    Stop,
    /// It runs all the same.
    Continue,
}

section! {
    /// A plugin that is not built in.
    pub struct Plugin {
        /// Whether its tools are there: `false` takes them out of the catalogue.
        pub enabled: bool = true, Rule::OnlyFalse;
        /// The component, a `.wasm` file; where empty, the plugin of that name in
        /// `[plugin_folder]`. `~` is the home directory; a relative path starts at the folder of
        /// the `berth.toml` that names it, or at the working directory where a variable or a flag
        /// does.
        pub path: String, Rule::Ignored;
        /// What happens when the component changes; where absent, `"approve"` for a plugin with a
        /// `path`, and what `[plugin_folder]` says for one that comes from there.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reload: Option<Reload>, Rule::Approve;
        /// The built-in plugin that this one takes the place of, as `"file"`; where empty, none.
        pub replaces: String, Rule::Ignored;
        /// Directories that the plugin may use. Nothing is granted by default.
        pub allowed_paths: Vec<AllowedPath>, Rule::Directories;
        /// How far the plugin is trusted.
        pub trust: TrustLevel, Rule::Stricter(&["blocked", "quarantined", "verified", "trusted"]);
        /// Programs that the plugin may start, each with a glob for every argument, as in
        /// `"git {status,diff} **"`: a last `**` stands for any further ones. They run in the
        /// sandbox of `[tools.shell]`.
        pub programs: Vec<WrittenProgram>, Rule::Subset;
        /// Whether the plugin may run commands by a shell, which reaches every program.
        pub shell: bool, Rule::OnlyFalse;
        /// Whether what the plugin starts may reach the network. Its own requests are another
        /// matter: see `hosts`.
        pub network: bool, Rule::OnlyFalse;
        /// Variables of your environment that what the plugin starts gets beside the usual ones, by
        /// name.
        pub env: Vec<VariableName>, Rule::Subset;
        /// Hosts that the plugin's own requests reach, as in `"api.example.com"`, `"*.example.com"`
        /// for all names below one, or `"https://example.com:8443"`; a table can also say by which
        /// `methods`. What it starts doesn't count: see `network`.
        pub hosts: Vec<HostGrant>, Rule::Covered(HostGrant::covers_written);
        /// Private hosts that are opened to them, as `"localhost:3000"`, an address or a range,
        /// each with or without a port.
        pub allowed_private_hosts: Vec<WrittenPrivateHosts>, Rule::Covered(WrittenPrivateHosts::covers_written);
        /// Whether other hosts are reached by TLS alone.
        pub https_only: bool = true, Rule::OnlyTrue;
        /// Hosts to which its requests may carry what looks like a secret.
        pub credentials_to: Vec<WrittenHost>, Rule::Covered(WrittenHost::covers_written);
        /// Secrets that Berth puts into its requests, by names of yours. The plugin sees none.
        pub secrets: BTreeMap<String, Secret>, Rule::Named(Secret::RULES);
        /// What one call of the plugin may use, where that differs from `[tools.limits]`.
        pub limits: PluginLimits, Rule::Table(PluginLimits::RULES);
    }
}

section! {
    /// What one call of a plugin may use; a key that is absent counts as in `[tools.limits]`.
    #[derive(Copy, Eq)]
    pub struct PluginLimits {
        /// Seconds of processor time.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cpu_secs: Option<Bounded<1, 86_400>>, Rule::Smaller;
        /// MiB over all memories and tables of the plugin together.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub memory_mib: Option<Bounded<1, 16_384>>, Rule::Smaller;
        /// MiB of one answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub result_mib: Option<Bounded<1, 256>>, Rule::Smaller;
        /// MiB written to files.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub written_mib: Option<Bounded<1, 1_048_576>>, Rule::Smaller;
        /// Files, directories and other handles, open at a time.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub handles: Option<Bounded<16, 4096>>, Rule::Smaller;
        /// Requests to the network, each redirect counted.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub requests: Option<Bounded<1, 256>>, Rule::Smaller;
        /// Requests of the plugin that are under way at a time; more wait.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub concurrent_requests: Option<Bounded<1, 1024>>, Rule::Smaller;
        /// MiB of one answer from the network, as it comes and unpacked.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub response_mib: Option<Bounded<1, 1024>>, Rule::Smaller;
        /// Seconds of one request, to the end of its answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub request_secs: Option<Bounded<1, 3600>>, Rule::Smaller;
    }
}

impl PluginLimits {
    /// The limits of the plugin, over those of all tools.
    pub fn over(self, all: Limits) -> Limits {
        Limits {
            cpu_secs: self.cpu_secs.unwrap_or(all.cpu_secs),
            memory_mib: self.memory_mib.unwrap_or(all.memory_mib),
            result_mib: self.result_mib.unwrap_or(all.result_mib),
            written_mib: self.written_mib.unwrap_or(all.written_mib),
            handles: self.handles.unwrap_or(all.handles),
            requests: self.requests.unwrap_or(all.requests),
            concurrent_requests: self.concurrent_requests.unwrap_or(all.concurrent_requests),
            response_mib: self.response_mib.unwrap_or(all.response_mib),
            request_secs: self.request_secs.unwrap_or(all.request_secs),
        }
    }
}

impl From<Limits> for PluginLimits {
    fn from(limits: Limits) -> Self {
        Self {
            cpu_secs: Some(limits.cpu_secs),
            memory_mib: Some(limits.memory_mib),
            result_mib: Some(limits.result_mib),
            written_mib: Some(limits.written_mib),
            handles: Some(limits.handles),
            requests: Some(limits.requests),
            concurrent_requests: Some(limits.concurrent_requests),
            response_mib: Some(limits.response_mib),
            request_secs: Some(limits.request_secs),
        }
    }
}
