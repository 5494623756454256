//! What an organisation sets: a signed ceiling, defaults, bounds for every plugin, an allow list.

use serde_json::{Value, json};
use toolhold_signing::{
    KeyFolder, PasswordSource, SecretKey, Signature, SignedPlugin, Statement, read_secret_key,
    sign_ceiling, today, verify_plugin,
};

use super::*;

impl Scene {
    /// The folder of the organisation.
    fn company(&self) -> PathBuf {
        let folder = self.work.with_file_name("company");
        fs::create_dir_all(&folder).expect("a folder is made");
        folder
    }

    /// Loads with the organisation's folder. `None`: only files of root count there, and this isn't
    /// root.
    fn load_in_company(&self) -> Option<Result<Config, Problems>> {
        let inputs = Inputs {
            ceiling: Some(self.company().join("ceiling.toml")),
            defaults: Some(self.company().join("toolhold.toml")),
            ..Inputs::default()
        };
        rustix::process::geteuid().is_root().then(|| load(&self.folders, &inputs))
    }

    fn key(&self, name: &str) -> SecretKey {
        let made = KeyFolder::new(&self.folders.config).create(name, None).expect("it is made");
        read_secret_key(&made.secret, &PasswordSource::default()).expect("it is read")
    }
}

#[test]
fn ceiling_with_keys_beside_it_counts_only_with_a_signature() {
    let scene = Scene::new();
    let (ceiling, keys) =
        (scene.company().join("ceiling.toml"), scene.company().join("ceiling.pub"));
    let (key, next, other) = (scene.key("key"), scene.key("next"), scene.key("other"));
    let text = "tools.max_call = 5\n";
    let refused = |why: &str| {
        let Some(loaded) = scene.load_in_company() else { return };
        let problems = loaded.expect_err(why).to_string();
        assert!(problems.contains(why), "{why}: {problems}");
    };
    fs::write(&ceiling, text).expect("it is written");
    if let Some(loaded) = scene.load_in_company() {
        let described = loaded.expect("there are no keys").describe_ceilings();
        let reason = format!("because {} with the public key is missing", keys.display());
        assert!(described.contains(&reason), "{described}");
    }
    let path = ceiling.display().to_string();
    let loaded = load(&scene.folders, &inputs(&[("TOOLHOLD_CEILING", path.as_str())], &[]));
    let described = loaded.expect("its signature isn't checked").describe_ceilings();
    assert!(described.contains("because TOOLHOLD_CEILING names the file"), "{described}");
    fs::remove_file(&ceiling).expect("it is there");
    fs::write(&keys, key.public().to_file()).expect("it is written");
    refused("the ceiling is missing");
    fs::write(&ceiling, text).expect("it is written");
    refused("the signature is missing");
    sign_ceiling(&ceiling, text, &other).expect("it is signed");
    refused("which isn't trusted");
    sign_ceiling(&ceiling, text, &key).expect("it is signed");
    if let Some(loaded) = scene.load_in_company() {
        let loaded = loaded.expect("it is signed");
        assert_eq!(loaded.values.tools.max_call.get(), 5);
        assert_eq!(loaded.ceilings[0].signed_by, Some(key.public().id().to_string()));
    }
    let signed = fs::read_to_string(&ceiling).expect("it is there");
    fs::write(&ceiling, format!("{signed}tools.call = 50\n")).expect("it is changed");
    refused("the signature is wrong");
    // The lines above the text aren't signed, so they set nothing.
    for wrong in [format!("tools.call = 50\n{signed}"), signed.replacen("# RU", "#RU", 1)] {
        fs::write(&ceiling, wrong).expect("it is changed");
        refused("the signature is missing");
    }
    let hidden = signed.replacen("comment: ", "comment: \rtools.call = 50 # ", 1);
    fs::write(&ceiling, hidden).expect("it is changed");
    if let Some(loaded) = scene.load_in_company() {
        assert_ne!(loaded.expect("its text is signed").values.tools.call.get(), 50);
    }
    // Signing again replaces the signature. A mistake is reported with its line in the file.
    sign_ceiling(&ceiling, &signed, &key).expect("it is signed");
    assert_eq!(fs::read_to_string(&ceiling).ok(), Some(signed));
    sign_ceiling(&ceiling, "tools.max_cal = 5\n", &key).expect("it is signed");
    refused("ceiling.toml:5: ");
    // Rotation: both keys count for a while.
    fs::write(&ceiling, text).expect("it is written");
    sign_ceiling(&ceiling, text, &next).expect("it is signed");
    refused("which isn't trusted");
    fs::write(&keys, format!("{}{}\n", key.public().to_file(), next.public())).expect("written");
    if let Some(loaded) = scene.load_in_company() {
        loaded.expect("it is signed by the second key");
    }
    fs::write(&keys, "").expect("it is written");
    refused("the file has no key");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o666)).expect("its mode is set");
    refused("others can write to the file");
    // No variable or flag names a key, or does without.
    for path in ["ceiling.pub", "ceiling"] {
        let setting = format!("{path}=x");
        load(&scene.folders, &inputs(&[], &[&setting])).expect_err("there is no such key");
    }
}

#[test]
fn ceiling_that_is_replaced_while_it_is_read_is_always_in_force() {
    const SWAPS: usize = 200;
    let scene = Scene::new();
    let ceiling = scene.company().join("ceiling.toml");
    let key = scene.key("key");
    let texts = ["tools.max_call = 5\n", "tools.max_call = 6\n"];
    fs::write(scene.company().join("ceiling.pub"), key.public().to_file()).expect("written");
    sign_ceiling(&ceiling, texts[0], &key).expect("it is signed");
    std::thread::scope(|threads| {
        let swaps = threads.spawn(|| {
            for round in 0..SWAPS {
                sign_ceiling(&ceiling, texts[round % 2], &key).expect("it is signed");
            }
        });
        while !swaps.is_finished() {
            let Some(loaded) = scene.load_in_company() else { break };
            let max_call = loaded.expect("it is signed").values.tools.max_call.get();
            assert!(matches!(max_call, 5 | 6), "{max_call}");
        }
    });
}

#[test]
fn only_the_organisation_pins_a_plugin() {
    let scene = Scene::new();
    let pinned = "a".repeat(64);
    let table = format!("[plugins.notes]\ndigest = \"sha256:{pinned}\"\n");
    fs::write(scene.company().join("toolhold.toml"), &table).expect("it is written");
    if let Some(loaded) = scene.load_in_company() {
        let loaded = loaded.expect("it is valid");
        assert!(loaded.is_pinned("notes", &pinned));
        assert!(!loaded.is_pinned("notes", &"b".repeat(64)));
        assert!(!loaded.is_pinned("other", &pinned));
    }
    // The user's own digest selects a component, and approves none.
    scene.write(&table);
    let loaded = scene.load_in_company().unwrap_or_else(|| load(&scene.folders, &inputs(&[], &[])));
    assert!(!loaded.expect("it is valid").is_pinned("notes", &pinned));
}

#[test]
fn approval_of_a_server_counts_only_from_a_file_of_root() {
    let scene = Scene::new();
    let path = scene.company().join("servers/time.json");
    let Some(loaded) = scene.load_in_company() else { return };
    let loaded = loaded.expect("there is no file");
    assert_eq!(loaded.organisation_approval("time"), Ok(None));
    fs::create_dir(scene.company().join("servers")).expect("a folder is made");
    fs::write(&path, "{}").expect("it is written");
    assert_eq!(loaded.organisation_approval("time"), Ok(Some((path.clone(), "{}".to_owned()))));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).expect("its mode is set");
    loaded.organisation_approval("time").expect_err("others can write it");
    fs::remove_file(&path).expect("it was there");
    symlink("nowhere", &path).expect("a link is made");
    loaded.organisation_approval("time").expect_err("it may have been an approval");
}

#[test]
fn signature_of_a_plugin_does_not_count_for_a_ceiling() {
    let scene = Scene::new();
    let (ceiling, key) = (scene.company().join("ceiling.toml"), scene.key("key"));
    fs::write(scene.company().join("ceiling.pub"), key.public().to_file()).expect("written");
    let said = "toolhold-plugin/1 name=x version=1 manifest=-";
    let signature = Signature::sign(b"tools.max_call = 5\n", said, &key);
    let signature = signature.expect("it is signed").to_string();
    let comment: String = signature.lines().map(|line| format!("# {line}\n")).collect();
    fs::write(&ceiling, format!("{comment}tools.max_call = 5\n")).expect("it is written");
    if let Some(loaded) = scene.load_in_company() {
        let problems = loaded.expect_err("it is signed as something else").to_string();
        assert!(problems.contains("not for a ceiling"), "{problems}");
    }
}

#[test]
fn ceiling_is_checked_before_it_is_signed() {
    let scene = Scene::new();
    let path = scene.company().join("ceiling.toml");
    for (text, why) in [
        ("tools.max_cal = 5\n", "did you mean `max_call`?"),
        ("tools.authorization.rules = []\n", "a ceiling can't limit this key"),
        ("plugins.\"*\".limits.memory_mib = 5\n", "are allowed in [plugins.\"*\"]: allowed_paths"),
        ("plugins.\"*\".secrets.x.env = \"A\"\n", "are allowed in [plugins.\"*\"]: allowed_paths"),
        ("plugins.\"*\".store_mib = -1\n", "store_mib"),
        ("plugins.X.shell = false\n", "isn't a valid plugin name"),
    ] {
        fs::write(&path, text).expect("it is written");
        let problems = check_ceiling(&path).expect_err(text).to_string();
        assert!(problems.contains(why), "{text}: {problems}");
    }
    let text = "tools.max_call = 5\nplugins.\"*\".hosts = []\n";
    fs::write(&path, text).expect("it is written");
    assert_eq!(check_ceiling(&path).as_deref(), Ok(text));
}

#[test]
fn changed_file_of_a_ceiling_is_noticed() {
    let scene = Scene::new();
    let inputs =
        Inputs { ceiling: Some(scene.company().join("ceiling.toml")), ..Inputs::default() };
    let mut before = CeilingFiles::read(&inputs);
    for name in ["ceiling.toml", "ceiling.pub"] {
        fs::write(scene.company().join(name), "x").expect("it is written");
        let now = CeilingFiles::read(&inputs);
        assert_ne!(now, before, "{name}");
        assert_eq!(now, CeilingFiles::read(&inputs));
        before = now;
    }
    let ceiling = scene.company().join("ceiling.toml");
    fs::set_permissions(ceiling, fs::Permissions::from_mode(0o666)).expect("its mode is set");
    assert_ne!(CeilingFiles::read(&inputs), before);
}

#[test]
fn company_defaults_hold_where_the_user_says_nothing() {
    let scene = Scene::new();
    let path = scene.company().join("toolhold.toml");
    fs::write(&path, "[tools]\ncall = 7\nmax_call = 70\n[tools.file]\ndeny_read = [\"a\"]\n")
        .expect("it is written");
    scene.write("[tools]\nmax_call = 80\n");
    let Some(loaded) = scene.load_in_company() else { return };
    let loaded = loaded.expect("it is valid");
    assert_eq!((loaded.values.tools.call.get(), loaded.values.tools.max_call.get()), (7, 80));
    assert_eq!(loaded.source("tools.call"), Source::File { path: path.clone(), line: 2 });
    assert_eq!(loaded.defaults.as_ref(), Some(&path));
    scene.write("[tools.file]\ndeny_read = [\"b\"]\n");
    let Some(Ok(loaded)) = scene.load_in_company() else { panic!("it is valid") };
    assert_eq!(loaded.values.tools.file.deny_read, [PathGlob::new("b").expect("it is valid")]);
    // A ceiling bounds them like the user's own.
    fs::write(scene.company().join("ceiling.toml"), "tools.call = 5\n").expect("it is written");
    let Some(Ok(loaded)) = scene.load_in_company() else { panic!("it is valid") };
    assert_eq!(loaded.values.tools.call.get(), 5);
    fs::write(&path, "[tools]\ncal = 7\n").expect("it is written");
    let Some(Err(problems)) = scene.load_in_company() else { panic!("it has a mistake") };
    assert!(problems.to_string().contains("company/toolhold.toml:2: "), "{problems}");
    fs::write(&path, "").expect("it is written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).expect("its mode is set");
    let Some(Err(problems)) = scene.load_in_company() else { panic!("others can write it") };
    assert!(problems.to_string().contains("others can write to the file"), "{problems}");
}

#[test]
fn table_for_every_plugin_bounds_each_one_the_user_has() {
    let scene = Scene::new();
    let ceiling = "[plugins.\"*\"]\nallowed_paths = [\"~/notes\"]\nprograms = [\"git\"]\njudged_programs = false\nservices = 0\nshell = false\nnetwork = false\nenv = [\"LANG\"]\nhosts = [\"*.corp.example\"]\nallowed_private_hosts = []\nhttps_only = true\ncredentials_to = []\nstore_mib = 1\nindex_mib = 1\nparts_cpu_secs = 2\nschedule_tasks = 1\nembeddings = \"\"\ninstance = \"call\"\n";
    let wide = "allowed_paths = [\"/\"]\nprograms = [\"sh\", \"git\"]\njudged_programs = true\nservices = 8\nshell = true\nnetwork = true\nenv = [\"LANG\", \"TOKEN\"]\nhosts = [\"*\", \"api.corp.example\", \"evil.example\"]\nallowed_private_hosts = [\"10.0.0.0/8\"]\nhttps_only = false\ncredentials_to = [\"evil.example\"]\nstore_mib = 1000\nindex_mib = 1000\nparts_cpu_secs = 600\nschedule_tasks = 100\nembeddings = \"known\"\ninstance = \"session\"\n";
    let wide = wide.replace("\"*\", ", "");
    let user = format!("[providers.known]\n[plugins.a]\n{wide}[plugins.b]\n{wide}");
    let path = scene.company().join("ceiling.toml");
    fs::write(&path, ceiling).expect("it is written");
    scene.write(&user);
    let named = inputs(&[("TOOLHOLD_CEILING", path.to_str().expect("it is UTF-8"))], &[]);
    let loaded = load(&scene.folders, &named).expect("it is valid");
    let notes = scene.folders.home.as_ref().expect("there is a home").join("notes");
    for name in ["a", "b"] {
        let held = serde_json::to_value(&loaded.values.plugins[name]).expect("it has a JSON form");
        for (key, value) in [
            ("allowed_paths", json!([notes])),
            ("programs", json!(["git"])),
            ("judged_programs", json!(false)),
            ("services", json!(0)),
            ("shell", json!(false)),
            ("network", json!(false)),
            ("env", json!(["LANG"])),
            ("hosts", json!(["api.corp.example"])),
            ("allowed_private_hosts", json!([])),
            ("https_only", json!(true)),
            ("credentials_to", json!([])),
            ("store_mib", json!(1)),
            ("index_mib", json!(1)),
            ("parts_cpu_secs", json!(2)),
            ("schedule_tasks", json!(1)),
            ("embeddings", json!("")),
            ("instance", json!("call")),
        ] {
            assert_eq!(held[key], value, "{name}.{key}");
        }
    }
    assert!(!loaded.values.plugins.contains_key("*"));
}

/// Request ∩ grant ∩ ceiling, for each pair of lists and each plugin.
#[test]
fn allow_list_under_a_ceiling_has_only_what_both_have() {
    let key = "RWQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let entries = [
        "{}".to_owned(),
        "{ plugins = ['acme-*'] }".to_owned(),
        "{ plugins = ['acme-notes', 'word'] }".to_owned(),
        format!("{{ digest = 'sha256:{a}' }}"),
        format!("{{ key = '{key}' }}"),
        format!("{{ key = '{key}', plugins = ['acme-*'] }}"),
    ];
    let lists: Vec<String> = (0..1_u32 << entries.len())
        .filter(|bits| bits.count_ones() <= 2)
        .map(|bits| {
            let chosen = entries.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
            let chosen: Vec<&str> = chosen.map(|(_, entry)| entry.as_str()).collect();
            format!("installing.allowed = [{}]", chosen.join(", "))
        })
        .collect();
    let allows = |loaded: &Config, name: &str, digest: &str, signed: bool| {
        let mut all = loaded.values.installing.allowed.iter();
        all.any(|one| one.matches(name, digest) && (one.key.is_none() || signed))
    };
    let scene = Scene::new();
    let path = scene.company().join("ceiling.toml");
    let named = inputs(&[("TOOLHOLD_CEILING", path.to_str().expect("it is UTF-8"))], &[]);
    let alone: Vec<Config> = lists.iter().map(|list| scene.load(list)).collect();
    for (user, own) in lists.iter().zip(&alone) {
        scene.write(user);
        for (ceiling, bound) in lists.iter().zip(&alone) {
            fs::write(&path, ceiling).expect("it is written");
            let both = load(&scene.folders, &named).expect("it is valid");
            for name in ["acme-notes", "acme-other", "word", "evil"] {
                for (digest, signed) in [(&a, true), (&a, false), (&b, true), (&b, false)] {
                    let held = allows(&both, name, digest, signed);
                    assert!(
                        !held
                            || allows(own, name, digest, signed)
                                && allows(bound, name, digest, signed),
                        "{user} under {ceiling}: {name} {digest} {signed}"
                    );
                }
            }
            if user == ceiling {
                assert_eq!(both.values.installing, own.values.installing);
            }
        }
    }
    let empty: Value = json!([]);
    assert_eq!(serde_json::to_value(&alone[0].values.installing.allowed).ok(), Some(empty));
}

/// A component whose manifest has this name.
fn component(name: &str) -> Vec<u8> {
    let manifest = format!(
        r#"{{"manifest":1,"name":"{name}","version":"1.0.0","description":"x","capabilities":[]}}"#
    );
    let section = [b"\x11toolhold:manifest", manifest.as_bytes()].concat();
    let length = u8::try_from(section.len()).expect("it is short");
    let header = [&b"\0asm\x0d\0\x01\0\0"[..], &[length | 0x80, length >> 7]].concat();
    [header, section].concat()
}

/// As for the allow list, for each pair of lists of sources, and of keys, by what is admitted.
#[test]
fn sources_and_keys_under_a_ceiling_trust_only_what_both_trust() {
    let [one, two] = [(); 2].map(|()| SecretKey::generate().expect("a key is made"));
    let (key, other) = (one.public(), two.public());
    let sources =
        ["*", "oci://r.example/*", "oci://r.example/acme/*", "oci://r.example/acme/x", "/p/*"];
    let sources = (0..1_u32 << sources.len()).filter(|bits| bits.count_ones() <= 2).map(|bits| {
        let chosen = sources.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
        let chosen: Vec<&str> = chosen.map(|(_, source)| *source).collect();
        format!("installing.sources = {chosen:?}")
    });
    let entry =
        |more: &str| format!("[[installing.keys]]\nname = \"n\"\nkey = \"{key}\"\n{more}\n");
    let keys = [
        String::new(),
        "installing.keys = []".to_owned(),
        entry(""),
        entry("plugins = [\"*\"]"),
        entry("plugins = [\"acme-*\"]"),
        entry("plugins = [\"*\"]\nsources = [\"oci://r.example/acme/*\"]"),
        entry("plugins = [\"*\"]\nnot_after = \"2020-01-01\""),
        entry("plugins = [\"*\"]\nrevoked = true"),
        format!(
            "{}{}",
            entry("plugins = [\"acme-*\"]"),
            entry("plugins = [\"word\"]\nsources = [\"/p/*\"]")
        ),
        format!("[[installing.keys]]\nname = \"n\"\nkey = \"{other}\"\nplugins = [\"*\"]\n"),
    ];
    let trusted = entry("plugins = [\"*\"]");
    let sources = sources.map(|list| format!("{list}\n{trusted}"));
    let lists: Vec<Vec<String>> = vec![sources.collect(), keys.to_vec()];
    let places = ["oci://r.example/acme/x:1", "oci://r.example/evil:1", "/p/a.wasm", "/q/a.wasm"];
    let plugins = ["acme-notes", "word"].map(|name| {
        let wasm = component(name);
        let statement = Statement::of_plugin(&wasm, None).expect("it can be signed").to_string();
        let signature = Signature::sign(&wasm, &statement, &one).expect("it is signed");
        (name, wasm, signature.to_string().into_bytes())
    });
    // What is admitted: pairs of plugins and places.
    let admitted = |loaded: &Config| -> Vec<(&str, &str)> {
        let installing = &loaded.values.installing;
        let keys: Vec<_> = installing.keys.iter().map(InstallKey::trusted).collect();
        let is_signed = |name: &str, wasm: &[u8], signature: &Vec<u8>, source: &str| {
            let plugin = SignedPlugin { wasm, name, source: Some(source) };
            verify_plugin(plugin, std::slice::from_ref(signature), &keys, today()).is_ok()
        };
        let all = plugins.iter().flat_map(|one| places.iter().map(move |place| (one, *place)));
        all.filter(|((name, wasm, signature), place)| {
            installing.sources.iter().any(|pattern| pattern.0.matches(place))
                && (!installing.require_signature || is_signed(name, wasm, signature, place))
        })
        .map(|((name, ..), place)| (*name, place))
        .collect()
    };
    let scene = Scene::new();
    let path = scene.company().join("ceiling.toml");
    let named = inputs(&[("TOOLHOLD_CEILING", path.to_str().expect("it is UTF-8"))], &[]);
    let signed = "installing.require_signature = true\n";
    for lists in lists {
        let lists: Vec<String> = lists.into_iter().map(|list| format!("{signed}{list}")).collect();
        let alone: Vec<Config> = lists.iter().map(|list| scene.load(list)).collect();
        let mut some = 0;
        for (user, own) in lists.iter().zip(&alone) {
            scene.write(user);
            for (ceiling, bound) in lists.iter().zip(&alone) {
                fs::write(&path, ceiling).expect("it is written");
                let both = load(&scene.folders, &named).expect("it is valid");
                let (own, bound) = (admitted(own), admitted(bound));
                for held in admitted(&both) {
                    some += 1;
                    // A ceiling without keys says nothing about them.
                    let says = !ceiling.contains("keys") || bound.contains(&held);
                    assert!(own.contains(&held) && says, "{user} under {ceiling}: {held:?}");
                }
            }
        }
        assert!(some > 20, "lists that have something in common");
    }
}
