//! Keys that were renamed.

use super::*;

#[test]
fn old_name_counts_as_the_new_one_with_a_notice() {
    let scene = Scene::new();
    let loaded = scene.load("[agent]\nmax_tool_retries = 4\nmax_retry_duration_secs = 7\n");
    let retry = loaded.values.tools.retry;
    assert_eq!((retry.max_attempts.get(), retry.budget_secs.get()), (4, 7));
    let mut notices: Vec<String> = loaded.renamed.iter().map(ToString::to_string).collect();
    notices.sort();
    let path = scene.folders.config_file();
    let expected = [
        format!(
            "{}:2: `agent.max_tool_retries` was renamed to `tools.retry.max_attempts`; the old \
             name still works",
            path.display()
        ),
        format!(
            "{}:3: `agent.max_retry_duration_secs` was renamed to `tools.retry.budget_secs`; the \
             old name still works",
            path.display()
        ),
    ];
    assert_eq!(notices, expected);
    assert_eq!(loaded.source("tools.retry.max_attempts"), Source::File { path, line: 2 });
    assert_eq!(scene.load("[tools.retry]\nmax_attempts = 4").renamed, []);
}

#[test]
fn old_name_has_the_bounds_of_the_new_one() {
    let scene = Scene::new();
    let message = "/toolhold.toml:2: `tools.retry.max_attempts`: invalid value: integer `11`, expected a whole number from 0 to 10";
    scene.assert_problems(
        "[agent]\nmax_tool_retries = 11",
        &[message, "  2 | max_tool_retries = 11"],
    );
    scene.write("");
    let narrowed = scene.load_with("", "[agent]\nmax_tool_retries = 3\n");
    assert_eq!(narrowed.values.tools.retry.max_attempts.get(), 2);
    let narrowed = scene.load_with("", "[agent]\nmax_tool_retries = 1\n");
    assert_eq!((narrowed.values.tools.retry.max_attempts.get(), narrowed.renamed.len()), (1, 1));
}

#[test]
fn both_names_in_one_file_are_refused() {
    let scene = Scene::new();
    scene.write("[agent]\nmax_tool_retries = 1\n[tools.retry]\nmax_attempts = 2\n");
    let problems =
        load(&scene.folders, &Inputs::default()).expect_err("the key is set twice").to_string();
    assert!(
        problems.contains(
            "toolhold.toml:2: `agent.max_tool_retries` was renamed to `tools.retry.max_attempts`"
        ),
        "{problems}"
    );
    assert!(problems.contains("toolhold.toml:4)"), "{problems}");
}

#[test]
fn flag_wins_over_the_file_by_either_name() {
    let scene = Scene::new();
    scene.write("[tools.retry]\nmax_attempts = 2\n");
    let loaded =
        load(&scene.folders, &inputs(&[], &["agent.max_tool_retries=1"])).expect("it is valid");
    assert_eq!((loaded.values.tools.retry.max_attempts.get(), loaded.renamed.len()), (1, 1));
}

#[test]
fn any_limit_is_narrower_than_no_limit() {
    let scene = Scene::new();
    let loaded =
        scene.load_with("tools.result_cache.ttl_secs = 0", "tools.result_cache.ttl_secs = 5");
    assert_eq!(
        (
            loaded.values.tools.result_cache.ttl_secs.get(),
            loaded.project.expect("it was read").ignored().len()
        ),
        (5, 0)
    );
}

#[test]
fn network_can_be_set_by_either_name_but_not_by_both() {
    let scene = Scene::new();
    for (text, expected) in [
        ("allow_network = true", NetworkGrant::Allow),
        ("allow_network = false", NetworkGrant::Deny),
        ("", NetworkGrant::Ask),
    ] {
        assert_eq!(
            scene.load(&format!("[tools.shell]\n{text}\n")).values.tools.shell.network,
            expected,
            "{text}"
        );
    }
    scene.assert_refused(
        "[tools.shell]\nallow_network = \"yes\"",
        &["toolhold.toml:2: `tools.shell.allow_network` takes `true` or `false`"],
    );
    scene.assert_refused(
        "[tools.shell]\nallow_network = true\nnetwork = \"deny\"",
        &["toolhold.toml:3)", "keep only"],
    );
    let result = load(&scene.folders, &inputs(&[], &["tools.shell.allow_network=maybe"]))
        .map(|loaded| loaded.values.tools.shell.network);
    assert!(result.is_err(), "{result:?}");
    scene.write("");
    let set = load(&scene.folders, &inputs(&[], &["tools.shell.allow_network=true"]))
        .expect("it is valid");
    assert_eq!(set.values.tools.shell.network, NetworkGrant::Allow);
    // By either name, an untrusted file only narrows.
    let narrowed = scene.load_with("", "tools.shell.allow_network = true");
    assert_eq!(narrowed.values.tools.shell.network, NetworkGrant::Ask);
    let narrowed = scene.load_with("", "tools.shell.allow_network = false");
    assert_eq!(narrowed.values.tools.shell.network, NetworkGrant::Deny);
}

#[test]
fn removed_keys_name_what_is_written_instead() {
    let scene = Scene::new();
    let secret_tool = "command = [\"secret-tool\", \"lookup\", \"service\", \"SERVICE\", \"account\", \"ACCOUNT\"]";
    for (key, successor) in [
        ("agent.text_tools = 'lenient'", "write `lenient_models = [\"*\"]` for \"lenient\""),
        ("plugins.a.store_keys = 5", "the limit follows from `store_mib`"),
        ("plugins.a.index_documents = 5", "the limit follows from `index_mib`"),
        ("tools.memory.index_documents = 5", "the limit follows from `index_mib`"),
        ("tools.result_cache.max_entries = 5", "the limit is `max_mib`"),
        ("tools.web.job_servers = true", "add \"job\" to `allowed_domains` in [tools.web]"),
        ("tools.web.secrets.a.keyring = { service = 'one', account = 'two' }", secret_tool),
        ("providers.a.secrets.b.keyring.service = 'one'", secret_tool),
        ("providers.a.secrets.b.hosts = ['a.example']", "only to `base_url` of [providers.a]"),
        ("telemetry.secrets.b.methods = ['POST']", "only to `endpoint` of [telemetry]"),
        ("index.qdrant.secrets.b.paths = ['/v1']", "only to `url` of [index.qdrant]"),
        ("mcp.servers.a.secrets.b.query = 'key'", "only to the server of [mcp.servers.a]"),
        (
            "mcp.servers.a.oauth.secrets.b.hosts = []",
            "only to the authorization server of [mcp.servers.a]",
        ),
    ] {
        scene.assert_refused(key, &["toolhold.toml:1: `", "` was removed: ", successor]);
    }
}

#[test]
fn unknown_checker_and_language_are_answered_with_the_known_ones() {
    let scene = Scene::new();
    scene.assert_refused(
        "tools.diagnostics.arguments.clippy = []",
        &["unknown variant `clippy`, expected one of `cargo`, `tsc`, `eslint`, `ruff`"],
    );
    scene.assert_refused(
        "tools.code.lsp.servers.rus = []",
        &["unknown variant `rus`, expected one of `c`, `go`, `python`, `rust`, `typescript`"],
    );
    let loaded = scene.load("tools.code.lsp.servers.python = ['pylsp']\n");
    let servers = serde_json::to_value(&loaded.values.tools.code.lsp.servers).expect("it is JSON");
    assert_eq!(servers["python"], serde_json::json!(["pylsp"]));
    assert_eq!(servers["rust"], serde_json::json!(["rust-analyzer"]));
}
