//! The keys of the agents Zeph and ZeroClaw, and the keys of Toolhold that replace them.

/// The replacement of another agent's key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instead {
    /// Another key, a line that sets the key, and the change of the value.
    Key(&'static str, &'static str, Form),
    /// No key. The sentence gives the reason and a remedy.
    Nothing(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Same,
    /// `"readonly"`, `"supervised"` or `"full"`.
    Autonomy,
    /// Whether a denied call is blocked.
    OnDenial,
    /// Days to hours.
    Hours,
    /// Bytes to KiB. 0 means that there is no limit.
    Kibibytes,
    /// A list of allowed programs. `"*"` means all programs.
    Programs,
    /// Hosts. Each name includes all names below it. `"*"` means all hosts.
    Domains,
    /// Directories. The working directory is added to the list.
    Directories,
    /// Forbidden paths. Toolhold can't reach system paths anyway.
    Denied,
}

use Form::{Autonomy, Denied, Directories, Domains, Hours, Kibibytes, OnDenial, Programs, Same};
use Instead::{Key, Nothing};

const NO_MODEL: Instead = Nothing(
    "set this in the program that runs the model; the settings of Toolhold's agent are in [agent] \
     and [providers]",
);

const REVIEW: Instead = Nothing(
    "[tools.adversarial_policy] has `enabled`, `provider`, `policies`, `on_deny`, `timeout_ms`, `fail_open` and `exempt_tools`",
);

const SELECTION: Instead = Nothing(
    "[agent.tool_filter] has `enabled`, `top_k`, `budget_percent`, `min_description_words`, `always_on` and `embeddings`",
);

const WEB_SWITCH: Instead =
    Nothing("all web tools have one switch: write `enabled = false` in [tools.web]");

const NO_BROWSER: Instead = Nothing("no built-in tool can do this; a plugin can");

const NO_COSTS: Instead = Nothing(
    "Toolhold limits the cost of one task of the agent: write `max_cost = 1.0` in [agent]; to \
     limit calls, write `max_actions_per_hour = 20` in [tools]",
);

/// The foreign keys. A `*` at the end stands for any further parts, and another `*` for one part.
const KEYS: &[(&str, Instead)] = &[
    ("agent.max_tool_iterations", Key("agent.max_turns", "max_turns = 100", Same)),
    (
        "agent.context_budget_tokens",
        Nothing(
            "each model has its own value: write `context_tokens` in the model's table of \
             [providers]",
        ),
    ),
    ("agent.tool_filter.*", SELECTION),
    ("agent.*", NO_MODEL),
    ("tools.summarize_output", Key("agent.summarize_output", "summarize_output = true", Same)),
    ("tools.shell.timeout", Key("tools.call", "call = 30", Same)),
    ("tools.tafc.enabled", Key("agent.tafc.enabled", "enabled = true", Same)),
    (
        "tools.tafc.complexity_threshold",
        Key("agent.tafc.complexity_threshold", "complexity_threshold = 0.6", Same),
    ),
    (
        "tools.adversarial_policy.policy_provider",
        Nothing(
            "write a table of [providers], and the table's name as `provider` in \
             [tools.adversarial_policy]",
        ),
    ),
    (
        "tools.adversarial_policy.policy_file",
        Nothing(
            "write the policies as sentences: `policies = [\"…\"]` in [tools.adversarial_policy]",
        ),
    ),
    (
        "tools.adversarial_policy.block_on_reject",
        Key("tools.adversarial_policy.on_deny", "on_deny = \"deny\"", OnDenial),
    ),
    ("tools.adversarial_policy.*", REVIEW),
    ("tools.utility.enabled", Key("agent.utility.enabled", "enabled = true", Same)),
    ("tools.utility.threshold", Key("agent.utility.threshold", "threshold = 0.1", Same)),
    ("tools.utility.*", Nothing("[agent.utility] has `enabled`, `threshold` and `exempt_tools`")),
    (
        "tools.retry.parameter_reformat_provider",
        Key("agent.parameter_reformat_provider", "parameter_reformat_provider = \"small\"", Same),
    ),
    (
        "tools.overflow.retention_days",
        Key("tools.overflow.retention_hours", "retention_hours = 168", Hours),
    ),
    (
        "tools.overflow.max_overflow_bytes",
        Nothing(
            "at most 10 MiB of one answer are stored; to limit all answers together, write \
             `max_mib = 256` in [tools.overflow]",
        ),
    ),
    ("tools.scrape.timeout", Key("tools.web.timeout", "timeout = 15", Same)),
    (
        "tools.scrape.max_body_bytes",
        Key("tools.web.max_body_kib", "max_body_kib = 1024", Kibibytes),
    ),
    (
        "tools.scrape.allowed_domains",
        Key("tools.web.allowed_domains", "allowed_domains = [\"docs.rs\"]", Same),
    ),
    (
        "tools.scrape.denied_domains",
        Key("tools.web.denied_domains", "denied_domains = [\"example.com\"]", Same),
    ),
    ("tools.audit.enabled", Key("audit.enabled", "enabled = true", Same)),
    (
        "tools.audit.destination",
        Nothing(
            "the audit log is `audit/audit.jsonl` in Toolhold's data folder; to move that folder, \
             set the variable TOOLHOLD_DATA_DIR",
        ),
    ),
    (
        "tools.policy.enabled",
        Nothing("the rules of [tools.policy] always apply; remove the rules that you don't need"),
    ),
    (
        "tools.policy.default_effect",
        Nothing(
            "with a rule `effect = \"allow\"` in [[tools.policy.rules]], all other calls are \
             denied; to be asked instead, write `autonomy = \"ask\"` in [tools]",
        ),
    ),
    (
        "tools.policy.policy_file",
        Nothing("write the rules of that file into toolhold.toml, each as [[tools.policy.rules]]"),
    ),
    ("security.autonomy_level", Key("tools.autonomy", "autonomy = \"ask\"", Autonomy)),
    ("security.redact_secrets", Key("tools.redaction.enabled", "enabled = true", Same)),
    ("security.audit.enabled", Key("audit.enabled", "enabled = true", Same)),
    ("autonomy.level", Key("tools.autonomy", "autonomy = \"ask\"", Autonomy)),
    (
        "autonomy.workspace_only",
        Nothing(
            "tools reach only the directories of `allowed_paths` in [tools.file]; add one with `toolhold allow DIRECTORY`",
        ),
    ),
    (
        "autonomy.allowed_commands",
        Key("tools.shell.only_commands", "only_commands = [\"git\", \"cargo\"]", Programs),
    ),
    ("autonomy.forbidden_paths", Key("tools.file.deny_read", "deny_read = [\"~/.ssh\"]", Denied)),
    (
        "autonomy.allowed_roots",
        Key("tools.file.allowed_paths", "allowed_paths = [\".\", \"~/work\"]", Directories),
    ),
    (
        "autonomy.max_actions_per_hour",
        Key("tools.max_actions_per_hour", "max_actions_per_hour = 20", Same),
    ),
    (
        "autonomy.require_approval_for_medium_risk",
        Key(
            "tools.shell.require_approval_for_medium_risk",
            "require_approval_for_medium_risk = true",
            Same,
        ),
    ),
    (
        "autonomy.block_high_risk_commands",
        Key("tools.shell.block_high_risk_commands", "block_high_risk_commands = true", Same),
    ),
    ("autonomy.shell_env_passthrough", Key("tools.shell.env", "env = [\"DATABASE_URL\"]", Same)),
    ("autonomy.max_cost_per_day_cents", NO_COSTS),
    (
        AUTO_APPROVE,
        Nothing(
            "write a rule for each tool: [[tools.permissions.TOOL]] with `pattern = \"*\"` and `action = \"allow\"`",
        ),
    ),
    (
        ALWAYS_ASK,
        Nothing(
            "write a rule for each tool: [[tools.permissions.TOOL]] with `pattern = \"*\"` and `action = \"ask\"`",
        ),
    ),
    ("shell_tool.timeout_secs", Key("tools.call", "call = 60", Same)),
    ("http_request.enabled", WEB_SWITCH),
    ("web_fetch.enabled", WEB_SWITCH),
    (
        "http_request.allowed_domains",
        Key("tools.web.allowed_domains", "allowed_domains = [\"docs.rs\"]", Domains),
    ),
    (
        "web_fetch.allowed_domains",
        Key("tools.web.allowed_domains", "allowed_domains = [\"docs.rs\"]", Domains),
    ),
    (
        "web_fetch.blocked_domains",
        Key("tools.web.denied_domains", "denied_domains = [\"example.com\"]", Domains),
    ),
    ("http_request.timeout_secs", Key("tools.web.timeout", "timeout = 15", Same)),
    ("web_fetch.timeout_secs", Key("tools.web.timeout", "timeout = 15", Same)),
    (
        "http_request.max_response_size",
        Key("tools.web.max_body_kib", "max_body_kib = 1024", Kibibytes),
    ),
    (
        "web_fetch.max_response_size",
        Key("tools.web.max_body_kib", "max_body_kib = 1024", Kibibytes),
    ),
    ("browser.*", NO_BROWSER),
    ("web_search.*", NO_BROWSER),
    ("llm.*", NO_MODEL),
    ("memory.*", Nothing("[tools.memory] has `enabled` and `embeddings`")),
    ("skills.*", Nothing("[skills] has `enabled`, `folders` and a table `env`")),
    ("cost.*", NO_COSTS),
    (
        "index.*",
        Nothing(
            "[index] has `enabled`, `max_mib`, `max_files`, `update_secs` and `embeddings`, for `search_code`",
        ),
    ),
    ("scheduler.enabled", Key("tools.scheduler.enabled", "enabled = true", Same)),
    ("scheduler.max_tasks", Key("tools.scheduler.max_tasks", "max_tasks = 100", Same)),
    (
        "scheduler.*",
        Nothing(
            "[tools.scheduler] has `enabled`, `max_tasks` and `min_interval`; `toolhold tasks daemon` runs the tasks",
        ),
    ),
];

/// The key with the tools that need no approval.
pub(super) const AUTO_APPROVE: &str = "autonomy.auto_approve";

/// The key with the tools that always need approval.
pub(super) const ALWAYS_ASK: &str = "autonomy.always_ask";

/// Returns the replacement of a foreign key. Returns `None` if the path isn't a foreign key.
pub(super) fn instead(path: &[String]) -> Option<Instead> {
    KEYS.iter().find(|(pattern, _)| fits(path, pattern)).map(|(_, instead)| *instead)
}

/// Checks whether a path fits a pattern. A `*` stands for one name. A `*` at the end stands for one
/// or more names.
fn fits(path: &[String], pattern: &str) -> bool {
    let mut parts = pattern.split('.').peekable();
    let mut names = path.iter();
    while let Some(part) = parts.next() {
        let Some(name) = names.next() else { return false };
        let is_last = parts.peek().is_none();
        if part == "*" && is_last {
            return true;
        }
        if part != "*" && part != name {
            return false;
        }
    }
    names.next().is_none()
}

/// Returns advice about a foreign key. Returns `None` if the path isn't a foreign key.
pub fn advice(path: &[String]) -> Option<String> {
    Some(match instead(path)? {
        Key(key, line, _) => {
            // Each of these keys is in a table.
            let (table, _) = key.rsplit_once('.')?;
            format!("Toolhold has another key for this: write `{line}` in [{table}]")
        }
        Nothing(why) => why.to_owned(),
    })
}

/// A foreign key and its replacement.
#[derive(Clone, Copy, Debug)]
pub struct KeyInstead {
    /// The foreign key. A `*` at the end stands for any further parts.
    pub old: &'static str,
    /// The new key, and a line that sets it. `None` if there is no such key.
    pub new: Option<(&'static str, &'static str)>,
}

/// Returns all foreign keys, with Toolhold's key for each foreign key that has such a key.
pub fn keys_instead() -> impl Iterator<Item = KeyInstead> {
    KEYS.iter().map(|(old, instead)| KeyInstead {
        old,
        new: match instead {
            Key(new, line, _) => Some((new, line)),
            Nothing(_) => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str) -> Vec<String> {
        key.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn advice_says_what_to_write() {
        let check = |key: &str, part: &str| {
            let advice = advice(&path(key)).expect(key);
            assert!(advice.contains(part), "{key}: {advice}");
        };
        check("tools.shell.timeout", "write `call = 30` in [tools]");
        check("agent.tool_filter.model", "embeddings");
        check("agent.max_tool_iterations", "write `max_turns = 100` in [agent]");
        check("autonomy.level", "write `autonomy = \"ask\"` in [tools]");
        check("llm.providers.x", "[providers]");
        check("tools.tafc.enabled", "write `enabled = true` in [agent.tafc]");
        for key in ["tools.shell.timeouts", "llm", "agent", "tools.file.allowed_paths"] {
            assert!(advice(&path(key)).is_none(), "{key}");
        }
    }
}
