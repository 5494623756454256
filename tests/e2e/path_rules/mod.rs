//! Rules about paths hold for what a call reaches, not only for what it names.

mod random;
mod trees;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use toolhold_core::{Answer, Category, Request, Scope, Verdict};

use crate::approvals::Person;
use crate::escapes::{all_fail, ways_out, with_links};
use crate::support::{Cli, Scene, plugin, refused, run};

const SECRET: &str = "the-planted-secret";

/// A folder `top` with an open file and a file in `top/secretdir`.
fn planted(root: &Path) {
    let top = root.join("granted/top");
    for (file, text) in [
        ("open.txt", "an open text"),
        ("secretdir/s.txt", SECRET),
        ("secretdir/deep/t.txt", SECRET),
        ("kept/u.txt", "kept"),
    ] {
        let file = top.join(file);
        fs::create_dir_all(file.parent().expect("it lies in one"))
            .and_then(|()| fs::write(&file, text))
            .expect("a file is written");
    }
}

fn text(answer: &Answer) -> String {
    match &answer.outcome {
        Ok(output) => format!("{} {:?}", output.joined_text(), output.structured),
        Err(failure) => format!("{failure:?}"),
    }
}

/// A call that is always approved.
async fn agreed(scene: &Scene, tool: &str, arguments: Value) -> Answer {
    scene
        .host
        .call(Request { approver: Some(Person::yes(Scope::Once)), ..Request::new(tool, arguments) })
        .await
}

const READING: [&str; 6] =
    ["read", "grep", "find_path", "list_directory", "copy_path", "move_path"];

/// The same denial, as each place of the configuration has it.
fn denials() -> Vec<Vec<String>> {
    let rules = "[{ effect = \"deny\", paths = [\"top/secretdir\"] }]";
    let permissions = |tool: &&str| {
        format!(
            "tools.permissions.{tool}=[{{ pattern = \"top/secretdir\", action = \"deny\" }}, {{ pattern = \"*\", action = \"allow\" }}]"
        )
    };
    vec![
        vec![format!("tools.policy.rules={rules}")],
        vec![
            "tools.authorization.enabled=true".to_owned(),
            format!("tools.authorization.rules={rules}"),
        ],
        READING.iter().chain(&["delete_path"]).map(permissions).collect(),
    ]
}

#[test]
fn denial_holds_below_a_named_path() {
    run(async {
        for settings in denials() {
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            let scene = Scene::with(&settings, planted).await;
            let secret = scene.granted.join("top/secretdir/s.txt");
            refused(
                &scene.call("read", json!({ "path": "top/secretdir/s.txt" })).await,
                "top/secretdir",
            );
            for (tool, arguments) in [
                ("grep", json!({ "pattern": "text|planted", "path": "top" })),
                ("grep", json!({ "pattern": "text|planted" })),
                ("find_path", json!({ "pattern": "**/*.txt", "path": "top" })),
                ("list_directory", json!({ "path": "top" })),
            ] {
                let found = scene.call(tool, arguments).await;
                let found = text(&found);
                assert!(found.contains("open"), "{tool}: {found}");
                assert!(
                    !found.contains(SECRET)
                        && !found.contains("s.txt")
                        && !found.contains("secretdir"),
                    "{tool}: {found}"
                );
                assert!(found.contains("1 denied by the operator's rules"), "{tool}: {found}");
            }
            for tool in ["copy_path", "move_path", "delete_path"] {
                let answer = match tool {
                    "delete_path" => {
                        scene.call(tool, json!({ "path": "top", "recursive": true })).await
                    }
                    _ => scene.call(tool, json!({ "source": "top", "destination": "other" })).await,
                };
                let failure = refused(&answer, "top/secretdir");
                let denial = failure.denial.as_ref().expect("it was denied");
                assert!(denial.action.ends_with("top/secretdir"), "{tool}: {denial}");
                assert!(!scene.granted.join("other").exists(), "{tool}");
                assert_eq!(fs::read_to_string(&secret).expect("it is there"), SECRET, "{tool}");
                assert_eq!(
                    fs::read_dir(scene.granted.join("top")).expect("it is there").count(),
                    3,
                    "{tool}"
                );
            }
            // Paths without a rule work as before.
            scene
                .call("copy_path", json!({ "source": "top/kept", "destination": "copy" }))
                .await
                .outcome
                .expect("it is copied");
            scene
                .call("move_path", json!({ "source": "copy", "destination": "moved" }))
                .await
                .outcome
                .expect("it is moved");
            assert_eq!(
                fs::read_to_string(scene.granted.join("moved/u.txt")).expect("it is there"),
                "kept"
            );
            scene
                .call("delete_path", json!({ "path": "moved", "recursive": true }))
                .await
                .outcome
                .expect("it is deleted");
            assert!(!scene.granted.join("moved").exists());
        }
    });
}

#[test]
fn denial_holds_for_names_that_a_call_creates() {
    run(async {
        let rule = "tools.policy.rules=[{ effect = \"deny\", paths = [\"new/closed\"], access = \"write\" }]";
        let scene = Scene::with(&[rule], |root| {
            planted(root);
            fs::create_dir_all(root.join("granted/old/closed")).expect("a folder is made");
            fs::write(root.join("granted/old/closed/x"), "x").expect("a file is written");
        })
        .await;
        for tool in ["copy_path", "move_path"] {
            refused(
                &scene.call(tool, json!({ "source": "old", "destination": "new" })).await,
                "new/closed",
            );
            assert!(
                !scene.granted.join("new").exists() && scene.granted.join("old/closed/x").exists(),
                "{tool}"
            );
        }
        assert_eq!(
            fs::read_dir(&scene.granted).expect("it is there").count(),
            3,
            "nothing is left of the copy"
        );
    });
}

/// The gates only know the subjects that a plugin declares. The rules are asked about everything
/// that it reaches.
#[test]
fn denial_holds_for_paths_that_a_hostile_plugin_hides() {
    run(async {
        let granted = "plugins.hostile.allowed_paths=[\"{granted}\", \"{outside}\"]";
        let rule = "tools.policy.rules=[{ effect = \"deny\", tools = [\"hostile__*\"], paths = [\"{outside}\"] }]";
        let scene = Scene::with(&[granted, rule], with_links).await;
        let ways: Vec<PathBuf> =
            ways_out(&scene).into_iter().filter(|way| fs::read_link(way).is_err()).collect();
        for attack in [
            "read_outside",
            "look_outside",
            "search_outside",
            "write_outside",
            "change_outside",
            "hard_link_into_reach",
            "rename_into_reach",
        ] {
            all_fail(&scene, attack, &ways).await;
            let answer = scene.attack(attack, json!({ "path": scene.secret_file, "to": scene.granted.join("taken"), "text": "x" })).await;
            let denial =
                answer.outcome.expect_err("it is denied").denial.expect("the rule is named");
            assert_eq!(denial.capability, "policy", "{attack}: {denial}");
        }
        // Without the rule, the same call gets there.
        let open = Scene::with(&[granted], with_links).await;
        let read = open.call("hostile__read_outside", json!({ "path": open.secret_file })).await;
        assert!(text(&read).contains(&open.secret));
    });
}

#[test]
fn ceiling_holds_for_every_reached_path() {
    let cli = Cli::new();
    planted_at(&cli.work());
    let ceiling = cli.work().join("ceiling.toml");
    fs::write(&ceiling, "[[tools.policy.rules]]\neffect = \"deny\"\npaths = [\"top/secretdir\"]\n")
        .expect("the ceiling is written");
    let call = |line: &[&str]| {
        let mut command = cli.command(line);
        command.env("TOOLHOLD_CEILING", &ceiling);
        command.output().expect("toolhold starts")
    };
    let found = call(&["call", "grep", "pattern=text|planted", "path=top"]);
    let shown = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(shown.contains("an open text") && !shown.contains(SECRET), "{found:?}");
    let copied = call(&["call", "--yes", "copy_path", "source=top", "destination=other"]);
    assert_eq!(copied.status.code(), Some(3), "{copied:?}");
    assert!(String::from_utf8_lossy(&copied.stderr).contains("ceiling.toml"), "{copied:?}");
    assert!(!cli.work().join("other").exists());
}

fn planted_at(work: &Path) {
    for (file, text) in [("open.txt", "an open text"), ("secretdir/s.txt", SECRET)] {
        let file = work.join("top").join(file);
        fs::create_dir_all(file.parent().expect("it lies in one"))
            .and_then(|()| fs::write(&file, text))
            .expect("a file is written");
    }
}

#[test]
fn entries_that_need_approval_are_left_out_and_counted() {
    run(async {
        let asks = |tool: &str| {
            format!(
                "tools.permissions.{tool}=[{{ pattern = \"secretdir\", action = \"ask\" }}, {{ pattern = \"*\", action = \"allow\" }}]"
            )
        };
        let settings: Vec<String> =
            ["grep", "find_path", "copy_path", "move_path", "delete_path", "list_directory"]
                .map(asks)
                .into();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let scene = Scene::with(&settings, planted).await;
        for _ in 0..3 {
            // Also if a stored answer could be used.
            for (tool, arguments) in [
                ("grep", json!({ "pattern": "text|planted", "path": "top" })),
                ("find_path", json!({ "pattern": "*.txt", "path": "top" })),
                ("list_directory", json!({ "path": "top" })),
            ] {
                let answer = scene.call(tool, arguments).await;
                assert_eq!(
                    answer.decision.as_ref().map(|decision| decision.verdict),
                    Some(Verdict::Allow)
                );
                let found = text(&answer);
                assert!(
                    found.contains("open.txt")
                        && !found.contains("s.txt")
                        && !found.contains(SECRET),
                    "{tool}: {found}"
                );
                let told = format!(
                    "[1 entry was left out, because access needs approval. The first: read {}",
                    scene.granted.join("top/secretdir").display()
                );
                assert!(found.contains(&told), "{tool}: {found}");
                assert!(
                    found.contains(
                        "A call that names the path needs approval. To change that, leave out `--set"
                    ),
                    "{tool}: {found}"
                );
            }
        }
        for tool in ["copy_path", "move_path", "delete_path"] {
            let arguments = match tool {
                "delete_path" => json!({ "path": "top", "recursive": true }),
                _ => json!({ "source": "top", "destination": "other" }),
            };
            let denied = refused(&agreed(&scene, tool, arguments).await, "secretdir")
                .denial
                .clone()
                .expect("it was denied");
            assert!(
                denied.remedy.contains("A call that names the path needs approval."),
                "{denied}"
            );
            assert!(
                scene.granted.join("top/secretdir/s.txt").exists()
                    && !scene.granted.join("other").exists(),
                "{tool}"
            );
        }
        // An approval of the folder covers its content.
        let agreed_to =
            agreed(&scene, "grep", json!({ "pattern": "planted", "path": "top/secretdir" })).await;
        assert!(
            text(&agreed_to).contains("t.txt") && agreed_to.approval.is_some(),
            "{}",
            text(&agreed_to)
        );
        let copied = agreed(
            &scene,
            "copy_path",
            json!({ "source": "top/secretdir", "destination": "other" }),
        )
        .await;
        copied.outcome.expect("a person has agreed");
        assert!(scene.granted.join("other/deep/t.txt").exists());
        // The same without approval, which reaches nothing.
        let unasked =
            scene.call("grep", json!({ "pattern": "planted", "path": "top/secretdir" })).await;
        assert_eq!(
            unasked.outcome.expect_err("nobody has agreed").category,
            Category::ConfirmationRequired
        );
    });
}

#[test]
fn permissions_keep_their_order_below() {
    run(async {
        let rules = "tools.permissions.grep=[{ pattern = \"secretdir/deep\", action = \"allow\" }, { pattern = \"secretdir/*\", action = \"deny\" }]";
        let scene = Scene::with(&[rules], planted).await;
        let found = text(&scene.call("grep", json!({ "pattern": "planted", "path": "top" })).await);
        assert!(found.contains("deep/t.txt") && !found.contains("s.txt"), "{found}");
        let behind = "tools.permissions.grep=[{ pattern = \"top\", action = \"allow\" }, { pattern = \"secretdir\", action = \"deny\" }]";
        let scene = Scene::with(&[behind], planted).await;
        let found = text(&scene.call("grep", json!({ "pattern": "planted", "path": "top" })).await);
        assert!(found.contains("s.txt"), "{found}");
    });
}

#[test]
fn rules_that_allow_let_a_tool_do_its_work_and_nothing_beside() {
    run(async {
        let rule = |tool: &str, access: &str, path: &str| {
            format!(
                "{{ effect = \"allow\", tools = [\"{tool}\"], access = \"{access}\", paths = [\"{path}\"] }}"
            )
        };
        let rules = [
            rule("write", "write", "top/new/deep/only.txt"),
            rule("edit", "write", "top/open.txt"),
            rule("copy_path", "read", "top"),
            rule("copy_path", "write", "copies"),
        ];
        let scene =
            Scene::with(&[&format!("tools.policy.rules=[{}]", rules.join(", "))], planted).await;
        let at = |path: &str| scene.granted.join(path);
        for round in ["one", "two"] {
            scene
                .call("write", json!({ "path": "top/new/deep/only.txt", "content": round }))
                .await
                .outcome
                .expect("it is allowed");
            assert_eq!(
                fs::read_to_string(at("top/new/deep/only.txt")).expect("it is there"),
                round
            );
        }
        scene
            .call(
                "edit",
                json!({ "path": "top/open.txt", "old_string": "open", "new_string": "edited" }),
            )
            .await
            .outcome
            .expect("it is allowed");
        assert_eq!(fs::read_to_string(at("top/open.txt")).expect("it is there"), "an edited text");
        scene
            .call("copy_path", json!({ "source": "top", "destination": "copies/a" }))
            .await
            .outcome
            .expect("it is allowed");
        assert_eq!(
            fs::read_to_string(at("copies/a/secretdir/s.txt")).expect("it is there"),
            SECRET
        );
        refused(
            &scene.call("write", json!({ "path": "top/new/deep/other.txt", "content": "x" })).await,
            "no allow rule of",
        );
        refused(
            &scene
                .call("copy_path", json!({ "source": "copies", "destination": "copies/b" }))
                .await,
            "no allow rule of",
        );
        assert_eq!(fs::read_dir(at("top/new/deep")).expect("it is there").count(), 1);
        assert_eq!(fs::read_dir(at("copies")).expect("it is there").count(), 1);
    });
}

#[test]
fn unreadable_path_cannot_be_moved_to_a_readable_place() {
    run(async {
        let scene = Scene::with(&["tools.policy.rules=[{ effect = \"deny\", paths = [\"secretdir\"], access = \"read\" }]"], planted).await;
        for (tool, arguments) in [
            ("move_path", json!({ "source": "top/secretdir", "destination": "open" })),
            ("move_path", json!({ "source": "top", "destination": "open" })),
            ("move_path", json!({ "source": "top/secretdir/s.txt", "destination": "open" })),
            (
                "edit",
                json!({ "path": "top/secretdir/s.txt", "old_string": "planted", "new_string": "x" }),
            ),
        ] {
            let answer = scene.call(tool, arguments).await;
            refused(&answer, "secretdir");
            assert!(!text(&answer).contains(SECRET));
        }
        assert!(
            !scene.granted.join("open").exists()
                && scene.granted.join("top/secretdir/s.txt").exists()
        );
    });
}

#[test]
fn commands_see_nothing_that_a_rule_denies() {
    run(async {
        let rules = "[{ effect = \"deny\", paths = [\"top/secretdir\", \"/etc/hostname\"], tools = [\"bash\"] }, { effect = \"deny\", paths = [\"top/kept\"], access = \"write\" }]";
        let scene =
            Scene::with(&["tools.call=60", &format!("tools.policy.rules={rules}")], planted).await;
        let command = "find . -type f; cat top/*.txt top/*/*.txt; cat top/secretdir/s.txt; mv top elsewhere; mv top/secretdir x; cp -r top/secretdir y; cat /etc/hostname && echo HOST; \
                       echo changed > top/kept/u.txt; rm -f top/kept/u.txt; mv top/kept top/other; echo made > top/new.txt";
        let answer = agreed(&scene, "bash", json!({ "command": command })).await;
        let ran = text(&answer);
        assert!(ran.contains("an open text") && ran.contains("kept"), "{ran}");
        assert!(!ran.contains(SECRET) && !ran.contains("HOST"), "{ran}");
        let at = |path: &str| scene.granted.join(path);
        assert_eq!(fs::read_to_string(at("top/secretdir/s.txt")).expect("it is there"), SECRET);
        assert_eq!(fs::read_to_string(at("top/kept/u.txt")).expect("it is there"), "kept");
        assert_eq!(fs::read_to_string(at("top/new.txt")).expect("it was made"), "made\n");
        assert!(!at("elsewhere").exists());
        let alone =
            text(&agreed(&scene, "bash", json!({ "command": "cat top/secretdir/s.txt" })).await);
        assert!(alone.contains("top/secretdir/s.txt: effect = "), "{alone}");
        // Another tool's rule doesn't apply to commands.
        let scene =
            Scene::with(&["tools.policy.rules=[{ effect = \"deny\", paths = [\"secretdir\"], tools = [\"read\"] }]"], planted).await;
        assert!(
            text(&agreed(&scene, "bash", json!({ "command": "cat top/secretdir/s.txt" })).await)
                .contains(SECRET)
        );
    });
}

#[test]
fn programs_of_a_plugin_see_nothing_that_a_rule_denies() {
    run(async {
        let path = format!("plugins.hostile-process.path={:?}", plugin("hostile-process"));
        let granted = "plugins.hostile-process.allowed_paths=[\"{granted}\"]";
        let programs = "plugins.hostile-process.programs=[\"tail -n 1 **\"]";
        let all = [
            path.as_str(),
            "plugins.hostile-process.reload=trust",
            "tools.call=60",
            granted,
            programs,
        ];
        let words = json!({ "words": ["tail", "-n", "1", "top/open.txt", "top/secretdir/s.txt"] });
        for (rule, is_seen) in [
            ("[]", true),
            ("[{ effect = \"deny\", paths = [\"secretdir\"] }]", false),
            (
                "[{ effect = \"allow\", access = \"write\" }, { effect = \"deny\", paths = [\"secretdir\"], access = \"read\" }]",
                false,
            ),
        ] {
            let rule = format!("tools.policy.rules={rule}");
            let scene = Scene::with(&[&all[..], &[&rule]].concat(), planted).await;
            let ran = text(&scene.call("hostile-process__run_program", words.clone()).await);
            assert!(ran.contains("an open text"), "{ran}");
            assert_eq!(ran.contains(SECRET), is_seen, "{ran}");
        }
    });
}

#[test]
fn absolute_pattern_acts_on_its_folder() {
    run(async {
        let scene = Scene::with(
            &["tools.permissions.find_path=[{ pattern = \"secretdir\", action = \"deny\" }]"],
            planted,
        )
        .await;
        let pattern =
            |path: &str| json!({ "pattern": format!("{}/{path}", scene.granted.display()) });
        for path in ["top/secretdir/*.txt", "top/secretdir/s.txt", "top/secretdir/deep/**"] {
            let answer = scene.call("find_path", pattern(path)).await;
            refused(&answer, "secretdir");
            assert!(
                !answer.steps.iter().any(|step| step.name == "run"),
                "{path}: the gates know of it"
            );
        }
        let checked = scene.host.check(Request::new("find_path", pattern("top/kept/*.txt")));
        let acted_on: Vec<&str> =
            checked.subjects.iter().map(|subject| subject.text.as_str()).collect();
        assert_eq!(acted_on, [scene.granted.join("top/kept").display().to_string()]);
        assert_eq!(
            scene
                .call("find_path", pattern("top/kept/*.txt"))
                .await
                .outcome
                .expect("it is allowed")
                .joined_text(),
            "top/kept/u.txt\n"
        );
        let found = text(&scene.call("find_path", pattern("top/*.txt")).await);
        assert!(
            found.contains("top/open.txt") && !found.contains("u.txt"),
            "only what is directly there: {found}"
        );
        let found = text(&scene.call("find_path", pattern("top/**/*.txt")).await);
        assert!(found.contains("top/open.txt") && !found.contains("s.txt"), "{found}");
        let outside = json!({ "pattern": format!("{}/*", scene.outside.display()) });
        refused(&scene.call("find_path", outside).await, "allowed_paths");
    });
}

#[test]
fn stored_answer_is_not_served_under_other_rules() {
    run(async {
        let scene = Arc::new(Scene::with(&[], planted).await);
        let arguments = json!({ "pattern": "planted", "path": "top" });
        let folders = toolhold_core::config::Folders::inside(&scene.root().join("toolhold"));
        let rules = |set: &[&str]| {
            let settings = ["tools.autonomy=full"]
                .iter()
                .chain(set)
                .map(|&setting| setting.to_owned())
                .collect();
            let inputs = toolhold_core::config::Inputs { settings, ..Default::default() };
            scene
                .host
                .reload_rules(
                    &toolhold_core::config::load(&folders, &inputs).expect("they are right"),
                )
                .expect("they are right");
        };
        let mut kept = scene.call("grep", arguments.clone()).await;
        for _ in 0..10_000 {
            if kept.cached {
                break;
            }
            kept = scene.call("grep", arguments.clone()).await;
        }
        assert!(kept.cached && text(&kept).contains(SECRET), "an answer without rules is kept");
        rules(&["tools.policy.rules=[{ effect = \"deny\", paths = [\"secretdir\"] }]"]);
        for _ in 0..50 {
            let answer = scene.call("grep", arguments.clone()).await;
            assert!(!text(&answer).contains(SECRET), "{}", text(&answer));
        }
        rules(&["tools.policy.rules=[{ effect = \"deny\", paths = [\"secretdir/deep\"] }]"]);
        let answer = text(&scene.call("grep", arguments.clone()).await);
        assert!(answer.contains("s.txt") && !answer.contains("t.txt"), "{answer}");
        rules(&[]);
        assert!(text(&scene.call("grep", arguments).await).contains("t.txt"));
    });
}
