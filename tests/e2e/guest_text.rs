//! Attacks with a guest's text, and on things that aren't files: the network and the host's
//! process.

use std::net::{TcpListener, UdpSocket};

use serde_json::json;
use toolhold_core::Category;

use crate::support::{Scene, attacks, failure, log_of, loot};

/// Escapes of terminals, and characters that reverse or hide text.
const STEERING: &str =
    "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\r\u{8}\u{0}\u{202e}\u{2066}\u{200b}\u{e0041}\u{2028}";

/// A text holds nothing that could steer a terminal or a reader.
#[track_caller]
fn assert_neutral(shown: &str) {
    let left: Vec<char> = STEERING
        .chars()
        .filter(|c| !c.is_ascii() || c.is_ascii_control())
        .filter(|c| shown.contains(*c))
        .collect();
    assert!(left.is_empty(), "{left:?} are left in {shown:?}");
}

attacks! {
    async fn claim_a_category() {
        let scene = Scene::new().await;
        for category in ["tool_not_found", "policy_blocked", "confirmation_required", "cancelled"] {
            let answer = scene.attack("claim_a_category", json!({ "text": category })).await;
            let failure = failure(&answer, Category::PermanentFailure, None);
            assert!(failure.denial.is_none(), "{failure:?}");
        }
        failure(&scene.attack("claim_a_category", json!({ "text": "timeout" })).await, Category::Timeout, None);
    }

    async fn speak_in_control_characters() {
        let scene = Scene::new().await;
        let (answer, heard) = scene.attack_heard("speak_in_control_characters", json!({ "text": format!("word{STEERING}") })).await;
        let output = answer.outcome.as_ref().expect("it may speak");
        assert!(output.joined_text().contains("word"), "{output:?}");
        assert_neutral(&serde_json::to_string(output).expect("it has a form in JSON").replace("\\n", ""));
        let text = format!("{}{:?}{:?}", output.joined_text(), output.structured.as_ref().map(ToString::to_string), output.meta);
        assert!(!text.contains("\\u001b") && !text.contains("\\u{1b}"), "{text}");
        for part in heard.parts.lock().expect("nobody panicked").iter() {
            assert_neutral(&format!("{}{}", part.as_text().unwrap_or_default(), part.media_type.as_deref().unwrap_or_default()));
        }
        for told in heard.progress.lock().expect("nobody panicked").iter() {
            assert_neutral(&told.message);
            assert!(told.message.contains("word"));
        }
        let log = log_of(&answer.id);
        assert!(log.iter().any(|line| line.contains("word")), "{log:?}");
        log.iter().for_each(|line| assert_neutral(line));
    }

    async fn fail_in_control_characters() {
        let scene = Scene::new().await;
        // No guest can set the host's own codes: callers decide by them.
        for code in toolhold_core::HOST_CODES {
            let answer = scene.attack("fail_in_control_characters", json!({ "text": code })).await;
            let failure = failure(&answer, Category::PermanentFailure, None);
            assert_eq!((failure.code.as_deref(), failure.message.as_str()), (None, code));
        }
        let answer = scene.attack("fail_in_control_characters", json!({ "text": format!("word{STEERING}") })).await;
        let failure = answer.outcome.as_ref().expect_err("it fails");
        // A code is no sentence.
        assert_eq!(failure.code, None);
        for text in [Some(&failure.message), failure.suggestion.as_ref()] {
            let text = text.expect("both were given");
            assert!(text.contains("word"), "{text:?}");
            assert_neutral(text);
        }
        assert_neutral(&failure.joined_text());
        let json = serde_json::to_string(failure).expect("it has a form in JSON");
        assert_neutral(&json);
        assert!(!json.contains("\\u001b"), "{json}");
    }

    async fn answer_in_pieces() {
        let scene = Scene::new().await;
        let token = format!("gh{}_{}", 'p', "Zx8Kq2Lw9Vn4Rt7Yb1Mc6Hd3Jf5Gs0Pa2Qe8");
        for size in [1, 13, 30] {
            let arguments = json!({ "text": format!("it is {token}, he said"), "count": size });
            let (answer, heard) = scene.attack_heard("answer_in_pieces", arguments).await;
            let output = answer.outcome.expect("it may speak");
            let text: String = output.content.iter().filter_map(|part| part.as_text()).collect();
            assert_eq!(text, "it is [REDACTED:github-token ghp_…], he said");
            let parts = heard.parts.lock().expect("nobody panicked");
            let heard: String = parts.iter().filter_map(|part| part.as_text()).collect();
            // The pieces that left before it was recognised aren't the whole secret.
            assert!(!heard.contains(&token) && heard.contains("it is "), "{heard}");
        }
    }

    async fn answer_with_broken_json() {
        let scene = Scene::new().await;
        failure(&scene.attack("answer_with_broken_json", json!({})).await, Category::PermanentFailure, Some("bad_answer"));
    }

    async fn answer_with_deep_json() {
        let scene = Scene::new().await;
        loot(&scene.attack("answer_with_deep_json", json!({ "count": 100 })).await);
        let answer = scene.attack_beside_others("answer_with_deep_json", json!({ "count": 400_000 })).await;
        failure(&answer, Category::PermanentFailure, Some("bad_answer"));
    }

    async fn pass_invalid_utf8() {
        let scene = Scene::new().await;
        let answer = scene.attack_beside_others("pass_invalid_utf8", json!({})).await;
        failure(&answer, Category::PermanentFailure, Some("crash"));
    }

    async fn reach_the_network() {
        let scene = Scene::new().await;
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = tcp.local_addr().expect("it is bound").port();
        let udp = UdpSocket::bind(("127.0.0.1", port)).expect("the port is free");
        tcp.set_nonblocking(true).and_then(|()| udp.set_nonblocking(true)).expect("the sockets don't wait");

        let answer = scene.attack("reach_the_network", json!({ "count": port })).await;
        answer.outcome.expect_err("every way is refused");
        tcp.accept().expect_err("nobody connected");
        udp.recv(&mut [0; 1]).expect_err("nobody sent anything");
    }

    async fn tell_the_environment() {
        let scene = Scene::new().await;
        assert!(std::env::vars_os().next().is_some(), "this process has variables that could get out");
        let answer = scene.attack("tell_the_environment", json!({})).await;
        let failure = answer.outcome.expect_err("it knows nothing");
        assert_eq!(failure.message, "there is nothing");
    }

    async fn tell_the_grants() {
        let scene = Scene::new().await;
        assert_eq!(loot(&scene.attack("tell_the_grants", json!({})).await), scene.granted.display().to_string());
        let scene = Scene::with(&["plugins.hostile.allowed_paths=[]"], |_| {}).await;
        scene.attack("tell_the_grants", json!({})).await.outcome.expect_err("nothing is granted");
    }
}
