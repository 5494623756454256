//! Which values count in the working directory's file, which is untrusted.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::super::keys::{Key, known};
use super::*;

/// A user's configuration with a value for every kind of key.
pub(super) const USER: &str = r#"
[tools]
enabled = false
max_actions_per_hour = 5
max_tool_calls_per_session = 100
call = 20
max_call = 100
max_concurrent = 4
[tools.permissions]
known = [{ pattern = "src/**", action = "deny" }]
[tools.authorization]
enabled = true
[tools.shell]
enabled = false
allowed_paths = [".", { path = "~/notes", access = "read" }]
only_commands = ["git", "ls"]
strict_parse = true
block_high_risk_commands = true
[tools.shell.limits]
memory_mib = 100
processes = 100
cpu_secs = 100
file_mib = 100
open_files = 100
scratch_mib = 100
[tools.web]
enabled = false
timeout = 10
[tools.web.secrets.known]
env = "KNOWN"
hosts = ["api.example.com"]
[tools.limits]
cpu_secs = 10
memory_mib = 128
result_mib = 8
written_mib = 64
handles = 64
[tools.file]
enabled = false
allowed_paths = [".", { path = "~/notes", access = "read" }]
deny_read = ["**/.env"]
allow_read = ["*.md", "*.rs"]
deny_write = ["vendor"]
[tools.result_cache]
enabled = false
[approvals]
expire_secs = 600
wait_secs = 5
yes_flag = false
mcp = "terminal"
[serve]
max_connections = 10
max_requests = 10
requests_per_minute = 10
max_body_kib = 10
grace_secs = 1
[audit]
durable = true
[tools.dependencies]
enabled = true
rules.known.requires = ["read"]
[plugins.known]
enabled = false
path = "known.wasm"
allowed_paths = [{ path = "~/notes", access = "read" }]
hosts = ["api.example.com", { host = "*.example.org", methods = ["GET"] }]
[plugins.known.secrets.known]
env = "KNOWN"
hosts = ["api.example.com"]
"#;

/// For each key, a value that would widen what `USER` grants. `None` if no value of the key can
/// widen.
pub(super) fn attempt(key: &str) -> Option<&'static str> {
    Some(match key {
        "tools.enabled" => "tools.enabled = true",
        "tools.max_actions_per_hour" => "tools.max_actions_per_hour = 0",
        "tools.max_tool_calls_per_session" => "tools.max_tool_calls_per_session = 101",
        "tools.dependencies.enabled" => "tools.dependencies.enabled = false",
        "tools.dependencies.boost_per_dep" => "tools.dependencies.boost_per_dep = 1",
        "tools.dependencies.max_total_boost" => "tools.dependencies.max_total_boost = 1",
        "tools.dependencies.always_on" => "tools.dependencies.always_on = [\"edit\"]",
        "tools.dependencies.rules.*.requires" => "tools.dependencies.rules.known.requires = []",
        "tools.dependencies.rules.*.prefers" => {
            "tools.dependencies.rules.known.prefers = [\"grep\"]"
        }
        "plugins.*.enabled" => "plugins.known.enabled = true",
        "tools.call" => "tools.call = 21",
        "tools.max_call" => "tools.max_call = 101",
        "tools.max_concurrent" => "tools.max_concurrent = 0",
        "tools.autonomy" => "tools.autonomy = \"full\"",
        "tools.permissions.*" => {
            "tools.permissions.known = [{ pattern = \"*\", action = \"allow\" }]"
        }
        "tools.policy.rules" => "tools.policy.rules = [{ effect = \"allow\" }]",
        "tools.authorization.enabled" => "tools.authorization.enabled = false",
        "tools.authorization.rules" => "tools.authorization.rules = [{ effect = \"allow\" }]",
        "tools.shell.enabled" => "tools.shell.enabled = true",
        "tools.shell.allowed_paths" => "tools.shell.allowed_paths = [\"/\"]",
        "tools.shell.network" => "tools.shell.network = \"allow\"",
        "tools.shell.sandbox" => "tools.shell.sandbox = \"off\"",
        "tools.shell.presets" => "tools.shell.presets = [\"cargo\"]",
        "tools.shell.env" => "tools.shell.env = [\"AWS_SECRET_ACCESS_KEY\"]",
        "tools.shell.sockets" => "tools.shell.sockets = [\"run\"]",
        "tools.shell.limits.memory_mib" => "tools.shell.limits.memory_mib = 101",
        "tools.shell.limits.processes" => "tools.shell.limits.processes = 101",
        "tools.shell.limits.cpu_secs" => "tools.shell.limits.cpu_secs = 101",
        "tools.shell.limits.file_mib" => "tools.shell.limits.file_mib = 101",
        "tools.shell.limits.open_files" => "tools.shell.limits.open_files = 101",
        "tools.shell.limits.scratch_mib" => "tools.shell.limits.scratch_mib = 101",
        "tools.shell.blocked_commands" | "tools.shell.confirm_patterns" => return None,
        "tools.shell.allowed_commands" => "tools.shell.allowed_commands = [\"sudo\"]",
        "tools.shell.only_commands" => "tools.shell.only_commands = []",
        "tools.shell.strict_parse" => "tools.shell.strict_parse = false",
        "tools.shell.block_high_risk_commands" => "tools.shell.block_high_risk_commands = false",
        "tools.shell.require_approval_for_medium_risk" => {
            "tools.shell.require_approval_for_medium_risk = false"
        }
        "tools.keep_ready" => "tools.keep_ready = 31",
        "tools.limits.cpu_secs" => "tools.limits.cpu_secs = 11",
        "tools.limits.memory_mib" => "tools.limits.memory_mib = 16384",
        "tools.limits.result_mib" => "tools.limits.result_mib = 256",
        "tools.limits.written_mib" => "tools.limits.written_mib = 65",
        "tools.limits.handles" => "tools.limits.handles = 65",
        "tools.limits.requests" => "tools.limits.requests = 101",
        "tools.limits.concurrent_requests" => "tools.limits.concurrent_requests = 9",
        "tools.limits.response_mib" => "tools.limits.response_mib = 11",
        "tools.limits.request_secs" => "tools.limits.request_secs = 31",
        "tools.web.enabled" => "tools.web.enabled = true",
        "tools.web.allowed_domains" => "tools.web.allowed_domains = [\"evil.example\"]",
        // Its values are added too.
        "tools.web.denied_domains" => return None,
        "tools.web.other_domains" => "tools.web.other_domains = \"allow\"",
        "tools.web.allowed_private_hosts" => "tools.web.allowed_private_hosts = [\"127.0.0.1:22\"]",
        "tools.web.https_only" => "tools.web.https_only = false",
        "tools.web.timeout" => "tools.web.timeout = 11",
        "tools.web.max_body_kib" => "tools.web.max_body_kib = 1025",
        "tools.web.credentials_to" => "tools.web.credentials_to = [\"evil.example\"]",
        "tools.web.secrets.*.env" => "tools.web.secrets.known.env = \"AWS_SECRET_ACCESS_KEY\"",
        "tools.web.secrets.*.file" => "tools.web.secrets.known.file = \"~/.ssh/id_rsa\"",
        "tools.web.secrets.*.command" => "tools.web.secrets.known.command = [\"./evil\"]",
        "tools.web.secrets.*.keyring.service" => {
            "tools.web.secrets.known.keyring.service = \"bank\""
        }
        "tools.web.secrets.*.keyring.account" => "tools.web.secrets.known.keyring.account = \"me\"",
        "tools.web.secrets.*.hosts" => "tools.web.secrets.known.hosts = [\"evil.example\"]",
        "tools.web.secrets.*.methods" => "tools.web.secrets.known.methods = [\"POST\"]",
        "tools.web.secrets.*.paths" => "tools.web.secrets.known.paths = [\"/\"]",
        "tools.web.secrets.*.header" => "tools.web.secrets.known.header = \"X-Logged\"",
        "tools.web.secrets.*.prefix" => "tools.web.secrets.known.prefix = \"\"",
        "tools.web.secrets.*.query" => "tools.web.secrets.known.query = \"q\"",
        "network.proxy" => "network.proxy = \"http://evil.example:3128\"",
        "network.no_proxy" => "network.no_proxy = [\"evil.example\"]",
        "network.proxy_resolves" => "network.proxy_resolves = true",
        "network.authorities" => "network.authorities = [\"evil.pem\"]",
        "tools.file.enabled" => "tools.file.enabled = true",
        "tools.file.allowed_paths" => "tools.file.allowed_paths = [\"/\"]",
        // Denials are added, so no value takes one away, not even the empty list.
        "tools.file.deny_read" | "tools.file.deny_write" => return None,
        "tools.file.allow_read" => "tools.file.allow_read = []",
        "tools.retry.max_attempts" => "tools.retry.max_attempts = 3",
        "tools.retry.base_ms" => "tools.retry.base_ms = 501",
        "tools.retry.max_ms" => "tools.retry.max_ms = 5001",
        "tools.retry.budget_secs" => "tools.retry.budget_secs = 31",
        "tools.result_cache.enabled" => "tools.result_cache.enabled = true",
        "tools.result_cache.ttl_secs" => "tools.result_cache.ttl_secs = 0",
        "tools.result_cache.max_mib" => "tools.result_cache.max_mib = 33",
        "tools.result_cache.max_entries" => "tools.result_cache.max_entries = 513",
        "tools.redaction.enabled" => "tools.redaction.enabled = false",
        "tools.redaction.exempt" => "tools.redaction.exempt = [\"read\"]",
        "tools.filters.enabled" => "tools.filters.enabled = false",
        "tools.filters.filters_path" => "tools.filters.filters_path = \"evil.toml\"",
        "tools.filters.chain" => "tools.filters.chain = [\"evil\"]",
        "tools.filters.security.enabled" => "tools.filters.security.enabled = false",
        // Its values are added: more lines are put back.
        "tools.filters.security.extra_patterns" => return None,
        "tools.overflow.threshold" => "tools.overflow.threshold = 0",
        "tools.overflow.retention_hours" => "tools.overflow.retention_hours = 169",
        "tools.overflow.max_mib" => "tools.overflow.max_mib = 257",
        "approvals.expire_secs" => "approvals.expire_secs = 601",
        "approvals.wait_secs" => "approvals.wait_secs = 6",
        "approvals.yes_flag" => "approvals.yes_flag = true",
        "approvals.mcp" => "approvals.mcp = 'client'",
        "serve.structured" => "serve.structured = \"never\"",
        "serve.url" => "serve.url = \"https://evil.example\"",
        "serve.allowed_origins" => "serve.allowed_origins = [\"https://evil.example\"]",
        "serve.certificate" => "serve.certificate = \"evil.pem\"",
        "serve.key" => "serve.key = \"evil.pem\"",
        "serve.plain_http" => "serve.plain_http = true",
        "serve.max_connections" => "serve.max_connections = 11",
        "serve.max_requests" => "serve.max_requests = 11",
        "serve.requests_per_minute" => "serve.requests_per_minute = 0",
        "serve.max_body_kib" => "serve.max_body_kib = 11",
        "serve.grace_secs" => "serve.grace_secs = 2",
        "serve.oauth.issuer" => "serve.oauth.issuer = \"https://evil.example\"",
        "serve.oauth.keys" => "serve.oauth.keys = \"evil.json\"",
        "serve.oauth.audience" => "serve.oauth.audience = \"anybody\"",
        "serve.oauth.scope" => "serve.oauth.scope = \"none\"",
        "plugin_folder.path" => "plugin_folder.path = \".\"",
        "plugin_folder.reload" => "plugin_folder.reload = \"trust\"",
        "audit.enabled" => "audit.enabled = false",
        "audit.on_failure" => "audit.on_failure = \"continue\"",
        "audit.durable" => "audit.durable = false",
        "audit.max_mib" => "audit.max_mib = 1",
        "audit.keep" => "audit.keep = 1",
        "plugins.*.path" => "plugins.known.path = \"evil.wasm\"",
        "plugins.*.reload" => "plugins.known.reload = \"trust\"",
        "plugins.*.replaces" => "plugins.known.replaces = \"file\"",
        "plugins.*.trust" => "plugins.known.trust = \"trusted\"",
        "plugins.*.allowed_paths" => "plugins.known.allowed_paths = [\".\"]",
        "plugins.*.programs" => "plugins.known.programs = [\"sh **\"]",
        "plugins.*.shell" => "plugins.known.shell = true",
        "plugins.*.network" => "plugins.known.network = true",
        "plugins.*.env" => "plugins.known.env = [\"AWS_SECRET_ACCESS_KEY\"]",
        "plugins.*.limits.cpu_secs" => "plugins.known.limits.cpu_secs = 11",
        "plugins.*.limits.memory_mib" => "plugins.known.limits.memory_mib = 129",
        "plugins.*.limits.result_mib" => "plugins.known.limits.result_mib = 9",
        "plugins.*.limits.written_mib" => "plugins.known.limits.written_mib = 65",
        "plugins.*.limits.handles" => "plugins.known.limits.handles = 65",
        "plugins.*.limits.requests" => "plugins.known.limits.requests = 101",
        "plugins.*.limits.concurrent_requests" => "plugins.known.limits.concurrent_requests = 9",
        "plugins.*.limits.response_mib" => "plugins.known.limits.response_mib = 11",
        "plugins.*.limits.request_secs" => "plugins.known.limits.request_secs = 31",
        "plugins.*.hosts" => {
            "plugins.known.hosts = [\"evil.example\", \"api.example.com\", { host = \"*.example.org\", methods = [\"GET\"] }]"
        }
        "plugins.*.allowed_private_hosts" => {
            "plugins.known.allowed_private_hosts = [\"10.0.0.0/8\"]"
        }
        "plugins.*.https_only" => "plugins.known.https_only = false",
        "plugins.*.credentials_to" => "plugins.known.credentials_to = [\"evil.example\"]",
        "plugins.*.secrets.*.env" => "plugins.known.secrets.known.env = \"AWS_SECRET_ACCESS_KEY\"",
        "plugins.*.secrets.*.file" => "plugins.known.secrets.known.file = \"~/.ssh/id_rsa\"",
        "plugins.*.secrets.*.command" => "plugins.known.secrets.known.command = [\"./evil\"]",
        "plugins.*.secrets.*.keyring.service" => {
            "plugins.known.secrets.known.keyring.service = \"bank\""
        }
        "plugins.*.secrets.*.keyring.account" => {
            "plugins.known.secrets.known.keyring.account = \"me\""
        }
        "plugins.*.secrets.*.hosts" => "plugins.known.secrets.known.hosts = [\"evil.example\"]",
        "plugins.*.secrets.*.methods" => "plugins.known.secrets.known.methods = [\"POST\"]",
        "plugins.*.secrets.*.paths" => "plugins.known.secrets.known.paths = [\"/\"]",
        "plugins.*.secrets.*.header" => "plugins.known.secrets.known.header = \"X-Logged\"",
        "plugins.*.secrets.*.prefix" => "plugins.known.secrets.known.prefix = \"\"",
        "plugins.*.secrets.*.query" => "plugins.known.secrets.known.query = \"q\"",
        other => panic!("`{other}` needs an attempt to widen it"),
    })
}

pub(super) fn keys() -> impl Iterator<Item = String> {
    known().iter().filter(|key| !key.table && !key.in_list).map(|Key { path, .. }| path.join("."))
}

#[test]
fn no_key_widens_and_each_attempt_is_reported() {
    let scene = Scene::new();
    for key in keys() {
        let Some(attempt) = attempt(&key) else { continue };
        let loaded = scene.load_with(USER, attempt);
        assert_eq!(loaded.config, scene.load(USER).config, "{attempt}");
        let project = loaded.project.as_ref().expect("it was read");
        let [ignored] = project.ignored() else { panic!("{attempt}: {project:?}") };
        assert_eq!(
            (project.standing, ignored.key.replace("known", "*")),
            (ProjectTrust::Narrows, key),
            "{attempt}"
        );
        assert_eq!(ignored.source, Source::File { path: scene.work.join("berth.toml"), line: 1 });
    }
}

#[test]
fn all_attempts_together_widen_nothing() {
    let scene = Scene::new();
    let all: Vec<&str> = keys().filter_map(|key| attempt(&key)).collect();
    let loaded = scene.load_with(
        USER,
        &(all.join("\n") + "\ntools.file.deny_read = []\ntools.file.deny_write = []\n"),
    );
    assert_eq!(loaded.config, scene.load(USER).config);
    assert_eq!(loaded.project.expect("it was read").ignored().len(), all.len());
}

/// Checks the resulting value of a key, and the reasons why something is ignored.
#[track_caller]
fn check(user: &str, project: &str, key: &str, expected: Value, expected_reasons: &[&str]) {
    let scene = Scene::new();
    for folder in ["work/vendor", "work/src/gen", "own-home/other"] {
        fs::create_dir_all(scene.work.parent().expect("it has a parent").join(folder))
            .expect("folders are made");
    }
    symlink(
        scene.folders.home.as_ref().expect("there is a home").join("other"),
        scene.work.join("way-out"),
    )
    .expect("a link is made");
    let loaded = scene.load_with(user, project);
    let entry = loaded.entries().into_iter().find(|entry| entry.key == key);
    let root = scene.work.parent().expect("it has a parent").display().to_string();
    let value = entry.map_or(Value::Null, |entry| {
        serde_json::from_str(&entry.value.to_string().replace(&root, "@")).expect("it is JSON")
    });
    assert_eq!(value, expected, "{user} and {project}");
    let ignored = loaded.project.as_ref().map_or(&[][..], Project::ignored);
    let reasons: Vec<String> = ignored
        .iter()
        .flat_map(|ignored| &ignored.reasons)
        .map(|reason| reason.replace(&root, "@"))
        .collect();
    assert_eq!(reasons, expected_reasons, "{user} and {project}");
}

#[test]
fn smaller_number_counts() {
    check("", "tools.call = 5", "tools.call", json!(5), &[]);
    check("", "tools.call = 31", "tools.call", json!(30), &["31 is more than 30"]);
    check("tools.call = 60", "tools.call = 59", "tools.call", json!(59), &[]);
    check("tools.call = 60", "tools.call = 60", "tools.call", json!(60), &[]);
    check("", "tools.max_concurrent = 1", "tools.max_concurrent", json!(1), &[]);
    check("", "tools.max_concurrent = 0", "tools.max_concurrent", json!(0), &[]);
    let automatic = berth_system::machine::automatic_concurrency();
    let more = format!("1024 is more than {automatic}");
    check("", "tools.max_concurrent = 1024", "tools.max_concurrent", json!(0), &[&more]);
    let all = format!("{automatic} is more than 2");
    check(
        "tools.max_concurrent = 2",
        "tools.max_concurrent = 0",
        "tools.max_concurrent",
        json!(2),
        &[&all],
    );
}

#[test]
fn plugin_limit_stays_below_the_inherited_limit() {
    let user = "tools.limits.memory_mib = 100\n[plugins.x]\n";
    let key = "plugins.x.limits.memory_mib";
    check(user, "plugins.x.limits.memory_mib = 99", key, json!(99), &[]);
    check(user, "plugins.x.limits.memory_mib = 101", key, Value::Null, &["101 is more than 100"]);
    // A variable or a flag may lower the inherited limit.
    let scene = Scene::new();
    scene.load_with(user, "plugins.x.limits.memory_mib = 99");
    let lower = scene.load_there(&["tools.limits.memory_mib=50"]).expect("it is valid");
    assert_eq!(lower.plugin_limits("x").memory_mib.get(), 50);
    assert_eq!(lower.project.expect("it was read").ignored().len(), 1);
}

#[test]
fn denials_are_added() {
    let both = json!(["**/.env", "secrets"]);
    check(
        "tools.file.deny_read = [\"**/.env\"]",
        "tools.file.deny_read = [\"secrets\", \"**/.env\"]",
        "tools.file.deny_read",
        both,
        &[],
    );
    check(
        "",
        "tools.file.deny_write = [\"vendor\"]",
        "tools.file.deny_write",
        json!([".git/**", "vendor"]),
        &[],
    );
    check("", "tools.file.deny_write = []", "tools.file.deny_write", json!([".git/**"]), &[]);
}

#[test]
fn allow_read_only_becomes_narrower() {
    let (key, user) = ("tools.file.allow_read", "tools.file.allow_read = [\"a\", \"b\"]");
    check("", "tools.file.allow_read = [\"a\"]", key, json!(["a"]), &[]);
    check("", "tools.file.allow_read = []", key, json!([]), &[]);
    check(user, "tools.file.allow_read = [\"b\"]", key, json!(["b"]), &[]);
    check(user, "tools.file.allow_read = [\"b\", \"b\"]", key, json!(["b", "b"]), &[]);
    check(user, "tools.file.allow_read = [\"b\", \"a\"]", key, json!(["a", "b"]), &[]);
    check(
        user,
        "tools.file.allow_read = [\"b\", \"c\"]",
        key,
        json!(["b"]),
        &["\"c\" is not in your list"],
    );
    check(
        user,
        "tools.file.allow_read = [\"**\", \"c\"]",
        key,
        json!(["a", "b"]),
        &["\"**\" is not in your list", "\"c\" is not in your list"],
    );
    check(
        user,
        "tools.file.allow_read = []",
        key,
        json!(["a", "b"]),
        &["an empty list would allow everything"],
    );
}

#[test]
fn directories_count_only_inside_granted_ones() {
    let key = "tools.file.allowed_paths";
    let read = |path: &str| json!({ "path": path, "access": "read" });
    let default = json!(["."]);
    check("", "tools.file.allowed_paths = [\"src\"]", key, json!(["@/work/src"]), &[]);
    check("", "tools.file.allowed_paths = [\".\"]", key, default.clone(), &[]);
    check("", "tools.file.allowed_paths = []", key, default.clone(), &[]);
    check(
        "",
        "tools.file.allowed_paths = [{ path = \".\", access = \"read\" }]",
        key,
        json!([read("@/work")]),
        &[],
    );
    check(
        "",
        "tools.file.allowed_paths = [\"vendor\", \"src\"]",
        key,
        json!(["@/work/vendor", "@/work/src"]),
        &[],
    );
    let vendor = json!(["@/work", read("@/work/vendor")]);
    check(
        "",
        "tools.file.allowed_paths = [\".\", { path = \"vendor\", access = \"read\" }]",
        key,
        vendor,
        &[],
    );
    // Outside or above the granted directories.
    let outside = &["\"~/other\" isn't in a granted directory"];
    check("", "tools.file.allowed_paths = [\"~/other\"]", key, default.clone(), outside);
    check(
        "",
        "tools.file.allowed_paths = [\"src\", \"~/other\"]",
        key,
        json!(["@/work/src"]),
        outside,
    );
    check(
        "",
        "tools.file.allowed_paths = [\"~/missing\"]",
        key,
        default.clone(),
        &["\"~/missing\" isn't in a granted directory"],
    );
    check(
        "",
        "tools.file.allowed_paths = [\"/\"]",
        key,
        default.clone(),
        &["\"/\" is wider than the granted directories"],
    );
    check(
        "",
        "tools.file.allowed_paths = [\"..\"]",
        key,
        default.clone(),
        &["\"..\", which is @, is wider than the granted directories"],
    );
    let two: &[&str] = &[
        "\"/\" is wider than the granted directories",
        "\"..\", which is @, is wider than the granted directories",
    ];
    check("", "tools.file.allowed_paths = [\"/\", \"..\"]", key, default.clone(), two);
    // A link counts as its target.
    check(
        "",
        "tools.file.allowed_paths = [\"way-out\"]",
        key,
        default,
        &["\"way-out\", which is @/own-home/other, isn't in a granted directory"],
    );
    let home = "tools.file.allowed_paths = [\"~/notes\"]";
    check(
        home,
        "tools.file.allowed_paths = []",
        key,
        json!(["~/notes"]),
        &["\".\" isn't in a granted directory"],
    );
}

#[test]
fn directory_inside_another_keeps_the_lesser_access() {
    let key = "tools.file.allowed_paths";
    let read = |path: &str| json!({ "path": path, "access": "read" });
    let user = "tools.file.allowed_paths = [\".\", { path = \"vendor\", access = \"read\" }]";
    // A directory that the user protects stays protected if the file names only its parent.
    let held = json!([".", { "path": "vendor", "access": "read" }]);
    check(
        user,
        "tools.file.allowed_paths = [\".\"]",
        key,
        held,
        &["\"vendor\" is granted for reading only"],
    );
    check(
        user,
        "tools.file.allowed_paths = [\"vendor\"]",
        key,
        json!([read("@/work/vendor")]),
        &["\"vendor\" is granted for reading only"],
    );
    check(
        user,
        "tools.file.allowed_paths = [{ path = \".\", access = \"read\" }]",
        key,
        json!([read("@/work"), read("@/work/vendor")]),
        &[],
    );
    let user = "tools.file.allowed_paths = [{ path = \".\", access = \"read\" }, \"src\"]";
    let source = "tools.file.allowed_paths = [\"src\", { path = \"src/gen\", access = \"read\" }]";
    check(user, source, key, json!(["@/work/src", read("@/work/src/gen")]), &[]);
    // If a directory is named twice, the narrower access counts.
    let twice = "tools.file.allowed_paths = [\"src\", { path = \"./src\", access = \"read\" }]";
    check(user, twice, key, json!([read("@/work/src")]), &[]);
    let wide = "tools.file.allowed_paths = [{ path = \"~\", access = \"read\" }, \".\"]";
    check(
        user,
        wide,
        key,
        json!([read("."), "src"]),
        &["\"~\" isn't in a granted directory", "\".\" is granted for reading only"],
    );
}

#[test]
fn intersection_gives_every_path_the_lesser_access_of_both() {
    let scene = Scene::new();
    let places = ["", "a", "a/b", "a/b/c", "d"];
    for place in places {
        fs::create_dir_all(scene.work.join(place)).expect("folders are made");
    }
    // All combinations: each side grants no access, reading or writing to three directories, of
    // which some contain others.
    let lists: Vec<Vec<(usize, PathAccess)>> = (0..27)
        .map(|number| {
            let choices = [number % 3, number / 3 % 3, number / 9];
            let granted = choices.iter().enumerate().filter(|(_, choice)| **choice > 0);
            granted
                .map(|(place, choice)| {
                    (place, if *choice == 1 { PathAccess::Read } else { PathAccess::ReadWrite })
                })
                .collect()
        })
        .filter(|list: &Vec<_>| !list.is_empty())
        .collect();
    let list = |list: &[(usize, PathAccess)]| {
        let access = |access| if access == PathAccess::Read { "read" } else { "read-write" };
        let items: Vec<String> = list
            .iter()
            .map(|(place, granted)| {
                format!(
                    "{{ path = {:?}, access = \"{}\" }}",
                    scene.work.join(places[*place]),
                    access(*granted)
                )
            })
            .collect();
        format!("tools.file.allowed_paths = [{}]", items.join(", "))
    };
    let everywhere = |loaded: &Loaded| -> Vec<(bool, bool)> {
        let grants = loaded
            .built_in_files(&scene.folders, &scene.work)
            .expect("all directories exist")
            .grants;
        let rules = FileRules::new(grants, Vec::new());
        let allowed = |place: &str, access| {
            rules.decide(&scene.work.join(place).join("x"), Kind::Other, access).is_ok()
        };
        places
            .iter()
            .map(|place| (allowed(place, Access::Read), allowed(place, Access::Write)))
            .collect()
    };
    let alone: Vec<_> =
        lists.iter().map(|granted| everywhere(&scene.load(&list(granted)))).collect();
    for (user, held) in lists.iter().zip(&alone) {
        scene.write(&list(user));
        for (project, asked) in lists.iter().zip(&alone) {
            fs::write(scene.work.join("berth.toml"), list(project)).expect("the file is written");
            let both = scene.load_there(&[]).expect("it is valid");
            let lesser: Vec<_> = held
                .iter()
                .zip(asked)
                .map(|(held, asked)| (held.0 && asked.0, held.1 && asked.1))
                .collect();
            // If the lists have nothing in common, the file's list is ignored.
            let expected = if lesser.iter().any(|(read, _)| *read) { &lesser } else { held };
            assert_eq!(everywhere(&both), *expected, "{} and {}", list(user), list(project));
        }
    }
}

#[test]
fn plugin_directories_become_fewer_down_to_none() {
    let key = "plugins.x.allowed_paths";
    let user = "[plugins.x]\nallowed_paths = [\".\", \"~/notes\"]";
    check(user, "plugins.x.allowed_paths = []", key, json!([]), &[]);
    check(user, "plugins.x.allowed_paths = [\"~/notes\"]", key, json!(["@/own-home/notes"]), &[]);
    check(
        user,
        "plugins.x.allowed_paths = [\"~/other\"]",
        key,
        json!([".", "~/notes"]),
        &["\"~/other\" isn't in a granted directory"],
    );
    check(
        "[plugins.x]",
        "plugins.x.allowed_paths = [\".\"]",
        key,
        json!([]),
        &["\".\" isn't in a granted directory"],
    );
}

#[test]
fn plugin_is_not_trusted_without_approval() {
    let reasons = &["only your own configuration can trust new plugins without approval"];
    check(
        "",
        "plugin_folder.reload = \"trust\"",
        "plugin_folder.reload",
        json!("approve"),
        reasons,
    );
    check(
        "plugin_folder.reload = \"trust\"",
        "plugin_folder.reload = \"approve\"",
        "plugin_folder.reload",
        json!("approve"),
        &[],
    );
    check(
        "plugin_folder.reload = \"trust\"",
        "plugin_folder.reload = \"trust\"",
        "plugin_folder.reload",
        json!("trust"),
        &[],
    );
    check(
        "[plugins.x]\nreload = \"trust\"",
        "plugins.x.reload = \"approve\"",
        "plugins.x.reload",
        json!("approve"),
        &[],
    );
    // A plugin with a path has its own default, not that of the plugin folder.
    let named = "plugin_folder.reload = \"trust\"\n[plugins.x]\npath = \"x.wasm\"";
    check(named, "plugins.x.reload = \"trust\"", "plugins.x.reload", Value::Null, reasons);
}

#[test]
fn new_plugin_is_one_notice_in_every_spelling() {
    let scene = Scene::new();
    let more = "allowed_paths = [\"/\"]\nreload = \"trust\"\nreplaces = \"file\"\nlimits = { memory_mib = 16384 }\n";
    for table in [
        format!("[plugins.evil]\npath = \"evil.wasm\"\n{more}"),
        "plugins.evil.path = \"evil.wasm\"\nplugins.evil.limits.memory_mib = 1".to_owned(),
        "plugins = { evil = { path = \"evil.wasm\" } }".to_owned(),
        "[plugins.evil.limits]\ncpu_secs = 1".to_owned(),
        "[plugins.evil]".to_owned(),
        format!("[plugins.file]\n{more}"),
    ] {
        let loaded = scene.load_with("", &table);
        assert_eq!(loaded.config, Config::default(), "{table}");
        let project = loaded.project.expect("it was read");
        let [ignored] = project.ignored() else { panic!("{table}: {project:?}") };
        assert!(
            ["plugins.evil", "plugins.file"].contains(&ignored.key.as_str())
                && ignored.proposed.is_object(),
            "{ignored:?}"
        );
    }
    // A plugin of the operator isn't changed either.
    let loaded = scene.load_with(
        "[plugins.file]\npath = \"x.wasm\"",
        "[plugins.file]\npath = \"evil.wasm\"\nreplaces = \"file\"\n",
    );
    let plugin = &loaded.config.plugins["file"];
    assert_eq!((plugin.path.as_str(), plugin.replaces.as_str()), ("x.wasm", ""));
}
