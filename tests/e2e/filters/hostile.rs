//! Filters that do forbidden things. One that shortens fails open, one that blocks fails closed,
//! and neither reaches anything.

use serde_json::json;
use toolhold_core::{Answer, Category, Request, Session};

use super::{contents, text};
use crate::support::{ATTACK_MIB, Scene, log_with, plugin, run_alone};

/// The text of the answer that they look at.
const LINES: &str = "seq -f 'line %g of a long output' 1 100";

async fn scene() -> Scene {
    let path = format!("plugins.hostile-filter.path={:?}", plugin("hostile-filter"));
    let settings =
        [&*path, "plugins.hostile-filter.reload=trust", "tools.filters.chain=[\"hostile-filter\"]"];
    Scene::with(&settings, |_| {}).await
}

async fn asked(scene: &Scene, deed: &str) -> Answer {
    // The words after `:` are part of the command and do nothing.
    scene.call("bash", json!({ "command": format!("{LINES}; true {deed}") })).await
}

async fn of_command(scene: &Scene, deed: &str) -> Answer {
    scene
        .call(
            "bash",
            json!({ "command": format!("seq -f 'line %g of a long output for {deed}' 1 100") }),
        )
        .await
}

#[test]
fn shortening_filter_fails_open() {
    run_alone(ATTACK_MIB, async {
        let scene = scene().await;
        for deed in ["trap", "hang", "eat", "drop", "grow", "split", "block", "fail"] {
            let answer = of_command(&scene, deed).await;
            let shown = text(&answer);
            assert!(
                shown.contains("line 1 of") && shown.contains("line 100 of"),
                "{deed}: {shown}"
            );
            assert!(answer.outcome.is_ok() && answer.filtered.is_none(), "{deed}: {answer:?}");
        }
        // Others are still served.
        let answer = of_command(&scene, "mark").await;
        assert!(text(&answer).starts_with("marked"), "{}", text(&answer));
    });
}

#[test]
fn security_filter_fails_closed() {
    run_alone(ATTACK_MIB, async {
        let scene = scene().await;
        for deed in ["trap", "hang", "eat", "grow", "split", "block", "fail"] {
            let answer = of_command(&scene, &format!("safe-{deed}")).await;
            let failure = answer.outcome.as_ref().expect_err("it is withheld");
            assert_eq!(
                (failure.category, failure.code.as_deref()),
                (Category::PermanentFailure, Some("withheld")),
                "{deed}"
            );
            assert!(
                contents(&answer).is_empty() && failure.structured.is_none(),
                "{deed}: {failure:?}"
            );
            assert!(
                failure.message.contains("hostile-filter/safe-")
                    && !failure.message.contains('\u{1b}'),
                "{failure:?}"
            );
        }
    });
}

#[test]
fn security_filter_sees_the_whole_output_and_leaves_no_overflow() {
    run_alone(ATTACK_MIB, async {
        let scene = scene().await;
        let short = scene.call("bash", json!({ "command": "echo a safe-mark" })).await;
        assert_eq!(text(&short), "marked \u{fffd}]0;title\u{fffd} 0\n");
        let all = of_command(&scene, "safe-drop").await;
        assert_eq!((text(&all), all.outcome.is_ok()), (String::new(), true));
        let path = format!("plugins.hostile-filter.path={:?}", plugin("hostile-filter"));
        let chain = "tools.filters.chain=[\"hostile-filter\"]";
        let off = Scene::with(
            &[&path, "plugins.hostile-filter.reload=trust", chain, "tools.filters.enabled=false"],
            |_| {},
        )
        .await;
        assert!(text(&of_command(&off, "safe-mark").await).starts_with("marked"));
        assert!(text(&of_command(&off, "mark").await).contains("line 7 of"));
    });
}

#[test]
fn security_filter_matches_every_form_of_a_command_line() {
    run_alone(ATTACK_MIB, async {
        let scene = scene().await;
        for command in [
            "echo safe-block",
            "echo safe-block; ls /",
            "ls / && echo safe-block | tail -1",
            "true | echo safe-block",
            "for i in 1; do echo safe-block; done",
            "if true; then echo safe-block; fi",
            "x=safe-block; echo $x",
            "bash -c 'echo safe-block'",
            "cat <<X\nsafe-block\nX",
        ] {
            let answer = scene.call("bash", json!({ "command": command })).await;
            let failure = answer.outcome.as_ref().expect_err("it is withheld");
            assert!(
                ["withheld"].contains(&failure.code.as_deref().unwrap_or_default()),
                "{command}: {failure:?}"
            );
        }
        assert!(scene.call("bash", json!({ "command": "echo safe; ls /" })).await.outcome.is_ok());
    });
}

#[test]
fn structured_answer_is_filtered_too() {
    run_alone(ATTACK_MIB, async {
        let scene = scene().await;
        for name in ["plain.txt", "safe-mark.txt"] {
            std::fs::write(scene.granted.join(name), "a line\n").expect("it is written");
        }
        let plain = scene.call("read", json!({ "path": "plain.txt" })).await;
        assert!(
            plain.outcome.as_ref().is_ok_and(|output| output.structured.is_some()),
            "{plain:?}"
        );
        // It replaces the value with nothing, which isn't JSON.
        let answer = scene.call("read", json!({ "path": "safe-mark.txt" })).await;
        let failure = answer.outcome.as_ref().expect_err("it is withheld");
        assert_eq!(
            (failure.code.as_deref(), &failure.structured),
            (Some("withheld"), &None),
            "{failure:?}"
        );
    });
}

#[test]
fn answers_are_withheld_while_a_filter_plugin_of_the_chain_is_missing() {
    run_alone(ATTACK_MIB, async {
        let held = format!("plugins.hostile-filter.path={:?}", plugin("hostile-filter"));
        for (settings, says) in [
            (&["tools.filters.chain=[\"filters\", \"nowhere\"]"][..], "no plugin has that name"),
            (&[&*held, "tools.filters.chain=[\"hostile-filter\"]"], "approve"),
        ] {
            let scene = Scene::with(settings, |_| {}).await;
            for (tool, arguments) in [
                ("bash", json!({ "command": "echo it is so" })),
                ("read", json!({ "path": "public.txt" })),
            ] {
                let answer = scene.call(tool, arguments).await;
                let failure = answer.outcome.as_ref().expect_err("it is withheld");
                assert_eq!(failure.code.as_deref(), Some("withheld"), "{failure:?}");
                assert!(
                    failure.message.contains(says) && contents(&answer).is_empty(),
                    "{failure:?}"
                );
            }
        }
    });
}

#[test]
fn only_filters_named_in_the_chain_run() {
    run_alone(ATTACK_MIB, async {
        let path = format!("plugins.hostile-filter.path={:?}", plugin("hostile-filter"));
        let scene = Scene::with(&[&path, "plugins.hostile-filter.reload=trust"], |_| {}).await;
        let answer = of_command(&scene, "safe-mark").await;
        assert!(
            text(&answer).contains("line 1 of") && !text(&answer).contains("marked"),
            "{answer:?}"
        );
        assert!(!scene.host.filters().iter().any(|filter| filter.plugin == "hostile-filter"));
    });
}

#[test]
fn filter_instance_belongs_to_one_session_and_ends_with_a_trap() {
    run_alone(ATTACK_MIB, async {
        let scene = scene().await;
        let (mine, yours) = (Session::new("mine"), Session::new("yours"));
        let ask = async |session: &Session, deed: &str, word: &str| {
            let command = format!("seq -f '{word} %g of a long output for {deed}' 1 100");
            text(
                &scene
                    .host
                    .call(Request {
                        session: Some(session.clone()),
                        ..Request::new("bash", json!({ "command": command }))
                    })
                    .await,
            )
        };
        assert!(ask(&mine, "remember", "red").await.starts_with("run 1 after \n"));
        assert!(ask(&yours, "remember", "blue").await.starts_with("run 1 after \n"));
        let second = ask(&mine, "remember", "green").await;
        assert!(second.starts_with("run 2 after red 1 of") && !second.contains("blue"), "{second}");
        ask(&mine, "trap", "any").await;
        assert!(ask(&mine, "remember", "grey").await.starts_with("run 1 after \n"));
        assert!(ask(&yours, "remember", "blue").await.starts_with("run 2 after blue 1 of"));
    });
}

#[test]
fn filter_results_are_redacted_again() {
    run_alone(ATTACK_MIB, async {
        let scene = scene().await;
        let answer = of_command(&scene, "confess").await;
        let shown = text(&answer);
        assert!(shown.starts_with("[REDACTED") && !shown.contains("k3JqT8"), "{shown}");
        assert!(!format!("{:?}", answer.outcome).contains("k3JqT8"));
        let marked = text(&of_command(&scene, "mark").await);
        assert!(marked.starts_with("marked \u{fffd}]0;title\u{fffd} 0"), "{marked}");
    });
}

#[test]
fn third_party_filters_get_no_rules() {
    run_alone(ATTACK_MIB, async {
        let scene = scene().await;
        of_command(&scene, "mark").await;
        assert!(!log_with(&["hostile-filter", "rules: None"]).is_empty());
        assert!(
            asked(&scene, "mark").await.filtered.is_none(),
            "the last command is the one that counts"
        );
    });
}
