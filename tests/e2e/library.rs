//! Toolhold as a library: its examples work, and a host works on every promised kind of runtime.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use toolhold_core::config::Folders;
use toolhold_core::{CancellationToken, Category, Host, Request};

use crate::support::{builtin, example, failure, plugin, run, shared_cache, toolhold, unasked};

/// Runs an example of the library with a folder, and returns what it prints.
#[track_caller]
fn printed(name: &str, folder: &TempDir) -> String {
    // An empty environment, so without a home: it can only use the folder.
    let output = Command::new(example(name))
        .arg(folder.path())
        .env_clear()
        .output()
        .expect("the example starts");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout.into_owned()
}

#[test]
fn embedding_example_lists_calls_and_stops() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let work = folder.path().join("work");
    fs::create_dir(&work)
        .and_then(|()| fs::write(work.join(".env"), "KEY=of-the-person"))
        .expect("a file is written");
    let printed = printed("embed", &folder);
    let work = work.canonicalize().expect("the folder is there");
    for expected in [
        "24 tools, the first of them {\"name\":\"read\",",
        "\"input_schema\":{\"type\":\"object\"",
        &format!("write: Created {}/plan.md", work.display()),
        "read:    1\t1. look around\n",
        "read: invalid_parameters: ",
        &format!("read: refused: read {}/.env\n  by deny_read = \"**/.env\"", work.display()),
        "read: refused: read /etc/passwd\n  by allowed_paths",
        "path = \"/etc\", access = \"read\" }",
        "grep: cancelled: ",
    ] {
        assert!(printed.contains(expected), "{expected:?} is missing in:\n{printed}");
    }
    assert!(!printed.contains("of-the-person") && !printed.contains("root:"), "{printed}");
    assert_eq!(
        fs::read_to_string(work.join("plan.md")).expect("the tool wrote it"),
        "1. look around\n"
    );
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .expect("it is there")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["toolhold", "work"], "Toolhold's own files are where the program said");
}

#[test]
fn provider_example_is_checked_shaped_and_cancelled() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let printed = printed("provider", &folder);
    for expected in [
        "tools: read, write, edit, grep, find_path, list_directory, create_directory, copy_path, move_path, delete_path, bash, fetch, web_scrape, http_request, memory_save, memory_search, memory_forget, search_code, diagnostics, read_overflow, job_output, job_list, job_stop, undo, remind\n",
        "… 1 of 4 quarters\n… 2 of 4 quarters\n… 3 of 4 quarters\n… 4 of 4 quarters\nTea!\n",
        "invalid_parameters: the arguments don't match the schema of `remind`: seconds: ",
        "\nred\n",
        "cancelled: ",
    ] {
        assert!(printed.contains(expected), "{expected:?} is missing in:\n{printed}");
    }
    assert!(!printed.contains('\u{1b}') && !printed.contains("Too late!"), "{printed:?}");
}

#[test]
fn host_works_on_a_runtime_of_one_thread() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let folders =
        Folders { cache: shared_cache(), ..Folders::inside(&folder.path().join("toolhold")) };
    let reactor = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a reactor starts");
    reactor.block_on(async {
        let builder = Host::builder()
            .config(unasked(&folders))
            .folders(folders)
            .working_directory(folder.path())
            .helper(toolhold());
        let builder =
            builder.builtins(&[builtin("file"), builtin("bench")]).plugin_file(plugin("hostile"));
        let host = std::sync::Arc::new(builder.build().await.expect("the plugins load"));
        fs::write(folder.path().join("a.txt"), "here").expect("a file is written");
        let read = host.call(Request::new("read", json!({ "path": "a.txt" }))).await;
        assert!(read.outcome.expect("it reads").joined_text().contains("here"));
        // A guest that never ends keeps the single thread neither from other calls nor from ending
        // it.
        let cancel = CancellationToken::new();
        let endless =
            Request { cancel: cancel.clone(), ..Request::new("hostile__loop_forever", json!({})) };
        let of_task = std::sync::Arc::clone(&host);
        let spinning = tokio::spawn(async move { of_task.call(endless).await });
        for text in ["one", "two"] {
            let echo = host.call(Request::new("echo", json!({ "text": text }))).await;
            assert_eq!(echo.outcome.expect("it echoes").joined_text(), text);
        }
        assert!(!spinning.is_finished());
        cancel.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(60), spinning)
            .await
            .expect("it ends")
            .expect("nothing panics");
        failure(&ended, Category::Cancelled, None);
    });
    reactor.shutdown_background();
}

/// Whoever can change a part of the path would choose which folder is granted.
#[test]
fn working_directory_that_is_a_link_is_refused() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let real = folder.path().canonicalize().expect("it is there");
    fs::create_dir(real.join("others")).expect("a folder is made");
    symlink("others", real.join("link")).expect("a link is made");
    let folders =
        Folders { cache: shared_cache(), ..Folders::inside(&folder.path().join("toolhold")) };
    run(async move {
        let build = |directory| {
            Host::builder().folders(folders.clone()).working_directory(directory).build()
        };
        let refused = build(real.join("link")).await.err().expect("it is a link").to_string();
        let told = format!("isn't a real path; give {}", real.join("others").display());
        assert!(refused.contains(&told), "{refused}");
        build(real.join("others")).await.expect("it is a real path");
    });
}
