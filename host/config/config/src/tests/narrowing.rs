//! Which values count in the working directory's file, which is untrusted.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::attempts::{USER, attempt, keys};
use super::*;

#[test]
fn no_key_widens_and_each_attempt_is_reported() {
    let scene = Scene::new();
    for key in keys() {
        let Some(attempt) = attempt(&key) else { continue };
        let loaded = scene.load_with(USER, attempt);
        assert_eq!(loaded.values, scene.load(USER).values, "{attempt}");
        let project = loaded.project.as_ref().expect("it was read");
        let [ignored] = project.ignored() else { panic!("{attempt}: {project:?}") };
        let parts = ignored.key.split('.').map(|part| match part {
            "known" | "other" | "cargo" | "rust" => "*",
            part => part,
        });
        let ignored_key = parts.collect::<Vec<_>>().join(".");
        assert_eq!((project.standing, ignored_key), (ProjectTrust::Narrows, key), "{attempt}");
        assert_eq!(
            ignored.source,
            Source::File { path: scene.work.join("toolhold.toml"), line: 1 }
        );
    }
}

#[test]
fn project_removes_nothing_that_others_keep() {
    for key in ["agent.keep_days", "tools.overflow.retention_hours", "tools.overflow.max_mib"] {
        let (table, name) = key.rsplit_once('.').expect("it is in a table");
        let scene = Scene::new();
        let project = format!("[{table}]\n{name} = 1\n");
        let loaded = scene.load_with(USER, &project);
        assert_eq!(loaded.values, scene.load(USER).values, "{key}");
        let read = loaded.project.expect("it was read");
        assert!(read.ignored()[0].reasons[0].contains("other directories"), "{:?}", read.ignored());
    }
}

#[test]
fn project_writes_no_policy_and_starts_no_review() {
    let policies = "tools.adversarial_policy.policies = [\"Allow all.\"]";
    for (user, project) in
        [(USER, policies), ("", policies), ("", "tools.adversarial_policy.enabled = true")]
    {
        let scene = Scene::new();
        let loaded = scene.load_with(user, project);
        assert_eq!(loaded.values, scene.load(user).values, "{project}");
        assert_eq!(loaded.project.expect("it was read").ignored().len(), 1, "{project}");
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
    assert_eq!(loaded.values, scene.load(USER).values);
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
    let automatic = toolhold_system::machine::automatic_concurrency();
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
        &["an empty list would allow everything, so it isn't used"],
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
    // A link isn't followed: whoever exchanges it would choose.
    check(
        "",
        "tools.file.allowed_paths = [\"way-out\"]",
        key,
        default,
        &["\"way-out\", which is @/own-home/other, leads through a link"],
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
        &["\"vendor\" is granted only for reading"],
    );
    check(
        user,
        "tools.file.allowed_paths = [\"vendor\"]",
        key,
        json!([read("@/work/vendor")]),
        &["\"vendor\" is granted only for reading"],
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
        &["\"~\" isn't in a granted directory", "\".\" is granted only for reading"],
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
    let everywhere = |loaded: &Config| -> Vec<(bool, bool)> {
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
            fs::write(scene.work.join("toolhold.toml"), list(project))
                .expect("the file is written");
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
        assert_eq!(loaded.values, ConfigValues::default(), "{table}");
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
    let plugin = &loaded.values.plugins["file"];
    assert_eq!((plugin.path.as_str(), plugin.replaces.as_str()), ("x.wasm", ""));
}

#[test]
fn settings_of_plugins_are_the_operators_own() {
    let user = "[plugins.x.config]\nserver = \"a\"\n[plugins.x.config.deep.er]\nrows = 1\n";
    let own = "only your own configuration can set this key";
    let deep = "plugins.x.config.deep.er.rows";
    check(user, "plugins.x.config.server = \"b\"", "plugins.x.config.server", json!("a"), &[own]);
    check(user, "plugins.x.config.new = 1", "plugins.x.config.new", Value::Null, &[own]);
    check(user, "plugins.x.config.deep.er.rows = 2", deep, json!(1), &[own]);
    check(user, "plugins.x.config.deep.er = {}", deep, json!(1), &[]);
    let scene = Scene::new();
    let loaded = scene.load_with(user, "plugins.x.config.server = \"b\"");
    let config = loaded.plugin_config("x").expect("it is valid");
    assert_eq!(Value::Object(config), json!({ "server": "a", "deep": { "er": { "rows": 1 } } }));
    assert_eq!(loaded.plugin_config("y").expect("there is none").len(), 0);
}

#[test]
fn settings_of_plugins_are_bounded() {
    let scene = Scene::new();
    let refused = |user: &str| {
        let loaded = scene.load(user);
        let problem = loaded.plugin_config("x").expect_err("it is refused").to_string();
        assert!(
            problem.contains("toolhold.toml") && problem.contains("plugins.x.config"),
            "{problem}"
        );
        problem
    };
    let long = "x".repeat(64 * 1024);
    let problem = refused(&format!("[plugins.x.config]\nkey = \"{long}\"\n"));
    assert!(problem.contains("the limit is 65536") && problem.len() < 1000, "{problem}");
    let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
    assert!(refused(&format!("[plugins.x.config]\nkey = {deep}\n")).contains("32 levels"));
    assert!(refused("[plugins.x.config]\nkey = inf\n").contains("JSON doesn't have"));
}
