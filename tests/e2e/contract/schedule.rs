//! `toolhold:host/schedule`: the tasks of a plugin of a third party, and what it can't do with
//! them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use toolhold_core::{Category, Host, Request, Session};

use super::{host, served};
use crate::support::{builtin, failure, loot, plugin, run, said_by};

const NAME: &str = "hostile-schedule";

async fn scene(folder: &Path, settings: &[&str]) -> Host {
    let mut all = served(NAME, &plugin(NAME));
    all.push("tools.scheduler.enabled=true".to_owned());
    all.extend(settings.iter().map(|setting| (*setting).to_owned()));
    host(folder, &[builtin("file"), builtin("shell"), builtin("scheduler")], &all).await
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder is made")
}

fn request(tool: &str, arguments: Value) -> Request {
    Request::new(format!("{NAME}__{tool}"), arguments)
}

/// What the plugin answers, without the host's notice that no process runs tasks.
async fn call(host: &Host, tool: &str, arguments: Value) -> String {
    let answer = loot(&host.call(request(tool, arguments)).await);
    answer.lines().filter(|line| !line.starts_with("[No process runs tasks")).collect()
}

fn own(name: &str) -> Value {
    json!({ "name": name, "tool": "hostile-schedule__list" })
}

#[test]
fn plugin_without_a_grant_is_refused() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[]).await;
        let answer = host.call(request("list", json!({}))).await;
        let failed = answer.outcome.expect_err("it doesn't load");
        let said = format!("{} {:?}", failed.message, failed.suggestion);
        assert!(
            said.contains("toolhold:host/schedule@0.1.0") && said.contains("schedule_tasks = 16"),
            "{said}"
        );
        assert!(!folder.path().join("toolhold/data/schedule").exists());
    });
}

#[test]
fn plugin_makes_tasks_of_its_own_tools_alone() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-schedule.schedule_tasks=3"]).await;
        assert!(call(&host, "put", own("mine")).await.contains('T'));
        for other in [
            json!({ "name": "x", "tool": "bash", "arguments": { "command": "true" } }),
            json!({ "name": "x", "tool": "shell", "arguments": { "command": "true" } }),
            json!({ "name": "x", "tool": "schedule_periodic", "arguments": { "name": "y", "cron": "@daily", "prompt": "z" } }),
            json!({ "name": "x" }),
        ] {
            let answer = host.call(request("put", other)).await;
            let failed = failure(&answer, Category::PermanentFailure, Some("schedule-denied"));
            assert!(said_by(failed).contains("only create tasks for its own tools"), "{failed:?}");
        }
        assert_eq!(call(&host, "list", json!({})).await, "mine");
    });
}

#[test]
fn plugin_and_principal_see_no_other_tasks() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-schedule.schedule_tasks=3"]).await;
        let task = json!({ "name": "theirs", "cron": "@daily", "tool": "list_directory", "arguments": { "path": "." } });
        host.call(Request::new("schedule_periodic", task)).await.outcome.expect("it is made");
        call(&host, "put", own("mine")).await;
        assert_eq!(call(&host, "list", json!({})).await, "mine");
        let session = Some(Session::of_principal("mcp someone 1", "mcp someone"));
        let of_other = Request { session, ..request("list", json!({})) };
        assert_eq!(loot(&host.call(of_other).await), "");
    });
}

#[test]
fn read_only_tool_sub_agent_and_flood_are_stopped() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-schedule.schedule_tasks=3"]).await;
        let sneaked = host.call(request("sneak", own("sneaked"))).await;
        let denied = failure(&sneaked, Category::PolicyBlocked, None);
        assert!(denied.message.contains("read-only tools can't change tasks"), "{denied:?}");
        let caller = Some("helper".to_owned());
        let by_helper = host.call(Request { caller, ..request("put", own("helped")) }).await;
        failure(&by_helper, Category::PermanentFailure, Some("schedule-denied"));
        assert_eq!(call(&host, "list", json!({})).await, "");
        let flooded = call(&host, "flood", json!({})).await;
        assert!(flooded.contains("3 limit: ") && flooded.contains("has 3 tasks"), "{flooded}");
    });
}

#[test]
fn flag_raises_no_number_of_the_file() {
    run(async {
        let folder = folder();
        let file = folder.path().join("toolhold/config/toolhold.toml");
        fs::create_dir_all(file.parent().expect("it has one")).expect("folders are made");
        let path = plugin(NAME);
        fs::write(&file, format!("[plugins.{NAME}]\npath = {path:?}\nschedule_tasks = 1\n"))
            .expect("it is written");
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&file, private).expect("its mode is set");
        let host = scene(folder.path(), &["plugins.hostile-schedule.schedule_tasks=3"]).await;
        let flooded = call(&host, "flood", json!({})).await;
        assert!(flooded.contains("1 limit: ") && flooded.contains("has 1 task"), "{flooded}");
    });
}

#[test]
fn disabled_scheduler_keeps_no_tasks() {
    run(async {
        let folder = folder();
        let settings =
            ["plugins.hostile-schedule.schedule_tasks=3", "tools.scheduler.enabled=false"];
        let host = scene(folder.path(), &settings).await;
        let answer = host.call(request("put", own("mine"))).await;
        let failed = failure(&answer, Category::PermanentFailure, Some("schedule-unavailable"));
        let said = said_by(failed);
        assert!(said.contains("tasks are disabled: enabled = false"), "{said}");
        // Its words reach a model inside a fence, and nowhere else.
        assert!(said.starts_with("<external-data tool=\"hostile-schedule__put\""), "{said}");
        assert_eq!(failed.message, "`hostile-schedule__put` failed");
        assert!(said.contains("leave out `--set tools.scheduler.enabled=false`"), "{said}");
        assert!(!folder.path().join("toolhold/data/schedule").exists());
    });
}
