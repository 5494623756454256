//! Components for versions of the contract, and of WASI, that this host doesn't know.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use toolhold_core::Request;

use super::{host, served};
use crate::support::{Component, Offer, loot, run};

/// Whether a component serves, or why not.
async fn served_or_why(component: &Component) -> Result<String, String> {
    let folder = TempDir::new().expect("a temporary folder is made");
    let file = folder.path().join("handmade.wasm");
    fs::write(&file, component.encode()).expect("the plugin is written");
    let host = host(folder.path(), &[], &served("handmade", &file)).await;
    let answer = host.call(Request::new("handmade__tool", json!({}))).await;
    match &answer.outcome {
        Ok(_) => Ok(loot(&answer)),
        Err(failure) => {
            Err(failure.message.clone() + failure.suggestion.as_deref().unwrap_or_default())
        }
    }
}

fn component() -> Component {
    Component { on_call: "", answer: "it runs", ..Component::offering(vec![Offer::named("tool")]) }
}

#[test]
fn version_of_the_contract_serves() {
    run(async {
        assert_eq!(served_or_why(&component()).await.as_deref(), Ok("it runs"));
    });
}

#[test]
fn unknown_version_is_refused_with_both_versions_and_what_to_do() {
    run(async {
        for (export, version) in [
            ("toolhold:tool/tools@0.2.0", "0.2.0"),
            ("toolhold:tool/tools@1.0.0", "1.0.0"),
            ("toolhold:tool/tools@0.1.1", "0.1.1"),
            ("toolhold:tool/tools@0.1.0-rc.1", "0.1.0-rc.1"),
            ("toolhold:tool/tools", "no version"),
        ] {
            let why = served_or_why(&Component { export, ..component() }).await;
            let why = why.expect_err("it doesn't serve");
            let wanted = format!(
                "the component was built for toolhold:tool {version}, but this Toolhold has 0.1.0"
            );
            assert!(why.contains(&wanted) && why.contains("update Toolhold"), "{export}: {why}");
        }
        for import in
            ["toolhold:host/log@0.1.1", "toolhold:host/log@0.3.0", "toolhold:tool/types@0.2.9"]
        {
            let fields: &'static str = format!("(import \"{import}\" (instance))").leak();
            let why = served_or_why(&Component { in_component: fields, ..component() }).await;
            let why = why.expect_err("it doesn't serve");
            let version = import.split('@').next_back().unwrap_or_default();
            assert!(why.contains(version) && why.contains("has 0.1.0"), "{import}: {why}");
        }
    });
}

/// A released version gets new functions, and an older host doesn't have them.
#[test]
fn function_that_this_host_lacks_is_refused_with_what_to_do() {
    run(async {
        for import in [
            r#"(import "toolhold:host/log@0.1.0" (instance (export "whisper" (func))))"#,
            r#"(import "toolhold:host/call@0.1.0" (instance (export "cancelled" (func (result u8)))))"#,
        ] {
            let why = served_or_why(&Component { in_component: import, ..component() }).await;
            let why = why.expect_err("it doesn't serve");
            let interface = import.split('"').nth(1).unwrap_or_default();
            assert!(why.contains(interface) && why.contains("update Toolhold"), "{import}: {why}");
        }
    });
}

#[test]
fn interface_that_a_version_lacks_is_refused() {
    run(async {
        let fields = "(import \"toolhold:host/telepathy@0.1.0\" (instance))";
        let why = served_or_why(&Component { in_component: fields, ..component() }).await;
        let why = why.expect_err("it doesn't serve");
        let said = "`toolhold:host/telepathy@0.1.0`, which is not granted";
        assert!(why.contains(said), "{why}");
    });
}

#[test]
fn wasi_0_3_is_refused_in_plain_words() {
    run(async {
        for import in ["wasi:cli/environment@0.3.0", "wasi:http/client@0.3.1"] {
            let fields: &'static str = format!("(import \"{import}\" (instance))").leak();
            let why = served_or_why(&Component { in_component: fields, ..component() }).await;
            let why = why.expect_err("it doesn't serve");
            let wanted = format!(
                "built for WASI 0.3 (`{import}`), which this version of Toolhold doesn't run"
            );
            assert!(why.contains(&wanted) && why.contains("wasm32-wasip2"), "{import}: {why}");
        }
    });
}
