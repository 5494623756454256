//! One call of a tool as the host gives it to a source, and the events of a running call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    CallerSource, ChangeRecorder, CommandApprover, Content, Inquirer, JobServers, JobStarter,
    OutputRecorder, PathRules, Report, ServiceKeeper, ShellSession, TaskBook,
};

/// One call of a tool, in the form that the host gives to a provider.
#[derive(Clone)]
pub struct Call {
    /// The ID of this call in logs and in the audit.
    pub id: CallId,
    /// The tool's full name, resolved.
    pub tool: String,
    /// A JSON object that matches the tool's input schema; path subjects are absolute.
    pub arguments: Arc<Value>,
    /// Large or binary arguments. The JSON refers to them as `{"$attachment": 0}`.
    pub attachments: Vec<Content>,
    /// Data that the caller sent next to the arguments: a JSON object of at most 64 KiB.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// The tool's time limit if its arguments name one; otherwise the provider's default applies.
    /// The provider adds time for the answer.
    pub time: Option<Duration>,
    /// The agent that calls, unless it is the primary one.
    pub caller: Option<String>,
    /// The session of the call. The calls of one caller share a session, and no other caller has
    /// it.
    pub session: Arc<str>,
    /// The caller, for plugins that ask. `None`: the caller is unknown.
    pub caller_info: Option<Arc<dyn CallerSource>>,
    /// Whether the call only reads: its requests are `GET` and `HEAD`, and its directories are
    /// read-only.
    pub read_only: bool,
    /// The rules about calls for the paths that it reaches. `None`: only the grants apply.
    pub path_rules: Option<Arc<dyn PathRules>>,
    /// Saves the files that the call changes, so that the call can be undone. `None`: nothing is
    /// saved.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// The commands of the call.
    pub commands: CallCommands,
    /// The requests of the call.
    pub requests: CallRequests,
    /// The tasks that the call's plugin has made. `None`: it may make none.
    pub tasks: Option<Arc<dyn TaskBook>>,
    /// Puts questions of the provider's own to the person. `None`: nobody can be asked.
    pub inquirer: Option<Arc<dyn Inquirer>>,
    /// Receives the provider's report of the call beside its outcome.
    pub report: Arc<Report>,
    /// Receives progress and partial output.
    pub events: Arc<dyn Events>,
    /// Set when the caller stops waiting.
    pub cancel: CancellationToken,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.id)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

/// The commands of a call: which ones it may run, and where their output and changes go. By
/// default, a shell may run no commands, and nothing is kept.
#[derive(Clone, Default)]
pub struct CallCommands {
    /// The commands that the call names and the gates allowed: a shell may run exactly these.
    pub lines: Vec<String>,
    /// Whether processes may reach the network.
    pub network: bool,
    /// Variables that the session adds to their environment.
    pub variables: Vec<(String, String)>,
    /// Decides on the commands that the provider chooses by itself. `None`: it may choose none.
    pub approver: Option<Arc<dyn CommandApprover>>,
    /// Saves the files that the commands change. `None`: nothing is saved.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// Keeps the whole output of the commands. `None`: nothing is kept.
    pub output: Option<Arc<dyn OutputRecorder>>,
    /// Starts commands that go on after the call. `None`: it may start none.
    pub jobs: Option<Arc<dyn JobStarter>>,
    /// Keeps the programs that outlive it. `None`: nothing outlives it.
    pub services: Option<Arc<dyn ServiceKeeper>>,
    /// The state that the commands start with, and leave for later ones. `None`: nothing is carried
    /// over.
    pub shell: Option<Arc<dyn ShellSession>>,
}

/// The requests of a call: where they may go beside the grants.
#[derive(Clone, Default)]
pub struct CallRequests {
    /// The origins (`https://example.com`) of the URLs that the call names and the gates allowed.
    pub origins: Vec<String>,
    /// The servers that run as jobs of the session. `None`: it has no jobs.
    pub job_servers: Option<Arc<dyn JobServers>>,
}

/// The ID of a call: opaque, unique, at most 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct CallId(pub Arc<str>);

impl From<String> for CallId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<CallId> for String {
    fn from(CallId(id): CallId) -> Self {
        (*id).to_owned()
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The progress of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// From 0 to 1, if known.
    pub fraction: Option<f64>,
    /// The current activity. From a plugin: at most 200 characters, without control characters.
    pub message: String,
    /// Whether others wrote the message. The host also sets it if the answer will be untrusted.
    pub untrusted: bool,
}

/// Receives the events of a running call.
///
/// Its functions are called on the thread that runs the tool and use its time, so they must not
/// block. Send events to a channel if handling them is slow.
pub trait Events: Send + Sync + 'static {
    /// Receives the progress of the call. A plugin's call reports at most ten times a second.
    fn progress(&self, progress: Progress);

    /// Receives a part of the answer. The answer repeats the part only if the call fails, or if the
    /// tool says that its answer begins with the emitted parts.
    fn emitted(&self, part: &Content);

    /// Returns the recorder of the output of a command that starts now. The recorder is dropped at
    /// the command's end. Now and then the recorder gets an empty write, so that it can pass on
    /// text that it has held back.
    ///
    /// The host implements this, and passes the text on as [`emitted`](Self::emitted). By default
    /// there is no recorder.
    fn command(&self) -> Option<Box<dyn OutputRecorder>> {
        None
    }

    /// Receives the amount that was saved of the files that the call changed. By default ignored.
    fn snapshot(&self, _snapshot: Snapshot) {}

    /// Receives the undo of the call's changes in files after its command failed. By default
    /// ignored.
    fn rollback(&self, _rollback: Rollback) {}
}

/// The amount that was saved of a call's changes in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Paths that the call changed.
    pub paths: usize,
    /// Bytes that were saved.
    pub bytes: u64,
    /// Paths whose old state could not be saved. If there are any, the call can't be undone.
    pub lost: usize,
}

/// An automatic undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// Paths that have their old state again. If it failed: 0.
    pub paths: usize,
    /// Whether it succeeded.
    pub succeeded: bool,
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl Events for NoEvents {
    fn progress(&self, _progress: Progress) {}
    fn emitted(&self, _part: &Content) {}
}
