//! What a ceiling takes away. It never grants anything.

use std::fmt::Display;

use serde_json::{Value, json};

use toolhold_component::Capability;
use toolhold_config_keys::Narrowing;

use super::super::keys::rule;
use super::super::keys::{Key, known};
use super::attempts::{USER, attempt, keys};
use super::*;

impl Scene {
    fn ceiling(&self, text: &str) -> PathBuf {
        let path = self.work.parent().expect("it has a parent").join("ceiling.toml");
        fs::write(&path, text).expect("the file is written");
        path
    }

    /// Loads a user's configuration with a ceiling.
    fn load_under(&self, ceiling: &str, user: &str, settings: &[&str]) -> Result<Config, Problems> {
        self.write(user);
        let ceiling = self.ceiling(ceiling);
        let more =
            inputs(&[("TOOLHOLD_CEILING", ceiling.to_str().expect("its name is UTF-8"))], settings);
        load(&self.folders, &Inputs { working_directory: Some(self.work.clone()), ..more })
    }

    /// The configuration with real paths of directories.
    fn normalized(&self, loaded: &Config) -> ConfigValues {
        let mut config = loaded.values.clone();
        let plugins = config.plugins.values_mut().map(|plugin| &mut plugin.allowed_paths);
        let tools = &mut config.tools;
        for allowed in
            plugins.chain([&mut tools.file.allowed_paths, &mut tools.shell.allowed_paths]).flatten()
        {
            let path = super::super::resolved::expand(&allowed.path, &self.work, &self.folders);
            allowed.path = path.canonicalize().expect("it exists").display().to_string();
        }
        config
    }
}

/// For each key: a wide value of the operator, a narrower value of a ceiling, and the value that
/// holds then. `None` if values can't be compared, so that a ceiling can't have the key.
pub(super) fn bound(key: &Key) -> Option<(String, String, Value)> {
    let path = key.path.join(".");
    let plain = |wide: &dyn Display, less: &str| {
        let held = serde_json::from_str(less).expect("TOML and JSON agree on plain values");
        Some((wide.to_string(), less.to_owned(), held))
    };
    let rule = match rule(&key.path).expect("every key has a rule") {
        Narrowing::InCeiling(rule) => *rule,
        rule => rule,
    };
    match rule {
        Narrowing::Ignored => return None,
        Narrowing::OnlyFalse => return plain(&true, "false"),
        Narrowing::OnlyTrue => return plain(&false, "true"),
        Narrowing::OnlyEmpty => return plain(&"\"known\"", "\"\""),
        Narrowing::Approve => return plain(&"\"trust\"", "\"approve\""),
        Narrowing::Stricter(words) => {
            return plain(&format!("{:?}", words[words.len() - 1]), &format!("{:?}", words[0]));
        }
        Narrowing::SmallerOrUnbounded if path == "agent.max_cost" => return plain(&0, "0.5"),
        Narrowing::SmallerOrAutomatic | Narrowing::SmallerOrUnbounded => return plain(&0, "1"),
        Narrowing::Smaller => {
            let least = least(&path);
            return plain(&(least + 1), &least.to_string());
        }
        _ => {}
    }
    let (wide, less, held) = match path.as_str() {
        "tools.permissions.*" => (
            "[{ pattern = \"a\", action = \"allow\" }]",
            "[{ pattern = \"b\", action = \"deny\" }, { pattern = \"c\", action = \"allow\" }]",
            json!([{ "pattern": "b", "action": "deny" }, { "pattern": "a", "action": "allow" }]),
        ),
        "tools.authorization.rules" => return None,
        "tools.shell.blocked_commands"
        | "tools.shell.confirm_patterns"
        | "tools.adversarial_policy.policies"
        | "tools.filters.security.extra_patterns" => ("[\"a\"]", "[\"b\"]", json!(["a", "b"])),
        "tools.adversarial_policy.exempt_tools" => {
            ("[\"read\", \"grep\"]", "[\"grep\", \"bash\"]", json!(["grep"]))
        }
        "tools.shell.allowed_commands" => {
            ("[\"sudo\", \"curl\"]", "[\"curl\", \"wget\"]", json!(["curl"]))
        }
        "tools.shell.only_commands" => ("[\"git\", \"ls\"]", "[\"ls\", \"cat\"]", json!(["ls"])),
        "mcp.servers.*.tools" => ("[\"a\", \"b*\"]", "[\"b*\", \"c\"]", json!(["b*"])),
        "tools.diagnostics.checkers" => ("[\"cargo\", \"go\"]", "[\"tsc\", \"go\"]", json!(["go"])),
        "tools.shell.presets" | "mcp.servers.*.presets" => {
            ("[\"cargo\", \"git\"]", "[\"npm\", \"git\"]", json!(["git"]))
        }
        "tools.shell.sockets" => {
            ("[\"run/a\", \"run/b\"]", "[\"run/b\", \"run/c\"]", json!(["run/b"]))
        }
        "tools.shell.env" | "plugins.*.env" | "mcp.servers.*.env" => {
            ("[\"A\", \"B\"]", "[\"B\", \"C\"]", json!(["B"]))
        }
        "tools.web.allowed_domains"
        | "tools.shell.hosts"
        | "plugins.*.hosts"
        | "mcp.servers.*.hosts" => (
            // Of a wider and a narrower entry, the narrower one is left.
            "[\"a.example\", \"job\", { host = \"b.example\", methods = [\"GET\"] }, \"wiki.corp.example\", \"*.d.example\", \"http://e.corp.example\"]",
            "[{ host = \"b.example\", methods = [\"GET\"] }, \"c.example\", \"*.corp.example\", \"x.d.example\"]",
            json!([{ "host": "b.example", "methods": ["GET"] }, "wiki.corp.example", "x.d.example"]),
        ),
        "tools.web.denied_domains" => {
            ("[\"a.example\"]", "[\"b.example\"]", json!(["a.example", "b.example"]))
        }
        "tools.web.credentials_to" | "plugins.*.credentials_to" => (
            "[\"a.example\", \"x.b.example\"]",
            "[\"*.b.example\", \"c.example\"]",
            json!(["x.b.example"]),
        ),
        "tools.web.allowed_private_hosts" | "plugins.*.allowed_private_hosts" => (
            "[\"localhost:1\", \"nas.lan\", \"10.0.0.0/8\"]",
            "[\"10.1.0.0/16\", \"localhost\"]",
            json!(["localhost:1", "10.1.0.0/16"]),
        ),
        "agent.lenient_models" => ("[\"a/x\", \"a/y\"]", "[\"a/y\", \"b/z\"]", json!(["a/y"])),
        "plugins.*.programs" => ("[\"git **\", \"make\"]", "[\"make\", \"sh\"]", json!(["make"])),
        "tools.file.allowed_paths" | "tools.shell.allowed_paths" => {
            ("[\"/\"]", "[\"~/notes\"]", json!(["@/own-home/notes"]))
        }
        "tools.file.deny_read" => ("[\"a\"]", "[\"b\"]", json!(["a", "b"])),
        "tools.file.allow_read" => ("[\"a\", \"b\"]", "[\"b\", \"c\"]", json!(["b"])),
        "tools.file.deny_write" => ("[]", "[\".git/**\"]", json!([".git/**"])),
        "plugins.*.allowed_paths" | "mcp.servers.*.allowed_paths" => ("[\"/\"]", "[]", json!([])),
        "installing.sources" => (
            "[\"oci://r.example/a/*\", \"https://b.example/x.wasm\"]",
            "[\"oci://r.example/a/b/*\", \"https://c.example/*\"]",
            json!(["oci://r.example/a/b/*"]),
        ),
        "installing.allowed" => (
            "[{ plugins = [\"acme-*\"] }, { plugins = [\"word\"] }]",
            "[{ plugins = [\"acme-notes\"] }, { plugins = [\"evil\"] }]",
            json!([{ "plugins": ["acme-notes"] }]),
        ),
        // A key that the ceiling revokes stays, as revoked, so that errors can say so.
        "installing.keys" => {
            let key = "RWQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
            let list = |more: &str| format!("[{{ name = \"a\", key = \"{key}\", {more} }}]");
            let held = json!([{ "name": "a", "key": key, "plugins": [], "revoked": true }]);
            return Some((list("plugins = [\"*\"]"), list("revoked = true"), held));
        }
        other => panic!("`{other}` needs values for this test"),
    };
    Some((wide.to_owned(), less.to_owned(), held))
}

/// The description of the values that a key takes.
fn takes(path: &str) -> String {
    let (table, name) = path.rsplit_once('.').expect("the key is in a table");
    let tables = describe();
    let table = tables
        .iter()
        .find(|known| known.path == table.replace('*', "NAME"))
        .expect("every table is described");
    table.keys.iter().find(|key| key.name == name).expect("every key is described").takes.clone()
}

/// The smallest number that a key takes.
fn least(path: &str) -> u64 {
    let takes = takes(path);
    let (_, range) = takes.split_once("from ").expect("it takes a number");
    range.split(' ').next().expect("the range isn't empty").parse().expect("it is a number")
}

#[test]
fn every_key_is_bounded_or_refused_in_a_ceiling() {
    let scene = Scene::new();
    let root = scene.work.parent().expect("it has a parent").display().to_string();
    // `[tools.policy]` is left out: the rules of a ceiling are a gate of their own.
    for key in known().iter().filter(|key| {
        !key.table && !key.in_list && !key.path.ends_with(&["policy".into(), "rules".into()])
    }) {
        // No server has the name of a plugin.
        let name = key.path.join(".").replace("servers.*", "servers.other").replace('*', "known");
        let Some((wide, text, expected)) = bound(key) else {
            let problems = scene
                .load_under(attempt(&key.path.join(".")).expect("it widens"), USER, &[])
                .expect_err("a ceiling can't limit this key")
                .to_string();
            assert!(
                problems.contains("ceiling.toml:1: ")
                    && problems.contains("a ceiling can't limit this key"),
                "{problems}"
            );
            continue;
        };
        // Neither the operator's file nor a flag, which comes later, exceeds the ceiling.
        for (user, settings) in [
            (
                format!("plugins.known = {{}}\nproviders.known.model = \"m\"\n{name} = {wide}\n"),
                Vec::new(),
            ),
            (USER.to_owned(), vec![format!("{name}={wide}")]),
        ] {
            let user = if name.starts_with("plugins.") {
                user.replace("plugins.known = {}\n", "")
            } else if name == "index.vector_backend" {
                let url = "qdrant.url = \"http://localhost:1\"\n";
                match user.split_once("[index]\n") {
                    Some((before, after)) => format!("{before}[index]\n{url}{after}"),
                    None => format!("index.{url}{user}"),
                }
            } else {
                user
            };
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            let loaded = scene
                .load_under(&format!("{name} = {text}"), &user, &settings)
                .unwrap_or_else(|problems| panic!("{name}: {problems}"));
            let entry = loaded
                .entries()
                .into_iter()
                .find(|entry| entry.key == name)
                .unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(
                entry.value.to_string().replace(&root, "@"),
                expected.to_string(),
                "{name}: {user}"
            );
            let taken = loaded.ceilings[0]
                .taken
                .iter()
                .find(|taken| taken.key == name)
                .unwrap_or_else(|| panic!("{name}: {loaded:?}"));
            assert_eq!(
                taken.source,
                Source::File { path: loaded.ceilings[0].path.clone(), line: 1 }
            );
        }
    }
}

#[test]
fn ceiling_that_names_a_model_for_vectors_allows_no_other() {
    let scene = Scene::new();
    let models = "providers.corp.model = \"m\"\nproviders.other.model = \"m\"\n";
    for (wanted, held) in [("corp", "corp"), ("other", ""), ("", "")] {
        let user = format!("{models}tools.memory.embeddings = \"{wanted}\"\n");
        let loaded = scene
            .load_under("tools.memory.embeddings = \"corp\"", &user, &[])
            .expect("it is valid");
        assert_eq!(loaded.values.tools.memory.embeddings, held, "{wanted}");
    }
}

#[test]
fn keys_of_capabilities_are_keys_of_plugins() {
    for key in Capability::ALL.iter().flat_map(|capability| capability.facts().keys) {
        assert!(Plugin::RULES.iter().any(|(known, _)| known == key), "{key}");
    }
}

#[test]
fn ceiling_has_no_settings_of_plugins() {
    let scene = Scene::new();
    let user = "plugins.known.config.server = \"a\"";
    let ceiling = "plugins.known.config.server = \"b\"";
    let problems = scene.load_under(ceiling, user, &[]).expect_err("it can't bound it").to_string();
    assert!(problems.contains("a ceiling can't limit this key"), "{problems}");
    let loaded = scene.load_under("tools.call = 5", user, &[]).expect("it is valid");
    let config = loaded.plugin_config("known").expect("it is valid");
    assert_eq!(Value::Object(config), json!({ "server": "a" }));
}

#[test]
fn ceiling_never_allows_more() {
    let scene = Scene::new();
    let alone = scene.normalized(&scene.load(USER));
    // Values that would widen have no effect in a ceiling.
    for key in keys() {
        let Some(attempt) = attempt(&key) else { continue };
        match scene.load_under(attempt, USER, &[]) {
            // The two lists have no directory in common.
            Ok(loaded) if key == "plugins.*.allowed_paths" => {
                assert!(loaded.values.plugins["known"].allowed_paths.is_empty(), "{attempt}");
            }
            Ok(loaded) if key == "mcp.servers.*.allowed_paths" => {
                assert!(loaded.values.mcp.servers["other"].allowed_paths.is_empty(), "{attempt}");
            }
            Ok(loaded) => assert_eq!(scene.normalized(&loaded), alone, "{attempt}"),
            Err(problems) => assert!(
                problems.to_string().contains("a ceiling can't limit this key"),
                "{attempt}: {problems}"
            ),
        }
    }
    let empty = scene.load_under("", USER, &[]).expect("an empty ceiling bounds nothing");
    assert_eq!((empty.values, empty.ceilings[0].taken.len()), (scene.load(USER).values, 0));
}

#[test]
fn flags_and_trusted_files_stay_below_the_ceiling() {
    let scene = Scene::new();
    let home = scene.folders.home.clone().expect("there is a home");
    scene.write("");
    fs::write(
        scene.work.join("toolhold.toml"),
        "tools.file.allowed_paths = [\"~\"]\ntools.call = 600\n",
    )
    .expect("the file is written");
    let path = scene.ceiling("tools.file.allowed_paths = [\".\"]\ntools.call = 60\n");
    let all = Inputs {
        working_directory: Some(scene.work.clone()),
        allow: vec![("/".into(), PathAccess::ReadWrite), (home.clone(), PathAccess::Read)],
        ..inputs(
            &[("TOOLHOLD_CEILING", path.to_str().expect("UTF-8")), ("TOOLHOLD_TOOLS_CALL", "300")],
            &["tools.max_call=3000"],
        )
    };
    let loaded = load(&scene.folders, &all).expect("it is valid");
    loaded.project.as_ref().expect("it was read").trust(&scene.folders).expect("it is trusted");
    let loaded = load(&scene.folders, &all).expect("it is valid");
    assert_eq!(loaded.project.as_ref().expect("it was read").standing, ProjectTrust::Trusted);
    assert_eq!(loaded.values.tools.call.get(), 60);
    let grants =
        loaded.built_in_files(&scene.folders, &scene.work).expect("all directories exist").grants;
    assert_eq!(grants.iter().map(|grant| &grant.path).collect::<Vec<_>>(), [&scene.work]);
}

#[test]
fn lists_with_nothing_in_common_leave_nothing() {
    let scene = Scene::new();
    let user = "[tools.file]\nallowed_paths = [\".\"]\n[plugins.x]\nallowed_paths = [\".\"]\n";
    let loaded = scene
        .load_under("tools.file.allowed_paths = [\"~/notes\"]", user, &[])
        .expect("it is valid");
    assert!(
        !loaded.values.tools.file.enabled && loaded.values.plugins["x"].allowed_paths.is_empty(),
        "{:?}",
        loaded.values
    );
    assert!(
        loaded
            .built_in_files(&scene.folders, &scene.work)
            .expect("nothing is granted")
            .grants
            .is_empty()
    );
    let taken: Vec<&str> =
        loaded.ceilings[0].taken.iter().map(|taken| taken.key.as_str()).collect();
    assert_eq!(
        taken,
        ["tools.file.allowed_paths", "tools.shell.allowed_paths", "plugins.x.allowed_paths"]
    );
    assert!(!loaded.values.tools.shell.enabled);
    let shell = loaded.processes_of_shell(&scene.folders, &scene.work).expect("nothing is granted");
    assert!(!shell.shell && shell.files.grants.is_empty());
    let rule = |ceiling: &str| {
        scene.load_under(ceiling, user, &[]).expect("it is valid").switches().providers["file"]
            .rule
            .clone()
    };
    assert_eq!(
        rule("tools.file.allowed_paths = [\"~/notes\"]"),
        "allowed_paths: the ceiling leaves no directory"
    );
    assert_eq!(rule("tools.file.enabled = false"), "enabled = false");
    // If the ceiling has a list for the shell, that list bounds the shell.
    let both = "tools.file.allowed_paths = [\"~/notes\"]\ntools.shell.allowed_paths = [\".\"]\n";
    assert!(scene.load_under(both, user, &[]).expect("it is valid").values.tools.shell.enabled);
    assert!(
        loaded.place("tools.file.enabled").contains("ceiling.toml, line 1"),
        "{}",
        loaded.place("tools.file.enabled")
    );
    // Globs have no intersection, so the ceiling is an error and the operator's list doesn't count.
    let problems = scene
        .load_under(
            "tools.file.allow_read = [\"*.rs\"]",
            "tools.file.allow_read = [\"src/**\"]",
            &[],
        )
        .expect_err("no glob is left");
    assert!(problems.to_string().contains("no file could be read"), "{problems}");
}

#[test]
fn bound_for_all_tools_also_bounds_plugins_with_own_values() {
    let scene = Scene::new();
    let ceiling = "[tools]\nlimits.memory_mib = 64\nfile.allowed_paths = [\"~/notes\"]\n[plugin_folder]\nreload = \"approve\"\n";
    let user = "[plugins.x]\nreload = \"trust\"\nlimits.memory_mib = 512\nallowed_paths = [\"~\"]\n[plugins.y]\n";
    let loaded = scene.load_under(ceiling, user, &[]).expect("it is valid");
    assert_eq!(
        (loaded.plugin_limits("x").memory_mib.get(), loaded.plugin_limits("y").memory_mib.get()),
        (64, 64)
    );
    assert_eq!((loaded.reload("x"), loaded.reload("y")), (Reload::Approve, Reload::Approve));
    let notes = scene.folders.home.as_ref().expect("there is a home").join("notes");
    assert_eq!(
        loaded.values.plugins["x"].allowed_paths,
        [allowed(notes.to_str().expect("UTF-8"), PathAccess::ReadWrite)]
    );
    // A plugin without a table may be in the plugin folder.
    let loaded =
        scene.load_under("plugins.z.limits.memory_mib = 32", "", &[]).expect("it is valid");
    assert_eq!(loaded.plugin_limits("z").memory_mib.get(), 32);
}

#[test]
fn inputs_from_environment_have_the_organisation_ceiling() {
    let inputs = Inputs::from_environment().expect("there is a working directory");
    assert_eq!(inputs.ceiling.as_deref(), Some(Path::new("/etc/toolhold/ceiling.toml")));
}

#[test]
fn two_ceilings_both_bound() {
    let scene = Scene::new();
    scene.write("tools.call = 100\ntools.max_call = 1000\n");
    let system = scene.ceiling("tools.call = 40\ntools.max_call = 50\n");
    let other = scene.work.join("other.toml");
    fs::write(&other, "tools.call = 60\ntools.max_call = 20\n").expect("the file is written");
    let both = Inputs {
        ceiling: Some(system),
        ..inputs(&[("TOOLHOLD_CEILING", other.to_str().expect("UTF-8"))], &[])
    };
    match load(&scene.folders, &both) {
        Ok(loaded) => {
            assert_eq!(
                (loaded.values.tools.call.get(), loaded.values.tools.max_call.get()),
                (40, 20)
            );
            assert_eq!(loaded.source("tools.max_call"), Source::File { path: other, line: 2 });
        }
        // Only a file that belongs to root is trusted as the organisation's ceiling.
        Err(problems) => assert!(
            !rustix::process::geteuid().is_root()
                && problems.to_string().contains("only files of root"),
            "{problems}"
        ),
    }
}

#[test]
fn untrusted_or_invalid_ceiling_ends_the_start() {
    let scene = Scene::new();
    scene.write("");
    let path = scene.ceiling("tools.call = 5");
    let of_organisation = |expected: &str| {
        let problems =
            load(&scene.folders, &Inputs { ceiling: Some(path.clone()), ..Inputs::default() })
                .expect_err("it is not trusted");
        let problems = problems.to_string();
        assert!(problems.contains("ceiling.toml") && problems.contains(expected), "{problems}");
    };
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("its mode is set");
        of_organisation("others can write to the file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its mode is set");
        let folder = path.parent().expect("a folder");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("its mode is set");
        of_organisation("its folder");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("its mode is set");
        std::os::unix::fs::chown(&path, Some(65534), None).expect("its owner is set");
    }
    of_organisation("only files of root are trusted");
    fs::remove_file(&path).expect("it is removed");
    std::os::unix::fs::symlink("nowhere.toml", &path).expect("a link is made");
    of_organisation("can't be opened");
    fs::remove_file(&path).expect("it is removed");
    let without =
        load(&scene.folders, &Inputs { ceiling: Some(path.clone()), ..Inputs::default() })
            .expect("a missing ceiling isn't a mistake");
    assert!(without.ceilings.is_empty());

    for (text, expected) in [
        ("[tools]\ncal = 5", "did you mean `call`?"),
        ("tools.call =", "is not TOML"),
        ("tools.call = \"x\"", "invalid type"),
        ("[plugins.\"A B\"]\nlimits.handles = 16", "isn't a valid plugin name"),
        (
            "tools.file.allowed_paths = [\".\", { path = \"src/missing\", access = \"read\" }]",
            "isn't an existing directory",
        ),
    ] {
        let problems = scene.load_under(text, "", &[]).expect_err("it is invalid").to_string();
        assert!(
            problems.contains("ceiling.toml:") && problems.contains(expected),
            "{text}: {problems}"
        );
    }
    let missing = inputs(&[("TOOLHOLD_CEILING", "/nowhere/ceiling.toml")], &[]);
    let problems = load(&scene.folders, &missing).expect_err("the ceiling is missing").to_string();
    assert!(
        problems.contains("TOOLHOLD_CEILING: /nowhere/ceiling.toml can't be opened"),
        "{problems}"
    );
}
