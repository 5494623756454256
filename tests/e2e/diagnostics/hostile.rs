//! Projects that attack through their compilers: what they run, and what it writes.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_core::Category;

use super::{RUST, call, found, scene, state};
use crate::shell::process_lifetime::{assert_gone, mark, stubborn, with_word};
use crate::support::Scene;

/// A project whose `tsc` is this script.
async fn with_tsc(settings: &[&str], script: &str) -> Scene {
    let scene = scene(settings, &[("tsconfig.json", "{}")]).await;
    let folder = scene.granted.join("node_modules/.bin");
    fs::create_dir_all(&folder).expect("it is made");
    let program = folder.join("tsc");
    fs::write(&program, format!("#!/bin/bash\n{script}\n")).expect("it is written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is executable");
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn build_script_reaches_neither_outside_nor_a_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("it doesn't wait");
    let port = listener.local_addr().expect("it is bound").port();
    let scene = scene(&[], &RUST[..1]).await;
    let socket = scene.outside.join("socket");
    let local = UnixListener::bind(&socket).expect("it is bound");
    local.set_nonblocking(true).expect("it doesn't wait");
    let script = format!(
        "fn main() {{\n\
           let _ = std::fs::write({:?}, \"x\");\n\
           let _ = std::net::TcpStream::connect((\"127.0.0.1\", {port}));\n\
           let _ = std::os::unix::net::UnixStream::connect({socket:?});\n\
           let _ = std::process::Command::new(\"sh\").args([\"-c\", {:?}]).status();\n\
           std::fs::write(\"ran\", \"x\").unwrap();\n\
         }}\n",
        scene.outside.join("written"),
        format!("echo x > {}", scene.outside.join("written2").display()),
    );
    fs::create_dir(scene.granted.join("src")).expect("it is made");
    fs::write(scene.granted.join("src/lib.rs"), "").expect("it is written");
    fs::write(scene.granted.join("build.rs"), script).expect("it is written");
    let (text, _) = found(&scene, json!({})).await;
    assert!(scene.granted.join("ran").exists(), "the script ran: {text}");
    for name in ["written", "written2"] {
        assert!(!scene.outside.join(name).exists(), "{name}");
    }
    let waiting = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
    assert!(listener.accept().is_err_and(waiting), "nobody connected");
    assert!(local.accept().is_err_and(waiting), "nobody connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_output_is_cut_and_what_was_found_stays() {
    let line = "a.ts(1,1): error TS1: first";
    let flood = "head -c 104857600 /dev/zero | tr '\\0' x";
    let scene = with_tsc(&[], &format!("echo '{line}'; {flood}; echo; sleep 600")).await;
    let (text, structured) = found(&scene, json!({ "timeout": 60 })).await;
    assert!(text.starts_with("a.ts:1:1: error: first [TS1]\n"), "{text}");
    assert_eq!(state(&structured, "tsc"), "cut", "{text}");
    assert!(text.len() < 2_000, "{}", text.len());
    let many = "for i in $(seq 60000); do echo \"a.ts($i,1): error TS1: no\"; done; exit 2";
    let scene = with_tsc(&[], many).await;
    let (text, structured) = found(&scene, json!({ "timeout": 60 })).await;
    assert_eq!(structured["total"], 60_000, "{text}");
    assert_eq!(structured["diagnostics"].as_array().map(Vec::len), Some(50));
    assert!(text.contains("50 of 60000 diagnostics are shown"), "{text}");
    let (_, structured) = found(&scene, json!({ "timeout": 60, "max": 2 })).await;
    assert_eq!(structured["diagnostics"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn checker_that_hangs_is_stopped_with_all_that_it_started() {
    let mark = mark(91, 0);
    let scene =
        with_tsc(&[], &format!("echo 'a.ts(1,1): error TS1: no'; {}", stubborn(&mark))).await;
    let began = Instant::now();
    let (text, structured) = found(&scene, json!({ "timeout": 4 })).await;
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(state(&structured, "tsc"), "timeout", "{text}");
    assert!(text.starts_with("a.ts:1:1: error: no [TS1]\n"), "{text}");
    assert_gone(&mark);
    // It leaves nothing behind either if it ends by itself.
    let script = format!("setsid sleep {mark} & disown -a; exit 0");
    let scene = with_tsc(&[], &script).await;
    found(&scene, json!({})).await;
    assert_eq!(with_word(&mark), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_can_not_steer_and_holds_no_secret() {
    let token = ["ghp_", "k3JqT8vXw2LmZr9BnYd5Hs7Gf1Ec4Pa6Uo0i"].concat();
    let script = format!(
        "printf 'a.ts(1,1): error TS1: \\033]0;x\\007\\033[31mred \\342\\200\\256edoc %s\\rhidden\\n' {token}; exit 2"
    );
    let scene = with_tsc(&[], &script).await;
    let (text, structured) = found(&scene, json!({})).await;
    let both = text.clone() + &structured.to_string();
    for steering in ["\u{1b}", "\u{7}", "\u{202e}", "\\u001b", "\\u202e", "\r"] {
        assert!(!both.contains(steering), "{steering:?}: {both:?}");
    }
    assert!(text.contains("red") && !both.contains(&token), "{both}");
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_outside_is_refused() {
    let scene = scene(&[], &RUST).await;
    fs::write(scene.outside.join("Cargo.toml"), "[package]").expect("it is written");
    for path in [scene.outside.clone(), scene.granted.join("../outside")] {
        let failure = call(&scene, json!({ "path": path })).await.outcome.expect_err("refused");
        assert_eq!(failure.category, Category::PolicyBlocked, "{failure:?}");
    }
}
