//! Commands in their sandbox: what they must not reach, and what ordinary work needs.
//!
//! Each test of a limit checks the other side: the listening socket, the file outside, the list of
//! processes. And each has a counterpart in which the same command is allowed and succeeds, so that
//! a command that fails for another reason proves nothing.

mod bounds;
mod environment;
mod fallback;
mod files;
mod floods;
mod host_attacks;
mod host_floods;
mod host_programs;
mod host_questions;
pub(crate) mod hosts;
pub(crate) mod hosts_without_namespaces;
mod job_servers;
mod jobs;
mod kernels;
mod modes;
mod network;
mod package_servers;
mod placeholders;
pub(crate) mod process_lifetime;
mod session_state;
mod shared_network;
mod sockets;
mod terminals;
mod warm_sandbox;
mod work;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolhold_core::{Answer, Approver, BoxFuture, Category, Host, Question, Reply, Request, Scope};

use crate::support::{Scene, not_tried};

/// A scene in which commands run without approval, with enough time for a slow machine.
pub(super) async fn scene(settings: &[&str], prepare: impl FnOnce(&Path)) -> Scene {
    let mut all = vec![
        "tools.call=60",
        "tools.limits.result_mib=8",
        "tools.shell.allowed_commands=[\"dd if=\"]",
    ];
    all.extend(settings);
    Scene::with(&all, prepare).await
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: i64,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Approves every call, and can't be asked about hosts.
struct CallsOnly;

impl Approver for CallsOnly {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        let reply = match question.host {
            Some(_) => Reply::Unasked("nobody is here".to_owned()),
            None => Reply::Yes { scope: Scope::Once, by: "a test".to_owned() },
        };
        Box::pin(std::future::ready(reply))
    }
}

/// Approves every call: no person holds anything back here.
pub(super) fn yes() -> Arc<dyn Approver> {
    Arc::new(CallsOnly)
}

/// Calls the tool without approval.
pub(super) async fn call(host: &Host, arguments: Value) -> Answer {
    host.call(Request { approver: Some(yes()), ..Request::new("bash", arguments) }).await
}

/// Runs a command that must end with an exit code.
pub(super) async fn run(scene: &Scene, command: &str) -> Ran {
    ran_of(scene, json!({ "command": command })).await
}

/// The same with all arguments.
pub(super) async fn ran_of(scene: &Scene, arguments: Value) -> Ran {
    let answer = call(&scene.host, arguments.clone()).await;
    ran(&answer).unwrap_or_else(|| panic!("{arguments}: {:?}", answer.outcome))
}

/// The result of a command.
pub(super) fn ran(answer: &Answer) -> Option<Ran> {
    let structured = match &answer.outcome {
        Ok(output) => output.structured.clone()?,
        Err(failure) if failure.category == Category::PermanentFailure => {
            failure.structured.clone()?
        }
        Err(_) => return None,
    };
    let text = |name: &str| structured[name].as_str().map(str::to_owned);
    Some(Ran {
        code: structured["exit_code"].as_i64()?,
        stdout: text("stdout")?,
        stderr: text("stderr")?,
    })
}

/// Whether a program is installed. Reports if it isn't: less is tried then.
pub(super) fn there_is(program: &str) -> bool {
    let there = ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists());
    if !there {
        not_tried(program);
    }
    there
}
