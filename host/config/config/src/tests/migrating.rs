//! Configurations of other agents.

use toolhold_config_keys::OnReviewDenial;

use super::*;

/// The migration of a text.
#[track_caller]
fn migrated(text: &str) -> Migration {
    let scene = Scene::new();
    let path = scene.write(text);
    let migration = migrate(&scene.folders, &path).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(fs::read_to_string(&path).expect("it exists"), text, "nothing is written");
    scene.load(&migration.after);
    migration
}

/// Whether a key is left out, with a reason that has a part.
#[track_caller]
fn assert_left_out(migration: &Migration, key: &str, part: &str) {
    let found = migration.left_out.iter().any(|(left, why)| left == key && why.contains(part));
    assert!(found, "{key}: {:?}", migration.left_out);
}

const ZEPH: &str = "\
# My agent.

[agent]
max_tool_iterations = 10
max_tool_retries = 3 # patient

[tools]
summarize_output = false
# How far it may go.
autonomy = \"supervised\" # careful

[tools.shell]
# Seconds.
timeout = 45 # long
blocked_commands = [\"terraform\"]
allow_network = false

[tools.scrape]
timeout = 20
max_body_bytes = 2000000

[tools.overflow]
retention_days = 3

[[tools.permissions.bash]]
pattern = \"cargo *\" # builds
action = \"allow\"

[[tools.policy.rules]]
effect = \"deny\"
tool = \"bash\"
trust_level = \"quarantined\"
";

#[test]
fn keys_of_zeph_get_their_places_and_keep_their_comments() {
    let migration = migrated(ZEPH);
    let expected = "\
# My agent.

[agent]
max_turns = 10
summarize_output = false

[tools]
# How far it may go.
autonomy = \"ask\" # careful
# Seconds.
call = 45 # long

[tools.shell]
blocked_commands = [\"terraform\"]
network = \"deny\"

[tools.overflow]
retention_hours = 72

[[tools.permissions.bash]]
pattern = \"cargo *\" # builds
action = \"allow\"

[[tools.policy.rules]]
effect = \"deny\"
tools = [\"bash\"]
trust = \"quarantined\"

[tools.retry]
max_attempts = 3 # patient

[tools.web]
timeout = 20
max_body_kib = 1954
";
    assert_eq!(migration.after, expected);
    assert_eq!(migration.left_out, []);
    let moved = ("tools.shell.timeout".to_owned(), "tools.call".to_owned());
    assert!(migration.moved.contains(&moved), "{:?}", migration.moved);
    let again = migrated(&migration.after);
    assert_eq!((again.after, again.moved.len(), again.left_out.len()), (migration.after, 0, 0));
}

#[test]
fn own_keys_stay_where_the_table_has_foreign_ones() {
    let own = "[agent]\nmax_turns = 7\n\n[agent.tafc]\nenabled = true\n";
    let migration = migrated(own);
    assert_eq!((migration.after.as_str(), migration.left_out.len()), (own, 0));
}

#[test]
fn keys_of_zeroclaw_get_their_places() {
    let migration = migrated(
        "\
[autonomy]
level = \"readonly\"
workspace_only = true
allowed_commands = [\"git\"]
forbidden_paths = [\"/etc\", \"~/.ssh\"]
allowed_roots = [\"/srv/data\"]
block_high_risk_commands = true
auto_approve = [\"file_write\", \"shell\", \"memory_recall\"]
always_ask = [\"shell\"]

[http_request]
allowed_domains = [\"docs.rs\", \"*\"]
timeout_secs = 30

[web_fetch]
allowed_domains = [\"docs.rs\", \"crates.io\"]
timeout_secs = 9
max_response_size = 0
",
    );
    let scene = Scene::new();
    let tools = scene.load(&migration.after).values.tools;
    assert_eq!(tools.autonomy, Autonomy::ReadOnly);
    assert!(tools.shell.block_high_risk_commands);
    let text = &migration.after;
    for line in [
        "only_commands = [\"git\"]",
        "deny_read = [\"~/.ssh\"]",
        "allowed_paths = [\".\", \"/srv/data\"]",
        "allowed_domains = [\"docs.rs\", \"*.docs.rs\", \"crates.io\", \"*.crates.io\"]",
        "timeout = 30\n",
        "max_body_kib = 1048576",
        "write = [{ pattern = \"*\", action = \"allow\" }]",
        "bash = [{ pattern = \"*\", action = \"ask\" }, { pattern = \"*\", action = \"allow\" }]",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("other_domains"), "{text}");
    assert_left_out(&migration, "autonomy.workspace_only", "toolhold allow DIRECTORY");
    assert_left_out(&migration, "autonomy.forbidden_paths", "/etc");
    assert!(text.contains("memory_search = [{ pattern"), "{text}");
    assert_left_out(&migration, "http_request.allowed_domains", "other_domains");
    assert_left_out(&migration, "web_fetch.timeout_secs", "`tools.web.timeout` is also set");
}

/// The keys that the documents of these agents show.
const DOCUMENTED: [&str; 3] = [
    "[agent]
max_tool_iterations = 10
[tools]
enabled = true
summarize_output = false
[tools.shell]
timeout = 30
allowed_paths = []
[tools.file]
allowed_paths = []
[tools.filters]
enabled = true
filters_path = \"\"
[tools.filters.security]
enabled = true
extra_patterns = []
[[tools.permissions.bash]]
pattern = \"*sudo*\"
action = \"deny\"
[[tools.permissions.bash]]
pattern = \"*\"
action = \"ask\"
",
    "[tools.tafc]
enabled = true
complexity_threshold = 0.6
[tools.result_cache]
enabled = true
ttl_secs = 300
[tools.dependencies]
enabled = true
boost_per_dep = 0.15
max_total_boost = 0.2
[tools.dependencies.rules.deploy]
requires = [\"build\", \"test\"]
prefers = [\"lint\"]
[tools.adversarial_policy]
enabled = true
provider = \"fast\"
block_on_reject = true
[tools.file]
allowed_paths = [\"/srv/project\"]
[index]
enabled = true
vector_backend = \"qdrant\"
",
    "[agent]
compress_provider = \"\"
hallucination_detection = false
context_budget_tokens = 8000
[agent.tool_filter]
enabled = false
top_k = 10
min_description_words = 3
always_on = [\"memory_search\", \"memory_save\", \"load_skill\", \"scheduler\"]
[scheduler]
enabled = true
max_tasks = 20
[tools]
max_tool_calls_per_session = 100
[tools.file]
deny_read = [\"**/.env\", \"**/secrets/**\", \"**/.git/config\"]
allow_read = []
[tools.tafc]
enabled = false
[tools.dependencies]
enabled = false
rules = {}
[tools.retry]
max_attempts = 2
base_ms = 500
max_ms = 5000
budget_secs = 30
parameter_reformat_provider = \"\"
[tools.shell]
transactional = false
transaction_scope = [\"**\"]
auto_rollback = false
auto_rollback_exit_codes = [1, 2]
snapshot_required = false
max_snapshot_bytes = 0
[tools.utility]
enabled = false
threshold = 0.0
[tools.adversarial_policy]
enabled = false
fail_open = false
policies = []
exempt_tools = [\"memory_save\", \"memory_search\", \"read_overflow\", \"load_skill\"]
[tools.authorization]
enabled = false
",
];

#[test]
fn documented_configurations_load_and_say_what_they_leave_out() {
    let left = |text: &str| -> Vec<String> {
        migrated(text).left_out.into_iter().map(|(key, _)| key).collect()
    };
    let [first, second, third] = DOCUMENTED;
    assert_eq!(left(first), Vec::<String>::new());
    assert_eq!(
        left(second),
        [
            "tools.adversarial_policy.provider",
            "index.vector_backend",
            "tools.adversarial_policy.enabled"
        ]
    );
    assert_eq!(left(third), ["agent.context_budget_tokens"]);
    let config = Scene::new().load(&migrated(second).after).values;
    assert_eq!(config.tools.adversarial_policy.on_deny, OnReviewDenial::Deny);
    let config = Scene::new().load(&migrated(third).after).values;
    assert!(config.tools.scheduler.enabled);
}

#[test]
fn value_that_is_wrong_here_is_left_out_with_its_reason() {
    let migration = migrated(
        "\
tools.call = 0
[tools.shell]
blocked_commands = [\"ok\", 3, \"fine\", 4]
[[tools.policy.rules]]
effect = \"deny\"
tools = [\"bash\"]
[[tools.policy.rules]]
effect = \"deny\"
capabilities = [\"x\"]
[unknown]
key = 1
",
    );
    assert!(migration.after.contains("[\"ok\", \"fine\"]"), "{}", migration.after);
    assert!(!migration.after.contains("capabilities"), "{}", migration.after);
    assert!(migration.after.contains("tools = [\"bash\"]"), "{}", migration.after);
    assert_left_out(&migration, "tools.call", "from 1 to 86400");
    let rule = "tools.policy.rules, { capabilities = [\"x\"], effect = \"deny\" }";
    assert_left_out(&migration, rule, "capabilities");
    assert_left_out(&migration, "unknown.key", "");
}

#[test]
fn rules_that_did_not_count_are_left_out() {
    let migration = migrated(
        "[tools.policy]\nenabled = false\n[[tools.policy.rules]]\neffect = \"allow\"\ntool = \"x\"\n",
    );
    assert_eq!(migration.after, "");
    assert_left_out(&migration, "tools.policy.rules", "did not apply");
}

#[test]
fn file_that_is_no_configuration_is_refused() {
    let scene = Scene::new();
    for text in ["[tools\n", "a = 1\na = 2\n"] {
        let path = scene.write(text);
        migrate(&scene.folders, &path).expect_err(text);
    }
    let missing = scene.work.join("none.toml");
    let wrong = migrate(&scene.folders, &missing).expect_err("it is missing").to_string();
    assert!(wrong.contains("the file doesn't exist"), "{wrong}");
}

#[test]
fn many_wrong_values_take_no_long_time() {
    let keys: Vec<String> = (0..4000).map(|key| format!("k{key} = {key}\n")).collect();
    let begun = std::time::Instant::now();
    let migration = migrated(&format!("[tools.shell]\n{}", keys.concat()));
    assert_eq!((migration.after.trim(), migration.left_out.len()), ("", 4000));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn foreign_key_is_told_with_the_line_to_write() {
    let scene = Scene::new();
    scene.assert_refused(
        "[tools.shell]\ntimeout = 30\n",
        &["toolhold.toml:2: unknown key `tools.shell.timeout`; Toolhold has another key for this: \
           write `call = 30` in [tools]"],
    );
    scene.assert_refused(
        "[autonomy]\nlevel = \"full\"\nworkspace_only = true\n",
        &[
            "toolhold.toml:2: unknown key `autonomy.level`; Toolhold has another key for this: \
             write `autonomy = \"ask\"` in [tools]",
            "toolhold.toml:3: unknown key `autonomy.workspace_only`; tools reach only the directories",
        ],
    );
    scene.assert_refused(
        "[[tools.policy.rules]]\neffect = \"deny\"\ntool = \"bash\"\n",
        &["did you mean `tools`?"],
    );
}

#[test]
fn every_line_instead_sets_an_existing_key() {
    let path = |key: &str| key.split('.').map(str::to_owned).collect::<Vec<_>>();
    for instead in crate::migration::keys_instead() {
        assert!(keys::rule(&path(instead.old)).is_none(), "{} is a key", instead.old);
        let Some((new, line)) = instead.new else { continue };
        assert!(keys::known().iter().any(|key| key.path == path(new)), "{new} isn't a key");
        let (table, name) = new.rsplit_once('.').expect("it is in a table");
        assert!(line.starts_with(&format!("{name} = ")), "{line} sets another key");
        // A line may name a provider.
        Scene::new().load(&format!("[{table}]\n{line}\n[providers.small]\nmodel = \"m\"\n"));
    }
}
