//! What bounds a task: a later configuration never allows it more than its maker had.

use serde_json::Value;
use toolhold_config_keys::Narrowing;
use toolhold_policy::OriginKind;

use super::super::keys::rule;
use super::attempts::{USER, attempt, keys};
use super::*;

/// The values of the configuration `now` within what `then` allowed.
fn within(scene: &Scene, then: &str, now: &str) -> Result<Value, Problems> {
    scene.write(then);
    let there = Inputs { working_directory: Some(scene.work.clone()), ..Inputs::default() };
    let bounds = load(&scene.folders, &there).expect("it is valid").task_bounds();
    let bounds = bounds.expect("it isn't too long").texts;
    scene.write(now);
    let loaded = load(&scene.folders, &Inputs { bounds, ..there })?;
    Ok(serde_json::to_value(&loaded.values).expect("it has a JSON form"))
}

#[test]
fn unchanged_configuration_is_left_as_it_is() {
    let scene = Scene::new();
    let project = "tools.call = 7\ntools.file.deny_read = [\"secret\"]\n";
    fs::write(scene.work.join("toolhold.toml"), project).expect("the file is written");
    for text in ["", USER] {
        let alone = {
            scene.write(text);
            scene.load_there(&[]).expect("it is valid")
        };
        let alone = serde_json::to_value(&alone.values).expect("it has a JSON form");
        let bounded = within(&scene, text, text).expect("it is valid");
        assert_eq!(bounded, alone, "{text}");
    }
}

#[test]
fn no_key_is_wider_than_it_was() {
    let scene = Scene::new();
    let alone = within(&scene, USER, USER).expect("it is valid");
    scene.write(USER);
    let there = Inputs { working_directory: Some(scene.work.clone()), ..Inputs::default() };
    let bounds = load(&scene.folders, &there).expect("it is valid").task_bounds();
    let bounds = bounds.expect("it isn't too long").texts;
    let kept: Value = serde_json::from_str(&bounds[0]).expect("it is JSON");
    let mut tried = 0;
    for key in keys() {
        let Some(attempt) = attempt(&key) else { continue };
        let (name, value) = attempt.split_once('=').expect("it has a value");
        let path: Vec<String> = name.trim().split('.').map(str::to_owned).collect();
        let rule = match rule(&path) {
            None | Some(Narrowing::Ignored | Narrowing::Free | Narrowing::Each(_)) => continue,
            Some(Narrowing::InCeiling(Narrowing::Ignored)) => continue,
            Some(Narrowing::InCeiling(rule)) => *rule,
            Some(rule) => rule,
        };
        tried += 1;
        let (bounds, there) = (bounds.clone(), there.clone());
        let settings = vec![format!("{}={}", name.trim(), value.trim())];
        // What can't be applied lets nothing run.
        let Ok(loaded) = load(&scene.folders, &Inputs { bounds, settings, ..there }) else {
            continue;
        };
        let now = serde_json::to_value(&loaded.values).expect("it has a JSON form");
        let at = |all: &Value| path.iter().fold(all, |at, part| &at[part]).clone();
        // Of a value that is inherited, the bounds have what it comes to.
        let (now, then) =
            (at(&now), Some(at(&kept)).filter(|it| !it.is_null()).unwrap_or(at(&alone)));
        let lists = (now.as_array(), then.as_array());
        let within = |less: &[Value], more: &[Value]| less.iter().all(|item| more.contains(item));
        let is_no_wider = match (rule, lists) {
            (Narrowing::Adds | Narrowing::Denials(_), (Some(now), Some(then))) => within(then, now),
            // An empty list allows everything.
            (Narrowing::Restricts, (Some(now), Some(then))) => {
                then.is_empty() || !now.is_empty() && within(now, then)
            }
            (Narrowing::Subset | Narrowing::Covered(_), (Some(now), Some(then))) => {
                within(now, then)
            }
            // The attempts grant the root.
            (Narrowing::Directories, (Some(now), _)) => {
                !now.iter().any(|item| *item == "/" || item["path"] == "/")
            }
            _ => now == then,
        };
        assert!(is_no_wider, "{attempt}: {now} instead of {then}");
    }
    assert!(tried > 80, "{tried}");
}

#[test]
fn rules_of_then_and_of_now_both_count() {
    let scene = Scene::new();
    let then = "[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"bash\"]\n[tools.authorization]\nenabled = true\nrules = [{ effect = \"deny\", tools = [\"write\"] }]\n";
    scene.write(then);
    let there = Inputs { working_directory: Some(scene.work.clone()), ..Inputs::default() };
    let bounds = load(&scene.folders, &there).expect("it is valid").task_bounds();
    let bounds = bounds.expect("it isn't too long").texts;
    scene.write("[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"edit\"]\n");
    let loaded = load(&scene.folders, &Inputs { bounds, ..there }).expect("it is valid");
    assert_eq!(loaded.values.tools.policy.rules.len(), 1);
    let of_then = &loaded.ceilings[0].contents.values.tools;
    assert_eq!(of_then.policy.rules.len(), 2);
}

#[test]
fn what_was_added_since_is_off() {
    let scene = Scene::new();
    let plugin = "[plugins.NAME]\npath = \"x.wasm\"\nhosts = [\"a.example\"]\n";
    let server = "[mcp.servers.srv-NAME]\ncommand = \"x\"\n";
    let text = |name: &str| (plugin.to_owned() + server).replace("NAME", name);
    let now = within(&scene, &text("old"), &(text("old") + &text("new"))).expect("it is valid");
    assert_eq!(now["plugins"]["old"]["enabled"], true);
    assert_eq!(now["plugins"]["new"]["enabled"], false);
    assert_eq!(now["mcp"]["servers"]["srv-old"]["enabled"], true);
    assert_eq!(now["mcp"]["servers"]["srv-new"]["enabled"], false);
    // What was removed needs no bound.
    let now = within(&scene, &(text("old") + &text("gone")), &text("old")).expect("it is valid");
    assert!(now["plugins"].get("gone").is_none());
}

#[test]
fn damaged_bounds_let_nothing_run() {
    let scene = Scene::new();
    for bounds in ["", "tools.enabled = false", "{", "{\"tools\": {\"call\": \"x\"}}"] {
        let inputs = Inputs {
            bounds: vec![bounds.to_owned()],
            working_directory: Some(scene.work.clone()),
            ..Inputs::default()
        };
        assert!(load(&scene.folders, &inputs).is_err(), "{bounds}");
    }
}

#[test]
fn what_bounds_a_task_says_so_itself() {
    let scene = Scene::new();
    let outside = scene.work.join("outside");
    fs::create_dir(&outside).expect("a folder is made");
    let then = "[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"bash\"]\n";
    scene.write(then);
    let there = Inputs { working_directory: Some(scene.work.clone()), ..Inputs::default() };
    let bounds = load(&scene.folders, &there).expect("it is valid").task_bounds();
    let bounds = bounds.expect("it isn't too long").texts;
    scene.write("[tools.file]\nallowed_paths = [\".\", \"/tmp\"]\n[tools.web]\nhttps_only = false\n[plugins.new]\npath = \"x.wasm\"\n");
    let loaded = load(&scene.folders, &Inputs { bounds, ..there }).expect("it is valid");
    for key in ["tools.file.allowed_paths", "tools.web.https_only", "plugins.new.enabled"] {
        let origin = loaded.origin(key);
        assert_eq!(origin.kind, OriginKind::TaskBounds, "{key}");
        assert!(origin.text.contains("at the creation of the task"), "{}", origin.text);
        let remedy = origin.remedy(|| panic!("{key}: no line of the user's file would help"));
        assert!(remedy.contains("create the task again"), "{remedy}");
    }
    assert!(loaded.is_of_task());
    let policy = loaded.policy().expect("it is valid");
    let rules: Vec<_> = policy.ceiling.iter().flat_map(|rules| &rules.rules).collect();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].place.kind, OriginKind::TaskBounds);
    // What wasn't narrowed has its usual line.
    assert!(matches!(loaded.origin("tools.memory.enabled").kind, OriginKind::Default(_)));
}

#[test]
fn flags_of_the_maker_are_no_bounds_and_what_they_take_away_is() {
    let scene = Scene::new();
    let outside = scene.work.join("..").canonicalize().expect("it is there");
    let granted =
        format!("tools.file.allowed_paths = [\".\", {:?}]\n", outside.display().to_string());
    let now = |inputs: Inputs| {
        scene.write("");
        let made = load(&scene.folders, &inputs).expect("it is valid").task_bounds();
        let TaskBounds { texts, by_flags } = made.expect("it isn't too long");
        scene.write(&granted);
        let there = Inputs { working_directory: Some(scene.work.clone()), ..Inputs::default() };
        let loaded = load(&scene.folders, &Inputs { bounds: texts, ..there });
        (loaded.expect("it is valid").values, by_flags)
    };
    let there = || Inputs { working_directory: Some(scene.work.clone()), ..Inputs::default() };
    let (alone, by_flags) = now(there());
    assert!(by_flags.is_empty(), "{by_flags:?}");
    let allow = vec![(outside.clone(), PathAccess::ReadWrite)];
    let set = [granted.trim().to_owned(), "tools.call=7".to_owned()];
    for inputs in [Inputs { allow, ..there() }, Inputs { settings: set[..1].to_vec(), ..there() }] {
        let (config, by_flags) = now(inputs);
        assert_eq!(config, alone);
        // Commands see what tools of files may.
        assert_eq!(by_flags, ["tools.file.allowed_paths", "tools.shell.allowed_paths"]);
    }
    let (config, by_flags) = now(Inputs { settings: set[1..].to_vec(), ..there() });
    assert_eq!((config.tools.call.get(), by_flags.len()), (7, 0));
    // Whether there are tasks is no right of a task.
    let enabled = vec!["tools.scheduler.enabled=true".to_owned()];
    scene.write("");
    let made = load(&scene.folders, &Inputs { settings: enabled.clone(), ..there() });
    let bounds = made.expect("it is valid").task_bounds().expect("it isn't too long").texts;
    let run = load(&scene.folders, &Inputs { settings: enabled, bounds, ..there() });
    assert!(run.expect("it is valid").values.tools.scheduler.enabled);
    // A plugin that a flag adds is off, though the file has it later.
    let plugin = vec!["plugins.new.path=\"x.wasm\"".to_owned()];
    let made = load(&scene.folders, &Inputs { settings: plugin, ..there() });
    let bounds = made.expect("it is valid").task_bounds().expect("it isn't too long").texts;
    scene.write("[plugins.new]\npath = \"x.wasm\"\n");
    let run = load(&scene.folders, &Inputs { bounds, ..there() }).expect("it is valid");
    assert!(!run.values.plugins["new"].enabled);
}
