use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::{Rule, rules};
use super::{
    AllowedPath, Authorization, Autonomy, Bounded, Dependencies, Filters, HostGrant, Network, Overflow, PathAccess, PathGlob,
    PermissionRule, PolicyRules, Redaction, ResultCache, Retry, Secret, Serve, Shell, TrustLevel, VariableName, Web, WrittenHost,
    WrittenPrivateHosts, WrittenProgram,
};

/// What the operator can say. Every key has a safe default: with no file at all, the tools work on the working directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Config {
    /// What holds for all tools.
    pub tools: Tools,
    /// How a person is asked for calls that need approval.
    pub approvals: Approvals,
    /// How `berth serve` serves its clients: `structured` says what they get, everything else is about HTTP.
    pub serve: Serve,
    /// How requests of all plugins leave this machine.
    pub network: Network,
    /// A folder whose plugins are loaded without being named one by one.
    pub plugin_folder: PluginFolder,
    /// The record of every call: `audit/audit.jsonl` in Berth's data folder.
    pub audit: Audit,
    /// Plugins that are not built in, by the name that stands before `__` in the names of their tools: at most 24 of `[a-z0-9-]`, a letter first.
    pub plugins: BTreeMap<String, Plugin>,
}

rules!(Config {
    tools: Rule::Table(Tools::RULES),
    approvals: Rule::Table(Approvals::RULES),
    serve: Rule::Table(Serve::RULES),
    network: Rule::Table(Network::RULES),
    plugin_folder: Rule::Table(PluginFolder::RULES),
    audit: Rule::Table(Audit::RULES),
    plugins: Rule::Named(Plugin::RULES),
});

/// What holds for all tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Tools {
    /// Whether there are tools: `false` takes all of them out of the catalogue.
    pub enabled: bool,
    /// Seconds that a call may take where the tool asks for no other time; never more than `max_call`.
    pub call: Bounded<1, 86_400>,
    /// The most seconds that a tool's `timeout` argument can ask for.
    pub max_call: Bounded<1, 86_400>,
    /// Calls that run at once; more wait for a place. 0: eight for each processor, at least 16.
    pub max_concurrent: Bounded<0, 1024>,
    /// Seconds that a plugin which was called has a few fresh instances waiting for its next call. 0: none is made before it is asked for.
    pub keep_ready: Bounded<0, 86_400>,
    /// How much may happen without a person, where no permission says so.
    pub autonomy: Autonomy,
    /// Acting calls that one session may make within an hour, whenever it begins; more are answered with `rate`. 0: any number.
    pub max_actions_per_hour: Bounded<0, 10_000>,
    /// Calls that one session may make, each counted once however often it is tried; more are answered with `quota_blocked`. 0: any number.
    pub max_tool_calls_per_session: Bounded<0, 1_000_000>,
    /// What a tool may do, by its name or an alias: a list of rules, the first of which that matches counts. A pattern is compared with what
    /// the tool acts on: a path (as in `deny_read`, but case doesn't matter), a command, a URL; else with the tool's name and its arguments as
    /// JSON. With `exact = true`, which is for what is allowed, the pattern is that very text: no wildcard, the case counts, and nothing below.
    #[schemars(extend("examples" = [{ "write": [{ "pattern": "notes/**", "action": "allow" }] }]))]
    pub permissions: BTreeMap<String, Vec<PermissionRule>>,
    /// Rules over all tools.
    pub policy: PolicyRules,
    /// More rules over all tools.
    pub authorization: Authorization,
    /// What commands may do, whichever tool runs them, and what the processes of calls see and use.
    pub shell: Shell,
    /// Where the built-in web tools reach, and what of an answer they take.
    pub web: Web,
    /// What one call may use.
    pub limits: Limits,
    /// What file tools may reach.
    pub file: FileTools,
    /// Which tools wait for others.
    pub dependencies: Dependencies,
    /// How calls that failed are tried again.
    pub retry: Retry,
    /// Answers that serve again in their session.
    pub result_cache: ResultCache,
    /// Secrets in answers.
    pub redaction: Redaction,
    /// What is left out of answers.
    pub filters: Filters,
    /// Answers that are too long for a model.
    pub overflow: Overflow,
}

rules!(Tools {
    autonomy: Rule::Stricter(&["read-only", "supervised", "full"]),
    enabled: Rule::OnlyFalse,
    permissions: Rule::Each(&Rule::Denials("action")),
    policy: Rule::Table(PolicyRules::RULES),
    authorization: Rule::Table(Authorization::RULES),
    shell: Rule::Table(Shell::RULES),
    web: Rule::Table(Web::RULES),
    call: Rule::Smaller,
    max_call: Rule::Smaller,
    max_concurrent: Rule::SmallerOrAutomatic,
    keep_ready: Rule::Smaller,
    max_actions_per_hour: Rule::SmallerOrUnbounded,
    max_tool_calls_per_session: Rule::SmallerOrUnbounded,
    limits: Rule::Table(Limits::RULES),
    file: Rule::Table(FileTools::RULES),
    dependencies: Rule::Table(Dependencies::RULES),
    retry: Rule::Table(Retry::RULES),
    result_cache: Rule::Table(ResultCache::RULES),
    redaction: Rule::Table(Redaction::RULES),
    filters: Rule::Table(Filters::RULES),
    overflow: Rule::Table(Overflow::RULES),
});

impl Default for Tools {
    fn default() -> Self {
        Self {
            enabled: true,
            call: Bounded::clamped(30),
            max_call: Bounded::clamped(600),
            max_concurrent: Bounded::clamped(0),
            keep_ready: Bounded::clamped(30),
            autonomy: Autonomy::default(),
            max_actions_per_hour: Bounded::clamped(0),
            max_tool_calls_per_session: Bounded::clamped(0),
            permissions: BTreeMap::new(),
            policy: PolicyRules::default(),
            authorization: Authorization::default(),
            shell: Shell::default(),
            web: Web::default(),
            limits: Limits::default(),
            file: FileTools::default(),
            dependencies: Dependencies::default(),
            retry: Retry::default(),
            result_cache: ResultCache::default(),
            redaction: Redaction::default(),
            filters: Filters::default(),
            overflow: Overflow::default(),
        }
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

/// What one call may use. `[plugins.NAME.limits]` has the same keys for one plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Limits {
    /// Seconds of processor time.
    pub cpu_secs: Bounded<1, 86_400>,
    /// MiB over all memories and tables of the plugin together.
    pub memory_mib: Bounded<1, 16_384>,
    /// MiB of one answer.
    pub result_mib: Bounded<1, 256>,
    /// MiB written to files.
    pub written_mib: Bounded<1, 1_048_576>,
    /// Files, directories and other handles, open at a time.
    pub handles: Bounded<16, 4096>,
    /// Requests to the network, each redirect counted.
    pub requests: Bounded<1, 256>,
    /// Requests of the plugin that are under way at a time; more wait.
    pub concurrent_requests: Bounded<1, 1024>,
    /// MiB of one answer from the network, as it comes and unpacked.
    pub response_mib: Bounded<1, 1024>,
    /// Seconds of one request, to the end of its answer.
    pub request_secs: Bounded<1, 3600>,
}

rules!(Limits {
    cpu_secs: Rule::Smaller,
    memory_mib: Rule::Smaller,
    result_mib: Rule::Smaller,
    written_mib: Rule::Smaller,
    handles: Rule::Smaller,
    requests: Rule::Smaller,
    concurrent_requests: Rule::Smaller,
    response_mib: Rule::Smaller,
    request_secs: Rule::Smaller,
});

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_secs: Bounded::clamped(10),
            memory_mib: Bounded::clamped(256),
            result_mib: Bounded::clamped(8),
            written_mib: Bounded::clamped(1024),
            handles: Bounded::clamped(256),
            requests: Bounded::clamped(100),
            concurrent_requests: Bounded::clamped(8),
            response_mib: Bounded::clamped(10),
            request_secs: Bounded::clamped(30),
        }
    }
}

/// What file tools may reach. A denial wins over everything that allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct FileTools {
    /// Whether there are file tools: `false` takes them out of the catalogue.
    pub enabled: bool,
    /// Directories that the built-in file tools may use. The default, and an empty list, is the working directory, read and write.
    pub allowed_paths: Vec<AllowedPath>,
    /// Globs that nobody reads or writes: `**/.env`, `secrets/**`, `~/.ssh`. They hold for plugins too.
    pub deny_read: Vec<PathGlob>,
    /// Where not empty, only files that match are read. Holds for plugins too.
    pub allow_read: Vec<PathGlob>,
    /// Globs that are read but never written. They hold for plugins too. The default keeps tools from planting code in a repository.
    pub deny_write: Vec<PathGlob>,
}

rules!(FileTools {
    enabled: Rule::OnlyFalse,
    allowed_paths: Rule::Directories,
    deny_read: Rule::Adds,
    allow_read: Rule::Restricts,
    deny_write: Rule::Adds
});

impl Default for FileTools {
    fn default() -> Self {
        Self {
            enabled: true,
            allowed_paths: vec![AllowedPath { path: ".".to_owned(), access: PathAccess::ReadWrite }],
            deny_read: Vec::new(),
            allow_read: Vec::new(),
            deny_write: vec![PathGlob::known(".git/**")],
        }
    }
}

/// How a person is asked for calls that need approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Approvals {
    /// Seconds that a yes for the session counts, and a question waits that was left for `berth approvals`.
    pub expire_secs: Bounded<1, 28_800>,
    /// Seconds that a call waits for an answer by `berth approvals`, where nobody else can be asked. 0: it doesn't; the answer counts for the
    /// next call that is the same.
    pub wait_secs: Bounded<0, 3600>,
    /// Whether `berth call --yes` counts.
    pub yes_flag: bool,
    /// Who is asked about a call that came over MCP.
    pub mcp: McpApprovals,
}

rules!(Approvals {
    expire_secs: Rule::Smaller,
    wait_secs: Rule::Smaller,
    yes_flag: Rule::OnlyFalse,
    mcp: Rule::Stricter(&["deny", "terminal", "client"]),
});

impl Default for Approvals {
    fn default() -> Self {
        Self { expire_secs: Bounded::clamped(3600), wait_secs: Bounded::clamped(0), yes_flag: true, mcp: McpApprovals::default() }
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

/// A folder whose plugins are loaded, and loaded anew when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct PluginFolder {
    /// The folder; where empty, `plugins` in Berth's data folder. `~` is the home directory; a relative path starts at the folder of the
    /// `berth.toml` that names it, or at the working directory where a variable or a flag does. Tools don't write there.
    pub path: String,
    /// What happens to a plugin that is new there or has changed.
    pub reload: Reload,
}

rules!(PluginFolder { path: Rule::Ignored, reload: Rule::Approve });

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

/// The record of every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Audit {
    /// Whether calls are recorded.
    pub enabled: bool,
    /// What happens to a call that can change something when it can't be recorded, since the disk is full, say. Calls that only read go on.
    pub on_failure: OnFailure,
    /// Whether each record is on the disk before anything else happens, so that it survives a power failure. It takes milliseconds a call;
    /// calls that run at the same time share them.
    pub durable: bool,
    /// MiB of one file; then another one begins.
    pub max_mib: Bounded<1, 65_536>,
    /// Files that are kept beside the one that is written to; older ones are removed. 0: all.
    pub keep: Bounded<0, 100_000>,
}

// A stranger who could have files turned or removed could have what they did forgotten.
rules!(Audit {
    enabled: Rule::OnlyTrue,
    on_failure: Rule::Stricter(&["stop", "continue"]),
    durable: Rule::OnlyTrue,
    max_mib: Rule::Ignored,
    keep: Rule::Ignored,
});

impl Default for Audit {
    fn default() -> Self {
        Self { enabled: true, on_failure: OnFailure::Stop, durable: false, max_mib: Bounded::clamped(64), keep: Bounded::clamped(0) }
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

/// A plugin that is not built in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Plugin {
    /// Whether its tools are there: `false` takes them out of the catalogue.
    pub enabled: bool,
    /// The component, a `.wasm` file; where empty, the plugin of that name in `[plugin_folder]`. `~` is the home directory; a relative path
    /// starts at the folder of the `berth.toml` that names it, or at the working directory where a variable or a flag does.
    pub path: String,
    /// What happens when the component changes; where absent, `"approve"` for a plugin with a `path`, and what `[plugin_folder]` says for
    /// one that comes from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<Reload>,
    /// The built-in plugin that this one takes the place of, as `"file"`; where empty, none.
    pub replaces: String,
    /// Directories that the plugin may use. Nothing is granted by default.
    pub allowed_paths: Vec<AllowedPath>,
    /// How far the plugin is trusted.
    pub trust: TrustLevel,
    /// Programs that the plugin may start, each with a glob for every argument, as in `"git {status,diff} **"`: a last `**` stands for any
    /// further ones. They run in the sandbox of `[tools.shell]`.
    pub programs: Vec<WrittenProgram>,
    /// Whether the plugin may run commands by a shell, which reaches every program.
    pub shell: bool,
    /// Whether what the plugin starts may reach the network. Its own requests are another matter: see `hosts`.
    pub network: bool,
    /// Variables of your environment that what the plugin starts gets beside the usual ones, by name.
    pub env: Vec<VariableName>,
    /// Hosts that the plugin's own requests reach, as in `"api.example.com"`, `"*.example.com"` for all names below one, or
    /// `"https://example.com:8443"`; a table can also say by which `methods`. What it starts doesn't count: see `network`.
    pub hosts: Vec<HostGrant>,
    /// Private hosts that are opened to them, as `"localhost:3000"`, an address or a range, each with or without a port.
    pub allowed_private_hosts: Vec<WrittenPrivateHosts>,
    /// Whether other hosts are reached by TLS alone.
    pub https_only: bool,
    /// Hosts to which its requests may carry what looks like a secret.
    pub credentials_to: Vec<WrittenHost>,
    /// Secrets that Berth puts into its requests, by names of yours. The plugin sees none.
    pub secrets: BTreeMap<String, Secret>,
    /// What one call of the plugin may use, where that differs from `[tools.limits]`.
    pub limits: PluginLimits,
}

impl Default for Plugin {
    fn default() -> Self {
        Self {
            enabled: true,
            path: String::new(),
            reload: None,
            replaces: String::new(),
            allowed_paths: Vec::new(),
            trust: TrustLevel::default(),
            programs: Vec::new(),
            shell: false,
            network: false,
            env: Vec::new(),
            hosts: Vec::new(),
            allowed_private_hosts: Vec::new(),
            https_only: true,
            credentials_to: Vec::new(),
            secrets: BTreeMap::new(),
            limits: PluginLimits::default(),
        }
    }
}

rules!(Plugin {
    enabled: Rule::OnlyFalse,
    path: Rule::Ignored,
    reload: Rule::Approve,
    replaces: Rule::Ignored,
    allowed_paths: Rule::Directories,
    trust: Rule::Stricter(&["blocked", "quarantined", "verified", "trusted"]),
    programs: Rule::Subset,
    shell: Rule::OnlyFalse,
    network: Rule::OnlyFalse,
    env: Rule::Subset,
    hosts: Rule::Covered(HostGrant::covers_written),
    allowed_private_hosts: Rule::Covered(WrittenPrivateHosts::covers_written),
    https_only: Rule::OnlyTrue,
    credentials_to: Rule::Covered(WrittenHost::covers_written),
    secrets: Rule::Named(Secret::RULES),
    limits: Rule::Table(PluginLimits::RULES),
});

/// What one call of a plugin may use; a key that is absent counts as in `[tools.limits]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct PluginLimits {
    /// Seconds of processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_secs: Option<Bounded<1, 86_400>>,
    /// MiB over all memories and tables of the plugin together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<Bounded<1, 16_384>>,
    /// MiB of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_mib: Option<Bounded<1, 256>>,
    /// MiB written to files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_mib: Option<Bounded<1, 1_048_576>>,
    /// Files, directories and other handles, open at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handles: Option<Bounded<16, 4096>>,
    /// Requests to the network, each redirect counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Bounded<1, 256>>,
    /// Requests of the plugin that are under way at a time; more wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_requests: Option<Bounded<1, 1024>>,
    /// MiB of one answer from the network, as it comes and unpacked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_mib: Option<Bounded<1, 1024>>,
    /// Seconds of one request, to the end of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_secs: Option<Bounded<1, 3600>>,
}

rules!(PluginLimits {
    cpu_secs: Rule::Smaller,
    memory_mib: Rule::Smaller,
    result_mib: Rule::Smaller,
    written_mib: Rule::Smaller,
    handles: Rule::Smaller,
    requests: Rule::Smaller,
    concurrent_requests: Rule::Smaller,
    response_mib: Rule::Smaller,
    request_secs: Rule::Smaller,
});

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
